//! Addresses: what a client may listen to, and where it may speak.
//!
//! What never happens here: asking whether it may. Ids are read as strictly as everywhere else.

use crate::id::SessionId;

/// What a SUBSCRIBE names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listen {
    /// `/topic/chat/{sessionId}`: the messages of a session.
    Topic(SessionId),
    /// `/user/queue/notify`: everything that is no message of a session.
    Notify,
    /// `/user/queue/opened`: answers to `/app/open`.
    Opened,
}

impl Listen {
    pub(super) fn parse(destination: &str) -> Option<Self> {
        match destination {
            "/user/queue/notify" => Some(Self::Notify),
            "/user/queue/opened" => Some(Self::Opened),
            _ => session(destination, "/topic/chat/").map(Self::Topic),
        }
    }
}

/// What a SEND names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speak {
    /// `/app/chat/{sessionId}`: a message.
    Chat(SessionId),
    /// `/app/typing/{sessionId}`: the client is writing.
    Typing(SessionId),
    /// `/app/open`: a session is wanted.
    Open,
    /// `/app/refresh`: a new token.
    Refresh,
}

impl Speak {
    pub(super) fn parse(destination: &str) -> Option<Self> {
        match destination {
            "/app/open" => Some(Self::Open),
            "/app/refresh" => Some(Self::Refresh),
            _ => session(destination, "/app/chat/").map(Self::Chat).or_else(|| session(destination, "/app/typing/").map(Self::Typing)),
        }
    }
}

fn session(destination: &str, prefix: &str) -> Option<SessionId> {
    destination.strip_prefix(prefix).and_then(|id| SessionId::parse(id).ok())
}
