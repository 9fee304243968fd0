//! `[edge]` and `[admin]`: where the gateway listens, and the bounds of what it accepts there.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::secret::Secret;
use super::section::Section;

/// What [`SocketAddr`]'s parser wants, for remedies.
const ADDRESS: &str = "IP:PORT, e.g. \"127.0.0.1:8080\" (port 0 picks a free one)";

/// The listener for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Its address.
    pub listen: SocketAddr,
    /// The certificate it shows; without one it speaks plain HTTP.
    pub tls: Option<Tls>,
    /// Networks whose `X-Forwarded-For` entries are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Most bytes of a request's head.
    pub header_bytes_max: usize,
    /// Most header fields of a request.
    pub headers_max: usize,
    /// Most bytes of a request's body.
    pub body_bytes_max: u64,
    /// Most connections at once.
    pub connections_max: usize,
    /// How long a request's head may take to arrive.
    pub header_timeout: Duration,
    /// How long a pause in a request's body may be.
    pub body_timeout: Duration,
    /// How long a connection may wait for its next request.
    pub idle_timeout: Duration,
    /// Requests a connection may carry.
    pub keepalive_requests_max: u32,
    /// A second listener on which sockets echo every message, for protocol suites.
    pub echo: Option<SocketAddr>,
    /// Whether the demo shop and its token mint are served. Never on a public address.
    pub demo: bool,
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Edge {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            listen: address(&mut section, "listen", 8080),
            tls: Tls::read(section.section("tls")),
            trusted_proxies: section.list("trusted_proxies", "a network, e.g. \"10.0.0.0/8\"", network),
            header_bytes_max: section.number("header_bytes_max", 32_768, 1_024..=1_048_576),
            headers_max: section.number("headers_max", 100, 8..=1_000),
            body_bytes_max: section.number("body_bytes_max", 1_048_576, 0..=1_073_741_824),
            connections_max: section.number("connections_max", 10_000, 1..=1_000_000),
            header_timeout: section.millis("header_timeout_ms", 10_000, 100..=600_000),
            body_timeout: section.millis("body_timeout_ms", 15_000, 100..=600_000),
            idle_timeout: section.millis("idle_timeout_ms", 60_000, 100..=3_600_000),
            keepalive_requests_max: section.number("keepalive_requests_max", 1_000, 1..=1_000_000),
            echo: section.optional("echo", ADDRESS, |text| text.parse().ok()),
            demo: section.flag("demo", false),
        }
    }
}

impl Tls {
    fn read(mut section: Section<'_>) -> Option<Self> {
        match (section.optional_text("cert"), section.optional_text("key")) {
            (Some(cert), Some(key)) => Some(Self { cert: cert.into(), key: key.into() }),
            (None, None) => None,
            (Some(_), None) => {
                section.blame("key", "is missing while `cert` is set", "name the PEM file of the private key, or leave out both");
                None
            }
            (None, Some(_)) => {
                section.blame("cert", "is missing while `key` is set", "name the PEM file of the certificate, or leave out both");
                None
            }
        }
    }
}

/// The listener for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Its address.
    pub listen: SocketAddr,
    /// The bearer token that opens it.
    pub token: Secret,
}

impl Admin {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self { listen: address(&mut section, "listen", 9090), token: section.required_secret("token", 8) }
    }
}

fn address(section: &mut Section<'_>, key: &'static str, port: u16) -> SocketAddr {
    section.parsed(key, SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ADDRESS, |text| text.parse().ok())
}

/// A network; a bare address is a network of one.
fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse().ok().map(|host: std::net::IpAddr| host.into()))
}
