//! Committing what was fetched, and setting aside what the ledger cannot take.
//!
//! A batch that the ledger refuses though it is there is halved until the message is found that it refuses. That one is tried
//! some times more, becomes a dead letter, and only then those behind it go on. A ledger that is away costs no attempt. What
//! never happens here: telling anybody, or acknowledging.

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway_core::chat::event::QueuedSend;
use gateway_core::chat::{Committed, Lease, MessageRecord, Position, Send, letter};
use gateway_core::id::SessionId;
use gateway_core::ports::{ChatLedger, Delivery, PortErrorKind, PortResult, SaleLedger};
use gateway_core::sale::NewLetter;
use gateway_core::time::UnixMillis;

use super::witness::Witness;
use crate::health;
use crate::node::Node;
use crate::telemetry::Metrics;

/// Messages per transaction: beyond this a batch adds latency faster than throughput.
pub(super) const BATCH_MAX: usize = 256;

/// Commits.
pub(super) struct Scribe {
    chats: Arc<dyn ChatLedger>,
    letters: Arc<dyn SaleLedger>,
    witness: Arc<Witness>,
    metrics: Arc<Metrics>,
    attempts_max: u32,
    /// Fetched and not settled, oldest first: of each message its delivery, itself, and when it was queued.
    deliveries: Vec<Delivery>,
    sends: Vec<Send>,
    queued_at: Vec<UnixMillis>,
    /// Deliveries that are no messages, and why.
    unreadable: Vec<(Delivery, String)>,
    /// As many of the oldest messages are known to hold one that the ledger refused; 0: none is known.
    suspects: usize,
    /// How often the ledger refused the oldest message alone.
    attempts: u32,
}

/// Messages whose fate is written.
pub(super) struct Part {
    /// What to acknowledge once they are told.
    pub(super) deliveries: Vec<Delivery>,
    /// What to tell.
    pub(super) entries: Vec<Entry>,
    /// How far sessions were known to be announced before.
    tops: BTreeMap<SessionId, Position>,
}

/// A message and its fate.
pub(super) struct Entry {
    pub(super) send: Send,
    pub(super) queued_at: UnixMillis,
    pub(super) fate: Fate,
}

/// What became of a message.
#[allow(clippy::large_enum_variant, reason = "nearly all are of the large kind, and a batch has 256 of them")]
pub(super) enum Fate {
    /// The ledger has spoken.
    Committed(Committed),
    /// The ledger cannot take it; it is a dead letter.
    SetAside,
}

impl Part {
    /// The row of a message that the roaming lists may not have.
    pub(super) fn news<'a>(&self, entry: &'a Entry) -> Option<&'a MessageRecord> {
        let Fate::Committed(Committed::Stored { message, dup, .. }) = &entry.fate else { return None };
        // One that was stored before its worker died may never have been told. Any other that comes again may be old, and an old
        // message would pass for the latest one in a list that was lost.
        let untold = |top: &Position| (message.epoch, message.seq) > (top.epoch, top.seq);
        (!dup || self.tops.get(&message.session).is_some_and(untold)).then_some(message)
    }
}

impl Scribe {
    /// Over the ports of a process.
    pub(super) fn of(node: &Node, witness: Arc<Witness>) -> Self {
        let (chats, letters) = (node.ports.chats.clone(), node.ports.sales.clone());
        Self::new(chats, letters, witness, node.metrics.clone(), node.config.worker.attempts_max)
    }

    pub(super) fn new(
        chats: Arc<dyn ChatLedger>,
        letters: Arc<dyn SaleLedger>,
        witness: Arc<Witness>,
        metrics: Arc<Metrics>,
        attempts_max: u32,
    ) -> Self {
        let (deliveries, sends, queued_at, unreadable) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { chats, letters, witness, metrics, attempts_max, deliveries, sends, queued_at, unreadable, suspects: 0, attempts: 0 }
    }

    /// Whether everything that was fetched is settled.
    pub(super) fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.unreadable.is_empty()
    }

    /// Takes what was fetched.
    pub(super) fn take(&mut self, deliveries: Vec<Delivery>) {
        for delivery in deliveries {
            match QueuedSend::decode(&delivery.payload) {
                Ok(QueuedSend { send, queued_at }) => {
                    self.sends.push(send);
                    self.queued_at.push(queued_at);
                    self.deliveries.push(delivery);
                }
                Err(error) => self.unreadable.push((delivery, error.to_string())),
            }
        }
    }

    /// Commits what waits, as much at once as may be; `None` when nothing waits. After [`PortErrorKind::Broken`] the same messages
    /// are to be tried again after a pause.
    pub(super) async fn write(&mut self, lease: &Lease, now: UnixMillis) -> PortResult<Option<Part>> {
        if let Some((delivery, error)) = self.unreadable.last() {
            self.write_letter(&letter::of_bytes(&delivery.payload, error), now).await?;
            let deliveries = self.unreadable.pop().map(|(delivery, _)| delivery).into_iter().collect();
            return Ok(Some(Part { deliveries, entries: Vec::new(), tops: BTreeMap::new() }));
        }
        while !self.sends.is_empty() {
            let count = if self.suspects == 0 { self.sends.len().min(BATCH_MAX) } else { (self.suspects / 2).max(1) };
            let tops = self.witness.tops(&self.sends[..count]).await;
            let announced: Vec<_> = tops.iter().map(|(session, top)| (*session, *top)).collect();
            match self.chats.commit(Some(lease), &self.sends[..count], &announced, now).await {
                Ok(outcomes) => return Ok(Some(self.settle(outcomes.into_iter().map(Fate::Committed).collect(), tops))),
                Err(error) if error.kind != PortErrorKind::Broken => return Err(error),
                Err(_) if count > 1 => self.suspects = count,
                Err(error) => {
                    self.attempts = self.attempts.saturating_add(1);
                    if self.attempts < self.attempts_max {
                        return Err(error);
                    }
                    let queued = QueuedSend { send: self.sends[0].clone(), queued_at: self.queued_at[0] };
                    let letter = letter::of_send(&queued, &health::chain(&error), self.attempts);
                    self.write_letter(&letter, now).await?;
                    return Ok(Some(self.settle(vec![Fate::SetAside], tops)));
                }
            }
        }
        Ok(None)
    }

    /// The oldest messages have their fates.
    fn settle(&mut self, fates: Vec<Fate>, tops: BTreeMap<SessionId, Position>) -> Part {
        let count = fates.len().min(self.sends.len());
        (self.suspects, self.attempts) = (self.suspects.saturating_sub(count), 0);
        let sends = self.sends.drain(..count).zip(self.queued_at.drain(..count)).zip(fates);
        let entries = sends.map(|((send, queued_at), fate)| Entry { send, queued_at, fate }).collect();
        Part { deliveries: self.deliveries.drain(..count).collect(), entries, tops }
    }

    async fn write_letter(&self, letter: &NewLetter, now: UnixMillis) -> PortResult<()> {
        self.letters.write_letter(letter, now).await?;
        self.metrics.chat_set_aside.inc();
        tracing::error!(source = letter.source_id, error = letter.error, "a chat message was set aside; the compensation list has it");
        Ok(())
    }
}
