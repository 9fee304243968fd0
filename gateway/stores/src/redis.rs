//! Redis: one multiplexed connection that mends itself, and the scripts in `lua/` that run over it.
//!
//! The ports are beside this file: `admission`, `budgets`, `presence`. What never happens here: a decision; those are in
//! the scripts, where they are atomic.

mod admission;
mod budgets;
mod notices;
mod presence;
mod script;

use std::fmt;
use std::time::Duration;

use gateway_core::ports::{PortErrorKind, PortResult, Store};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Client, ErrorKind, FromRedisValue, IntoConnectionInfo, ProtocolVersion, RedisError, RedisResult, ServerErrorKind};

use self::script::Call;
use crate::error::{Failure, failed, within};

/// Calls that may wait for a place on the connection; beyond it they wait within their own deadline.
const CALLS_QUEUED_MAX: usize = 1_024;

/// Between two attempts to connect. Two attempts a call: an absent Redis is reported within a tenth of a second.
const RECONNECT_AFTER: Duration = Duration::from_millis(50);

/// A peer that vanished without a word (its host lost power) is given up after this long.
const SILENT_PEER_MAX: Duration = Duration::from_secs(10);

/// How to use a Redis.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://[user:password@]host:port[/db]`.
    pub url: String,
    /// How long one call may take, connecting included; 2 s unless set.
    pub timeout: Duration,
    /// How long an order event may be in another worker's hands before it is taken over; 5 s unless set. Longer than a
    /// worker needs for one batch.
    pub reclaim_idle: Duration,
}

impl RedisSettings {
    /// The defaults for `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), timeout: Duration::from_secs(2), reclaim_idle: Duration::from_secs(5) }
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may carry a password.
        f.debug_struct("RedisSettings").field("timeout", &self.timeout).field("reclaim_idle", &self.reclaim_idle).finish_non_exhaustive()
    }
}

/// [`Admission`](gateway_core::ports::Admission), [`Budgets`](gateway_core::ports::Budgets) and
/// [`Presence`](gateway_core::ports::Presence) on Redis 7.0 or later. Cheap to clone.
#[derive(Clone)]
pub struct RedisStore {
    connection: ConnectionManager,
    timeout: Duration,
    reclaim_idle: Duration,
}

impl RedisStore {
    /// A store that connects at its first call and again whenever the connection is lost. Must be called in a Tokio
    /// runtime. Fails only when the URL makes no sense.
    pub fn connect(settings: &RedisSettings) -> PortResult<Self> {
        let connection = lazy_connection(settings).map_err(|source| failed("read the Redis settings", source))?;
        Ok(Self { connection, timeout: settings.timeout, reclaim_idle: settings.reclaim_idle })
    }

    /// Whether Redis answers.
    pub async fn ping(&self) -> PortResult<()> {
        self.query("ping Redis", &redis::cmd("PING")).await
    }

    /// What is wrong with the server's configuration, one sentence each; none when all is well.
    pub async fn warnings(&self) -> PortResult<Vec<String>> {
        let doing = "read the Redis configuration";
        let memory: String = self.query(doing, redis::cmd("INFO").arg("memory")).await?;
        let persistence: String = self.query(doing, redis::cmd("INFO").arg("persistence")).await?;
        let server: String = self.query(doing, redis::cmd("INFO").arg("server")).await?;
        let mut warnings = Vec::new();
        let policy = info_field(&memory, "maxmemory_policy").unwrap_or("unknown");
        if policy != "noeviction" {
            warnings.push(format!("Redis evicts keys (maxmemory-policy {policy}): buyers and order events can vanish; set noeviction"));
        }
        if info_field(&persistence, "aof_enabled") != Some("1") {
            warnings.push("Redis keeps no append-only file: a restart loses the sales in force; set appendonly yes".to_owned());
        }
        let version = info_field(&server, "redis_version").unwrap_or("unknown");
        if version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_none_or(|major| major < 7) {
            warnings.push(format!("Redis {version} is older than 7.0"));
        }
        Ok(warnings)
    }

    /// Runs one command within the deadline.
    async fn query<T: FromRedisValue>(&self, doing: &'static str, command: &redis::Cmd) -> PortResult<T> {
        let mut connection = self.connection.clone();
        within(self.timeout, doing, command.query_async(&mut connection)).await
    }

    /// Runs one pipeline within the deadline.
    async fn pipeline<T: FromRedisValue>(&self, doing: &'static str, commands: &redis::Pipeline) -> PortResult<T> {
        let mut connection = self.connection.clone();
        within(self.timeout, doing, commands.query_async(&mut connection)).await
    }

    /// Runs one script within the deadline.
    async fn script<T: FromRedisValue>(&self, doing: &'static str, call: &Call<'_>) -> PortResult<T> {
        let mut connection = self.connection.clone();
        within(self.timeout, doing, call.run(&mut connection)).await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("timeout", &self.timeout).field("reclaim_idle", &self.reclaim_idle).finish_non_exhaustive()
    }
}

fn lazy_connection(settings: &RedisSettings) -> RedisResult<ConnectionManager> {
    let info = settings.url.as_str().into_connection_info()?;
    // RESP3 tells of a lost connection at once; with RESP2 the next call would have to find out by failing.
    let protocol = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(TcpKeepalive::new().with_time(SILENT_PEER_MAX))
        .set_user_timeout(SILENT_PEER_MAX);
    let client = Client::open(info.set_redis_settings(protocol).set_tcp_settings(tcp))?;
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_min_delay(RECONNECT_AFTER)
        .set_max_delay(RECONNECT_AFTER)
        .set_connection_timeout(Some(settings.timeout))
        .set_response_timeout(Some(settings.timeout))
        .set_pipeline_buffer_size(CALLS_QUEUED_MAX);
    ConnectionManager::new_lazy_with_config(client, config)
}

/// The value of a field of an `INFO` answer.
fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// An answer of Redis that none of our scripts gives.
fn nonsense(answer: &str) -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "unexpected answer", answer.to_owned()))
}

impl Failure for RedisError {
    const STORE: Store = Store::Redis;

    fn kind(&self) -> PortErrorKind {
        // Codes without a kind of their own: no replica is in reach, memory is full, a script runs for too long, the disk is full.
        let passing_code = matches!(self.code(), Some("NOREPLICAS" | "OOM" | "BUSY" | "MISCONF"));
        let passing_kind = matches!(
            RedisError::kind(self),
            ErrorKind::Io
                | ErrorKind::ClusterConnectionNotFound
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
