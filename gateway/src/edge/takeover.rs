//! Takes a WebSocket's connection over from pingora and answers the 101, so that frames never pass pingora's body reader,
//! whose 64 KiB buffer per connection would be most of an idle socket's memory.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::principal::Principal;
use gateway_core::request::RequestHead;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_proxy::Session;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::edge::handshake;
use crate::node::Node;
use crate::routes::outcome::Failure;
use crate::socket::{self, Socket, chat};

/// How long writing the 101 may take.
const HANDSHAKE_WRITE: Duration = Duration::from_secs(5);

/// Upgrades a chat handshake and lets it run on its own task. Policies have passed; `principal` is whom they proved.
pub(super) async fn chat(node: &Arc<Node>, session: &mut Session, head: &RequestHead, principal: Principal) -> Result<(), Failure> {
    let accepted = handshake::check(session, head, &node.config.chat.origins)?;
    if node.drain.started() {
        return Err(Failure::Draining);
    }
    let opening = chat::Opening::prepare(node, head, principal).await?;
    let stream = steal(session)?;
    let config = socket::limits(node.config.chat.frame_bytes_max, node.config.chat.queue_bytes_max);
    let node = node.clone();
    let trace_id = head.trace_id.clone();
    tokio::spawn(async move {
        if let Some(socket) = upgrade(stream, &accepted, &trace_id, config).await {
            chat::run(node, opening, socket).await;
        }
    });
    Ok(())
}

/// Takes the raw connection out of a session, leaving a closed one behind for pingora to finish.
pub(super) fn steal(session: &mut Session) -> Result<Stream, Failure> {
    let (near, _far) = tokio::io::duplex(64);
    let stand_in = ServerSession::new_http1(Box::new(near));
    let taken = std::mem::replace(session.as_downstream_mut(), stand_in);
    match taken {
        ServerSession::H1(session) => Ok(session.into_inner()),
        ServerSession::H2(_) | ServerSession::Subrequest(_) | ServerSession::Custom(_) => Err(Failure::UpgradeRequired),
    }
}

/// Answers 101 and starts framing.
pub(super) async fn upgrade(mut stream: Stream, accepted: &handshake::Accepted, trace_id: &str, config: WebSocketConfig) -> Option<Socket> {
    let mut response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\nX-Trace-Id: {trace_id}\r\n",
        accepted.key
    );
    if let Some(protocol) = accepted.protocol {
        response.push_str("Sec-WebSocket-Protocol: ");
        response.push_str(protocol);
        response.push_str("\r\n");
    }
    response.push_str("\r\n");
    let write = async {
        stream.write_all(response.as_bytes()).await?;
        stream.flush().await
    };
    match timeout(HANDSHAKE_WRITE, write).await {
        Ok(Ok(())) => {
            let connection: Box<dyn socket::Connection> = Box::new(stream);
            Some(WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await)
        }
        Ok(Err(_)) | Err(_) => None,
    }
}
