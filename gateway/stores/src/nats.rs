//! NATS: core messages for fan-out, the JetStream work queue `CHAT_IN` in front of the chat worker, and the registry of
//! policies.
//!
//! Beside this file: `inbox`, the queue's reader, and `registry`. What never happens here: trust in NATS to keep anything; a message
//! counts when the ledger has it.

mod inbox;
mod registry;

use std::error::Error;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{ContextBuilder, GetStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use gateway_core::id::ShopId;
use gateway_core::ports::{Bus, Inbox, PortErrorKind, PortResult, Request, Requests, Store, Subscription};

use self::inbox::NatsInbox;
use crate::error::{Failure, failed, within};

const STREAM: &str = "CHAT_IN";

/// Messages a subscription may be behind; what comes on top is dropped, and the receiver repairs itself.
const SUBSCRIPTION_MESSAGES_MAX: usize = 1_024;

/// A connection that is silently dead is noticed after two to three of these.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Longest pause between two attempts to connect.
const RECONNECT_AFTER_MAX: Duration = Duration::from_secs(1);

/// How to use a NATS.
#[derive(Clone)]
pub struct NatsSettings {
    /// `nats://[user:password@]host:port`, several separated by commas.
    pub url: String,
    /// How long one call may take; 2 s unless set. [`Inbox::fetch`] waits as long as its caller says on top.
    pub timeout: Duration,
    /// Bytes the queue may hold before it refuses more; 1 GiB unless set.
    pub queue_bytes_max: i64,
    /// Copies of the queue in a NATS cluster, 1 to 5; 1 unless set.
    pub queue_replicas: usize,
}

impl NatsSettings {
    /// The defaults for `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), timeout: Duration::from_secs(2), queue_bytes_max: 1 << 30, queue_replicas: 1 }
    }
}

impl fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may carry a password.
        f.debug_struct("NatsSettings")
            .field("timeout", &self.timeout)
            .field("queue_bytes_max", &self.queue_bytes_max)
            .field("queue_replicas", &self.queue_replicas)
            .finish_non_exhaustive()
    }
}

/// [`Bus`] on a NATS server 2.9 or later with JetStream. Cheap to clone.
#[derive(Clone)]
pub struct NatsBus {
    client: Client,
    jetstream: Context,
    settings: NatsSettings,
}

impl NatsBus {
    /// A bus that connects in the background, now and whenever the connection is lost. Fails only when the URL makes no
    /// sense.
    pub async fn connect(settings: NatsSettings) -> PortResult<Self> {
        let options = ConnectOptions::new()
            .name("sluice")
            .retry_on_initial_connect()
            .connection_timeout(settings.timeout)
            .request_timeout(Some(settings.timeout))
            .subscription_capacity(SUBSCRIPTION_MESSAGES_MAX)
            .ping_interval(PING_EVERY)
            .reconnect_delay_callback(|attempts| {
                let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
                Duration::from_millis(50).saturating_mul(attempts).min(RECONNECT_AFTER_MAX)
            });
        let servers: Vec<&str> = settings.url.split(',').map(str::trim).collect();
        let client = options.connect(servers).await.map_err(|source| failed("read the NATS settings", Trouble::broken(source)))?;
        let jetstream = ContextBuilder::new().timeout(settings.timeout).ack_timeout(settings.timeout).build(client.clone());
        Ok(Self { client, jetstream, settings })
    }

    /// Whether NATS answers and JetStream is enabled.
    pub async fn ping(&self) -> PortResult<()> {
        self.run("ping NATS", async {
            match self.jetstream.get_stream(STREAM).await {
                // Not there yet is fine: it is made when it is needed.
                Err(error) if !matches!(error.kind(), GetStreamErrorKind::JetStream(ref why) if why.code() == 404) => {
                    Err(Trouble::passing(error))
                }
                Ok(_) | Err(_) => Ok(()),
            }
        })
        .await
    }

    /// What is wrong with the server's configuration, one sentence each; none when all is well.
    pub async fn warnings(&self) -> PortResult<Vec<String>> {
        let doing = "read the NATS configuration";
        self.run(doing, async { self.client.flush().await.map_err(Trouble::passing) }).await?;
        let info = self.client.server_info();
        Ok(if self.client.is_server_compatible(2, 9, 0) { Vec::new() } else { vec![format!("NATS {} is older than 2.9", info.version)] })
    }

    /// Runs `call` within the deadline, at once `Unavailable` while there is no connection: the client would keep what it
    /// is given until there is one.
    async fn run<T>(&self, doing: &'static str, call: impl Future<Output = Result<T, Trouble>>) -> PortResult<T> {
        if !self.is_connected() {
            return Err(failed(doing, Trouble::Disconnected));
        }
        within(self.settings.timeout, doing, call).await
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// How often the client has connected: another number means that something sent in between may be lost.
    fn connects(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    /// The queue, created where it is missing.
    async fn queue(&self) -> Result<Stream, Trouble> {
        let config = Config {
            name: STREAM.to_owned(),
            description: Some("chat messages on their way to the ledger".to_owned()),
            subjects: vec!["chat.in.>".to_owned()],
            // A message leaves when its worker acknowledges it; when the queue is full, the sender hears of it.
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            max_bytes: self.settings.queue_bytes_max,
            num_replicas: self.settings.queue_replicas,
            ..Config::default()
        };
        self.jetstream.get_or_create_stream(config).await.map_err(Trouble::passing)
    }

    /// The subscription, once the server knows of it.
    async fn confirmed(&self, subscriber: Subscriber) -> Result<Subscriber, Trouble> {
        // The server handles the commands of a connection in order: when our own echo is back, it knows the subscription.
        let echo = self.client.new_inbox();
        let mut echoes = self.client.subscribe(echo.clone()).await.map_err(Trouble::passing)?;
        self.client.publish(echo, Bytes::new()).await.map_err(Trouble::passing)?;
        echoes.next().await.map(|_| subscriber).ok_or(Trouble::Disconnected)
    }

    async fn append(&self, subject: String, payload: Bytes) -> Result<(), jetstream::context::PublishError> {
        self.jetstream.publish(subject, payload).await?.await.map(drop)
    }
}

impl fmt::Debug for NatsBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBus").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[async_trait]
impl Bus for NatsBus {
    async fn publish(&self, subject: &str, payload: Bytes) -> PortResult<()> {
        self.run("publish", async { self.client.publish(subject.to_owned(), payload).await.map_err(Trouble::passing) }).await
    }

    async fn subscribe(&self, subject: &str) -> PortResult<Box<dyn Subscription>> {
        let subscriber = self
            .run("subscribe", async {
                let subscriber = self.client.subscribe(subject.to_owned()).await.map_err(Trouble::passing)?;
                self.confirmed(subscriber).await
            })
            .await?;
        Ok(Box::new(NatsSubscription { subscriber }))
    }

    async fn serve(&self, subject: &str, group: &str) -> PortResult<Box<dyn Requests>> {
        let subscriber = self
            .run("serve a subject", async {
                let subscriber = self.client.queue_subscribe(subject.to_owned(), group.to_owned()).await.map_err(Trouble::passing)?;
                self.confirmed(subscriber).await
            })
            .await?;
        Ok(Box::new(NatsRequests { subscriber }))
    }

    async fn enqueue(&self, partition: u16, shop: ShopId, payload: Bytes) -> PortResult<()> {
        let subject = format!("chat.in.{partition}.{shop}");
        self.run("enqueue a message", async {
            match self.append(subject.clone(), payload.clone()).await {
                Err(error) if error.kind() == PublishErrorKind::StreamNotFound => {
                    self.queue().await?;
                    self.append(subject, payload).await.map_err(Trouble::of_publish)
                }
                answer => answer.map_err(Trouble::of_publish),
            }
        })
        .await
    }

    async fn queued(&self, shop: ShopId) -> PortResult<u64> {
        // A work queue keeps what is not acknowledged, so what it holds is what waits or is under way.
        self.run("count queued messages", async {
            let queue = self.jetstream.get_stream_no_info(STREAM).await.map_err(Trouble::passing)?;
            let subjects = match queue.info_with_subjects(format!("chat.in.*.{shop}")).await {
                // It is made when the first message comes.
                Err(error) if is_missing(&error) => return Ok(0),
                answer => answer.map_err(Trouble::passing)?,
            };
            let add = |sum: u64, (_, count): (String, usize)| async move { Ok(sum.saturating_add(count as u64)) };
            subjects.map_err(Trouble::passing).try_fold(0, add).await
        })
        .await
    }

    async fn open_inbox(&self, partition: u16, token: u64) -> PortResult<Box<dyn Inbox>> {
        let inbox = self.run("open an inbox", NatsInbox::open(self.clone(), partition, token)).await?;
        Ok(Box::new(inbox))
    }
}

/// Whether the server said that there is no such stream.
fn is_missing(error: &(dyn Error + 'static)) -> bool {
    error.source().and_then(|source| source.downcast_ref::<jetstream::Error>()).is_some_and(|why| why.code() == 404)
}

struct NatsSubscription {
    subscriber: Subscriber,
}

#[async_trait]
impl Subscription for NatsSubscription {
    async fn next(&mut self) -> Option<Bytes> {
        self.subscriber.next().await.map(|message| message.payload)
    }
}

struct NatsRequests {
    subscriber: Subscriber,
}

#[async_trait]
impl Requests for NatsRequests {
    async fn next(&mut self) -> Option<Request> {
        let message = self.subscriber.next().await?;
        Some(Request { payload: message.payload, reply: message.reply.map(|reply| reply.to_string()) })
    }
}

/// What goes wrong with NATS.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("not connected")]
    Disconnected,
    #[error("the connection was lost since the inbox was opened; open it again")]
    Reconnected,
    #[error("the inbox has lost its place in the queue; open it again")]
    Lost,
    #[error("the server refused a request for messages")]
    Refused,
    #[error("the partition is in other hands")]
    Superseded,
    #[error("the name, the size or the content is not what it has to be")]
    Malformed,
    #[error("the request failed")]
    Passing(#[source] Box<dyn Error + Send + Sync>),
    #[error("the request makes no sense")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl Trouble {
    fn passing(source: impl Error + Send + Sync + 'static) -> Self {
        Self::Passing(Box::new(source))
    }

    fn broken(source: impl Error + Send + Sync + 'static) -> Self {
        Self::Broken(Box::new(source))
    }

    fn of_publish(source: jetstream::context::PublishError) -> Self {
        if source.kind() == PublishErrorKind::MaxPayloadExceeded { Self::broken(source) } else { Self::passing(source) }
    }
}

impl Failure for Trouble {
    const STORE: Store = Store::Nats;

    fn kind(&self) -> PortErrorKind {
        match self {
            Self::Disconnected | Self::Reconnected | Self::Lost | Self::Refused | Self::Passing(_) => PortErrorKind::Unavailable,
            Self::Superseded => PortErrorKind::Fenced,
            Self::Malformed | Self::Broken(_) => PortErrorKind::Broken,
        }
    }
}
