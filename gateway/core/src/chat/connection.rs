//! One chat connection as a state machine: frames, events and answers go in, things to do come out.
//!
//! What lives here: the rules of delivery (a client sees each seq once, in order, without a gap), of sending (a sender's
//! order survives failures), and of ending (token, heartbeat, slowness). `delivery` moves messages to the client, `sends` moves
//! them from it, `marks` moves cursors, `notices` replays what else the party was told, `requests` serves the other frames,
//! `guard` checks what frames must prove, `liveness` watches the clock, `session` and `output` are the nouns, `limits` the bounds.
//! What never happens here: I/O, waiting, reading a clock. The socket shell calls `handle_*`, then drains
//! [`Connection::poll_output`], then waits for the next input or for [`Connection::poll_timeout`].
//!
//! A message reaches a client on one of two roads: a live event whose seq is exactly the next one, or a page of the ledger.
//! While pages are read for a session its live events only raise `top`, so the two roads never meet.

mod delivery;
mod guard;
mod limits;
mod liveness;
mod marks;
mod notices;
mod output;
mod requests;
mod sends;
mod session;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use limits::ConnectionLimits;
pub use liveness::TokenCheck;
pub use output::Output;
pub use sends::SendOutcome;

use self::delivery::Tops;
use self::guard::Guard;
use self::liveness::Liveness;
use self::notices::Notices;
use self::output::Outbox;
use self::requests::{Deferred, Requests};
use self::sends::Sends;
use self::session::Session;
use crate::chat::code::{CloseCode, ErrorCode};
use crate::chat::event::{Event, Heard};
use crate::chat::frame::{ClientFrame, ErrorFrame, FrameError, ReqId, ServerFrame, SessionEntry};
use crate::chat::{AgentState, Party, SessionRecord};
use crate::id::{DeviceId, InvalidId, SessionId, ShopId};
use crate::principal::{Principal, Role};
use crate::time::UnixMillis;

/// Outputs that may wait at once; beyond, the shell has stopped performing them. The bounds of the single kinds add up to
/// less (every session can wait for one read mark and its two notices).
const ASKS_MAX: usize = 4_096;

/// Bytes waiting for the socket, as a multiple of `queue_bytes_max`, at which the connection is given up. Pushes stop at
/// one; only answers to the client's own frames and a page's last message go beyond.
const HARD_LIMIT: usize = 4;

/// A connection's name: unique among all nodes for as long as its messages may be under way. 1 to 40 printable ASCII bytes,
/// which leaves room for a counter in a `clientMsgId`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(String);

impl ConnId {
    /// Checks alphabet and length.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let fits = (1..=40).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidId { kind: "connection id" }) }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A store did not answer, or not in time. What it was asked may or may not have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

/// The answer of a store.
pub type Answer<T> = Result<T, Unavailable>;

/// What a connection starts from. The subscription to the party's subject must exist before `sessions` are read, so that
/// nothing falls between the two.
#[derive(Debug, Clone)]
pub struct Start {
    /// Whose connection.
    pub party: Party,
    /// What its token proved; `id` is the party's.
    pub principal: Principal,
    /// Its name.
    pub conn_id: ConnId,
    /// The party's open sessions, latest activity first.
    pub sessions: Vec<SessionRecord>,
    /// `last_ack_seq` of the URL, with `sessionId` if given.
    pub resume: Option<(Option<SessionId>, u64)>,
    /// `last_ack_seq` of the URL, with the `sessionId` of the notices.
    pub notices: Option<u64>,
    /// The device, as the URL names it.
    pub device: Option<DeviceId>,
    /// The key of signed frames, drawn for this connection; `None` when the deployment hands out none.
    pub frame_key: Option<[u8; 32]>,
    /// What an agent says of itself; `None` for a user.
    pub state: Option<AgentState>,
    /// Whether texts hold several frames, one a line (`batch=1` of the URL).
    pub batch: bool,
}

/// What became of [`Output::Transfer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transferred {
    /// Done; the session afterwards.
    Done(Box<SessionRecord>),
    /// It is not the party's to hand over, or somebody else was faster.
    NotFound,
    /// The shop has no such agent.
    NoSuchAgent,
}

/// The state machine of one connection.
#[derive(Debug)]
pub struct Connection {
    party: Party,
    role: Role,
    token_shop: Option<ShopId>,
    conn_id: ConnId,
    /// The name of the device it speaks for.
    device: Option<DeviceId>,
    /// Whether a text from the client may hold several frames.
    batch: bool,
    limits: Arc<ConnectionLimits>,
    /// Boxed, for a map keeps room for eleven and most connections follow one.
    sessions: BTreeMap<SessionId, Box<Session>>,
    /// Sessions to read pages of, each at most once; those under way.
    fill_queue: VecDeque<SessionId>,
    reading: BTreeSet<SessionId>,
    /// Messages to ask for in the next page: fewer after a page that did not fit the queue.
    page_limit: u32,
    tops: Tops,
    /// What waits for the look-up of an unknown session.
    lookups: BTreeMap<SessionId, Vec<Deferred>>,
    guard: Guard,
    sends: Sends,
    requests: Requests,
    notices: Notices,
    liveness: Liveness,
    /// Counts activity; see [`Session::touched`].
    clock: u64,
    outbox: Outbox,
}

impl Connection {
    /// Starts: `hello` is the first output, followed by the answer to `last_ack_seq`. Limits may be shared by all connections.
    #[must_use]
    pub fn new(start: Start, limits: impl Into<Arc<ConnectionLimits>>, now: UnixMillis) -> Self {
        let limits = limits.into();
        let Start { party, principal, conn_id, mut sessions, resume, notices, device, frame_key, state, batch } = start;
        debug_assert_eq!(party.id, principal.id);
        sessions.truncate(limits.sessions_max);
        let mut connection = Self {
            liveness: Liveness::new(principal.expires_at, &limits, now),
            page_limit: limits.frame.page_max,
            party,
            role: principal.role,
            token_shop: principal.shop,
            conn_id,
            device,
            batch,
            limits: limits.clone(),
            sessions: BTreeMap::new(),
            fill_queue: VecDeque::new(),
            reading: BTreeSet::new(),
            tops: Tops::default(),
            lookups: BTreeMap::new(),
            guard: Guard::new(frame_key),
            sends: Sends::default(),
            requests: Requests::default(),
            notices: Notices::default(),
            clock: 0,
            outbox: Outbox::new(batch.then_some(limits.frame.bytes_max)),
        };
        connection.write(
            ServerFrame::Hello {
                conn_id: connection.conn_id.as_str(),
                heartbeat: limits.heartbeat,
                now,
                bytes_max: limits.frame.bytes_max,
                page_max: limits.frame.page_max,
                reconnect_within: limits.reconnect_within,
                device: connection.device.as_ref(),
                state,
                frame_key: frame_key.as_ref(),
                sessions: sessions.iter().map(|record| SessionEntry::of(record, connection.party.side)).collect(),
            }
            .encode(),
            now,
        );
        for record in &sessions {
            connection.adopt(record, record.top.seq);
        }
        if let Some((session, last_seq)) = resume {
            connection.resume_from_url(session, last_seq, now);
        }
        if let Some(after) = notices {
            connection.resume_notices(after, None, now);
        }
        connection.after_input();
        connection
    }

    /// A text arrived: one frame, or with `batch` one a line. Parses and carries out, or answers why not.
    pub fn handle_text(&mut self, text: &str, now: UnixMillis) {
        let batch = self.batch;
        let text = text.strip_suffix('\n').filter(|_| batch).unwrap_or(text);
        for frame in text.split(|c| batch && c == '\n') {
            match ClientFrame::parse(frame, &self.limits.frame) {
                Ok(frame) => self.handle_frame(frame, now),
                Err(fault) => self.handle_frame_error(&fault, now),
            }
        }
    }

    /// A frame arrived.
    pub fn handle_frame(&mut self, frame: ClientFrame, now: UnixMillis) {
        self.liveness.heard(now);
        self.take_in(frame, now);
        self.after_input();
    }

    /// A frame arrived that cannot be carried out.
    pub fn handle_frame_error(&mut self, fault: &FrameError, now: UnixMillis) {
        self.liveness.heard(now);
        self.reject(fault, now);
        self.after_input();
    }

    fn reject(&mut self, fault: &FrameError, now: UnixMillis) {
        self.write_error(&fault.0, now);
        if self.liveness.made_no_sense() >= self.limits.misuse_max {
            self.close(CloseCode::Misuse);
        }
    }

    /// A pong arrived.
    pub fn handle_pong(&mut self, now: UnixMillis) {
        self.liveness.heard(now);
        self.after_input();
    }

    /// An event arrived on the party's subject.
    pub fn handle_event(&mut self, heard: &Heard, now: UnixMillis) {
        self.apply(heard, now);
        self.after_input();
    }

    fn apply(&mut self, heard: &Heard, now: UnixMillis) {
        match &heard.event {
            Event::Stored { message, dup, origin, shop: _, user: _, agent } => {
                if let Some(session) = self.sessions.get_mut(&message.session).filter(|session| session.agent.is_none()) {
                    // The word of the assignment may have been lost. An agent that is known is not replaced: this may be old.
                    session.agent.clone_from(agent);
                }
                self.on_stored(message, *dup, origin, Some(heard), now);
            }
            Event::Refused { client_msg_id, session, origin, code } => {
                if origin == self.conn_id.as_str() {
                    let req_id = self.sends.settle(*session, client_msg_id);
                    let (session_id, client_msg_id) = (Some(*session), Some(client_msg_id.clone()));
                    self.write_error(&ErrorFrame { req_id, session_id, client_msg_id, ..ErrorFrame::of(*code) }, now);
                }
            }
            Event::Assigned { session, reason } => self.on_assigned(session, reason, now),
            Event::Read { session, by, reader, seq, unread } => {
                if let Some(state) = self.sessions.get_mut(session) {
                    if *by == self.party.side {
                        state.read.side = state.read.side.max(*seq);
                        state.received.side = state.received.side.max(*seq);
                    }
                    self.write(ServerFrame::Read { session: *session, by: (*by, reader), last_seq: *seq, unread: *unread }.encode(), now);
                }
            }
            Event::Received { session, by, reader, seq } => {
                if let Some(state) = self.sessions.get_mut(session) {
                    if *by == self.party.side {
                        state.received.side = state.received.side.max(*seq);
                    } else if !self.is_full() {
                        self.write(ServerFrame::Delivered { session: *session, by: (*by, reader), last_seq: *seq }.encode(), now);
                    }
                }
            }
            Event::Closed { session, by, closer } => self.tell_closed(*session, None, Some((*by, closer)), now),
            notice @ Event::SaleResult { .. } => self.on_notice(notice, now),
            Event::Typing { session, by, writer } => {
                if self.sessions.contains_key(session) && !self.is_full() {
                    self.write(ServerFrame::Typing { session: *session, by: (*by, writer) }.encode(), now);
                }
            }
            Event::Presence { side, id, state } => {
                if !self.is_full() {
                    self.write(ServerFrame::Presence { who: (*side, id), state: *state }.encode(), now);
                }
            }
            Event::Waiting { count } => {
                if !self.is_full() {
                    self.write(ServerFrame::Waiting { count: *count }.encode(), now);
                }
            }
            Event::Overdue { session, clock, shows } => {
                self.write(ServerFrame::Overdue { session: *session, clock: *clock, shows: *shows }.encode(), now);
            }
        }
    }

    /// The node hands its connections over: tells the client to connect again, not before `after`. The shell closes with
    /// [`CloseCode::Migrate`] when its patience ends.
    pub fn handle_drain(&mut self, after: Duration, now: UnixMillis) {
        self.write(ServerFrame::Migrate { after }.encode(), now);
        self.after_input();
    }

    /// Ends the connection once the frames that wait are written. Nothing that happens later has an effect.
    pub fn close(&mut self, code: CloseCode) {
        self.outbox.close(code);
    }

    /// The right to be here was withdrawn: ends the connection at once. Frames that wait are not written any more.
    pub fn revoke(&mut self) {
        self.outbox.close_at_once(CloseCode::Forbidden);
    }

    /// The next thing to do; `None` when there is nothing until the next input or timeout. Requests to the world come before
    /// frames, [`Output::Close`] comes last. The shell may hold one [`Output::Write`] while the socket does not take it.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outbox.pop();
        self.pump_fills();
        output.or_else(|| self.outbox.pop())
    }

    /// The next request to the world, leaving frames where they are: for a shell whose socket is not taking any now.
    pub fn poll_ask(&mut self) -> Option<Output> {
        self.outbox.pop_ask()
    }

    /// Whether so much waits, for the socket or for nonces, that the shell should read no more frames until some of it is gone.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.is_full() || self.guard.waiting() >= self.limits.sends_max
    }

    /// Whether so much waits for the socket that nothing more is pushed.
    fn is_full(&self) -> bool {
        self.outbox.bytes() >= self.limits.queue_bytes_max
    }

    /// Whether the connection has ended or is about to.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.outbox.is_closing()
    }

    /// Its name.
    #[must_use]
    pub fn conn_id(&self) -> &ConnId {
        &self.conn_id
    }

    /// Whose it is.
    #[must_use]
    pub fn party(&self) -> &Party {
        &self.party
    }

    fn write(&mut self, frame: String, now: UnixMillis) {
        self.outbox.write(frame.into(), now);
    }

    fn write_error(&mut self, frame: &ErrorFrame, now: UnixMillis) {
        self.outbox.write(frame.encode().into(), now);
    }

    fn error(&mut self, req_id: Option<ReqId>, session: Option<SessionId>, code: ErrorCode, now: UnixMillis) {
        let retry_after = code.is_temporary().then_some(Duration::from_secs(1));
        self.write_error(&ErrorFrame { req_id, session_id: session, retry_after, ..ErrorFrame::of(code) }, now);
    }

    /// What every input ends with.
    fn after_input(&mut self) {
        self.pump_tops();
        self.pump_fills();
        if self.outbox.bytes() > self.limits.queue_bytes_max.saturating_mul(HARD_LIMIT) || self.outbox.asks() > ASKS_MAX {
            self.outbox.close_at_once(CloseCode::Slow);
        }
        self.check_invariants();
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.sessions.len() <= self.limits.sessions_max);
        debug_assert!(self.reading.len() <= self.limits.reads_max);
        debug_assert!(self.lookups.len() <= self.limits.lookups_max + self.limits.reads_max);
        debug_assert!(self.lookups.values().map(Vec::len).sum::<usize>() <= self.limits.sends_max);
        debug_assert!((1..=self.limits.frame.page_max).contains(&self.page_limit));
        self.guard.check_invariants();
        self.sends.check_invariants(self.limits.sends_max);
        self.requests.check_invariants(&self.limits);
        self.notices.check_invariants();
        self.outbox.check_invariants();
        self.check_delivery_invariants();
    }
}
