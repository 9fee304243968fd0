//! A session as the ledger has it, and the places people have reached in it.
//!
//! What never happens here: reading or moving anything. Called by everything that speaks of sessions.

use super::{Party, Side};
use crate::id::{DeviceId, PrincipalId, SessionId, ShopId};
use crate::time::UnixMillis;

/// A place in a session's stream of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Raised only when stored messages may have been lost; sequence numbers of different epochs do not compare.
    pub epoch: u32,
    /// Highest sequence number; 0 means no message.
    pub seq: u64,
}

/// When things happened in a session: what service levels are measured from, by the rules of [`crate::chat::sla`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clocks {
    /// It was opened.
    pub opened_at: UnixMillis,
    /// Since when nobody serves it; `None` while somebody does, and once it is closed.
    pub waiting_since: Option<UnixMillis>,
    /// The oldest message of the user that no person of the shop has answered.
    pub asked_at: Option<UnixMillis>,
    /// The first answer of a person.
    pub answered_at: Option<UnixMillis>,
    /// It was closed.
    pub closed_at: Option<UnixMillis>,
}

/// A session as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// Its business number, `CS` + date + running number.
    pub no: String,
    /// Its shop.
    pub shop: ShopId,
    /// Its user.
    pub user: PrincipalId,
    /// The agent serving it.
    pub agent: Option<PrincipalId>,
    /// What it is about, as the user said.
    pub subject: String,
    /// Whether messages may still be sent.
    pub open: bool,
    /// Epoch and highest seq.
    pub top: Position,
    /// How far the user has read.
    pub user_seq: u64,
    /// How far the shop has read.
    pub agent_seq: u64,
    /// What has arrived on at least one of the user's devices.
    pub user_received: u64,
    /// What has arrived on at least one of the shop's devices.
    pub agent_received: u64,
    /// Messages of the shop that the user has not read.
    pub user_unread: u64,
    /// Messages of the user that the shop has not read.
    pub agent_unread: u64,
    /// When things happened in it.
    pub clocks: Clocks,
}

impl SessionRecord {
    /// How far a side has read.
    #[must_use]
    pub fn read_by(&self, side: Side) -> u64 {
        match side {
            Side::User => self.user_seq,
            Side::Agent => self.agent_seq,
        }
    }

    /// What has arrived at a side.
    #[must_use]
    pub fn received_by(&self, side: Side) -> u64 {
        match side {
            Side::User => self.user_received,
            Side::Agent => self.agent_received,
        }
    }

    /// What a side has not read.
    #[must_use]
    pub fn unread_of(&self, side: Side) -> u64 {
        match side {
            Side::User => self.user_unread,
            Side::Agent => self.agent_unread,
        }
    }

    /// The party on `side`, if there is one.
    #[must_use]
    pub fn party(&self, side: Side) -> Option<Party> {
        match side {
            Side::User => Some(Party::user(self.user.clone())),
            Side::Agent => self.agent.clone().map(|id| Party::agent(self.shop, id)),
        }
    }
}

/// What a mark says of the messages up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cursor {
    /// They arrived on a device.
    Received,
    /// Somebody read them; then they have arrived as well.
    Read,
}

/// A cursor to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The session.
    pub session: SessionId,
    /// Whose cursor; the ledger checks that it belongs to the session.
    pub reader: Party,
    /// On which of its devices; without a name only the side's cursor moves.
    pub device: Option<DeviceId>,
    /// Which cursor.
    pub cursor: Cursor,
    /// Up to here, inclusive.
    pub seq: u64,
}

/// What a [`Mark`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkOutcome {
    /// The side's cursor stands at `seq`, and the side has `unread` messages left.
    At {
        /// The cursor afterwards, never lower than before.
        seq: u64,
        /// What is left to read.
        unread: u64,
    },
    /// Beyond the highest message; nothing changed.
    OutOfRange,
    /// No such session for this party.
    NotFound,
}

/// How far one device has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCursor {
    /// Whose.
    pub side: Side,
    /// Whose.
    pub party: PrincipalId,
    /// Which device.
    pub device: DeviceId,
    /// What has arrived on it.
    pub received: u64,
    /// What was read on it.
    pub read: u64,
}
