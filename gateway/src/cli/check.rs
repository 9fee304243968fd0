//! `sluice check`: the configuration, every plugin it names and the key that seals today, without opening a port.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};

use crate::cli::load;
use crate::cli::run::runtime;
use crate::vault;
use crate::wiring;

pub(super) fn run(file: &Path) -> anyhow::Result<()> {
    let config = load::config(file, &[])?;
    let runtime = runtime(&config)?;
    let (statuses, vault) =
        runtime.block_on(async { anyhow::Ok((wiring::check_policies(&config)?, vault::describe(&config.vault).await?)) })?;
    let mut out = std::io::stdout().lock();
    let mut broken = 0;
    for status in statuses {
        let line = match (&status.version, &status.error) {
            (Some(version), None) => format!("policy {}: {version}", status.name),
            (_, error) => {
                broken += 1;
                format!("policy {}: {}", status.name, error.as_deref().unwrap_or("not loaded"))
            }
        };
        writeln!(out, "{line}").context("cannot print")?;
    }
    writeln!(out, "{vault}").context("cannot print")?;
    if broken > 0 {
        bail!("{broken} of the configured policies cannot be loaded");
    }
    writeln!(out, "{}: no problem found", file.display()).context("cannot print")
}
