//! Many sockets that are opened, kept and listened to; each has one task and answers pings.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Target;
use crate::chat::frame::Frame;
use crate::load::{Asked, Heard, Socket};

/// Sockets that are being opened at a time.
const OPENING_AT_ONCE: usize = 64;
/// How long opening all of them may take: an unoptimised build needs minutes for ten thousand.
const OPENS_WITHIN: Duration = Duration::from_secs(300);
/// Attempts to open one of them, and the pause between two where the server names none.
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);
/// Between two looks at a count.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A frame that holds this is one of those that are counted.
pub(super) const MARK: &str = "fan-out";

/// One socket to open.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    /// Its number among all of a process.
    pub(super) number: usize,
    pub(super) path: String,
    /// Who sits there; nobody on a peer, which greets nobody either.
    pub(super) token: Option<String>,
    /// Opens a session.
    pub(super) opens: bool,
}

/// Sockets, open until this is dropped.
#[derive(Debug)]
pub(super) struct Crowd {
    tasks: JoinSet<()>,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    opened: AtomicU64,
    lost: AtomicU64,
    heard: AtomicU64,
    /// Bytes of the last frame that was counted.
    bytes: AtomicU64,
    /// Why the last one that is lost is lost.
    why: Mutex<String>,
    turns: Semaphore,
}

impl Crowd {
    /// Opens all of them, each with its greeting and its session where it has one.
    pub(super) async fn open(target: &Target, seats: Vec<Seat>) -> anyhow::Result<Self> {
        let counts = Arc::new(Counts {
            opened: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            why: Mutex::default(),
            turns: Semaphore::new(OPENING_AT_ONCE),
        });
        let (mut tasks, server, wanted) = (JoinSet::new(), target.server(), seats.len() as u64);
        for seat in seats {
            let counts = counts.clone();
            tasks.spawn(async move {
                let why = counts.sit(&seat, server).await;
                *counts.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
                counts.lost.fetch_add(1, Ordering::Relaxed);
            });
        }
        let crowd = Self { tasks, counts };
        let deadline = Instant::now() + OPENS_WITHIN;
        crowd.reaches("open", &crowd.counts.opened, wanted, deadline).await?;
        Ok(crowd)
    }

    /// Marked frames that have arrived, over all sockets.
    pub(super) fn heard(&self) -> u64 {
        self.counts.heard.load(Ordering::Relaxed)
    }

    /// Waits until `wanted` marked frames have arrived.
    pub(super) async fn hears(&self, wanted: u64, deadline: Instant) -> anyhow::Result<()> {
        self.reaches("heard", &self.counts.heard, wanted, deadline).await
    }

    /// Bytes of a marked frame.
    pub(super) fn frame_bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// Nobody may have left.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let lost = self.counts.lost.load(Ordering::Relaxed);
        let why = self.counts.why.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(lost == 0, "{lost} of {} sockets were lost: {why}", self.tasks.len());
        Ok(())
    }

    async fn reaches(&self, what: &str, count: &AtomicU64, wanted: u64, deadline: Instant) -> anyhow::Result<()> {
        while count.load(Ordering::Relaxed) < wanted {
            self.check()?;
            ensure!(Instant::now() < deadline, "{} of {wanted} were {what} in time", count.load(Ordering::Relaxed));
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

impl Counts {
    /// From the handshake to the end of the connection; how that came.
    async fn sit(&self, seat: &Seat, server: SocketAddr) -> String {
        let Ok(turn) = self.turns.acquire().await else { return String::new() };
        let asked = Asked { server, path: &seat.path, token: seat.token.as_deref(), number: seat.number };
        let mut attempts = 0;
        let mut socket = loop {
            attempts += 1;
            match Socket::open(asked).await {
                Ok(socket) => break socket,
                Err(refusal) if attempts < ATTEMPTS_MAX => sleep(refusal.retry_after.unwrap_or(PAUSE)).await,
                Err(refusal) => return format!("the handshake: {refusal:?}"),
            }
        };
        if !begin(&mut socket, seat).await {
            return "no greeting, or no session".to_owned();
        }
        drop(turn);
        self.opened.fetch_add(1, Ordering::Relaxed);
        format!("closed with {:?}", self.listen(&mut socket).await)
    }

    /// Until the end of the connection; its close code.
    async fn listen(&self, socket: &mut Socket) -> Option<u16> {
        loop {
            match socket.hear().await {
                Heard::Text(text) if text.contains(MARK) => {
                    self.bytes.store(text.len() as u64, Ordering::Relaxed);
                    self.heard.fetch_add(1, Ordering::Relaxed);
                }
                Heard::Text(_) => {}
                Heard::Closed(code) => return code,
            }
        }
    }
}

/// The greeting, and a session; whether both came.
async fn begin(socket: &mut Socket, seat: &Seat) -> bool {
    if seat.token.is_none() {
        return true;
    }
    if await_frame(socket, "hello").await.is_none() {
        return false;
    }
    !seat.opens || open_session(socket).await.is_some()
}

/// Opens a session; its id.
pub(super) async fn open_session(socket: &mut Socket) -> Option<String> {
    let open = json!({ "type": "open", "subject": "a socket of a bench", "reqId": "open" });
    if !socket.send(open.to_string()).await {
        return None;
    }
    Some(await_frame(socket, "opened").await?.session_id)
}

/// The next frame of a kind; `None` when the connection ends before, or something was refused.
pub(super) async fn await_frame(socket: &mut Socket, kind: &str) -> Option<Frame> {
    loop {
        match socket.hear().await {
            Heard::Text(text) => match Frame::read(&text) {
                Some(frame) if frame.kind == kind => return Some(frame),
                Some(frame) if frame.kind == "error" => return None,
                Some(_) | None => {}
            },
            Heard::Closed(_) => return None,
        }
    }
}
