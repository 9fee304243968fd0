//! `sluice bench chat`: conversations between users and agents, and a comparison of what everybody saw with what the ledger holds.
//!
//! The load is open: each message has an instant at which it is due, whatever became of the ones before it, and its latencies
//! count from then. The clients do what the protocol asks of a good client and know nothing of the server but its frames. What
//! never happens here: starting and killing processes (`rig`), framing (`load`).

mod board;
mod cast;
mod client;
pub(crate) mod frame;
mod ledger;
mod report;
mod script;
mod thread;
mod verdict;

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::board::Board;
use self::client::{Act, Client, Role, Seen, Stage};
use self::ledger::Ledger;
use self::report::PerMessage;
use self::script::Script;
use crate::rig::{Cpu, Plan, Rig, Shape};
use crate::{Sign, program, say, stopped};

pub use report::Run;
pub use verdict::Verdict;

/// How long sessions may take to be opened and assigned; a machine that is busy with other things has needed more than a minute.
const GATHERS_WITHIN: Duration = Duration::from_secs(180);
/// How long everybody may take to have everything after the last message was due.
const SETTLES_WITHIN: Duration = Duration::from_secs(90);
/// How often the progress bar is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(250);
/// Messages of one run; each log holds its own.
const MESSAGES_MAX: u64 = 2_000_000;

/// What to run.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Conversations, each between a user and an agent.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,
    /// Messages per second, of both sides together.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// For how long messages are due.
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Gateway nodes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: u32,
    /// Workers.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: u32,
    /// Threads of each process; 0 is one per core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_024))]
    threads: u32,
    /// Kill every node, every worker, Redis, NATS and MariaDB while it runs, one after another, and bring each back.
    #[arg(long)]
    chaos: bool,
    /// How often each of them is killed.
    #[arg(long, value_name = "N", default_value_t = 2, requires = "chaos", value_parser = clap::value_parser!(u32).range(1..=100))]
    kills: u32,
    /// Runs, one after another, each with new people.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Makes the same messages and the same faults again. Default: a new one, which is printed.
    #[arg(long)]
    seed: Option<u64>,
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

impl Options {
    fn over(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn shape(&self) -> anyhow::Result<Shape> {
        Ok(Shape {
            program: program(self.binary.clone())?,
            plugins: std::path::absolute(&self.plugins)?,
            nodes: self.nodes as usize,
            workers: self.workers as usize,
            threads: self.threads as usize,
        })
    }
}

/// Plays the runs and prints what came of them to `out`; whether nothing was wrong. A signal ends everything that was started.
pub async fn run(options: &Options, sign: Sign<'_>, out: &mut (dyn Write + Send)) -> anyhow::Result<bool> {
    let messages = u64::from(options.rate) * options.seconds;
    ensure!(messages <= MESSAGES_MAX, "{messages} messages are more than one run holds, {MESSAGES_MAX}: lower --rate or --seconds");
    tokio::select! {
        // Nothing is lost with a dropped run: what it started ends with it.
        done = runs(options, sign, out) => done,
        stopped = stopped() => stopped.and(Err(anyhow::anyhow!("stopped; everything that was started has been ended"))),
    }
}

async fn runs(options: &Options, sign: Sign<'_>, out: &mut (dyn Write + Send)) -> anyhow::Result<bool> {
    let seed = options.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    say(&format!("starting Redis, NATS, MariaDB, {} nodes and {} workers; seed {seed}", options.nodes, options.workers));
    let rig = Arc::new(Rig::start(&options.shape()?).await?);
    let done = in_turn(options, sign, &rig, seed, out).await;
    if !matches!(done, Ok(true)) {
        say(&format!("what the processes said is in {}", rig.keep_logs().display()));
    }
    done
}

/// Every run, and what is printed of it.
async fn in_turn(options: &Options, sign: Sign<'_>, rig: &Arc<Rig>, seed: u64, out: &mut (dyn Write + Send)) -> anyhow::Result<bool> {
    let mut runs = Vec::new();
    for run in 0..options.runs {
        let done = one(options, sign, rig, run, seed.wrapping_add(run.into())).await?;
        if options.runs > 1 && !options.json {
            report::print_line(out, &done)?;
        }
        runs.push(done);
    }
    report::print(out, &runs, options.json)?;
    Ok(runs.iter().all(Run::is_well))
}

/// One run with people of its own.
async fn one(options: &Options, sign: Sign<'_>, rig: &Arc<Rig>, run: u32, seed: u64) -> anyhow::Result<Run> {
    let script = Script::new(run, options.sessions as usize, options.rate, options.over(), seed);
    let (agents, users) = cast::roles(rig, sign, &script, run, seed)?;
    let (stage, ledger) = (Arc::new(Stage { rig: rig.clone(), script, board: Board::new()? }), Ledger::open(&rig.mysql()).await?);
    let (act, seen_act) = watch::channel(Act::Gathering);
    let (everybody, agents_count) = (agents.len() + users.len(), agents.len());
    let mut clients = JoinSet::new();
    let mut enter = |roles: Vec<Role>| {
        for role in roles {
            clients.spawn(Client::new(role, stage.clone(), seen_act.clone()).run());
        }
    };
    let (board, gathered_by) = (&stage.board, Instant::now() + GATHERS_WITHIN);
    // A user who comes when the agent is there is assigned at once.
    enter(agents);
    board.wait("greeted", &board.greeted, agents_count, gathered_by).await?;
    enter(users);
    board.wait("in a conversation", &board.ready, everybody, gathered_by).await?;

    let plan = match options.chaos {
        true => Plan::in_turn(seed, options.over(), rig.nodes(), rig.workers(), options.kills),
        false => Plan::default(),
    };
    let progress = bar(&stage, run, options);
    let (before, started) = (rig.cpu(), Instant::now());
    act.send_replace(Act::Playing(started));
    let settling = settled(&stage, started + options.over(), everybody, &progress);
    let (faults, settled) = tokio::join!(plan.carry_out(rig, started, &progress), settling);
    let faults = faults?;
    progress.finish_and_clear();
    let cpu = rig.cpu().since(before);
    act.send_replace(Act::Over);
    let seen: Vec<Seen> = clients.join_all().await.into_iter().flatten().collect();
    let verdict = judged(&stage, &ledger, &seen).await?;
    Ok(finish(options, (run, seed), &stage, Measured { everybody, faults, settled, cpu, seen, verdict }))
}

/// What was seen of a run.
struct Measured {
    everybody: usize,
    faults: Vec<String>,
    settled: Settled,
    cpu: Cpu,
    seen: Vec<Seen>,
    verdict: Verdict,
}

/// When things had come to their ends.
struct Settled {
    /// The last message was accepted, counted from the start.
    accepted: Duration,
    /// Everybody had everything, counted from when the last message was due.
    everything: Duration,
}

/// Waits until everybody has everything, or patience is over.
async fn settled(stage: &Stage, due: Instant, everybody: usize, progress: &ProgressBar) -> Settled {
    let (board, started) = (&stage.board, Instant::now());
    let (mut accepted, mut count) = (Duration::ZERO, 0);
    while !board.done.reaches(everybody, Instant::now() + DRAWN_EVERY).await {
        progress.set_position(board.accepted.get());
        if board.accepted.get() > count {
            (accepted, count) = (started.elapsed(), board.accepted.get());
        }
        if Instant::now() >= due + SETTLES_WITHIN {
            break;
        }
    }
    if board.accepted.get() > count {
        accepted = started.elapsed();
    }
    Settled { accepted, everything: due.elapsed() }
}

/// Compares both sides of every conversation with the ledger.
async fn judged(stage: &Stage, ledger: &Ledger, seen: &[Seen]) -> anyhow::Result<Verdict> {
    let mut sum = Verdict { altered: stage.board.altered.get(), ..Verdict::default() };
    for (conversation, written) in stage.script.by_conversation().into_iter().enumerate() {
        let sides: Vec<&Seen> = seen.iter().filter(|seen| seen.conversation == conversation).collect();
        let &[one, other] = &sides[..] else { anyhow::bail!("conversation {conversation} has {} sides", sides.len()) };
        let sessions = (one.thread.session(), other.thread.session());
        let (Some(session), true) = (sessions.0, sessions.0 == sessions.1) else {
            anyhow::bail!("the sides of conversation {conversation} are in different sessions: {sessions:?}");
        };
        let rows = ledger.messages(session).await?;
        let unaccepted: BTreeSet<u32> = one.thread.unaccepted().chain(other.thread.unaccepted()).collect();
        sum += Verdict::of(&stage.script, &written, &unaccepted, &rows, [one.thread.shown(), other.thread.shown()]);
    }
    Ok(sum)
}

fn finish(options: &Options, (run, seed): (u32, u64), stage: &Stage, measured: Measured) -> Run {
    let (board, cpu) = (&stage.board, measured.cpu);
    let (accept_ms, deliver_ms) = board.summaries();
    let accepted = board.accepted.get();
    #[expect(clippy::cast_precision_loss, reason = "messages of one run are few")]
    let (each, per_second) = (
        |time: Duration| time.as_secs_f64() * 1e6 / accepted.max(1) as f64,
        |messages: u64, over: Duration| messages as f64 / over.as_secs_f64().max(f64::EPSILON),
    );
    Run {
        run: run + 1,
        seed,
        sessions: options.sessions,
        nodes: options.nodes,
        workers: options.workers,
        clients: measured.everybody as u64,
        faults: measured.faults,
        messages: stage.script.len() as u64,
        offered_per_second: per_second(stage.script.len() as u64, options.over()),
        accepted_per_second: per_second(accepted, measured.settled.accepted),
        accepted,
        delivered: board.delivered.get(),
        resends: measured.seen.iter().map(|seen| seen.thread.resends()).sum(),
        reconnects: board.connections.get().saturating_sub(measured.everybody as u64),
        repeats: board.repeats.get(),
        early: board.gaps.get(),
        resyncs: board.resyncs.get(),
        accept_ms,
        deliver_ms,
        settled_ms: u64::try_from(measured.settled.everything.as_millis()).unwrap_or(u64::MAX),
        refused: board.refusals(),
        verdict: Verdict {
            unsent: measured.verdict.unsent + measured.seen.iter().map(|seen| seen.unwritten).sum::<u64>(),
            ..measured.verdict
        },
        cpu_us_per_message: PerMessage {
            gateway: each(cpu.gateway),
            worker: each(cpu.worker),
            mariadb: each(cpu.mariadb),
            nats: each(cpu.nats),
            redis: each(cpu.redis),
            load: each(cpu.load),
        },
    }
}

/// Drawn on a terminal, and nowhere else.
fn bar(stage: &Stage, run: u32, options: &Options) -> ProgressBar {
    let title = format!("run {} of {}", run + 1, options.runs);
    if !std::io::stderr().is_terminal() {
        say(&format!("{title}: {} messages in {} conversations", stage.script.len(), options.sessions));
    }
    let bar = ProgressBar::new(stage.script.len() as u64).with_message(title);
    ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} accepted, {elapsed}")
        .map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}
