//! `sluice migrate`.

use std::io::Write;
use std::path::Path;

use anyhow::Context;

use crate::cli::load;
use crate::cli::run::runtime;
use crate::wiring;

pub(super) fn run(file: &Path) -> anyhow::Result<()> {
    let config = load::config(file, &[])?;
    runtime(&config)?.block_on(wiring::migrate(&config))?;
    writeln!(std::io::stdout(), "the tables are up to date").context("cannot print")
}
