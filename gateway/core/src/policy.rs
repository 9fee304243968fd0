//! What a policy may see and say. The host (`gateway-policy`) asks a guest and gets a [`Verdict`]; folding verdicts of a
//! chain, and turning a host failure into one, is decided in [`chain`].

pub mod budget;
pub mod bundle;
pub mod chain;
pub mod condition;
mod difference;
mod digest;
pub mod regression;
pub mod rollout;

pub use difference::difference;
pub use digest::Digest;

use crate::id::{ActivityId, SessionId, ShopId, SkuId};
use crate::principal::Principal;
use crate::request::RequestHead;
use crate::time::UnixMillis;

/// When a policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// A request's head has arrived, WebSocket handshakes included.
    Request,
    /// A purchase attempt was parsed.
    Attempt,
    /// A chat message was parsed.
    Message,
    /// A response's head is about to leave.
    Response,
}

impl Phase {
    /// The word used in manifests, metrics and decision records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Attempt => "attempt",
            Self::Message => "message",
            Self::Response => "response",
        }
    }
}

/// What every phase sees besides its own subject.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The caller's clock; guests have none.
    pub now: UnixMillis,
    /// The identity proved so far in this chain.
    pub principal: Option<Principal>,
    /// The `X-Device-Id` header, when it was sent.
    pub device: Option<String>,
    /// Tags left by policies earlier in the chain.
    pub tags: Vec<String>,
}

/// One question to one policy.
#[derive(Debug, Clone, Copy)]
pub enum Call<'a> {
    /// Phase request.
    Request(&'a RequestHead, &'a Facts),
    /// Phase attempt.
    Attempt(&'a RequestHead, &'a Facts, &'a Attempt),
    /// Phase message.
    Message(&'a Facts, &'a Message),
    /// Phase response.
    Response(&'a RequestHead, &'a Facts, &'a ResponseHead),
}

impl Call<'_> {
    /// The phase this call belongs to.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self {
            Self::Request(..) => Phase::Request,
            Self::Attempt(..) => Phase::Attempt,
            Self::Message(..) => Phase::Message,
            Self::Response(..) => Phase::Response,
        }
    }
}

/// A parsed purchase attempt, as policies see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The activity asked for.
    pub activity: ActivityId,
    /// The SKU asked for.
    pub sku: SkuId,
    /// Units, 1 to 9,999.
    pub qty: u32,
    /// The `Idempotency-Key` header.
    pub idempotency_key: Option<String>,
}

/// A parsed chat message, as policies see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The session it is for.
    pub session: SessionId,
    /// The shop of that session.
    pub shop: ShopId,
    /// `text`, `image`, `order_card` or `product_card`.
    pub kind: String,
    /// The content as sent.
    pub content: String,
}

/// Status and headers of a response, as policies see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// 100 to 599.
    pub status: u16,
    /// Header fields, names in lower case.
    pub headers: Vec<(String, String)>,
}

/// A guest's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The chain ends here with this answer.
    Refuse(Refusal),
    /// The chain goes on with these effects.
    Proceed(Effects),
}

/// How a refused client is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// 400 to 599, checked by the host.
    pub status: u16,
    /// Machine-readable code, `[A-Z0-9_]{1,40}`.
    pub code: String,
    /// A sentence for the client.
    pub message: String,
    /// When a retry can help.
    pub retry_after_ms: Option<u64>,
}

/// What a proceeding policy asks the host to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// The identity this policy proved.
    pub principal: Option<Principal>,
    /// Headers to set on the request (phase request) or response (phase response); names in lower case.
    pub set_headers: Vec<(String, String)>,
    /// Headers to remove; names in lower case.
    pub remove_headers: Vec<String>,
    /// Budgets to charge, all together with those of the rest of the chain.
    pub charges: Vec<Charge>,
    /// Tags for later policies and the decision record.
    pub tags: Vec<String>,
    /// Risk, 0 (none) to 100.
    pub score: u8,
    /// Phase message only: deliver this text instead.
    pub replace: Option<String>,
    /// Phase message only: answer the sender with this bot text.
    pub reply: Option<String>,
}

/// Where a budget is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// In this process.
    Node,
    /// For the whole cluster.
    Cluster,
}

/// A request to count: at most `limit` cost per `window_ms`, smoothed by GCRA with a full burst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// Which rule counts, for metrics and refusals: `[a-z0-9-]{1,40}`.
    pub budget: String,
    /// Whose account, without the budget's name; at most 200 bytes.
    pub key: String,
    /// Cost that fits into one window, 1 to 1,000,000.
    pub limit: u32,
    /// Window length in milliseconds, 1 to 86,400,000.
    pub window_ms: u32,
    /// What this request costs, 1 to `limit`.
    pub cost: u32,
    /// Where it is counted.
    pub scope: Scope,
    /// A request that repeats the token of the last one charged to this account is free: it is the same request again.
    pub replay_token: Option<String>,
    /// The answer when the account is exhausted.
    pub refusal: Refusal,
}

/// Why the host has no verdict of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// No generation of this policy could be loaded.
    Missing,
    /// The guest trapped.
    Trap,
    /// The guest used up its time.
    Timeout,
    /// No instance was free in time.
    Overload,
    /// The answer broke a rule of the host.
    BadVerdict,
}

impl Fault {
    /// The word used in configuration, metrics and decision records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::Overload => "overload",
            Self::BadVerdict => "bad-verdict",
        }
    }
}
