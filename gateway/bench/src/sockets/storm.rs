//! A node dies and everybody comes back at once: how long until the last has what it missed, and whether anybody was sent away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::crowd::{await_frame, open_session};
use super::{Options, Target};
use crate::Sign;
use crate::chat::frame::Frame;
use crate::load::{Asked, Heard, Latencies, Refusal, Socket, Summary};
use crate::rig::{Part, Rig};

/// Messages in everybody's session, and how many of them are known before the storm.
const MESSAGES: u64 = 5;
const KNOWN: u64 = 2;
/// Sockets that are being prepared at a time.
const PREPARING_AT_ONCE: usize = 128;
/// How long that may take for all of them, and for one.
const PREPARES_WITHIN: Duration = Duration::from_secs(600);
const ONE_PREPARES_WITHIN: Duration = Duration::from_secs(30);
/// How long the storm may last.
const PASSES_WITHIN: Duration = Duration::from_secs(120);
/// The range of the random wait before an attempt, where the server names none, and the longest. It doubles with each attempt.
const RECONNECT_WITHIN: Duration = Duration::from_secs(1);
const RECONNECT_WITHIN_MAX: Duration = Duration::from_secs(30);
/// What was asked for and does not come within this is asked for on another connection.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);
/// Between two looks at a count.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What was measured. Times count from the instant at which the node was killed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Storm {
    sockets: u32,
    missed_each: u64,
    listening_again_ms: u64,
    caught_up_ms: Summary,
    /// Of the last, after the node listened again.
    last_after_listening_ms: u64,
    attempts: u64,
    put_off: u64,
    refused_for_good: u64,
}

#[derive(Debug, Default)]
struct Counts {
    prepared: AtomicU64,
    attempts: AtomicU64,
    put_off: AtomicU64,
    refused: AtomicU64,
    back: AtomicU64,
}

pub(super) async fn measure(options: &Options, target: &Target, sign: Sign<'_>) -> anyhow::Result<Storm> {
    let rig = target.rig().context("a storm needs a node of its own: leave --server out")?;
    let count = options.count as usize;
    let (counts, turns) = (Arc::new(Counts::default()), Arc::new(Semaphore::new(PREPARING_AT_ONCE)));
    let mut guests = JoinSet::new();
    for (number, token) in target.tokens(sign, "guest", count)?.into_iter().enumerate() {
        let guest = Guest { number, token: token.unwrap_or_default(), rig: rig.clone(), counts: counts.clone() };
        guests.spawn(guest.visit(turns.clone()));
    }
    reaches("prepared", &counts.prepared, count, Instant::now() + PREPARES_WITHIN).await?;

    let killed = Instant::now();
    rig.kill(Part::Node(0));
    rig.restart(Part::Node(0)).await?;
    let listening = killed.elapsed();
    let passed = reaches("caught up or sent away", &counts.back, count, killed + PASSES_WITHIN).await;
    guests.abort_all();
    passed?;
    let mut times = Vec::new();
    while let Some(guest) = guests.join_next().await {
        times.extend(guest.ok().flatten().map(|caught_up| caught_up.saturating_duration_since(killed)));
    }
    let last = times.iter().copied().max().unwrap_or_default();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(Storm {
        sockets: options.count,
        missed_each: MESSAGES - KNOWN,
        listening_again_ms: millis(listening),
        caught_up_ms: Latencies::of(times.into_iter())?.summary(),
        last_after_listening_ms: millis(last.saturating_sub(listening)),
        attempts: counts.attempts.load(Ordering::Relaxed),
        put_off: counts.put_off.load(Ordering::Relaxed),
        refused_for_good: counts.refused.load(Ordering::Relaxed),
    })
}

async fn reaches(what: &str, count: &AtomicU64, wanted: usize, deadline: Instant) -> anyhow::Result<()> {
    while count.load(Ordering::Relaxed) < wanted as u64 {
        ensure!(Instant::now() < deadline, "only {} of {wanted} were {what} in time", count.load(Ordering::Relaxed));
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

struct Guest {
    number: usize,
    token: String,
    rig: Arc<Rig>,
    counts: Arc<Counts>,
}

/// What a guest knows when the storm comes.
struct Session {
    id: String,
    epoch: String,
    reconnect_within: Duration,
}

impl Guest {
    /// Writes, waits for the storm, comes back; when it had everything. `None`: it was sent away.
    async fn visit(self, turns: Arc<Semaphore>) -> Option<Instant> {
        let turn = turns.acquire().await.ok()?;
        let (mut socket, session) = timeout(ONE_PREPARES_WITHIN, self.prepare()).await.ok()??;
        drop(turn);
        self.counts.prepared.fetch_add(1, Ordering::Relaxed);
        while let Heard::Text(_) = socket.hear().await {}
        let caught_up = self.come_back(&session).await;
        self.counts.back.fetch_add(1, Ordering::Relaxed);
        caught_up
    }

    async fn open(&self) -> Result<Socket, Refusal> {
        let asked = Asked { server: self.rig.edge(0), path: "/ws/chat", token: Some(&self.token), number: self.number };
        Socket::open(asked).await
    }

    /// A session with messages.
    async fn prepare(&self) -> Option<(Socket, Session)> {
        let mut socket = self.open().await.ok()?;
        let hello = await_frame(&mut socket, "hello").await?;
        let reconnect_within = hello.reconnect_ms.map_or(RECONNECT_WITHIN, Duration::from_millis);
        let id = open_session(&mut socket).await?;
        let mut epoch = String::new();
        for number in 1..=MESSAGES {
            let content = format!("message {number} of guest {}", self.number);
            let frame =
                json!({ "type": "text", "sessionId": id, "content": content, "clientMsgId": format!("g-{}-{number}", self.number) });
            if !socket.send(frame.to_string()).await {
                return None;
            }
            let accepted = await_frame(&mut socket, "accepted").await?;
            epoch = accepted.epoch;
        }
        Some((socket, Session { id, epoch, reconnect_within }))
    }

    async fn come_back(&self, session: &Session) -> Option<Instant> {
        let mut random = StdRng::seed_from_u64(self.number as u64);
        let mut range = session.reconnect_within;
        loop {
            sleep(range.mul_f64(random.random())).await;
            range = (2 * range).min(RECONNECT_WITHIN_MAX);
            self.counts.attempts.fetch_add(1, Ordering::Relaxed);
            match self.open().await {
                Ok(socket) => {
                    if let Ok(Some(caught_up)) = timeout(ANSWERS_WITHIN, catch_up(socket, session)).await {
                        return Some(caught_up);
                    }
                }
                Err(Refusal { retry_after: Some(told), .. }) => {
                    self.counts.put_off.fetch_add(1, Ordering::Relaxed);
                    sleep(told.min(RECONNECT_WITHIN_MAX)).await;
                    // The server has said when; the range only keeps those apart who were told the same.
                    range = session.reconnect_within;
                }
                Err(Refusal { status: Some(status), .. }) if status < 500 => {
                    self.counts.refused.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
                Err(_) => {}
            }
        }
    }
}

/// Asks for what was missed; when all of it was there. `None`: the connection ended before.
async fn catch_up(mut socket: Socket, session: &Session) -> Option<Instant> {
    let position = json!({ "sessionId": session.id, "epoch": session.epoch, "lastSeq": KNOWN });
    await_frame(&mut socket, "hello").await?;
    if !socket.send(json!({ "type": "resume", "positions": [position] }).to_string()).await {
        return None;
    }
    let mut last = KNOWN;
    loop {
        let Heard::Text(text) = socket.hear().await else { return None };
        let frame = Frame::read(&text)?;
        match frame.kind.as_str() {
            "text" if frame.seq == last + 1 => last += 1,
            "replay_end" if last == MESSAGES => return Some(Instant::now()),
            "replay_end" | "resync" | "error" => return None,
            _ => {}
        }
    }
}
