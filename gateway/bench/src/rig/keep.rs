//! `sluice bench rig`: a deployment for a load that comes from elsewhere.

use std::io::{Read as _, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use tokio::sync::oneshot;

use super::{Rig, Shape};
use crate::{Holder, Sign, program, stopped};

/// What to start.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Gateway nodes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: u32,
    /// Workers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=16))]
    workers: u32,
    /// Threads of each process; 0 is one per core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_024))]
    threads: u32,
    /// Write tokens of this many users, buyer-0, buyer-1 …, to a file, one a line.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    tokens: u32,
    /// Folder of the built policies.
    #[arg(long, value_name = "DIR", default_value = "target/plugins")]
    plugins: PathBuf,
    /// The `sluice` to run. Default: this one.
    #[arg(long, value_name = "FILE", hide = true)]
    binary: Option<PathBuf>,
}

/// Starts a rig, prints to `out` where everything is, one JSON object in a line, and keeps it until a signal or the end of
/// standard input.
pub async fn keep(options: &Options, sign: Sign<'_>, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    tokio::select! {
        // Nothing is lost with a dropped rig: what it started ends with it.
        done = kept(options, sign, out) => done,
        stopped = stopped() => stopped,
    }
}

async fn kept(options: &Options, sign: Sign<'_>, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let shape = Shape {
        program: program(options.binary.clone())?,
        plugins: std::path::absolute(&options.plugins)?,
        nodes: options.nodes as usize,
        workers: options.workers as usize,
        threads: options.threads as usize,
    };
    let rig = Rig::start(&shape).await?;
    let users: Vec<Holder> = (0..options.tokens).map(|number| Holder::user(format!("buyer-{number}"))).collect();
    let tokens = rig.folder.join("tokens.txt");
    std::fs::write(&tokens, sign(rig.config(), &users)?.join("\n")).with_context(|| format!("writing {}", tokens.display()))?;
    let mut places = serde_json::to_value(rig.places().await?)?;
    places["tokens"] = json!(tokens);
    writeln!(out, "{places}")?;
    out.flush()?;
    end_of_input().await
}

/// A thread of its own, because nobody can interrupt a read of standard input; it ends with the process.
async fn end_of_input() -> anyhow::Result<()> {
    let (ends, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while input.read(&mut [0; 256]).is_ok_and(|bytes| bytes > 0) {}
        // Nobody waits any more when a signal came first.
        let _ = ends.send(());
    });
    Ok(ended.await?)
}
