//! A TCP connection that can fall silent: what comes is taken and goes nowhere, and nobody is told. What a client's network
//! does in a lift, and a proxy that forgets a connection.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A way to one address. Open connections end when it is dropped.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    silent: watch::Sender<bool>,
}

impl Tunnel {
    /// To `address`.
    pub(crate) async fn to(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let tunnel = Self { address: listener.local_addr()?, silent: watch::Sender::new(false) };
        let mut silent = tunnel.silent.subscribe();
        tokio::spawn(async move {
            loop {
                // Cancel safe: a connection that is not returned stays in the queue.
                let near = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = silent.wait_for(|_| false) => return,
                };
                let (Ok((near, _)), Ok(far)) = (near, TcpStream::connect(address).await) else { continue };
                tokio::spawn(carry(near, far, silent.clone()));
            }
        });
        Ok(tunnel)
    }

    /// From now on nothing gets through, in either direction, and every connection seems to be well.
    pub(crate) fn fall_silent(&self) {
        self.silent.send_replace(true);
    }
}

async fn carry(near: TcpStream, far: TcpStream, mut silent: watch::Receiver<bool>) {
    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
    tokio::select! {
        _ = futures::future::join(pass(from_near, to_far, silent.clone()), pass(from_far, to_near, silent.clone())) => {}
        // The tunnel is gone, and its connections with it.
        _ = silent.wait_for(|_| false) => {}
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, silent: watch::Receiver<bool>) {
    let mut part = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        if !*silent.borrow() && to.write_all(&part[..read]).await.is_err() {
            return;
        }
    }
    if *silent.borrow() {
        // An end is swallowed too.
        std::future::pending::<()>().await;
    }
}
