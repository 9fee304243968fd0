//! The build of one plugin's folder: `demo/` becomes `demo/demo.wasm`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::compiler::Compiler;
use crate::component::{WIT, component, write_whole};

/// What a build made.
#[derive(Debug)]
pub struct Built {
    /// The component, `<folder>/<name>.wasm`.
    pub component: PathBuf,
    /// Its size.
    pub bytes: usize,
    /// What made it, in words.
    pub toolchain: String,
    /// Whether a configuration schema is inside.
    pub has_schema: bool,
}

/// The language of a plugin, told by its build file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Cargo.toml.
    Rust,
    /// package.json: `npm run build` leaves a component in `build/guest.wasm`.
    JavaScript,
    /// Makefile: `make` leaves a core module in `build/guest.wasm`.
    C,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rust => "Rust",
            Self::JavaScript => "JavaScript",
            Self::C => "C",
        })
    }
}

impl Language {
    /// The language of the plugin in `folder`.
    ///
    /// # Errors
    /// When no build file is there.
    pub fn of(folder: &Path) -> Result<Self> {
        let files = [("Cargo.toml", Self::Rust), ("package.json", Self::JavaScript), ("Makefile", Self::C)];
        let found = files.into_iter().find(|(file, _)| folder.join(file).is_file());
        let (_, language) = found.with_context(|| {
            format!("{} has no Cargo.toml, package.json or Makefile; `sluice plugin new NAME` makes one", folder.display())
        })?;
        Ok(language)
    }
}

/// The plugin's name: its folder's.
///
/// # Errors
/// When the folder is not there, or its name cannot be a plugin's.
pub fn name(folder: &Path) -> Result<String> {
    let folder = folder.canonicalize().with_context(|| format!("open the plugin's folder {}", folder.display()))?;
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let fits = (1..=40).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    ensure!(fits, "{}: a plugin's folder is called as the plugin is, [a-z0-9-]{{1,40}}", folder.display());
    Ok(name.to_owned())
}

/// Builds the plugin in `folder`.
///
/// # Errors
/// What failed; the language's own tools have said why by then.
pub fn build(folder: &Path) -> Result<Built> {
    let name = name(folder)?;
    let language = Language::of(folder)?;
    let (wasm, toolchain) = match language {
        Language::Rust => rust(folder, &name)?,
        Language::JavaScript => {
            let modules = folder.join("node_modules");
            ensure!(modules.is_dir(), "{} is not there: run `npm ci` in {}", modules.display(), folder.display());
            (other(folder, "npm", &["run", "--silent", "build"])?, "npm run build".to_owned())
        }
        Language::C => (other(folder, "make", &["--silent"])?, "make".to_owned()),
    };
    let schema = match fs::read_to_string(folder.join("schema.json")) {
        Ok(schema) => Some(schema),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).context(format!("read {}", folder.join("schema.json").display())),
    };
    let bytes = fs::read(&wasm).with_context(|| format!("read {}", wasm.display()))?;
    let component = component(&bytes, schema.as_deref()).with_context(|| format!("make a component of {}", wasm.display()))?;
    let target = folder.join(&name).with_extension("wasm");
    write_whole(&target, &component)?;
    Ok(Built { component: target, bytes: component.len(), toolchain, has_schema: schema.is_some() })
}

fn rust(folder: &Path, name: &str) -> Result<(PathBuf, String)> {
    let compiler = Compiler::find()?;
    let modules = compiler.build(folder, &[name], &target_dir(folder)?.join("guest"), false)?;
    Ok((modules.join(name.replace('-', "_")).with_extension("wasm"), compiler.describe().to_owned()))
}

/// Where cargo keeps what it makes of the plugin in `folder`: `CARGO_TARGET_DIR`, or `<folder>/target`.
///
/// # Errors
/// When the folder is not there.
pub fn target_dir(folder: &Path) -> Result<PathBuf> {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(shared) => std::path::absolute(shared).context("CARGO_TARGET_DIR"),
        None => Ok(folder.canonicalize().context("open the plugin's folder")?.join("target")),
    }
}

/// Runs another language's build, with the world's text where `SLUICE_WIT` says.
fn other(folder: &Path, program: &str, arguments: &[&str]) -> Result<PathBuf> {
    let folder = folder.canonicalize().context("open the plugin's folder")?;
    let (wit, wasm) = (folder.join("build/wit"), folder.join("build/guest.wasm"));
    fs::create_dir_all(&wit).with_context(|| format!("make {}", wit.display()))?;
    for (file, text) in WIT {
        fs::write(wit.join(file), text).with_context(|| format!("write {}", wit.join(file).display()))?;
    }
    let status = Command::new(program).args(arguments).current_dir(&folder).env("SLUICE_WIT", &wit).status();
    let status = status.with_context(|| format!("start {program}: is it installed?"))?;
    ensure!(status.success(), "{program} {} failed in {}", arguments.join(" "), folder.display());
    if !wasm.is_file() {
        bail!("{program} {} left no {}", arguments.join(" "), wasm.display());
    }
    Ok(wasm)
}
