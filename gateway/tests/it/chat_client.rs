//! A client of `chat.v1` that follows the protocol's rules for clients, on a connection that may break at any moment.
//!
//! Counting: a message with the next number is shown, a smaller one is dropped, a larger one means that something is missing
//! and is asked for. Sending: what is not accepted is sent again with its old id, older messages first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::chat_socket::{ChatSocket, Heard};
use crate::conversation::Address;
use crate::ledger::StoredMessage;
use crate::wait::until;

/// Messages sent and not accepted at a time.
const WINDOW: usize = 16;
/// How long a message may stay without an answer before it is sent again.
const RESEND_AFTER: Duration = Duration::from_secs(3);
/// Between two attempts to connect.
const RECONNECT_AFTER: Duration = Duration::from_millis(50);
/// How many messages are shown between two `ack` frames.
const ACK_EVERY: u64 = 20;

/// Who a client is and how it behaves.
pub(crate) struct Profile {
    /// The principal.
    pub(crate) id: String,
    /// Its token.
    pub(crate) token: String,
    /// Where to connect, asked before every attempt with the number of attempts so far.
    pub(crate) address: Address,
    /// The subject of the session that it opens; without one it waits for a session to be assigned.
    pub(crate) opens: Option<String>,
    /// Cuts its own connection after a random number of frames, drawn anew for each connection from this range.
    pub(crate) cuts: Option<std::ops::Range<u32>>,
    /// Where its random numbers start.
    pub(crate) seed: u64,
}

/// A client at work. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct ChatClient {
    id: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    written: Notify,
}

#[derive(Debug, Default)]
struct State {
    session: Option<String>,
    epoch: String,
    /// What the user of this client sees, from seq 1 on without a gap.
    shown: Vec<StoredMessage>,
    /// Written and not yet accepted, oldest first: id and content.
    outbox: VecDeque<(String, String)>,
    /// Everything ever written, by id.
    written: BTreeMap<String, String>,
    greeted: bool,
    connections: usize,
    /// What must not happen; the client has stopped then.
    fault: Option<String>,
}

impl ChatClient {
    /// Starts a client.
    pub(crate) fn start(profile: Profile) -> Self {
        let shared = Arc::new(Shared::default());
        let id = profile.id.clone();
        let worker = Worker { rng: StdRng::seed_from_u64(profile.seed), profile, shared: shared.clone() };
        Self { id, shared, task: tokio::spawn(worker.run()) }
    }

    /// Writes messages `from..to`, whose contents tell writer and number.
    pub(crate) fn write(&self, from: usize, to: usize) {
        let mut state = self.shared.state();
        for number in from..to {
            let (key, content) = (format!("{}-{number}", self.id), self.content(number));
            state.written.insert(key.clone(), content.clone());
            state.outbox.push_back((key, content));
        }
        drop(state);
        self.shared.written.notify_one();
    }

    /// Its principal.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Waits until it has been greeted on some connection.
    pub(crate) async fn greeted(&self) -> anyhow::Result<()> {
        until(format!("{} is greeted", self.id), crate::wait::SOON, async || {
            self.assert_well()?;
            Ok(self.shared.state().greeted.then_some(()))
        })
        .await
    }

    /// The content of message `number`.
    pub(crate) fn content(&self, number: usize) -> String {
        format!("{} 写的第 {number} 条 😀", self.id)
    }

    /// The session, once there is one.
    pub(crate) async fn session(&self) -> anyhow::Result<String> {
        until(format!("{} has a session", self.id), crate::wait::SOON, async || {
            self.assert_well()?;
            Ok(self.shared.state().session.clone())
        })
        .await
    }

    /// Waits until it shows `count` messages.
    pub(crate) async fn shows(&self, count: usize, within: Duration) -> anyhow::Result<()> {
        let waited = until(format!("{} shows {count} messages", self.id), within, async || {
            let state = self.shared.state();
            Ok((state.fault.is_some() || state.shown.len() >= count).then_some(()))
        });
        let waited = waited.await;
        self.assert_well()?;
        let state = self.shared.state();
        let (shown, unsent, connections) = (state.shown.len(), state.outbox.len(), state.connections);
        waited.with_context(|| format!("it shows {shown} and has {unsent} to send, on connection {connections}"))
    }

    /// Waits until everything written is accepted.
    pub(crate) async fn sent_all(&self, within: Duration) -> anyhow::Result<()> {
        until(format!("{} has nothing left to send", self.id), within, async || {
            self.assert_well()?;
            Ok(self.shared.state().outbox.is_empty().then_some(()))
        })
        .await
    }

    /// What it shows.
    pub(crate) fn shown(&self) -> Vec<StoredMessage> {
        self.shared.state().shown.clone()
    }

    /// How many connections it has had.
    pub(crate) fn connections(&self) -> usize {
        self.shared.state().connections
    }

    fn assert_well(&self) -> anyhow::Result<()> {
        match &self.shared.state().fault {
            None => Ok(()),
            Some(fault) => bail!("{}: {fault}", self.id),
        }
    }
}

impl Drop for ChatClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Worker {
    profile: Profile,
    rng: StdRng,
    shared: Arc<Shared>,
}

/// What one connection keeps in mind.
struct Talk {
    socket: ChatSocket,
    /// How many of the outbox, from its front, were sent here.
    sent: usize,
    /// A `resume` is under way: newer messages come with its answer.
    resuming: bool,
    /// When the whole outbox is sent again, and what is missing asked for again.
    resend_at: Option<Instant>,
    acked: u64,
}

impl Worker {
    async fn run(mut self) {
        for attempt in 0.. {
            let address = (self.profile.address)(attempt);
            let query = self.query();
            if let Ok(socket) = ChatSocket::connect(address, &self.profile.token, &query).await {
                self.shared.state().connections += 1;
                if let Err(fault) = self.talk(socket).await {
                    self.shared.state().fault = Some(format!("{fault:#}"));
                    return;
                }
            }
            sleep(RECONNECT_AFTER).await;
        }
    }

    /// Half of the connections resume by the URL, the others by a frame alone.
    fn query(&mut self) -> String {
        let state = self.shared.state();
        match &state.session {
            Some(session) if self.rng.random() => format!("?last_ack_seq={}&sessionId={session}&device=web", state.shown.len()),
            Some(_) | None => String::new(),
        }
    }

    /// One connection from its first frame to its end, which is no fault.
    async fn talk(&mut self, socket: ChatSocket) -> anyhow::Result<()> {
        let mut talk = Talk { socket, sent: 0, resuming: false, resend_at: None, acked: 0 };
        let mut frames_left = self.profile.cuts.clone().map(|range| self.rng.random_range(range));
        let mut greeted = false;
        loop {
            let silence = Instant::now() + RESEND_AFTER;
            // Every branch is cancel safe: frames stay in the socket until they are returned.
            tokio::select! {
                heard = talk.socket.hear() => match heard? {
                    Heard::Frame(frame) => {
                        greeted |= frame["type"] == "hello";
                        if self.frame(&mut talk, &frame).await?.is_gone() {
                            return Ok(());
                        }
                        if let Some(left) = &mut frames_left {
                            *left = left.saturating_sub(1);
                            if *left == 0 {
                                // Dropped without a goodbye, as a train does in a tunnel.
                                return Ok(());
                            }
                        }
                    }
                    Heard::Closed(Some(code @ (4400 | 4401 | 4403 | 4408 | 4409 | 4426))) => bail!("closed with {code}"),
                    Heard::Closed(_) => return Ok(()),
                },
                () = self.shared.written.notified() => {}
                () = sleep_until(talk.resend_at.unwrap_or(silence)), if greeted => {
                    talk.resend_at = None;
                    talk.sent = 0;
                    if let Some(resume) = self.resume(&mut talk)
                        && talk.socket.send(resume).await.is_err()
                    {
                        return Ok(());
                    }
                }
            }
            if greeted && talk.resend_at.is_none() && self.pump(&mut talk).await.is_gone() {
                return Ok(());
            }
        }
    }

    /// Sends what the window allows.
    async fn pump(&self, talk: &mut Talk) -> Link {
        loop {
            let frame = {
                let state = self.shared.state();
                let Some(session) = &state.session else { return Link::Up };
                if talk.sent >= WINDOW {
                    return Link::Up;
                }
                let Some((key, content)) = state.outbox.get(talk.sent) else { return Link::Up };
                json!({ "type": "text", "sessionId": session, "content": content, "clientMsgId": key })
            };
            talk.sent += 1;
            if talk.socket.send(frame).await.is_err() {
                return Link::Gone;
            }
        }
    }

    async fn frame(&mut self, talk: &mut Talk, frame: &Value) -> anyhow::Result<Link> {
        let answer = match frame["type"].as_str().unwrap_or_default() {
            "hello" => self.hello(talk, frame),
            "opened" => self.adopt(talk, frame),
            "assigned" => self.adopt(talk, &frame["session"]),
            "accepted" | "text" => self.count(talk, frame)?,
            "replay_end" => {
                talk.resuming = false;
                if frame["hasMore"] == true { self.resume(talk) } else { None }
            }
            "error" => {
                ensure!(frame["temporary"] == true, "{frame}");
                let pause = frame["retryAfterMs"].as_u64().unwrap_or(100);
                talk.resend_at.get_or_insert(Instant::now() + Duration::from_millis(pause));
                None
            }
            "resync" => bail!("the server took something back: {frame}"),
            _ => None,
        };
        let Some(answer) = answer else { return Ok(Link::Up) };
        Ok(if talk.socket.send(answer).await.is_ok() { Link::Up } else { Link::Gone })
    }

    fn hello(&self, talk: &mut Talk, frame: &Value) -> Option<Value> {
        self.shared.state().greeted = true;
        if self.shared.state().session.is_some() {
            return self.resume(talk);
        }
        match (frame["sessions"].get(0), &self.profile.opens) {
            (Some(session), _) => self.adopt(talk, session),
            (None, Some(subject)) => Some(json!({ "type": "open", "subject": subject })),
            (None, None) => None,
        }
    }

    /// Takes the first session it hears of, and reads it from its start.
    fn adopt(&self, talk: &mut Talk, session: &Value) -> Option<Value> {
        {
            let mut state = self.shared.state();
            if state.session.is_some() {
                return None;
            }
            state.session = session["sessionId"].as_str().map(str::to_owned);
            state.epoch = session["epoch"].as_str().unwrap_or_default().to_owned();
        }
        self.resume(talk)
    }

    /// Asks for everything after what it shows; nothing without a session.
    fn resume(&self, talk: &mut Talk) -> Option<Value> {
        let state = self.shared.state();
        state.session.as_ref()?;
        talk.resuming = true;
        Some(json!({ "type": "resume", "positions": [{ "sessionId": state.session, "epoch": state.epoch, "lastSeq": state.shown.len() }] }))
    }

    /// A message, or the acceptance of an own one, which stands for it.
    fn count(&self, talk: &mut Talk, frame: &Value) -> anyhow::Result<Option<Value>> {
        let mut state = self.shared.state();
        if state.session.as_deref() != frame["sessionId"].as_str() {
            return Ok(None);
        }
        let seq = frame["seq"].as_u64().with_context(|| format!("{frame} has no seq"))?;
        let key = frame["clientMsgId"].as_str().unwrap_or_default();
        let own = state.written.get(key).cloned();
        if own.is_some()
            && let Some(at) = state.outbox.iter().position(|(id, _)| id == key)
        {
            state.outbox.remove(at);
            talk.sent -= usize::from(at < talk.sent);
        }
        let last = state.shown.len() as u64;
        if seq <= last {
            return Ok(None);
        }
        if seq > last + 1 {
            drop(state);
            return Ok(if talk.resuming { None } else { self.resume(talk) });
        }
        let (sender, content) = match (frame["type"] == "accepted", own) {
            (true, Some(content)) => (self.profile.id.clone(), content),
            (true, None) => bail!("{frame} accepts what was never written"),
            (false, own) => {
                let content = frame["content"].as_str().with_context(|| format!("{frame} has no content"))?;
                ensure!(own.is_none_or(|own| own == content), "{frame} differs from what was written");
                (frame["sender"]["id"].as_str().unwrap_or_default().to_owned(), content.to_owned())
            }
        };
        state.shown.push(StoredMessage { seq, sender, content });
        let due = seq >= talk.acked + ACK_EVERY;
        let ack = due.then(|| json!({ "type": "ack", "sessionId": state.session, "lastSeq": seq }));
        if due {
            talk.acked = seq;
        }
        Ok(ack)
    }
}

/// Whether a connection is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    Gone,
}

impl Link {
    fn is_gone(self) -> bool {
        self == Self::Gone
    }
}
