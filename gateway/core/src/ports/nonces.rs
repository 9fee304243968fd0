//! Nonces: values that may be used once.

use async_trait::async_trait;

use crate::chat::Party;
use crate::ports::PortResult;
use crate::time::UnixMillis;

/// Values kept of one party.
pub const NONCES_MAX: usize = 10_000;

/// Who has used which value.
///
/// Promise: of all calls with the same party and nonce before `until` exactly one hears `true`, as far as the store keeps its
/// data. At most [`NONCES_MAX`] values of a party are kept; beyond, those go that would be forgotten first.
#[async_trait]
pub trait Nonces: Send + Sync {
    /// Whether `nonce` is used for the first time; remembers it until `until`.
    async fn first_use(&self, party: &Party, nonce: &str, now: UnixMillis, until: UnixMillis) -> PortResult<bool>;
}
