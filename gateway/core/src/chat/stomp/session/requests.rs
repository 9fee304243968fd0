//! What was asked of the connection and is not answered: one thing at a time where order matters, and again after a refusal that
//! may pass.
//!
//! What never happens here: knowing what a request means. Requests of one lane are made one after another; a message is
//! therefore never passed by a later one of its session, whatever becomes of it on the way.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use super::Fault;
use super::spoken::Spoken;
use crate::chat::code::ErrorCode;
use crate::id::SessionId;
use crate::time::UnixMillis;

/// Requests, and bytes of them, from which on no more frames are read.
const REQUESTS_MAX: usize = 256;
const BYTES_MAX: usize = 256 * 1024;

/// Replays and pages asked for at a time: what a connection reads at once.
const READS_MAX: usize = 4;

/// How long an answer may take, and how long a refused request is made again.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a request is made.
const TRIES_MAX: u32 = 8;

/// First and longest pause before a request is made again; the refusal may ask for more.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_LONGEST: Duration = Duration::from_secs(4);

/// Copies of one message that may be sent while it is under way.
const RECEIPTS_MAX: usize = 16;

/// Requests that are made one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Messages to a session.
    Message(SessionId),
    /// Replays of a session.
    Session(SessionId),
    /// Replays of the client's notices.
    Notices,
    /// Sessions to open.
    Open,
    /// Tokens to verify.
    Token,
}

/// What a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// CONNECTED.
    Greeting,
    /// A token that goes on.
    Refresh,
    /// A session.
    Open,
    /// The subscription of this key at its place.
    Follow(u64),
    /// The notices that were missed.
    Notices,
    /// A stored message.
    Message {
        /// Where.
        session: SessionId,
        /// Its name.
        client_msg_id: String,
    },
}

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    Greeting,
    Following(u64),
    Opened,
    Other,
}

/// What a refusal means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// No request of ours.
    Nobody,
    /// The request is made again.
    AgainLater,
    /// It is given up; the receipt that was asked for.
    ForGood(Option<String>),
}

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) number: u64,
    lane: Lane,
    wish: Wish,
    frame: Value,
    receipts: Vec<String>,
    state: State,
    tries: u32,
    refused_at: Option<UnixMillis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be made at this time, when its lane is free.
    Due(UnixMillis),
    /// Made; when it was, or when something last came of it.
    Asked(UnixMillis),
}

impl Request {
    pub(super) fn new(lane: Lane, wish: Wish, frame: Value, receipt: Option<String>, now: UnixMillis) -> Self {
        let receipts = receipt.into_iter().collect();
        Self { number: 0, lane, wish, frame, receipts, state: State::Due(now), tries: 0, refused_at: None }
    }

    pub(super) fn wish(&self) -> &Wish {
        &self.wish
    }

    pub(super) fn answered(&self) -> Answered {
        match self.wish {
            Wish::Greeting => Answered::Greeting,
            Wish::Follow(key) => Answered::Following(key),
            Wish::Open => Answered::Opened,
            Wish::Refresh | Wish::Notices | Wish::Message { .. } => Answered::Other,
        }
    }

    /// Kind and content of a message.
    pub(super) fn message(&self) -> (&str, &str) {
        (self.frame["type"].as_str().unwrap_or_default(), self.frame["content"].as_str().unwrap_or_default())
    }

    /// Whether it is this message.
    pub(super) fn says(&self, message: &Value) -> bool {
        ["type", "content"].into_iter().all(|member| self.frame[member] == message[member])
    }

    /// One more frame asks for the same.
    pub(super) fn also_tell(&mut self, receipt: Option<String>) -> Result<(), Fault> {
        if self.receipts.len() >= RECEIPTS_MAX {
            return Err(Fault::of(ErrorCode::RateLimited));
        }
        self.receipts.extend(receipt);
        Ok(())
    }

    pub(super) fn receipts(&self) -> impl Iterator<Item = &str> {
        self.receipts.iter().map(String::as_str)
    }

    fn bytes(&self) -> usize {
        self.frame["content"].as_str().map_or(0, str::len)
    }

    /// The frame for the connection. A value that may be used once is another one at each try.
    fn speak(&self) -> String {
        let mut frame = self.frame.clone();
        frame["reqId"] = json!(self.number);
        if let (Some(nonce), 1..) = (self.frame["nonce"].as_str(), self.tries) {
            frame["nonce"] = json!(format!("{nonce}~{}", self.tries));
        }
        frame.to_string()
    }
}

/// All requests, oldest first.
#[derive(Debug, Default)]
pub(super) struct Requests {
    all: VecDeque<Request>,
    numbers: u64,
    bytes: usize,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= REQUESTS_MAX || self.bytes >= BYTES_MAX
    }

    /// Adds a request behind the others.
    pub(super) fn add(&mut self, mut request: Request) {
        self.numbers += 1;
        request.number = self.numbers;
        self.bytes += request.bytes();
        self.all.push_back(request);
    }

    pub(super) fn find(&mut self, wish: &Wish) -> Option<&mut Request> {
        self.all.iter_mut().find(|request| request.wish == *wish)
    }

    /// Takes a request out: it is answered.
    pub(super) fn take(&mut self, is_it: impl Fn(&Request) -> bool) -> Option<Request> {
        let at = self.all.iter().position(is_it)?;
        let request = self.all.remove(at)?;
        self.bytes -= request.bytes();
        Some(request)
    }

    /// Something came of a replay: it is not overdue.
    pub(super) fn progress(&mut self, session: SessionId, now: UnixMillis) {
        for request in self.all.iter_mut().filter(|request| request.lane == Lane::Session(session)) {
            if let State::Asked(since) = &mut request.state {
                *since = now;
            }
        }
    }

    /// The connection refused something.
    pub(super) fn refuse(&mut self, refusal: &Spoken, now: UnixMillis) -> Refused {
        let number = refusal.req_id.as_u64();
        let message = refusal.session().zip(refusal.client_msg_id.clone());
        let message = message.map(|(session, client_msg_id)| Wish::Message { session, client_msg_id });
        let is_it = |request: &Request| Some(request.number) == number || Some(&request.wish) == message.as_ref();
        let Some(request) = self.all.iter_mut().find(|request| is_it(request)) else { return Refused::Nobody };
        request.tries += 1;
        let since = *request.refused_at.get_or_insert(now);
        let again = now.plus(pause(request.tries).max(Duration::from_millis(refusal.retry_after_ms)));
        if refusal.temporary && request.tries < TRIES_MAX && again <= since.plus(PATIENCE) {
            request.state = State::Due(again);
            return Refused::AgainLater;
        }
        Refused::ForGood(self.take(is_it).and_then(|request| request.receipts.into_iter().next()))
    }

    /// Makes the requests that are due and first in their lane.
    pub(super) fn ask_due(&mut self, now: UnixMillis, spoken: &mut VecDeque<String>) {
        let mut reads = self.reads();
        let mut lanes = BTreeSet::new();
        for request in &mut self.all {
            let waits = reads >= READS_MAX && request.is_read();
            if lanes.insert(request.lane) && !waits && matches!(request.state, State::Due(at) if at <= now) {
                reads += usize::from(request.is_read());
                request.state = State::Asked(now);
                spoken.push_back(request.speak());
            }
        }
    }

    /// When something is due next: a request to be made again, or an answer that is late.
    pub(super) fn next_due(&self) -> Option<UnixMillis> {
        let reads = self.reads();
        let mut lanes = BTreeSet::new();
        let firsts = self.all.iter().filter(|request| lanes.insert(request.lane));
        let due = firsts.filter_map(|request| match request.state {
            // It waits for the answer to another read.
            State::Due(_) if reads >= READS_MAX && request.is_read() => None,
            State::Due(at) => Some(at),
            State::Asked(since) => Some(since.plus(PATIENCE)),
        });
        due.min()
    }

    /// A request whose answer is late is given up; the receipt that was asked for.
    pub(super) fn take_overdue(&mut self, now: UnixMillis) -> Option<Option<String>> {
        let late = |request: &Request| matches!(request.state, State::Asked(since) if since.plus(PATIENCE) <= now);
        self.take(late).map(|request| request.receipts.into_iter().next())
    }

    fn reads(&self) -> usize {
        self.all.iter().filter(|request| request.is_read() && matches!(request.state, State::Asked(_))).count()
    }
}

impl Request {
    fn is_read(&self) -> bool {
        matches!(self.lane, Lane::Session(_))
    }
}

/// Pause before try number `tries` is followed by the next.
fn pause(tries: u32) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(PAUSE_LONGEST)
}
