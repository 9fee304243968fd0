//! `cargo xtask plugins`: guests become components in `target/plugins/`.
//!
//! What never happens here: WASI. A core module is wrapped as it is, so a component imports our world and nothing else.
//! Guests need a compiler for `wasm32-unknown-unknown`, which a plain toolchain lacks; [`Compiler::find`] says where one
//! comes from.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use wit_component::ComponentEncoder;

const TARGET: &str = "wasm32-unknown-unknown";

/// Where nothing answers, `rustup target add` would wait for minutes; one library is 20 MB.
const RUSTUP_PATIENCE: Duration = Duration::from_secs(60);

/// Debian's second compiler and the source of its library, from the packages `rustc-web` and `rust-web-src`.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_LIBRARY: &str = "/usr/lib/rustlib/src/rust/library/Cargo.toml";

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
    eprintln!("plugins: building {} with {}", names(&stale), compiler.describe());
    let modules = compiler.build(root, &stale)?;
    for guest in stale {
        guest.wrap(&modules, &out)?;
    }
    Ok(())
}

fn names(guests: &[&Guest]) -> String {
    guests.iter().map(|guest| guest.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// One guest crate: a folder of `plugins/` other than the SDK.
struct Guest {
    name: String,
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
            guests.push(Self { name, fingerprint: format!("{:016x}", hasher.finish()) });
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

    /// Turns the core module into a component. The file appears whole: a gateway may be watching the folder.
    fn wrap(&self, modules: &Path, out: &Path) -> Result<()> {
        let path = modules.join(self.name.replace('-', "_")).with_extension("wasm");
        let module = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let component = ComponentEncoder::default()
            .module(&module)
            .and_then(|encoder| encoder.validate(true).encode())
            .with_context(|| format!("make a component of {}", path.display()))?;

        let (target, partial) = (self.component(out), out.join(&self.name).with_extension("partial"));
        fs::write(&partial, &component)
            .and_then(|()| fs::rename(&partial, &target))
            .with_context(|| format!("write {}", target.display()))?;
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

/// A compiler that can make guests.
enum Compiler {
    /// The active toolchain has the target's library.
    Installed,
    /// Debian's compiler builds its own library first. Both must come from Debian: the source has to match the compiler.
    Debian {
        /// rustup's linker; Debian's compiler brings none for this target.
        linker: PathBuf,
    },
}

impl Compiler {
    /// An installed target, else one rustup can add, else Debian's pair.
    fn find() -> Result<Self> {
        if target_is_installed()? || (rustup_adds_target() && target_is_installed()?) {
            return Ok(Self::Installed);
        }
        if Path::new(DEBIAN_RUSTC).is_file() && Path::new(DEBIAN_LIBRARY).is_file() {
            let linker = host_linker()?;
            ensure!(linker.is_file(), "the toolchain has no linker at {}", linker.display());
            return Ok(Self::Debian { linker });
        }
        bail!(
            "no compiler for {TARGET}: `rustup target add {TARGET}` did not work, and Debian's pair is not here \
             (apt-get install --no-install-recommends rustc-web rust-web-src)"
        )
    }

    fn describe(&self) -> &'static str {
        match self {
            Self::Installed => "the installed wasm32-unknown-unknown target",
            Self::Debian { .. } => "Debian's rustc-web and rust-web-src",
        }
    }

    /// Compiles `guests` and returns the folder of their core modules.
    fn build(&self, root: &Path, guests: &[&Guest]) -> Result<PathBuf> {
        let target_dir = root.join("target/guests");
        let mut cargo = Command::new(cargo());
        cargo.current_dir(root.join("plugins")).args(["build", "--release", "--locked", "--target", TARGET]);
        cargo.args(guests.iter().flat_map(|guest| ["--package", &guest.name]));
        cargo.env("CARGO_TARGET_DIR", &target_dir);
        // Flags meant for the host would replace those of plugins/.cargo/config.toml.
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        if let Self::Debian { linker } = self {
            cargo.arg("-Zbuild-std=std,panic_abort");
            cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
            cargo.env_remove("RUSTC_WRAPPER").env_remove("RUSTC_WORKSPACE_WRAPPER");
        }
        let status = cargo.status().context("start cargo")?;
        ensure!(status.success(), "cargo could not build {}", names(guests));
        Ok(target_dir.join(TARGET).join("release"))
    }
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// What `rustc --print <what>` of the active toolchain says.
fn rustc_prints(args: &[&str]) -> Result<PathBuf> {
    let output = Command::new("rustc").args(args).stderr(Stdio::null()).output().context("start rustc")?;
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

fn target_is_installed() -> Result<bool> {
    let library = rustc_prints(&["--print", "target-libdir", "--target", TARGET])?;
    Ok(fs::read_dir(library).is_ok_and(|mut files| files.next().is_some()))
}

fn host_linker() -> Result<PathBuf> {
    Ok(rustc_prints(&["--print", "target-libdir"])?.with_file_name("bin").join("rust-lld"))
}

/// Asks rustup for the target; no rustup, no network and no patience all mean no.
fn rustup_adds_target() -> bool {
    let started = Instant::now();
    let Ok(mut rustup) = Command::new("rustup")
        .args(["target", "add", TARGET])
        .env("RUSTUP_MAX_RETRIES", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
    else {
        return false;
    };
    eprintln!("plugins: rustup target add {TARGET}");
    loop {
        match rustup.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if started.elapsed() < RUSTUP_PATIENCE => thread::sleep(Duration::from_millis(50)),
            Ok(None) | Err(_) => {
                // It may have ended in between; either way it must not outlive this command.
                let _ = rustup.kill();
                let _ = rustup.wait();
                return false;
            }
        }
    }
}
