//! What came of a run: counted, judged, printed.

mod table;
mod tally;

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use serde_json::json;

use crate::load::Summary;

pub use tally::{Fate, Order, Tally, Visit};

/// One sale.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// 1, 2, 3 …
    pub run: u32,
    /// Makes its arrivals and faults again.
    pub seed: u64,
    /// Buyers.
    pub users: u32,
    /// Units.
    pub stock: u32,
    /// Gateway nodes.
    pub nodes: u32,
    /// Workers.
    pub workers: u32,
    /// What was killed, and when.
    pub faults: Vec<String>,
    /// Attempts sent, those that were repeated included.
    pub attempts: u64,
    /// Attempts repeated: after a refusal to be tried again, a cut connection, or a result of "fail".
    pub again: u64,
    /// Attempts sent until everybody had a first answer, per second.
    pub attempts_per_second: f64,
    /// From the instant an attempt was due to the first answer that is one.
    pub latency_ms: Summary,
    /// When everybody had that, counted from the start.
    pub last_answer_ms: u64,
    /// When every unit that could be sold was in the ledger.
    pub persisted_ms: Option<u64>,
    /// Answers that no buyer gets in an open sale, and how many did.
    pub refused: BTreeMap<String, u32>,
    /// The verdict.
    #[serde(flatten)]
    pub tally: Tally,
    /// CPU time, divided by the attempts; of gateway and Redis until everybody had an answer.
    pub cpu_us_per_attempt: PerAttempt,
    /// What else does not hold.
    pub broken: Vec<String>,
}

/// CPU time in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PerAttempt {
    /// Of all gateway nodes.
    pub gateway: f64,
    /// Of Redis.
    pub redis: f64,
    /// Of all workers, until the last order was written.
    pub worker: f64,
}

impl Run {
    /// Whether nothing is wrong with it.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.tally.is_well() && self.broken.is_empty()
    }
}

/// Prints one of several runs as a line of a table, the first under its head.
pub fn print_line(out: &mut dyn Write, run: &Run) -> anyhow::Result<()> {
    if run.run == 1 {
        writeln!(out, "{}", table::HEAD)?;
    }
    writeln!(out, "{}", table::line(run))?;
    Ok(())
}

/// Prints the end of the runs: a single one in full, and the sums; or all of them as one JSON object.
pub fn print(out: &mut dyn Write, runs: &[Run], json: bool) -> anyhow::Result<()> {
    let sum = |of: fn(&Tally) -> u64| runs.iter().map(|run| of(&run.tally)).sum::<u64>();
    let (oversold, lost, stuck) = (sum(|tally| tally.oversold), sum(|tally| tally.lost), sum(|tally| tally.stuck));
    if json {
        let well = runs.iter().all(Run::is_well);
        writeln!(out, "{}", json!({ "runs": runs, "oversold": oversold, "lost": lost, "stuck": stuck, "well": well }))?;
        return Ok(());
    }
    if let [run] = runs {
        write!(out, "{}", table::one(run))?;
    }
    writeln!(out, "\noversold {oversold}, lost {lost}, stuck {stuck}")?;
    Ok(())
}
