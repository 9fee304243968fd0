//! Upstream groups: which peer takes a request, how it is reached, and what the upstream sees of the client.
//!
//! Balancing and health checks are pingora's; this file builds them from the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use gateway_core::config::Upstream;
use gateway_core::path;
use gateway_core::policy::chain::ChainState;
use gateway_core::request::RequestHead;
use gateway_core::trace::Trace;
use pingora_core::services::background::BackgroundService;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorType};
use pingora_http::RequestHeader;
use pingora_load_balancing::health_check::{HealthCheck, HttpHealthCheck, TcpHealthCheck};
use pingora_load_balancing::selection::RoundRobin;
use pingora_load_balancing::{Backend, Backends, LoadBalancer, discovery};
use tokio::sync::watch;

/// Header names that only the gateway may set on a request to an upstream.
const IDENTITY_PREFIX: &str = "x-sluice-";

/// How often a group without `health` is probed by connecting.
const TCP_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Peers looked at before a group counts as down; groups are far smaller.
const SELECT_ITERATIONS: usize = 256;

/// Every upstream group of the configuration.
pub(crate) struct Upstreams {
    groups: BTreeMap<Arc<str>, Group>,
}

struct Group {
    settings: Upstream,
    balancer: Arc<LoadBalancer<RoundRobin>>,
}

impl Upstreams {
    /// Builds the groups and starts their health checks, which end with `shutdown`.
    pub(crate) async fn start(upstreams: &[Upstream], shutdown: watch::Receiver<bool>) -> anyhow::Result<Self> {
        let mut groups = BTreeMap::new();
        for settings in upstreams {
            let balancer = Arc::new(balancer(settings).with_context(|| format!("upstreams.{}", settings.name))?);
            // The first update fills the selector; without it the first requests would find no peer.
            balancer.update().await.map_err(|error| anyhow::anyhow!("upstreams.{}: {error}", settings.name))?;
            let checking = balancer.clone();
            let shutdown = shutdown.clone();
            tokio::spawn(async move { checking.start(shutdown).await });
            groups.insert(settings.name.clone(), Group { settings: settings.clone(), balancer });
        }
        Ok(Self { groups })
    }

    /// The next healthy peer of `group`.
    pub(crate) fn peer(&self, group: &str) -> pingora_core::Result<Box<HttpPeer>> {
        let Some(group) = self.groups.get(group) else {
            return Error::e_explain(ErrorType::InternalError, "a route names a group that exists");
        };
        let Some(backend) = group.balancer.select(b"", SELECT_ITERATIONS) else {
            return Error::e_explain(ErrorType::ConnectNoRoute, "no peer is healthy").map_err(Error::into_up);
        };
        let settings = &group.settings;
        let mut peer = HttpPeer::new(backend.addr, settings.tls, settings.sni.clone().unwrap_or_default());
        peer.options.connection_timeout = Some(settings.connect_timeout);
        peer.options.total_connection_timeout = Some(settings.connect_timeout);
        peer.options.read_timeout = Some(settings.read_timeout);
        peer.options.write_timeout = Some(settings.write_timeout);
        peer.options.idle_timeout = Some(settings.idle_timeout);
        Ok(Box::new(peer))
    }

    /// How many other peers may be tried when one cannot be reached.
    pub(crate) fn retries(&self, group: &str) -> usize {
        self.groups.get(group).map_or(0, |group| group.settings.retries as usize)
    }

    /// What the upstream gets: the normalised path, the proved identity and the client's address, each set here and never
    /// taken from the client, and the edits of the policies.
    pub(crate) fn rewrite(
        upstream: &mut RequestHeader,
        head: &RequestHead,
        chain: &ChainState,
        trace: &Trace,
        encrypted: bool,
    ) -> pingora_core::Result<()> {
        let mut target = path::to_uri(&head.path);
        if let Some(query) = &head.query {
            target.push('?');
            target.push_str(query);
        }
        upstream.set_uri(target.parse().map_err(|_| Error::explain(ErrorType::InvalidHTTPHeader, "the path cannot be written"))?);
        let claimed: Vec<_> = upstream.headers.keys().filter(|name| name.as_str().starts_with(IDENTITY_PREFIX)).cloned().collect();
        for name in claimed {
            upstream.remove_header(&name);
        }
        for (name, value) in &chain.headers {
            match value {
                Some(value) => upstream.insert_header(name.clone(), value.as_str())?,
                None => drop(upstream.remove_header(name.as_str())),
            }
        }
        if let Some(principal) = &chain.facts.principal {
            upstream.insert_header("x-sluice-principal", principal.id.as_str())?;
            upstream.insert_header("x-sluice-role", principal.role.as_str())?;
            if let Some(shop) = principal.shop {
                upstream.insert_header("x-sluice-shop", shop.to_string())?;
            }
        }
        upstream.insert_header("x-forwarded-for", head.client.to_string())?;
        upstream.insert_header("x-forwarded-proto", if encrypted { "https" } else { "http" })?;
        upstream.insert_header("traceparent", trace.traceparent())?;
        if trace.parent().is_none() {
            // Vendor data belongs to the caller's trace, and this one starts here.
            upstream.remove_header("tracestate");
        }
        Ok(())
    }
}

fn balancer(settings: &Upstream) -> anyhow::Result<LoadBalancer<RoundRobin>> {
    let backends = settings
        .peers
        .iter()
        .map(|peer| Backend::new_with_weight(&peer.addr, peer.weight as usize).map_err(|error| anyhow::anyhow!("{}: {error}", peer.addr)))
        .collect::<anyhow::Result<_>>()?;
    let mut balancer = LoadBalancer::from_backends(Backends::new(discovery::Static::new(backends)));
    let (check, every) = health_check(settings)?;
    balancer.set_health_check(check);
    balancer.health_check_frequency = Some(every);
    balancer.parallel_health_check = true;
    Ok(balancer)
}

fn health_check(settings: &Upstream) -> anyhow::Result<(Box<dyn HealthCheck + Send + Sync>, Duration)> {
    let Some(health) = &settings.health else {
        let mut check = match &settings.sni {
            Some(sni) => TcpHealthCheck::new_tls(sni),
            None => TcpHealthCheck::new(),
        };
        check.peer_template.options.connection_timeout = Some(settings.connect_timeout);
        return Ok((check, TCP_CHECK_INTERVAL));
    };
    let host = settings.sni.clone().unwrap_or_else(|| settings.name.to_string());
    let mut check = HttpHealthCheck::new(&host, settings.tls);
    check.req = RequestHeader::build("GET", health.path.as_bytes(), None).context("health.path")?;
    check.req.append_header("host", host).context("health check host")?;
    check.validator = Some(Box::new(|response| {
        if response.status.is_success() { Ok(()) } else { Error::e_explain(ErrorType::HTTPStatus(response.status.as_u16()), "unhealthy") }
    }));
    check.peer_template.options.connection_timeout = Some(health.timeout);
    check.peer_template.options.read_timeout = Some(health.timeout);
    check.consecutive_success = health.healthy_after as usize;
    check.consecutive_failure = health.unhealthy_after as usize;
    Ok((Box::new(check), health.interval))
}
