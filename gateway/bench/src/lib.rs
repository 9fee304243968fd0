//! Load with a schedule, against private services: what `sluice bench` runs.
//!
//! `rig` starts and kills things, `load` asks on time and measures. `seckill` is a sale from its first attempt to its settled
//! books, and `report` says what came of it; `chat` is conversations from their first message to the comparison of everybody's log
//! with the ledger; `sockets` is what sockets cost that mostly wait. What never happens here: touching anything that was not started here, or an address
//! other than loopback. Called by `gateway/src/cli/bench.rs`, which brings the signer of tokens.

pub mod chat;
pub mod load;
pub mod report;
pub mod rig;
pub mod seckill;
pub mod sockets;

use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Makes a token for each of these people, signed as the configuration in this file says.
pub type Sign<'a> = &'a (dyn Fn(&Path, &[Holder]) -> anyhow::Result<Vec<String>> + Sync);

/// Whom a token speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The principal.
    pub id: String,
    /// The shop of an agent; users have none.
    pub shop: Option<u64>,
}

impl Holder {
    /// A user.
    pub fn user(id: impl Into<String>) -> Self {
        Self { id: id.into(), shop: None }
    }

    /// An agent of a shop.
    pub fn agent(id: impl Into<String>, shop: u64) -> Self {
        Self { id: id.into(), shop: Some(shop) }
    }
}

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
