//! Accepts connections for the edge: binds, counts, shakes hands, and bounds how long a head may take.
//!
//! Pingora's own listening service binds inside and counts nothing; this loop gives the bound address back (port 0 picks a
//! free one), holds a permit per connection, and ends idle or dawdling connections.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::listeners::tls::{Acceptor, TlsSettings};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::protocols::tls::TlsStream;
use pingora_core::protocols::{ALPN, GetSocketDigest, SocketDigest, Stream};
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::node::Node;

/// What happens when the table of open files is full: pause accepting, so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bound, not yet accepting.
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Acceptor>,
}

/// Carried from request to request of one HTTP/1.1 connection; tells the watchdog that a head has arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadArrived(Arc<AtomicBool>);

impl HeadArrived {
    /// The edge has the head of a request.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Listener {
    /// Binds. The TLS files are read here, so a bad one fails the start with its name.
    pub(crate) async fn bind(address: SocketAddr, tls: Option<(&Path, &Path)>) -> anyhow::Result<Self> {
        let tls = match tls {
            None => None,
            Some((cert, key)) => Some(acceptor(cert, key)?),
        };
        let socket = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let address = socket.local_addr().with_context(|| format!("cannot tell which port of {address} was bound"))?;
        Ok(Self { socket, address, tls })
    }

    /// The bound address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts until draining starts, then waits for open connections to end, at most `node.drain_ms`.
    pub(crate) async fn serve<S>(self, node: Arc<Node>, proxy: Arc<HttpProxy<S>>)
    where
        S: ProxyHttp + Send + Sync + 'static,
        S::CTX: Send + Sync,
    {
        let limits = &node.config.edge;
        let connections_max = limits.connections_max;
        let permits = Arc::new(Semaphore::new(connections_max));
        let shutdown = node.drain.watch();
        let shared = Arc::new(Shared {
            tls: self.tls,
            header_timeout: limits.header_timeout,
            idle_timeout: limits.idle_timeout,
            shutdown: shutdown.clone(),
            proxy,
        });
        let gauge = node.metrics.connections.with_label_values(&["http"]);
        loop {
            // Both branches are cancel safe: a connection is only taken off the queue when accept returns it.
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = node.drain.wait() => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // At the limit a new connection is closed at once: queueing it would only hide the overload from the client.
            let Ok(permit) = permits.clone().try_acquire_owned() else {
                continue;
            };
            let shared = shared.clone();
            let gauge = gauge.clone();
            gauge.inc();
            tokio::spawn(async move {
                shared.connection(stream, permit).await;
                gauge.dec();
            });
        }
        drop(self.socket);
        shared.proxy.http_cleanup().await;
        let all = u32::try_from(connections_max).unwrap_or(u32::MAX);
        if timeout(node.config.node.drain, permits.acquire_many(all)).await.is_err() {
            tracing::warn!("connections are still open after node.drain_ms; closing them");
        }
    }
}

fn acceptor(cert: &Path, key: &Path) -> anyhow::Result<Acceptor> {
    // TlsSettings::build panics on unreadable files, so they are read once before, for an error with a name.
    for file in [cert, key] {
        std::fs::read(file).map_err(|error| anyhow::anyhow!("cannot read {}: {error}", file.display()))?;
    }
    let (Some(cert), Some(key)) = (cert.to_str(), key.to_str()) else {
        anyhow::bail!("edge.tls: the file names are not UTF-8");
    };
    let mut settings = TlsSettings::intermediate(cert, key).map_err(|error| anyhow::anyhow!("edge.tls: {error}"))?;
    settings.enable_h2();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| settings.build()))
        .map_err(|_| anyhow::anyhow!("edge.tls: {cert} and {key} are not a certificate chain and its key in PEM"))
}

struct Shared<S> {
    tls: Option<Acceptor>,
    header_timeout: Duration,
    idle_timeout: Duration,
    shutdown: watch::Receiver<bool>,
    proxy: Arc<HttpProxy<S>>,
}

impl<S> Shared<S>
where
    S: ProxyHttp + Send + Sync + 'static,
    S::CTX: Send + Sync,
{
    async fn connection(&self, stream: TcpStream, _permit: OwnedSemaphorePermit) {
        // A chat frame or a 202 is far below a segment; waiting for more to send would only add latency.
        let _ = stream.set_nodelay(true);
        let mut stream = L4Stream::from(stream);
        let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
        stream.set_socket_digest(digest);
        let Some(tls) = &self.tls else {
            return self.http1(Box::new(stream)).await;
        };
        match timeout(self.header_timeout, tls.tls_handshake(stream)).await {
            Ok(Ok(stream)) => self.encrypted(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        }
    }

    async fn encrypted(&self, stream: TlsStream<L4Stream>) {
        let stream: Stream = Box::new(stream);
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            self.proxy.process_new(stream, &self.shutdown).await;
        } else {
            self.http1(stream).await;
        }
    }

    /// Requests of one HTTP/1.1 connection, one after another.
    async fn http1(&self, stream: Stream) {
        let arrived = HeadArrived::default();
        let mut session = ServerSession::new_http1(stream);
        session.set_keepalive(if *self.shutdown.borrow() { None } else { Some(self.idle_timeout.as_secs().max(1)) });
        session.set_connection_user_context(Some(Box::new(arrived.clone())));
        let mut patience = self.header_timeout;
        loop {
            arrived.0.store(false, Ordering::Relaxed);
            // Dropping the request future closes the connection; it is only dropped while no head has arrived.
            let next = tokio::select! {
                next = self.proxy.process_new_http(session, &self.shutdown) => next,
                () = head_overdue(&arrived, patience) => return,
            };
            let Some((stream, settings)) = next.map(pingora_core::apps::ReusedHttpStream::consume) else {
                return;
            };
            session = ServerSession::new_http1(stream);
            if let Some(settings) = settings {
                settings.apply_to_session(&mut session);
            }
            patience = self.idle_timeout;
        }
    }
}

/// Returns when no head has arrived within `patience`; never when one has.
async fn head_overdue(arrived: &HeadArrived, patience: Duration) {
    sleep(patience).await;
    if arrived.take() {
        std::future::pending::<()>().await;
    }
}
