//! `[upstreams]` and `[[routes]]`: what is passed on, and to whom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::section::{Section, nearest};
use super::syntax;
use crate::route::{PathRule, Route};

/// A group of servers that answer alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its name in routes and metrics.
    pub name: Arc<str>,
    /// Its servers, at least one.
    pub peers: Vec<Peer>,
    /// Whether to speak TLS to them.
    pub tls: bool,
    /// The server name asked for and verified in TLS; set when `tls` is.
    pub sni: Option<String>,
    /// How long a connection may take to open.
    pub connect_timeout: Duration,
    /// How long a pause in an answer may be.
    pub read_timeout: Duration,
    /// How long a write may make no progress.
    pub write_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// How many other peers are tried when a connection fails before the request was sent.
    pub retries: u32,
    /// How peers are probed; without it a TCP connection is the probe.
    pub health: Option<Health>,
}

/// A server of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// `HOST:PORT`.
    pub addr: String,
    /// Its share of requests relative to its siblings, at least 1.
    pub weight: u32,
}

/// An HTTP probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// What is asked for; an answer from 200 to 299 is a success.
    pub path: String,
    /// Time between two probes.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Successes in a row that bring a peer back.
    pub healthy_after: u32,
    /// Failures in a row that take a peer out.
    pub unhealthy_after: u32,
}

/// Reads every group, in order of name.
pub(super) fn upstreams(root: &mut Section<'_>) -> Vec<Upstream> {
    root.named_sections("upstreams").into_iter().map(|(name, section)| Upstream::read(&name, section)).collect()
}

impl Upstream {
    fn read(name: &str, mut section: Section<'_>) -> Self {
        let peers: Vec<Peer> = section.sections("peers").into_iter().map(Peer::read).collect();
        if peers.is_empty() {
            section.blame("peers", "names no server", "write at least one, e.g. peers = [{ addr = \"127.0.0.1:3000\" }]");
        }
        let mut seen = BTreeSet::new();
        for peer in peers.iter().filter(|peer| !seen.insert(&peer.addr)) {
            section.blame(
                "peers",
                format!("names {} twice", peer.addr),
                "name each server once; a larger `weight` gives it a larger share",
            );
        }
        let tls = section.flag("tls", false);
        let sni = section.optional("sni", "a host name", |text| syntax::is_host(text).then(|| text.to_owned()));
        if tls && sni.is_none() {
            section.blame("sni", "is missing while `tls` is true", "write the name in the servers' certificate");
        }
        Self {
            name: name.into(),
            peers,
            tls,
            sni,
            connect_timeout: section.millis("connect_timeout_ms", 2_000, 1..=60_000),
            read_timeout: section.millis("read_timeout_ms", 30_000, 1..=3_600_000),
            write_timeout: section.millis("write_timeout_ms", 30_000, 1..=3_600_000),
            idle_timeout: section.millis("idle_timeout_ms", 60_000, 0..=3_600_000),
            retries: section.number("retries", 1, 0..=10),
            health: section.optional_section("health").map(Health::read),
        }
    }
}

impl Peer {
    fn read(mut section: Section<'_>) -> Self {
        let addr = section.required("addr", "HOST:PORT, e.g. \"127.0.0.1:3000\"", syntax::authority);
        Self { addr: addr.unwrap_or_default(), weight: section.number("weight", 1, 1..=1_000) }
    }
}

impl Health {
    fn read(mut section: Section<'_>) -> Self {
        let health = Self {
            path: section
                .parsed("path", "/".to_owned(), "a path, e.g. \"/healthz\"", |text| text.starts_with('/').then(|| text.to_owned())),
            interval: section.millis("interval_ms", 2_000, 100..=600_000),
            timeout: section.millis("timeout_ms", 1_000, 10..=60_000),
            healthy_after: section.number("healthy_after", 1, 1..=100),
            unhealthy_after: section.number("unhealthy_after", 2, 1..=100),
        };
        if health.timeout > health.interval {
            section.blame("timeout_ms", "is longer than `interval_ms`", "let a probe end before the next one starts");
        }
        health
    }
}

/// Reads every route, in order of the file.
pub(super) fn routes(root: &mut Section<'_>, upstreams: &[Upstream]) -> Vec<Route> {
    let mut names = BTreeSet::new();
    let mut claims = BTreeMap::new();
    root.sections("routes").into_iter().filter_map(|section| read_route(section, upstreams, &mut names, &mut claims)).collect()
}

/// What a route claims: host, path rule, method (none = all of them).
type Claim = (Option<String>, PathRule, Option<String>);

fn read_route(
    mut section: Section<'_>,
    upstreams: &[Upstream],
    names: &mut BTreeSet<String>,
    claims: &mut BTreeMap<Claim, String>,
) -> Option<Route> {
    let name = section.required("name", syntax::LABEL, syntax::label);
    let host = section.optional("host", "a host name without port, in lower case", |text| {
        (syntax::is_host(text) && *text == text.to_ascii_lowercase()).then(|| text.to_owned())
    });
    let methods = section.list("methods", "a method in upper case, e.g. \"GET\"", syntax::method);
    let path = read_path(&mut section);
    let upstream = section.required("upstream", "the name of an upstream", |text| Some(text.to_owned()));

    if let Some(upstream) = upstream.as_deref().filter(|name| upstreams.iter().all(|known| *known.name != **name)) {
        let remedy = match nearest(upstream, upstreams.iter().map(|known| &*known.name)) {
            Some(known) => format!("did you mean \"{known}\"?"),
            None => format!("add [upstreams.{upstream}]"),
        };
        section.blame("upstream", format!("\"{upstream}\" does not exist"), remedy);
    }
    let (name, path, upstream) = (name?, path?, upstream?);
    if !names.insert(name.clone()) {
        section.blame("name", format!("\"{name}\" is taken by another route"), "give each route a name of its own");
    }
    let methods_claimed = if methods.is_empty() { vec![None] } else { methods.iter().cloned().map(Some).collect() };
    for method in methods_claimed {
        if let Some(other) = claims.insert((host.clone(), path.clone(), method), name.clone()) {
            section.blame("name", format!("claims the same host, path and method as \"{other}\""), "remove one of the two");
            break;
        }
    }
    Some(Route { name: name.into(), host, methods, path, upstream: upstream.into() })
}

fn read_path(section: &mut Section<'_>) -> Option<PathRule> {
    const FORM: &str = "an absolute path without `..`, `//` and percent signs, e.g. \"/shop\"";
    let (has_prefix, has_exact) = (section.has("prefix"), section.has("exact"));
    let prefix = section.given("prefix", FORM, syntax::path);
    let exact = section.given("exact", FORM, syntax::path);
    match (has_prefix, has_exact) {
        (false, false) => section.blame("prefix", "is missing, and so is `exact`", "set one of the two"),
        (true, true) => section.blame("exact", "is set together with `prefix`", "set one of the two"),
        (true, false) | (false, true) => {}
    }
    prefix.map(PathRule::Prefix).or_else(|| exact.map(PathRule::Exact))
}
