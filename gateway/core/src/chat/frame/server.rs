//! What clients get: typed frames in, one JSON object as text out. Ids are strings, `seq` is an integer, times are Unix
//! milliseconds, members without a value are left out.
//!
//! What never happens here: deciding whether to send. Text depends only on the frame, so a frame encoded once may be
//! written to many sockets.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{NOTICES, ReqId};
use crate::chat::code::ErrorCode;
use crate::chat::sla::Clock;
use crate::chat::{AgentState, MessageRecord, SessionRecord, Side};
use crate::id::{ClientMsgId, DeviceId, OrderNo, PrincipalId, SessionId};
use crate::time::UnixMillis;
use data_encoding::BASE64URL_NOPAD;

/// A frame to a client.
#[derive(Debug, Clone)]
pub enum ServerFrame<'a> {
    /// The first frame: what the connection is and which sessions it knows.
    Hello {
        /// The connection's id.
        conn_id: &'a str,
        /// How often something should be heard from the client.
        heartbeat: Duration,
        /// The server's clock.
        now: UnixMillis,
        /// Bytes of one frame, at most.
        bytes_max: usize,
        /// Messages of one page, at most.
        page_max: u32,
        /// How long to wait at most before the first attempt to come back.
        reconnect_within: Duration,
        /// The device it counts as, if it named one.
        device: Option<&'a DeviceId>,
        /// What an agent says of itself.
        state: Option<AgentState>,
        /// The key of signed frames.
        frame_key: Option<&'a [u8; 32]>,
        /// Its sessions.
        sessions: Vec<SessionEntry<'a>>,
    },
    /// The sender's message is committed.
    Accepted {
        /// The row.
        message: &'a MessageRecord,
        /// Whether it had been stored before.
        dup: bool,
    },
    /// A message.
    Message(&'a MessageRecord),
    /// A session is open: the answer to `open`, and the first word about a session that another device opened.
    Opened {
        /// The request; absent when nobody asked.
        req_id: Option<&'a ReqId>,
        /// The session.
        record: &'a SessionRecord,
        /// What this connection counts from.
        max_seq: u64,
    },
    /// Older messages.
    History {
        /// The request.
        req_id: Option<&'a ReqId>,
        /// The session.
        session: SessionId,
        /// Ascending.
        messages: &'a [MessageRecord],
        /// Whether there are older ones.
        has_more: bool,
    },
    /// A resume is complete.
    ReplayEnd {
        /// The request.
        req_id: Option<&'a ReqId>,
        /// The session.
        session: SessionId,
        /// Highest seq written.
        last_seq: u64,
    },
    /// Count from here; what you have above is not of this stream, what is missing below comes by `history`.
    Resync {
        /// The request, when it answers one.
        req_id: Option<&'a ReqId>,
        /// The session.
        session: SessionId,
        /// The epoch in force.
        epoch: u32,
        /// Highest seq to count as seen.
        max_seq: u64,
        /// `epoch`, `ahead` or `gap`.
        reason: &'static str,
    },
    /// A replay of the party's notices is complete.
    NoticesEnd {
        /// The request.
        req_id: Option<&'a ReqId>,
        /// Highest number written, or what the client had.
        last_seq: u64,
    },
    /// Count the party's notices from here: the numbers below are gone, or were never given.
    NoticesResync {
        /// The request.
        req_id: Option<&'a ReqId>,
        /// Number to count as seen.
        max_seq: u64,
        /// `ahead` or `gap`.
        reason: &'static str,
    },
    /// Somebody read.
    Read {
        /// The session.
        session: SessionId,
        /// Side and id of the reader.
        by: (Side, &'a PrincipalId),
        /// Up to here.
        last_seq: u64,
        /// Messages that side has not read.
        unread: u64,
    },
    /// Messages arrived at the other side.
    Delivered {
        /// The session.
        session: SessionId,
        /// Side and id of whose device it is.
        by: (Side, &'a PrincipalId),
        /// Up to here.
        last_seq: u64,
    },
    /// A session takes no more messages.
    Closed {
        /// The request, when it answers one.
        req_id: Option<&'a ReqId>,
        /// The session.
        session: SessionId,
        /// Side and id of who closed it; absent when it had been closed before.
        by: Option<(Side, &'a PrincipalId)>,
    },
    /// The session was handed over.
    Transferred {
        /// The request.
        req_id: Option<&'a ReqId>,
        /// The session.
        session: SessionId,
        /// Who serves it now; `None`: it waits.
        to: Option<&'a PrincipalId>,
    },
    /// The agent's word on itself counts.
    Status {
        /// The request.
        req_id: Option<&'a ReqId>,
        /// What it said.
        state: AgentState,
    },
    /// The waiting line of the agent's shop.
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
    /// Somebody came or went.
    Presence {
        /// Side and id.
        who: (Side, &'a PrincipalId),
        /// How it is.
        state: AgentState,
    },
    /// Somebody is writing.
    Typing {
        /// The session.
        session: SessionId,
        /// Side and id.
        by: (Side, &'a PrincipalId),
    },
    /// An agent serves the session.
    Assigned {
        /// The session as it stands.
        record: &'a SessionRecord,
        /// Whose view the entry takes.
        side: Side,
        /// Why this agent.
        reason: &'a str,
    },
    /// What became of an order.
    SeckillResult {
        /// The order.
        order_no: &'a OrderNo,
        /// Whether it exists.
        success: bool,
        /// A sentence for the buyer; empty when there is none.
        message: &'a str,
        /// Its number in the user's stream of notices, where that is kept.
        nseq: Option<u64>,
    },
    /// Connect to another node.
    Migrate {
        /// Not before this.
        after: Duration,
    },
    /// The token ends soon.
    TokenExpiring {
        /// In this time.
        left: Duration,
    },
    /// The new token is in force.
    Refreshed {
        /// The request.
        req_id: Option<&'a ReqId>,
        /// When it ends.
        expires_at: UnixMillis,
    },
    /// Answer to `ping`.
    Pong {
        /// The request.
        req_id: Option<&'a ReqId>,
    },
    /// A frame was not carried out.
    Error(&'a ErrorFrame),
}

/// An `error` frame. Also carries refusals of policies, whose codes are their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "error", rename_all = "camelCase")]
pub struct ErrorFrame {
    /// The request, if it named itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub req_id: Option<ReqId>,
    /// The code.
    pub code: Cow<'static, str>,
    /// A sentence for people.
    pub message: Cow<'static, str>,
    /// Whether the same frame may succeed later.
    pub temporary: bool,
    /// Not before this.
    #[serde(rename = "retryAfterMs", skip_serializing_if = "Option::is_none", serialize_with = "millis_if_any")]
    pub retry_after: Option<Duration>,
    /// The session, where the frame named one and more than one could be meant.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "session_if_any")]
    pub session_id: Option<SessionId>,
    /// The message that was not stored.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "client_msg_id_if_any")]
    pub client_msg_id: Option<ClientMsgId>,
}

impl ErrorFrame {
    /// A frame with the code's own sentence and nothing else.
    #[must_use]
    pub fn of(code: ErrorCode) -> Self {
        Self {
            req_id: None,
            code: Cow::Borrowed(code.as_str()),
            message: Cow::Borrowed(code.message()),
            temporary: code.is_temporary(),
            retry_after: None,
            session_id: None,
            client_msg_id: None,
        }
    }

    /// The text.
    #[must_use]
    pub fn encode(&self) -> String {
        to_text(self)
    }
}

/// A session as `hello`, `assigned` and the session list show it, seen from one side.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEntry<'a> {
    #[serde(serialize_with = "display")]
    session_id: SessionId,
    session_no: &'a str,
    #[serde(serialize_with = "display")]
    epoch: u32,
    max_seq: u64,
    your_seq: u64,
    unread: u64,
    peer_seq: u64,
    peer_received: u64,
    opened_at: u64,
    user_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    subject: &'a str,
}

impl<'a> SessionEntry<'a> {
    /// `record` as `side` sees it.
    #[must_use]
    pub fn of(record: &'a SessionRecord, side: Side) -> Self {
        Self {
            session_id: record.id,
            session_no: &record.no,
            epoch: record.top.epoch,
            max_seq: record.top.seq,
            your_seq: record.read_by(side),
            unread: record.unread_of(side),
            peer_seq: record.read_by(side.other()),
            peer_received: record.received_by(side.other()),
            opened_at: record.clocks.opened_at.0,
            user_id: record.user.as_str(),
            agent_id: record.agent.as_ref().map(PrincipalId::as_str),
            subject: &record.subject,
        }
    }
}

/// The message push, as text. The same text serves every socket that shows the message.
#[must_use]
pub fn message_frame(message: &MessageRecord) -> String {
    to_text(&Push::of(message))
}

impl ServerFrame<'_> {
    /// The text.
    #[must_use]
    pub fn encode(&self) -> String {
        to_text(&Tagged::of(self))
    }
}

/// The wire shape of every frame.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Tagged<'a> {
    Hello {
        v: u8,
        conn_id: &'a str,
        heartbeat: u64,
        server_time: u64,
        limits: Limits,
        reconnect_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        device: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        frame_key: Option<String>,
        sessions: &'a [SessionEntry<'a>],
    },
    Accepted {
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        client_msg_id: &'a str,
        id: String,
        seq: u64,
        #[serde(serialize_with = "display")]
        epoch: u32,
        dup: bool,
        time: u64,
    },
    Opened {
        #[serde(skip_serializing_if = "Option::is_none")]
        req_id: Option<&'a ReqId>,
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        session_no: &'a str,
        #[serde(serialize_with = "display")]
        epoch: u32,
        max_seq: u64,
    },
    History {
        #[serde(skip_serializing_if = "Option::is_none")]
        req_id: Option<&'a ReqId>,
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        messages: Vec<Push<'a>>,
        has_more: bool,
    },
    ReplayEnd {
        #[serde(skip_serializing_if = "Option::is_none")]
        req_id: Option<&'a ReqId>,
        session_id: Stream,
        last_seq: u64,
        has_more: bool,
    },
    Resync {
        #[serde(skip_serializing_if = "Option::is_none")]
        req_id: Option<&'a ReqId>,
        session_id: Stream,
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "display_if_any")]
        epoch: Option<u32>,
        max_seq: u64,
        reason: &'a str,
    },
    Read {
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        by: String,
        last_seq: u64,
        unread: u64,
    },
    Delivered {
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        by: String,
        last_seq: u64,
    },
    Closed {
        #[serde(skip_serializing_if = "Option::is_none")]
        req_id: Option<&'a ReqId>,
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    Transferred {
        #[serde(skip_serializing_if = "Option::is_none")]
        req_id: Option<&'a ReqId>,
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        to: String,
    },
    Status {
        #[serde(skip_serializing_if = "Option::is_none")]
        req_id: Option<&'a ReqId>,
        state: &'a str,
    },
    Waiting {
        count: u64,
    },
    Overdue {
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        clock: &'a str,
        elapsed_ms: u64,
    },
    Presence {
        who: String,
        state: &'a str,
    },
    Typing {
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        by: String,
    },
    Assigned {
        #[serde(serialize_with = "display")]
        session_id: SessionId,
        #[serde(skip_serializing_if = "Option::is_none")]
        agent_id: Option<&'a str>,
        reason: &'a str,
        session: SessionEntry<'a>,
    },
    SeckillResult {
        order_no: &'a str,
        status: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        nseq: Option<u64>,
    },
    Migrate {
        after_ms: u64,
    },
    TokenExpiring {
        in_ms: u64,
    },
    Refreshed {
        #[serde(skip_serializing_if = "Option::is_none")]
        req_id: Option<&'a ReqId>,
        expires_at: u64,
    },
    Pong {
        #[serde(skip_serializing_if = "Option::is_none")]
        req_id: Option<&'a ReqId>,
    },
    #[serde(untagged)]
    Message(Push<'a>),
    #[serde(untagged)]
    Error(&'a ErrorFrame),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Limits {
    max_bytes: usize,
    page: u32,
}

/// What a replay was of.
enum Stream {
    Session(SessionId),
    Notices,
}

impl Serialize for Stream {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Session(session) => out.collect_str(session),
            Self::Notices => out.serialize_str(NOTICES),
        }
    }
}

/// The wire shape of a message.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Push<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(serialize_with = "display")]
    session_id: SessionId,
    seq: u64,
    #[serde(serialize_with = "display")]
    epoch: u32,
    /// Absent when the message takes another one back.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    /// The message taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    ref_seq: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recalled: bool,
    sender: Sender<'a>,
    client_msg_id: &'a str,
    time: u64,
}

#[derive(Serialize)]
struct Sender<'a> {
    kind: &'a str,
    id: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    bot: bool,
}

impl<'a> Push<'a> {
    fn of(message: &'a MessageRecord) -> Self {
        let ref_seq = message.takes_back();
        Self {
            id: message_id(message),
            kind: &message.kind,
            session_id: message.session,
            seq: message.seq,
            epoch: message.epoch,
            content: ref_seq.is_none().then_some(if message.recalled { "" } else { &message.content }),
            ref_seq,
            recalled: message.recalled,
            sender: Sender { kind: message.side.as_str(), id: message.sender.as_str(), bot: message.bot },
            client_msg_id: message.client_msg_id.as_str(),
            time: message.at.0,
        }
    }
}

impl<'a> Tagged<'a> {
    fn of(frame: &'a ServerFrame<'_>) -> Self {
        match frame {
            ServerFrame::Hello { conn_id, heartbeat, now, bytes_max, page_max, reconnect_within, device, state, frame_key, sessions } => {
                Self::Hello {
                    v: 1,
                    conn_id,
                    heartbeat: millis(*heartbeat),
                    server_time: now.0,
                    limits: Limits { max_bytes: *bytes_max, page: *page_max },
                    reconnect_ms: millis(*reconnect_within),
                    device: device.map(DeviceId::as_str),
                    state: state.map(AgentState::as_str),
                    frame_key: frame_key.map(|key| BASE64URL_NOPAD.encode(key)),
                    sessions,
                }
            }
            ServerFrame::Accepted { message, dup } => Self::Accepted {
                session_id: message.session,
                client_msg_id: message.client_msg_id.as_str(),
                id: message_id(message),
                seq: message.seq,
                epoch: message.epoch,
                dup: *dup,
                time: message.at.0,
            },
            ServerFrame::Opened { req_id, record, max_seq } => {
                Self::Opened { req_id: *req_id, session_id: record.id, session_no: &record.no, epoch: record.top.epoch, max_seq: *max_seq }
            }
            ServerFrame::History { req_id, session, messages, has_more } => Self::History {
                req_id: *req_id,
                session_id: *session,
                messages: messages.iter().map(Push::of).collect(),
                has_more: *has_more,
            },
            ServerFrame::ReplayEnd { req_id, session, last_seq } => {
                Self::ReplayEnd { req_id: *req_id, session_id: Stream::Session(*session), last_seq: *last_seq, has_more: false }
            }
            ServerFrame::NoticesEnd { req_id, last_seq } => {
                Self::ReplayEnd { req_id: *req_id, session_id: Stream::Notices, last_seq: *last_seq, has_more: false }
            }
            ServerFrame::Resync { req_id, session, epoch, max_seq, reason } => {
                let session_id = Stream::Session(*session);
                Self::Resync { req_id: *req_id, session_id, epoch: Some(*epoch), max_seq: *max_seq, reason }
            }
            ServerFrame::NoticesResync { req_id, max_seq, reason } => {
                Self::Resync { req_id: *req_id, session_id: Stream::Notices, epoch: None, max_seq: *max_seq, reason }
            }
            ServerFrame::Read { session, by, last_seq, unread } => {
                Self::Read { session_id: *session, by: who(*by), last_seq: *last_seq, unread: *unread }
            }
            ServerFrame::Delivered { session, by, last_seq } => Self::Delivered { session_id: *session, by: who(*by), last_seq: *last_seq },
            ServerFrame::Closed { req_id, session, by } => Self::Closed { req_id: *req_id, session_id: *session, by: by.map(who) },
            ServerFrame::Transferred { req_id, session, to } => Self::Transferred {
                req_id: *req_id,
                session_id: *session,
                to: to.map_or_else(|| "waiting".to_owned(), |id| who((Side::Agent, id))),
            },
            ServerFrame::Status { req_id, state } => Self::Status { req_id: *req_id, state: state.as_str() },
            ServerFrame::Waiting { count } => Self::Waiting { count: *count },
            ServerFrame::Overdue { session, clock, shows } => {
                Self::Overdue { session_id: *session, clock: clock.as_str(), elapsed_ms: millis(*shows) }
            }
            ServerFrame::Presence { who: someone, state } => Self::Presence { who: who(*someone), state: state.as_str() },
            ServerFrame::Typing { session, by } => Self::Typing { session_id: *session, by: who(*by) },
            ServerFrame::Assigned { record, side, reason } => Self::Assigned {
                session_id: record.id,
                agent_id: record.agent.as_ref().map(PrincipalId::as_str),
                reason,
                session: SessionEntry::of(record, *side),
            },
            ServerFrame::SeckillResult { order_no, success, message, nseq } => {
                Self::SeckillResult { order_no: order_no.as_str(), status: if *success { "success" } else { "fail" }, message, nseq: *nseq }
            }
            ServerFrame::Migrate { after } => Self::Migrate { after_ms: millis(*after) },
            ServerFrame::TokenExpiring { left } => Self::TokenExpiring { in_ms: millis(*left) },
            ServerFrame::Refreshed { req_id, expires_at } => Self::Refreshed { req_id: *req_id, expires_at: expires_at.0 },
            ServerFrame::Pong { req_id } => Self::Pong { req_id: *req_id },
            ServerFrame::Message(message) => Self::Message(Push::of(message)),
            ServerFrame::Error(error) => Self::Error(error),
        }
    }
}

/// A message's public id: session and seq name it for good.
fn message_id(message: &MessageRecord) -> String {
    format!("{}-{}", message.session, message.seq)
}

fn who((side, id): (Side, &PrincipalId)) -> String {
    format!("{}:{id}", side.as_str())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn display<T: std::fmt::Display, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(value)
}

#[allow(clippy::ref_option, reason = "the signature serde's serialize_with asks for")]
fn display_if_any<T: std::fmt::Display, S: Serializer>(value: &Option<T>, out: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(out)
}

#[allow(clippy::ref_option, reason = "the signature serde's serialize_with asks for")]
fn millis_if_any<S: Serializer>(value: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
    value.map(millis).serialize(out)
}

#[allow(clippy::ref_option, reason = "the signature serde's serialize_with asks for")]
fn session_if_any<S: Serializer>(value: &Option<SessionId>, out: S) -> Result<S::Ok, S::Error> {
    value.map(|id| id.to_string()).serialize(out)
}

#[allow(clippy::ref_option, reason = "the signature serde's serialize_with asks for")]
fn client_msg_id_if_any<S: Serializer>(value: &Option<ClientMsgId>, out: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ClientMsgId::as_str).serialize(out)
}

/// These shapes hold strings, integers and lists only, so encoding them cannot fail.
fn to_text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
