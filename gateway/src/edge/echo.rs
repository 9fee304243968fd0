//! The echo edge of `--echo`: the chat's socket code with an echo behind it, so that the RFC 6455 suite judges the code
//! that carries the chat. Any path; no policies; never part of a gateway that serves clients.

use async_trait::async_trait;
use futures::{SinkExt, StreamExt};
use gateway_core::config;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorType};
use pingora_proxy::{ProxyHttp, Session};
use tokio::time::{Duration, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::edge::listener::HeadArrived;
use crate::edge::takeover::{steal, switching, upgrade};
use crate::edge::{convert, handshake, respond};
use crate::routes::outcome::Failure;
use crate::socket::{self, Socket};

/// Longest silence of a test client.
const SILENCE: Duration = Duration::from_secs(60);

/// The echo edge.
pub(crate) struct Echo {
    limits: config::Edge,
    chat: config::Chat,
}

impl Echo {
    /// With the limits of the edge and of the chat.
    pub(crate) fn new(limits: config::Edge, chat: config::Chat) -> Self {
        Self { limits, chat }
    }

    async fn take_over(&self, session: &mut Session) -> Result<(), Failure> {
        let head = convert::request_head(session, &self.limits, "echo")?;
        let accepted = handshake::check(session, &head, &self.chat.origins)?;
        let config = socket::limits(self.chat.frame_bytes_max, self.chat.queue_bytes_max);
        let answer = switching(&accepted, "echo").map_err(|_| Failure::Internal)?;
        let stream = steal(session)?;
        tokio::spawn(async move {
            if let Some(socket) = upgrade(stream, &answer, config).await {
                echo(socket).await;
            }
        });
        Ok(())
    }
}

async fn echo(mut socket: Socket) {
    while let Ok(Some(message)) = timeout(SILENCE, socket.next()).await {
        match message {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
            // Pings and closes are answered by the protocol layer; a close ends the stream.
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_)) => {}
            Err(error) => return socket::finish(socket, socket::close_for(&error)).await,
        }
    }
}

#[async_trait]
impl ProxyHttp for Echo {
    type CTX = Option<HeadArrived>;

    fn new_ctx(&self) -> Self::CTX {
        None
    }

    fn on_connection_reuse(&self, _session: &mut Session, arrived: &mut Self::CTX, carried: Box<dyn std::any::Any + Send + Sync>) {
        *arrived = carried.downcast::<HeadArrived>().ok().map(|arrived| *arrived);
    }

    async fn request_filter(&self, session: &mut Session, arrived: &mut Self::CTX) -> pingora_core::Result<bool> {
        if let Some(arrived) = arrived {
            arrived.set();
        }
        if let Err(failure) = self.take_over(session).await {
            let reply = respond::reply(&Err(failure), "echo");
            session.set_keepalive(None);
            session.write_response_header(convert::response_head(&reply, "echo")?, false).await?;
            session.write_response_body(Some(reply.body), true).await?;
        }
        Ok(true)
    }

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut Self::CTX) -> pingora_core::Result<Box<HttpPeer>> {
        Error::e_explain(ErrorType::InternalError, "the echo has no upstream")
    }
}
