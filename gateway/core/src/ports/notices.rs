//! Notices: the stream of what a user is told outside of any conversation, numbered so that a device that was away can catch
//! up.

use async_trait::async_trait;
use bytes::Bytes;

use crate::chat::Party;
use crate::ports::PortResult;

/// Notices kept per party; older ones are gone, and whoever missed them asks for the state instead.
pub const NOTICES_MAX: usize = 100;

/// A party's latest notices.
///
/// Promise: numbers of a party rise by one with each notice for as long as the store remembers the party, which is seven days
/// after its latest notice. A store that lost its data begins again at 1.
#[async_trait]
pub trait Notices: Send + Sync {
    /// Appends and says the notice's number. A `key` (at most 64 characters of ASCII) that was appended before, as far as
    /// notices are kept, gets the number it has.
    async fn append(&self, to: &Party, key: &str, notice: Bytes) -> PortResult<u64>;

    /// What came after number `after`, in order, as far as it is kept.
    async fn since(&self, party: &Party, after: u64) -> PortResult<Vec<(u64, Bytes)>>;
}
