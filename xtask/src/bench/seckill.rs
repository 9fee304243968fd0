//! CPU per attempt in a flash sale: Sluice with a token and three policies, beside nginx with Lua that runs a script of three
//! keys and checks nobody, both on the same private Redis, with the same requests from the same `wrk`.
//!
//! What is measured is the CPU time of gateway and Redis, divided by the attempts they answered. Both share core 0; the load
//! has core 1. No worker runs meanwhile, for the peer has nothing like it; what one worker writes is measured by itself.

mod deployment;
mod http;
mod peer;
mod wrk;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use self::deployment::Deployment;
use self::peer::Peer;
use self::wrk::Attempts;
use crate::bench::process::cpu_seconds_of;
use crate::bench::{machine, report, sluice};

/// Where gateway, peer and Redis run, and where everything else does.
const SERVER_CORE: u32 = 0;
const LOAD_CORE: u32 = 1;
/// Attempts before measuring: connections are open, instances warm.
const WARM_UP: u32 = 2_000;
/// More units than attempts.
const PLENTY: u32 = 1_000_000;
/// Longer than any budget of the rig's policies: what they keep in Redis is gone by then.
const BUDGETS_END: Duration = Duration::from_secs(6);
/// A worker that has written nothing for so long is broken.
const WRITES_WITHIN: Duration = Duration::from_secs(120);
/// Between two looks at the orders written.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How much and how often.
#[derive(Args)]
pub(crate) struct Options {
    /// Attempts per variant and round, each by another user.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1_000..=400_000))]
    attempts: u32,
    /// Rounds; variants take turns, and the median of the rounds is reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Connections of the load.
    #[arg(long, default_value_t = 32)]
    connections: u32,
    /// Build profile of Sluice: `dist` is what a cluster runs, and takes minutes to link.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Measures this build of Sluice instead of building one.
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    binary: Option<PathBuf>,
}

/// CPU of one phase, per attempt in microseconds.
#[derive(Debug, Clone, Copy)]
struct Cost {
    gateway: f64,
    redis: f64,
}

impl Cost {
    fn total(self) -> f64 {
        self.gateway + self.redis
    }
}

/// Won and sold out, of one variant over the rounds.
#[derive(Default)]
struct Costs {
    wins: Vec<Cost>,
    sold_out: Vec<Cost>,
}

/// What one worker did with a full log.
struct Writing {
    orders_per_second: f64,
    bytes_per_buyer: f64,
    key_bytes_per_buyer: f64,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let installed = Command::new("sh").arg(root.join("xtask/install.sh")).arg("bench").status().context("start install.sh")?;
    ensure!(installed.success(), "not everything that the bench needs is installed");
    let sluice = options.binary.clone().map_or_else(|| sluice::build(root, &options.profile), Ok)?;
    // First what can fail by itself: it is a test as much as a measurement.
    let rush = rush(root, &sluice)?;
    let (ours, peers) = costs(root, &sluice, options)?;
    let writing = writing(root, &sluice, options)?;
    report::publish(root, "seckill", &table(options, &ours, &peers, &writing, &rush)?)
}

/// Both variants, in turns.
fn costs(root: &Path, sluice: &Path, options: &Options) -> Result<(Costs, Costs)> {
    let tokens = options.rounds * 2 * (options.attempts + WARM_UP);
    let deployment = Deployment::start(root, sluice, tokens, Some(LOAD_CORE))?;
    deployment.pin(SERVER_CORE)?;
    let mut peer = Peer::start(root, &deployment.redis, SERVER_CORE)?;
    let (mut ours, mut peers) = (Costs::default(), Costs::default());
    let mut users = 0;
    for round in 1..=options.rounds {
        for units in [PLENTY, 1] {
            let attempts = |first: u32, count: u32| Attempts { tokens: &deployment.tokens, first, count, connections: options.connections };
            let (warm, measured) = (attempts(users, WARM_UP), attempts(users + WARM_UP, options.attempts));
            users += WARM_UP + options.attempts;

            let body = deployment.open_sale(units)?;
            judge(units, warm.run(root, deployment.edge, &body)?)?;
            let before = (cpu_seconds_of(deployment.pid)?, cpu_seconds_of(deployment.redis_pid)?);
            let answered = judge(units, measured.run(root, deployment.edge, &body)?)?;
            let after = (cpu_seconds_of(deployment.pid)?, cpu_seconds_of(deployment.redis_pid)?);
            let our_cost = cost(before, after, answered);

            peer.open_sale(units)?;
            judge(units, warm.run(root, peer.address, &body)?)?;
            let before = (peer.process.cpu_seconds()?, cpu_seconds_of(deployment.redis_pid)?);
            let answered = judge(units, measured.run(root, peer.address, &body)?)?;
            let after = (peer.process.cpu_seconds()?, cpu_seconds_of(deployment.redis_pid)?);
            let peer_cost = cost(before, after, answered);

            let phase = if units == PLENTY { "won" } else { "sold out" };
            eprintln!("round {round}, {phase}: Sluice {}, nginx {}", spelled(our_cost), spelled(peer_cost));
            let (ours, peers) = if units == PLENTY { (&mut ours.wins, &mut peers.wins) } else { (&mut ours.sold_out, &mut peers.sold_out) };
            ours.push(our_cost);
            peers.push(peer_cost);
        }
    }
    Ok((ours, peers))
}

/// How many were answered; each has to have been admitted, or with one unit, all but one refused.
fn judge(units: u32, run: wrk::Run) -> Result<u64> {
    let wanted = if units == PLENTY { 0 } else { run.answered };
    // The one unit goes to the warm-up's first, and a request that is under way at the end is answered and not counted.
    ensure!(run.refused + 1 >= wanted && run.refused <= wanted, "{} of {} attempts were refused", run.refused, run.answered);
    Ok(run.answered)
}

fn cost(before: (f64, f64), after: (f64, f64), answered: u64) -> Cost {
    #[expect(clippy::cast_precision_loss, reason = "attempts of one run are few")]
    let each = |seconds: f64| seconds * 1e6 / answered as f64;
    Cost { gateway: each(after.0 - before.0), redis: each(after.1 - before.1) }
}

fn spelled(cost: Cost) -> String {
    format!("{:.1} + {:.1} µs", cost.gateway, cost.redis)
}

/// Fills a sale's log, looks at what it takes in Redis, then lets one worker write it.
fn writing(root: &Path, sluice: &Path, options: &Options) -> Result<Writing> {
    let deployment = Deployment::start(root, sluice, options.attempts, None)?;
    let body = deployment.open_sale(PLENTY)?;
    let before = deployment.used_memory()?;
    let attempts = Attempts { tokens: &deployment.tokens, first: 0, count: options.attempts, connections: options.connections };
    judge(PLENTY, attempts.run(root, deployment.edge, &body)?)?;
    thread::sleep(BUDGETS_END);
    let buyers = f64::from(deployment.events_waiting()?);
    let (grown, keys) = (deployment.used_memory()? - before, deployment.key_memory()?);

    let worker = deployment.worker(sluice)?;
    let deadline = Instant::now() + WRITES_WITHIN;
    let mut first: Option<(Instant, f64)> = None;
    loop {
        let (written, now) = (worker.written(), Instant::now());
        ensure!(now < deadline, "{written} of {buyers} orders were written within {WRITES_WITHIN:?}");
        match first {
            None if written > 0.0 => first = Some((now, written)),
            // The first look saw what was written before it; only what followed is timed.
            Some((since, some)) if written >= buyers => {
                let orders_per_second = (buyers - some) / now.duration_since(since).as_secs_f64();
                return Ok(Writing { orders_per_second, bytes_per_buyer: grown / buyers, key_bytes_per_buyer: keys / buyers });
            }
            None | Some(_) => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Ten thousand people, a hundred units, two nodes.
fn rush(root: &Path, sluice: &Path) -> Result<Value> {
    let output = Command::new(sluice)
        .args(["bench", "seckill", "--users", "10000", "--stock", "100", "--nodes", "2", "--json", "--plugins"])
        .arg(plugins(root))
        .output()
        .context("start sluice bench seckill")?;
    let said = || [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    ensure!(output.status.success(), "sluice bench seckill: {}", said());
    serde_json::from_slice(&output.stdout).context("read what sluice bench seckill printed")
}

fn plugins(root: &Path) -> PathBuf {
    root.join("target/plugins")
}

fn table(options: &Options, ours: &Costs, peers: &Costs, writing: &Writing, rush: &Value) -> Result<String> {
    let median = |costs: &[Cost], of: fn(Cost) -> f64| report::median(&costs.iter().map(|cost| of(*cost)).collect::<Vec<_>>());
    let row = |name: &str, costs: &[Cost]| {
        let [gateway, redis, total] = [|cost: Cost| cost.gateway, |cost: Cost| cost.redis, Cost::total].map(|of| median(costs, of));
        format!("| {name} | {gateway:.1} µs | {redis:.1} µs | {total:.1} µs |\n")
    };
    let ratio = |ours: &[Cost], peers: &[Cost]| median(ours, Cost::total) / median(peers, Cost::total);
    let run = rush["runs"].get(0).context("the rush has no run")?;
    let wins = (row("Sluice, won", &ours.wins), row("nginx with Lua, won", &peers.wins));
    let sold_out = (row("Sluice, sold out", &ours.sold_out), row("nginx with Lua, sold out", &peers.sold_out));
    Ok(format!(
        "{}. {}; {}; {}; {}. {}, {} connections, {} rounds of {} attempts, one server thread, medians.\n\n\
         | Attempt | Gateway | Redis | Together |\n|---|---|---|---|\n{}{}{}{}\n\
         Won costs {:.2} × the peer (target 0.8), sold out {:.2} × (target 0.6).\n\n\
         | | |\n|---|---|\n\
         | orders written by one worker | {:.0} per second (target 10,000) |\n\
         | memory per buyer in Redis | {:.0} bytes (target 150), of which the sale's keys {:.0} |\n\
         | 10,000 buyers, 100 units, two nodes: last answer | after {} ms (target 3,000) |\n\
         | the same: p50, p99, p99.9 | {:.1} ms, {:.1} ms, {:.1} ms |\n\
         | the same: everything written | after {} ms |\n\
         | the same: oversold, lost, stuck | {}, {}, {} |\n",
        machine::describe(),
        machine::version("nginx", &["-v"]),
        machine::version("redis-server", &["--version"]),
        machine::version("mariadbd", &["--version"]),
        machine::version("rustc", &["--version"]),
        options.binary.as_ref().map_or_else(|| format!("Profile {}", options.profile), |file| format!("Build {}", file.display())),
        options.connections,
        options.rounds,
        options.attempts,
        wins.0,
        wins.1,
        sold_out.0,
        sold_out.1,
        ratio(&ours.wins, &peers.wins),
        ratio(&ours.sold_out, &peers.sold_out),
        writing.orders_per_second,
        writing.bytes_per_buyer,
        writing.key_bytes_per_buyer,
        run["lastAnswerMs"],
        run["latencyMs"]["p50"].as_f64().unwrap_or(f64::NAN),
        run["latencyMs"]["p99"].as_f64().unwrap_or(f64::NAN),
        run["latencyMs"]["p999"].as_f64().unwrap_or(f64::NAN),
        run["persistedMs"],
        rush["oversold"],
        rush["lost"],
        rush["stuck"],
    ))
}
