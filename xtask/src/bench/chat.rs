//! What chat costs: durable messages a second and their latencies, memory of sockets that wait, one message to a thousand sockets,
//! and a node's death with everybody coming back. Sockets are measured beside `ws` and `uwebsockets`.
//!
//! The measuring is done by `sluice bench chat` and `sluice bench sockets`; here is what is run, and the table. Each result is also
//! kept as JSON in target/bench/chat.

mod peer;
mod sockets;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use self::sockets::{Beside, Sockets};
use crate::bench::{report, sluice};

/// Messages per second, one run each.
const LADDER: [u32; 5] = [500, 1_000, 2_000, 3_000, 5_000];
/// Conversations they belong to.
const CONVERSATIONS: u32 = 200;

/// How much is measured, and of what.
#[derive(Args)]
pub(crate) struct Options {
    /// A twentieth of everything, to see that all of it works. Nothing is written to docs/benchmarks.md.
    #[arg(long)]
    quick: bool,
    /// Build profile of Sluice: `dist` is what a cluster runs, and takes minutes to link.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Measures this build of Sluice instead of building one.
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    binary: Option<PathBuf>,
}

impl Options {
    /// How long each rate is kept up.
    fn seconds(&self) -> u32 {
        if self.quick { 5 } else { 20 }
    }

    /// Sockets that wait, and that come back.
    fn crowd(&self) -> u32 {
        if self.quick { 400 } else { 8_000 }
    }

    /// Sockets that hear one message.
    fn audience(&self) -> u32 {
        if self.quick { 50 } else { 1_000 }
    }

    fn rates(&self) -> &'static [u32] {
        if self.quick { &[100] } else { &LADDER }
    }
}

/// All that was found.
struct Found {
    /// Of each rate.
    ladder: Vec<Value>,
    waiting: Beside,
    with_sessions: Value,
    fan_out: Beside,
    storm: Value,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let installed = Command::new("sh").arg(root.join("xtask/install.sh")).arg("bench").status().context("start install.sh")?;
    ensure!(installed.success(), "not everything that the bench needs is installed");
    fs::create_dir_all(root.join("target/bench/chat")).context("create target/bench/chat")?;
    let sluice = options.binary.clone().map_or_else(|| sluice::build(root, &options.profile), Ok)?;
    // Sluice is measured all the same where there is no way to the packages.
    let modules = peer::modules(root).inspect_err(|error| eprintln!("without peers: {error:#}")).ok();

    let ladder = options.rates().iter().map(|rate| messages(root, &sluice, *rate, options)).collect::<Result<_>>()?;
    let sockets = Sockets { root, sluice: &sluice, modules: modules.as_ref() };
    let (crowd, audience) = (options.crowd().to_string(), options.audience().to_string());
    let waiting = sockets.beside("waiting", &["--count", &crowd], |_| Vec::new())?;
    let with_sessions = sockets.ours("waiting-sessions", &["--count", &crowd, "--sessions"])?;
    let same_bytes = |ours: &Value| vec!["--bytes".to_owned(), ours["frameBytes"].to_string()];
    let fan_out = sockets.beside("fan-out", &["--measure", "fan-out", "--count", &audience, "--threads", "1"], same_bytes)?;
    let storm = sockets.ours("storm", &["--measure", "storm", "--count", &crowd])?;

    let text = table::text(options, &Found { ladder, waiting, with_sessions, fan_out, storm });
    if options.quick {
        eprintln!("\n{text}");
        return Ok(());
    }
    report::publish(root, "chat", &text)
}

/// One rate on one node and one worker. A run that lost something is no measurement; one that did not keep up is.
fn messages(root: &Path, sluice: &Path, rate: u32, options: &Options) -> Result<Value> {
    let mut command = Command::new(sluice);
    command.args(["bench", "chat", "--json", "--nodes", "1", "--workers", "1", "--sessions", &CONVERSATIONS.to_string()]);
    command.args(["--rate", &rate.to_string(), "--seconds", &options.seconds().to_string(), "--plugins"]).arg(plugins(root));
    let found = keep(root, &format!("messages-{rate}"), command)?;
    for wrong in ["lost", "duplicates", "reordered", "gaps", "altered"] {
        ensure!(found[wrong] == 0, "{wrong} {} at {rate} messages per second: {found}", found[wrong]);
    }
    found["runs"].get(0).cloned().context("the run is missing")
}

/// Runs a bench of `sluice`, and keeps what it prints, one JSON object, as target/bench/chat/`name`.json.
fn keep(root: &Path, name: &str, mut command: Command) -> Result<Value> {
    eprintln!("{name}");
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("start {name}"))?;
    let text = String::from_utf8(output.stdout).context("read what it printed")?;
    let file = root.join("target/bench/chat").join(format!("{name}.json"));
    fs::write(&file, &text).with_context(|| format!("write {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{name} ended with {} and printed no JSON: {text}", output.status))
}

fn plugins(root: &Path) -> PathBuf {
    root.join("target/plugins")
}
