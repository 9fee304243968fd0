//! Takes a WebSocket's connection over from pingora and answers the 101, so that frames never pass pingora's body reader,
//! whose 64 KiB buffer per connection would be most of an idle socket's memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use gateway_core::ports::PolicySet;
use gateway_core::request::RequestHead;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::edge::guard::Guard;
use crate::edge::{convert, handshake};
use crate::node::Node;
use crate::routes::outcome::Failure;
use crate::socket::wire::WebSocket;
use crate::socket::{self, Socket, chat};

/// How long writing the 101 may take.
const HANDSHAKE_WRITE: Duration = Duration::from_secs(5);

/// Upgrades a chat handshake and lets it run on its own task. The policies of the request have passed; those of the response
/// are asked about the 101, with `guard`. `policies` are the generations that judge the handshake.
pub(super) async fn chat(
    node: &Arc<Node>,
    session: &mut Session,
    head: &RequestHead,
    guard: &mut Guard<'_>,
    policies: &Arc<dyn PolicySet>,
) -> Result<(), Failure> {
    let principal = guard.principal()?;
    let accepted = handshake::check(session, head, &node.config.chat.origins)?;
    if node.drain.started() {
        return Err(Failure::Draining);
    }
    let mut answer = switching(&accepted, &head.trace_id).map_err(|_| Failure::Internal)?;
    // Before anything is prepared that a refusal would have to undo.
    if guard.judges_responses() {
        let edits = guard.response(&convert::judged(&answer)).await?;
        convert::edit(&mut answer, edits).map_err(|_| Failure::Internal)?;
    }
    let opening = chat::Opening::prepare(node, head, principal, policies).await?;
    let dialect = opening.dialect(accepted.speaks, node);
    let stream = steal(session)?;
    let config = socket::limits(node.config.chat.frame_bytes_max, node.config.chat.queue_bytes_max);
    let node = node.clone();
    tokio::spawn(async move {
        if let Some(socket) = upgrade(stream, &answer, config).await {
            // A task of its own: what the handshake needed goes with this one.
            tokio::spawn(chat::run(node, opening, WebSocket::new(socket), dialect));
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

/// The 101.
pub(super) fn switching(accepted: &handshake::Accepted, trace_id: &str) -> pingora_core::Result<ResponseHeader> {
    let mut head = ResponseHeader::build(101, Some(5))?;
    head.insert_header("Upgrade", "websocket")?;
    head.insert_header("Connection", "Upgrade")?;
    head.insert_header("Sec-WebSocket-Accept", accepted.key.as_str())?;
    head.insert_header("X-Trace-Id", trace_id)?;
    if let Some(protocol) = accepted.protocol {
        head.insert_header("Sec-WebSocket-Protocol", protocol)?;
    }
    Ok(head)
}

/// Sends the 101 and starts framing.
pub(super) async fn upgrade(mut stream: Stream, head: &ResponseHeader, config: WebSocketConfig) -> Option<Socket> {
    let mut response = BytesMut::from(&b"HTTP/1.1 101 Switching Protocols\r\n"[..]);
    head.header_to_h1_wire(&mut response);
    response.extend_from_slice(b"\r\n");
    let write = async {
        stream.write_all(&response).await?;
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
