//! Messages: on their way into the ledger, and as they are stored there.
//!
//! What never happens here: numbering them; that is the ledger's commit. Called by everything that carries messages.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::sla::Clock;
use super::{Party, Side};
use crate::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use crate::time::UnixMillis;

/// The kind of the event that takes a message back. It has a number of its own, so replays tell of it, and nobody has to
/// read it: it never counts as unread.
pub const RECALLED: &str = "recalled";

/// SHA-256 of what a client sent: the same id with another fingerprint is another message, and a conflict.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of a kind and a content.
    #[must_use]
    pub fn of(kind: &str, content: &str) -> Self {
        // A kind never contains NUL, so no two pairs run together.
        Self(Sha256::new().chain_update(kind).chain_update([0]).chain_update(content).finalize().into())
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Fingerprint({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// A message on its way into the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Send {
    /// Where to.
    pub session: SessionId,
    /// Who from; the ledger checks that it belongs to the session.
    pub sender: Party,
    /// The sender's id for it.
    pub client_msg_id: ClientMsgId,
    /// `text`, `image`, `order_card` or `product_card`; or [`RECALLED`].
    pub kind: String,
    /// The content; of a recall the number of the message taken back, in decimal.
    pub content: String,
    /// What makes a message sent again the same message.
    pub fingerprint: Fingerprint,
    /// The connection that sent it; it gets `accepted`, every other device gets the message.
    pub origin: String,
    /// Whether a bot wrote it on the shop's behalf.
    pub bot: bool,
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRecord {
    /// Its session.
    pub session: SessionId,
    /// The epoch it was stored in.
    pub epoch: u32,
    /// Its number in the session.
    pub seq: u64,
    /// Who wrote it.
    pub side: Side,
    /// Id of who wrote it.
    pub sender: PrincipalId,
    /// The sender's id for it.
    pub client_msg_id: ClientMsgId,
    /// Its kind.
    pub kind: String,
    /// Its content; empty once it was taken back.
    pub content: String,
    /// Whether it was taken back.
    pub recalled: bool,
    /// Whether a bot wrote it.
    pub bot: bool,
    /// When it was stored.
    pub at: UnixMillis,
}

impl MessageRecord {
    /// The message that this one takes back.
    #[must_use]
    pub fn takes_back(&self) -> Option<u64> {
        if self.kind == RECALLED { self.content.parse().ok() } else { None }
    }
}

/// What became of a [`Send`].
#[allow(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Stored, now or before.
    Stored {
        /// The row, as stored the first time.
        message: MessageRecord,
        /// Whether it had been stored before.
        dup: bool,
        /// The session's shop.
        shop: ShopId,
        /// The session's user.
        user: PrincipalId,
        /// The session's agent.
        agent: Option<PrincipalId>,
        /// The clock that this message stopped, and what it showed; `None` for one that had been stored before.
        stopped: Option<(Clock, Duration)>,
    },
    /// The same client message id was used for other content; nothing stored.
    Conflict,
    /// No such session for this sender; nothing stored.
    NotFound,
    /// The session is closed; nothing stored.
    Closed,
    /// Too late to take the message back; nothing stored.
    TooLate,
}

/// A partition's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The partition.
    pub partition: u16,
    /// Who holds it.
    pub owner: String,
    /// Grows with every change of holder; fences the former one.
    pub token: u64,
}

/// Which messages to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// The oldest `limit` messages with a seq above `seq`.
    After {
        /// Exclusive lower bound.
        seq: u64,
        /// At most 200.
        limit: u32,
    },
    /// The latest `limit` messages with a seq below `seq`.
    Before {
        /// Exclusive upper bound.
        seq: u64,
        /// At most 200.
        limit: u32,
    },
}
