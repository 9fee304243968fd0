//! Reading what the connection says: the fields of its frames that this dialect acts on. Everything else passes as it is.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::chat::Party;
use crate::chat::frame::NOTICES;
use crate::id::SessionId;

/// A frame of `chat.v1`, as far as it matters here. Members that the frame's kind does not have are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spoken {
    #[serde(rename = "type")]
    pub(super) kind: String,
    session_id: Option<String>,
    pub(super) seq: Option<u64>,
    pub(super) max_seq: Option<u64>,
    epoch: Option<String>,
    pub(super) req_id: Value,
    pub(super) client_msg_id: Option<String>,
    pub(super) code: String,
    pub(super) temporary: bool,
    pub(super) retry_after_ms: u64,
    id: String,
    time: u64,
    sender: Sender,
    pub(super) messages: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sender {
    kind: String,
    id: String,
}

/// A message of a `history` answer.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) seq: u64,
    pub(super) epoch: String,
}

impl Spoken {
    /// Reads a frame; what the connection writes can be read.
    pub(super) fn read(frame: &str) -> Option<Self> {
        serde_json::from_str(frame).ok()
    }

    /// The session it is about; none for the client's notices.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.session_id.as_deref().and_then(|id| SessionId::parse(id).ok())
    }

    pub(super) fn is_of_notices(&self) -> bool {
        self.session_id.as_deref() == Some(NOTICES)
    }

    pub(super) fn epoch(&self) -> Option<u32> {
        self.epoch.as_deref().and_then(|epoch| epoch.parse().ok())
    }

    pub(super) fn is_from(&self, party: &Party) -> bool {
        self.sender.kind == party.side.as_str() && self.sender.id == party.id.as_str()
    }
}

/// The push that other devices get for a message, made from the `accepted` that its sender gets and what it sent.
pub(super) fn push(accepted: &Spoken, sender: &Party, kind: &str, content: &str) -> String {
    let push = json!({
        "id": accepted.id,
        "type": kind,
        "sessionId": accepted.session_id,
        "seq": accepted.seq,
        "epoch": accepted.epoch,
        "content": content,
        "sender": { "kind": sender.side.as_str(), "id": sender.id.as_str() },
        "clientMsgId": accepted.client_msg_id,
        "time": accepted.time,
    });
    push.to_string()
}
