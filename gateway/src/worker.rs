//! The worker: loops around the ports that turn order events into orders and queued messages into sequence.
//!
//! Decisions are the ledger's and core's; the loops read, write, acknowledge and try again. Any number of workers may run.

mod chats;
mod keeping;
mod orders;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::backoff::Backoff;
use tokio::task::JoinSet;

use crate::node::Node;

/// Shortest and longest pause after a failed call to a store.
const RETRY: Backoff = Backoff { min: Duration::from_millis(50), max: Duration::from_secs(2) };

/// Runs every loop until draining starts and each has finished what it holds.
pub(crate) async fn run(node: Arc<Node>) {
    let mut loops = JoinSet::new();
    loops.spawn(keeping::run(node.clone()));
    loops.spawn(orders::run(node.clone()));
    for partition in 0..node.config.chat.partitions {
        loops.spawn(chats::run(node.clone(), partition));
    }
    while let Some(ended) = loops.join_next().await {
        if let Err(error) = ended {
            // A panic is a bug; the other loops go on, and readiness of the data is visible in the lag metrics.
            tracing::error!(%error, "a worker loop ended");
        }
    }
}

/// A pause that grows with each failure in a row.
pub(crate) struct Pause {
    failures: u32,
}

impl Pause {
    pub(crate) fn new() -> Self {
        Self { failures: 0 }
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Waits, or returns early when draining starts.
    pub(crate) async fn wait(&mut self, node: &Node) {
        let jitter: f64 = rand::random();
        let pause = RETRY.delay(self.failures, jitter);
        self.failures = self.failures.saturating_add(1);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = node.drain.wait() => {}
        }
    }
}
