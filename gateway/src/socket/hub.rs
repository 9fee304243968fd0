//! Who on this node hears whom: one subscription per party, however many sockets it has here.
//!
//! A payload is decoded once and handed to every socket as the same [`Heard`], whose frame is encoded once. A socket that does not
//! keep up, and every socket of a party that could not be listened to for a while, is told that something is lost and asks the
//! stores where its sessions stand.
//! What never happens here: waiting for a socket, or keeping an event for later. Called by the openings of sockets, by whoever
//! tells this node's sockets something itself, and by the switchboard.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gateway_core::backoff::Backoff;
use gateway_core::chat::Party;
use gateway_core::chat::event::{Event, Heard};
use gateway_core::ports::{Bus, Vault};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::health;
use crate::socket::seals;

/// Events that may wait for one socket. It takes them as they come unless the machine is busy, so more means that it is behind,
/// and reading from storage is cheaper than a longer queue.
const BEHIND_MAX: usize = 64;

/// Between two attempts to listen to a bus that is away.
const LISTEN_AGAIN: Backoff = Backoff { min: Duration::from_millis(100), max: Duration::from_secs(2) };

/// The parties with sockets on this node.
pub(crate) struct Hub {
    bus: Arc<dyn Bus>,
    vault: Arc<dyn Vault>,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    by_subject: HashMap<String, Arc<Line>>,
    /// Whoever comes once this is set is told so at once.
    draining: bool,
}

/// One party.
struct Line {
    party: Party,
    boxes: Mutex<Vec<Arc<Mailbox>>>,
    ear: watch::Sender<Ear>,
    pump: Mutex<Option<AbortHandle>>,
}

/// How a party is listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ear {
    /// Not known yet.
    Opening,
    /// What is published is heard.
    Open,
    /// The bus is away.
    Deaf,
}

/// A socket's place: events reach it until this is dropped. The last one of a party ends its subscription.
pub(crate) struct Seat {
    hub: Arc<Hub>,
    subject: String,
    mailbox: Arc<Mailbox>,
}

/// What reaches a socket from inside.
#[derive(Debug)]
pub(crate) enum Post {
    /// Something happened.
    Heard(Arc<Heard>),
    /// Something may have happened that was not heard.
    Lost,
    /// The token is revoked.
    Revoked,
    /// The node hands its connections over.
    Drain,
}

impl Hub {
    /// Over `bus`; `vault` opens what is sealed in what is heard.
    pub(crate) fn new(bus: Arc<dyn Bus>, vault: Arc<dyn Vault>) -> Arc<Self> {
        Arc::new(Self { bus, vault, lines: Mutex::default() })
    }

    /// A seat for a socket of `party`; what is published once this has returned is heard, or told as lost. Takes no longer than
    /// one attempt to subscribe; with a bus that is away the socket hears what is told on this node.
    pub(crate) async fn join(self: &Arc<Self>, party: &Party, token_id: Option<String>) -> Seat {
        let mailbox = Arc::new(Mailbox { inner: Mutex::new(Inner { token_id, ..Inner::default() }) });
        let subject = party.subject();
        let line = {
            let mut lines = self.lines();
            if lines.draining {
                mailbox.raise(|inner| inner.drain = true);
            }
            let line = lines.by_subject.entry(subject.clone()).or_insert_with(|| self.open(party, &subject)).clone();
            line.boxes().push(mailbox.clone());
            line
        };
        // From here on whoever gives up leaves by dropping the seat.
        let seat = Seat { hub: self.clone(), subject, mailbox };
        let mut ear = line.ear.subscribe();
        // Only a hub that is gone ends the other side.
        let _ = ear.wait_for(|ear| *ear != Ear::Opening).await;
        seat
    }

    fn open(self: &Arc<Self>, party: &Party, subject: &str) -> Arc<Line> {
        let line =
            Arc::new(Line { party: party.clone(), boxes: Mutex::default(), ear: watch::Sender::new(Ear::Opening), pump: Mutex::default() });
        let pump = tokio::spawn(pump(self.bus.clone(), self.vault.clone(), line.clone(), subject.to_owned()));
        *line.pump.lock().unwrap_or_else(PoisonError::into_inner) = Some(pump.abort_handle());
        line
    }

    /// Tells the sockets of a subject on this node, save the connection that caused the event: whoever calls this answers it.
    pub(crate) fn tell(&self, subject: &str, heard: &Arc<Heard>) {
        let line = self.lines().by_subject.get(subject).cloned();
        if let Some(line) = line {
            let cause = cause(&heard.event);
            line.boxes().iter().filter(|mailbox| cause.is_none() || mailbox.inner().speaks_for.as_deref() != cause).for_each(|mailbox| {
                mailbox.put(heard);
            });
        }
    }

    /// Tells every socket that the node drains, also those that come later.
    pub(crate) fn drain(&self) {
        self.lines().draining = true;
        self.each(|_, mailbox| mailbox.raise(|inner| inner.drain = true));
    }

    /// Ends every socket whose party or token `is_revoked` says so.
    pub(crate) fn revoke(&self, is_revoked: impl Fn(&str) -> bool) {
        self.each(|party, mailbox| {
            mailbox.raise(|inner| {
                inner.revoked |= is_revoked(party.id.as_str()) || inner.token_id.as_deref().is_some_and(&is_revoked);
            });
        });
    }

    fn each(&self, act: impl Fn(&Party, &Mailbox)) {
        let lines: Vec<_> = self.lines().by_subject.values().cloned().collect();
        for line in lines {
            line.boxes().iter().for_each(|mailbox| act(&line.party, mailbox));
        }
    }

    fn leave(&self, subject: &str, mailbox: &Arc<Mailbox>) {
        // Both locks: nobody can sit down on a line that is being taken away.
        let mut lines = self.lines();
        let Some(line) = lines.by_subject.get(subject) else { return };
        let mut boxes = line.boxes();
        boxes.retain(|other| !Arc::ptr_eq(other, mailbox));
        let empty = boxes.is_empty();
        drop(boxes);
        if empty && let Some(line) = lines.by_subject.remove(subject) {
            line.hang_up();
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn boxes(&self) -> MutexGuard<'_, Vec<Arc<Mailbox>>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, heard: &Arc<Heard>) {
        self.boxes().iter().for_each(|mailbox| mailbox.put(heard));
    }

    fn hang_up(&self) {
        if let Some(pump) = self.pump.lock().unwrap_or_else(PoisonError::into_inner).take() {
            pump.abort();
        }
    }
}

/// The connection that an event answers.
fn cause(event: &Event) -> Option<&str> {
    match event {
        Event::Stored { origin, .. } | Event::Refused { origin, .. } => Some(origin),
        Event::Assigned { .. }
        | Event::Read { .. }
        | Event::SaleResult { .. }
        | Event::Typing { .. }
        | Event::Presence { .. }
        | Event::Received { .. }
        | Event::Closed { .. }
        | Event::Waiting { .. }
        | Event::Overdue { .. } => None,
    }
}

/// Listens to one subject until it is aborted.
async fn pump(bus: Arc<dyn Bus>, vault: Arc<dyn Vault>, line: Arc<Line>, subject: String) {
    let mut failures = 0;
    loop {
        match bus.subscribe(&subject).await {
            Ok(mut subscription) => {
                failures = 0;
                if line.ear.send_replace(Ear::Open) == Ear::Deaf {
                    line.boxes().iter().for_each(|mailbox| mailbox.raise(|inner| inner.lost = true));
                }
                while let Some(payload) = subscription.next().await {
                    match Event::decode(&payload) {
                        Ok(event) => line.tell(&Arc::new(Heard::new(seals::open_event(&*vault, event)))),
                        Err(error) => tracing::warn!(%error, "a message on the bus is no event"),
                    }
                }
            }
            Err(error) => tracing::debug!(error = health::chain(&error), "cannot listen to a party now"),
        }
        line.ear.send_replace(Ear::Deaf);
        sleep(LISTEN_AGAIN.delay(failures, rand::random())).await;
        failures = failures.saturating_add(1);
    }
}

/// What waits for one socket.
struct Mailbox {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Arc<Heard>>,
    lost: bool,
    revoked: bool,
    drain: bool,
    waker: Option<Waker>,
    token_id: Option<String>,
    /// The connection whose own events it is told by whoever brings them about.
    speaks_for: Option<Box<str>>,
}

impl Mailbox {
    fn put(&self, heard: &Arc<Heard>) {
        self.raise(|inner| {
            if inner.queue.len() < BEHIND_MAX {
                inner.queue.push_back(heard.clone());
            } else {
                inner.lost = true;
            }
        });
    }

    fn raise(&self, change: impl FnOnce(&mut Inner)) {
        let waker = {
            let mut inner = self.inner();
            change(&mut inner);
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// The next thing to hear: what ends the socket first, then events in order, then whether some were lost.
    pub(crate) fn poll_post(&self, cx: &mut Context<'_>) -> Poll<Post> {
        let mut inner = self.mailbox.inner();
        if std::mem::take(&mut inner.revoked) {
            return Poll::Ready(Post::Revoked);
        }
        if std::mem::take(&mut inner.drain) {
            return Poll::Ready(Post::Drain);
        }
        if let Some(heard) = inner.queue.pop_front() {
            return Poll::Ready(Post::Heard(heard));
        }
        if std::mem::take(&mut inner.lost) {
            return Poll::Ready(Post::Lost);
        }
        if !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The seat is `connection`'s.
    pub(crate) fn speak_for(&self, connection: &str) {
        self.mailbox.inner().speaks_for = Some(connection.into());
    }

    /// The socket goes on with another token.
    pub(crate) fn renew(&self, token_id: Option<String>) {
        self.mailbox.inner().token_id = token_id;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hub.leave(&self.subject, &self.mailbox);
    }
}

#[cfg(test)]
mod tests;
