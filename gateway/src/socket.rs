//! WebSocket shells: carry frames between a client and the chat core.
//!
//! What lives here: frames in and out, deadlines, and performing what the chat core asks for. What never happens here: a
//! rule of the chat (core::chat), or HTTP (edge).

mod backlog;
pub(crate) mod chat;
pub(crate) mod dialect;
mod direct;
mod gate;
pub(crate) mod hub;
pub(crate) mod message;
mod nonces;
pub(crate) mod reads;
pub(crate) mod seals;
mod stomp;
pub(crate) mod switchboard;
pub(crate) mod wire;

use std::time::Duration;

use futures::SinkExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// Read buffer per socket. The library's 128 KiB would be most of an idle socket's memory; frames are at most 64 KiB and
/// typically under 1 KiB.
const READ_BUFFER_BYTES: usize = 1024;
/// Frames are gathered up to this for one write.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;
/// What a socket that does not take it may be handed at once, as a multiple of the larger of queue and frame. Who writes stops
/// long before; what is not taken here would be lost, and ends the socket.
const WRITE_BUFFERS_MAX: usize = 8;
/// How long a closed socket may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection, encrypted or not.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// A WebSocket over any connection.
pub(crate) type Socket = WebSocketStream<Box<dyn Connection>>;

/// Limits of a socket: `frame_bytes_max` per message, `queue_bytes_max` waiting to be written.
pub(crate) fn limits(frame_bytes_max: usize, queue_bytes_max: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFERS_MAX.saturating_mul(queue_bytes_max.max(frame_bytes_max)))
        .max_message_size(Some(frame_bytes_max))
        .max_frame_size(Some(frame_bytes_max))
}

/// The close frame a broken stream deserves, by RFC 6455 section 7.4.1; none when there is nobody to send it to.
pub(crate) fn close_for(error: &WsError) -> Option<CloseFrame> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other error is a connection that is gone")]
    let (code, reason) = match error {
        WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing) => return None,
        WsError::Protocol(_) => (CloseCode::Protocol, "protocol error"),
        WsError::Utf8(_) => (CloseCode::Invalid, "text is not UTF-8"),
        WsError::Capacity(_) => (CloseCode::Size, "message is larger than allowed"),
        _ => return None,
    };
    Some(CloseFrame { code, reason: reason.into() })
}

/// Sends a close frame and waits a moment for the client's, so that the kernel does not discard ours with a reset.
pub(crate) async fn finish(mut socket: Socket, frame: Option<CloseFrame>) {
    let closing = async {
        if let Some(frame) = frame {
            socket.send(Message::Close(Some(frame))).await?;
        }
        let stream = socket.get_mut();
        stream.flush().await?;
        // What the client still sends is read and dropped: after a protocol error it cannot be framed any more.
        let mut discarded = [0_u8; 512];
        while stream.read(&mut discarded).await? != 0 {}
        Ok::<_, WsError>(())
    };
    let _ = timeout(GOODBYE, closing).await;
}
