//! The ports: what the rules need of the world, as promises in words. Adapters live in `gateway-policy`,
//! `gateway-stores` and `gateway-embedded`; one conformance suite per port (`gateway-testkit`) holds them to the words.

mod admission;
mod budgets;
mod bus;
mod ledger;
mod nonces;
mod notices;
mod policies;
mod presence;
mod registry;
mod roaming;
mod vault;

pub use admission::{Admission, Installed};
pub use budgets::{Budgets, ChargeOutcome};
pub use bus::{Bus, Delivery, Inbox, Request, Requests, Subscription};
pub use ledger::{ChatLedger, LotLease, SaleLedger};
pub use nonces::{NONCES_MAX, Nonces};
pub use notices::{NOTICES_MAX, Notices};
pub use policies::{Answer, Artefact, Canary, CandidateStatus, Comparison, Policies, PolicySet, PolicyStatus, Sample, Side, Versions};
pub use presence::Presence;
pub use registry::{BLOB_BYTES_MAX, Change, Changes, RECORD_BYTES_MAX, Record, Registry, Table, Written};
pub use roaming::{ROAMING_MAX, Roaming};
pub use vault::{KeyId, Live, Unsealable, Vault};

/// Which service failed a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Store {
    /// Admission, budgets, presence, notices, roaming lists, nonces.
    Redis,
    /// Bus.
    Nats,
    /// Ledger.
    Mysql,
    /// The identity provider's key set.
    Jwks,
    /// The keys that seal.
    Vault,
}

impl Store {
    /// The word used in metrics and in `/readyz`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Nats => "nats",
            Self::Mysql => "mysql",
            Self::Jwks => "jwks",
            Self::Vault => "vault",
        }
    }
}

/// How a port failed, as far as the caller's next step depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortErrorKind {
    /// The service could not be reached or did not answer in time; the effect may or may not have happened. Retry.
    Unavailable,
    /// The caller no longer holds the lease it acted under; nothing happened. Stop.
    Fenced,
    /// The service answered, and the answer makes no sense. A bug or damage; retrying the same call will not help.
    Broken,
}

/// A port failed. Business outcomes are never errors.
#[derive(Debug, thiserror::Error)]
#[error("{store}: {doing}", store = store.as_str())]
pub struct PortError {
    /// How it failed.
    pub kind: PortErrorKind,
    /// Who failed.
    pub store: Store,
    /// What was tried, e.g. `admit attempts`.
    pub doing: &'static str,
    /// The client library's error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What port calls return.
pub type PortResult<T> = Result<T, PortError>;
