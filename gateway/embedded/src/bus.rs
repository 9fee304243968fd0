//! [`Bus`] in memory: subjects with bounded mailboxes, and partitions with one inbox in force.
//!
//! Bounds: a subscriber has at most [`SUBSCRIBER_BACKLOG_MAX`] messages waiting and misses what comes on top; a
//! partition holds at most [`QUEUE_MESSAGES_MAX`] messages and [`QUEUE_BYTES_MAX`] bytes and refuses what comes on top.
//! Called through the port only.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use gateway_core::id::ShopId;
use gateway_core::ports::{Bus, Delivery, Inbox, PortResult, Request, Requests, Store, Subscription};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::{full, lock};

/// Messages that may wait for one subscriber; enough for a burst, small enough that a stuck socket costs little.
pub const SUBSCRIBER_BACKLOG_MAX: usize = 1_024;

/// Messages that may wait in one partition.
pub const QUEUE_MESSAGES_MAX: usize = 100_000;

/// Bytes that may wait in one partition: a thousand of the largest messages.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Messages between tasks of this process.
#[derive(Default)]
pub struct EmbeddedBus {
    subjects: Arc<Mutex<Subjects>>,
    partitions: Mutex<HashMap<u16, Arc<Partition>>>,
}

impl EmbeddedBus {
    /// A bus nobody listens to yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn listen(&self, subject: &str, group: Option<String>) -> MailboxReader {
        let (mailbox, messages) = mpsc::channel(SUBSCRIBER_BACKLOG_MAX);
        let mut subjects = lock(&self.subjects);
        subjects.last_id += 1;
        let id = subjects.last_id;
        subjects.mailboxes.entry(subject.to_owned()).or_default().push_back(Listener { id, group, mailbox });
        MailboxReader { subjects: Arc::downgrade(&self.subjects), subject: subject.to_owned(), id, messages }
    }

    fn partition(&self, partition: u16) -> Arc<Partition> {
        Arc::clone(lock(&self.partitions).entry(partition).or_default())
    }
}

#[async_trait]
impl Bus for EmbeddedBus {
    async fn publish(&self, subject: &str, payload: Bytes) -> PortResult<()> {
        let mut subjects = lock(&self.subjects);
        let Some(listeners) = subjects.mailboxes.get_mut(subject) else { return Ok(()) };
        let mut served = BTreeSet::new();
        for Listener { mailbox, group, .. } in listeners.iter() {
            // A full mailbox misses the message, as the port says; of a group the first that has room gets it.
            if group.as_ref().is_none_or(|group| !served.contains(group)) && mailbox.try_send(payload.clone()).is_ok() {
                served.extend(group.clone());
            }
        }
        // Whoever was served goes to the end, so that a group takes turns.
        listeners.rotate_left(1);
        Ok(())
    }

    async fn subscribe(&self, subject: &str) -> PortResult<Box<dyn Subscription>> {
        Ok(Box::new(self.listen(subject, None)))
    }

    async fn serve(&self, subject: &str, group: &str) -> PortResult<Box<dyn Requests>> {
        Ok(Box::new(self.listen(subject, Some(group.to_owned()))))
    }

    async fn enqueue(&self, partition: u16, shop: ShopId, payload: Bytes) -> PortResult<()> {
        let partition = self.partition(partition);
        let accepted = lock(&partition.queue).push(shop, payload);
        partition.arrived.notify_waiters();
        if accepted { Ok(()) } else { Err(full(Store::Nats, "enqueue a message")) }
    }

    async fn queued(&self, shop: ShopId) -> PortResult<u64> {
        let partitions: Vec<_> = lock(&self.partitions).values().cloned().collect();
        Ok(partitions.iter().map(|partition| lock(&partition.queue).waiting_of(shop)).sum())
    }

    async fn open_inbox(&self, partition: u16, token: u64) -> PortResult<Box<dyn Inbox>> {
        let partition = self.partition(partition);
        let opening = lock(&partition.queue).open(token);
        Ok(Box::new(PartitionInbox { partition, opening }))
    }
}

/// Who listens to what.
#[derive(Default)]
struct Subjects {
    last_id: u64,
    mailboxes: HashMap<String, VecDeque<Listener>>,
}

struct Listener {
    id: u64,
    /// Who shares the messages of the subject with it; `None`: it hears them all.
    group: Option<String>,
    mailbox: mpsc::Sender<Bytes>,
}

/// The receiving end of a subscription. It does not keep the bus alive: when the bus goes, `next` says so.
struct MailboxReader {
    subjects: Weak<Mutex<Subjects>>,
    subject: String,
    id: u64,
    messages: mpsc::Receiver<Bytes>,
}

#[async_trait]
impl Subscription for MailboxReader {
    async fn next(&mut self) -> Option<Bytes> {
        // Cancel safe: the channel takes a message out only when it hands it over.
        self.messages.recv().await
    }
}

/// Nobody waits for an answer here: [`Bus::publish`] has no place for the subject of one.
#[async_trait]
impl Requests for MailboxReader {
    async fn next(&mut self) -> Option<Request> {
        // Cancel safe like the subscription's.
        Some(Request { payload: self.messages.recv().await?, reply: None })
    }
}

impl Drop for MailboxReader {
    fn drop(&mut self) {
        let Some(subjects) = self.subjects.upgrade() else { return };
        let mut subjects = lock(&subjects);
        if let Some(mailboxes) = subjects.mailboxes.get_mut(&self.subject) {
            mailboxes.retain(|listener| listener.id != self.id);
            if mailboxes.is_empty() {
                subjects.mailboxes.remove(&self.subject);
            }
        }
    }
}

#[derive(Default)]
struct Partition {
    queue: Mutex<Queue>,
    arrived: Notify,
}

/// Messages of one partition until they are acknowledged, and which inbox may take them.
#[derive(Default)]
struct Queue {
    last_id: u64,
    messages: BTreeMap<u64, (ShopId, Bytes)>,
    bytes: usize,
    /// Messages of each shop that has any.
    shops: HashMap<ShopId, u64>,
    /// Highest lease token seen.
    token: u64,
    /// Numbers the inboxes; the one in force is the last.
    opening: u64,
    /// First message the inbox in force has not been given.
    next: u64,
}

impl Queue {
    fn push(&mut self, shop: ShopId, payload: Bytes) -> bool {
        if self.messages.len() >= QUEUE_MESSAGES_MAX || self.bytes + payload.len() > QUEUE_BYTES_MAX {
            return false;
        }
        self.last_id += 1;
        self.bytes += payload.len();
        *self.shops.entry(shop).or_default() += 1;
        self.messages.insert(self.last_id, (shop, payload));
        true
    }

    fn waiting_of(&self, shop: ShopId) -> u64 {
        self.shops.get(&shop).copied().unwrap_or_default()
    }

    /// Puts a new inbox in force and rewinds to the oldest message; `None` for one that comes too late to count.
    fn open(&mut self, token: u64) -> Option<u64> {
        if token < self.token {
            return None;
        }
        self.token = token;
        self.opening += 1;
        self.next = 0;
        Some(self.opening)
    }

    fn take(&mut self, opening: Option<u64>, max: usize) -> Vec<Delivery> {
        if opening != Some(self.opening) {
            return Vec::new();
        }
        let mut due = Vec::new();
        for (id, (_, payload)) in self.messages.range(self.next..).take(max) {
            self.next = id + 1;
            due.push(Delivery { ack: id.to_string(), payload: payload.clone() });
        }
        due
    }

    fn acknowledge(&mut self, deliveries: &[Delivery]) {
        for id in deliveries.iter().filter_map(|delivery| delivery.ack.parse().ok()) {
            let Some((shop, payload)) = self.messages.remove(&id) else { continue };
            self.bytes -= payload.len();
            if let Some(waiting) = self.shops.get_mut(&shop) {
                *waiting -= 1;
                if *waiting == 0 {
                    self.shops.remove(&shop);
                }
            }
        }
    }
}

struct PartitionInbox {
    partition: Arc<Partition>,
    opening: Option<u64>,
}

#[async_trait]
impl Inbox for PartitionInbox {
    async fn fetch(&mut self, max: usize, wait: Duration) -> PortResult<Vec<Delivery>> {
        let first = async {
            loop {
                // Created before looking, so that a message that comes in between still wakes us.
                let arrived = self.partition.arrived.notified();
                let due = lock(&self.partition.queue).take(self.opening, max);
                if !due.is_empty() {
                    return due;
                }
                arrived.await;
            }
        };
        // An inbox that was superseded waits the time out too, so that its owner's loop does not spin.
        Ok(timeout(wait, first).await.unwrap_or_default())
    }

    async fn acknowledge(&mut self, deliveries: &[Delivery]) -> PortResult<()> {
        lock(&self.partition.queue).acknowledge(deliveries);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stuck_subscriber_misses_the_newest_and_costs_no_more() {
        let bus = EmbeddedBus::new();
        let mut reader = bus.subscribe("s").await.expect("subscribe");
        for n in 0..=SUBSCRIBER_BACKLOG_MAX {
            bus.publish("s", Bytes::from(n.to_string())).await.expect("publish");
        }
        drop(bus);
        let mut seen = 0;
        while let Some(message) = reader.next().await {
            assert_eq!(message, Bytes::from(seen.to_string()));
            seen += 1;
        }
        assert_eq!(seen, SUBSCRIBER_BACKLOG_MAX);
    }

    #[tokio::test]
    async fn a_dropped_subscription_leaves_nothing_behind() {
        let bus = EmbeddedBus::new();
        let (one, two) = (bus.subscribe("s").await, bus.subscribe("s").await);
        drop(one);
        assert_eq!(lock(&bus.subjects).mailboxes["s"].len(), 1);
        drop(two);
        assert!(lock(&bus.subjects).mailboxes.is_empty());
    }

    #[test]
    fn a_partition_refuses_what_it_cannot_hold() {
        let mut queue = Queue::default();
        let large = Bytes::from(vec![0; QUEUE_BYTES_MAX]);
        assert!(queue.push(ShopId(1), large));
        assert!(!queue.push(ShopId(1), Bytes::from_static(b"x")));
        let due = queue.open(1).map(|opening| queue.take(Some(opening), 10)).expect("opened");
        queue.acknowledge(&due);
        queue.acknowledge(&due);
        assert!(queue.push(ShopId(1), Bytes::from_static(b"x")), "acknowledging makes room, and once");
        assert_eq!(queue.bytes, 1);
    }
}
