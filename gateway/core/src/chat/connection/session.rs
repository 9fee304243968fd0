//! What a connection knows of one session: how far its client is, how far the session is, and what is being done about it.

use crate::chat::frame::{EpochClaim, ReqId};
use crate::chat::{Cursor, Party, SessionRecord, Side};
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
    /// Whether it may have become somebody else's unheard.
    pub(super) doubted: bool,
    /// Reads in a row that did not reach `top` or failed.
    pub(super) attempts: u32,
    pub(super) replay: Option<Replay>,
    /// What the party has read.
    pub(super) read: Progress,
    /// What has arrived at it.
    pub(super) received: Progress,
    /// Whether a mark is under way.
    pub(super) marking: bool,
    /// Whether the client knows that it is closed.
    pub(super) closed: bool,
    /// When `typing` was passed on last.
    pub(super) typed_at: Option<UnixMillis>,
    /// Grows with activity on the connection; the lowest one makes room.
    pub(super) touched: u64,
}

/// One of the party's cursors, as far as this connection knows it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// Where the side's cursor stands.
    pub(super) side: u64,
    /// How far this connection has moved it, on its device if it has a name.
    pub(super) moved: u64,
    /// The highest wanted, 0 when nothing is.
    pub(super) wanted: u64,
}

/// Closing the distance between `cursor` and `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Nothing to read: live messages are written as they come.
    Idle,
    /// In the queue for a read.
    Queued,
    /// It is looked up whether the session still is the party's, before anything of it is read.
    Checking,
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
        Self {
            shop: record.shop,
            user: record.user.clone(),
            agent: record.agent.clone(),
            epoch: record.top.epoch,
            cursor,
            top: record.top.seq.max(cursor),
            fill: Fill::Idle,
            doubted: false,
            attempts: 0,
            replay: None,
            read: Progress { side: record.read_by(side), ..Progress::default() },
            received: Progress { side: record.received_by(side), ..Progress::default() },
            marking: false,
            closed: !record.open,
            typed_at: None,
            touched,
        }
    }

    /// The party on `side`, if there is one.
    pub(super) fn party(&self, side: Side) -> Option<Party> {
        match side {
            Side::User => Some(Party::user(self.user.clone())),
            Side::Agent => self.agent.clone().map(|id| Party::agent(self.shop, id)),
        }
    }

    pub(super) fn progress(&mut self, cursor: Cursor) -> &mut Progress {
        match cursor {
            Cursor::Read => &mut self.read,
            Cursor::Received => &mut self.received,
        }
    }

    /// Whether nothing is under way, so that the session may be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.fill == Fill::Idle && self.replay.is_none() && !self.marking
    }
}

impl Progress {
    /// Up to where a mark would change nothing. A device with a name has a cursor of its own, which may be behind its side's.
    pub(super) fn reached(&self, named: bool) -> u64 {
        if named { self.moved } else { self.moved.max(self.side) }
    }

    /// What is to be marked.
    pub(super) fn due(&self, named: bool) -> Option<u64> {
        (self.wanted > self.reached(named)).then_some(self.wanted)
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
