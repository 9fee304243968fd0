//! Bus: fan-out between nodes, and the queue in front of the chat worker.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::id::ShopId;
use crate::ports::PortResult;

/// Messages between processes.
///
/// Promise of [`Bus::publish`]: at most once, per subject in the order one publisher sent them; subscribers that are
/// slow or away miss messages, so a receiver must be able to repair itself.
/// Promise of [`Bus::enqueue`]: once it returns, the message stays until a worker acknowledges it, also when every
/// Sluice process dies; per partition first in, first out. It is a buffer, not durability: the bus itself may lose it.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Sends to whoever listens now.
    async fn publish(&self, subject: &str, payload: Bytes) -> PortResult<()>;

    /// Listens to one literal subject. Messages published after this returns are seen.
    async fn subscribe(&self, subject: &str) -> PortResult<Box<dyn Subscription>>;

    /// Listens to one literal subject together with others of the same `group`: each request goes to one of them.
    async fn serve(&self, subject: &str, group: &str) -> PortResult<Box<dyn Requests>>;

    /// Appends to `partition`.
    async fn enqueue(&self, partition: u16, shop: ShopId, payload: Bytes) -> PortResult<()>;

    /// How many messages of a shop wait in all partitions, those under way included.
    async fn queued(&self, shop: ShopId) -> PortResult<u64>;

    /// Takes `partition` over under lease `token`: whatever is unacknowledged is delivered again, oldest first, before
    /// anything newer. An inbox opened earlier under a lower token stops yielding.
    async fn open_inbox(&self, partition: u16, token: u64) -> PortResult<Box<dyn Inbox>>;
}

/// A running subscription; dropping it ends it.
#[async_trait]
pub trait Subscription: Send {
    /// The next message; `None` when the bus is gone for good. Cancel safe.
    async fn next(&mut self) -> Option<Bytes>;
}

/// A request to whoever serves a subject.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is asked.
    pub payload: Bytes,
    /// The subject to [`Bus::publish`] the answer to; `None`: nobody waits for one.
    pub reply: Option<String>,
}

/// A subject that is served; dropping it ends that.
#[async_trait]
pub trait Requests: Send {
    /// The next request; `None` when the bus is gone for good. Cancel safe. A request may be lost before it is seen here,
    /// so whoever asks without an answer asks again.
    async fn next(&mut self) -> Option<Request>;
}

/// A queued message.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// What the adapter needs to acknowledge it.
    pub ack: String,
    /// The payload given to [`Bus::enqueue`].
    pub payload: Bytes,
}

/// A partition in the hands of its lease holder.
#[async_trait]
pub trait Inbox: Send {
    /// Up to `max` messages in order; waits at most `wait` for the first one. Messages fetched and not acknowledged stay
    /// with this inbox and come again only to a later one.
    async fn fetch(&mut self, max: usize, wait: Duration) -> PortResult<Vec<Delivery>>;

    /// Acknowledges deliveries; they will not come again.
    async fn acknowledge(&mut self, deliveries: &[Delivery]) -> PortResult<()>;
}
