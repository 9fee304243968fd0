//! Chat: sessions, messages and what a socket does with them.
//!
//! The values live in this file; the rules live in the rooms below. Called by the socket shell, the chat worker and the
//! HTTP fallback. Nothing here waits, reads a clock or knows a store.

pub mod assign;
pub mod code;
pub mod connection;
pub mod event;
pub mod frame;
pub mod partition;

use crate::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use crate::principal::Role;
use crate::time::UnixMillis;

/// A side of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The shopper.
    User,
    /// The shop.
    Agent,
}

impl Side {
    /// The side a role speaks for; an admin has none.
    #[must_use]
    pub fn of(role: Role) -> Option<Self> {
        match role {
            Role::User => Some(Self::User),
            Role::Agent => Some(Self::Agent),
            Role::Admin => None,
        }
    }

    /// Wire spelling, and the kind in the subject `evt.<kind>.<id>`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
        }
    }

    /// Reads the wire spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "user" => Some(Self::User),
            "agent" => Some(Self::Agent),
            _ => None,
        }
    }
}

/// One who takes part in chats: a user, or an agent of a shop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party {
    /// Which side it speaks for.
    pub side: Side,
    /// Its id.
    pub id: PrincipalId,
    /// An agent's shop. A user's sessions may be in any shop, so users have `None`.
    pub shop: Option<ShopId>,
}

impl Party {
    /// The bus subject on which every device of this party hears its events.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("evt.{}.{}", self.side.as_str(), self.id.subject_token())
    }
}

/// A place in a session's stream of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Raised only when stored messages may have been lost; sequence numbers of different epochs do not compare.
    pub epoch: u32,
    /// Highest sequence number; 0 means no message.
    pub seq: u64,
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
    /// Messages of the shop that the user has not read.
    pub user_unread: u64,
    /// Messages of the user that the shop has not read.
    pub agent_unread: u64,
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
    /// `text`, `image`, `order_card` or `product_card`.
    pub kind: String,
    /// The content.
    pub content: String,
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
    /// Its content.
    pub content: String,
    /// Whether a bot wrote it.
    pub bot: bool,
    /// When it was stored.
    pub at: UnixMillis,
}

/// What became of a [`Send`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Stored, now or before.
    Stored {
        /// The row, as stored the first time.
        message: MessageRecord,
        /// Whether it had been stored before.
        dup: bool,
        /// The session's user.
        user: PrincipalId,
        /// The session's agent.
        agent: Option<PrincipalId>,
    },
    /// The same client message id was used for other content; nothing stored.
    Conflict,
    /// No such session for this sender; nothing stored.
    NotFound,
    /// The session is closed; nothing stored.
    Closed,
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

/// What a read mark did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMark {
    /// The side has read up to `seq` and has `unread` messages left.
    At {
        /// The cursor afterwards, never lower than before.
        seq: u64,
        /// What is left.
        unread: u64,
    },
    /// Beyond the highest message; nothing changed.
    OutOfRange,
    /// No such session.
    NotFound,
}

/// An agent and its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLoad {
    /// The agent.
    pub agent: PrincipalId,
    /// Unread messages over its open sessions.
    pub unread: u64,
    /// Its open sessions.
    pub open_sessions: u64,
}
