//! Frames of `chat.v1`: one JSON object per WebSocket text message, in both directions.
//!
//! `client` reads what clients send, `server` writes what they get, `fields` reads single fields. Nothing here knows a
//! connection or decides what follows from a frame. `docs/PROTOCOL.md` shows every frame; tests keep the two together.

mod client;
mod fields;
mod server;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde::Serialize;

pub use client::{ClientBody, ClientFrame, EpochClaim, FrameError, MessageKind, ResumePosition};
pub use server::{ErrorFrame, ServerFrame, SessionEntry, message_frame};

/// Sequence numbers stay below this, the first integer that JavaScript cannot tell from its neighbour.
pub const SEQ_END: u64 = 1 << 53;

/// Names the party's stream of notices where a frame names a session.
pub const NOTICES: &str = "@me";

/// What a frame may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// Bytes of one frame. The WebSocket layer enforces the same number with close 1009.
    pub bytes_max: usize,
    /// Positions in one `resume`.
    pub positions_max: usize,
    /// Messages in one page of `history` and of a replay; the ledger serves at most 200.
    pub page_max: u32,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { bytes_max: 64 * 1024, positions_max: 100, page_max: 200 }
    }
}

/// A client's name for a request, echoed as it came. At most 64 bytes as text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum ReqId {
    /// A JSON string.
    Text(String),
    /// A JSON integer.
    Number(u64),
}

/// A frame as text. Copies share the bytes, so that one frame can wait for many sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(Bytes);

impl Text {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Made from a `String` alone, so this never is the default.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty; no frame is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its bytes: UTF-8.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}
