//! JSON shapes of events and queued sends: short member names, ids as text, both directions from one definition.
//!
//! What never happens here: meaning. Only `event` calls this.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Event, QueuedSend};
use crate::chat::code::ErrorCode;
use crate::chat::{MessageRecord, Party, Position, Send, SessionRecord, Side};
use crate::id::{ClientMsgId, InvalidId, OrderNo, PrincipalId, SessionId, ShopId};
use crate::time::UnixMillis;

type Text<'a> = Cow<'a, str>;

#[derive(Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
enum EventShape<'a> {
    Stored {
        #[serde(borrow)]
        m: MessageShape<'a>,
        dup: bool,
        #[serde(borrow)]
        origin: Text<'a>,
        #[serde(borrow)]
        user: Text<'a>,
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        agent: Option<Text<'a>>,
    },
    Refused {
        #[serde(borrow)]
        cid: Text<'a>,
        s: u64,
        #[serde(borrow)]
        origin: Text<'a>,
        #[serde(borrow)]
        code: Text<'a>,
    },
    Assigned {
        #[serde(borrow)]
        s: SessionShape<'a>,
        #[serde(borrow)]
        reason: Text<'a>,
    },
    Read {
        s: u64,
        #[serde(borrow)]
        by: Text<'a>,
        #[serde(borrow)]
        id: Text<'a>,
        seq: u64,
        unread: u64,
    },
    SaleResult {
        #[serde(borrow)]
        no: Text<'a>,
        ok: bool,
        #[serde(borrow, default)]
        msg: Text<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nseq: Option<u64>,
    },
    Typing {
        s: u64,
        #[serde(borrow)]
        by: Text<'a>,
        #[serde(borrow)]
        id: Text<'a>,
    },
    Presence {
        #[serde(borrow)]
        side: Text<'a>,
        #[serde(borrow)]
        id: Text<'a>,
        online: bool,
    },
}

#[derive(Serialize, Deserialize)]
struct MessageShape<'a> {
    s: u64,
    e: u32,
    n: u64,
    #[serde(borrow)]
    side: Text<'a>,
    #[serde(borrow)]
    from: Text<'a>,
    #[serde(borrow)]
    cid: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    content: Text<'a>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    bot: bool,
    at: u64,
}

#[derive(Serialize, Deserialize)]
struct SessionShape<'a> {
    id: u64,
    #[serde(borrow)]
    no: Text<'a>,
    shop: u64,
    #[serde(borrow)]
    user: Text<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    agent: Option<Text<'a>>,
    #[serde(borrow)]
    subject: Text<'a>,
    open: bool,
    e: u32,
    n: u64,
    us: u64,
    r#as: u64,
    uu: u64,
    au: u64,
}

#[derive(Serialize, Deserialize)]
struct SendShape<'a> {
    s: u64,
    #[serde(borrow)]
    side: Text<'a>,
    #[serde(borrow)]
    from: Text<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shop: Option<u64>,
    #[serde(borrow)]
    cid: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    content: Text<'a>,
    #[serde(borrow)]
    origin: Text<'a>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    bot: bool,
    at: u64,
}

pub(super) fn encode_event(event: &Event) -> Bytes {
    to_bytes(&match event {
        Event::Stored { message, dup, origin, user, agent } => EventShape::Stored {
            m: MessageShape {
                s: message.session.0,
                e: message.epoch,
                n: message.seq,
                side: message.side.as_str().into(),
                from: message.sender.as_str().into(),
                cid: message.client_msg_id.as_str().into(),
                kind: message.kind.as_str().into(),
                content: message.content.as_str().into(),
                bot: message.bot,
                at: message.at.0,
            },
            dup: *dup,
            origin: origin.as_str().into(),
            user: user.as_str().into(),
            agent: agent.as_ref().map(|agent| agent.as_str().into()),
        },
        Event::Refused { client_msg_id, session, origin, code } => EventShape::Refused {
            cid: client_msg_id.as_str().into(),
            s: session.0,
            origin: origin.as_str().into(),
            code: code.as_str().into(),
        },
        Event::Assigned { session, reason } => EventShape::Assigned { s: session_shape(session), reason: reason.as_str().into() },
        Event::Read { session, by, reader, seq, unread } => {
            EventShape::Read { s: session.0, by: by.as_str().into(), id: reader.as_str().into(), seq: *seq, unread: *unread }
        }
        Event::SaleResult { order_no, success, message, nseq } => {
            EventShape::SaleResult { no: order_no.as_str().into(), ok: *success, msg: message.as_str().into(), nseq: *nseq }
        }
        Event::Typing { session, by, writer } => EventShape::Typing { s: session.0, by: by.as_str().into(), id: writer.as_str().into() },
        Event::Presence { side, id, online } => {
            EventShape::Presence { side: side.as_str().into(), id: id.as_str().into(), online: *online }
        }
    })
}

pub(super) fn decode_event(payload: &[u8]) -> Result<Event, String> {
    Ok(match serde_json::from_slice(payload).map_err(shape)? {
        EventShape::Stored { m, dup, origin, user, agent } => Event::Stored {
            message: MessageRecord {
                session: SessionId(m.s),
                epoch: m.e,
                seq: m.n,
                side: side(&m.side)?,
                sender: principal(&m.from)?,
                client_msg_id: client_msg_id(&m.cid)?,
                kind: m.kind.into_owned(),
                content: m.content.into_owned(),
                bot: m.bot,
                at: UnixMillis(m.at),
            },
            dup,
            origin: origin.into_owned(),
            user: principal(&user)?,
            agent: agent.as_deref().map(principal).transpose()?,
        },
        EventShape::Refused { cid, s, origin, code } => Event::Refused {
            client_msg_id: client_msg_id(&cid)?,
            session: SessionId(s),
            origin: origin.into_owned(),
            code: ErrorCode::parse(&code).ok_or("unknown error code")?,
        },
        EventShape::Assigned { s, reason } => Event::Assigned { session: session(s)?, reason: reason.into_owned() },
        EventShape::Read { s, by, id, seq, unread } => {
            Event::Read { session: SessionId(s), by: side(&by)?, reader: principal(&id)?, seq, unread }
        }
        EventShape::SaleResult { no, ok, msg, nseq } => {
            Event::SaleResult { order_no: OrderNo::parse(&no).map_err(id_fault)?, success: ok, message: msg.into_owned(), nseq }
        }
        EventShape::Typing { s, by, id } => Event::Typing { session: SessionId(s), by: side(&by)?, writer: principal(&id)? },
        EventShape::Presence { side: of, id, online } => Event::Presence { side: side(&of)?, id: principal(&id)?, online },
    })
}

pub(super) fn encode_send(queued: &QueuedSend) -> Bytes {
    let send = &queued.send;
    to_bytes(&SendShape {
        s: send.session.0,
        side: send.sender.side.as_str().into(),
        from: send.sender.id.as_str().into(),
        shop: send.sender.shop.map(|shop| shop.0),
        cid: send.client_msg_id.as_str().into(),
        kind: send.kind.as_str().into(),
        content: send.content.as_str().into(),
        origin: send.origin.as_str().into(),
        bot: send.bot,
        at: queued.queued_at.0,
    })
}

pub(super) fn decode_send(payload: &[u8]) -> Result<QueuedSend, String> {
    let s: SendShape<'_> = serde_json::from_slice(payload).map_err(shape)?;
    Ok(QueuedSend {
        send: Send {
            session: SessionId(s.s),
            sender: Party { side: side(&s.side)?, id: principal(&s.from)?, shop: s.shop.map(ShopId) },
            client_msg_id: client_msg_id(&s.cid)?,
            kind: s.kind.into_owned(),
            content: s.content.into_owned(),
            origin: s.origin.into_owned(),
            bot: s.bot,
        },
        queued_at: UnixMillis(s.at),
    })
}

fn session_shape(record: &SessionRecord) -> SessionShape<'_> {
    SessionShape {
        id: record.id.0,
        no: record.no.as_str().into(),
        shop: record.shop.0,
        user: record.user.as_str().into(),
        agent: record.agent.as_ref().map(|agent| agent.as_str().into()),
        subject: record.subject.as_str().into(),
        open: record.open,
        e: record.top.epoch,
        n: record.top.seq,
        us: record.user_seq,
        r#as: record.agent_seq,
        uu: record.user_unread,
        au: record.agent_unread,
    }
}

fn session(s: SessionShape<'_>) -> Result<SessionRecord, String> {
    Ok(SessionRecord {
        id: SessionId(s.id),
        no: s.no.into_owned(),
        shop: ShopId(s.shop),
        user: principal(&s.user)?,
        agent: s.agent.as_deref().map(principal).transpose()?,
        subject: s.subject.into_owned(),
        open: s.open,
        top: Position { epoch: s.e, seq: s.n },
        user_seq: s.us,
        agent_seq: s.r#as,
        user_unread: s.uu,
        agent_unread: s.au,
    })
}

fn side(text: &str) -> Result<Side, String> {
    Side::parse(text).ok_or_else(|| "unknown side".to_owned())
}

fn principal(text: &str) -> Result<PrincipalId, String> {
    PrincipalId::parse(text).map_err(id_fault)
}

fn client_msg_id(text: &str) -> Result<ClientMsgId, String> {
    ClientMsgId::parse(text).map_err(id_fault)
}

#[allow(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn id_fault(fault: InvalidId) -> String {
    fault.to_string()
}

/// Says where the shape is wrong without quoting the content.
#[allow(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn shape(fault: serde_json::Error) -> String {
    format!("{:?} error at byte {}", fault.classify(), fault.column())
}

/// These shapes hold strings, integers and booleans only, so encoding them cannot fail.
fn to_bytes<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}
