//! `cargo xtask bench`: timings, as ratios against a peer that ran in the same minutes on the same machine.
//!
//! What never happens here: a pass or a fail. A number is a measurement; it goes to the terminal and, with the machine and
//! the versions, to docs/benchmarks.md.

mod chat;
mod machine;
mod policy;
mod process;
mod proxy;
mod report;
mod seckill;
mod sluice;
mod swap;

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// What one policy call costs: warm and fresh, with few and with many header fields.
    Policy,
    /// What one proxied request costs without policies, with three, and in Envoy.
    Proxy(Load),
    /// What exchanging a policy every 50 ms does to the requests under way.
    Swap(Load),
    /// What an attempt in a flash sale costs, won and sold out, and in nginx with Lua; orders written per second; memory per buyer.
    Seckill(seckill::Options),
    /// What a message costs and how long it takes, what a socket weighs beside `ws` and `uwebsockets`, and a node's death.
    Chat(chat::Options),
}

/// How long and how often.
#[derive(Args)]
pub(crate) struct Load {
    /// Seconds of load per variant and round.
    #[arg(long, default_value_t = 8)]
    seconds: u32,
    /// Rounds; variants take turns, and the median of the rounds is reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Connections of the load.
    #[arg(long, default_value_t = 32)]
    connections: u32,
    /// Build profile of Sluice: `dist` is what a cluster runs, and takes minutes to link.
    #[arg(long, default_value = "dist")]
    profile: String,
}

pub(crate) fn run(root: &Path, bench: &Bench) -> Result<()> {
    let _alone = alone(root)?;
    match bench {
        Bench::Policy => policy::run(root),
        Bench::Proxy(load) => proxy::run(root, load),
        Bench::Swap(load) => swap::run(root, load),
        Bench::Seckill(options) => seckill::run(root, options),
        Bench::Chat(options) => chat::run(root, options),
    }
}

/// Two benches on one machine measure each other. The lock ends with this process, however it ends.
fn alone(root: &Path) -> Result<File> {
    let folder = root.join("target/bench");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).context("create target/bench/lock")?;
    ensure!(lock.try_lock().is_ok(), "another bench is running here: wait for its end");
    Ok(lock)
}
