//! JSON shapes of events and queued sends: short member names, ids as text, both directions from one definition.
//!
//! What never happens here: meaning. Only `event` calls this.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use super::{Event, QueuedSend};
use crate::chat::code::ErrorCode;
use crate::chat::sla::Clock;
use crate::chat::{AgentState, Clocks, Fingerprint, MessageRecord, Party, Position, Send, SessionRecord, Side};
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
        shop: u64,
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
        #[serde(borrow)]
        state: Text<'a>,
    },
    Received {
        s: u64,
        #[serde(borrow)]
        by: Text<'a>,
        #[serde(borrow)]
        id: Text<'a>,
        seq: u64,
    },
    Closed {
        s: u64,
        #[serde(borrow)]
        by: Text<'a>,
        #[serde(borrow)]
        id: Text<'a>,
    },
    Waiting {
        count: u64,
    },
    Overdue {
        s: u64,
        #[serde(borrow)]
        clock: Text<'a>,
        ms: u64,
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
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
    #[serde(default)]
    ur: u64,
    #[serde(default)]
    ar: u64,
    /// Opened, waiting, asked, answered, closed.
    #[serde(default)]
    clocks: (u64, Option<u64>, Option<u64>, Option<u64>, Option<u64>),
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
    /// SHA-256 in hexadecimal; absent in what an older version queued.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    hash: Option<Text<'a>>,
    #[serde(borrow)]
    origin: Text<'a>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    bot: bool,
    at: u64,
}

pub(super) fn encode_event(event: &Event) -> Bytes {
    to_bytes(&match event {
        Event::Stored { message, dup, origin, shop, user, agent } => EventShape::Stored {
            m: message_shape(message),
            dup: *dup,
            origin: origin.as_str().into(),
            shop: shop.0,
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
        Event::Presence { side, id, state } => {
            EventShape::Presence { side: side.as_str().into(), id: id.as_str().into(), state: state.as_str().into() }
        }
        Event::Received { session, by, reader, seq } => {
            EventShape::Received { s: session.0, by: by.as_str().into(), id: reader.as_str().into(), seq: *seq }
        }
        Event::Closed { session, by, closer } => EventShape::Closed { s: session.0, by: by.as_str().into(), id: closer.as_str().into() },
        Event::Waiting { count } => EventShape::Waiting { count: *count },
        Event::Overdue { session, clock, shows } => {
            EventShape::Overdue { s: session.0, clock: clock.as_str().into(), ms: u64::try_from(shows.as_millis()).unwrap_or(u64::MAX) }
        }
    })
}

pub(super) fn decode_event(payload: &[u8]) -> Result<Event, String> {
    Ok(match serde_json::from_slice(payload).map_err(shape)? {
        EventShape::Stored { m, dup, origin, shop, user, agent } => Event::Stored {
            message: message(m)?,
            dup,
            origin: origin.into_owned(),
            shop: ShopId(shop),
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
        EventShape::Presence { side: of, id, state } => {
            let state = AgentState::parse(&state).ok_or("unknown state of an agent")?;
            Event::Presence { side: side(&of)?, id: principal(&id)?, state }
        }
        EventShape::Received { s, by, id, seq } => Event::Received { session: SessionId(s), by: side(&by)?, reader: principal(&id)?, seq },
        EventShape::Closed { s, by, id } => Event::Closed { session: SessionId(s), by: side(&by)?, closer: principal(&id)? },
        EventShape::Waiting { count } => Event::Waiting { count },
        EventShape::Overdue { s, clock, ms } => {
            let clock = Clock::parse(&clock).ok_or("unknown clock")?;
            Event::Overdue { session: SessionId(s), clock, shows: Duration::from_millis(ms) }
        }
    })
}

pub(super) fn encode_message(message: &MessageRecord) -> Bytes {
    to_bytes(&message_shape(message))
}

pub(super) fn decode_message(payload: &[u8]) -> Result<MessageRecord, String> {
    message(serde_json::from_slice(payload).map_err(shape)?)
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
        hash: Some(HEXLOWER.encode(&send.fingerprint.0).into()),
        origin: send.origin.as_str().into(),
        bot: send.bot,
        at: queued.queued_at.0,
    })
}

pub(super) fn decode_send(payload: &[u8]) -> Result<QueuedSend, String> {
    let s: SendShape<'_> = serde_json::from_slice(payload).map_err(shape)?;
    let fingerprint = match s.hash.as_deref() {
        None => Fingerprint::of(&s.kind, &s.content),
        Some(hash) => HEXLOWER
            .decode(hash.as_bytes())
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .map(Fingerprint)
            .ok_or("a fingerprint is 64 hexadecimal digits")?,
    };
    Ok(QueuedSend {
        send: Send {
            session: SessionId(s.s),
            sender: Party { side: side(&s.side)?, id: principal(&s.from)?, shop: s.shop.map(ShopId) },
            client_msg_id: client_msg_id(&s.cid)?,
            kind: s.kind.into_owned(),
            content: s.content.into_owned(),
            fingerprint,
            origin: s.origin.into_owned(),
            bot: s.bot,
        },
        queued_at: UnixMillis(s.at),
    })
}

fn message_shape(message: &MessageRecord) -> MessageShape<'_> {
    MessageShape {
        s: message.session.0,
        e: message.epoch,
        n: message.seq,
        side: message.side.as_str().into(),
        from: message.sender.as_str().into(),
        cid: message.client_msg_id.as_str().into(),
        kind: message.kind.as_str().into(),
        content: message.content.as_str().into(),
        bot: message.bot,
        gone: message.recalled,
        at: message.at.0,
    }
}

fn message(m: MessageShape<'_>) -> Result<MessageRecord, String> {
    Ok(MessageRecord {
        session: SessionId(m.s),
        epoch: m.e,
        seq: m.n,
        side: side(&m.side)?,
        sender: principal(&m.from)?,
        client_msg_id: client_msg_id(&m.cid)?,
        kind: m.kind.into_owned(),
        content: m.content.into_owned(),
        recalled: m.gone,
        bot: m.bot,
        at: UnixMillis(m.at),
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
        ur: record.user_received,
        ar: record.agent_received,
        clocks: {
            let Clocks { opened_at, waiting_since, asked_at, answered_at, closed_at } = record.clocks;
            let ms = |at: Option<UnixMillis>| at.map(|at| at.0);
            (opened_at.0, ms(waiting_since), ms(asked_at), ms(answered_at), ms(closed_at))
        },
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
        user_received: s.ur,
        agent_received: s.ar,
        clocks: {
            let (opened_at, waiting_since, asked_at, answered_at, closed_at) = s.clocks;
            let at = |ms: Option<u64>| ms.map(UnixMillis);
            Clocks {
                opened_at: UnixMillis(opened_at),
                waiting_since: at(waiting_since),
                asked_at: at(asked_at),
                answered_at: at(answered_at),
                closed_at: at(closed_at),
            }
        },
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
