//! One chat connection, frame by frame: what is sent is what the test says, and what arrives is shown as it is.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{ClientRequestBuilder, Message};

use crate::wait::SOON;

/// The subprotocol of the JSON frames.
pub(crate) const CHAT_JSON: &str = "chat.v1.json";

/// Either of TCP and TLS.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + std::fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + std::fmt::Debug> Transport for T {}

/// An open chat connection.
#[derive(Debug)]
pub(crate) struct ChatSocket {
    stream: WebSocketStream<Box<dyn Transport>>,
    /// Frames that came in one text with the last one heard.
    heard: VecDeque<Value>,
}

/// What a server may send.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    /// A frame.
    Frame(Value),
    /// The end, with the close code if one was sent.
    Closed(Option<u16>),
}

impl ChatSocket {
    /// Connects to `/ws/chat` with the token in the subprotocol list. `query` is appended as it is, e.g. `?last_ack_seq=3`.
    pub(crate) async fn connect(edge: SocketAddr, token: &str, query: &str) -> anyhow::Result<Self> {
        Self::handshake(Box::new(TcpStream::connect(edge).await?), request(edge, token, query)?).await
    }

    /// Connects to any path without a subprotocol, as clients of the first design do.
    pub(crate) async fn connect_plain(edge: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let uri = format!("ws://{edge}{path}").parse().context("a URI")?;
        Self::handshake(Box::new(TcpStream::connect(edge).await?), ClientRequestBuilder::new(uri)).await
    }

    /// Shakes hands on a connection that is there.
    pub(crate) async fn handshake(transport: Box<dyn Transport>, request: impl IntoClientRequest + Unpin) -> anyhow::Result<Self> {
        let shaken = timeout(SOON, tokio_tungstenite::client_async(request, transport)).await.context("handshake")?;
        Ok(Self { stream: shaken.context("handshake")?.0, heard: VecDeque::new() })
    }

    /// Sends one frame.
    pub(crate) async fn send(&mut self, frame: Value) -> anyhow::Result<()> {
        self.send_text(frame.to_string()).await
    }

    /// Sends any text.
    pub(crate) async fn send_text(&mut self, text: impl Into<String>) -> anyhow::Result<()> {
        timeout(SOON, self.stream.send(Message::text(text.into()))).await.context("sending")?.context("sending")
    }

    /// Sends bytes as a binary message.
    pub(crate) async fn send_binary(&mut self, bytes: Vec<u8>) -> anyhow::Result<()> {
        timeout(SOON, self.stream.send(Message::binary(bytes))).await.context("sending")?.context("sending")
    }

    /// The next thing that arrives. Cancel safe.
    pub(crate) async fn hear(&mut self) -> anyhow::Result<Heard> {
        loop {
            if let Some(frame) = self.heard.pop_front() {
                return Ok(Heard::Frame(frame));
            }
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => {
                    for line in text.lines() {
                        self.heard.push_back(serde_json::from_str(line).with_context(|| format!("{text} is no JSON"))?);
                    }
                }
                Some(Ok(Message::Close(frame))) => return Ok(Heard::Closed(frame.map(|frame| frame.code.into()))),
                Some(Ok(Message::Binary(_))) => bail!("the server sent a binary message"),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(_)) | None => return Ok(Heard::Closed(None)),
            }
        }
    }

    /// The next frame of type `kind`; others are passed over.
    pub(crate) async fn expect(&mut self, kind: &str) -> anyhow::Result<Value> {
        self.expect_where(kind, |frame| frame["type"] == kind).await
    }

    /// The next frame that `fits`; others are passed over, and told when none comes.
    pub(crate) async fn expect_where(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let deadline = Instant::now() + SOON;
        let mut passed = Vec::new();
        loop {
            match timeout_at(deadline, self.hear()).await {
                Ok(Ok(Heard::Frame(frame))) if fits(&frame) => return Ok(frame),
                Ok(Ok(Heard::Frame(frame))) => passed.push(frame.to_string()),
                Ok(Ok(Heard::Closed(code))) => bail!("waiting for {what}: closed with {code:?} after {passed:#?}"),
                Ok(Err(error)) => return Err(error.context(format!("waiting for {what} after {passed:#?}"))),
                Err(_) => bail!("waiting for {what}: not within {SOON:?}; there were {passed:#?}"),
            }
        }
    }

    /// Sends `frame` with a `reqId` and waits for the frame that answers it.
    pub(crate) async fn ask(&mut self, mut frame: Value) -> anyhow::Result<Value> {
        let id = format!("r{}", rand::random::<u32>());
        frame["reqId"] = json!(id);
        let what = format!("an answer to {frame}");
        self.send(frame).await?;
        self.expect_where(&what, |answer| answer["reqId"] == id).await
    }

    /// Waits for the end of the connection; frames before it are passed over.
    pub(crate) async fn closed(&mut self) -> anyhow::Result<Option<u16>> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Heard::Closed(code) = timeout_at(deadline, self.hear()).await.context("waiting for the end")?? {
                return Ok(code);
            }
        }
    }

    /// Checks that nothing arrives but the answer to a `ping` sent now: whatever was caused before it would be there by then.
    pub(crate) async fn assert_quiet(&mut self) -> anyhow::Result<()> {
        self.send(json!({ "type": "ping" })).await?;
        match timeout(SOON, self.hear()).await.context("waiting for pong")?? {
            Heard::Frame(frame) => {
                ensure!(frame["type"] == "pong", "there was {frame}");
                Ok(())
            }
            Heard::Closed(code) => bail!("closed with {code:?}"),
        }
    }

    /// Says goodbye and waits for the answer.
    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        timeout(SOON, self.stream.close(None)).await.context("closing")??;
        self.closed().await?;
        Ok(())
    }
}

/// The handshake of a current client.
pub(crate) fn request(edge: SocketAddr, token: &str, query: &str) -> anyhow::Result<ClientRequestBuilder> {
    let uri = format!("ws://{edge}/ws/chat{query}").parse().context("a URI")?;
    Ok(ClientRequestBuilder::new(uri).with_sub_protocol(CHAT_JSON).with_sub_protocol(format!("bearer.{token}")))
}
