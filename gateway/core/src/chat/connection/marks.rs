//! The party's cursors: what arrived on this device and what was read on it.
//!
//! One mark of a session is under way at a time and the highest one wanted follows it, so a client that marks every message
//! costs no more than one that marks the last. What never happens here: moving a cursor back, or counting unread messages.

use super::requests::OPENS_MAX;
use super::session::Session;
use super::{Answer, Connection, Output, Unavailable};
use crate::chat::code::ErrorCode;
use crate::chat::event::Event;
use crate::chat::frame::ReqId;
use crate::chat::{Cursor, Mark, MarkOutcome, Party, Side};
use crate::id::{DeviceId, SessionId};
use crate::time::UnixMillis;

/// A mark above the highest seq known here: the ledger decides, each for itself.
#[derive(Debug)]
pub(super) struct Stray {
    session: SessionId,
    cursor: Cursor,
    seq: u64,
    req_id: Option<ReqId>,
}

impl Connection {
    /// `ack` and `recv`. Below the cursor nothing happens; beyond the known end of the session the ledger is asked, for it may
    /// know more.
    pub(super) fn mark(&mut self, id: SessionId, cursor: Cursor, seq: u64, req_id: Option<ReqId>, now: UnixMillis) {
        let named = self.device.is_some();
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let top = session.top;
        let progress = session.progress(cursor);
        if seq <= progress.reached(named) {
            return;
        }
        if seq <= top {
            progress.wanted = progress.wanted.max(seq);
            self.pump_marks(id);
        } else if self.requests.stray_marks.len() >= OPENS_MAX {
            self.error(req_id, Some(id), ErrorCode::RateLimited, now);
        } else {
            self.requests.stray_marks.push_back(Stray { session: id, cursor, seq, req_id });
            self.ask_mark(id, cursor, seq);
        }
    }

    /// Asks for the next mark of a session unless one is under way. What is read has arrived, so reading goes first.
    fn pump_marks(&mut self, id: SessionId) {
        let named = self.device.is_some();
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.marking) else { return };
        let due = [Cursor::Read, Cursor::Received].into_iter().find_map(|cursor| Some((cursor, session.progress(cursor).due(named)?)));
        if let Some((cursor, seq)) = due {
            session.marking = true;
            self.ask_mark(id, cursor, seq);
        }
    }

    fn ask_mark(&mut self, session: SessionId, cursor: Cursor, seq: u64) {
        let mark = Mark { session, reader: self.party.clone(), device: self.device.clone(), cursor, seq };
        self.outbox.ask(Output::Mark(mark));
    }

    /// The answer to [`Output::Mark`].
    pub fn handle_mark(&mut self, mark: &Mark, answer: Answer<MarkOutcome>, now: UnixMillis) {
        let Mark { session: id, cursor, seq, .. } = *mark;
        let asked = |stray: &Stray| (stray.session, stray.cursor, stray.seq) == (id, cursor, seq);
        let stray = self.requests.stray_marks.iter().position(asked).and_then(|at| self.requests.stray_marks.remove(at));
        let is_stray = stray.is_some();
        let req_id = stray.and_then(|stray| stray.req_id);
        match answer {
            Ok(MarkOutcome::At { seq: side, unread }) => self.on_marked(mark, side, unread),
            Ok(MarkOutcome::OutOfRange) => self.error(req_id, Some(id), ErrorCode::AckOutOfRange, now),
            Ok(MarkOutcome::NotFound) => self.error(req_id, Some(id), ErrorCode::NotFound, now),
            Err(Unavailable) => self.error(req_id, Some(id), ErrorCode::Internal, now),
        }
        if !is_stray && let Some(session) = self.sessions.get_mut(&id) {
            session.marking = false;
            // One that failed is not tried again by itself: the client's next mark goes beyond it.
            let progress = session.progress(cursor);
            if progress.wanted <= seq {
                progress.wanted = 0;
            }
            self.pump_marks(id);
        }
        self.after_input();
    }

    /// A cursor was moved; the side's stands at `side`. Tells whom it concerns when that is news.
    fn on_marked(&mut self, mark: &Mark, side: u64, unread: u64) {
        let same_device = mark.device == self.device;
        let Some(session) = self.sessions.get_mut(&mark.session) else { return };
        if mark.cursor == Cursor::Read {
            session.received.side = session.received.side.max(side);
            session.received.moved = session.received.moved.max(if same_device { mark.seq } else { 0 });
        }
        let progress = session.progress(mark.cursor);
        progress.moved = progress.moved.max(if same_device { mark.seq } else { 0 });
        let is_news = side > progress.side;
        progress.side = progress.side.max(side);
        if !is_news {
            return;
        }
        let (by, reader) = (self.party.side, self.party.id.clone());
        let (event, hearers) = match mark.cursor {
            Cursor::Read => {
                let event = Event::Read { session: mark.session, by, reader, seq: side, unread };
                (event, concerned(session, &self.party))
            }
            Cursor::Received => {
                let event = Event::Received { session: mark.session, by, reader, seq: side };
                (event, session.party(by.other()).into_iter().collect())
            }
        };
        for to in hearers {
            self.outbox.ask(Output::Publish { to, event: event.clone() });
        }
    }

    /// The device this connection speaks for has a name, perhaps another one than before: what the former one has is not its.
    pub(super) fn name_device(&mut self, device: DeviceId) {
        if self.device.as_ref() != Some(&device) {
            self.device = Some(device);
            for session in self.sessions.values_mut() {
                session.read.moved = 0;
                session.received.moved = 0;
            }
        }
    }
}

/// The marking party and both sides of the session, each once.
fn concerned(session: &Session, marker: &Party) -> Vec<Party> {
    let others = [Side::User, Side::Agent].into_iter().filter_map(|side| session.party(side));
    let others = others.filter(|party| (party.side, &party.id) != (marker.side, &marker.id));
    std::iter::once(marker.clone()).chain(others).collect()
}
