//! The measured binary.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cargo::cargo;

/// Builds Sluice with `profile`; where it is.
pub(super) fn build(root: &Path, profile: &str) -> Result<PathBuf> {
    let target = root.join("target");
    let status = cargo(root)
        .args(["build", "--locked", "--profile", profile, "--package", "gateway"])
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .context("start cargo")?;
    ensure!(status.success(), "cargo could not build Sluice");
    Ok(target.join(if profile == "dev" { "debug" } else { profile }).join("sluice"))
}
