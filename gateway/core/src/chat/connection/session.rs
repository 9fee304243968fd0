//! What a connection knows of one session: how far its client is, how far the session is, and what is being done about it.

use crate::chat::frame::{EpochClaim, ReqId};
use crate::chat::{Party, SessionRecord, Side};
use crate::id::{PrincipalId, ShopId};
use crate::time::UnixMillis;

/// A followed session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) shop: ShopId,
    pub(super) user: PrincipalId,
    pub(super) agent: Option<PrincipalId>,
    pub(super) epoch: u32,
    /// Highest seq written to the client, or what it said it has.
    pub(super) cursor: u64,
    /// Highest seq known to exist.
    pub(super) top: u64,
    pub(super) fill: Fill,
    /// Reads in a row that did not reach `top` or failed.
    pub(super) attempts: u32,
    pub(super) replay: Option<Replay>,
    /// How far this party's side has read.
    pub(super) read_seq: u64,
    /// A read mark that is under way, and the highest one wanted.
    pub(super) marking: bool,
    pub(super) mark_wanted: u64,
    /// When `typing` was passed on last.
    pub(super) typed_at: Option<UnixMillis>,
    /// Grows with activity on the connection; the lowest one makes room.
    pub(super) touched: u64,
}

/// Closing the distance between `cursor` and `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Nothing to read: live messages are written as they come.
    Idle,
    /// In the queue for a read.
    Queued,
    /// A read is under way; live messages are left to it.
    Reading,
    /// The last read fell short; the next one is due then.
    Waiting(UnixMillis),
}

/// A resume that is being answered.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) req_id: Option<ReqId>,
    /// The client's position does not fit what is known here; the ledger is asked before saying so.
    pub(super) check: Option<Check>,
}

/// A position to compare with the ledger.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) claim: EpochClaim,
    pub(super) last_seq: u64,
    /// Whether the question that will settle it has left; an earlier one may have been read too early.
    pub(super) asked: bool,
}

impl Session {
    pub(super) fn of(record: &SessionRecord, side: Side, cursor: u64, touched: u64) -> Self {
        let read_seq = match side {
            Side::User => record.user_seq,
            Side::Agent => record.agent_seq,
        };
        Self {
            shop: record.shop,
            user: record.user.clone(),
            agent: record.agent.clone(),
            epoch: record.top.epoch,
            cursor,
            top: record.top.seq.max(cursor),
            fill: Fill::Idle,
            attempts: 0,
            replay: None,
            read_seq,
            marking: false,
            mark_wanted: 0,
            typed_at: None,
            touched,
        }
    }

    /// The party on `side`, if there is one.
    pub(super) fn party(&self, side: Side) -> Option<Party> {
        match side {
            Side::User => Some(Party { side, id: self.user.clone(), shop: None }),
            Side::Agent => self.agent.clone().map(|id| Party { side, id, shop: Some(self.shop) }),
        }
    }

    /// Whether nothing is under way, so that the session may be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.fill == Fill::Idle && self.replay.is_none() && !self.marking
    }
}

impl EpochClaim {
    /// Whether a client with this claim counts in `epoch`.
    pub(super) fn fits(self, epoch: u32) -> bool {
        match self {
            Self::Absent => true,
            Self::Is(claimed) => claimed == epoch,
            Self::Foreign => false,
        }
    }
}
