//! `sluice serve` and `sluice worker`: the long-running processes, from start to drained.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use gateway_core::config::Config;
use gateway_core::route::Router;
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::cli::load;
use crate::edge::Edge;
use crate::edge::echo::Echo;
use crate::edge::listener::Listener;
use crate::node::Node;
use crate::routes::proxy::Upstreams;
use crate::socket::switchboard;
use crate::wiring::{self, Backing};
use crate::{admin, telemetry, worker};

/// `sluice serve`.
pub(super) fn serve(file: &Path) -> anyhow::Result<()> {
    let config = load::config(file, &[])?;
    runtime(&config)?.block_on(async {
        telemetry::start_logging(config.log)?;
        let node = wiring::node(config, Backing::Services).await?;
        let process = Process::start(node).await?;
        process.until_stopped().await
    })
}

/// `sluice worker`.
pub(super) fn worker(file: &Path) -> anyhow::Result<()> {
    let mut config = load::config(file, &[])?;
    // Policies are asked nothing here, and a node beside it may read the same configuration.
    config.recording.file = None;
    runtime(&config)?.block_on(async {
        telemetry::start_logging(config.log)?;
        let node = wiring::node(config, Backing::Services).await?;
        let admin = AdminListener::bind(&node).await?;
        let working = tokio::spawn(worker::run(node.clone()));
        let admin = admin.serve(node.clone());
        stop_signal().await?;
        tracing::info!("finishing what is under way");
        node.drain.start();
        if timeout(node.config.node.drain, working).await.is_err() {
            tracing::warn!("the loops did not finish within node.drain_ms; what they held comes again elsewhere");
        }
        admin.abort();
        Ok(())
    })
}

/// One runtime for everything; its threads are `node.threads`, or one per core.
pub(super) fn runtime(config: &Config) -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if config.node.threads > 0 {
        builder.worker_threads(config.node.threads);
    }
    builder.enable_all().build().context("cannot start the runtime")
}

/// A gateway's listeners, running.
pub(super) struct Process {
    node: Arc<Node>,
    listeners: Vec<JoinHandle<()>>,
    background: Vec<JoinHandle<()>>,
    /// Where clients connect.
    pub(super) edge: std::net::SocketAddr,
    /// Where operators connect.
    pub(super) admin: std::net::SocketAddr,
}

impl Process {
    /// Binds everything before anything accepts, so that a taken port starts nothing.
    pub(super) async fn start(node: Arc<Node>) -> anyhow::Result<Self> {
        let config = &node.config;
        let tls = config.edge.tls.as_ref().map(|tls| (tls.cert.as_path(), tls.key.as_path()));
        let edge = Listener::bind(config.edge.listen, tls).await.context("edge.listen")?;
        let admin = AdminListener::bind(&node).await?;
        let echo = match config.edge.echo {
            Some(address) => Some(Listener::bind(address, None).await.context("edge.echo")?),
            None => None,
        };
        // Before anything accepts, so that no request is judged by a version that is not live any more.
        let mut background = node.rollouts.start().await;
        let upstreams = Arc::new(Upstreams::start(&config.upstreams, node.drain.watch()).await?);
        let (edge_address, admin_address) = (edge.address(), admin.address);
        tracing::info!(kind = "edge", address = %edge_address, "listening");
        let mut listeners =
            vec![tokio::spawn(edge.serve(node.clone(), proxy(Edge::new(node.clone(), Router::new(config.routes.clone()), upstreams))))];
        if let Some(echo) = echo {
            tracing::info!(kind = "echo", address = %echo.address(), "listening");
            let app = Echo::new(config.edge.clone(), config.chat.clone());
            listeners.push(tokio::spawn(echo.serve(node.clone(), proxy(app))));
        }
        background.extend([
            admin.serve(node.clone()),
            tokio::spawn(refresh_catalog(node.clone())),
            tokio::spawn(node.buying.flags.clone().follow()),
            tokio::spawn(switchboard::tend(node.clone())),
        ]);
        Ok(Self { node, listeners, background, edge: edge_address, admin: admin_address })
    }

    /// Runs until a signal, then drains: stops accepting, finishes requests, tells sockets to migrate.
    pub(super) async fn until_stopped(self) -> anyhow::Result<()> {
        stop_signal().await?;
        tracing::info!(within_ms = self.node.config.node.drain.as_millis(), "draining");
        self.node.drain.start();
        // Connections and sockets end side by side, each within node.drain_ms; the listeners bound their own wait.
        let listeners = futures::future::join_all(self.listeners);
        let sockets = timeout(self.node.config.node.drain, self.node.sockets.drained());
        if let (_, Err(_)) = tokio::join!(listeners, sockets) {
            tracing::warn!(open = self.node.sockets.open(), "sockets are still open after node.drain_ms; closing them");
        }
        for task in self.background {
            task.abort();
        }
        self.node.rollouts.leave().await;
        tracing::info!("drained");
        Ok(())
    }
}

fn proxy<S>(app: S) -> Arc<HttpProxy<S>>
where
    S: ProxyHttp,
{
    // Pingora's retries are bounded here as well as by each group's own setting.
    let settings = ServerConf { max_retries: 8, ..ServerConf::default() };
    let mut proxy = HttpProxy::new(app, Arc::new(settings));
    proxy.handle_init_modules();
    Arc::new(proxy)
}

struct AdminListener {
    socket: TcpListener,
    address: std::net::SocketAddr,
}

impl AdminListener {
    async fn bind(node: &Node) -> anyhow::Result<Self> {
        let wanted = node.config.admin.listen;
        let socket = TcpListener::bind(wanted).await.with_context(|| format!("admin.listen: cannot listen on {wanted}"))?;
        let address = socket.local_addr().context("admin.listen")?;
        Ok(Self { socket, address })
    }

    fn serve(self, node: Arc<Node>) -> JoinHandle<()> {
        tracing::info!(kind = "admin", address = %self.address, "listening");
        tokio::spawn(async move {
            if let Err(error) = admin::serve(node, self.socket).await {
                tracing::error!(%error, "the admin listener ended");
            }
        })
    }
}

/// Keeps the list of lots fresh, so that requests need not ask for it.
async fn refresh_catalog(node: Arc<Node>) {
    loop {
        if let Err(error) = node.catalog.refresh().await {
            tracing::debug!(error = crate::health::chain(&error), "cannot list the lots now");
        }
        tokio::time::sleep(node.config.sale.catalog_refresh.max(Duration::from_millis(50))).await;
    }
}

/// Returns on SIGTERM or SIGINT.
async fn stop_signal() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
