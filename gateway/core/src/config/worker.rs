//! `[worker]`: the loops that write the ledger.

use std::time::Duration;

use super::section::Section;

/// How a worker batches and takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its name as a consumer and lease holder, unique among workers; empty means the node's name.
    pub name: String,
    /// Most events in one transaction.
    pub batch_max: usize,
    /// How long it waits for events before it looks around.
    pub idle: Duration,
    /// How long an event may stay unacknowledged before another worker claims it.
    pub reclaim_idle: Duration,
    /// How long the lease of a chat partition or a lot lasts without renewal.
    pub lease: Duration,
    /// How often it looks for tasks that are due: refunds, and units to give back.
    pub relay: Duration,
    /// How often it compares what the stores say of a lot.
    pub reconcile: Duration,
    /// Attempts at an event that the ledger cannot take before it becomes a dead letter. A ledger that is away does not count.
    pub attempts_max: u32,
}

impl Worker {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            name: section.text("name", ""),
            batch_max: section.number("batch_max", 500, 1..=1_000),
            idle: section.millis("idle_ms", 20, 1..=10_000),
            reclaim_idle: section.millis("reclaim_idle_ms", 5_000, 100..=600_000),
            lease: section.millis("lease_ms", 3_000, 500..=60_000),
            relay: section.millis("relay_ms", 200, 10..=10_000),
            reconcile: section.millis("reconcile_ms", 10_000, 100..=3_600_000),
            attempts_max: section.number("attempts_max", 5, 1..=100),
        }
    }
}
