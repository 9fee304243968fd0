//! Queued messages to sequence: one lease holder per partition fetches, commits in one transaction, announces,
//! acknowledges.
//!
//! `scribe` commits and decides what becomes of a message that the ledger cannot take; `herald` tells everybody. A batch is told while
//! the next one is committed. Order is kept by never going on before a batch is settled: what cannot be written now is tried
//! again first, and a holder that lost its lease stops; whoever takes over gets everything unacknowledged again, oldest first.

mod herald;
#[cfg(test)]
mod picky;
mod scribe;
#[cfg(test)]
mod tests;
mod witness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::chat::Lease;
use gateway_core::ports::{Inbox, PortError, PortErrorKind, PortResult};
use tokio::time::sleep;

use self::herald::Herald;
use self::scribe::{BATCH_MAX, Part, Scribe};
use self::witness::Witness;
use crate::clock;
use crate::health;
use crate::node::Node;
use crate::worker::Pause;

/// How long a fetch waits for a first message; bounds how late a lease is prolonged.
const FETCH_WAIT: Duration = Duration::from_millis(500);

pub(super) async fn run(node: Arc<Node>, partition: u16) {
    let mut pause = Pause::new();
    while !node.drain.started() {
        match hold(&node, partition, &mut pause).await {
            Ok(()) => {}
            Err(error) if error.kind == PortErrorKind::Fenced => tracing::info!(partition, "another worker has the partition"),
            Err(error) => {
                note(&node, partition, &error);
                pause.wait(&node).await;
            }
        }
    }
}

/// Takes the lease if it is free and works until it is lost, a service fails or draining starts.
async fn hold(node: &Node, partition: u16, pause: &mut Pause) -> PortResult<()> {
    let ttl = node.config.worker.lease;
    let Some(mut lease) = node.ports.chats.lease(partition, &node.name, ttl).await? else {
        tokio::select! {
            () = sleep(ttl / 3) => {}
            () = node.drain.wait() => {}
        }
        return Ok(());
    };
    let inbox = node.ports.bus.open_inbox(partition, lease.token).await?;
    let mut shift = {
        let witness = Witness::of(node);
        Shift::new(inbox, Scribe::of(node, witness.clone()), Herald::of(node, witness))
    };
    let mut prolonged = Instant::now();
    while !node.drain.started() {
        if prolonged.elapsed() >= ttl / 3 {
            match node.ports.chats.lease(partition, &node.name, ttl).await? {
                Some(same) if same.token == lease.token => lease = same,
                // Lost and taken again in between: somebody else may have had it, so start over with a new inbox.
                Some(_) | None => return Ok(()),
            }
            prolonged = Instant::now();
        }
        match shift.turn(&lease, FETCH_WAIT.min(ttl / 4)).await? {
            None => pause.reset(),
            Some(refusal) => {
                note(node, partition, &refusal);
                pause.wait(node).await;
            }
        }
    }
    shift.tell().await
}

/// The work on one partition under one lease.
struct Shift {
    inbox: Box<dyn Inbox>,
    scribe: Scribe,
    herald: Herald,
    /// Committed, and not told yet.
    written: Option<Part>,
}

impl Shift {
    fn new(inbox: Box<dyn Inbox>, scribe: Scribe, herald: Herald) -> Self {
        Self { inbox, scribe, herald, written: None }
    }

    /// Commits the next messages while those committed before are told. `Some`: the ledger refuses the next one, and after a pause
    /// the same is tried again. After an error the shift is over, and what it has not acknowledged comes again to the next.
    async fn turn(&mut self, lease: &Lease, wait: Duration) -> PortResult<Option<PortError>> {
        if self.scribe.is_idle() {
            // Whoever waits to be told does not wait for somebody else's message.
            let wait = if self.written.is_some() { Duration::ZERO } else { wait };
            self.scribe.take(self.inbox.fetch(BATCH_MAX, wait).await?);
        }
        let (written, told) = {
            let Self { inbox, scribe, herald, written } = self;
            futures::future::join(scribe.write(lease, clock::now()), tell(herald, &mut **inbox, written.take())).await
        };
        told?;
        match written {
            Ok(part) => self.written = part,
            Err(error) if error.kind == PortErrorKind::Broken => return Ok(Some(error)),
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Tells what is committed.
    async fn tell(&mut self) -> PortResult<()> {
        tell(&self.herald, &mut *self.inbox, self.written.take()).await
    }
}

async fn tell(herald: &Herald, inbox: &mut dyn Inbox, written: Option<Part>) -> PortResult<()> {
    let Some(part) = written else { return Ok(()) };
    herald.announce(&part).await;
    inbox.acknowledge(&part.deliveries).await
}

fn note(node: &Node, partition: u16, error: &PortError) {
    node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
    tracing::debug!(partition, error = health::chain(error), "cannot work on the partition now");
}
