//! Chat: sessions, messages and what a socket does with them.
//!
//! This file says who takes part; `session`, `message` and `agent` hold the values, the other rooms the rules. Called by the
//! socket shells, the chat worker and the HTTP fallback. Nothing here waits, reads a clock or knows a store.

pub mod agent;
pub mod assign;
pub mod code;
pub mod connection;
pub mod event;
pub mod frame;
pub mod handshake;
pub mod letter;
pub mod message;
pub mod partition;
pub mod recall;
pub mod reception;
pub mod seal;
pub mod session;
pub mod sla;
pub mod stomp;
pub mod witness;

pub use agent::{AgentLoad, AgentState, Handover, HandoverOutcome, HandoverRecord, Reason, Serving};
pub use message::{Committed, Fingerprint, Lease, MessageRecord, Page, RECALLED, Send};
pub use session::{Clocks, Cursor, DeviceCursor, Mark, MarkOutcome, Position, SessionRecord};

use crate::id::{PrincipalId, ShopId};
use crate::principal::Role;

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

    /// The other side.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::User => Self::Agent,
            Self::Agent => Self::User,
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
    /// A user.
    #[must_use]
    pub fn user(id: PrincipalId) -> Self {
        Self { side: Side::User, id, shop: None }
    }

    /// An agent of a shop.
    #[must_use]
    pub fn agent(shop: ShopId, id: PrincipalId) -> Self {
        Self { side: Side::Agent, id, shop: Some(shop) }
    }

    /// The bus subject on which every device of this party hears its events: `evt.user.<id>` or `evt.agent.<shop>.<id>`. Two
    /// shops may call an agent by the same id and never hear each other.
    #[must_use]
    pub fn subject(&self) -> String {
        let id = self.id.subject_token();
        match self.shop {
            Some(shop) => format!("evt.{}.{shop}.{id}", self.side.as_str()),
            None => format!("evt.{}.{id}", self.side.as_str()),
        }
    }
}
