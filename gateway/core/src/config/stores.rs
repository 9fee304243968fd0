//! `[redis]`, `[nats]` and `[mysql]`: the three services.

use std::time::Duration;

use super::secret::Secret;
use super::section::Section;
use super::syntax::is_url;

/// Flash-sale stock, budgets and presence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    /// `redis://[user:password@]host[:port][/db]`, or `rediss://` for TLS.
    pub url: Secret,
    /// How long one command may take.
    pub timeout: Duration,
}

impl Redis {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            url: url(&mut section, "redis://127.0.0.1:6379", &["redis", "rediss"]),
            timeout: section.millis("timeout_ms", 2_000, 10..=60_000),
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
