//! What the URL of a Redis says.
//!
//! `redis://[user:password@]host[:port][/db]`, `redis-sentinel://[user:password@]host:port,…/name` and
//! `redis-cluster://[user:password@]host:port,…`. With several hosts it is no URL to a parser of URLs, so each host is read as one
//! of its own.

use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::sentinel::SentinelNodeConnectionInfo;
use redis::{ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisError, RedisResult};

/// A peer that vanished without a word (its host lost power) is given up after this long.
const SILENT_PEER_MAX: Duration = Duration::from_secs(10);

/// Where Redis is.
pub(super) enum Address {
    Server(ConnectionInfo),
    Sentinels(Sentinels),
    /// Some nodes of a Cluster; they name the others.
    Cluster(Vec<ConnectionInfo>),
}

/// Who knows the primary.
#[derive(Clone)]
pub(super) struct Sentinels {
    /// Where they are; asked without a password.
    pub nodes: Vec<ConnectionInfo>,
    /// What they call the primary.
    pub name: String,
    /// How to speak to the primary; the URL's password is its.
    pub primary: SentinelNodeConnectionInfo,
}

impl Address {
    pub(super) fn parse(url: &str) -> RedisResult<Self> {
        if let Some(rest) = url.strip_prefix("redis-cluster://") {
            let (login, hosts) = login(rest);
            return Ok(Self::Cluster(nodes(login, hosts)?));
        }
        let Some(rest) = url.strip_prefix("redis-sentinel://") else { return Ok(Self::Server(node(url)?)) };
        let (rest, name) = rest.rsplit_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(|| nameless(url))?;
        let (login, hosts) = login(rest);
        let primary = node(&format!("redis://{login}primary"))?;
        let primary =
            SentinelNodeConnectionInfo::default().set_redis_connection_info(primary.redis_settings().clone()).set_tcp_settings(tcp());
        Ok(Self::Sentinels(Sentinels { nodes: nodes("", hosts)?, name: name.to_owned(), primary }))
    }
}

/// `user:password@`, or nothing, and what comes after it.
fn login(rest: &str) -> (&str, &str) {
    rest.rfind('@').map_or(("", rest), |at| rest.split_at(at + 1))
}

fn nodes(login: &str, hosts: &str) -> RedisResult<Vec<ConnectionInfo>> {
    hosts.split(',').map(|host| node(&format!("redis://{login}{}", host.trim()))).collect()
}

fn node(url: &str) -> RedisResult<ConnectionInfo> {
    let info = url.into_connection_info()?;
    // RESP3 tells of a lost connection at once; with RESP2 the next call would have to find out by failing.
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(redis).set_tcp_settings(tcp()))
}

pub(super) fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true).set_keepalive(TcpKeepalive::new().with_time(SILENT_PEER_MAX)).set_user_timeout(SILENT_PEER_MAX)
}

fn nameless(url: &str) -> RedisError {
    // The URL may carry a password; where it ends is enough to find the mistake.
    let end = url.rsplit('@').next().unwrap_or_default().to_owned();
    RedisError::from((ErrorKind::InvalidClientConfig, "the URL names no primary", end))
}

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;

    fn place(info: &ConnectionInfo) -> (String, Option<&str>) {
        let ConnectionAddr::Tcp(host, port) = info.addr() else { panic!("{info:?}") };
        (format!("{host}:{port}"), info.redis_settings().password())
    }

    #[test]
    fn one_server_is_a_url_of_its_own() {
        let Ok(Address::Server(server)) = Address::parse("redis://:pw@h:7/3") else { panic!("no server") };
        assert_eq!((place(&server), server.redis_settings().db()), (("h:7".to_owned(), Some("pw")), 3));
    }

    #[test]
    fn the_password_of_a_sentinel_url_is_the_primarys() {
        let Ok(Address::Sentinels(sentinels)) = Address::parse("redis-sentinel://u:p%40w@a:1,b:2/main") else { panic!("no Sentinels") };
        let places: Vec<_> = sentinels.nodes.iter().map(place).collect();
        assert_eq!(places, [("a:1".to_owned(), None), ("b:2".to_owned(), None)]);
        assert_eq!(sentinels.name, "main");
        assert!(format!("{:?}", sentinels.primary).contains("redis_connection_info: Some"));
    }

    #[test]
    fn every_node_of_a_cluster_has_the_same_password() {
        let Ok(Address::Cluster(nodes)) = Address::parse("redis-cluster://:p@a:1,b") else { panic!("no Cluster") };
        let places: Vec<_> = nodes.iter().map(place).collect();
        assert_eq!(places, [("a:1".to_owned(), Some("p")), ("b:6379".to_owned(), Some("p"))]);
    }

    #[test]
    fn what_names_nothing_is_refused_without_showing_the_password() {
        for wrong in
            ["redis-sentinel://u:secret@a:1", "redis-sentinel://u:secret@a:1/", "redis-cluster://", "redis-cluster://a:1,,b:2", "http://a"]
        {
            let Err(error) = Address::parse(wrong) else { panic!("{wrong}") };
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
