//! `[redis]`, `[nats]` and `[mysql]`: the three services.

use std::time::Duration;

use super::secret::Secret;
use super::section::Section;
use super::syntax::is_url;

/// Flash-sale stock, budgets and presence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    /// `redis://[user:password@]host[:port][/db]`; `redis-sentinel://[user:password@]host:port,…/name` asks Sentinels for the
    /// primary called `name`; `redis-cluster://[user:password@]host:port,…` names some nodes of a Cluster.
    pub url: Secret,
    /// How long one command may take.
    pub timeout: Duration,
    /// Replicas that should have an admission before it is answered, 0 to 5. Fewer within [`Redis::wait`] is counted, not refused.
    pub wait_replicas: u8,
    /// How long is waited for them, once per batch.
    pub wait: Duration,
}

impl Redis {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            url: section.secret("url", "redis://127.0.0.1:6379", REDIS_URL, is_redis_url),
            timeout: section.millis("timeout_ms", 2_000, 10..=60_000),
            wait_replicas: section.number("wait_replicas", 0, 0..=5),
            wait: section.millis("wait_ms", 50, 1..=5_000),
        }
    }
}

/// The bus between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nats {
    /// `nats://[user:password@]host[:port]`, or `tls://`.
    pub url: Secret,
    /// How long one request may take.
    pub timeout: Duration,
}

impl Nats {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            url: url(&mut section, "nats://127.0.0.1:4222", &["nats", "tls"]),
            timeout: section.millis("timeout_ms", 2_000, 10..=60_000),
        }
    }
}

/// The ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mysql {
    /// `mysql://user[:password]@host[:port]/database`.
    pub url: Secret,
    /// Most connections.
    pub pool_max: u32,
    /// How long one transaction may take, the wait for a connection included.
    pub timeout: Duration,
}

impl Mysql {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            url: url(&mut section, "mysql://sluice@127.0.0.1:3306/sluice", &["mysql"]),
            pool_max: section.number("pool_max", 16, 1..=1_000),
            timeout: section.millis("timeout_ms", 3_000, 10..=60_000),
        }
    }
}

/// A URL may carry a password, so it is a secret as a whole.
fn url(section: &mut Section<'_>, default: &str, schemes: &[&str]) -> Secret {
    section.secret("url", default, &format!("a URL like \"{default}\""), |text| is_url(text, schemes))
}

const REDIS_URL: &str = "redis://HOST:PORT, redis-sentinel://HOST:PORT,…/NAME or redis-cluster://HOST:PORT,…";

/// Several hosts are no URL to a parser of URLs, so each is checked as one of its own.
fn is_redis_url(text: &str) -> bool {
    if is_url(text, &["redis", "rediss"]) {
        return true;
    }
    let (sentinel, rest) = match (text.strip_prefix("redis-sentinel://"), text.strip_prefix("redis-cluster://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return false,
    };
    let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
    hosts.split(',').all(|host| is_url(&format!("redis://{host}"), &["redis"])) && sentinel != name.is_empty() && !name.contains('/')
}
