//! A user or an agent with one device: a socket that may break at any moment, and what it takes to lose nothing by that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::board::Board;
use super::frame::{Entry, Frame};
use super::script::{Script, content};
use super::thread::{Counted, Thread};
use crate::Holder;
use crate::load::{Asked, Heard, Refusal, Socket};
use crate::rig::Rig;

/// The range of the random wait before an attempt to connect: until a server says another, and the longest. It doubles with each
/// attempt.
const RECONNECT_WITHIN: Duration = Duration::from_secs(1);
const RECONNECT_WITHIN_MAX: Duration = Duration::from_secs(30);
/// Longest pause before a message is sent again that is believed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// A pause where the server asks for one and does not say how long.
const PAUSE: Duration = Duration::from_millis(200);
/// A word that came too early to be heard is not said again, but a new connection is told everything.
const HEARS_OF_SESSIONS_WITHIN: Duration = Duration::from_secs(10);
/// Nothing to do: something else wakes the client up.
const LONG: Duration = Duration::from_secs(3_600);

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Sessions are opened and assigned.
    Gathering,
    /// Messages are due from this instant on.
    Playing(Instant),
    /// Everybody goes home.
    Over,
}

/// What the clients of a run share.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) rig: Arc<Rig>,
    pub(super) script: Script,
    pub(super) board: Board,
}

/// Who a client is.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) holder: Holder,
    pub(super) token: String,
    /// Its number among all clients.
    pub(super) number: usize,
    /// Its conversations: what each is about, and the messages of both sides.
    pub(super) parts: Vec<Part>,
    /// The shop that a user opens its session in.
    pub(super) shop: u64,
    pub(super) seed: u64,
}

/// One conversation, as one of its sides has to play it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) conversation: usize,
    pub(super) subject: String,
    /// Messages of this side, in order.
    pub(super) own: Vec<u32>,
    /// Messages of both sides.
    pub(super) messages: usize,
}

/// What one side of a conversation saw.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) conversation: usize,
    pub(super) thread: Thread,
    /// Messages whose time never came.
    pub(super) unwritten: u64,
}

pub(super) struct Client {
    role: Role,
    stage: Arc<Stage>,
    act: watch::Receiver<Act>,
    threads: Vec<Thread>,
    sessions: HashMap<String, usize>,
    /// Own messages of all conversations in the order in which they are due, and how many of them were.
    lines: Vec<(u32, usize)>,
    due: usize,
    greeted: bool,
    ready: bool,
    done: bool,
    /// What the last server said of the wait before the first attempt.
    reconnect_within: Duration,
    /// Attempts to connect since somebody greeted.
    attempts: u32,
    random: StdRng,
}

/// How a connection ended.
enum End {
    /// Another one is made.
    Lost,
    /// The same, within the time that the server said.
    Migrates(Duration),
    /// The run is over, or the client may not come back.
    Home,
}

impl Client {
    pub(super) fn new(role: Role, stage: Arc<Stage>, act: watch::Receiver<Act>) -> Self {
        let now = Instant::now();
        let mut lines: Vec<(u32, usize)> =
            role.parts.iter().enumerate().flat_map(|(index, part)| part.own.iter().map(move |number| (*number, index))).collect();
        lines.sort_unstable();
        Self {
            threads: role.parts.iter().map(|_| Thread::new(now)).collect(),
            random: StdRng::seed_from_u64(role.seed),
            sessions: HashMap::new(),
            due: 0,
            greeted: false,
            ready: false,
            done: false,
            reconnect_within: RECONNECT_WITHIN,
            attempts: 0,
            role,
            stage,
            act,
            lines,
        }
    }

    /// Plays its part until the run is over.
    pub(super) async fn run(mut self) -> Vec<Seen> {
        let mut node = self.role.number;
        while *self.act.borrow() != Act::Over {
            let server = self.stage.rig.edge(node % self.stage.rig.nodes());
            let asked = Asked { server, path: "/ws/chat", token: Some(&self.role.token), number: self.role.number };
            let told = match Socket::open(asked).await {
                Ok(socket) => {
                    self.stage.board.connections.up();
                    match self.talk(socket).await {
                        End::Home => break,
                        End::Lost => None,
                        End::Migrates(within) => Some(within.mul_f64(self.random.random())),
                    }
                }
                Err(Refusal { status: Some(status @ (400 | 401 | 403 | 404)), .. }) => {
                    self.stage.board.refused(format!("handshake {status}"));
                    break;
                }
                Err(refusal) => refusal.retry_after,
            };
            // A node that went away makes way for the next.
            node += 1;
            let range = self.reconnect_within.saturating_mul(1 << self.attempts.min(8)).min(RECONNECT_WITHIN_MAX);
            let pause = told.unwrap_or_else(|| range.mul_f64(self.random.random())).min(RECONNECT_WITHIN_MAX);
            self.attempts += 1;
            // Both only wait.
            tokio::select! { () = sleep(pause) => {}, _ = self.act.wait_for(|act| *act == Act::Over) => {} }
        }
        let unwritten = |index| self.lines[self.due..].iter().filter(|(_, of)| *of == index).count() as u64;
        let unwritten: Vec<u64> = (0..self.threads.len()).map(unwritten).collect();
        let seen = self.role.parts.iter().zip(self.threads).zip(unwritten);
        seen.map(|((part, thread), unwritten)| Seen { conversation: part.conversation, thread, unwritten }).collect()
    }

    /// One connection from its first frame to its end.
    async fn talk(&mut self, mut socket: Socket) -> End {
        let connected = Instant::now();
        let (mut greeted, mut out) = (false, Vec::new());
        loop {
            let now = Instant::now();
            self.write_what_is_due(now);
            if greeted {
                self.threads.iter_mut().for_each(|thread| thread.frames(&self.stage.script, now, &mut out));
            }
            for frame in out.drain(..) {
                if !socket.send(frame).await {
                    return End::Lost;
                }
            }
            self.look_around();
            if !self.ready && now > connected + HEARS_OF_SESSIONS_WITHIN {
                return End::Lost;
            }
            let wakes = self.wakes(now, greeted);
            // Cancel safe: frames stay in the socket until they are returned, the others only wait.
            tokio::select! {
                heard = socket.hear() => match heard {
                    Heard::Text(text) => match Frame::read(&text) {
                        Some(frame) if frame.kind == "migrate" => {
                            return End::Migrates(Duration::from_millis(frame.after_ms));
                        }
                        Some(frame) => {
                            greeted |= frame.kind == "hello";
                            self.hear(&frame, &mut out);
                        }
                        None => self.stage.board.refused("a frame that is no JSON object".to_owned()),
                    },
                    Heard::Closed(Some(code @ (1000 | 1002 | 1003 | 1007 | 1009 | 4400..=4499))) => {
                        self.stage.board.refused(format!("closed with {code}"));
                        return End::Home;
                    }
                    Heard::Closed(_) => return End::Lost,
                },
                () = sleep_until(wakes) => {}
                changed = self.act.changed() => if changed.is_err() || *self.act.borrow() == Act::Over {
                    return End::Home;
                }
            }
        }
    }

    /// Moves messages whose time has come to their outboxes.
    fn write_what_is_due(&mut self, now: Instant) {
        let Act::Playing(started) = *self.act.borrow() else { return };
        while let Some((number, thread)) = self.lines.get(self.due)
            && started + self.stage.script.line(*number).due <= now
        {
            self.threads[*thread].write(*number);
            self.due += 1;
        }
    }

    fn wakes(&self, now: Instant, greeted: bool) -> Instant {
        let due = match *self.act.borrow() {
            Act::Playing(started) => self.lines.get(self.due).map(|(number, _)| started + self.stage.script.line(*number).due),
            Act::Gathering | Act::Over => None,
        };
        let threads = self.threads.iter().filter(|_| greeted).filter_map(Thread::wakes);
        threads.chain(due).min().unwrap_or(now + if self.ready { LONG } else { HEARS_OF_SESSIONS_WITHIN })
    }

    /// Counts itself once as ready, and once as done.
    fn look_around(&mut self) {
        if !self.ready && self.threads.iter().all(|thread| thread.session().is_some()) {
            self.ready = true;
            self.stage.board.ready.up();
        }
        let at_its_end = |(thread, part): (&Thread, &Part)| thread.unaccepted().next().is_none() && thread.shown().len() >= part.messages;
        if !self.done && self.due == self.lines.len() && self.threads.iter().zip(&self.role.parts).all(at_its_end) {
            self.done = true;
            self.stage.board.done.up();
        }
    }

    fn hear(&mut self, frame: &Frame, out: &mut Vec<String>) {
        let now = Instant::now();
        match frame.kind.as_str() {
            "hello" => self.hello(frame, now, out),
            // Only a user opens, and has one conversation.
            "opened" => self.adopt(0, &frame.session_id, &frame.epoch),
            "assigned" => frame.session.iter().for_each(|entry| self.learn(entry)),
            "accepted" | "text" => self.message(frame, now),
            "replay_end" => {
                if let Some(thread) = self.thread(&frame.session_id) {
                    thread.replayed(frame.has_more, now);
                }
            }
            "resync" => {
                self.stage.board.resyncs.up();
                if let Some(thread) = self.thread(&frame.session_id) {
                    thread.resynced(&frame.epoch, frame.max_seq, &frame.reason, now);
                }
            }
            "error" => self.error(frame, now),
            // Typing, read marks, presence and whatever else a later version says.
            _ => {}
        }
    }

    fn hello(&mut self, frame: &Frame, now: Instant, out: &mut Vec<String>) {
        self.attempts = 0;
        self.reconnect_within = frame.reconnect_ms.map_or(RECONNECT_WITHIN, Duration::from_millis);
        self.threads.iter_mut().for_each(|thread| thread.connected(now));
        frame.sessions.iter().for_each(|entry| self.learn(entry));
        if self.role.holder.shop.is_none() && self.threads[0].session().is_none() {
            let subject = &self.role.parts[0].subject;
            out.push(json!({ "type": "open", "subject": subject, "shopId": self.role.shop.to_string(), "reqId": "open" }).to_string());
        }
        if !self.greeted {
            self.greeted = true;
            self.stage.board.greeted.up();
        }
    }

    fn learn(&mut self, entry: &Entry) {
        if let Some(index) = self.role.parts.iter().position(|part| part.subject == entry.subject) {
            self.adopt(index, &entry.session_id, &entry.epoch);
        }
    }

    fn adopt(&mut self, index: usize, session: &str, epoch: &str) {
        if self.threads[index].session().is_none() {
            self.threads[index].begins(session, epoch);
            self.sessions.insert(session.to_owned(), index);
        }
    }

    fn message(&mut self, frame: &Frame, now: Instant) {
        let Some(index) = self.sessions.get(&frame.session_id).copied() else { return };
        let (thread, stage) = (&mut self.threads[index], &self.stage);
        let number = stage.script.number(&frame.client_msg_id);
        if frame.kind == "text" && number.is_some_and(|number| frame.content != content(number)) {
            stage.board.altered.up();
        }
        let latency = |number| match *self.act.borrow() {
            Act::Playing(started) => now.saturating_duration_since(started + stage.script.line(number).due),
            Act::Gathering | Act::Over => Duration::ZERO,
        };
        let own = number.filter(|number| self.role.parts[index].own.binary_search(number).is_ok());
        if let Some(number) = own
            && thread.accepted(number, now)
        {
            stage.board.accepted_after(latency(number));
        }
        match thread.count(frame.seq, number) {
            Counted::Shown => {
                if let (Some(number), None) = (number, own) {
                    stage.board.delivered_after(latency(number));
                }
            }
            Counted::Repeat => stage.board.repeats.up(),
            Counted::Early => stage.board.gaps.up(),
        }
    }

    fn error(&mut self, frame: &Frame, now: Instant) {
        if !frame.temporary {
            self.stage.board.refused(frame.code.clone());
        }
        let pause = frame.retry_after_ms.map_or(PAUSE, Duration::from_millis).min(RETRY_AFTER_MAX);
        match self.thread(&frame.session_id) {
            Some(thread) => thread.put_off(pause, now),
            // About no session in particular, so it may be about any.
            None => self.threads.iter_mut().for_each(|thread| thread.put_off(pause, now)),
        }
    }

    fn thread(&mut self, session: &str) -> Option<&mut Thread> {
        self.sessions.get(session).map(|index| &mut self.threads[*index])
    }
}
