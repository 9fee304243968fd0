//! What came of a run, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use serde::Serialize;
use serde_json::json;

use super::verdict::Verdict;
use crate::load::Summary;

/// One run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// 1, 2, 3 …
    pub run: u32,
    /// Makes its messages and faults again.
    pub seed: u64,
    /// Conversations between a user and an agent.
    pub sessions: u32,
    /// Gateway nodes.
    pub nodes: u32,
    /// Workers.
    pub workers: u32,
    /// Clients, each with one socket at a time.
    pub clients: u64,
    /// What was killed, and when.
    pub faults: Vec<String>,
    /// Messages that were due.
    pub messages: u64,
    /// Messages due per second, of both sides together.
    pub offered_per_second: f64,
    /// Messages known to be stored, per second until the last was.
    pub accepted_per_second: f64,
    /// Messages known to be stored.
    pub accepted: u64,
    /// Messages shown to the other side.
    pub delivered: u64,
    /// Messages sent again before they were accepted.
    pub resends: u64,
    /// Connections made beyond the first of each client.
    pub reconnects: u64,
    /// Frames that arrived once more and were dropped.
    pub repeats: u64,
    /// Frames that came before one that is missing, which was then asked for.
    pub early: u64,
    /// Times a client was told to count anew.
    pub resyncs: u64,
    /// From the instant a message was due until its sender knew that it is stored.
    pub accept_ms: Summary,
    /// From the instant a message was due until the other side showed it.
    pub deliver_ms: Summary,
    /// After the last message was due, until everybody had everything.
    pub settled_ms: u64,
    /// What no good client meets, and how often one did.
    pub refused: BTreeMap<String, u64>,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// CPU time, divided by the messages that were accepted.
    pub cpu_us_per_message: PerMessage,
}

/// CPU time in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PerMessage {
    /// Of all gateway nodes.
    pub gateway: f64,
    /// Of all workers.
    pub worker: f64,
    /// Of MariaDB.
    pub mariadb: f64,
    /// Of NATS.
    pub nats: f64,
    /// Of Redis.
    pub redis: f64,
    /// Of this process, which plays both sides.
    pub load: f64,
}

impl Run {
    /// Whether nothing is wrong with it.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.verdict.is_well() && self.refused.is_empty()
    }
}

/// Prints one of several runs as a line of a table, the first under its head.
pub(super) fn print_line(out: &mut dyn Write, run: &Run) -> anyhow::Result<()> {
    if run.run == 1 {
        writeln!(
            out,
            "run        seed  accepted  accept p50 / p99 ms  deliver p50 / p99 ms  resends  reconnects  lost  twice  order  gaps"
        )?;
    }
    let verdict = run.verdict;
    writeln!(
        out,
        "{:>3}  {:>10}  {:>8}  {:>8.1} / {:>8.1}  {:>9.1} / {:>8.1}  {:>7}  {:>10}  {:>4}  {:>5}  {:>5}  {:>4}",
        run.run,
        run.seed,
        run.accepted,
        run.accept_ms.p50,
        run.accept_ms.p99,
        run.deliver_ms.p50,
        run.deliver_ms.p99,
        run.resends,
        run.reconnects,
        verdict.lost,
        verdict.duplicates,
        verdict.reordered,
        verdict.gaps,
    )?;
    Ok(())
}

/// Prints the end of the runs: a single one in full, and the sums; or all of them as one JSON object.
pub(super) fn print(out: &mut dyn Write, runs: &[Run], json: bool) -> anyhow::Result<()> {
    let mut sum = Verdict::default();
    runs.iter().for_each(|run| sum += run.verdict);
    let well = runs.iter().all(Run::is_well);
    if json {
        let mut object = serde_json::to_value(sum)?;
        (object["runs"], object["well"]) = (json!(runs), json!(well));
        writeln!(out, "{object}")?;
        return Ok(());
    }
    if let [run] = runs {
        write!(out, "{}", one(run))?;
    }
    let Verdict { lost, duplicates, reordered, gaps, altered, unsent } = sum;
    writeln!(out, "\nlost {lost}, duplicates {duplicates}, reordered {reordered}, gaps {gaps}, altered {altered}, unsent {unsent}")?;
    Ok(())
}

/// A figure a line.
fn one(run: &Run) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| _ = writeln!(text, "{name:<26}{value}");
    row(
        "conversations",
        format!("{}, {} clients, {} nodes, {} workers, seed {}", run.sessions, run.clients, run.nodes, run.workers, run.seed),
    );
    for fault in &run.faults {
        row("fault", fault.clone());
    }
    row(
        "messages",
        format!("{}, {:.0} due per second, {:.0} accepted per second", run.messages, run.offered_per_second, run.accepted_per_second),
    );
    row("accepted, delivered", format!("{}, {}", run.accepted, run.delivered));
    row("due to accepted", percentiles(&run.accept_ms));
    row("due to delivered", percentiles(&run.deliver_ms));
    row("sent again", run.resends.to_string());
    row("reconnects", run.reconnects.to_string());
    row("dropped, early, resync", format!("{}, {}, {}", run.repeats, run.early, run.resyncs));
    row("everybody settled", format!("{} ms after the last was due", run.settled_ms));
    let cpu = run.cpu_us_per_message;
    row(
        "CPU per message",
        format!(
            "gateway {:.0} µs, worker {:.0} µs, MariaDB {:.0} µs, NATS {:.0} µs, Redis {:.0} µs, load {:.0} µs",
            cpu.gateway, cpu.worker, cpu.mariadb, cpu.nats, cpu.redis, cpu.load
        ),
    );
    for (why, count) in &run.refused {
        row("wrongly refused", format!("{count} × {why}"));
    }
    text
}

fn percentiles(summary: &Summary) -> String {
    let Summary { p50, p90, p99, p999, max } = summary;
    format!("p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms, p99.9 {p999:.1} ms, max {max:.1} ms")
}
