//! `cargo xtask plugins`: the guests of `plugins/` become components in `target/plugins/`.
//!
//! What never happens here: compiling and wrapping; `gateway-guest` does both. What is decided here is which guests there
//! are, and which of them have changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gateway_guest::{Compiler, component, write_whole};

/// Builds the guests whose inputs have changed since the last time.
pub(crate) fn build_all() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lives in the workspace")?;
    let out = root.join("target/plugins");
    fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;

    let guests = Guest::all(root)?;
    let stale: Vec<&Guest> = guests.iter().filter(|guest| !guest.is_fresh(&out)).collect();
    if stale.is_empty() {
        eprintln!("plugins: {} up to date in {}", guests.len(), out.display());
        return Ok(());
    }

    let compiler = Compiler::find()?;
    let names: Vec<&str> = stale.iter().map(|guest| guest.name.as_str()).collect();
    eprintln!("plugins: building {} with {}", names.join(", "), compiler.describe());
    let modules = compiler.build(&root.join("plugins"), &names, &root.join("target/guests"), true)?;
    for guest in stale {
        guest.wrap(&modules, &out)?;
    }
    Ok(())
}

/// One guest crate: a folder of `plugins/` other than the SDK.
struct Guest {
    name: String,
    folder: PathBuf,
    /// Of everything its component is made from.
    fingerprint: String,
}

impl Guest {
    fn all(root: &Path) -> Result<Vec<Self>> {
        let plugins = root.join("plugins");
        let mut shared = BTreeMap::new();
        for path in ["Cargo.toml", "Cargo.lock", ".cargo", "sdk"] {
            read_tree(&plugins.join(path), &mut shared)?;
        }
        for name in ["policy.wit", "world.wit"] {
            read_tree(&root.join("wit").join(name), &mut shared)?;
        }

        let mut guests = Vec::new();
        for entry in fs::read_dir(&plugins).with_context(|| format!("list {}", plugins.display()))? {
            let folder = entry?.path();
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name == "sdk" || !folder.join("Cargo.toml").is_file() {
                continue;
            }
            let mut inputs = shared.clone();
            read_tree(&folder, &mut inputs)?;
            // Only ever compared with an earlier one: an unlucky change of the hash would cost one build.
            let mut hasher = DefaultHasher::new();
            inputs.hash(&mut hasher);
            guests.push(Self { name, folder, fingerprint: format!("{:016x}", hasher.finish()) });
        }
        guests.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(guests)
    }

    fn component(&self, out: &Path) -> PathBuf {
        out.join(&self.name).with_extension("wasm")
    }

    fn mark(&self, out: &Path) -> PathBuf {
        out.join(&self.name).with_extension("fingerprint")
    }

    fn is_fresh(&self, out: &Path) -> bool {
        self.component(out).is_file() && fs::read_to_string(self.mark(out)).is_ok_and(|mark| mark == self.fingerprint)
    }

    /// Turns the core module into a component with the guest's schema in it.
    fn wrap(&self, modules: &Path, out: &Path) -> Result<()> {
        let path = modules.join(self.name.replace('-', "_")).with_extension("wasm");
        let module = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let schema = self.folder.join("schema.json");
        let schema =
            if schema.is_file() { Some(fs::read_to_string(&schema).with_context(|| format!("read {}", schema.display()))?) } else { None };
        let component = component(&module, schema.as_deref()).with_context(|| format!("make a component of {}", path.display()))?;

        let target = self.component(out);
        write_whole(&target, &component)?;
        fs::write(self.mark(out), &self.fingerprint).with_context(|| format!("mark {}", target.display()))?;
        eprintln!("plugins: {} ({} KiB)", target.display(), component.len() / 1024);
        Ok(())
    }
}

/// Adds every file below `path` (or the file `path`) with its bytes.
fn read_tree(path: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    if path.file_name() == Some(OsStr::new("target")) {
        return Ok(());
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("list {}", path.display()))? {
            read_tree(&entry?.path(), into)?;
        }
        return Ok(());
    }
    into.insert(path.to_owned(), fs::read(path).with_context(|| format!("read {}", path.display()))?);
    Ok(())
}
