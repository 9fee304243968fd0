//! What a server sends, as far as a client of the bench reads it: members it does not name are passed over.

use serde::Deserialize;

/// Any frame; each kind has some of the members.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Frame {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) session_id: String,
    pub(crate) epoch: String,
    pub(crate) seq: u64,
    pub(crate) max_seq: u64,
    pub(crate) client_msg_id: String,
    pub(crate) content: String,
    pub(crate) has_more: bool,
    pub(crate) reason: String,
    pub(crate) code: String,
    pub(crate) temporary: bool,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) after_ms: u64,
    pub(crate) reconnect_ms: Option<u64>,
    pub(crate) sessions: Vec<Entry>,
    pub(crate) session: Option<Entry>,
}

/// A session in `hello` and `assigned`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Entry {
    pub(crate) session_id: String,
    pub(crate) epoch: String,
    pub(crate) max_seq: u64,
    pub(crate) subject: String,
}

impl Frame {
    /// Reads one; `None` for what is no JSON object of this shape.
    pub(crate) fn read(text: &str) -> Option<Self> {
        // A list would do for serde: its members in order.
        text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_not_named_are_passed_over() {
        let hello =
            Frame::read(r#"{"type":"hello","v":1,"sessions":[{"sessionId":"9001","epoch":"1","maxSeq":44,"subject":"x","unread":2}]}"#)
                .unwrap();
        assert_eq!((hello.kind.as_str(), hello.sessions[0].session_id.as_str(), hello.sessions[0].max_seq), ("hello", "9001", 44));
        assert!(Frame::read("[]").is_none());
    }
}
