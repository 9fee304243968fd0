//! Runs as text.

use std::fmt::Write as _;

use super::Run;

/// One run, a figure a line.
pub(super) fn one(run: &Run) -> String {
    let (latency, cpu, tally) = (run.latency_ms, run.cpu_us_per_attempt, &run.tally);
    let mut text = String::new();
    let mut row = |name: &str, value: String| _ = writeln!(text, "{name:<22}{value}");
    row("sale", format!("{} buyers, {} units, {} nodes, {} workers, seed {}", run.users, run.stock, run.nodes, run.workers, run.seed));
    for fault in &run.faults {
        row("fault", fault.clone());
    }
    row("attempts", format!("{} ({} repeated), {:.0} per second", run.attempts, run.again, run.attempts_per_second));
    row(
        "latency",
        format!("p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms, max {:.1} ms", latency.p50, latency.p99, latency.p999, latency.max),
    );
    row("last answer", after(Some(run.last_answer_ms)));
    row("everything persisted", after(run.persisted_ms));
    row("CPU per attempt", format!("gateway {:.1} µs, Redis {:.1} µs, worker {:.1} µs", cpu.gateway, cpu.redis, cpu.worker));
    row("admitted", format!("{}, of whom {} won; {} were told \"sold out\"", tally.admitted, tally.won, tally.sold_out));
    row("persisted", tally.persisted.to_string());
    for (reason, count) in &run.refused {
        row("wrongly refused", format!("{count} with {reason}"));
    }
    for sentence in &run.broken {
        row("broken", sentence.clone());
    }
    if run.broken.is_empty() {
        row("books", "every invariant holds; settled, nothing locked".to_owned());
    }
    text
}

/// The columns of [`line`].
pub(super) const HEAD: &str =
    "run        seed  attempts  repeated   p50 ms   p99 ms  p99.9 ms  last ms  admitted  persisted  oversold  lost  stuck  books";

/// One run in the columns of [`HEAD`].
pub(super) fn line(run: &Run) -> String {
    let (latency, tally) = (run.latency_ms, &run.tally);
    format!(
        "{:>3}  {:>10}  {:>8}  {:>8}  {:>7.1}  {:>7.1}  {:>8.1}  {:>7}  {:>8}  {:>9}  {:>8}  {:>4}  {:>5}  {}",
        run.run,
        run.seed,
        run.attempts,
        run.again,
        latency.p50,
        latency.p99,
        latency.p999,
        run.last_answer_ms,
        tally.admitted,
        tally.persisted,
        tally.oversold,
        tally.lost,
        tally.stuck,
        if run.broken.is_empty() { "hold, settled".to_owned() } else { run.broken.join("; ") },
    )
}

fn after(time: Option<u64>) -> String {
    time.map_or_else(|| "never".to_owned(), |ms| format!("after {ms} ms"))
}
