//! Messages on their way from the client to the ledger: one at a time, in the order the client sent them.
//!
//! Why one at a time: a message that fails must not be overtaken by a later one, or the client's resend of it would land
//! behind. So later messages of that session are refused too, and what was refused is remembered in order: each must come
//! again before a later one passes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Connection, ConnectionLimits, Output};
use crate::chat::code::{CloseCode, ErrorCode};
use crate::chat::event::{Event, Heard};
use crate::chat::frame::{ErrorFrame, ReqId};
use crate::chat::partition::{fnv1a, partition_of};
use crate::chat::{Fingerprint, MessageRecord, Send};
use crate::id::{ClientMsgId, InvalidId, SessionId, ShopId};
use crate::time::UnixMillis;

/// When a client should send a message again that could not be queued.
const RESEND_AFTER: Duration = Duration::from_millis(500);

/// Messages whose acceptance is awaited, as a multiple of those that may wait to be queued: what a busy desk writes while the
/// worker is replaced.
const AWAITED_PER_SEND: usize = 4;

/// What became of [`Output::Enqueue`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// It is in the queue, or committed.
    Queued,
    /// It is in the queue with this content instead: a policy replaced it.
    QueuedAs(String),
    /// The queue was away and it went straight to the ledger: what its sender is to hear of it.
    Settled(Box<Event>),
    /// It may or may not be in the queue.
    Failed,
    /// A policy refused it; it is not in the queue. The client gets this frame, completed with its ids.
    Refused(ErrorFrame),
}

/// A message as the client sent it.
#[derive(Debug)]
pub(super) struct Draft {
    /// As it is stored.
    pub(super) kind: &'static str,
    pub(super) session: SessionId,
    pub(super) content: String,
    pub(super) client_msg_id: ClientMsgId,
    pub(super) req_id: Option<ReqId>,
    /// When it arrived here; it may have waited since.
    pub(super) came: UnixMillis,
}

/// The connection's sends.
#[derive(Debug, Default)]
pub(super) struct Sends {
    /// Messages to queue; the first one is under way when `in_flight`.
    queue: VecDeque<Pending>,
    in_flight: bool,
    /// Messages whose acceptance is awaited: a row that matches is this client's own and is answered with `accepted`.
    awaiting: BTreeMap<(SessionId, ClientMsgId), Awaiting>,
    /// Messages refused for now, in the order they must come again, over all sessions.
    refused: VecDeque<Refused>,
    /// Fingerprints of messages answered lately: a copy of one that fails holds nothing, for the client will not send it again.
    settled: VecDeque<u64>,
    /// Numbers the messages of clients that do not.
    counter: u64,
    /// Numbers what is awaited, so that the oldest can make room.
    order: u64,
}

#[derive(Debug)]
struct Pending {
    send: Send,
    shop: ShopId,
    req_id: Option<ReqId>,
}

#[derive(Debug)]
struct Awaiting {
    /// A row with the same id and other content is another device's message, not this one.
    digest: u64,
    req_id: Option<ReqId>,
    /// Among all messages of the connection, by when each came first.
    order: u64,
    /// When it came last, or failed.
    since: UnixMillis,
    /// Whether it may lie in the queue, whence it comes some day.
    queued: bool,
}

/// A message refused for now.
#[derive(Debug)]
struct Refused {
    session: SessionId,
    client_msg_id: ClientMsgId,
    /// When the client counts as having given it up.
    until: UnixMillis,
}

impl Sends {
    /// An id for a message without one. It names the connection, so it repeats nowhere, and a resend cannot be recognised.
    pub(super) fn next_id(&mut self, conn_id: &str) -> Result<ClientMsgId, InvalidId> {
        self.counter += 1;
        ClientMsgId::parse(&format!("{conn_id}-{}", self.counter))
    }

    /// Whether a message that `came` then must wait for an earlier one of its session to come again. The first refused one passes, and so does
    /// a copy of one that went through: its first copy has the place.
    fn is_held(&mut self, session: SessionId, client_msg_id: &ClientMsgId, came: UnixMillis) -> bool {
        self.refused.retain(|refused| came < refused.until);
        let mut refused = self.refused.iter().filter(|refused| refused.session == session).map(|refused| &refused.client_msg_id);
        let Some(first) = refused.next() else { return false };
        let is_refused = refused.any(|id| id == client_msg_id);
        let went_through = self.awaiting.contains_key(&(session, client_msg_id.clone())) || self.is_settled(session, client_msg_id);
        first != client_msg_id && (is_refused || !went_through)
    }

    /// Forgets that a message was refused: it came again, or its row exists.
    fn release(&mut self, session: SessionId, client_msg_id: &ClientMsgId) {
        self.refused.retain(|refused| refused.session != session || refused.client_msg_id != *client_msg_id);
    }

    /// Remembers a refused message behind the ones refused before it; one that is remembered keeps its place. False when
    /// there is no room: then the order can no longer be kept on this connection.
    fn hold(&mut self, session: SessionId, client_msg_id: &ClientMsgId, until: UnixMillis, sends_max: usize) -> bool {
        let known = self.refused.iter_mut().find(|refused| refused.session == session && refused.client_msg_id == *client_msg_id);
        if let Some(refused) = known {
            refused.until = refused.until.max(until);
            return true;
        }
        let room = self.refused.len() < sends_max;
        if room {
            self.refused.push_back(Refused { session, client_msg_id: client_msg_id.clone(), until });
        }
        room
    }

    /// A row of this sender exists: nobody waits for it any more.
    pub(super) fn note_stored(&mut self, session: SessionId, client_msg_id: &ClientMsgId, sends_max: usize) {
        self.release(session, client_msg_id);
        if self.settled.len() >= sends_max {
            self.settled.pop_front();
        }
        self.settled.push_back(name(session, client_msg_id));
    }

    fn is_settled(&self, session: SessionId, client_msg_id: &ClientMsgId) -> bool {
        self.settled.contains(&name(session, client_msg_id))
    }

    /// Expects the row of a message that came, again perhaps: then it keeps its place in the order. False when as many as may
    /// be are expected and each of them has come lately.
    fn await_row(
        &mut self,
        key: (SessionId, ClientMsgId),
        digest: u64,
        req_id: Option<ReqId>,
        now: UnixMillis,
        limits: &ConnectionLimits,
    ) -> bool {
        if let Some(awaiting) = self.awaiting.get_mut(&key) {
            *awaiting = Awaiting { digest, req_id, since: now, ..*awaiting };
            return true;
        }
        if self.awaiting.len() >= limits.sends_max.saturating_mul(AWAITED_PER_SEND) {
            // One that did not come again in time was given up by its client. Should its row still come, it is shown as a
            // message with its clientMsgId.
            let given_up = self.awaiting.iter().filter(|(_, awaiting)| now >= awaiting.since.plus(limits.order_hold));
            let Some(oldest) = given_up.min_by_key(|(_, awaiting)| awaiting.order).map(|(key, _)| key.clone()) else { return false };
            self.awaiting.remove(&oldest);
        }
        self.order += 1;
        self.awaiting.insert(key, Awaiting { digest, req_id, order: self.order, since: now, queued: false });
        true
    }

    /// Whether no earlier message of the session may still be stored: none is awaited but those that failed and were given
    /// up.
    fn is_alone(&self, session: SessionId, client_msg_id: &ClientMsgId, now: UnixMillis, hold: Duration) -> bool {
        let order = self.awaiting.get(&(session, client_msg_id.clone())).map_or(u64::MAX, |awaiting| awaiting.order);
        self.awaiting
            .iter()
            .filter(|((other, _), awaiting)| *other == session && awaiting.order < order)
            .all(|(_, earlier)| !earlier.queued && now >= earlier.since.plus(hold))
    }

    fn awaited(&mut self, session: SessionId, client_msg_id: &ClientMsgId) -> Option<&mut Awaiting> {
        self.awaiting.get_mut(&(session, client_msg_id.clone()))
    }

    /// Takes the expectation of `message` if it is this client's own.
    pub(super) fn take_awaited(&mut self, message: &MessageRecord) -> bool {
        let key = (message.session, message.client_msg_id.clone());
        let own = self.awaiting.get(&key).is_some_and(|awaiting| awaiting.digest == digest(&message.kind, &message.content));
        if own {
            self.settle(message.session, &message.client_msg_id);
        }
        own
    }

    /// Forgets the expectation of a message whatever its content: the ledger answered it.
    pub(super) fn settle(&mut self, session: SessionId, client_msg_id: &ClientMsgId) -> Option<ReqId> {
        let settled = self.awaiting.remove(&(session, client_msg_id.clone()));
        // An idle connection keeps no room for what it waited for.
        if self.awaiting.is_empty() {
            self.awaiting = BTreeMap::new();
        }
        settled.and_then(|awaiting| awaiting.req_id)
    }

    /// Messages there is room for without asking for memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.queue.capacity()
    }

    pub(super) fn check_invariants(&self, sends_max: usize) {
        debug_assert!(self.queue.len() <= sends_max);
        debug_assert!(self.awaiting.len() <= sends_max.saturating_mul(AWAITED_PER_SEND));
        debug_assert!(self.refused.len() <= sends_max);
        debug_assert!(self.settled.len() <= sends_max);
        debug_assert_eq!(self.in_flight, !self.queue.is_empty(), "the first of the queue is always under way");
    }
}

impl Connection {
    /// Queues a message for a session that is known to be the party's.
    pub(super) fn send(&mut self, draft: Draft, shop: ShopId, now: UnixMillis) {
        if self.sends.is_held(draft.session, &draft.client_msg_id, draft.came) {
            self.refuse_send(&draft, ErrorCode::NotDurable, now);
            return;
        }
        if self.sends.queue.len() >= self.limits.sends_max {
            self.refuse_send(&draft, ErrorCode::RateLimited, now);
            return;
        }
        let key = (draft.session, draft.client_msg_id.clone());
        if !self.sends.await_row(key, digest(draft.kind, &draft.content), draft.req_id.clone(), now, &self.limits) {
            self.refuse_send(&draft, ErrorCode::RateLimited, now);
            return;
        }
        let Draft { kind, session, content, client_msg_id, req_id, came: _ } = draft;
        self.sends.release(session, &client_msg_id);
        let send = Send {
            session,
            sender: self.party.clone(),
            client_msg_id,
            kind: kind.to_owned(),
            fingerprint: Fingerprint::of(kind, &content),
            content,
            origin: self.conn_id.as_str().to_owned(),
            bot: false,
        };
        self.sends.queue.push_back(Pending { send, shop, req_id });
        self.pump_sends(now);
    }

    /// Answers a message that was not taken, and keeps later ones of its session from passing it.
    pub(super) fn refuse_send(&mut self, draft: &Draft, code: ErrorCode, now: UnixMillis) {
        if code.is_temporary() {
            let until = now.plus(self.limits.order_hold);
            if !self.sends.hold(draft.session, &draft.client_msg_id, until, self.limits.sends_max) {
                self.close(CloseCode::TooFast);
            }
        }
        let frame = ErrorFrame {
            req_id: draft.req_id.clone(),
            session_id: Some(draft.session),
            client_msg_id: Some(draft.client_msg_id.clone()),
            retry_after: code.is_temporary().then_some(RESEND_AFTER),
            ..ErrorFrame::of(code)
        };
        self.write_error(&frame, now);
    }

    /// The answer to [`Output::Enqueue`].
    pub fn handle_send_outcome(&mut self, client_msg_id: &ClientMsgId, outcome: SendOutcome, now: UnixMillis) {
        let answered = self.sends.in_flight && self.sends.queue.front().is_some_and(|head| head.send.client_msg_id == *client_msg_id);
        debug_assert!(answered || self.outbox.is_closing(), "an answer to a question that was not asked");
        let Some(head) = answered.then(|| self.sends.queue.pop_front()).flatten() else { return };
        self.sends.in_flight = false;
        if self.sends.queue.is_empty() {
            self.sends.queue = VecDeque::new();
        }
        let session = head.send.session;
        match outcome {
            SendOutcome::Queued => {
                if let Some(awaiting) = self.sends.awaited(session, &head.send.client_msg_id) {
                    awaiting.queued = true;
                }
            }
            SendOutcome::Settled(event) => self.apply(&Heard::new(*event), now),
            SendOutcome::QueuedAs(content) => {
                if let Some(awaiting) = self.sends.awaited(session, &head.send.client_msg_id) {
                    awaiting.queued = true;
                    awaiting.digest = digest(&head.send.kind, &content);
                }
            }
            SendOutcome::Refused(refusal) => {
                self.sends.settle(session, &head.send.client_msg_id);
                let frame =
                    ErrorFrame { req_id: head.req_id, session_id: Some(session), client_msg_id: Some(head.send.client_msg_id), ..refusal };
                self.write_error(&frame, now);
            }
            SendOutcome::Failed => self.fail_session(head, now),
        }
        self.pump_sends(now);
        self.after_input();
    }

    /// Refuses the failed message and every later one of its session that waits.
    fn fail_session(&mut self, head: Pending, now: UnixMillis) {
        let session = head.send.session;
        let head_id = head.send.client_msg_id.clone();
        let (dropped, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.sends.queue).into_iter().partition(|pending| pending.send.session == session);
        self.sends.queue = kept;
        // These come before whatever was refused behind them earlier.
        let behind = std::mem::take(&mut self.sends.refused);
        let until = now.plus(self.limits.order_hold);
        let mut remembered = true;
        for pending in std::iter::once(head).chain(dropped) {
            let client_msg_id = pending.send.client_msg_id;
            if self.sends.is_settled(session, &client_msg_id) {
                // A copy of a message that is stored and answered.
                continue;
            }
            // The head stays awaited: its effect may have happened, and then its row is on its way.
            if client_msg_id != head_id {
                self.sends.settle(session, &client_msg_id);
            }
            remembered &= self.sends.hold(session, &client_msg_id, until, self.limits.sends_max);
            let frame = ErrorFrame {
                req_id: pending.req_id,
                session_id: Some(session),
                client_msg_id: Some(client_msg_id),
                retry_after: Some(RESEND_AFTER),
                ..ErrorFrame::of(ErrorCode::NotDurable)
            };
            self.write_error(&frame, now);
        }
        for refused in behind {
            remembered &= self.sends.hold(refused.session, &refused.client_msg_id, refused.until, self.limits.sends_max);
        }
        if !remembered {
            self.close(CloseCode::TooFast);
        }
    }

    fn pump_sends(&mut self, now: UnixMillis) {
        if self.sends.in_flight {
            return;
        }
        if let Some(Pending { send, shop, .. }) = self.sends.queue.front() {
            let partition = partition_of(send.session, self.limits.partitions);
            // Those queued behind it are awaited too, but later ones.
            let alone = self.sends.is_alone(send.session, &send.client_msg_id, now, self.limits.order_hold);
            self.outbox.ask(Output::Enqueue { partition, shop: *shop, send: send.clone(), alone });
            self.sends.in_flight = true;
        }
    }

    /// A row of this client is ahead of its place; when the gap before it is filled it must be answered, not shown.
    pub(super) fn await_own_row(&mut self, message: &MessageRecord, now: UnixMillis) {
        let key = (message.session, message.client_msg_id.clone());
        let req_id = self.sends.settle(message.session, &message.client_msg_id);
        // Without room it is shown as a message with its clientMsgId, which says the same.
        let _ = self.sends.await_row(key, digest(&message.kind, &message.content), req_id, now, &self.limits);
    }
}

/// Two messages of one connection with the same name would have to be made so on purpose, and then only hurt their own order.
fn name(session: SessionId, client_msg_id: &ClientMsgId) -> u64 {
    fnv1a(client_msg_id.as_str().as_bytes()) ^ session.0.rotate_left(32)
}

fn digest(kind: &str, content: &str) -> u64 {
    fnv1a(kind.as_bytes()) ^ fnv1a(content.as_bytes()).rotate_left(1)
}
