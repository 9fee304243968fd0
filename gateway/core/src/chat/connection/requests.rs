//! Serving the client's frames: which rule each one meets, and the look-up of sessions the connection does not know yet.
//!
//! A session that is not followed is looked up once, with the ownership check of the ledger; whatever names it meanwhile
//! waits in order. A session of somebody else and one that does not exist get the same answer on the same road.

use std::collections::VecDeque;
use std::time::Duration;

use super::sends::Draft;
use super::{Answer, Connection, ConnectionLimits, Output, Unavailable};
use crate::chat::code::ErrorCode;
use crate::chat::event::Event;
use crate::chat::frame::{ClientBody, ErrorFrame, MessageKind, ReqId, ResumePosition, SEQ_END, ServerFrame};
use crate::chat::{MessageRecord, Page, ReadMark, SessionRecord, Side};
use crate::id::{ClientMsgId, SessionId};
use crate::principal::Role;
use crate::time::UnixMillis;

/// How often `typing` of one session is passed on; what comes faster is dropped.
const TYPING_EVERY: Duration = Duration::from_secs(1);

/// Session openings, and read marks beyond the known end of their session, that may be under way.
const OPENS_MAX: usize = 8;

/// What waits for the look-up of its session.
#[derive(Debug)]
pub(super) enum Deferred {
    Draft(Draft),
    Ack { seq: u64, req_id: Option<ReqId> },
    Typing { req_id: Option<ReqId> },
    History { before: Option<u64>, limit: u32, req_id: Option<ReqId> },
    Position { position: ResumePosition, req_id: Option<ReqId> },
    Stored { message: MessageRecord, dup: bool, origin: String },
}

/// Questions under way whose answers belong to one frame.
#[derive(Debug, Default)]
pub(super) struct Requests {
    histories: VecDeque<(SessionId, Page, Option<ReqId>)>,
    opens: VecDeque<Option<ReqId>>,
    /// Read marks above the highest seq known here: the ledger decides, each for itself.
    stray_marks: VecDeque<(SessionId, u64, Option<ReqId>)>,
}

impl Requests {
    pub(super) fn check_invariants(&self, limits: &ConnectionLimits) {
        debug_assert!(self.histories.len() <= limits.reads_max);
        debug_assert!(self.opens.len() <= OPENS_MAX);
        debug_assert!(self.stray_marks.len() <= OPENS_MAX);
    }
}

impl Connection {
    /// Carries a frame out.
    pub(super) fn serve(&mut self, req_id: Option<ReqId>, body: ClientBody, now: UnixMillis) {
        match body {
            ClientBody::Message { kind, session, content, client_msg_id } => {
                self.serve_message(kind, session, content, client_msg_id, req_id, now);
            }
            ClientBody::Ack { session, seq } => self.serve_or_defer(session, Deferred::Ack { seq, req_id }, now),
            // Arrival on a device is implied by what it resumes from; the frame shows that the client is alive.
            ClientBody::Recv { .. } => {}
            ClientBody::Resume { positions, notices } => {
                for position in positions {
                    self.serve_position(position, req_id.clone(), now);
                }
                if let Some(after) = notices {
                    self.resume_notices(after, req_id, now);
                }
            }
            ClientBody::History { session, before, limit } => {
                self.serve_or_defer(session, Deferred::History { before, limit, req_id }, now);
            }
            ClientBody::Typing { session } => self.serve_or_defer(session, Deferred::Typing { req_id }, now),
            ClientBody::Open { subject, shop } => {
                if self.role != Role::User {
                    self.error(req_id, None, ErrorCode::Forbidden, now);
                } else if self.requests.opens.len() >= OPENS_MAX {
                    self.error(req_id, None, ErrorCode::RateLimited, now);
                } else {
                    self.requests.opens.push_back(req_id);
                    self.outbox.ask(Output::OpenSession { shop, subject });
                }
            }
            ClientBody::Refresh { token } => {
                if self.liveness.start_refresh(req_id.clone()) {
                    self.outbox.ask(Output::VerifyToken(token));
                } else {
                    self.error(req_id, None, ErrorCode::RateLimited, now);
                }
            }
            ClientBody::Ping => self.write(&ServerFrame::Pong { req_id: req_id.as_ref() }.encode(), now),
            ClientBody::Close { .. } => self.unavailable("close", req_id, now),
            ClientBody::Transfer { .. } => self.unavailable("transfer", req_id, now),
            ClientBody::Status { .. } => self.unavailable("status", req_id, now),
            ClientBody::Recall { client_msg_id, .. } => {
                let frame = ErrorFrame { client_msg_id, ..not_available("recall", req_id) };
                self.write_error(&frame, now);
            }
        }
    }

    fn unavailable(&mut self, kind: &str, req_id: Option<ReqId>, now: UnixMillis) {
        self.write_error(&not_available(kind, req_id), now);
    }

    fn serve_message(
        &mut self,
        kind: MessageKind,
        session: SessionId,
        content: String,
        client_msg_id: Option<ClientMsgId>,
        req_id: Option<ReqId>,
        now: UnixMillis,
    ) {
        match client_msg_id.map_or_else(|| self.sends.next_id(self.conn_id.as_str()), Ok) {
            Ok(client_msg_id) => {
                let draft = Draft { kind, session, content, client_msg_id, req_id };
                self.serve_or_defer(session, Deferred::Draft(draft), now);
            }
            Err(_) => self.error(req_id, Some(session), ErrorCode::Internal, now),
        }
    }

    pub(super) fn serve_position(&mut self, position: ResumePosition, req_id: Option<ReqId>, now: UnixMillis) {
        self.serve_or_defer(position.session, Deferred::Position { position, req_id }, now);
    }

    /// Serves a request about a followed session, or looks the session up first.
    fn serve_or_defer(&mut self, session: SessionId, request: Deferred, now: UnixMillis) {
        if self.sessions.contains_key(&session) {
            self.serve_known(session, request, now);
        } else {
            self.defer(session, request, now);
        }
    }

    fn serve_known(&mut self, id: SessionId, request: Deferred, now: UnixMillis) {
        self.clock += 1;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.touched = self.clock;
        match request {
            Deferred::Draft(draft) => {
                let shop = session.shop;
                self.send(draft, shop, now);
            }
            Deferred::Ack { seq, req_id } => self.mark_read(id, seq, req_id, now),
            Deferred::Typing { .. } => {
                let other = match self.party.side {
                    Side::User => Side::Agent,
                    Side::Agent => Side::User,
                };
                let too_soon = session.typed_at.is_some_and(|at| now < at.plus(TYPING_EVERY));
                if let Some(to) = session.party(other).filter(|_| !too_soon) {
                    session.typed_at = Some(now);
                    let event = Event::Typing { session: id, by: self.party.side, writer: self.party.id.clone() };
                    self.outbox.ask(Output::Publish { to, event });
                }
            }
            Deferred::History { before, limit, req_id } => {
                if self.requests.histories.len() >= self.limits.reads_max || self.is_congested() {
                    self.error(req_id, Some(id), ErrorCode::BusyReplay, now);
                } else {
                    let page = Page::Before { seq: before.unwrap_or(SEQ_END), limit };
                    self.requests.histories.push_back((id, page, req_id));
                    self.outbox.ask(Output::ReadPage { session: id, page });
                }
            }
            Deferred::Position { position, req_id } => self.resume(position, req_id, now),
            Deferred::Stored { message, dup, origin } => self.on_stored(message, dup, origin, now),
        }
    }

    /// Lets a request wait for the look-up of its session.
    pub(super) fn defer(&mut self, session: SessionId, request: Deferred, now: UnixMillis) {
        let waiting = self.lookups.values().map(Vec::len).sum::<usize>();
        let known = self.lookups.contains_key(&session);
        if waiting >= self.limits.sends_max || (!known && self.lookups.len() >= self.limits.lookups_max) {
            self.refuse(session, request, ErrorCode::RateLimited, now);
            return;
        }
        self.lookups.entry(session).or_default().push(request);
        if !known {
            self.outbox.ask(Output::ReadSession(session));
        }
    }

    /// The answer to [`Output::ReadSession`].
    pub fn handle_session(&mut self, session: SessionId, answer: Answer<Option<SessionRecord>>, now: UnixMillis) {
        let waiting = self.lookups.remove(&session);
        debug_assert!(waiting.is_some() || self.is_closing(), "an answer to a question that was not asked");
        let waiting = waiting.unwrap_or_default();
        let refusal = match answer {
            Ok(Some(record)) if self.follow(&record, &waiting, now) => None,
            Ok(Some(_)) => Some(ErrorCode::RateLimited),
            Ok(None) => Some(ErrorCode::NotFound),
            Err(Unavailable) => Some(ErrorCode::Internal),
        };
        for request in waiting {
            match refusal {
                None => self.serve_known(session, request, now),
                Some(code) => self.refuse(session, request, code, now),
            }
        }
        self.after_input();
    }

    /// Follows a session that was looked up. When messages of it arrived meanwhile, the client is told of the session as it
    /// was before the first of them, so that it sees each of them come.
    fn follow(&mut self, record: &SessionRecord, waiting: &[Deferred], now: UnixMillis) -> bool {
        if self.sessions.contains_key(&record.id) {
            return true;
        }
        let first_heard = waiting
            .iter()
            .filter_map(|request| match request {
                Deferred::Stored { message, .. } if message.epoch == record.top.epoch => Some(message.seq.saturating_sub(1)),
                Deferred::Stored { .. }
                | Deferred::Draft(_)
                | Deferred::Ack { .. }
                | Deferred::Typing { .. }
                | Deferred::History { .. }
                | Deferred::Position { .. } => None,
            })
            .min();
        // A row heard but not yet visible to this read does not move the cursor beyond what the ledger has.
        let cursor = first_heard.unwrap_or(record.top.seq).min(record.top.seq);
        if !self.adopt(record, cursor) {
            return false;
        }
        if first_heard.is_some() {
            self.write(&ServerFrame::Opened { req_id: None, record, max_seq: cursor }.encode(), now);
        }
        true
    }

    /// Answers a request whose session cannot be used. A bus event is nobody's request and is dropped.
    fn refuse(&mut self, session: SessionId, request: Deferred, code: ErrorCode, now: UnixMillis) {
        match request {
            Deferred::Draft(draft) => {
                let code = if code == ErrorCode::Internal { ErrorCode::NotDurable } else { code };
                self.refuse_send(&draft, code, now);
            }
            Deferred::Ack { req_id, .. }
            | Deferred::Typing { req_id }
            | Deferred::History { req_id, .. }
            | Deferred::Position { req_id, .. } => self.error(req_id, Some(session), code, now),
            Deferred::Stored { .. } => {}
        }
    }

    /// `ack`: moves the read cursor of the party's side. Below it nothing happens; up to the known end of the session one mark
    /// is under way and the highest one wanted follows it; beyond, the ledger is asked, for it may know more.
    fn mark_read(&mut self, id: SessionId, seq: u64, req_id: Option<ReqId>, now: UnixMillis) {
        let side = self.party.side;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if seq <= session.read_seq {
            return;
        }
        if seq > session.top {
            if self.requests.stray_marks.len() >= OPENS_MAX {
                self.error(req_id, Some(id), ErrorCode::RateLimited, now);
            } else {
                self.requests.stray_marks.push_back((id, seq, req_id));
                self.outbox.ask(Output::MarkRead { session: id, side, seq });
            }
            return;
        }
        session.mark_wanted = session.mark_wanted.max(seq);
        if !session.marking {
            session.marking = true;
            self.outbox.ask(Output::MarkRead { session: id, side, seq: session.mark_wanted });
        }
    }

    /// The answer to [`Output::MarkRead`].
    pub fn handle_read_mark(&mut self, id: SessionId, seq: u64, answer: Answer<ReadMark>, now: UnixMillis) {
        let stray = self.requests.stray_marks.iter().position(|(session, asked, _)| (*session, *asked) == (id, seq));
        let is_stray = stray.is_some();
        let req_id = stray.and_then(|at| self.requests.stray_marks.remove(at)).and_then(|(_, _, req_id)| req_id);
        match answer {
            Ok(ReadMark::At { seq, unread }) => self.announce_read(id, seq, unread),
            Ok(ReadMark::OutOfRange) => self.error(req_id, Some(id), ErrorCode::AckOutOfRange, now),
            Ok(ReadMark::NotFound) => self.error(req_id, Some(id), ErrorCode::NotFound, now),
            Err(Unavailable) => self.error(req_id, Some(id), ErrorCode::Internal, now),
        }
        if !is_stray && let Some(session) = self.sessions.get_mut(&id) {
            session.marking = session.mark_wanted > seq && session.mark_wanted > session.read_seq;
            if session.marking {
                let seq = session.mark_wanted;
                self.outbox.ask(Output::MarkRead { session: id, side: self.party.side, seq });
            } else {
                session.mark_wanted = 0;
            }
        }
        self.after_input();
    }

    /// Tells every device of both sides.
    fn announce_read(&mut self, id: SessionId, seq: u64, unread: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.read_seq = session.read_seq.max(seq);
        let event = Event::Read { session: id, by: self.party.side, reader: self.party.id.clone(), seq, unread };
        let mut hearers = vec![self.party.clone()];
        hearers.extend(
            [Side::User, Side::Agent]
                .into_iter()
                .filter_map(|side| session.party(side))
                .filter(|party| (party.side, &party.id) != (self.party.side, &self.party.id)),
        );
        for to in hearers {
            self.outbox.ask(Output::Publish { to, event: event.clone() });
        }
    }

    /// The answer to a `ReadPage` of older messages. Where they are too many bytes for the queue the oldest are left out and
    /// `hasMore` says so.
    pub(super) fn on_history(&mut self, id: SessionId, page: Page, answer: Answer<Vec<MessageRecord>>, now: UnixMillis) {
        let at = self.requests.histories.iter().position(|(session, asked, _)| (*session, *asked) == (id, page));
        debug_assert!(at.is_some() || self.is_closing(), "an answer to a question that was not asked");
        let Some((_, _, req_id)) = at.and_then(|at| self.requests.histories.remove(at)) else { return };
        let Ok(messages) = answer else {
            self.error(req_id, Some(id), ErrorCode::Internal, now);
            return;
        };
        if self.is_congested() {
            self.error(req_id, Some(id), ErrorCode::BusyReplay, now);
            return;
        }
        let mut room = self.limits.queue_bytes_max;
        let fitting = messages
            .iter()
            .rev()
            .take_while(|message| {
                let bytes = message.content.len() + HISTORY_ROW_BYTES;
                let fits = room >= bytes;
                room = room.saturating_sub(bytes);
                fits
            })
            .count();
        let messages = &messages[messages.len() - fitting.max(1).min(messages.len())..];
        let has_more = messages.first().is_some_and(|oldest| oldest.seq > 1);
        self.write(&ServerFrame::History { req_id: req_id.as_ref(), session: id, messages, has_more }.encode(), now);
    }

    /// The answer to [`Output::OpenSession`].
    pub fn handle_opened(&mut self, answer: Answer<SessionRecord>, now: UnixMillis) {
        let asked = self.requests.opens.pop_front();
        debug_assert!(asked.is_some() || self.is_closing(), "an answer to a question that was not asked");
        let req_id = asked.flatten();
        match answer {
            Ok(record) => {
                if self.sessions.contains_key(&record.id) {
                    self.update(&record, now);
                } else if !self.adopt(&record, record.top.seq) {
                    self.error(req_id, Some(record.id), ErrorCode::RateLimited, now);
                    self.after_input();
                    return;
                }
                let max_seq = record.top.seq;
                self.write(&ServerFrame::Opened { req_id: req_id.as_ref(), record: &record, max_seq }.encode(), now);
            }
            Err(Unavailable) => self.error(req_id, None, ErrorCode::Internal, now),
        }
        self.after_input();
    }
}

/// Bytes of a message in `history` besides its content, at most: names, two ids of 64 bytes and numbers.
const HISTORY_ROW_BYTES: usize = 400;

fn not_available(kind: &str, req_id: Option<ReqId>) -> ErrorFrame {
    let message = format!("{kind} is not available on this server version").into();
    ErrorFrame { req_id, message, ..ErrorFrame::of(ErrorCode::UnknownType) }
}
