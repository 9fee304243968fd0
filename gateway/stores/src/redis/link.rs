//! How Redis is reached: one server, the primary that Sentinels name, or a Cluster. To everybody else it is one thing that
//! carries commands.
//!
//! Beside this file: `address`, what the URL says; `primary`, the connection to one server. What never happens here: sending a
//! command a second time to a server that may have carried it out. A Cluster's client does that: the steps of a sale are made to
//! be repeated, and a budget that is charged twice errs on the careful side.

mod address;
mod primary;

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::ConnectionLike;
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, FromRedisValue, Pipeline, ProtocolVersion, RedisFuture, RedisResult, Value};

use self::address::Address;
use self::primary::Primary;

/// A Cluster's client asks again where a slot has moved or its primary is being replaced, at most this often…
const CLUSTER_RETRIES: u32 = 8;

/// …with pauses between these, so that all attempts fit into the usual two seconds.
const CLUSTER_PAUSE_MS: (u64, u64) = (20, 400);

/// Cheap to clone.
#[derive(Clone)]
pub(super) enum Link {
    /// One server at a time.
    Primary(Arc<Primary>),
    /// Each key on the server that holds its slot.
    Cluster(ClusterConnection),
}

impl Link {
    /// A link that connects at its first use and again whenever the connection is lost. Fails only when the URL makes no sense.
    pub(super) fn new(url: &str, timeout: Duration) -> RedisResult<Self> {
        let nodes = match Address::parse(url)? {
            Address::Server(server) => return Ok(Self::Primary(Primary::new(primary::Finder::Server(server), timeout))),
            Address::Sentinels(sentinels) => return Ok(Self::Primary(Primary::new(primary::Finder::Sentinels(sentinels), timeout))),
            Address::Cluster(nodes) => nodes,
        };
        let client = ClusterClient::builder(nodes)
            .use_protocol(ProtocolVersion::RESP3)
            .tcp_settings(address::tcp())
            .retries(CLUSTER_RETRIES)
            .min_retry_wait(CLUSTER_PAUSE_MS.0)
            .max_retry_wait(CLUSTER_PAUSE_MS.1)
            .overall_response_timeout(Some(timeout))
            .build()?;
        let config = ClusterConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout);
        Ok(Self::Cluster(client.get_pending_async_connection_with_config(config)))
    }

    /// Whether keys may live on different servers, so that one call must keep to one slot.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether another server takes over when one dies.
    pub(super) fn fails_over(&self) -> bool {
        match self {
            Self::Primary(primary) => primary.has_sentinels(),
            Self::Cluster(_) => true,
        }
    }

    /// Runs a command that names no key on the server that holds `key`.
    pub(super) async fn run_where<T: FromRedisValue>(&mut self, key: &str, command: &Cmd) -> RedisResult<T> {
        let answer = match self {
            Self::Primary(primary) => primary.command(command).await?,
            Self::Cluster(cluster) => {
                let route = Route::with_key(key, SlotAddr::Master);
                cluster.route_command(command.clone(), RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route))).await?
            }
        };
        Ok(T::from_redis_value(answer.extract_error()?)?)
    }

    /// Runs a command on every primary; one answer each.
    pub(super) async fn run_everywhere<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<Vec<T>> {
        match self {
            Self::Primary(primary) => Ok(vec![T::from_redis_value(primary.command(command).await?.extract_error()?)?]),
            Self::Cluster(cluster) => {
                let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let answers = cluster.route_command(command.clone(), everywhere).await?.extract_error()?;
                let Value::Map(answers) = answers else { return Ok(vec![T::from_redis_value(answers)?]) };
                answers.into_iter().map(|(_, answer)| Ok(T::from_redis_value(answer)?)).collect()
            }
        }
    }

    /// Which connection the next command takes; another number means that what was asked before was asked on another one. A
    /// Cluster's client does not say.
    pub(super) fn connection(&self) -> u64 {
        match self {
            Self::Primary(primary) => primary.connection(),
            Self::Cluster(_) => 0,
        }
    }

    /// Takes note that a call begun at `asked` was never answered.
    pub(super) fn doubt(&self, asked: Instant) {
        match self {
            Self::Primary(primary) => primary.doubt(asked),
            // Its client watches each of its connections itself.
            Self::Cluster(_) => {}
        }
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Primary(primary) => Box::pin(primary.command(cmd)),
            Self::Cluster(cluster) => cluster.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(&'a mut self, commands: &'a Pipeline, offset: usize, count: usize) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Primary(primary) => Box::pin(primary.commands(commands, offset, count)),
            Self::Cluster(cluster) => cluster.req_packed_commands(commands, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        // Asked by nobody here; the database is chosen when a connection is made.
        0
    }
}
