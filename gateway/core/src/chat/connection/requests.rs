//! Serving the client's frames: which rule each one meets, and the look-up of sessions the connection does not know yet.
//!
//! A session that is not followed is looked up once, with the ownership check of the ledger; whatever names it meanwhile
//! waits in order. A session of somebody else and one that does not exist get the same answer on the same road.

use std::collections::VecDeque;
use std::time::Duration;

use super::marks::Stray;
use super::sends::Draft;
use super::{Answer, Connection, ConnectionLimits, Output, Transferred, Unavailable};
use crate::chat::code::ErrorCode;
use crate::chat::event::Event;
use crate::chat::frame::{ClientBody, ErrorFrame, ReqId, ResumePosition, SEQ_END, ServerFrame};
use crate::chat::{AgentState, Cursor, MessageRecord, Page, RECALLED, SessionRecord, Side};
use crate::id::{ClientMsgId, PrincipalId, SessionId};
use crate::principal::Role;
use crate::time::UnixMillis;

/// How often `typing` of one session is passed on; what comes faster is dropped.
const TYPING_EVERY: Duration = Duration::from_secs(1);

/// Session openings, closings, transfers, states, and marks beyond the known end of their session, that may be under way, each.
pub(super) const OPENS_MAX: usize = 8;

/// What waits for the look-up of its session.
#[derive(Debug)]
pub(super) enum Deferred {
    Draft(Draft),
    Mark { cursor: Cursor, seq: u64, req_id: Option<ReqId> },
    Typing { req_id: Option<ReqId> },
    History { before: Option<u64>, limit: u32, req_id: Option<ReqId> },
    Position { position: ResumePosition, req_id: Option<ReqId> },
    Close { req_id: Option<ReqId> },
    Stored { message: MessageRecord, dup: bool, origin: String },
}

/// Questions under way whose answers belong to one frame.
#[derive(Debug, Default)]
pub(super) struct Requests {
    histories: VecDeque<(SessionId, Page, Option<ReqId>)>,
    opens: VecDeque<Option<ReqId>>,
    pub(super) stray_marks: VecDeque<Stray>,
    closes: VecDeque<(SessionId, Option<ReqId>)>,
    transfers: VecDeque<(SessionId, Option<ReqId>)>,
    /// What an agent says of itself; the first one is under way.
    states: VecDeque<(AgentState, Option<u32>, Option<ReqId>)>,
}

impl Requests {
    pub(super) fn check_invariants(&self, limits: &ConnectionLimits) {
        debug_assert!(self.histories.len() <= limits.reads_max);
        debug_assert!(self.opens.len() <= OPENS_MAX);
        debug_assert!(self.stray_marks.len() <= OPENS_MAX);
        debug_assert!(self.closes.len() <= OPENS_MAX);
        debug_assert!(self.transfers.len() <= OPENS_MAX);
        debug_assert!(self.states.len() <= OPENS_MAX);
    }
}

impl Connection {
    /// Carries a frame out that `came` then.
    pub(super) fn serve(&mut self, req_id: Option<ReqId>, body: ClientBody, came: UnixMillis, now: UnixMillis) {
        match body {
            ClientBody::Message { kind, session, content, client_msg_id } => {
                let kind = kind.as_str();
                let draft = |client_msg_id| Draft { kind, session, content, client_msg_id, req_id, came };
                self.serve_message(client_msg_id, draft, now);
            }
            ClientBody::Ack { session, seq } => {
                self.serve_or_defer(session, Deferred::Mark { cursor: Cursor::Read, seq, req_id }, now);
            }
            ClientBody::Recv { session, seq } => {
                self.serve_or_defer(session, Deferred::Mark { cursor: Cursor::Received, seq, req_id }, now);
            }
            ClientBody::Resume { positions, notices, device } => {
                if let Some(device) = device {
                    self.name_device(device);
                }
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
            ClientBody::Ping => self.write(ServerFrame::Pong { req_id: req_id.as_ref() }.encode(), now),
            ClientBody::Close { session } => self.serve_or_defer(session, Deferred::Close { req_id }, now),
            ClientBody::Transfer { session, to } => self.serve_transfer(session, to, req_id, now),
            ClientBody::Status { state, open_max } => self.serve_status(state, open_max, req_id, now),
            ClientBody::Recall { session, seq, client_msg_id } => {
                let draft = |client_msg_id| Draft { kind: RECALLED, session, content: seq.to_string(), client_msg_id, req_id, came };
                self.serve_message(client_msg_id, draft, now);
            }
            // Unwrapped by the guard before it comes here.
            ClientBody::Signed { .. } => self.error(req_id, None, ErrorCode::UnknownType, now),
        }
    }

    /// Whoever performs it finds out whether the session is the agent's to hand over or to take.
    fn serve_transfer(&mut self, session: SessionId, to: Option<PrincipalId>, req_id: Option<ReqId>, now: UnixMillis) {
        if self.role != Role::Agent {
            self.error(req_id, Some(session), ErrorCode::Forbidden, now);
        } else if self.requests.transfers.len() >= OPENS_MAX {
            self.error(req_id, Some(session), ErrorCode::RateLimited, now);
        } else {
            self.requests.transfers.push_back((session, req_id));
            self.outbox.ask(Output::Transfer { session, to });
        }
    }

    fn serve_status(&mut self, state: AgentState, open_max: Option<u32>, req_id: Option<ReqId>, now: UnixMillis) {
        if self.role != Role::Agent {
            self.error(req_id, None, ErrorCode::Forbidden, now);
        } else if self.requests.states.len() >= OPENS_MAX {
            self.error(req_id, None, ErrorCode::RateLimited, now);
        } else {
            self.requests.states.push_back((state, open_max, req_id));
            if self.requests.states.len() == 1 {
                self.ask_state();
            }
        }
    }

    /// A message, with an id of our own where the client gave none.
    fn serve_message(&mut self, given: Option<ClientMsgId>, draft: impl FnOnce(ClientMsgId) -> Draft, now: UnixMillis) {
        match given.map_or_else(|| self.sends.next_id(self.conn_id.as_str()), Ok) {
            Ok(client_msg_id) => {
                let draft = draft(client_msg_id);
                self.serve_or_defer(draft.session, Deferred::Draft(draft), now);
            }
            Err(_) => self.error(None, None, ErrorCode::Internal, now),
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
            Deferred::Mark { cursor, seq, req_id } => self.mark(id, cursor, seq, req_id, now),
            Deferred::Typing { .. } => {
                let too_soon = session.typed_at.is_some_and(|at| now < at.plus(TYPING_EVERY));
                if let Some(to) = session.party(self.party.side.other()).filter(|_| !too_soon) {
                    session.typed_at = Some(now);
                    let event = Event::Typing { session: id, by: self.party.side, writer: self.party.id.clone() };
                    self.outbox.ask(Output::Publish { to, event });
                }
            }
            Deferred::History { before, limit, req_id } => {
                if self.requests.histories.len() >= self.limits.reads_max || self.is_full() {
                    self.error(req_id, Some(id), ErrorCode::BusyReplay, now);
                } else {
                    let page = Page::Before { seq: before.unwrap_or(SEQ_END), limit };
                    self.requests.histories.push_back((id, page, req_id));
                    self.outbox.ask(Output::ReadPage { session: id, page });
                }
            }
            Deferred::Position { position, req_id } => self.resume(position, req_id, now),
            Deferred::Close { req_id } => {
                if self.requests.closes.len() >= OPENS_MAX {
                    self.error(req_id, Some(id), ErrorCode::RateLimited, now);
                    return;
                }
                // One question serves all who ask.
                if self.requests.closes.iter().all(|(asked, _)| *asked != id) {
                    self.outbox.ask(Output::CloseSession(id));
                }
                self.requests.closes.push_back((id, req_id));
            }
            Deferred::Stored { message, dup, origin } => self.on_stored(&message, dup, &origin, None, now),
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
        self.look_up(session).push(request);
    }

    /// What waits for the look-up of a session, which is under way from now on.
    pub(super) fn look_up(&mut self, session: SessionId) -> &mut Vec<Deferred> {
        let outbox = &mut self.outbox;
        self.lookups.entry(session).or_insert_with(|| {
            outbox.ask(Output::ReadSession(session));
            Vec::new()
        })
    }

    /// The answer to [`Output::ReadSession`].
    pub fn handle_session(&mut self, session: SessionId, answer: Answer<Option<SessionRecord>>, now: UnixMillis) {
        let waiting = self.lookups.remove(&session);
        debug_assert!(waiting.is_some() || self.is_closing(), "an answer to a question that was not asked");
        let waiting = waiting.unwrap_or_default();
        let followed = self.sessions.contains_key(&session);
        self.on_checked(session, answer.as_ref().map(Option::is_some), now);
        let refusal = match answer {
            // It was forgotten meanwhile, and nobody asks for it any more.
            Ok(Some(_)) if !followed && waiting.is_empty() => None,
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
                | Deferred::Mark { .. }
                | Deferred::Typing { .. }
                | Deferred::History { .. }
                | Deferred::Position { .. }
                | Deferred::Close { .. } => None,
            })
            .min();
        // A row heard but not yet visible to this read does not move the cursor beyond what the ledger has.
        let cursor = first_heard.unwrap_or(record.top.seq).min(record.top.seq);
        if !self.adopt(record, cursor) {
            return false;
        }
        if first_heard.is_some() {
            self.write(ServerFrame::Opened { req_id: None, record, max_seq: cursor }.encode(), now);
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
            Deferred::Mark { req_id, .. }
            | Deferred::Typing { req_id }
            | Deferred::History { req_id, .. }
            | Deferred::Position { req_id, .. }
            | Deferred::Close { req_id } => self.error(req_id, Some(session), code, now),
            Deferred::Stored { .. } => {}
        }
    }

    /// The answer to [`Output::CloseSession`]: the session afterwards, and whether it was open. It answers everybody who asked.
    pub fn handle_session_closed(&mut self, session: SessionId, answer: Answer<Option<(SessionRecord, bool)>>, now: UnixMillis) {
        let asked = self.requests.closes.iter().any(|(id, _)| *id == session);
        debug_assert!(asked || self.is_closing(), "an answer to a question that was not asked");
        let (answered, others) = std::mem::take(&mut self.requests.closes).into_iter().partition(|(id, _)| *id == session);
        self.requests.closes = others;
        let answered: VecDeque<(SessionId, Option<ReqId>)> = answered;
        for (_, req_id) in answered {
            match &answer {
                Ok(Some((_, was_open))) => {
                    let party = self.party.clone();
                    self.tell_closed(session, req_id.as_ref(), was_open.then_some((party.side, &party.id)), now);
                }
                Ok(None) => self.error(req_id, Some(session), ErrorCode::NotFound, now),
                Err(Unavailable) => self.error(req_id, Some(session), ErrorCode::Internal, now),
            }
        }
        if let Ok(Some((record, _))) = &answer {
            self.update(record, now);
        }
        self.after_input();
    }

    /// Says that a session is closed: to whom asked, else once.
    pub(super) fn tell_closed(&mut self, id: SessionId, req_id: Option<&ReqId>, by: Option<(Side, &PrincipalId)>, now: UnixMillis) {
        let known = self.sessions.get_mut(&id).is_some_and(|session| std::mem::replace(&mut session.closed, true));
        if req_id.is_some() || !known {
            self.write(ServerFrame::Closed { req_id, session: id, by }.encode(), now);
        }
    }

    /// The answer to [`Output::Transfer`].
    pub fn handle_transferred(&mut self, session: SessionId, answer: Answer<Transferred>, now: UnixMillis) {
        let at = self.requests.transfers.iter().position(|(id, _)| *id == session);
        debug_assert!(at.is_some() || self.is_closing(), "an answer to a question that was not asked");
        let req_id = at.and_then(|at| self.requests.transfers.remove(at)).and_then(|(_, req_id)| req_id);
        match answer {
            Ok(Transferred::Done(record)) => {
                let to = record.agent.as_ref();
                self.write(ServerFrame::Transferred { req_id: req_id.as_ref(), session, to }.encode(), now);
                self.keep_or_forget(&record, now);
            }
            Ok(Transferred::NotFound) => self.error(req_id, Some(session), ErrorCode::NotFound, now),
            Ok(Transferred::NoSuchAgent) => {
                let message = "the shop has no such agent".into();
                let frame = ErrorFrame { req_id, message, session_id: Some(session), ..ErrorFrame::of(ErrorCode::BadRequest) };
                self.write_error(&frame, now);
            }
            Err(Unavailable) => self.error(req_id, Some(session), ErrorCode::Internal, now),
        }
        self.after_input();
    }

    /// The answer to [`Output::SetState`].
    pub fn handle_state_set(&mut self, answer: Answer<()>, now: UnixMillis) {
        let asked = self.requests.states.pop_front();
        debug_assert!(asked.is_some() || self.is_closing(), "an answer to a question that was not asked");
        if let Some((state, _, req_id)) = asked {
            match answer {
                Ok(()) => self.write(ServerFrame::Status { req_id: req_id.as_ref(), state }.encode(), now),
                Err(Unavailable) => self.error(req_id, None, ErrorCode::Internal, now),
            }
        }
        self.ask_state();
        self.after_input();
    }

    /// Asks for the agent's next state: one at a time, so that the last word is the one that counts.
    fn ask_state(&mut self) {
        if let Some((state, open_max, _)) = self.requests.states.front() {
            self.outbox.ask(Output::SetState { state: *state, open_max: *open_max });
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
        if self.is_full() {
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
        self.write(ServerFrame::History { req_id: req_id.as_ref(), session: id, messages, has_more }.encode(), now);
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
                self.write(ServerFrame::Opened { req_id: req_id.as_ref(), record: &record, max_seq }.encode(), now);
            }
            Err(Unavailable) => self.error(req_id, None, ErrorCode::Internal, now),
        }
        self.after_input();
    }
}

/// Bytes of a message in `history` besides its content, at most: names, two ids of 64 bytes and numbers.
const HISTORY_ROW_BYTES: usize = 400;
