//! What a client listens to, how far each subscription is, and what it acknowledged.
//!
//! The connection counts once for all; here each subscription counts for itself, since two of one session may start from
//! different places. What never happens here: reading or keeping messages.

use std::collections::BTreeSet;

use super::destination::Listen;
use crate::chat::stomp::{Command, Frame, Version};
use crate::id::SessionId;

/// Subscriptions of one client.
const SUBSCRIPTIONS_MAX: usize = 256;

/// Subscriptions to one destination: each message is written so many times.
const SAME_DESTINATION_MAX: usize = 4;

/// Single acknowledgements that wait for an earlier one.
const GAPS_MAX: usize = 1_024;

/// What an ACK of a subscription says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckMode {
    /// None is expected; one that comes is cumulative.
    Auto,
    /// This message and all before it were read.
    Client,
    /// This message alone.
    Individual,
}

impl AckMode {
    pub(super) fn parse(header: Option<&str>) -> Option<Self> {
        match header {
            None | Some("auto") => Some(Self::Auto),
            Some("client") => Some(Self::Client),
            Some("client-individual") => Some(Self::Individual),
            Some(_) => None,
        }
    }
}

/// One subscription.
#[derive(Debug)]
pub(super) struct Subscription {
    /// Absent in 1.0 only.
    pub(super) id: Option<String>,
    /// As the client spelt it.
    pub(super) destination: String,
    listen: Listen,
    mode: AckMode,
    key: u64,
    /// The highest message written to it, or what it said it has.
    cursor: Option<u64>,
    epoch: Option<u32>,
    /// A replay was asked for and is not answered: messages that do not follow the cursor come with it.
    awaits_replay: bool,
    /// Every message up to here was acknowledged one by one, or was there before.
    acked_to: Option<u64>,
    acked_beyond: BTreeSet<u64>,
}

impl Subscription {
    pub(super) fn new(id: Option<String>, destination: String, listen: Listen, mode: AckMode, last_seq: Option<u64>) -> Self {
        let cursor = last_seq.filter(|_| matches!(listen, Listen::Topic(_)));
        Self {
            id,
            destination,
            listen,
            mode,
            key: 0,
            cursor,
            epoch: None,
            awaits_replay: cursor.is_some(),
            acked_to: cursor,
            acked_beyond: BTreeSet::new(),
        }
    }

    /// Whether a message is the next one for this subscription, which then has it.
    fn takes(&mut self, seq: u64, epoch: Option<u32>) -> bool {
        let is_old = self.epoch.zip(epoch).is_some_and(|(own, of_message)| of_message < own);
        let has_it = self.cursor.is_some_and(|cursor| seq <= cursor);
        let comes_again = self.awaits_replay && self.cursor.is_some_and(|cursor| seq != cursor + 1);
        let takes = !(is_old || has_it || comes_again);
        if takes {
            self.cursor = Some(seq);
            self.epoch = epoch.or(self.epoch);
            self.acked_to.get_or_insert(seq.saturating_sub(1));
        }
        takes
    }

    fn listener(&self) -> Listener {
        Listener { id: self.id.clone(), destination: self.destination.clone(), acknowledges: self.mode != AckMode::Auto }
    }
}

/// To whom a MESSAGE goes.
#[derive(Debug)]
pub(super) struct Listener {
    id: Option<String>,
    destination: String,
    acknowledges: bool,
}

impl Listener {
    /// A MESSAGE without its body.
    pub(super) fn frame(&self, message_id: &str, version: Option<Version>) -> Frame {
        let ack = (self.acknowledges && version == Some(Version::V12)).then_some(message_id);
        Frame::new(Command::Message)
            .with("destination", self.destination.as_str())
            .with("message-id", message_id)
            .with_some("subscription", self.id.as_deref())
            .with_some("ack", ack)
    }
}

/// What an acknowledgement moves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    /// Everything up to here was read; `None` when a message before it was not acknowledged.
    pub(super) moved_to: Option<u64>,
}

/// All of a client's subscriptions.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    all: Vec<Subscription>,
    keys: u64,
}

impl Subscriptions {
    /// Adds one and names it for [`Subscriptions::follows`].
    pub(super) fn add(&mut self, mut subscription: Subscription) -> Result<u64, &'static str> {
        let same = |other: &&Subscription| other.destination == subscription.destination;
        if self.all.iter().any(|other| other.id == subscription.id && (other.id.is_some() || same(&other))) {
            return Err("this subscription exists");
        }
        if self.all.len() >= SUBSCRIPTIONS_MAX || self.all.iter().filter(same).count() >= SAME_DESTINATION_MAX {
            return Err("too many subscriptions");
        }
        self.keys += 1;
        subscription.key = self.keys;
        self.all.push(subscription);
        Ok(self.keys)
    }

    pub(super) fn remove(&mut self, ends: impl Fn(&Subscription) -> bool) {
        self.all.retain(|subscription| !ends(subscription));
    }

    /// The replay of a subscription is complete, or the session is the client's and stands at `top`.
    pub(super) fn follows(&mut self, key: u64, top: Option<(u64, Option<u32>)>) {
        if let Some(subscription) = self.all.iter_mut().find(|subscription| subscription.key == key) {
            subscription.awaits_replay = false;
            if let (None, Some((seq, epoch))) = (subscription.cursor, top) {
                subscription.cursor = Some(seq);
                subscription.epoch = epoch;
                subscription.acked_to = Some(seq);
            }
        }
    }

    /// Whoever listens to a session and does not have the message at `at`; all of them without a position.
    pub(super) fn take_turn(&mut self, session: SessionId, at: Option<(u64, Option<u32>)>) -> Vec<Listener> {
        let of_session = self.all.iter_mut().filter(|subscription| subscription.listen == Listen::Topic(session));
        let taking = of_session.filter_map(|subscription| match at {
            Some((seq, epoch)) if !subscription.takes(seq, epoch) => None,
            Some(_) | None => Some(subscription.listener()),
        });
        taking.collect()
    }

    /// Whoever listens to a queue of the client's own.
    pub(super) fn of_queue(&self, queue: Listen) -> Vec<Listener> {
        self.all.iter().filter(|subscription| subscription.listen == queue).map(Subscription::listener).collect()
    }

    /// Everybody who listens to a session counts on from `seq`.
    pub(super) fn resync(&mut self, session: SessionId, epoch: Option<u32>, seq: u64) {
        for subscription in self.all.iter_mut().filter(|subscription| subscription.listen == Listen::Topic(session)) {
            subscription.cursor = Some(seq);
            subscription.epoch = epoch.or(subscription.epoch);
            subscription.acked_to = Some(seq);
            subscription.acked_beyond.clear();
        }
    }

    /// A message was acknowledged, on the subscription `only` if it is named. `None` when nobody here listens to the session.
    pub(super) fn acknowledge(&mut self, session: SessionId, seq: u64, only: Option<&str>) -> Result<Option<Read>, &'static str> {
        let named = |subscription: &&mut Subscription| {
            subscription.listen == Listen::Topic(session) && only.is_none_or(|id| subscription.id.as_deref() == Some(id))
        };
        let by_itself = |subscription: &Subscription| subscription.mode == AckMode::Auto;
        let Some(subscription) = self.all.iter_mut().filter(named).min_by_key(|subscription| by_itself(subscription)) else {
            return Ok(None);
        };
        if subscription.mode != AckMode::Individual {
            return Ok(Some(Read { moved_to: Some(seq) }));
        }
        let before = subscription.acked_to.unwrap_or(0);
        if seq <= before {
            return Ok(Some(Read { moved_to: None }));
        }
        subscription.acked_beyond.insert(seq);
        let mut to = before;
        while subscription.acked_beyond.remove(&(to + 1)) {
            to += 1;
        }
        subscription.acked_to = Some(to);
        if subscription.acked_beyond.len() > GAPS_MAX {
            return Err("too many messages are acknowledged before earlier ones");
        }
        Ok(Some(Read { moved_to: (to > before).then_some(to) }))
    }
}
