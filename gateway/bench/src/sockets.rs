//! `sluice bench sockets`: what many sockets cost that mostly wait.
//!
//! `weight`: resident memory per socket. `fan_out`: CPU per frame of a message to all of them. `storm`: how long until everybody is
//! back after a node died. The first two also measure a server of another kind, which broadcasts what it is sent.

mod crowd;
mod fan_out;
mod storm;
mod weight;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::rig::{Rig, Shape, cpu_of, resident_of};
use crate::{Holder, Sign, program, say, stopped};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// Resident memory per socket on which nothing happens.
    Weight,
    /// CPU per frame of one message to all sockets, which are devices of one user.
    FanOut,
    /// Time until everybody is back, with what was missed, after the node was killed and started again.
    Storm,
}

/// What to run.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Sockets.
    #[arg(long, default_value_t = 8_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    count: u32,
    /// What is measured.
    #[arg(long, value_enum, default_value = "weight")]
    measure: Measure,
    /// Weight: every user has an open session.
    #[arg(long)]
    sessions: bool,
    /// Fan-out: messages that are measured.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// Weight: how long nothing happens before each look at the memory.
    #[arg(long, value_name = "SECONDS", default_value_t = 12, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    settle: u64,
    /// Measure the server that listens here instead of a node of a private deployment. It sends each text frame to all its other
    /// sockets.
    #[arg(long, value_name = "ADDR", requires = "pid")]
    server: Option<SocketAddr>,
    /// Its process.
    #[arg(long, value_name = "N", requires = "server")]
    pid: Option<u32>,
    /// Fan-out to such a server: bytes of a frame.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    bytes: u32,
    /// Threads of the node; 0 is one per core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_024))]
    threads: u32,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
    /// Folder of the built policies.
    #[arg(long, value_name = "DIR", default_value = "target/plugins")]
    plugins: PathBuf,
    /// The `sluice` to run. Default: this one.
    #[arg(long, value_name = "FILE", hide = true)]
    binary: Option<PathBuf>,
}

/// The server that is measured.
enum Target {
    /// The only node of a rig.
    Own(Arc<Rig>),
    /// Somebody else's.
    Peer { server: SocketAddr, pid: u32 },
}

impl Target {
    fn rig(&self) -> Option<&Arc<Rig>> {
        match self {
            Self::Own(rig) => Some(rig),
            Self::Peer { .. } => None,
        }
    }

    fn server(&self) -> SocketAddr {
        match self {
            Self::Own(rig) => rig.edge(0),
            Self::Peer { server, .. } => *server,
        }
    }

    fn path(&self, query: &str) -> String {
        match self {
            Self::Own(_) => format!("/ws/chat{query}"),
            Self::Peer { .. } => "/".to_owned(),
        }
    }

    /// One for each of `count` users; a peer knows nobody.
    fn tokens(&self, sign: Sign<'_>, name: &str, count: usize) -> anyhow::Result<Vec<Option<String>>> {
        match self {
            Self::Own(rig) => {
                let holders: Vec<Holder> = (0..count).map(|number| Holder::user(format!("{name}-{number}"))).collect();
                Ok(sign(rig.config(), &holders)?.into_iter().map(Some).collect())
            }
            Self::Peer { .. } => Ok(vec![None; count]),
        }
    }

    fn resident(&self) -> anyhow::Result<u64> {
        match self {
            Self::Own(rig) => rig.resident(0),
            Self::Peer { pid, .. } => resident_of(*pid),
        }
    }

    fn cpu(&self) -> Duration {
        match self {
            Self::Own(rig) => rig.cpu().gateway,
            Self::Peer { pid, .. } => cpu_of(*pid),
        }
    }
}

/// Measures, and prints what was found to `out`. A signal ends everything that was started.
pub async fn run(options: &Options, sign: Sign<'_>, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    tokio::select! {
        // Nothing is lost with a dropped run: what it started ends with it.
        done = measured(options, sign, out) => done,
        stopped = stopped() => stopped.and(Err(anyhow::anyhow!("stopped; everything that was started has been ended"))),
    }
}

async fn measured(options: &Options, sign: Sign<'_>, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let target = match (options.server, options.pid) {
        (Some(server), Some(pid)) => Target::Peer { server, pid },
        _ => {
            say("starting Redis, NATS, MariaDB, a node and a worker");
            let shape = Shape {
                program: program(options.binary.clone())?,
                plugins: std::path::absolute(&options.plugins)?,
                nodes: 1,
                workers: 1,
                threads: options.threads as usize,
            };
            Target::Own(Arc::new(Rig::start(&shape).await?))
        }
    };
    say(&format!("{} sockets", options.count));
    let found = match options.measure {
        Measure::Weight => serde_json::to_value(weight::measure(options, &target, sign).await?),
        Measure::FanOut => serde_json::to_value(fan_out::measure(options, &target, sign).await?),
        Measure::Storm => serde_json::to_value(storm::measure(options, &target, sign).await?),
    }?;
    if options.json {
        writeln!(out, "{found}")?;
        return Ok(());
    }
    for (name, value) in found.as_object().into_iter().flatten() {
        let value = if let Value::Object(parts) = value { serde_json::to_string(parts)? } else { value.to_string() };
        writeln!(out, "{name:<24}{value}")?;
    }
    Ok(())
}
