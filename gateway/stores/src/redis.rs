//! Redis: the scripts in `lua/`, and the link over which they run.
//!
//! The ports are beside this file: `admission`, `budgets`, `nonces`, `notices`, `presence`, `roaming`; `link` is the way to a server, a primary behind
//! Sentinels or a Cluster. What never happens here: a decision; those are in the scripts, where they are atomic.

mod admission;
mod budgets;
mod link;
mod nonces;
mod notices;
mod presence;
mod roaming;
mod script;
mod warnings;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use gateway_core::chat::Party;
use gateway_core::ports::{PortErrorKind, PortResult, Store};
use redis::{ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind};

use self::link::Link;
use self::script::Call;
use crate::error::{Failure, failed, within};

/// Keys of one call that are asked for at once in a Cluster.
const KEYS_AT_ONCE: usize = 32;

/// How to use a Redis.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://[user:password@]host:port[/db]`; `redis-sentinel://[user:password@]host:port,…/name` with Sentinels that know the
    /// primary by that name, and its password; or `redis-cluster://[user:password@]host:port,…` with some nodes of a Cluster.
    pub url: String,
    /// How long one call may take, connecting included; 2 s unless set.
    pub timeout: Duration,
    /// How long an order event may be in another worker's hands before it is taken over; 5 s unless set. Longer than a
    /// worker needs for one batch.
    pub reclaim_idle: Duration,
    /// Replicas that should have an admission before it is answered; none unless set. Makes it less likely that a failover loses
    /// it, not impossible.
    pub wait_replicas: u8,
    /// How long is waited for them, once per batch, on top of the timeout; 50 ms unless set.
    pub wait: Duration,
}

impl RedisSettings {
    /// The defaults for `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        let (timeout, reclaim_idle, wait) = (Duration::from_secs(2), Duration::from_secs(5), Duration::from_millis(50));
        Self { url: url.into(), timeout, reclaim_idle, wait_replicas: 0, wait }
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may carry a password.
        f.debug_struct("RedisSettings")
            .field("timeout", &self.timeout)
            .field("reclaim_idle", &self.reclaim_idle)
            .field("wait_replicas", &self.wait_replicas)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// [`Admission`](gateway_core::ports::Admission), [`Budgets`](gateway_core::ports::Budgets),
/// [`Presence`](gateway_core::ports::Presence), [`Notices`](gateway_core::ports::Notices), [`Roaming`](gateway_core::ports::Roaming)
/// and [`Nonces`](gateway_core::ports::Nonces) on Redis 7.0 or later. Cheap to clone.
#[derive(Clone)]
pub struct RedisStore {
    link: Link,
    timeout: Duration,
    reclaim_idle: Duration,
    replication: Option<Replication>,
}

/// The wait for replicas.
#[derive(Clone)]
struct Replication {
    /// Waiting holds up whatever else is asked on the connection, so admissions have one of their own.
    link: Link,
    replicas: u8,
    wait: Duration,
    missed: Arc<dyn Fn() + Send + Sync>,
}

impl RedisStore {
    /// A store that connects at its first call and again whenever the connection is lost. Must be called in a Tokio
    /// runtime. Fails only when the URL makes no sense.
    pub fn connect(settings: &RedisSettings) -> PortResult<Self> {
        let RedisSettings { url, timeout, reclaim_idle, wait_replicas, wait } = settings;
        let link = |timeout| Link::new(url, timeout).map_err(|source| failed("read the Redis settings", source));
        let replication = match *wait_replicas {
            0 => None,
            replicas => Some(Replication { link: link(*timeout + *wait)?, replicas, wait: *wait, missed: Arc::new(|| {}) }),
        };
        Ok(Self { link: link(*timeout)?, timeout: *timeout, reclaim_idle: *reclaim_idle, replication })
    }

    /// Calls `heard` for each batch of admissions that is answered although fewer replicas than wished for are known to have it.
    #[must_use]
    pub fn on_unreplicated(mut self, heard: impl Fn() + Send + Sync + 'static) -> Self {
        if let Some(replication) = &mut self.replication {
            replication.missed = Arc::new(heard);
        }
        self
    }

    /// Whether Redis answers.
    pub async fn ping(&self) -> PortResult<()> {
        self.query("ping Redis", &redis::cmd("PING")).await
    }

    /// What is wrong with the servers' configuration, one sentence each; none when all is well.
    pub async fn warnings(&self) -> PortResult<Vec<String>> {
        let mut info = redis::cmd("INFO");
        info.arg(&["server", "memory", "persistence", "replication"]);
        let mut link = self.link.clone();
        let infos: Vec<String> = self.bounded(&self.link, self.timeout, "read the Redis configuration", link.run_everywhere(&info)).await?;
        let mut warnings: Vec<_> = infos.iter().flat_map(|info| warnings::of(info, self.link.fails_over())).collect();
        // The nodes of a Cluster are usually configured alike.
        warnings.sort();
        warnings.dedup();
        Ok(warnings)
    }

    /// Runs one command within the deadline.
    async fn query<T: FromRedisValue>(&self, doing: &'static str, command: &redis::Cmd) -> PortResult<T> {
        let mut link = self.link.clone();
        self.bounded(&self.link, self.timeout, doing, command.query_async(&mut link)).await
    }

    /// Runs one command that names no key on the server that holds `key`, within the deadline.
    async fn query_where<T: FromRedisValue>(&self, doing: &'static str, key: &str, command: &redis::Cmd) -> PortResult<T> {
        let mut link = self.link.clone();
        self.bounded(&self.link, self.timeout, doing, link.run_where(key, command)).await
    }

    /// Runs one pipeline, all of whose keys share a slot, within the deadline.
    async fn pipeline<T: FromRedisValue>(&self, doing: &'static str, commands: &Pipeline) -> PortResult<T> {
        let mut link = self.link.clone();
        self.bounded(&self.link, self.timeout, doing, commands.query_async(&mut link)).await
    }

    /// Asks one thing of each key, with the commands that `ask` adds, of which one answers; the answers in order. One round trip
    /// where one server has all keys.
    async fn each<K, T>(&self, doing: &'static str, keys: &[K], ask: impl Fn(&mut Pipeline, &K)) -> PortResult<Vec<T>>
    where
        T: FromRedisValue + Send,
    {
        if self.link.is_cluster() {
            let of_key = |key| {
                let mut commands = redis::pipe();
                ask(&mut commands, key);
                commands
            };
            let pipelines: Vec<_> = keys.iter().map(of_key).collect();
            let calls = pipelines.into_iter().map(|commands| async move { self.pipeline::<(T,)>(doing, &commands).await });
            return futures::stream::iter(calls).buffered(KEYS_AT_ONCE).map_ok(|(answer,)| answer).try_collect().await;
        }
        let mut commands = redis::pipe();
        keys.iter().for_each(|key| ask(&mut commands, key));
        self.pipeline(doing, &commands).await
    }

    /// Runs one script within the deadline.
    async fn script<T: FromRedisValue>(&self, doing: &'static str, call: &Call) -> PortResult<T> {
        self.script_over(&self.link, doing, call).await
    }

    async fn script_over<T: FromRedisValue>(&self, link: &Link, doing: &'static str, call: &Call) -> PortResult<T> {
        let mut connection = link.clone();
        self.bounded(link, self.timeout, doing, call.run(&mut connection)).await
    }

    /// The answer of `call` over `link`, or `Unavailable` after `limit`.
    async fn bounded<T>(
        &self,
        link: &Link,
        limit: Duration,
        doing: &'static str,
        call: impl Future<Output = RedisResult<T>>,
    ) -> PortResult<T> {
        let asked = Instant::now();
        let answer = within(limit, doing, call).await;
        if answer.is_err() && asked.elapsed() >= limit {
            link.doubt(asked);
        }
        answer
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("timeout", &self.timeout).field("reclaim_idle", &self.reclaim_idle).finish_non_exhaustive()
    }
}

/// The value of a field of an `INFO` answer.
fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// A party in a key: `user.<id>` or `agent.<shop>.<id>`.
fn name(party: &Party) -> String {
    match party.shop {
        Some(shop) => format!("{}.{shop}.{}", party.side.as_str(), party.id),
        None => format!("{}.{}", party.side.as_str(), party.id),
    }
}

/// An answer of Redis that none of our scripts gives.
fn nonsense(answer: &str) -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "unexpected answer", answer.to_owned()))
}

impl Failure for RedisError {
    const STORE: Store = Store::Redis;

    fn kind(&self) -> PortErrorKind {
        // Codes without a kind of their own: no replica is in reach, memory is full, a script runs for too long, the disk is full.
        let is_passing = |code: &str| matches!(code, "NOREPLICAS" | "OOM" | "BUSY" | "MISCONF");
        // One of a single command, or one for each command of a pipeline that failed.
        let passing_code = self.clone().into_server_errors().is_some_and(|errors| errors.iter().any(|(_, error)| is_passing(error.code())));
        let passing_kind = matches!(
            RedisError::kind(self),
            ErrorKind::Io
                | ErrorKind::ClusterConnectionNotFound
                // Between the death of a primary and the next one the Sentinels name none.
                | ErrorKind::MasterNameNotFoundBySentinel
                | ErrorKind::Server(
                    ServerErrorKind::BusyLoading
                        | ServerErrorKind::TryAgain
                        | ServerErrorKind::ClusterDown
                        | ServerErrorKind::MasterDown
                        | ServerErrorKind::ReadOnly
                        | ServerErrorKind::Moved
                        | ServerErrorKind::Ask
                )
        );
        if passing_code || passing_kind { PortErrorKind::Unavailable } else { PortErrorKind::Broken }
    }
}

#[cfg(test)]
mod tests {
    use super::info_field;

    #[test]
    fn reads_a_field_of_an_info_answer() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n";
        assert_eq!(info_field(info, "run_id"), Some("abc"));
        assert_eq!(info_field(info, "redis"), None);
        assert_eq!(info_field(info, "absent"), None);
    }
}
