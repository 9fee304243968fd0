//! How a client spells the protocol. Between a wire, which knows text alone, and the connection, which knows `chat.v1` alone.
//!
//! What never happens here: a rule of the chat. A dialect only translates, and what it cannot translate it answers itself.

use gateway_core::chat::code::CloseCode;
use gateway_core::chat::connection::Connection;
use gateway_core::chat::frame::Text;
use gateway_core::chat::stomp::Stomp;
use gateway_core::time::UnixMillis;

use crate::socket::stomp;

/// The spelling of one socket.
#[derive(Debug)]
pub(crate) enum Dialect {
    /// `chat.v1.json`: the connection's own.
    Json,
    /// STOMP 1.0 to 1.2.
    Stomp(Box<Stomp>),
}

impl Dialect {
    /// The client sent `text`.
    pub(crate) fn hear(&mut self, text: &str, connection: &mut Connection, now: UnixMillis) {
        match self {
            Self::Json => connection.handle_text(text, now),
            Self::Stomp(stomp) => stomp::hear(stomp, text, connection, now),
        }
    }

    /// The connection wrote `frame`: what to write for it at once. More may wait in [`Dialect::poll_frame`].
    pub(crate) fn tell(&mut self, frame: Text, connection: &mut Connection, now: UnixMillis) -> Option<Text> {
        match self {
            Self::Json => Some(frame),
            Self::Stomp(stomp) => {
                stomp::tell(stomp, &frame, connection, now);
                None
            }
        }
    }

    /// A frame of the dialect's own that waits for the wire.
    pub(crate) fn poll_frame(&mut self) -> Option<Text> {
        match self {
            Self::Json => None,
            Self::Stomp(stomp) => stomp.poll_write(),
        }
    }

    /// How the conversation has ended; the socket closes once no frame waits.
    pub(crate) fn closes_with(&self) -> Option<CloseCode> {
        match self {
            Self::Json => None,
            Self::Stomp(stomp) => stomp.closes_with(),
        }
    }

    /// Whether the client's next text can be taken now.
    pub(crate) fn listens(&self) -> bool {
        match self {
            Self::Json => true,
            Self::Stomp(stomp) => !stomp.is_full(),
        }
    }

    /// When [`Dialect::wake`] is due next.
    pub(crate) fn poll_timeout(&self) -> Option<UnixMillis> {
        match self {
            Self::Json => None,
            Self::Stomp(stomp) => stomp.poll_timeout(),
        }
    }

    /// Does what is due at `now`.
    pub(crate) fn wake(&mut self, connection: &mut Connection, now: UnixMillis) {
        match self {
            Self::Json => {}
            Self::Stomp(stomp) => stomp::wake(stomp, connection, now),
        }
    }
}
