//! Load with a schedule, against private services: what `sluice bench` runs.
//!
//! `rig` starts and kills things, `load` asks on time and measures, `seckill` is a sale from its first attempt to its settled
//! books, `report` says what came of it. What never happens here: touching anything that was not started here, or an address
//! other than loopback. Called by `gateway/src/cli/bench.rs`, which brings the signer of tokens.

pub mod load;
pub mod report;
pub mod rig;
pub mod seckill;

use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Makes a token for each of these users, signed as the configuration in this file says.
pub type Sign<'a> = &'a (dyn Fn(&Path, &[String]) -> anyhow::Result<Vec<String>> + Sync);

/// The `sluice` that the processes of a rig are.
fn program(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    named.map_or_else(|| std::env::current_exe().context("finding this program"), Ok)
}

/// Completes when somebody wants this process to end.
async fn stopped() -> anyhow::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Both only wait.
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    Ok(())
}

/// To whoever watches; results go to standard output.
fn say(line: &str) {
    eprintln!("{line}");
}
