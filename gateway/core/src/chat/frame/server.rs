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
use crate::chat::{MessageRecord, SessionRecord, Side};
use crate::id::{ClientMsgId, OrderNo, PrincipalId, SessionId};
use crate::time::UnixMillis;

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
    /// Somebody came or went.
    Presence {
        /// Side and id.
        who: (Side, &'a PrincipalId),
        /// Whether any of its connections is alive.
        online: bool,
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
    user_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    subject: &'a str,
}

impl<'a> SessionEntry<'a> {
    /// `record` as `side` sees it.
    #[must_use]
    pub fn of(record: &'a SessionRecord, side: Side) -> Self {
        let (your_seq, unread) = match side {
            Side::User => (record.user_seq, record.user_unread),
            Side::Agent => (record.agent_seq, record.agent_unread),
        };
        Self {
            session_id: record.id,
            session_no: &record.no,
            epoch: record.top.epoch,
            max_seq: record.top.seq,
            your_seq,
            unread,
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
    content: &'a str,
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
        Self {
            id: message_id(message),
            kind: &message.kind,
            session_id: message.session,
            seq: message.seq,
            epoch: message.epoch,
            content: &message.content,
            sender: Sender { kind: message.side.as_str(), id: message.sender.as_str(), bot: message.bot },
            client_msg_id: message.client_msg_id.as_str(),
            time: message.at.0,
        }
    }
}

impl<'a> Tagged<'a> {
    fn of(frame: &'a ServerFrame<'_>) -> Self {
        match frame {
            ServerFrame::Hello { conn_id, heartbeat, now, bytes_max, page_max, sessions } => Self::Hello {
                v: 1,
                conn_id,
                heartbeat: millis(*heartbeat),
                server_time: now.0,
                limits: Limits { max_bytes: *bytes_max, page: *page_max },
                sessions,
            },
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
            ServerFrame::Presence { who: someone, online } => {
                Self::Presence { who: who(*someone), state: if *online { "online" } else { "offline" } }
            }
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
