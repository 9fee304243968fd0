//! What a route can come to, in the words clients see. Which status each has is decided in `edge/respond.rs`.

use std::time::Duration;

use gateway_core::id::OrderNo;
use gateway_core::policy::Refusal;
use gateway_core::ports::PortError;
use serde_json::Value;

/// What a client asked for.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The attempt is admitted and on its way into the ledger.
    Queued {
        /// Its number.
        order_no: OrderNo,
        /// Whether it was admitted before.
        replayed: bool,
    },
    /// What became of an order number.
    OrderResult {
        /// Its number.
        order_no: OrderNo,
        /// `pending`, `success` or `fail`.
        status: &'static str,
        /// A sentence for the buyer.
        message: String,
    },
    /// The buyer's order is closed, now or before.
    Cancelled {
        /// Its number.
        order_no: OrderNo,
    },
    /// Other data.
    Data(Value),
    /// A file that is part of the program.
    File {
        /// Its media type.
        media_type: &'static str,
        /// Its text.
        text: &'static str,
    },
}

/// Everything that can go wrong for a client.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request makes no sense; the sentence says where.
    BadRequest(String),
    /// No valid identity.
    Unauthenticated,
    /// The identity may not do this.
    Forbidden(&'static str),
    /// No such thing, or not yours.
    NotFound,
    /// The path exists with other methods, these.
    MethodNotAllowed(String),
    /// The body is larger than configured.
    TooLarge,
    /// The head is larger than configured.
    HeadTooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    /// A WebSocket endpoint was asked without an upgrade, or with one that RFC 6455 does not allow.
    UpgradeRequired,
    /// The lot is not on sale anywhere.
    UnknownItem,
    /// The window has not opened.
    NotStarted,
    /// The window is over.
    Ended,
    /// More units than one user may have.
    LimitExceeded,
    /// Fewer units are left than were asked for.
    SoldOut {
        /// What is left.
        left: u32,
    },
    /// The order is paid; giving it back is the shop's business.
    AlreadyPaid,
    /// The order is admitted and not yet written.
    StillPending,
    /// The sale is not pre-heated, or is being rebuilt.
    NotReady,
    /// A policy or a budget refused.
    Refused(Refusal),
    /// The chat did not carry a frame out.
    Chat(Rejected),
    /// A service is away.
    Unavailable(PortError),
    /// Too much at once for this node.
    Overloaded,
    /// Too many sockets at once for this node; come back after this.
    Crowded(Duration),
    /// The node is going away.
    Draining,
    /// No peer of the upstream group answered.
    UpstreamFailed,
    /// The upstream took too long.
    UpstreamTimeout,
    /// A bug of ours; the log has it.
    Internal,
}

/// What the chat says of a frame it did not carry out: its error frame without the ids, which the client knows.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rejected {
    /// One of the codes of `docs/PROTOCOL.md`, or a policy's own.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Whether the same frame may succeed later.
    pub temporary: bool,
    /// Not before this.
    pub retry_after_ms: Option<u64>,
}

impl From<PortError> for Failure {
    fn from(error: PortError) -> Self {
        Self::Unavailable(error)
    }
}
