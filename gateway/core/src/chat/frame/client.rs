//! What clients send: text in, a typed frame or the error frame to answer with out.
//!
//! What never happens here: changing content (it stays as it came, character by character), believing a signature, or asking
//! whether the sender may do what it asks. Called by the socket shell, the STOMP mapping and the HTTP fallback.

use data_encoding::BASE64URL_NOPAD;
use serde_json::Value;

use super::fields::{Fields, Wrong};
use super::{ErrorFrame, FrameLimits, NOTICES, ReqId};
use crate::chat::AgentState;
use crate::chat::code::ErrorCode;
use crate::id::{ClientMsgId, DeviceId, PrincipalId, SessionId, ShopId};
use crate::time::UnixMillis;

/// Longest subject of a session, in characters: the width of its column.
const SUBJECT_CHARS_MAX: usize = 128;

/// Open sessions an agent may want at most: what the deployment may allow.
const OPEN_MAX: u32 = 1_000;

/// Longest token in a `refresh`, in bytes: what fits a request header.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Messages of a `history` answer when the client names no limit.
const HISTORY_LIMIT_DEFAULT: u32 = 50;

/// A frame from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFrame {
    /// Echoed in whatever answers the frame.
    pub req_id: Option<ReqId>,
    /// When the client says it sent the frame.
    pub timestamp: Option<UnixMillis>,
    /// A value the client uses once; together with `timestamp` it may be demanded against verbatim replays.
    pub nonce: Option<String>,
    /// What it asks for.
    pub body: ClientBody,
}

/// What a frame asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientBody {
    /// Store a message.
    Message {
        /// Its kind.
        kind: MessageKind,
        /// Where to.
        session: SessionId,
        /// The content, exactly as sent.
        content: String,
        /// The sender's id for it; old clients send none.
        client_msg_id: Option<ClientMsgId>,
    },
    /// Everything up to `seq` was read.
    Ack {
        /// The session.
        session: SessionId,
        /// Inclusive.
        seq: u64,
    },
    /// Everything up to `seq` arrived on the device.
    Recv {
        /// The session.
        session: SessionId,
        /// Inclusive.
        seq: u64,
    },
    /// Send what came after these positions.
    Resume {
        /// Together with `notices` at most [`FrameLimits::positions_max`].
        positions: Vec<ResumePosition>,
        /// The highest number it has of the party's notices, 0 for none; `None`: it does not ask for them.
        notices: Option<u64>,
        /// The device it speaks for from now on; `None`: as before.
        device: Option<DeviceId>,
    },
    /// Send older messages.
    History {
        /// The session.
        session: SessionId,
        /// Exclusive upper bound; the newest messages when absent.
        before: Option<u64>,
        /// 1 to [`FrameLimits::page_max`].
        limit: u32,
    },
    /// Open a session, or find the open one.
    Open {
        /// What it is about.
        subject: String,
        /// Which shop; the node's default when absent.
        shop: Option<ShopId>,
    },
    /// Go on with a new token.
    Refresh {
        /// The token.
        token: String,
    },
    /// The sender is writing.
    Typing {
        /// Where.
        session: SessionId,
    },
    /// Answer with `pong`.
    Ping,
    /// End a session.
    Close {
        /// Which.
        session: SessionId,
    },
    /// Hand a session over, or take one.
    Transfer {
        /// Which.
        session: SessionId,
        /// Whom to; `None`: the waiting line.
        to: Option<PrincipalId>,
    },
    /// What an agent says of itself.
    Status {
        /// How it is.
        state: AgentState,
        /// Open sessions it wants at most, 1 to 1,000; `None`: as before.
        open_max: Option<u32>,
    },
    /// Take a message back.
    Recall {
        /// Where.
        session: SessionId,
        /// The message.
        seq: u64,
        /// The sender's id for the recall.
        client_msg_id: Option<ClientMsgId>,
    },
    /// Another frame, and the proof that the client wrote it.
    Signed {
        /// HMAC-SHA-256 of `body` under the connection's key, as far as it could be read; anything else proves nothing.
        mac: Vec<u8>,
        /// The text of a frame.
        body: String,
    },
}

/// Kinds of messages a client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// Plain text.
    Text,
    /// Address of a picture.
    Image,
    /// A card that shows an order.
    OrderCard,
    /// A card that shows a product.
    ProductCard,
}

impl MessageKind {
    /// Wire spelling, and the kind stored with the message.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::OrderCard => "order_card",
            Self::ProductCard => "product_card",
        }
    }

    /// Reads the wire spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Text, Self::Image, Self::OrderCard, Self::ProductCard].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Where a client stands in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumePosition {
    /// The session.
    pub session: SessionId,
    /// The epoch the client saw last.
    pub epoch: EpochClaim,
    /// The highest seq it has, 0 for none.
    pub last_seq: u64,
}

/// The epoch a client believes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochClaim {
    /// It did not say, as older clients do not.
    Absent,
    /// This one.
    Is(u32),
    /// A string that is none of ours.
    Foreign,
}

/// A frame that cannot be carried out, and the answer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameError(pub Box<ErrorFrame>);

impl ClientFrame {
    /// Reads one text frame. Unknown members are ignored.
    pub fn parse(text: &str, limits: &FrameLimits) -> Result<Self, FrameError> {
        if text.len() > limits.bytes_max {
            return Err(FrameError(Box::new(ErrorFrame::of(ErrorCode::TooLarge))));
        }
        let Ok(Value::Object(members)) = serde_json::from_str::<Value>(text) else {
            return Err(FrameError(Box::new(ErrorFrame::of(ErrorCode::BadJson))));
        };
        let fields = Fields::new(members);
        // The answer names the request and the message wherever they could be read, so that the client knows which failed.
        let req_id = fields.req_id();
        let client_msg_id = fields.client_msg_id();
        parse_body(&fields, limits)
            .and_then(|body| Ok(Self { req_id: req_id.clone()?, timestamp: fields.timestamp()?, nonce: fields.nonce()?, body }))
            .map_err(|fault| {
                let named = ErrorFrame {
                    req_id: req_id.unwrap_or(None),
                    client_msg_id: client_msg_id.unwrap_or(None),
                    ..ErrorFrame::of(fault.code)
                };
                FrameError(Box::new(match fault.message {
                    Some(message) => ErrorFrame { message: message.into(), ..named },
                    None => named,
                }))
            })
    }
}

/// What is wrong with a frame, before it is known whom to tell.
struct Fault {
    code: ErrorCode,
    message: Option<String>,
}

impl From<Wrong> for Fault {
    fn from(message: Wrong) -> Self {
        Self { code: ErrorCode::BadRequest, message: Some(message) }
    }
}

fn parse_body(fields: &Fields, limits: &FrameLimits) -> Result<ClientBody, Fault> {
    let kind = fields.text("type")?;
    if let Some(kind) = MessageKind::parse(kind) {
        return message(fields, kind);
    }
    match kind {
        "ack" => Ok(ClientBody::Ack { session: fields.session()?, seq: fields.seq("lastSeq", 0)? }),
        "recv" => Ok(ClientBody::Recv { session: fields.session()?, seq: fields.seq("lastSeq", 0)? }),
        "resume" => resume(fields, limits),
        "history" => Ok(ClientBody::History {
            session: fields.session()?,
            before: fields.optional_seq("beforeSeq", 1)?,
            limit: fields.optional_count("limit", limits.page_max)?.unwrap_or(HISTORY_LIMIT_DEFAULT.min(limits.page_max)),
        }),
        "open" => open(fields),
        "refresh" => Ok(ClientBody::Refresh { token: bounded(fields.text("token")?, "token", TOKEN_BYTES_MAX)? }),
        "typing" => Ok(ClientBody::Typing { session: fields.session()? }),
        "ping" => Ok(ClientBody::Ping),
        "close" => Ok(ClientBody::Close { session: fields.session()? }),
        "transfer" => Ok(ClientBody::Transfer { session: fields.session()?, to: transfer_target(fields.text("to")?)? }),
        "status" => status(fields),
        "recall" => {
            Ok(ClientBody::Recall { session: fields.session()?, seq: fields.seq("seq", 1)?, client_msg_id: fields.client_msg_id()? })
        }
        "signed" => Ok(ClientBody::Signed { mac: mac(fields.text("mac")?)?, body: fields.text("body")?.to_owned() }),
        _ => Err(Fault { code: ErrorCode::UnknownType, message: None }),
    }
}

fn message(fields: &Fields, kind: MessageKind) -> Result<ClientBody, Fault> {
    let session = fields.session()?;
    let client_msg_id = fields.client_msg_id()?;
    let content = fields.text("content")?;
    if content.chars().all(is_invisible) {
        return Err(Fault { code: ErrorCode::EmptyContent, message: None });
    }
    Ok(ClientBody::Message { kind, session, content: content.to_owned(), client_msg_id })
}

/// Characters of which a message may not consist alone: Unicode white space, controls, and the code points that have no
/// width of their own. Inside visible text they are kept: U+200D joins the family emoji.
fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

fn resume(fields: &Fields, limits: &FrameLimits) -> Result<ClientBody, Fault> {
    let list = fields.list("positions")?;
    if list.len() > limits.positions_max {
        return Err(format!("positions may hold at most {}", limits.positions_max).into());
    }
    let mut positions = Vec::with_capacity(list.len());
    let mut notices = None;
    for entry in list {
        let Value::Object(members) = entry else {
            return Err("each of positions must be an object".to_owned().into());
        };
        let entry = Fields::new(members.clone());
        if entry.optional_text("sessionId").is_ok_and(|name| name == Some(NOTICES)) {
            notices = Some(entry.seq("lastSeq", 0)?);
            continue;
        }
        positions.push(ResumePosition { session: entry.session()?, epoch: entry.epoch()?, last_seq: entry.seq("lastSeq", 0)? });
    }
    let device = fields.optional_text("deviceId")?.map(device).transpose()?;
    Ok(ClientBody::Resume { positions, notices, device })
}

fn device(text: &str) -> Result<DeviceId, Wrong> {
    DeviceId::parse(text).map_err(|_| "deviceId must be 1 to 64 of A-Z, a-z, 0-9 and _.:-".to_owned())
}

fn open(fields: &Fields) -> Result<ClientBody, Fault> {
    let subject = fields.optional_text("subject")?.unwrap_or_default();
    if subject.chars().count() > SUBJECT_CHARS_MAX {
        return Err(format!("subject may have at most {SUBJECT_CHARS_MAX} characters").into());
    }
    Ok(ClientBody::Open { subject: subject.to_owned(), shop: fields.optional_shop()? })
}

/// `agent:<id>`, or `waiting` for the line.
fn transfer_target(text: &str) -> Result<Option<PrincipalId>, Wrong> {
    let agent = || text.strip_prefix("agent:").and_then(|id| PrincipalId::parse(id).ok()).map(Some);
    if text == "waiting" { Ok(None) } else { agent().ok_or_else(|| "to must be agent:ID or waiting".to_owned()) }
}

fn status(fields: &Fields) -> Result<ClientBody, Fault> {
    let state = AgentState::parse(fields.text("state")?).ok_or_else(|| "state must be online, busy, away or offline".to_owned())?;
    Ok(ClientBody::Status { state, open_max: fields.optional_count("limit", OPEN_MAX)? })
}

fn mac(text: &str) -> Result<Vec<u8>, Wrong> {
    BASE64URL_NOPAD.decode(text.trim_end_matches('=').as_bytes()).map_err(|_| "mac must be base64url".to_owned())
}

fn bounded(text: &str, name: &str, bytes_max: usize) -> Result<String, Wrong> {
    if (1..=bytes_max).contains(&text.len()) { Ok(text.to_owned()) } else { Err(format!("{name} must have 1 to {bytes_max} bytes")) }
}
