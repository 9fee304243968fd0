//! What happens, as it happens: counts and latencies that all clients of a run write to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, sleep};

use crate::load::{Latencies, Summary};

/// Between two looks at a count.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A count.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until it is `wanted`; whether it was before `deadline`.
    pub(super) async fn reaches(&self, wanted: usize, deadline: Instant) -> bool {
        while self.get() < wanted as u64 {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(LOOK_EVERY).await;
        }
        true
    }
}

/// One run.
#[derive(Debug)]
pub(super) struct Board {
    /// Clients that were greeted, that know all their sessions, and that have nothing left to send or to wait for.
    pub(super) greeted: Count,
    pub(super) ready: Count,
    pub(super) done: Count,
    /// Connections made.
    pub(super) connections: Count,
    /// Messages known to be stored; messages shown to the other side.
    pub(super) accepted: Count,
    pub(super) delivered: Count,
    /// Frames that arrived again and were dropped, gaps that were asked for, and counts begun anew.
    pub(super) repeats: Count,
    pub(super) gaps: Count,
    pub(super) resyncs: Count,
    /// Messages that arrived with another content.
    pub(super) altered: Count,
    latencies: Mutex<(Latencies, Latencies)>,
    refused: Mutex<BTreeMap<String, u64>>,
}

impl Board {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            greeted: Count::default(),
            ready: Count::default(),
            done: Count::default(),
            connections: Count::default(),
            accepted: Count::default(),
            delivered: Count::default(),
            repeats: Count::default(),
            gaps: Count::default(),
            resyncs: Count::default(),
            altered: Count::default(),
            latencies: Mutex::new((Latencies::new()?, Latencies::new()?)),
            refused: Mutex::default(),
        })
    }

    /// A message is known to be stored, so long after it was due.
    pub(super) fn accepted_after(&self, latency: Duration) {
        self.accepted.up();
        locked(&self.latencies).0.record(latency);
    }

    /// A message is shown to the other side, so long after it was due.
    pub(super) fn delivered_after(&self, latency: Duration) {
        self.delivered.up();
        locked(&self.latencies).1.record(latency);
    }

    /// Something that a good client does not meet.
    pub(super) fn refused(&self, why: String) {
        *locked(&self.refused).entry(why).or_default() += 1;
    }

    pub(super) fn refusals(&self) -> BTreeMap<String, u64> {
        locked(&self.refused).clone()
    }

    /// From due to accepted, and from due to shown to the other side.
    pub(super) fn summaries(&self) -> (Summary, Summary) {
        let latencies = locked(&self.latencies);
        (latencies.0.summary(), latencies.1.summary())
    }

    /// As [`Count::reaches`]; an error that says what there is instead.
    pub(super) async fn wait(&self, what: &str, count: &Count, wanted: usize, deadline: Instant) -> anyhow::Result<()> {
        let reached = count.reaches(wanted, deadline).await;
        ensure!(reached, "only {} of {wanted} clients were {what}; refused: {:?}", count.get(), self.refusals());
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
