//! One partition of the queue in the hands of its lease holder: a pull consumer named `p<partition>-<token>`.
//!
//! Order is everything here. The server hands a message out once, and again only to a later inbox (or after
//! [`ACK_WAIT`]), so nothing it handed out may get lost on the way: replies stay in one subscription across calls, and an
//! inbox whose connection broke, or whose numbers do not follow each other, refuses to go on until it is opened again.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::{BatchConfig, Config};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer};
use async_nats::jetstream::{Message as QueueMessage, stream::Stream};
use async_nats::{Message, StatusCode, Subject, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use gateway_core::ports::{Delivery, Inbox, PortResult};
use tokio::time::Instant;

use super::{NatsBus, Trouble};
use crate::error::{failed, within};

/// Long enough that no message comes again within the life of a working inbox: coming again would break the order.
const ACK_WAIT: Duration = Duration::from_secs(600);

/// Messages handed out and not acknowledged; the server then waits. Four of the worker's largest batches.
const UNACKNOWLEDGED_MAX: i64 = 1_024;

/// Messages asked for at once. Below the capacity of a subscription, so that none is dropped for want of room.
const ASK_MAX: usize = 256;

/// How long the server keeps a request for messages that are not there yet.
const ASK_FOR: Duration = Duration::from_secs(2);

/// How much later than that the end of a request may be heard of.
const ASK_GRACE: Duration = Duration::from_secs(1);

const ACK: Bytes = Bytes::from_static(b"+ACK");

pub(super) struct NatsInbox {
    bus: NatsBus,
    partition: u16,
    token: u64,
    consumer: PullConsumer,
    replies: Subscriber,
    reply_to: Subject,
    /// The connection this inbox was opened on.
    connects: u64,
    /// The request the server is still answering.
    asked: Option<Asked>,
    /// Messages that arrived and were not fetched yet.
    arrived: VecDeque<Delivery>,
    /// Number of the last message that arrived, counted by the consumer from 1.
    last: u64,
    lost: bool,
}

struct Asked {
    left: usize,
    until: Instant,
}

impl NatsInbox {
    /// Takes the partition over: consumers of lower tokens go, and what they did not acknowledge comes to this one.
    pub(super) async fn open(bus: NatsBus, partition: u16, token: u64) -> Result<Self, Trouble> {
        let connects = bus.connects();
        let queue = bus.queue().await?;
        for (name, theirs) in consumers(&queue, partition).await? {
            if theirs > token {
                return Err(Trouble::Superseded);
            }
            queue.delete_consumer(&name).await.map_err(Trouble::passing)?;
        }
        let name = format!("{}{token}", prefix(partition));
        let config = Config {
            name: Some(name.clone()),
            durable_name: Some(name),
            filter_subject: format!("chat.in.{partition}.*"),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_ack_pending: UNACKNOWLEDGED_MAX,
            ..Config::default()
        };
        // Two holders at once: the queue allows one consumer per partition, so the second creation fails and is tried again.
        let consumer = queue.create_consumer(config).await.map_err(Trouble::passing)?;
        let reply_to = Subject::from(bus.client.new_inbox());
        let replies = bus.client.subscribe(reply_to.clone()).await.map_err(Trouble::passing)?;
        let arrived = VecDeque::new();
        Ok(Self { bus, partition, token, consumer, replies, reply_to, connects, asked: None, arrived, last: 0, lost: false })
    }

    /// At least one message that arrived, or none at `deadline`. Cancel safe: what arrived stays in `self`.
    async fn await_arrival(&mut self, max: usize, deadline: Instant) -> Result<(), Trouble> {
        while self.arrived.is_empty() && Instant::now() < deadline {
            self.check()?;
            let until = self.ask(max).await?.min(deadline);
            match tokio::time::timeout_at(until, self.replies.next()).await {
                Ok(Some(message)) => self.take(message).await?,
                Ok(None) => return Err(Trouble::Disconnected),
                Err(_) => {}
            }
        }
        while self.arrived.len() < max
            && let Some(Some(message)) = self.replies.next().now_or_never()
        {
            self.take(message).await?;
        }
        Ok(())
    }

    /// Makes sure that a request is with the server; says when it is over.
    async fn ask(&mut self, max: usize) -> Result<Instant, Trouble> {
        let now = Instant::now();
        match self.asked.take() {
            Some(asked) if now < asked.until => {
                let until = asked.until;
                self.asked = Some(asked);
                return Ok(until);
            }
            // A server tells the end of every request, unless the consumer it was meant for is gone.
            Some(_) => self.check_consumer().await?,
            None => {}
        }
        let left = max.clamp(1, ASK_MAX);
        let batch = BatchConfig { batch: left, expires: Some(ASK_FOR), ..BatchConfig::default() };
        self.consumer.request_batch(batch, self.reply_to.clone()).await.map_err(Trouble::passing)?;
        let until = now + ASK_FOR + ASK_GRACE;
        self.asked = Some(Asked { left, until });
        Ok(until)
    }

    /// Takes one reply of the server: a message, or a word about the request.
    async fn take(&mut self, message: Message) -> Result<(), Trouble> {
        match message.status {
            None => {}
            Some(StatusCode::IDLE_HEARTBEAT) => return Ok(()),
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                self.asked = None;
                return Ok(());
            }
            // The consumer is gone, or the server has no room for the request: either way this request is over.
            Some(_) => {
                self.asked = None;
                self.check_consumer().await?;
                return Err(Trouble::Refused);
            }
        }
        let message = QueueMessage { message, context: self.bus.jetstream.clone() };
        let number = message.info().map(|info| info.consumer_sequence).unwrap_or_default();
        let (Some(ack), true) = (message.reply.as_ref(), number == self.last + 1) else {
            self.lost = true;
            return Err(Trouble::Lost);
        };
        self.last = number;
        self.asked = self.asked.take().map(|asked| Asked { left: asked.left - 1, ..asked }).filter(|asked| asked.left > 0);
        self.arrived.push_back(Delivery { ack: ack.to_string(), payload: message.message.payload.clone() });
        Ok(())
    }

    /// Whether this inbox may go on.
    fn check(&self) -> Result<(), Trouble> {
        if self.lost {
            Err(Trouble::Lost)
        } else if !self.bus.is_connected() {
            Err(Trouble::Disconnected)
        } else if self.bus.connects() != self.connects {
            // What the server sent into the old connection counts as handed out; only a new inbox gets it again.
            Err(Trouble::Reconnected)
        } else {
            Ok(())
        }
    }

    /// Whether the partition is still in these hands: fails when its consumer is another one, or gone.
    async fn check_consumer(&mut self) -> Result<(), Trouble> {
        let found = consumers(&self.bus.queue().await?, self.partition).await?;
        if found.iter().any(|(_, token)| *token > self.token) {
            return Err(Trouble::Superseded);
        }
        self.lost = !found.iter().any(|(_, token)| *token == self.token);
        self.check()
    }
}

#[async_trait]
impl Inbox for NatsInbox {
    async fn fetch(&mut self, max: usize, wait: Duration) -> PortResult<Vec<Delivery>> {
        const DOING: &str = "fetch messages";
        if max == 0 {
            return Ok(Vec::new());
        }
        self.check().map_err(|trouble| failed(DOING, trouble))?;
        let limit = wait.saturating_add(self.bus.settings.timeout);
        within(limit, DOING, self.await_arrival(max, Instant::now() + wait)).await?;
        let count = self.arrived.len().min(max);
        Ok(self.arrived.drain(..count).collect())
    }

    async fn acknowledge(&mut self, deliveries: &[Delivery]) -> PortResult<()> {
        let Some((last, others)) = deliveries.split_last() else { return Ok(()) };
        let client = self.bus.client.clone();
        let answer = self
            .bus
            .run("acknowledge messages", async {
                for delivery in others {
                    client.publish(delivery.ack.clone(), ACK).await.map_err(Trouble::passing)?;
                }
                // The server handles acknowledgements in order, so its answer to the last one speaks for all.
                client.request(last.ack.clone(), ACK).await.map(drop).map_err(Trouble::passing)
            })
            .await;
        let Err(error) = answer else { return Ok(()) };
        // A consumer that is gone answers nothing; its successor tells a takeover from a fault.
        let bus = self.bus.clone();
        bus.run("acknowledge messages", self.check_consumer()).await.and(Err(error))
    }
}

fn prefix(partition: u16) -> String {
    format!("p{partition}-")
}

/// The consumers of a partition, with their tokens.
async fn consumers(queue: &Stream, partition: u16) -> Result<Vec<(String, u64)>, Trouble> {
    let prefix = prefix(partition);
    let names: Vec<String> = queue.consumer_names().try_collect().await.map_err(Trouble::passing)?;
    Ok(names.into_iter().filter_map(|name| name.strip_prefix(&prefix)?.parse().ok().map(|token| (name.clone(), token))).collect())
}
