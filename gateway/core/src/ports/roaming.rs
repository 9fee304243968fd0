//! Roaming: the latest messages of each session, close at hand, and the second witness of how far each had come.

use async_trait::async_trait;

use crate::chat::{MessageRecord, Position};
use crate::id::SessionId;
use crate::ports::PortResult;

/// Messages kept per session; older ones are read from the ledger.
pub const ROAMING_MAX: usize = 500;

/// A cache of what the ledger has committed.
///
/// Promise: what it yields was committed and is complete between its first and its last message. It may know nothing of a
/// session at any time, and forgets one that was quiet for seven days. It never decides anything but
/// [`crate::chat::witness`]. A store that lost its latest data may end before the ledger does without knowing it: who finds
/// less than was announced reads the ledger.
#[async_trait]
pub trait Roaming: Send + Sync {
    /// The highest position announced of each session, in order; `None` where it is not known.
    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<Option<Position>>>;

    /// Takes committed messages in, in order of each session, any number of sessions. Messages it has are ignored; where one
    /// leaves a gap to what it has, or is of another epoch, the session's list begins anew with it; a recall takes the
    /// content out of the message it names. Raises the tops.
    async fn append(&self, messages: &[MessageRecord]) -> PortResult<()>;

    /// The oldest `limit` messages after `seq`; `None` when the list does not reach back to `seq` + 1 or `seq` is not of
    /// its epoch.
    async fn after(&self, session: SessionId, seq: u64, epoch: u32, limit: u32) -> PortResult<Option<Vec<MessageRecord>>>;
}
