//! `cargo xtask check`: what a change must pass before it is worth testing.

use std::path::Path;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::directions;

/// Stops at the first kind of problem, shows all of that kind.
pub(crate) fn run(root: &Path) -> Result<()> {
    let sh = Shell::new()?;
    sh.change_dir(root);
    cmd!(sh, "cargo fmt --all --check").run()?;
    let wrong = directions::wrong_arrows(root)?;
    ensure!(wrong.is_empty(), "imports run the wrong way:\n  {}", wrong.join("\n  "));
    cmd!(sh, "cargo clippy --workspace --all-targets --locked -- -D warnings").run()?;
    Ok(())
}
