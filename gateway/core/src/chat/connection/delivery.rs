//! Moving messages to the client: the cursor of each session, gaps, replays, and positions that do not fit.
//!
//! What never happens here: keeping messages. What cannot be written now is read again from the ledger later.

use std::collections::BTreeSet;
use std::time::Duration;

use super::requests::Deferred;
use super::session::{Check, Fill, Replay, Session};
use super::{Answer, Connection, Output, Unavailable};
use crate::chat::code::ErrorCode;
use crate::chat::event::Heard;
use crate::chat::frame::{ReqId, ResumePosition, ServerFrame, message_frame};
use crate::chat::{MessageRecord, Page, Position, SessionRecord, Side};
use crate::id::SessionId;
use crate::time::UnixMillis;

/// First and longest pause before a page is asked for again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Pages in a row that may end below `top`. A committed message is visible at once, so a `top` that stays out of reach is not
/// of this stream any more; the client is then told to count on from it.
const SHORT_PAGES_MAX: u32 = 8;

/// Comparing positions with the ledger, one question at a time.
#[derive(Debug, Default)]
pub(super) struct Tops {
    pub(super) wanted: BTreeSet<SessionId>,
    asked: Option<BTreeSet<SessionId>>,
}

impl Connection {
    /// A committed message of one of the party's sessions, heard on the bus.
    pub(super) fn on_stored(&mut self, message: &MessageRecord, dup: bool, origin: &str, heard: Option<&Heard>, now: UnixMillis) {
        let touched = self.tick();
        let congested = self.is_full();
        let own = origin == self.conn_id.as_str();
        if own {
            self.sends.note_stored(message.session, &message.client_msg_id, self.limits.sends_max);
        }
        let Some(session) = self.sessions.get_mut(&message.session) else {
            let deferred = Deferred::Stored { message: message.clone(), dup, origin: origin.to_owned() };
            self.defer(message.session, deferred, now);
            return;
        };
        session.touched = touched;
        if message.epoch < session.epoch {
            // A resend of a message that was stored before the epoch changed: its sender still gets its answer.
            if own {
                self.write_accepted(message, dup, now);
            }
            return;
        }
        let (id, seq) = (message.session, message.seq);
        if message.epoch > session.epoch {
            self.resync(id, Position { epoch: message.epoch, seq: seq.saturating_sub(1) }, "epoch", None, now);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.top = session.top.max(seq);
        if seq <= session.cursor {
            if own {
                self.write_accepted(message, dup, now);
            }
        } else if seq == session.cursor + 1 && session.fill == Fill::Idle && !congested {
            session.cursor = seq;
            if own {
                self.sends.settle(id, &message.client_msg_id);
                self.write_accepted(message, dup, now);
            } else {
                self.write_row(message, heard, now);
            }
        } else {
            if own {
                self.await_own_row(message, now);
            }
            self.want_fill(id);
        }
    }

    /// A session changed hands.
    pub(super) fn on_assigned(&mut self, record: &SessionRecord, reason: &str, now: UnixMillis) {
        self.write(ServerFrame::Assigned { record, side: self.party.side, reason }.encode(), now);
        self.keep_or_forget(record, now);
    }

    /// Follows a session that is the party's and no other.
    pub(super) fn keep_or_forget(&mut self, record: &SessionRecord, now: UnixMillis) {
        let own = match self.party.side {
            Side::User => record.user == self.party.id,
            Side::Agent => record.agent.as_ref() == Some(&self.party.id),
        };
        if !own {
            self.forget(record.id);
        } else if self.sessions.contains_key(&record.id) {
            self.update(record, now);
        } else {
            self.adopt(record, record.top.seq);
        }
    }

    /// The answer to [`Output::ReadPage`].
    pub fn handle_page(&mut self, session: SessionId, page: Page, answer: Answer<Vec<MessageRecord>>, now: UnixMillis) {
        match page {
            Page::Before { .. } => self.on_history(session, page, answer, now),
            Page::After { seq, limit } => {
                let asked = self.reading.remove(&session);
                debug_assert!(asked || self.is_closing(), "an answer to a question that was not asked");
                if asked && self.sessions.get(&session).is_some_and(|state| state.fill == Fill::Reading) {
                    self.on_page(session, seq, limit, answer, now);
                }
            }
        }
        self.after_input();
    }

    fn on_page(&mut self, id: SessionId, after: u64, limit: u32, answer: Answer<Vec<MessageRecord>>, now: UnixMillis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Ok(rows) = answer else {
            session.attempts = session.attempts.saturating_add(1);
            session.fill = Fill::Waiting(now.plus(pause(session.attempts)));
            return;
        };
        if after != session.cursor {
            // A resume or a resync moved the cursor while the page was read: these rows continue nothing.
            self.requeue(id);
            return;
        }
        let short = rows.len() < usize::try_from(limit).unwrap_or(usize::MAX);
        let mut written = 0_u32;
        let mut fitted = true;
        for row in &rows {
            if self.is_full() {
                fitted = false;
                break;
            }
            if self.write_next(id, row, now) {
                written += 1;
            }
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if !fitted {
            self.page_limit = written.clamp(1, self.limits.frame.page_max);
            self.requeue(id);
            return;
        }
        self.page_limit = self.page_limit.saturating_mul(2).min(self.limits.frame.page_max);
        if !short {
            session.attempts = 0;
            self.requeue(id);
        } else if session.cursor < session.top && session.attempts < SHORT_PAGES_MAX {
            session.attempts += 1;
            session.fill = Fill::Waiting(now.plus(pause(session.attempts)));
        } else {
            if session.cursor < session.top {
                let position = Position { epoch: session.epoch, seq: session.top };
                self.resync(id, position, "gap", None, now);
            }
            self.finish_fill(id, now);
        }
    }

    /// Writes one row of a page if it is beyond the cursor.
    fn write_next(&mut self, id: SessionId, row: &MessageRecord, now: UnixMillis) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        debug_assert_eq!(row.session, id);
        if row.seq <= session.cursor {
            return false;
        }
        // The ledger has no gap within an epoch. Where an epoch begins above the end of the former one the client must
        // be told to count on from there, or it would wait for numbers that do not exist.
        let jump = if row.epoch > session.epoch {
            Some((row.epoch, "epoch"))
        } else {
            (row.seq > session.cursor + 1).then_some((session.epoch, "gap"))
        };
        if let Some((epoch, reason)) = jump {
            self.resync(id, Position { epoch, seq: row.seq - 1 }, reason, None, now);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        session.cursor = row.seq;
        session.top = session.top.max(row.seq);
        self.write_row(row, None, now);
        true
    }

    /// A doubted session was looked up: it is the party's, or not, or that could not be found out.
    pub(super) fn on_checked(&mut self, id: SessionId, own: Result<bool, &Unavailable>, now: UnixMillis) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.fill == Fill::Checking) else { return };
        match own {
            Ok(true) => {
                session.doubted = false;
                self.reading.remove(&id);
                self.requeue(id);
            }
            Ok(false) => self.forget(id),
            Err(Unavailable) => {
                session.attempts = session.attempts.saturating_add(1);
                session.fill = Fill::Waiting(now.plus(pause(session.attempts)));
                self.reading.remove(&id);
            }
        }
    }

    fn finish_fill(&mut self, id: SessionId, now: UnixMillis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.fill = Fill::Idle;
        session.attempts = 0;
        let last_seq = session.cursor;
        if let Some(replay) = session.replay.take_if(|replay| replay.check.is_none()) {
            self.write(ServerFrame::ReplayEnd { req_id: replay.req_id.as_ref(), session: id, last_seq }.encode(), now);
        }
    }

    /// One `resume` position of a known session.
    pub(super) fn resume(&mut self, position: ResumePosition, req_id: Option<ReqId>, now: UnixMillis) {
        let Some(session) = self.sessions.get_mut(&position.session) else { return };
        if position.epoch.fits(session.epoch) && position.last_seq <= session.top {
            self.start_replay(position.session, position.last_seq, req_id, now);
        } else {
            let check = Check { claim: position.epoch, last_seq: position.last_seq, asked: false };
            session.replay = Some(Replay { req_id, check: Some(check) });
            self.tops.wanted.insert(position.session);
        }
    }

    fn start_replay(&mut self, id: SessionId, last_seq: u64, req_id: Option<ReqId>, now: UnixMillis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.cursor = last_seq;
        session.replay = Some(Replay { req_id, check: None });
        if session.cursor < session.top {
            self.want_fill(id);
        } else if session.fill == Fill::Idle {
            self.finish_fill(id, now);
        }
    }

    /// `last_ack_seq` of the URL.
    pub(super) fn resume_from_url(&mut self, session: Option<SessionId>, last_seq: u64, now: UnixMillis) {
        let only = if self.sessions.len() == 1 { self.sessions.keys().next().copied() } else { None };
        if let Some(session) = session.or(only) {
            let position = ResumePosition { session, epoch: crate::chat::frame::EpochClaim::Absent, last_seq };
            self.serve_position(position, None, now);
        } else if !(self.sessions.is_empty() && last_seq == 0) {
            // With no session and nothing seen there is nothing to resume, and that is no error.
            self.error(None, None, ErrorCode::ResumeAmbiguous, now);
        }
    }

    /// The answer to [`Output::ReadTops`]: positions of the sessions that exist.
    pub fn handle_tops(&mut self, answer: Answer<Vec<(SessionId, Position)>>, now: UnixMillis) {
        let asked = self.tops.asked.take();
        debug_assert!(asked.is_some() || self.is_closing(), "an answer to a question that was not asked");
        let asked = asked.unwrap_or_default();
        let positions = answer.as_ref().map(|list| list.iter().copied().collect::<std::collections::BTreeMap<_, _>>());
        for id in asked {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let replay = session.replay.take_if(|replay| replay.check.as_ref().is_some_and(|check| check.asked));
            match (positions.as_ref().map(|positions| positions.get(&id).copied()), replay) {
                (Ok(Some(position)), None) => self.compare(id, position, now),
                (Ok(Some(position)), Some(Replay { req_id, check: Some(check) })) => {
                    self.settle_check(id, position, &check, req_id, now);
                }
                (Ok(None), Some(replay)) => self.error(replay.req_id, Some(id), ErrorCode::NotFound, now),
                (Err(_), Some(replay)) => self.error(replay.req_id, Some(id), ErrorCode::Internal, now),
                (Ok(None) | Err(_), None) | (Ok(Some(_)), Some(Replay { check: None, .. })) => {}
            }
        }
        self.after_input();
    }

    /// Compares a session with where the ledger says it is.
    fn compare(&mut self, id: SessionId, position: Position, now: UnixMillis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if position.epoch > session.epoch {
            self.resync(id, position, "epoch", None, now);
        } else if position.epoch == session.epoch && position.seq > session.top {
            // An agent that heard nothing of these may have lost the session, and the word of that as well.
            session.doubted |= self.party.side == Side::Agent;
            self.reach(id, position.seq);
        }
    }

    /// There are messages up to `top`.
    pub(super) fn reach(&mut self, id: SessionId, top: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.top = session.top.max(top);
        if session.cursor < session.top {
            self.want_fill(id);
        }
    }

    /// Settles a resume that did not fit, now that the ledger has said where the session is.
    fn settle_check(&mut self, id: SessionId, position: Position, check: &Check, req_id: Option<ReqId>, now: UnixMillis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let entered_epoch = position.epoch > session.epoch;
        if entered_epoch {
            session.epoch = position.epoch;
            session.top = position.seq;
        } else if position.epoch == session.epoch {
            session.top = session.top.max(position.seq);
        }
        let current = Position { epoch: session.epoch, seq: session.top };
        if !check.claim.fits(current.epoch) {
            self.resync(id, current, "epoch", req_id.as_ref(), now);
        } else if check.last_seq > current.seq {
            self.resync(id, current, "ahead", req_id.as_ref(), now);
        } else {
            self.start_replay(id, check.last_seq, req_id, now);
        }
    }

    /// Moves client and cursor to `to`, saying so.
    fn resync(&mut self, id: SessionId, to: Position, reason: &'static str, req_id: Option<&ReqId>, now: UnixMillis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.top = if to.epoch == session.epoch { session.top.max(to.seq) } else { to.seq };
        session.epoch = to.epoch;
        session.cursor = to.seq;
        let frame = ServerFrame::Resync { req_id, session: id, epoch: to.epoch, max_seq: to.seq, reason }.encode();
        self.write(frame, now);
    }

    /// A row in its place: the client's own is answered, any other is shown, with the frame that is made for all who heard it.
    fn write_row(&mut self, message: &MessageRecord, heard: Option<&Heard>, now: UnixMillis) {
        let of_party = message.sender == self.party.id && message.side == self.party.side;
        if of_party {
            self.sends.note_stored(message.session, &message.client_msg_id, self.limits.sends_max);
        }
        if of_party && self.sends.take_awaited(message) {
            // Heard, it was stored by another connection's copy; read, by whoever came first.
            self.write_accepted(message, heard.is_some(), now);
        } else {
            let push = heard.map_or_else(|| message_frame(message).into(), |heard| heard.push(message));
            self.outbox.write(push, now);
        }
    }

    fn write_accepted(&mut self, message: &MessageRecord, dup: bool, now: UnixMillis) {
        self.write(ServerFrame::Accepted { message, dup }.encode(), now);
    }

    /// Starts to follow a session from `cursor` on. False when every followed session is busy and none can make room.
    pub(super) fn adopt(&mut self, record: &SessionRecord, cursor: u64) -> bool {
        if self.sessions.len() >= self.limits.sessions_max {
            let idlest = self.sessions.iter().filter(|(_, s)| s.is_idle()).min_by_key(|(_, s)| s.touched).map(|(id, _)| *id);
            match idlest {
                Some(id) => self.forget(id),
                None => return false,
            }
        }
        let touched = self.tick();
        self.sessions.insert(record.id, Box::new(Session::of(record, self.party.side, cursor, touched)));
        true
    }

    /// Takes a newer record of a followed session over.
    pub(super) fn update(&mut self, record: &SessionRecord, now: UnixMillis) {
        if let Some(session) = self.sessions.get_mut(&record.id) {
            session.user = record.user.clone();
            session.agent = record.agent.clone();
            session.shop = record.shop;
            session.closed = !record.open;
            if record.top.epoch > session.epoch {
                self.resync(record.id, record.top, "epoch", None, now);
            } else if record.top.epoch == session.epoch {
                self.reach(record.id, record.top.seq);
            }
        }
    }

    /// Where a followed session is known to be, in the epoch that its client counts in: a page of it that ends before lacks
    /// something.
    #[must_use]
    pub fn known_top(&self, session: SessionId) -> Option<Position> {
        self.sessions.get(&session).map(|session| Position { epoch: session.epoch, seq: session.top })
    }

    /// Events of the party were lost on their way here: all positions are compared at once.
    pub fn handle_loss(&mut self) {
        self.check_positions();
        self.after_input();
    }

    pub(super) fn forget(&mut self, id: SessionId) {
        if self.sessions.remove(&id).is_some_and(|session| session.fill == Fill::Checking) {
            // Only the answer to a page is waited for.
            self.reading.remove(&id);
        }
        self.fill_queue.retain(|queued| *queued != id);
        self.tops.wanted.remove(&id);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn want_fill(&mut self, id: SessionId) {
        if self.sessions.get(&id).is_some_and(|session| session.fill == Fill::Idle) {
            self.requeue(id);
        }
    }

    fn requeue(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.fill = Fill::Queued;
            self.fill_queue.push_back(id);
        }
    }

    /// Asks for pages while the socket keeps up. Sessions take turns, so a long replay does not starve the others.
    pub(super) fn pump_fills(&mut self) {
        while !self.is_closing() && self.reading.len() < self.limits.reads_max && self.outbox.bytes() <= self.limits.queue_bytes_max / 2 {
            // A session forgotten while its page was read and followed again waits for that answer to be gone.
            let Some(at) = self.fill_queue.iter().position(|id| !self.reading.contains(id)) else { return };
            let Some(id) = self.fill_queue.remove(at) else { return };
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.doubted {
                session.fill = Fill::Checking;
                self.reading.insert(id);
                self.look_up(id);
                continue;
            }
            session.fill = Fill::Reading;
            let page = Page::After { seq: session.cursor, limit: self.page_limit };
            self.reading.insert(id);
            self.outbox.ask(Output::ReadPage { session: id, page });
        }
    }

    /// Asks for the positions that are wanted, once the former question is answered.
    pub(super) fn pump_tops(&mut self) {
        if self.tops.asked.is_some() || self.tops.wanted.is_empty() || self.is_closing() {
            return;
        }
        let asked = std::mem::take(&mut self.tops.wanted);
        for id in &asked {
            if let Some(check) = self.sessions.get_mut(id).and_then(|s| s.replay.as_mut()).and_then(|replay| replay.check.as_mut()) {
                check.asked = true;
            }
        }
        self.outbox.ask(Output::ReadTops(asked.iter().copied().collect()));
        self.tops.asked = Some(asked);
    }

    /// Asks for the position of every followed session.
    pub(super) fn check_positions(&mut self) {
        self.tops.wanted.extend(self.sessions.keys());
    }

    /// When the next paused read is due.
    pub(super) fn next_fill(&self) -> Option<UnixMillis> {
        self.sessions.values().filter_map(|session| if let Fill::Waiting(at) = session.fill { Some(at) } else { None }).min()
    }

    /// Takes up paused reads that are due.
    pub(super) fn wake_fills(&mut self, now: UnixMillis) {
        let due: Vec<_> =
            self.sessions.iter().filter(|(_, session)| matches!(session.fill, Fill::Waiting(at) if at <= now)).map(|(id, _)| *id).collect();
        for id in due {
            self.requeue(id);
        }
    }

    pub(super) fn check_delivery_invariants(&self) {
        for (id, session) in &self.sessions {
            debug_assert!(session.cursor <= session.top, "{id}: cursor {} beyond top {}", session.cursor, session.top);
            debug_assert_eq!(session.fill == Fill::Queued, self.fill_queue.contains(id), "{id}");
            debug_assert!(session.fill != Fill::Idle || session.cursor == session.top, "{id}: a gap that nobody fills");
            debug_assert!(!matches!(session.fill, Fill::Reading | Fill::Checking) || self.reading.contains(id), "{id}");
        }
        debug_assert!(self.fill_queue.len() <= self.sessions.len());
    }
}

/// Pause after `attempts` tries: doubles from [`RETRY_FIRST`] up to [`RETRY_LONGEST`].
fn pause(attempts: u32) -> Duration {
    RETRY_FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(RETRY_LONGEST)
}
