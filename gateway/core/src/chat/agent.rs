//! Agents: whether they are there for users, and sessions changing hands.
//!
//! What never happens here: choosing (`assign`). Called by the ledger, the sockets and the worker's reception.

use super::SessionRecord;
use crate::id::{PrincipalId, SessionId, ShopId};
use crate::time::UnixMillis;

/// What an agent says of itself. It counts only while one of its connections is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum AgentState {
    /// Takes new sessions.
    #[default]
    Online,
    /// Keeps its sessions, takes no new ones.
    Busy,
    /// Left its desk: its sessions go to somebody else.
    Away,
    /// Went home; the same.
    Offline,
}

impl AgentState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Online, Self::Busy, Self::Away, Self::Offline];

    /// Wire spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Busy => "busy",
            Self::Away => "away",
            Self::Offline => "offline",
        }
    }

    /// Reads the wire spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether it is given new sessions.
    #[must_use]
    pub fn takes_new(self) -> bool {
        self == Self::Online
    }

    /// Whether it keeps the sessions it has.
    #[must_use]
    pub fn keeps(self) -> bool {
        matches!(self, Self::Online | Self::Busy)
    }
}

/// An agent and its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLoad {
    /// The agent.
    pub agent: PrincipalId,
    /// What it says of itself.
    pub state: AgentState,
    /// Unread messages over its open sessions.
    pub unread: u64,
    /// Its open sessions.
    pub open_sessions: u64,
    /// How many it wants at most; `None`: as many as the deployment allows.
    pub open_max: Option<u32>,
}

/// An agent who has open sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// Its shop.
    pub shop: ShopId,
    /// The agent.
    pub agent: PrincipalId,
    /// What it says of itself.
    pub state: AgentState,
    /// When a connection of it was last known to be alive.
    pub seen_at: UnixMillis,
    /// Its open sessions.
    pub open_sessions: u64,
}

/// Why a session went to whom it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Of those who were there it had the fewest unread messages.
    LeastUnread,
    /// The one who served it handed it over.
    Transferred,
    /// It took the session out of the waiting line.
    Taken,
    /// The one who served it went away.
    AgentAway,
    /// The one who served it is gone without a word.
    AgentGone,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::LeastUnread, Self::Transferred, Self::Taken, Self::AgentAway, Self::AgentGone];

    /// Wire spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LeastUnread => "least_unread",
            Self::Transferred => "transferred",
            Self::Taken => "taken",
            Self::AgentAway => "agent_away",
            Self::AgentGone => "agent_gone",
        }
    }

    /// Reads the wire spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// A session to change hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// The session.
    pub session: SessionId,
    /// Who must serve it now; `None`: nobody.
    pub from: Option<PrincipalId>,
    /// Who shall serve it; `None`: it waits.
    pub to: Option<PrincipalId>,
    /// Why.
    pub reason: Reason,
    /// What the choice was made from, for whoever asks later: one line, at most 2,000 bytes.
    pub detail: String,
    /// Open sessions at which `to` takes no more, unless it wants fewer; `None` for a handover by hand.
    pub open_max: Option<u32>,
}

impl Handover {
    /// How it is written down once it is done.
    #[must_use]
    pub fn record(&self, at: UnixMillis) -> HandoverRecord {
        HandoverRecord { from: self.from.clone(), to: self.to.clone(), reason: self.reason, detail: self.detail.clone(), at }
    }
}

/// What became of a [`Handover`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoverOutcome {
    /// Done; the session afterwards.
    Done(Box<SessionRecord>),
    /// Somebody else serves it than was said, or it is closed, or there is no such session.
    Changed,
    /// The shop of the session has no such agent.
    NoSuchAgent,
    /// The agent has as many open sessions as it may.
    Full,
}

/// A handover as it is written down, for whoever asks why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverRecord {
    /// Who served the session before; `None`: nobody.
    pub from: Option<PrincipalId>,
    /// Who served it then; `None`: it waited.
    pub to: Option<PrincipalId>,
    /// Why.
    pub reason: Reason,
    /// What the choice was made from.
    pub detail: String,
    /// When.
    pub at: UnixMillis,
}
