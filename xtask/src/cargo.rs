//! Cargo as a user's shell would start it.
//!
//! A program that cargo runs inherits variables that describe its own package. Build scripts of dependencies watch some of
//! them, so a nested cargo that saw them would build half of the workspace again, and the user's next plain `cargo build`
//! the same half once more.

use std::path::Path;
use std::process::Command;

/// Cargo in the workspace at `root`, without the variables that only fit this program.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let described = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"]
            .iter()
            .any(|prefix| described.starts_with(prefix))
        {
            command.env_remove(&name);
        }
    }
    command.current_dir(root);
    command
}
