//! Error codes of the `error` frame and close codes of the WebSocket, each with its verdict and when it is given.
//!
//! What never happens here: deciding that something went wrong. Called by everything that writes a frame or closes a
//! socket; `docs/PROTOCOL.md` repeats these tables for clients, and a test compares the two.

/// Why a frame was not carried out. The connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorCode {
    /// A store did not answer in time; nothing is known to have changed.
    Internal,
    /// The message is not committed. Send it again with the same `clientMsgId`, before any later one.
    NotDurable,
    /// Too much at once; `retryAfterMs` says when to try again.
    RateLimited,
    /// The class of traffic is put off while the backlog is long.
    Degraded,
    /// Too many reads are running for this connection.
    BusyReplay,
    /// Not one JSON object.
    BadJson,
    /// A field is missing, of the wrong type or out of its range.
    BadRequest,
    /// The `type` is not one this server carries out.
    UnknownType,
    /// Nothing visible in `content`.
    EmptyContent,
    /// The frame is longer than allowed.
    TooLarge,
    /// No such session, or not this party's: the answer is the same.
    NotFound,
    /// The session takes no more messages.
    SessionClosed,
    /// The `clientMsgId` was used for other content; nothing was stored.
    ClientMsgIdConflict,
    /// The acknowledged seq is above the session's highest.
    AckOutOfRange,
    /// `last_ack_seq` without `sessionId` while there is not exactly one open session.
    ResumeAmbiguous,
    /// The nonce was seen before.
    ReplayedNonce,
    /// The timestamp is too far from the server's.
    StaleTimestamp,
    /// The new token is not valid; the old one goes on until it ends.
    TokenExpired,
    /// This role may not do that, it is too late for it, or a signature does not fit.
    Forbidden,
    /// The ledger cannot take the message, whatever is tried; it waits for an operator.
    SetAside,
}

impl ErrorCode {
    /// Every code, in the order of `docs/PROTOCOL.md`.
    pub const ALL: [Self; 20] = [
        Self::Internal,
        Self::NotDurable,
        Self::RateLimited,
        Self::Degraded,
        Self::BusyReplay,
        Self::BadJson,
        Self::BadRequest,
        Self::UnknownType,
        Self::EmptyContent,
        Self::TooLarge,
        Self::NotFound,
        Self::SessionClosed,
        Self::ClientMsgIdConflict,
        Self::AckOutOfRange,
        Self::ResumeAmbiguous,
        Self::ReplayedNonce,
        Self::StaleTimestamp,
        Self::TokenExpired,
        Self::Forbidden,
        Self::SetAside,
    ];

    /// Wire spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "INTERNAL",
            Self::NotDurable => "NOT_DURABLE",
            Self::RateLimited => "RATE_LIMITED",
            Self::Degraded => "DEGRADED",
            Self::BusyReplay => "BUSY_REPLAY",
            Self::BadJson => "BAD_JSON",
            Self::BadRequest => "BAD_REQUEST",
            Self::UnknownType => "UNKNOWN_TYPE",
            Self::EmptyContent => "EMPTY_CONTENT",
            Self::TooLarge => "TOO_LARGE",
            Self::NotFound => "NOT_FOUND",
            Self::SessionClosed => "SESSION_CLOSED",
            Self::ClientMsgIdConflict => "CLIENT_MSG_ID_CONFLICT",
            Self::AckOutOfRange => "ACK_OUT_OF_RANGE",
            Self::ResumeAmbiguous => "RESUME_AMBIGUOUS",
            Self::ReplayedNonce => "REPLAYED_NONCE",
            Self::StaleTimestamp => "STALE_TIMESTAMP",
            Self::TokenExpired => "TOKEN_EXPIRED",
            Self::Forbidden => "FORBIDDEN",
            Self::SetAside => "SET_ASIDE",
        }
    }

    /// Reads the wire spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// Whether the same frame may succeed later.
    #[must_use]
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Internal | Self::NotDurable | Self::RateLimited | Self::Degraded | Self::BusyReplay)
    }

    /// The sentence for the client where nothing more precise is known.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Internal => "the request could not be carried out now, try again",
            Self::NotDurable => "the message is not stored, send it again with the same clientMsgId",
            Self::RateLimited => "too many requests, slow down",
            Self::Degraded => "put off while the backlog is long",
            Self::BusyReplay => "too many reads are running on this connection",
            Self::BadJson => "the frame is not one JSON object",
            Self::BadRequest => "a field is missing or not valid",
            Self::UnknownType => "unknown frame type",
            Self::EmptyContent => "the message has no visible content",
            Self::TooLarge => "the frame is too large",
            Self::NotFound => "no such session",
            Self::SessionClosed => "the session is closed",
            Self::ClientMsgIdConflict => "this clientMsgId was used for another message",
            Self::AckOutOfRange => "the seq is above the highest message",
            Self::ResumeAmbiguous => "last_ack_seq needs a sessionId here, send a resume frame",
            Self::ReplayedNonce => "this nonce was used before",
            Self::StaleTimestamp => "the timestamp is too far from the server's clock",
            Self::TokenExpired => "the token is not valid",
            Self::Forbidden => "not allowed",
            Self::SetAside => "the message could not be stored; the shop looks at it",
        }
    }
}

/// What a client should do after a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseVerdict {
    /// Connect again with back-off and jitter, and resume.
    Reconnect,
    /// Do not connect again with the same token and the same behaviour.
    DoNotReconnect,
}

/// Why a socket was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseCode {
    /// The client said goodbye.
    Normal,
    /// The node is stopping.
    GoingAway,
    /// The WebSocket framing broke RFC 6455.
    Protocol,
    /// A binary frame; this protocol is text.
    Unsupported,
    /// Text that is not UTF-8.
    InvalidText,
    /// A message above 64 KiB.
    TooBig,
    /// A fault of ours.
    InternalError,
    /// The node is full.
    TryLater,
    /// The node restarts.
    Restart,
    /// The node hands its connections over.
    Migrate,
    /// Positions are beyond repair on this connection.
    Resync,
    /// The client reads too slowly: the oldest waiting frame is 10 s old, or the queue is past its hard limit.
    Slow,
    /// Nothing was heard for three heartbeats.
    NoHeartbeat,
    /// More refused messages wait to be sent again than their order can be kept for.
    TooFast,
    /// Frame after frame made no sense.
    Misuse,
    /// The token ended.
    TokenExpired,
    /// A refresh named somebody else, or the right was withdrawn.
    Forbidden,
    /// No valid hello within 15 s.
    HelloTimeout,
    /// Another connection of the same device replaced this one.
    Replaced,
    /// The protocol version is not served.
    Version,
}

impl CloseCode {
    /// Every code, in the order of `docs/PROTOCOL.md`.
    pub const ALL: [Self; 20] = [
        Self::Normal,
        Self::GoingAway,
        Self::Protocol,
        Self::Unsupported,
        Self::InvalidText,
        Self::TooBig,
        Self::InternalError,
        Self::TryLater,
        Self::Restart,
        Self::Migrate,
        Self::Resync,
        Self::Slow,
        Self::NoHeartbeat,
        Self::TooFast,
        Self::Misuse,
        Self::TokenExpired,
        Self::Forbidden,
        Self::HelloTimeout,
        Self::Replaced,
        Self::Version,
    ];

    /// The number in the close frame.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Normal => 1000,
            Self::GoingAway => 1001,
            Self::Protocol => 1002,
            Self::Unsupported => 1003,
            Self::InvalidText => 1007,
            Self::TooBig => 1009,
            Self::InternalError => 1011,
            Self::TryLater => 1013,
            Self::Restart => 4000,
            Self::Migrate => 4001,
            Self::Resync => 4003,
            Self::Slow => 4008,
            Self::NoHeartbeat => 4009,
            Self::TooFast => 4029,
            Self::Misuse => 4400,
            Self::TokenExpired => 4401,
            Self::Forbidden => 4403,
            Self::HelloTimeout => 4408,
            Self::Replaced => 4409,
            Self::Version => 4426,
        }
    }

    /// The reason in the close frame; at most 123 bytes, the room RFC 6455 leaves.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Normal => "goodbye",
            Self::GoingAway => "the node is stopping",
            Self::Protocol => "protocol error",
            Self::Unsupported => "text frames only",
            Self::InvalidText => "not UTF-8",
            Self::TooBig => "message too big",
            Self::InternalError => "internal error",
            Self::TryLater => "the node is full",
            Self::Restart => "the node restarts",
            Self::Migrate => "connect to another node",
            Self::Resync => "connect again and resume",
            Self::Slow => "reading too slowly",
            Self::NoHeartbeat => "no heartbeat",
            Self::TooFast => "too fast",
            Self::Misuse => "too many frames without sense",
            Self::TokenExpired => "token invalid or expired",
            Self::Forbidden => "forbidden",
            Self::HelloTimeout => "no hello in time",
            Self::Replaced => "replaced by another connection",
            Self::Version => "version not supported",
        }
    }

    /// What the client should do. From 4400 on: not again as you are.
    #[must_use]
    pub fn verdict(self) -> CloseVerdict {
        match self {
            Self::GoingAway
            | Self::InternalError
            | Self::TryLater
            | Self::Restart
            | Self::Migrate
            | Self::Resync
            | Self::Slow
            | Self::NoHeartbeat
            | Self::TooFast => CloseVerdict::Reconnect,
            Self::Normal
            | Self::Protocol
            | Self::Unsupported
            | Self::InvalidText
            | Self::TooBig
            | Self::Misuse
            | Self::TokenExpired
            | Self::Forbidden
            | Self::HelloTimeout
            | Self::Replaced
            | Self::Version => CloseVerdict::DoNotReconnect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_close_numbers_carry_their_verdict() {
        for code in CloseCode::ALL {
            let number = code.number();
            if number >= 4000 {
                let expected = if number < 4400 { CloseVerdict::Reconnect } else { CloseVerdict::DoNotReconnect };
                assert_eq!(code.verdict(), expected, "{number}");
            }
            assert!(code.reason().len() <= 123, "{number}");
        }
    }

    #[test]
    fn every_error_code_reads_back() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(code));
            assert!(!code.message().is_empty());
        }
        assert_eq!(ErrorCode::parse("internal"), None);
    }

    #[test]
    fn the_protocol_page_lists_every_code() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/PROTOCOL.md"));
        for code in ErrorCode::ALL {
            let kind = if code.is_temporary() { "temporary" } else { "permanent" };
            assert!(page.contains(&format!("| `{}` | {kind} |", code.as_str())), "{}", code.as_str());
        }
        for code in CloseCode::ALL {
            let verdict = if code.verdict() == CloseVerdict::Reconnect { "reconnect" } else { "do not reconnect" };
            assert!(page.contains(&format!("| {} | {verdict} |", code.number())), "{}", code.number());
        }
    }
}
