//! What travels between nodes: events on the bus subject of a party, and sends in the ingest queue.
//!
//! `wire` holds the JSON shapes. What never happens here: publishing, or trusting what arrives: every id is checked again,
//! and bytes that are no event are a value, never a panic. Called by the chat worker, the order worker and the sockets.

mod wire;

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;

use crate::chat::code::ErrorCode;
use crate::chat::frame::{Text, message_frame};
use crate::chat::sla::Clock;
use crate::chat::{AgentState, Committed, MessageRecord, Party, Send, SessionRecord, Side};
use crate::id::{ClientMsgId, OrderNo, PrincipalId, SessionId, ShopId};
use crate::time::UnixMillis;

/// One event on `evt.<side>.<id>`: it reaches every device of that party, at most once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A message is committed.
    Stored {
        /// The row.
        message: MessageRecord,
        /// Whether it had been stored before this send.
        dup: bool,
        /// The connection that sent it.
        origin: String,
        /// The session's shop.
        shop: ShopId,
        /// The session's user.
        user: PrincipalId,
        /// The session's agent.
        agent: Option<PrincipalId>,
    },
    /// A message was refused by the ledger; only its sender hears of it.
    Refused {
        /// The sender's id for it.
        client_msg_id: ClientMsgId,
        /// Where it should have gone.
        session: SessionId,
        /// The connection that sent it.
        origin: String,
        /// Why.
        code: ErrorCode,
    },
    /// A session got an agent, or another one.
    Assigned {
        /// The session afterwards.
        session: SessionRecord,
        /// Why this agent.
        reason: String,
    },
    /// A side read.
    Read {
        /// The session.
        session: SessionId,
        /// Which side.
        by: Side,
        /// Who of that side.
        reader: PrincipalId,
        /// Up to here.
        seq: u64,
        /// What that side has left.
        unread: u64,
    },
    /// An order has a final result.
    SaleResult {
        /// The order.
        order_no: OrderNo,
        /// Whether it exists.
        success: bool,
        /// A sentence for the buyer; may be empty.
        message: String,
        /// Its number in the user's stream of notices, where that is kept.
        nseq: Option<u64>,
    },
    /// Somebody is writing.
    Typing {
        /// The session.
        session: SessionId,
        /// Which side.
        by: Side,
        /// Who of that side.
        writer: PrincipalId,
    },
    /// An agent came, went, or says something else of itself.
    Presence {
        /// Which side.
        side: Side,
        /// Who.
        id: PrincipalId,
        /// How it is; an agent without a living connection is offline.
        state: AgentState,
    },
    /// Messages arrived on a device of a side.
    Received {
        /// The session.
        session: SessionId,
        /// Which side.
        by: Side,
        /// Who of that side.
        reader: PrincipalId,
        /// Up to here.
        seq: u64,
    },
    /// A session is closed.
    Closed {
        /// The session.
        session: SessionId,
        /// Which side closed it.
        by: Side,
        /// Who of that side.
        closer: PrincipalId,
    },
    /// The waiting line of an agent's shop has another length.
    Waiting {
        /// Sessions that nobody serves.
        count: u64,
    },
    /// A clock of a session runs longer than it should.
    Overdue {
        /// The session.
        session: SessionId,
        /// Which clock.
        clock: Clock,
        /// What it shows.
        shows: Duration,
    },
}

/// An event that was heard, and its frame for those who show it as it is: encoded once, whoever comes first.
#[derive(Debug)]
pub struct Heard {
    /// The event.
    pub event: Event,
    push: OnceLock<Text>,
}

impl Heard {
    /// An event as it came.
    #[must_use]
    pub fn new(event: Event) -> Self {
        Self { event, push: OnceLock::new() }
    }

    /// The frame of `message`, which is the event's.
    pub(crate) fn push(&self, message: &MessageRecord) -> Text {
        self.push.get_or_init(|| message_frame(message).into()).clone()
    }
}

/// Bytes from the bus or the queue are not what this version writes. The message says what is wrong, never what they hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}: {why}")]
pub struct BadPayload {
    /// `event` or `queued send`.
    pub what: &'static str,
    /// What is wrong.
    pub why: String,
}

impl Event {
    /// The payload.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        wire::encode_event(self)
    }

    /// Reads a payload.
    pub fn decode(payload: &[u8]) -> Result<Self, BadPayload> {
        wire::decode_event(payload).map_err(|why| BadPayload { what: "event", why })
    }
}

/// A send as it lies in the ingest queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedSend {
    /// The send.
    pub send: Send,
    /// When the gateway queued it: the start of the acceptance time that metrics show.
    pub queued_at: UnixMillis,
}

impl QueuedSend {
    /// The payload.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        wire::encode_send(self)
    }

    /// Reads a payload.
    pub fn decode(payload: &[u8]) -> Result<Self, BadPayload> {
        wire::decode_send(payload).map_err(|why| BadPayload { what: "queued send", why })
    }
}

impl MessageRecord {
    /// The stored message as a roaming list keeps it.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        wire::encode_message(self)
    }

    /// Reads an entry of a roaming list.
    pub fn decode(payload: &[u8]) -> Result<Self, BadPayload> {
        wire::decode_message(payload).map_err(|why| BadPayload { what: "stored message", why })
    }
}

/// What to publish after a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The event, the same for everybody.
    pub event: Event,
    /// Where.
    pub subjects: Vec<String>,
}

/// What to publish after a commit. A stored message goes to the session's user, to its agent and to the sender if that is a
/// third; a refusal goes to the sender alone.
#[must_use]
pub fn announcement(send: &Send, outcome: &Committed) -> Announcement {
    match outcome {
        Committed::Conflict => refusal(send, ErrorCode::ClientMsgIdConflict),
        Committed::NotFound => refusal(send, ErrorCode::NotFound),
        Committed::Closed => refusal(send, ErrorCode::SessionClosed),
        Committed::TooLate => refusal(send, ErrorCode::Forbidden),
        Committed::Stored { message, dup, shop, user, agent, stopped: _ } => {
            let event = Event::Stored {
                message: message.clone(),
                dup: *dup,
                origin: send.origin.clone(),
                shop: *shop,
                user: user.clone(),
                agent: agent.clone(),
            };
            let mut subjects = vec![Party::user(user.clone()).subject()];
            subjects.extend(agent.clone().map(|id| Party::agent(*shop, id).subject()));
            subjects.push(send.sender.subject());
            subjects.sort();
            subjects.dedup();
            Announcement { event, subjects }
        }
    }
}

/// What to publish about a message that will not be stored.
#[must_use]
pub fn refusal(send: &Send, code: ErrorCode) -> Announcement {
    let event = Event::Refused { client_msg_id: send.client_msg_id.clone(), session: send.session, origin: send.origin.clone(), code };
    Announcement { event, subjects: vec![send.sender.subject()] }
}

/// [`announcement`], an event for each subject.
#[must_use]
pub fn fan_out(send: &Send, outcome: &Committed) -> Vec<(String, Event)> {
    let Announcement { event, subjects } = announcement(send, outcome);
    subjects.into_iter().map(|subject| (subject, event.clone())).collect()
}

#[cfg(test)]
mod tests;
