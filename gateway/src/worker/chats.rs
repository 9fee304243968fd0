//! Queued messages to sequence: one lease holder per partition fetches, commits in one transaction, announces,
//! acknowledges.
//!
//! Order is kept by never going on before a batch is settled: a batch that cannot be written now is tried again, and a
//! holder that lost its lease stops; whoever takes over gets everything unacknowledged again, oldest first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::chat::event::{QueuedSend, fan_out};
use gateway_core::chat::{Committed, Lease, Send};
use gateway_core::ports::{Delivery, Inbox, PortError, PortErrorKind};
use tokio::time::sleep;

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::worker::Pause;

/// Messages per transaction: beyond this a batch adds latency faster than throughput.
const BATCH_MAX: usize = 256;
/// How long a fetch waits for a first message; bounds how late a lease is prolonged.
const FETCH_WAIT: Duration = Duration::from_millis(500);

pub(super) async fn run(node: Arc<Node>, partition: u16) {
    let mut pause = Pause::new();
    while !node.drain.started() {
        match hold(&node, partition, &mut pause).await {
            Ok(()) => {}
            Err(error) if error.kind == PortErrorKind::Fenced => tracing::info!(partition, "another worker has the partition"),
            Err(error) => {
                node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
                tracing::debug!(partition, error = health::chain(&error), "cannot work on the partition now");
                pause.wait(&node).await;
            }
        }
    }
}

/// Takes the lease if it is free and works until it is lost, a service fails or draining starts.
async fn hold(node: &Node, partition: u16, pause: &mut Pause) -> Result<(), PortError> {
    let ttl = node.config.worker.lease;
    let Some(mut lease) = node.ports.chats.lease(partition, &node.name, ttl).await? else {
        tokio::select! {
            () = sleep(ttl / 3) => {}
            () = node.drain.wait() => {}
        }
        return Ok(());
    };
    let mut inbox = node.ports.bus.open_inbox(partition, lease.token).await?;
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
        let deliveries = inbox.fetch(BATCH_MAX, FETCH_WAIT.min(ttl / 4)).await?;
        if !deliveries.is_empty() {
            settle(node, &lease, &mut *inbox, &deliveries).await?;
        }
        pause.reset();
    }
    Ok(())
}

async fn settle(node: &Node, lease: &Lease, inbox: &mut dyn Inbox, deliveries: &[Delivery]) -> Result<(), PortError> {
    let (mut sends, mut queued_at) = (Vec::with_capacity(deliveries.len()), Vec::with_capacity(deliveries.len()));
    for delivery in deliveries {
        match QueuedSend::decode(&delivery.payload) {
            Ok(queued) => {
                sends.push(queued.send);
                queued_at.push(queued.queued_at);
            }
            // Only gateways write there, and they encode what they parsed.
            Err(error) => tracing::error!(%error, partition = lease.partition, "an entry of the queue is no message; dropped"),
        }
    }
    let outcomes = node.ports.chats.commit(lease, &sends, clock::now()).await?;
    for (send, outcome) in sends.iter().zip(&outcomes) {
        announce(node, send, outcome).await;
    }
    let now = clock::now();
    for at in queued_at {
        node.metrics.chat_accept_seconds.with_label_values::<&str>(&[]).observe(now.since(at).as_secs_f64());
    }
    inbox.acknowledge(deliveries).await
}

/// Tells every device of both sides, the sender's included, also of a message that had been stored before: its first
/// announcement may be what was lost. What is lost here is found again by position checks and by the sender's resend.
async fn announce(node: &Node, send: &Send, outcome: &Committed) {
    if let Committed::Stored { dup: false, .. } = outcome {
        node.metrics.chat_accepted.inc();
    }
    for (subject, event) in fan_out(send, outcome) {
        if let Err(error) = node.ports.bus.publish(&subject, event.encode()).await {
            tracing::debug!(error = health::chain(&error), "cannot announce a message now");
        }
    }
}
