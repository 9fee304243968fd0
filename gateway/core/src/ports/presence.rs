//! Presence: who has an open socket somewhere.

use async_trait::async_trait;

use crate::chat::Party;
use crate::ports::PortResult;
use crate::time::UnixMillis;

/// Open connections, kept alive by heartbeats.
///
/// Promise: a principal is online while any of its connections has a heartbeat that has not expired. Nothing depends on
/// a goodbye: a killed node's connections expire.
#[async_trait]
pub trait Presence: Send + Sync {
    /// Connection `connection` of `who` is alive until `until`.
    async fn beat(&self, who: &Party, connection: &str, until: UnixMillis) -> PortResult<()>;

    /// The connection ended.
    async fn leave(&self, who: &Party, connection: &str) -> PortResult<()>;

    /// For each party, whether it is online at `now`.
    async fn online(&self, who: &[Party], now: UnixMillis) -> PortResult<Vec<bool>>;
}
