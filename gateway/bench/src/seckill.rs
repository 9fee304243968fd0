//! `sluice bench seckill`: a flash sale from its first attempt to its settled books, and a verdict.
//!
//! In the end everybody has an answer, every order that somebody was told of is in the ledger, every order in the ledger was told
//! to its buyer, and the units sold are the smaller of stock and buyers. [`crate::report::Tally`] says what each departure is
//! called. What never happens here: starting and killing processes (`rig`), HTTP (`load`).

mod buyer;
mod ledger;
mod sale;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use self::buyer::{Buyer, Shop};
use self::ledger::Ledger;
use self::sale::Sale;
use crate::load::{Client, Latencies, arrivals};
use crate::report::{self, PerAttempt, Run, Tally, Visit};
use crate::rig::{Cpu, Plan, Rig, Shape};
use crate::{Holder, Sign, program, say, stopped};

/// Everybody at once, more or less.
const SECONDS: u64 = 1;
/// Long enough for five parts to go and come back while people still come.
const CHAOS_SECONDS: u64 = 10;
/// How long a buyer goes on after the last one was due. Then what is pending is stuck.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long the ledger may lag behind what buyers were told, and the invariants behind the ledger.
const AGREE_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks at the ledger.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest answer; the gateway's own patience with its stores is shorter.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// People who want a unit.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    users: u32,
    /// Units.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    stock: u32,
    /// Gateway nodes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: u32,
    /// Workers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: u32,
    /// People who come per second.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Time in which everybody comes. Default: 1, with --chaos 10.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=3_600))]
    seconds: Option<u64>,
    /// Connections of the load; who finds none free waits, and that counts.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Kill a worker, a node, Redis, NATS and MariaDB while it runs, and bring each back. Redis also loses what it had not flushed.
    #[arg(long)]
    chaos: bool,
    /// Sales, one after another, each with new buyers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Makes the same arrivals and the same faults again. Default: a new one, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
    /// Leave everything running afterwards, say where it is, and end with Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Folder of the built policies.
    #[arg(long, value_name = "DIR", default_value = "target/plugins")]
    plugins: PathBuf,
    /// The `sluice` to run. Default: this one.
    #[arg(long, value_name = "FILE", hide = true)]
    binary: Option<PathBuf>,
}

impl Options {
    /// Time in which everybody comes.
    fn over(&self) -> Duration {
        match (self.rate, self.seconds) {
            (Some(rate), _) => Duration::from_secs(1).mul_f64(f64::from(self.users) / f64::from(rate)),
            (None, Some(seconds)) => Duration::from_secs(seconds),
            (None, None) => Duration::from_secs(if self.chaos { CHAOS_SECONDS } else { SECONDS }),
        }
    }

    fn shape(&self) -> anyhow::Result<Shape> {
        Ok(Shape {
            program: program(self.binary.clone())?,
            plugins: std::path::absolute(&self.plugins)?,
            nodes: self.nodes as usize,
            workers: self.workers as usize,
            threads: 0,
        })
    }
}

/// Runs the sales and prints what came of them to `out`; whether nothing was wrong. A signal ends everything that was started.
pub async fn run(options: &Options, sign: Sign<'_>, out: &mut (dyn Write + Send)) -> anyhow::Result<bool> {
    tokio::select! {
        // What is left running waits for the same signal, and then has a verdict.
        biased;
        // Nothing is lost with a dropped run: what it started ends with it.
        done = sales(options, sign, out) => done,
        stopped = stopped() => stopped.and(Err(anyhow::anyhow!("stopped; everything that was started has been ended"))),
    }
}

async fn sales(options: &Options, sign: Sign<'_>, out: &mut (dyn Write + Send)) -> anyhow::Result<bool> {
    let seed = options.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    say(&format!("starting Redis, NATS, MariaDB, {} nodes and {} workers", options.nodes, options.workers));
    let rig = Arc::new(Rig::start(&options.shape()?).await?);
    let done = in_turn(options, sign, &rig, seed, out).await;
    if !matches!(done, Ok(true)) {
        say(&format!("what the processes said is in {}", rig.keep_logs().display()));
    }
    if options.keep {
        writeln!(out, "{}", serde_json::to_string(&rig.places().await?)?)?;
        say("everything is left running; Ctrl-C ends it");
        stopped().await?;
    }
    done
}

/// Every sale, and what is printed of it.
async fn in_turn(options: &Options, sign: Sign<'_>, rig: &Arc<Rig>, seed: u64, out: &mut (dyn Write + Send)) -> anyhow::Result<bool> {
    let mut runs = Vec::new();
    for run in 0..options.runs {
        let done = sale(options, sign, rig, run, seed.wrapping_add(run.into())).await?;
        if options.runs > 1 && !options.json {
            report::print_line(out, &done)?;
        }
        runs.push(done);
    }
    report::print(out, &runs, options.json)?;
    Ok(runs.iter().all(Run::is_well))
}

/// One sale with buyers of its own.
async fn sale(options: &Options, sign: Sign<'_>, rig: &Arc<Rig>, run: u32, seed: u64) -> anyhow::Result<Run> {
    let over = options.over();
    let names: Vec<String> = (0..options.users).map(|number| format!("buyer-{run}-{number}")).collect();
    let tokens = sign(rig.config(), &names.iter().map(Holder::user).collect::<Vec<_>>())?;
    let ledger = Ledger::open(&rig.mysql()).await?;
    let sale = Sale::open(rig, u64::from(run) + 1, options.stock, sign).await?;
    let plan = if options.chaos { Plan::rush(seed, over, rig.nodes(), rig.workers()) } else { Plan::default() };
    let due = arrivals(names.len(), over, seed);

    let progress = bar(names.len(), run, options);
    let before = rig.cpu();
    let started = Instant::now();
    let client = Client::new(options.connections as usize, ANSWER_WITHIN);
    let shop = Arc::new(Shop::new(rig.clone(), client, started, started + over + PATIENCE, names.len(), progress.clone()));
    let mut buyers = JoinSet::new();
    for (number, ((name, token), due)) in names.into_iter().zip(tokens).zip(due).enumerate() {
        let buyer = Buyer::new(&sale, number, name, &token, due);
        buyers.spawn({
            let shop = shop.clone();
            async move { shop.serve(buyer).await }
        });
    }
    let wanted = u64::from(options.stock.min(options.users));
    let written = ledger.clone().watch(sale.lot(), wanted, started, shop.deadline());
    let asking = async {
        shop.everybody_answered().await;
        (started.elapsed(), rig.cpu())
    };
    let (visits, persisted_after, faults, (last_answer, asked)) =
        tokio::join!(buyers.join_all(), written, plan.carry_out(rig, started, &progress), asking);
    progress.finish_and_clear();
    let faults = faults?;

    let whole = rig.cpu().since(before);
    let audit = audit(rig, &ledger, &sale, &visits, options).await?;
    let measured = Measured { visits, faults, last_answer, persisted_after, asking: asked.since(before), whole };
    finish(options, (run, seed), &measured, audit)
}

/// What was seen of a sale.
struct Measured {
    visits: Vec<Visit>,
    faults: Vec<String>,
    last_answer: Duration,
    persisted_after: Option<Duration>,
    /// CPU until everybody had an answer.
    asking: Cpu,
    /// CPU until everybody had gone home.
    whole: Cpu,
}

struct Audit {
    tally: Tally,
    /// Sentences about what does not hold.
    broken: Vec<String>,
}

/// Compares what buyers were told with the ledger, then closes the sale and looks at the books again.
async fn audit(rig: &Rig, ledger: &Ledger, sale: &Sale, visits: &[Visit], options: &Options) -> anyhow::Result<Audit> {
    let deadline = Instant::now() + AGREE_WITHIN;
    // A ledger that came back a moment ago may not have answered yet; what it says then is compared as it is.
    let tally = loop {
        let read = timeout_at(deadline, ledger.orders(sale.lot())).await;
        match read {
            Ok(Ok(orders)) => {
                let tally = Tally::new(visits, &orders, options.stock);
                if tally.is_well() || Instant::now() >= deadline {
                    break tally;
                }
            }
            Ok(Err(error)) if Instant::now() >= deadline => return Err(error),
            Ok(Err(_)) => {}
            Err(_) => anyhow::bail!("MariaDB did not answer within {AGREE_WITHIN:?}"),
        }
        sleep(LOOK_EVERY).await;
    };
    let mut broken = sale.invariants(rig, Instant::now() + AGREE_WITHIN).await?;
    broken.extend(ledger.contradictions(sale.lot(), None).await?);
    if let Err(error) = sale.settle(rig, Instant::now() + AGREE_WITHIN).await {
        broken.push(format!("the sale did not settle: {error:#}"));
    }
    broken.extend(ledger.contradictions(sale.lot(), Some(0)).await?);
    Ok(Audit { tally, broken })
}

fn finish(options: &Options, (run, seed): (u32, u64), measured: &Measured, audit: Audit) -> anyhow::Result<Run> {
    let Measured { visits, last_answer, asking, .. } = measured;
    let attempts: u64 = visits.iter().map(|visit| u64::from(visit.attempts)).sum();
    let latency = Latencies::of(visits.iter().filter_map(|visit| visit.latency))?.summary();
    let mut refused = BTreeMap::new();
    for reason in visits.iter().filter_map(Visit::refusal) {
        *refused.entry(reason.to_owned()).or_default() += 1;
    }
    Ok(Run {
        run: run + 1,
        seed,
        users: options.users,
        stock: options.stock,
        nodes: options.nodes,
        workers: options.workers,
        faults: measured.faults.clone(),
        attempts,
        again: attempts.saturating_sub(options.users.into()),
        attempts_per_second: rate(attempts, *last_answer),
        latency_ms: latency,
        last_answer_ms: whole_millis(*last_answer),
        persisted_ms: measured.persisted_after.map(whole_millis),
        refused,
        tally: audit.tally,
        cpu_us_per_attempt: PerAttempt {
            gateway: micros_each(asking.gateway, attempts),
            redis: micros_each(asking.redis, attempts),
            worker: micros_each(measured.whole.worker, attempts),
        },
        broken: audit.broken,
    })
}

#[expect(clippy::cast_precision_loss, reason = "attempts of one run are few")]
fn rate(attempts: u64, over: Duration) -> f64 {
    attempts as f64 / over.as_secs_f64().max(f64::EPSILON)
}

#[expect(clippy::cast_precision_loss, reason = "attempts of one run are few")]
fn micros_each(cpu: Duration, attempts: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / attempts.max(1) as f64
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Drawn on a terminal, and nowhere else.
fn bar(users: usize, run: u32, options: &Options) -> ProgressBar {
    let title = format!("sale {} of {}", run + 1, options.runs);
    if !std::io::stderr().is_terminal() {
        say(&format!("{title}: {users} buyers for {} units", options.stock));
    }
    let bar = ProgressBar::new(users as u64).with_message(title);
    ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} answered, {elapsed}")
        .map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}
