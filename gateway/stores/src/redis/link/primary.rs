//! The connection to one server: shared by all calls, made when it is first used, and made anew once it was lost or led to
//! the wrong server. Where Sentinels know who is primary, they are asked each time.
//!
//! What never happens here: a second attempt at a command; whether the first was carried out is not known.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::sentinel::Sentinel;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, Pipeline, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind,
    Value,
};

use super::address::Sentinels;

/// Calls that may wait for a place on the connection; beyond it they wait within their own deadline.
const CALLS_QUEUED_MAX: usize = 1_024;

/// Between two attempts to connect, however many calls would like one.
const RECONNECT_AFTER: Duration = Duration::from_millis(50);

/// Who says where the server is.
pub(super) enum Finder {
    /// The configuration.
    Server(ConnectionInfo),
    /// Whoever of these answers first and names a server that calls itself primary.
    Sentinels(Sentinels),
}

impl Finder {
    async fn client(&self) -> RedisResult<Client> {
        match self {
            Self::Server(info) => Client::open(info.clone()),
            Self::Sentinels(Sentinels { nodes, name, primary }) => {
                Sentinel::build(nodes.clone())?.async_master_for(name, Some(primary)).await
            }
        }
    }
}

/// One server at a time.
pub(in crate::redis) struct Primary {
    finder: Arc<Finder>,
    timeout: Duration,
    current: Mutex<Current>,
}

/// The connection in use, and which one it is.
struct Current {
    number: u64,
    since: Instant,
    connecting: Connecting,
}

/// Everybody who needs the connection waits for the same attempt.
type Connecting = Shared<BoxFuture<'static, RedisResult<MultiplexedConnection>>>;

impl Primary {
    pub(super) fn new(finder: Finder, timeout: Duration) -> Arc<Self> {
        let finder = Arc::new(finder);
        Arc::new_cyclic(|this| {
            let connecting = connect(finder.clone(), timeout, Duration::ZERO, renewal(this.clone(), 0));
            let current = Current { number: 0, since: Instant::now(), connecting };
            Self { finder, timeout, current: Mutex::new(current) }
        })
    }

    pub(super) fn has_sentinels(&self) -> bool {
        matches!(*self.finder, Finder::Sentinels(_))
    }

    pub(super) fn connection(&self) -> u64 {
        self.current(|current| current.number)
    }

    pub(super) async fn command(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        let (number, mut connection) = self.connected().await?;
        let answer = connection.req_packed_command(command).await.and_then(Value::extract_error);
        if answer.as_ref().is_err_and(leads_nowhere) {
            self.renew(number);
        }
        answer
    }

    pub(super) async fn commands(self: &Arc<Self>, commands: &Pipeline, offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        let (number, mut connection) = self.connected().await?;
        let answers = connection.req_packed_commands(commands, offset, count).await;
        let lost = match &answers {
            Ok(answers) => {
                answers.iter().any(|answer| matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::ReadOnly)))
            }
            Err(error) => leads_nowhere(error),
        };
        if lost {
            self.renew(number);
        }
        answers
    }

    /// A primary that is silent may have been replaced, and its Sentinels know. Without Sentinels there is no other one, and it
    /// is the connection's own matter to notice that the peer is gone.
    pub(super) fn doubt(self: &Arc<Self>, asked: Instant) {
        let suspect = self.current(|current| (current.since <= asked).then_some(current.number));
        if let Some(number) = suspect.filter(|_| self.has_sentinels()) {
            self.renew(number);
        }
    }

    async fn connected(self: &Arc<Self>) -> RedisResult<(u64, MultiplexedConnection)> {
        let (number, connecting) = self.current(|current| (current.number, current.connecting.clone()));
        let connected = connecting.await;
        if connected.is_err() {
            self.renew(number);
        }
        Ok((number, connected?))
    }

    /// Lets the next call connect anew, unless connection `number` was replaced already.
    fn renew(self: &Arc<Self>, number: u64) {
        self.current(|current| {
            if current.number == number {
                let pause = RECONNECT_AFTER.saturating_sub(current.since.elapsed());
                let on_loss = renewal(Arc::downgrade(self), number + 1);
                let connecting = connect(self.finder.clone(), self.timeout, pause, on_loss);
                *current = Current { number: number + 1, since: Instant::now(), connecting };
            }
        });
    }

    fn current<T>(&self, look: impl FnOnce(&mut Current) -> T) -> T {
        look(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is done once connection `number` is lost. The connection does not keep its owner alive.
fn renewal(primary: Weak<Primary>, number: u64) -> impl Fn() + Send + Sync + 'static {
    move || {
        if let Some(primary) = primary.upgrade() {
            primary.renew(number);
        }
    }
}

/// An attempt to connect, begun when it is first awaited.
fn connect(finder: Arc<Finder>, timeout: Duration, pause: Duration, on_loss: impl Fn() + Send + Sync + 'static) -> Connecting {
    let on_push = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            on_loss();
        }
        Ok::<_, std::convert::Infallible>(())
    };
    let attempt = async move {
        tokio::time::sleep(pause).await;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            // Each call has a deadline of its own, which covers more than the wait for the answer.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(CALLS_QUEUED_MAX)
            .set_push_sender(on_push);
        let found = tokio::time::timeout(timeout, finder.client()).await;
        found
            .map_err(|_| RedisError::from((ErrorKind::Io, "no Sentinel answered in time")))??
            .get_multiplexed_async_connection_with_config(&config)
            .await
    };
    attempt.boxed().shared()
}

/// Whether an error says that this connection is of no use any more: it is gone, or it leads to a server that has ceased to be
/// the primary.
fn leads_nowhere(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}
