//! The folder a new plugin starts as: a rule that works, its vectors, and all it is built from.
//!
//! It stands outside this repository and needs nothing of it: SDK and world are written into it, and its lock file pins the
//! very versions the policies of this repository are built with, so whoever has built those needs no network.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

mod lock;

/// The rule a plugin starts with; it is a plugin of this repository too, so that it is tested like one.
const EXAMPLE: &str = "example";

/// What a new folder and this repository have in common, and where it lies here and there.
#[rustfmt::skip]
const COPIES: &[(&str, &str, &str)] = &[
    ("plugins/.cargo/config.toml", ".cargo/config.toml", include_str!("../../../plugins/.cargo/config.toml")),
    ("plugins/examples/rust/src/lib.rs", "src/lib.rs", include_str!("../../../plugins/examples/rust/src/lib.rs")),
    ("plugins/examples/rust/tests/vectors.rs", "tests/vectors.rs", include_str!("../../../plugins/examples/rust/tests/vectors.rs")),
    ("plugins/examples/rust/README.md", "README.md", include_str!("../../../plugins/examples/rust/README.md")),
    ("plugins/examples/rust/config.json", "config.json", include_str!("../../../plugins/examples/rust/config.json")),
    ("plugins/examples/rust/schema.json", "schema.json", include_str!("../../../plugins/examples/rust/schema.json")),
    ("plugins/examples/rust/vectors.yaml", "vectors.yaml", include_str!("../../../plugins/examples/rust/vectors.yaml")),
    ("plugins/sdk/Cargo.toml", "sdk/Cargo.toml", include_str!("../../../plugins/sdk/Cargo.toml")),
    ("plugins/sdk/src/answer.rs", "sdk/src/answer.rs", include_str!("../../../plugins/sdk/src/answer.rs")),
    ("plugins/sdk/src/host.rs", "sdk/src/host.rs", include_str!("../../../plugins/sdk/src/host.rs")),
    ("plugins/sdk/src/lib.rs", "sdk/src/lib.rs", include_str!("../../../plugins/sdk/src/lib.rs")),
    ("plugins/sdk/src/policy.rs", "sdk/src/policy.rs", include_str!("../../../plugins/sdk/src/policy.rs")),
    ("plugins/sdk/src/testing.rs", "sdk/src/testing.rs", include_str!("../../../plugins/sdk/src/testing.rs")),
    ("plugins/sdk/src/testing/file.rs", "sdk/src/testing/file.rs", include_str!("../../../plugins/sdk/src/testing/file.rs")),
    ("plugins/sdk/src/testing/vectors.rs", "sdk/src/testing/vectors.rs", include_str!("../../../plugins/sdk/src/testing/vectors.rs")),
    ("plugins/sdk/src/text.rs", "sdk/src/text.rs", include_str!("../../../plugins/sdk/src/text.rs")),
    ("plugins/sdk/src/view.rs", "sdk/src/view.rs", include_str!("../../../plugins/sdk/src/view.rs")),
    ("wit/policy.wit", "sdk/wit/policy.wit", include_str!("../../../wit/policy.wit")),
    ("wit/world.wit", "sdk/wit/world.wit", include_str!("../../../wit/world.wit")),
];

/// The manifests that become one, and the lock file that is cut to what the new plugin needs.
const PACKAGE: &str = include_str!("../../../plugins/examples/rust/Cargo.toml");
const WORKSPACE: &str = include_str!("../../../plugins/Cargo.toml");
const LOCK: &str = include_str!("../../../plugins/Cargo.lock");

const IGNORED: &str = "target/\n*.wasm\n*.bundle\n.sluice/\n";

/// Words a crate cannot be called: those of the language, and the crates every program has.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "abstract", "alloc", "as", "async", "await", "become", "box", "break", "build", "const", "continue", "core", "crate", "deps", "do", "dyn",
    "else", "enum", "examples", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "incremental", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "proc-macro", "pub", "ref", "return", "self", "static", "std", "struct", "super",
    "test", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Makes the folder `parent/name` and returns it.
///
/// # Errors
/// When the name cannot be a plugin's, or something is there already.
pub fn new(parent: &Path, name: &str) -> Result<PathBuf> {
    check(name)?;
    let files = files(name)?;
    let folder = parent.join(name);
    match fs::create_dir(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} is already there; nothing was changed. Choose another name, or remove it first", folder.display())
        }
        Err(error) => return Err(error).with_context(|| format!("make {}", folder.display())),
    }
    for (file, text) in files {
        let path = folder.join(&file);
        let parent = path.parent().context("a file lies in a folder")?;
        fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(folder)
}

fn check(name: &str) -> Result<()> {
    let fits = (1..=40).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    ensure!(fits, "{name:?} cannot be a plugin's name: [a-z][a-z0-9-]{{0,39}}, such as block-clients");
    ensure!(!RESERVED.contains(&name) && !lock::names(LOCK).contains(&name), "{name:?} is the name of something a plugin is built with");
    Ok(())
}

/// Every file of the plugin `name`, by its place in the folder.
fn files(name: &str) -> Result<Vec<(String, String)>> {
    let mut files = vec![
        ("Cargo.toml".to_owned(), manifest(name)?),
        ("Cargo.lock".to_owned(), lock::cut(LOCK, EXAMPLE, name)?),
        (".gitignore".to_owned(), IGNORED.to_owned()),
    ];
    for (_, place, text) in COPIES {
        let text = match *place {
            "README.md" => text.replace(EXAMPLE, name),
            "tests/vectors.rs" => replaced(text, "example::", &format!("{}::", name.replace('-', "_")))?,
            "sdk/src/lib.rs" => replaced(text, "path: \"../../wit\"", "path: \"wit\"")?,
            _ => (*text).to_owned(),
        };
        files.push(((*place).to_owned(), text));
    }
    Ok(files)
}

/// One manifest for the package and its workspace, which is the SDK beside it.
fn manifest(name: &str) -> Result<String> {
    let package = replaced(PACKAGE, "name = \"example\"", &format!("name = \"{name}\""))?;
    let package = replaced(&package, "\nversion.workspace = true", "\nversion = \"0.1.0\"")?;
    let package = replaced(&package, "license.workspace = true\n", "")?;
    let start = WORKSPACE.find("[workspace]").context("plugins/Cargo.toml has a workspace")?;
    let members = WORKSPACE.lines().find(|line| line.starts_with("members = ")).context("plugins/Cargo.toml has members")?;
    let workspace = replaced(&WORKSPACE[start..], members, "members = [\"sdk\"]")?;
    let lines = package.lines().filter(|line| !line.starts_with("description"));
    Ok(lines.map(|line| format!("{line}\n")).collect::<String>() + "\n" + &workspace)
}

/// `text` with the one place that says `this` saying `that`.
fn replaced(text: &str, this: &str, that: &str) -> Result<String> {
    ensure!(text.matches(this).count() == 1, "{this:?} is not once in what plugins are made from");
    Ok(text.replace(this, that))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn list(folder: &Path, into: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                list(&path, into);
            } else {
                into.insert(path.strip_prefix(repository()).unwrap().display().to_string());
            }
        }
    }

    #[test]
    fn the_whole_sdk_and_the_whole_world_are_copied() {
        let mut there = BTreeSet::new();
        for folder in ["plugins/sdk", "plugins/examples/rust/src", "plugins/examples/rust/tests"] {
            list(&repository().join(folder), &mut there);
        }
        there.extend(["wit/policy.wit", "wit/world.wit", "plugins/.cargo/config.toml"].map(str::to_owned));
        there.extend(["README.md", "config.json", "schema.json", "vectors.yaml"].map(|file| format!("plugins/examples/rust/{file}")));
        let copied: BTreeSet<String> = COPIES.iter().map(|(file, _, _)| (*file).to_owned()).collect();
        assert_eq!(copied, there);
    }

    #[test]
    fn cargo_takes_manifest_and_lock_as_they_are() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["demo", "a-1", "zz"] {
            let folder = new(temp.path(), name).unwrap();
            let output = Command::new(env!("CARGO"))
                .args(["metadata", "--locked", "--offline", "--format-version", "1", "--no-deps"])
                .current_dir(&folder)
                .output()
                .unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            // Resolving is what reads the lock file.
            let output = Command::new(env!("CARGO")).args(["tree", "--locked", "--offline"]).current_dir(&folder).output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    #[test]
    fn never_writes_over_anything() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("demo")).unwrap();
        let refused = new(temp.path(), "demo").unwrap_err().to_string();
        assert!(refused.contains("already there"), "{refused}");
        assert_eq!(fs::read_dir(temp.path().join("demo")).unwrap().count(), 0);
    }

    #[test]
    fn refuses_names_that_could_not_be_built_or_pushed() {
        for name in ["", "Demo", "1demo", "-demo", "de_mo", "demo/..", "..", "match", "test", "serde", "sluice-sdk", &"a".repeat(41)] {
            assert!(check(name).is_err(), "{name}");
        }
        for name in ["demo", "d", "block-clients", "a1", &"a".repeat(40)] {
            assert!(check(name).is_ok(), "{name}");
        }
    }
}
