//! STOMP 1.0, 1.1 and 1.2 over the chat: a dialect for clients that were written for a message broker.
//!
//! `frame` holds the nouns and writes frames, `decoder` reads them out of text messages, `session` stands between a client
//! that speaks STOMP and a [`super::connection::Connection`], which goes on speaking `chat.v1`. What never happens here:
//! I/O, waiting, reading a clock; or a rule of the chat, for every request passes the connection. The socket shell calls it.

mod decoder;
mod frame;
mod session;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, FrameFault, StompLimits};
pub use frame::{Command, Frame};
pub use session::{Nacked, Stomp};

/// A version of the protocol. The subprotocol of a WebSocket only says that STOMP is spoken; the version is the highest that
/// `accept-version` of the first frame shares with this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// No escapes, no heart-beats, no NACK.
    V10,
    /// Escapes `\n`, `\c` and `\\`.
    V11,
    /// Also `\r`, and lines that may end with CR LF.
    V12,
}

impl Version {
    /// Every version, best first.
    pub const ALL: [Self; 3] = [Self::V12, Self::V11, Self::V10];

    /// Its spelling in `accept-version` and `version`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V10 => "1.0",
            Self::V11 => "1.1",
            Self::V12 => "1.2",
        }
    }

    /// The name of the WebSocket subprotocol.
    #[must_use]
    pub fn subprotocol(self) -> &'static str {
        match self {
            Self::V10 => "v10.stomp",
            Self::V11 => "v11.stomp",
            Self::V12 => "v12.stomp",
        }
    }

    /// The highest version in an `accept-version` list. Clients of 1.0 send no list.
    #[must_use]
    pub fn negotiate(accept_version: Option<&str>) -> Option<Self> {
        let Some(list) = accept_version else { return Some(Self::V10) };
        Self::ALL.into_iter().find(|version| list.split(',').any(|offered| offered.trim() == version.as_str()))
    }
}
