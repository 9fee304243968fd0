//! Between a client that speaks STOMP and a connection that speaks `chat.v1`.
//!
//! What lives here: who may say what when, what each STOMP frame becomes, and what each frame of the connection becomes.
//! `destination` reads addresses, `subscriptions` knows what the client listens to, `requests` holds what the connection has not
//! answered yet, `beats` watches the clock, `spoken` reads and writes the connection's frames.
//! What never happens here: I/O, or a decision about a session, a message or a right. The shell calls
//! [`Stomp::handle_text`] with what the client sends and [`Stomp::handle_frame`] with what the connection writes, hands
//! [`Stomp::poll_request`] to the connection, writes [`Stomp::poll_write`] to the socket, and closes it with
//! [`Stomp::closes_with`] when nothing is left to write.
//!
//! An ERROR frame ends a STOMP connection, so a refusal that may pass is not told: the request is made again here, in order and
//! for a bounded time.

mod beats;
mod destination;
mod requests;
mod spoken;
mod subscriptions;

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use self::beats::Beats;
use self::destination::{Listen, Speak};
use self::requests::{Answered, Lane, Refused, Request, Requests, Wish};
use self::spoken::{Spoken, push};
use self::subscriptions::{AckMode, Subscription, Subscriptions};
use super::{Command, Decoder, Frame, StompLimits, Version};
use crate::chat::Party;
use crate::chat::code::{CloseCode, ErrorCode};
use crate::chat::connection::ConnId;
use crate::chat::frame::{MessageKind, SEQ_END, Text};
use crate::id::SessionId;
use crate::time::UnixMillis;

/// How long a client may take to say CONNECT.
const GREETS_WITHIN: Duration = Duration::from_secs(15);

/// How long what is under way may take after DISCONNECT.
const LEAVES_WITHIN: Duration = Duration::from_secs(30);

/// Bytes of STOMP frames waiting for the socket from which on no more of the client's are read.
const WRITES_BYTES_MAX: usize = 64 * 1024;

/// NACKs that nobody has asked about yet; older ones are forgotten.
const NACKS_MAX: usize = 16;

/// Name of requests whose success nobody answers.
const LOOSE: &str = "loose";

/// A message that a client did not take. It moves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nacked {
    /// The session.
    pub session: SessionId,
    /// The message.
    pub seq: u64,
}

/// One STOMP client.
#[derive(Debug)]
pub struct Stomp {
    party: Party,
    conn_id: ConnId,
    decoder: Decoder,
    version: Option<Version>,
    phase: Phase,
    subscriptions: Subscriptions,
    requests: Requests,
    beats: Beats,
    /// For the connection; the shell takes all of it after each input.
    spoken: VecDeque<String>,
    writes: VecDeque<Text>,
    writes_bytes: usize,
    nacks: VecDeque<Nacked>,
    /// Numbers the messages of clients that do not, and those that are no message of a session.
    counter: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// CONNECT must come until then.
    Greeting(UnixMillis),
    /// The token of CONNECT is being verified.
    Verifying,
    /// CONNECTED was said.
    Open,
    /// DISCONNECT was said; what is under way ends until then.
    Leaving { receipt: Option<String>, until: UnixMillis },
    /// Nothing more is read.
    Ended(CloseCode),
}

/// Why the conversation ends: what the ERROR frame says.
#[derive(Debug)]
struct Fault {
    /// The header `message`: a code of `chat.v1`, or a sentence.
    message: String,
    /// The body: the `error` frame of `chat.v1` where there is one.
    body: Option<String>,
    close: CloseCode,
}

impl Fault {
    fn saying(message: impl Into<String>) -> Self {
        Self { message: message.into(), body: None, close: CloseCode::Misuse }
    }

    fn of(code: ErrorCode) -> Self {
        let close = if code.is_temporary() { CloseCode::InternalError } else { CloseCode::Misuse };
        Self { message: code.as_str().to_owned(), body: Some(code.message().to_owned()), close }
    }
}

impl Stomp {
    /// A client whose handshake proved that it is `party`.
    #[must_use]
    pub fn new(party: Party, conn_id: ConnId, limits: StompLimits, now: UnixMillis) -> Self {
        Self {
            party,
            conn_id,
            decoder: Decoder::new(limits),
            version: None,
            phase: Phase::Greeting(now.plus(GREETS_WITHIN)),
            subscriptions: Subscriptions::default(),
            requests: Requests::default(),
            beats: Beats::silent(now),
            spoken: VecDeque::new(),
            writes: VecDeque::new(),
            writes_bytes: 0,
            nacks: VecDeque::new(),
            counter: 0,
        }
    }

    /// A text message of the client arrived.
    pub fn handle_text(&mut self, text: &str, now: UnixMillis) {
        self.beats.heard(now);
        self.decoder.feed(text);
        self.pump(now);
    }

    /// The connection wrote a frame of `chat.v1`, or several with a line feed between them.
    pub fn handle_frame(&mut self, frames: &str, now: UnixMillis) {
        for frame in frames.split('\n') {
            if !self.has_ended()
                && let Some(spoken) = Spoken::read(frame)
            {
                self.translate(&spoken, frame, now);
                self.pump(now);
            }
        }
    }

    /// What to give to [`crate::chat::connection::Connection::handle_text`].
    pub fn poll_request(&mut self) -> Option<String> {
        self.spoken.pop_front()
    }

    /// What to write to the client, each as a text message of its own.
    pub fn poll_write(&mut self) -> Option<Text> {
        let write = self.writes.pop_front();
        self.writes_bytes -= write.as_ref().map_or(0, Text::len);
        write
    }

    /// A message that the client did not take, to be logged.
    pub fn poll_nacked(&mut self) -> Option<Nacked> {
        self.nacks.pop_front()
    }

    /// How to close the socket once [`Stomp::poll_write`] has nothing left; `None` while the conversation goes on.
    #[must_use]
    pub fn closes_with(&self) -> Option<CloseCode> {
        if let Phase::Ended(code) = self.phase { Some(code) } else { None }
    }

    /// Whether so much is under way that the shell should read nothing more from the client.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.requests.is_full() || self.writes_bytes >= WRITES_BYTES_MAX
    }

    /// When [`Stomp::handle_timeout`] is due next; `None` once the conversation has ended.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<UnixMillis> {
        let phase = match self.phase {
            Phase::Ended(_) => return None,
            Phase::Greeting(until) | Phase::Leaving { until, .. } => Some(until),
            Phase::Verifying | Phase::Open => None,
        };
        [phase, self.requests.next_due(), self.beats.next_due(self.is_full())].into_iter().flatten().min()
    }

    /// Does what is due at `now`. Calling it early or often does no harm.
    pub fn handle_timeout(&mut self, now: UnixMillis) {
        match self.phase {
            Phase::Greeting(until) if now >= until => self.end(CloseCode::HelloTimeout),
            Phase::Leaving { until, .. } if now >= until => self.end(CloseCode::Normal),
            Phase::Greeting(_) | Phase::Leaving { .. } | Phase::Verifying | Phase::Open | Phase::Ended(_) => {}
        }
        if self.has_ended() {
            return;
        }
        if self.beats.is_silent_too_long(now, self.is_full()) {
            self.end(CloseCode::NoHeartbeat);
        } else if let Some(receipt) = self.requests.take_overdue(now) {
            self.fail(&Fault::of(ErrorCode::Internal), receipt.as_deref(), now);
        } else {
            if self.beats.must_speak(now) {
                self.write_text("\n".to_owned(), now);
            }
            self.pump(now);
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Reads frames while there is room for what they ask, and asks what may be asked now.
    fn pump(&mut self, now: UnixMillis) {
        while !self.has_ended() && !self.is_full() {
            match self.decoder.next_frame(self.version) {
                Ok(Some(frame)) => {
                    let receipt = frame.header("receipt").map(str::to_owned);
                    if let Err(fault) = self.serve(frame, now) {
                        self.fail(&fault, receipt.as_deref(), now);
                    }
                }
                Ok(None) => break,
                Err(fault) => self.fail(&Fault::saying(fault.0), None, now),
            }
        }
        if self.has_ended() {
            return;
        }
        self.requests.ask_due(now, &mut self.spoken);
        if let Phase::Leaving { receipt, .. } = &self.phase
            && self.requests.is_empty()
        {
            let receipt = receipt.clone();
            self.receipt(receipt.as_deref(), now);
            self.end(CloseCode::Normal);
        }
    }

    /// Carries a client's frame out.
    fn serve(&mut self, frame: Frame, now: UnixMillis) -> Result<(), Fault> {
        match (&self.phase, frame.command) {
            (Phase::Greeting(_), Command::Connect | Command::Stomp) => return self.connect(&frame, now),
            (Phase::Greeting(_), _) => return Err(Fault::saying("the first frame must be CONNECT or STOMP")),
            (Phase::Verifying, _) => return Err(Fault::saying("wait for CONNECTED")),
            (Phase::Leaving { .. } | Phase::Ended(_), _) => return Ok(()),
            (Phase::Open, _) => {}
        }
        if frame.header("transaction").is_some() {
            return Err(Fault::saying("transactions unsupported"));
        }
        match frame.command {
            Command::Send => self.send(&frame, now),
            Command::Subscribe => self.subscribe(&frame, now),
            Command::Unsubscribe => self.unsubscribe(&frame, now),
            Command::Ack => self.ack(&frame, now),
            Command::Nack => self.nack(&frame, now),
            Command::Disconnect => {
                let receipt = frame.header("receipt").map(str::to_owned);
                self.phase = Phase::Leaving { receipt, until: now.plus(LEAVES_WITHIN) };
                Ok(())
            }
            Command::Begin | Command::Commit | Command::Abort => Err(Fault::saying("transactions unsupported")),
            Command::Connect | Command::Stomp => Err(Fault::saying("already connected")),
            Command::Connected | Command::Message | Command::Receipt | Command::Error => {
                Err(Fault::saying("a frame that only servers send"))
            }
        }
    }

    fn connect(&mut self, frame: &Frame, now: UnixMillis) -> Result<(), Fault> {
        let Some(version) = Version::negotiate(frame.header("accept-version")) else {
            let error = Frame::new(Command::Error)
                .with("message", "no version in common")
                .with("version", "1.0,1.1,1.2")
                .with_body("text/plain", "1.0, 1.1 and 1.2 are spoken here");
            self.write(&error, now);
            self.end(CloseCode::Version);
            return Ok(());
        };
        self.version = Some(version);
        self.beats.negotiate(frame.header("heart-beat"), now).map_err(Fault::saying)?;
        let bearer = frame.header("Authorization").or_else(|| frame.header("authorization"));
        let token = bearer.map(|value| value.strip_prefix("Bearer ").unwrap_or(value)).or_else(|| frame.header("passcode"));
        match token.filter(|token| !token.is_empty()) {
            Some(token) => {
                // The handshake has proved who this is; a token that comes besides must be the same principal's.
                self.phase = Phase::Verifying;
                let refresh = json!({ "type": "refresh", "token": token });
                self.requests.add(Request::new(Lane::Token, Wish::Greeting, refresh, None, now));
            }
            None => self.greet(now),
        }
        Ok(())
    }

    fn greet(&mut self, now: UnixMillis) {
        let version = self.version.unwrap_or(Version::V10);
        let connected = Frame::new(Command::Connected)
            .with("version", version.as_str())
            .with("heart-beat", Beats::PROMISE)
            .with("session", self.conn_id.as_str())
            .with("server", concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .with("user-name", self.party.id.as_str());
        self.phase = Phase::Open;
        self.write(&connected, now);
    }

    fn send(&mut self, frame: &Frame, now: UnixMillis) -> Result<(), Fault> {
        let destination = frame.header("destination").ok_or_else(|| Fault::saying("SEND without a destination"))?;
        let receipt = frame.header("receipt").map(str::to_owned);
        let guard = Guard::of(frame)?;
        match Speak::parse(destination).ok_or_else(|| Fault::saying("no such destination"))? {
            Speak::Chat(session) => return self.send_message(session, frame, guard, receipt, now),
            Speak::Open => {
                let mut open = if frame.body.is_empty() { json!({}) } else { object(&frame.body)? };
                open["type"] = json!("open");
                self.requests.add(Request::new(Lane::Open, Wish::Open, guard.on(open), receipt, now));
            }
            Speak::Refresh => {
                let refresh = guard.on(json!({ "type": "refresh", "token": frame.body }));
                self.requests.add(Request::new(Lane::Token, Wish::Refresh, refresh, receipt, now));
            }
            Speak::Typing(session) => {
                self.say_loosely(guard.on(json!({ "type": "typing", "sessionId": session.to_string() })));
                self.receipt(receipt.as_deref(), now);
            }
        }
        Ok(())
    }

    fn send_message(
        &mut self,
        session: SessionId,
        frame: &Frame,
        guard: Guard,
        receipt: Option<String>,
        now: UnixMillis,
    ) -> Result<(), Fault> {
        let Written { kind, content, client_msg_id } = written(frame)?;
        let client_msg_id = frame.header("client-msg-id").map(str::to_owned).or(client_msg_id).unwrap_or_else(|| {
            self.counter += 1;
            // As the connection names what has no name; it does not know these.
            format!("{}-s{}", self.conn_id.as_str(), self.counter)
        });
        let wish = Wish::Message { session, client_msg_id: client_msg_id.clone() };
        let message = json!({ "type": kind, "sessionId": session.to_string(), "content": content, "clientMsgId": client_msg_id });
        match self.requests.find(&wish) {
            None => {
                self.requests.add(Request::new(Lane::Message(session), wish, guard.on(message), receipt, now));
                Ok(())
            }
            // Sent again while it is under way: it is one message.
            Some(earlier) if earlier.says(&message) => earlier.also_tell(receipt),
            Some(_) => Err(Fault::of(ErrorCode::ClientMsgIdConflict)),
        }
    }

    fn subscribe(&mut self, frame: &Frame, now: UnixMillis) -> Result<(), Fault> {
        let destination = frame.header("destination").ok_or_else(|| Fault::saying("SUBSCRIBE without a destination"))?;
        let id = frame.header("id").map(str::to_owned);
        if id.is_none() && self.version != Some(Version::V10) {
            return Err(Fault::saying("SUBSCRIBE without an id"));
        }
        let listen = Listen::parse(destination).ok_or_else(|| Fault::saying("no such destination"))?;
        let mode = AckMode::parse(frame.header("ack")).ok_or_else(|| Fault::saying("ack is auto, client or client-individual"))?;
        let last_seq = frame.header("last-seq").map(|text| seq(text).ok_or_else(|| Fault::saying("last-seq is no number"))).transpose()?;
        let subscription = Subscription::new(id, destination.to_owned(), listen, mode, last_seq);
        let key = self.subscriptions.add(subscription).map_err(Fault::saying)?;
        let receipt = frame.header("receipt").map(str::to_owned);
        let guard = Guard::of(frame)?;
        match (listen, last_seq) {
            (Listen::Topic(session), Some(last_seq)) => {
                let mut position = json!({ "sessionId": session.to_string(), "lastSeq": last_seq });
                if let Some(epoch) = frame.header("epoch") {
                    position["epoch"] = json!(epoch);
                }
                let resume = guard.on(json!({ "type": "resume", "positions": [position] }));
                self.requests.add(Request::new(Lane::Session(session), Wish::Follow(key), resume, receipt, now));
            }
            (Listen::Topic(session), None) => {
                // The newest message tells where the session stands, and that it is the client's.
                let newest = guard.on(json!({ "type": "history", "sessionId": session.to_string(), "limit": 1 }));
                self.requests.add(Request::new(Lane::Session(session), Wish::Follow(key), newest, receipt, now));
            }
            (Listen::Notify, Some(last_seq)) => {
                let resume = guard.on(json!({ "type": "resume", "positions": [{ "sessionId": "@me", "lastSeq": last_seq }] }));
                self.requests.add(Request::new(Lane::Notices, Wish::Notices, resume, receipt, now));
            }
            (Listen::Notify | Listen::Opened, _) => self.receipt(receipt.as_deref(), now),
        }
        Ok(())
    }

    fn unsubscribe(&mut self, frame: &Frame, now: UnixMillis) -> Result<(), Fault> {
        match (frame.header("id"), frame.header("destination")) {
            (Some(id), _) => self.subscriptions.remove(|subscription| subscription.id.as_deref() == Some(id)),
            (None, Some(destination)) if self.version == Some(Version::V10) => {
                self.subscriptions.remove(|subscription| subscription.id.is_none() && subscription.destination == destination);
            }
            (None, _) => return Err(Fault::saying("UNSUBSCRIBE without an id")),
        }
        self.receipt(frame.header("receipt"), now);
        Ok(())
    }

    fn ack(&mut self, frame: &Frame, now: UnixMillis) -> Result<(), Fault> {
        if let Some((session, seq)) = self.named_message(frame)? {
            let only = if self.version == Some(Version::V11) { frame.header("subscription") } else { None };
            let read = self.subscriptions.acknowledge(session, seq, only).map_err(Fault::saying)?;
            let read = read.ok_or_else(|| Fault::of(ErrorCode::NotFound))?;
            if let Some(last_seq) = read.moved_to {
                let guard = Guard::of(frame)?;
                self.say_loosely(guard.on(json!({ "type": "ack", "sessionId": session.to_string(), "lastSeq": last_seq })));
            }
        }
        self.receipt(frame.header("receipt"), now);
        Ok(())
    }

    fn nack(&mut self, frame: &Frame, now: UnixMillis) -> Result<(), Fault> {
        if self.version == Some(Version::V10) {
            return Err(Fault::saying("no such command"));
        }
        if let Some((session, seq)) = self.named_message(frame)? {
            if self.nacks.len() >= NACKS_MAX {
                self.nacks.pop_front();
            }
            self.nacks.push_back(Nacked { session, seq });
        }
        self.receipt(frame.header("receipt"), now);
        Ok(())
    }

    /// The message that an ACK or NACK names; `None` for one that is no message of a session.
    fn named_message(&self, frame: &Frame) -> Result<Option<(SessionId, u64)>, Fault> {
        let name = if self.version == Some(Version::V12) { "id" } else { "message-id" };
        let id = frame.header(name).ok_or_else(|| Fault::saying(format!("the header {name} is missing")))?;
        if id.starts_with(NOTICE_PREFIX) {
            return Ok(None);
        }
        let named = id.split_once('-').and_then(|(session, number)| SessionId::parse(session).ok().zip(seq(number)));
        named.map(Some).ok_or_else(|| Fault::of(ErrorCode::NotFound))
    }

    fn say_loosely(&mut self, mut frame: Value) {
        frame["reqId"] = json!(LOOSE);
        self.spoken.push_back(frame.to_string());
    }

    /// Turns what the connection says into STOMP.
    fn translate(&mut self, spoken: &Spoken, frame: &str, now: UnixMillis) {
        match spoken.kind.as_str() {
            "hello" | "pong" => {}
            "accepted" => self.on_accepted(spoken, now),
            "error" => self.on_error(spoken, frame, now),
            "history" | "replay_end" | "opened" | "refreshed" if self.on_answer(spoken, frame, now) => {}
            "resync" if !spoken.is_of_notices() => {
                if let (Some(session), Some(seq)) = (spoken.session(), spoken.max_seq) {
                    self.subscriptions.resync(session, spoken.epoch(), seq);
                    self.show(session, None, frame, now);
                }
                self.on_answer(spoken, frame, now);
            }
            "replay_end" | "refreshed" if !spoken.is_of_notices() => {}
            _ => match (spoken.session(), spoken.seq) {
                (Some(session), Some(seq)) => self.on_message(session, seq, spoken, frame, now),
                (_, None) | (None, _) => self.notify(Listen::Notify, frame, now),
            },
        }
    }

    fn on_message(&mut self, session: SessionId, seq: u64, spoken: &Spoken, frame: &str, now: UnixMillis) {
        self.show(session, Some((seq, spoken.epoch())), frame, now);
        // A push with the client's own id means the same as `accepted`.
        if spoken.is_from(&self.party)
            && let Some(id) = &spoken.client_msg_id
        {
            let wish = Wish::Message { session, client_msg_id: id.clone() };
            if let Some(request) = self.requests.take(|request| *request.wish() == wish) {
                self.tell_done(&request, now);
            }
        }
        self.requests.progress(session, now);
    }

    fn on_accepted(&mut self, spoken: &Spoken, now: UnixMillis) {
        let (Some(session), Some(seq), Some(id)) = (spoken.session(), spoken.seq, &spoken.client_msg_id) else { return };
        let wish = Wish::Message { session, client_msg_id: id.clone() };
        let Some(request) = self.requests.take(|request| *request.wish() == wish) else { return };
        // Clients of brokers expect their own message where everybody else sees it.
        let (kind, content) = request.message();
        let own = push(spoken, &self.party, kind, content);
        self.show(session, Some((seq, spoken.epoch())), &own, now);
        self.tell_done(&request, now);
    }

    fn on_error(&mut self, spoken: &Spoken, frame: &str, now: UnixMillis) {
        if spoken.req_id.as_str() == Some(LOOSE) && !spoken.temporary {
            self.fail(&refusal(spoken, frame), None, now);
            return;
        }
        let own = self.requests.refuse(spoken, now);
        match own {
            Refused::Nobody => self.notify(Listen::Notify, frame, now),
            Refused::AgainLater => {}
            Refused::ForGood(receipt) => self.fail(&refusal(spoken, frame), receipt.as_deref(), now),
        }
    }

    /// An answer to a request of ours; false when it is none.
    fn on_answer(&mut self, spoken: &Spoken, frame: &str, now: UnixMillis) -> bool {
        let Some(number) = spoken.req_id.as_u64() else { return false };
        let Some(request) = self.requests.take(|request| request.number == number) else { return false };
        match request.answered() {
            Answered::Greeting => self.greet(now),
            Answered::Following(key) => {
                let top = spoken.messages.last().map(|message| (message.seq, message.epoch.parse().ok()));
                self.subscriptions.follows(key, top);
            }
            Answered::Opened => self.notify(Listen::Opened, frame, now),
            Answered::Other => {}
        }
        self.tell_done(&request, now);
        true
    }

    fn tell_done(&mut self, request: &Request, now: UnixMillis) {
        for receipt in request.receipts() {
            self.receipt(Some(receipt), now);
        }
    }

    /// Writes a frame of a session to whoever listens to it and does not have it; without a position, to all.
    fn show(&mut self, session: SessionId, at: Option<(u64, Option<u32>)>, body: &str, now: UnixMillis) {
        let id = at.map_or_else(|| self.notice_id(), |(seq, _)| format!("{session}-{seq}"));
        for listener in self.subscriptions.take_turn(session, at) {
            let mut message = listener.frame(&id, self.version);
            if let Some((seq, epoch)) = at {
                message = message.with("seq", seq.to_string()).with_some("epoch", epoch.map(|epoch| epoch.to_string()).as_deref());
            }
            self.write(&message.with_body("application/json", body), now);
        }
    }

    /// Writes a frame to a queue of the client's own.
    fn notify(&mut self, queue: Listen, body: &str, now: UnixMillis) {
        let id = self.notice_id();
        for listener in self.subscriptions.of_queue(queue) {
            let message = listener.frame(&id, self.version).with_body("application/json", body);
            self.write(&message, now);
        }
    }

    fn notice_id(&mut self) -> String {
        self.counter += 1;
        format!("{NOTICE_PREFIX}{}", self.counter)
    }

    fn receipt(&mut self, receipt: Option<&str>, now: UnixMillis) {
        if let Some(receipt) = receipt {
            self.write(&Frame::new(Command::Receipt).with("receipt-id", receipt), now);
        }
    }

    fn fail(&mut self, fault: &Fault, receipt: Option<&str>, now: UnixMillis) {
        let error = Frame::new(Command::Error).with("message", fault.message.as_str()).with_some("receipt-id", receipt);
        let error = match &fault.body {
            Some(body) if body.starts_with('{') => error.with_body("application/json", body.as_str()),
            Some(body) => error.with_body("text/plain", body.as_str()),
            None => error,
        };
        self.write(&error, now);
        self.end(fault.close);
    }

    fn end(&mut self, code: CloseCode) {
        self.phase = Phase::Ended(code);
        self.requests = Requests::default();
        self.spoken.clear();
    }

    fn write(&mut self, frame: &Frame, now: UnixMillis) {
        self.write_text(frame.encode(self.version.unwrap_or(Version::V10)), now);
    }

    fn write_text(&mut self, text: String, now: UnixMillis) {
        self.beats.spoke(now);
        self.writes_bytes += text.len();
        self.writes.push_back(text.into());
    }
}

/// Begins the ids of what is no message of a session.
const NOTICE_PREFIX: &str = "n-";

/// `timestamp` and `nonce` of a frame, for deployments that ask for them.
#[derive(Debug)]
struct Guard {
    timestamp: Option<u64>,
    nonce: Option<String>,
}

impl Guard {
    fn of(frame: &Frame) -> Result<Self, Fault> {
        let timestamp = frame.header("timestamp").map(str::parse).transpose();
        let timestamp = timestamp.map_err(|_| Fault::saying("timestamp is no number"))?;
        Ok(Self { timestamp, nonce: frame.header("nonce").map(str::to_owned) })
    }

    fn on(self, mut frame: Value) -> Value {
        if let Some(timestamp) = self.timestamp {
            frame["timestamp"] = json!(timestamp);
        }
        if let Some(nonce) = self.nonce {
            frame["nonce"] = json!(nonce);
        }
        frame
    }
}

/// The number of a message, as a header spells it.
fn seq(text: &str) -> Option<u64> {
    text.parse().ok().filter(|seq| *seq < SEQ_END)
}

/// A message as a SEND frame holds it.
struct Written {
    kind: String,
    content: String,
    client_msg_id: Option<String>,
}

/// Reads a SEND: by its content type an object with `type` and `content`, or plain text. A client that names no type and sends
/// such an object means it.
fn written(frame: &Frame) -> Result<Written, Fault> {
    let member = |object: &Value, name: &str| object[name].as_str().map(str::to_owned);
    let is_json = frame.header("content-type").map(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json"));
    let structured = match is_json {
        Some(true) => Some(object(&frame.body)?),
        Some(false) => None,
        None => object(&frame.body).ok().filter(|object| object["type"].is_string() && object["content"].is_string()),
    };
    match structured {
        None => Ok(Written { kind: "text".to_owned(), content: frame.body.clone(), client_msg_id: None }),
        Some(object) => {
            let kind = member(&object, "type").unwrap_or_else(|| "text".to_owned());
            if MessageKind::parse(&kind).is_none() {
                return Err(Fault::of(ErrorCode::UnknownType));
            }
            let content = member(&object, "content").ok_or_else(|| Fault::of(ErrorCode::BadRequest))?;
            Ok(Written { kind, content, client_msg_id: member(&object, "clientMsgId") })
        }
    }
}

fn object(body: &str) -> Result<Value, Fault> {
    serde_json::from_str(body).ok().filter(Value::is_object).ok_or_else(|| Fault::of(ErrorCode::BadJson))
}

/// The ERROR of a refusal of the connection.
fn refusal(spoken: &Spoken, frame: &str) -> Fault {
    let close = if spoken.temporary { CloseCode::InternalError } else { CloseCode::Misuse };
    Fault { message: spoken.code.clone(), body: Some(frame.to_owned()), close }
}
