//! Reads the configuration file and the environment.

use std::path::Path;

use anyhow::{Context, bail};
use gateway_core::config::Config;

/// The configuration in `file`, overridden by `SLUICE__…` variables and then by `overrides`.
pub(super) fn config(file: &Path, overrides: &[(String, String)]) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&file.display().to_string(), &text, overrides)
}

/// The same for a text that is already there.
pub(super) fn parse(name: &str, text: &str, overrides: &[(String, String)]) -> anyhow::Result<Config> {
    let mut environment: Vec<(String, String)> = std::env::vars().filter(|(key, _)| key.starts_with("SLUICE__")).collect();
    environment.sort();
    environment.extend_from_slice(overrides);
    match Config::parse(name, text, &environment) {
        Ok(config) => Ok(config),
        Err(problems) => bail!("the configuration has problems\n{problems}"),
    }
}
