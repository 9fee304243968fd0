//! Compilers that can make guests of Rust.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const TARGET: &str = "wasm32-unknown-unknown";

/// Where nothing answers, `rustup target add` would wait for minutes; one library is 20 MB.
const RUSTUP_PATIENCE: Duration = Duration::from_secs(60);

/// Debian's second compiler and the source of its library, from the packages `rustc-web` and `rust-web-src`.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_LIBRARY: &str = "/usr/lib/rustlib/src/rust/library/Cargo.toml";

/// A compiler that can make guests.
#[derive(Debug)]
pub struct Compiler(Kind);

#[derive(Debug)]
enum Kind {
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
    ///
    /// # Errors
    /// When there is none, with what would help.
    pub fn find() -> Result<Self> {
        if target_is_installed()? || (rustup_adds_target() && target_is_installed()?) {
            return Ok(Self(Kind::Installed));
        }
        if Path::new(DEBIAN_RUSTC).is_file() && Path::new(DEBIAN_LIBRARY).is_file() {
            let linker = host_linker()?;
            ensure!(linker.is_file(), "the toolchain has no linker at {}", linker.display());
            return Ok(Self(Kind::Debian { linker }));
        }
        bail!(
            "no compiler for {TARGET}: `rustup target add {TARGET}` did not work, and Debian's pair is not here \
             (apt-get install --no-install-recommends rustc-web rust-web-src)"
        )
    }

    /// What it is, in words.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self.0 {
            Kind::Installed => "the installed wasm32-unknown-unknown target",
            Kind::Debian { .. } => "Debian's rustc-web and rust-web-src",
        }
    }

    /// Compiles `packages` of the cargo workspace in `workspace`, with `target_dir` for what is kept between builds, and
    /// returns the folder of their core modules. `locked` refuses to touch the lock file; an author may change a version.
    ///
    /// # Errors
    /// When cargo cannot; it has said why by then.
    pub fn build(&self, workspace: &Path, packages: &[&str], target_dir: &Path, locked: bool) -> Result<PathBuf> {
        let mut cargo = Command::new(cargo());
        cargo.current_dir(workspace).args(["build", "--release", "--target", TARGET]);
        cargo.args(locked.then_some("--locked"));
        cargo.args(packages.iter().flat_map(|package| ["--package", package]));
        cargo.env("CARGO_TARGET_DIR", target_dir);
        // Flags meant for the host would replace those of .cargo/config.toml.
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        if let Kind::Debian { linker } = &self.0 {
            cargo.arg("-Zbuild-std=std,panic_abort");
            cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
            cargo.env_remove("RUSTC_WRAPPER").env_remove("RUSTC_WORKSPACE_WRAPPER");
        }
        let status = cargo.status().context("start cargo")?;
        ensure!(status.success(), "cargo could not build {}", packages.join(", "));
        Ok(target_dir.join(TARGET).join("release"))
    }
}

fn cargo() -> OsString {
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
    eprintln!("rustup target add {TARGET}");
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
