//! The worker: loops around the ports that turn order events into orders and queued messages into sequence, and look after
//! the sales.
//!
//! Decisions are the ledger's and core's. A step is a struct over ports with one function that takes `now`; the loops here and
//! in `lots` give it time, metrics and pauses, and nothing else. Any number of workers may run.

mod chats;
mod lots;
mod orders;
mod payments;
#[cfg(test)]
mod picky;
mod reception;
mod reconcile;
mod refunds;
mod relay;
#[cfg(test)]
mod rig;
mod share;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod timer;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::backoff::Backoff;
use gateway_core::ports::PortError;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::sale::desk::Desk;

/// Shortest and longest pause after a failed call to a store.
const RETRY: Backoff = Backoff { min: Duration::from_millis(50), max: Duration::from_secs(2) };

/// How often expired orders are looked for.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// Refunds under way at once; the time of one is bounded, so this bounds what a slow payment service holds.
const REFUNDS_MAX: usize = 64;

/// Runs every loop until draining starts and each has finished what it holds.
pub(crate) async fn run(node: Arc<Node>) {
    let mut loops = JoinSet::new();
    loops.spawn(lots::run(node.clone()));
    loops.spawn(timer_loop(node.clone()));
    loops.spawn(relay_loop(node.clone()));
    loops.spawn(payments::run(node.clone()));
    loops.spawn(reception::run(node.clone()));
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

async fn timer_loop(node: Arc<Node>) {
    let timer = timer::Timer::new(Desk::of(&node), node.config.sale.pay_grace);
    let mut pause = Pause::new();
    while !node.drain.started() {
        match timer.turn(clock::now()).await {
            Ok(timer::CLOSED_MAX) => pause.reset(),
            Ok(_) => {
                pause.reset();
                rest(&node, EXPIRE_EVERY).await;
            }
            Err(error) => fail(&node, &mut pause, "cannot close unpaid orders now", &error).await,
        }
    }
}

async fn relay_loop(node: Arc<Node>) {
    let refunds = match refunds::Refunds::new(&node.config.payments) {
        Ok(refunds) => refunds,
        Err(error) => return tracing::error!(%error, "cannot make an HTTP client; tasks of the outbox stay where they are"),
    };
    let mut relay = relay::Relay::new(Desk::of(&node));
    let payback = Arc::new(relay::Payback::new(Desk::of(&node), refunds));
    let (mut pause, mut sending) = (Pause::new(), JoinSet::new());
    while !node.drain.started() {
        let now = clock::now();
        match relay.turn(now).await {
            Ok(turn) => {
                pause.reset();
                while sending.try_join_next().is_some() {}
                for entry in turn.refunds {
                    let (payback, room) = (payback.clone(), sending.len() < REFUNDS_MAX);
                    sending.spawn(async move {
                        let done = if room { payback.send(&entry, now).await } else { payback.put_off(&entry, now).await };
                        if let Err(error) = done {
                            // It is due again when its time in hiding is over.
                            tracing::warn!(error = health::chain(&error), "cannot tell the ledger what became of a refund");
                        }
                    });
                }
                if turn.taken < relay::TASKS_MAX {
                    rest(&node, node.config.worker.relay).await;
                }
            }
            Err(error) => fail(&node, &mut pause, "cannot work on the outbox now", &error).await,
        }
    }
    while sending.join_next().await.is_some() {}
}

/// Waits, or returns early when draining starts.
async fn rest(node: &Node, time: Duration) {
    tokio::select! {
        () = sleep(time) => {}
        () = node.drain.wait() => {}
    }
}

/// Counts and tells a failure, and waits before the next try.
async fn fail(node: &Node, pause: &mut Pause, doing: &str, error: &PortError) {
    node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
    tracing::warn!(error = health::chain(error), "{doing}");
    pause.wait(node).await;
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
        rest(node, pause).await;
    }
}
