//! A WebSocket client that costs little, so that one process can hold thousands: small buffers, one task's worth of state.
//!
//! What never happens here: connecting again. Whoever holds a socket knows when that is wanted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{ClientRequestBuilder, Error, Message, Utf8Bytes};

/// The subprotocol of the JSON frames.
const CHAT_JSON: &str = "chat.v1.json";
/// Longest frame that is taken: a page of history fits.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// A frame of chat fits in one read.
const READ_BYTES: usize = 4 << 10;
/// Longest handshake: a node may let newcomers wait for their turn.
const SHAKES_WITHIN: Duration = Duration::from_secs(20);
/// A server that takes nothing for so long has gone away.
const TAKES_WITHIN: Duration = Duration::from_secs(20);
/// One address has 28,232 ports for connections to one server, and some of them rest after use.
const SOCKETS_PER_ADDRESS: usize = 4_000;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The server.
    pub server: SocketAddr,
    /// Path and query.
    pub path: &'a str,
    /// Offered in the subprotocol list; without one, so is no subprotocol.
    pub token: Option<&'a str>,
    /// The number of this socket among all of a process: it chooses the address that it comes from, 127.0.0.1, 127.0.0.2 …
    pub number: usize,
}

/// Why there is no socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The status, if the server answered.
    pub status: Option<u16>,
    /// When it said to come back.
    pub retry_after: Option<Duration>,
}

/// What a server may send.
#[derive(Debug)]
pub enum Heard {
    /// A text frame.
    Text(Utf8Bytes),
    /// The end, with the close code if one was sent.
    Closed(Option<u16>),
}

/// An open WebSocket.
#[derive(Debug)]
pub struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    /// Connects and shakes hands.
    pub async fn open(asked: Asked<'_>) -> Result<Self, Refusal> {
        const UNANSWERED: Refusal = Refusal { status: None, retry_after: None };
        let shaken = timeout(SHAKES_WITHIN, Self::shaken(asked)).await.map_err(|_| UNANSWERED)?;
        shaken.map_err(|error| {
            let Error::Http(answer) = error else { return UNANSWERED };
            let seconds = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
            Refusal { status: Some(answer.status().as_u16()), retry_after: seconds.map(Duration::from_secs) }
        })
    }

    async fn shaken(asked: Asked<'_>) -> Result<Self, Error> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((source(asked.number), 0).into())?;
        let stream = socket.connect(asked.server).await?;
        stream.set_nodelay(true)?;
        let uri = format!("ws://{}{}", asked.server, asked.path).parse().map_err(|_| Error::AttackAttempt)?;
        let mut request = ClientRequestBuilder::new(uri);
        if let Some(token) = asked.token {
            request = request.with_sub_protocol(CHAT_JSON).with_sub_protocol(format!("bearer.{token}"));
        }
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(FRAME_BYTES_MAX))
            .max_frame_size(Some(FRAME_BYTES_MAX));
        let (stream, _) = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await?;
        Ok(Self(stream))
    }

    /// Writes one text frame; whether the connection is still there.
    pub async fn send(&mut self, text: impl Into<Utf8Bytes> + Send) -> bool {
        matches!(timeout(TAKES_WITHIN, self.0.send(Message::Text(text.into()))).await, Ok(Ok(())))
    }

    /// The next thing that arrives; pings are answered. Cancel safe.
    pub async fn hear(&mut self) -> Heard {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Heard::Text(text),
                Some(Ok(Message::Close(frame))) => return Heard::Closed(frame.map(|frame| frame.code.into())),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_))) => {}
                Some(Err(_)) | None => return Heard::Closed(None),
            }
        }
    }
}

/// Where socket `number` comes from.
fn source(number: usize) -> IpAddr {
    let last = u8::try_from(1 + number / SOCKETS_PER_ADDRESS).unwrap_or(u8::MAX);
    Ipv4Addr::new(127, 0, 0, last).into()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_refusal_says_when_to_come_back() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = listener.local_addr().unwrap();
        let refusing = tokio::spawn(async move {
            let (mut stream, from) = listener.accept().await.unwrap();
            let mut head = [0; 1_024];
            let bytes = stream.read(&mut head).await.unwrap();
            stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 3\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            (from.ip(), String::from_utf8_lossy(&head[..bytes]).into_owned())
        });
        let refusal = Socket::open(Asked { server, path: "/ws/chat", token: Some("t"), number: 4_001 }).await.unwrap_err();
        assert_eq!(refusal, Refusal { status: Some(503), retry_after: Some(Duration::from_secs(3)) });
        let (from, head) = refusing.await.unwrap();
        assert_eq!(from, Ipv4Addr::new(127, 0, 0, 2));
        assert!(head.contains("chat.v1.json, bearer.t") || head.contains("bearer.t"), "{head}");
        let gone = Socket::open(Asked { server, path: "/", token: None, number: 0 }).await.unwrap_err();
        assert_eq!(gone.status, None);
    }
}
