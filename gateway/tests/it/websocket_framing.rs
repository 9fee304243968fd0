//! WebSocket frames that a client library would not write, on a chat socket: bad UTF-8, control frames out of shape, reserved bits,
//! and lengths at and beyond the limit. What the suite of RFC 6455 shows on an echo, these show where the product's limits are.

use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::dev::Dev;
use crate::settings;
use crate::tokens;
use crate::wait::SOON;

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;

/// The largest message.
const MESSAGE_BYTES_MAX: usize = 65_536;

async fn node() -> Dev {
    Dev::start(&settings::chain()).await.unwrap()
}

/// A chat socket below every library.
struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

/// What the server says to a frame.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Text(String),
    Closed(u16),
}

impl Raw {
    /// Shakes hands and reads `hello`.
    async fn open(dev: &Dev) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(dev.edge).await?;
        stream.set_nodelay(true)?;
        let request = format!(
            "GET /ws/chat HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: chat.v1.json, bearer.{}\r\n\r\n",
            dev.edge,
            tokens::user("framer")
        );
        stream.write_all(request.as_bytes()).await?;
        let mut raw = Self { stream, read: Vec::new() };
        let end = loop {
            if let Some(at) = raw.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at;
            }
            raw.fill().await?;
        };
        let head = String::from_utf8_lossy(&raw.read[..end]).into_owned();
        ensure!(head.starts_with("HTTP/1.1 101 "), "{head}");
        raw.read.drain(..end + 4);
        let Answer::Text(hello) = raw.answer().await? else { anyhow::bail!("no hello") };
        ensure!(hello.contains("\"hello\""), "{hello}");
        Ok(raw)
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        let mut part = [0; 4096];
        let read = timeout(SOON, self.stream.read(&mut part)).await.context("silence")??;
        ensure!(read > 0, "the connection ended without a close frame");
        self.read.extend_from_slice(&part[..read]);
        Ok(())
    }

    /// Writes bytes. A server that has seen enough may end the connection meanwhile.
    async fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let _ = timeout(SOON, self.stream.write_all(bytes)).await.context("the server does not read")?;
        Ok(())
    }

    /// The next text or the close code; pings and pongs are passed over.
    async fn answer(&mut self) -> anyhow::Result<Answer> {
        loop {
            while self.read.len() < 2 || self.read.len() < head_and_payload(&self.read).unwrap_or(usize::MAX) {
                self.fill().await?;
            }
            let length = head_and_payload(&self.read).context("a length")?;
            let frame: Vec<u8> = self.read.drain(..length).collect();
            let payload = &frame[head(&frame)..];
            match frame[0] & 0x0f {
                TEXT => return Ok(Answer::Text(String::from_utf8(payload.to_vec())?)),
                CLOSE => return Ok(Answer::Closed(u16::from_be_bytes([payload[0], payload[1]]))),
                _ => {}
            }
        }
    }
}

/// Bytes of a server's frame before its payload.
fn head(frame: &[u8]) -> usize {
    match frame[1] & 0x7f {
        126 => 4,
        127 => 10,
        _ => 2,
    }
}

/// Bytes of a whole server's frame, once its head is there.
fn head_and_payload(frame: &[u8]) -> Option<usize> {
    let head = head(frame);
    let length = match head {
        4 => usize::from(u16::from_be_bytes(frame.get(2..4)?.try_into().ok()?)),
        10 => usize::try_from(u64::from_be_bytes(frame.get(2..10)?.try_into().ok()?)).ok()?,
        _ => usize::from(frame[1] & 0x7f),
    };
    Some(head + length)
}

/// A client's frame; its mask is zero, which the RFC allows and eyes can read.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = announced(first, payload.len() as u64);
    bytes.extend_from_slice(payload);
    bytes
}

/// The head of a frame that announces `length` bytes.
fn announced(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match length {
        0..126 => bytes.push(0x80 | length as u8),
        126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

/// A `ping` of the chat that is `length` bytes long.
fn ping(length: usize) -> Vec<u8> {
    let mut text = br#"{"type":"ping","x":""#.to_vec();
    text.resize(length - 2, b'x');
    text.extend_from_slice(b"\"}");
    text
}

const PONG: &str = r#"{"type":"pong"}"#;

async fn says(dev: &Dev, parts: &[&[u8]]) -> anyhow::Result<Answer> {
    let mut raw = Raw::open(dev).await?;
    for part in parts {
        raw.write(part).await?;
    }
    raw.answer().await
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_not_utf_8_is_refused() {
    let dev = node().await;
    for (what, bytes) in [
        ("an overlong NUL", &[0xc0, 0x80][..]),
        ("half of a pair of UTF-16", &[0xed, 0xa0, 0x80]),
        ("a character beyond the last", &[0xf4, 0x90, 0x80, 0x80]),
        ("a continuation alone", &[0x80]),
        ("a character that ends too early", &[0xf0, 0x9f, 0x98]),
    ] {
        let mut text = br#"{"type":"ping","reqId":""#.to_vec();
        text.extend_from_slice(bytes);
        text.extend_from_slice(b"\"}");
        assert_eq!(says(&dev, &[&frame(FIN | TEXT, &text)]).await.unwrap(), Answer::Closed(1007), "{what}");
        // Also when the message is not complete: what cannot become right is not waited for.
        assert_eq!(says(&dev, &[&frame(TEXT, &text)]).await.unwrap(), Answer::Closed(1007), "{what}, in a first fragment");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_character_may_be_cut_anywhere() {
    let dev = node().await;
    let text = r#"{"type":"ping","reqId":"😀"}"#.as_bytes();
    let pong = Answer::Text(r#"{"type":"pong","reqId":"😀"}"#.into());
    let emoji = text.iter().position(|byte| *byte == 0xf0).unwrap();
    for cut in emoji + 1..emoji + 4 {
        let fragments = [frame(TEXT, &text[..cut]), frame(FIN | CONTINUATION, &text[cut..])].concat();
        assert_eq!(says(&dev, &[&fragments]).await.unwrap(), pong, "over two fragments");
        let whole = frame(FIN | TEXT, text);
        let at = whole.len() - text.len() + cut;
        assert_eq!(says(&dev, &[&whole[..at], &whole[at..]]).await.unwrap(), pong, "over two writes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn control_frames_are_short_and_whole() {
    let dev = node().await;
    let reason = [&1000_u16.to_be_bytes()[..], &[b'x'; 124]].concat();
    for (what, bytes) in [
        ("a ping in fragments", frame(PING, b"x")),
        ("a pong in fragments", frame(10, b"x")),
        ("a ping of 126 bytes", frame(FIN | PING, &[b'x'; 126])),
        ("a close reason of 124 bytes", frame(FIN | CLOSE, &reason)),
        ("a close of one byte", frame(FIN | CLOSE, b"x")),
        ("a bit of an extension", frame(FIN | RSV1 | TEXT, b"{}")),
        ("a reserved kind of data", frame(FIN | 3, b"{}")),
        ("a reserved kind of control", frame(FIN | 11, b"")),
        ("a continuation of nothing", frame(FIN | CONTINUATION, b"{}")),
        ("a text inside of a text", [frame(TEXT, b"{"), frame(FIN | TEXT, b"{}")].concat()),
        ("a frame without a mask", vec![FIN | TEXT, 2, b'{', b'}']),
    ] {
        assert_eq!(says(&dev, &[&bytes]).await.unwrap(), Answer::Closed(1002), "{what}");
    }
    let between = [frame(TEXT, &ping(64)[..10]), frame(FIN | PING, &[b'x'; 125]), frame(FIN | CONTINUATION, &ping(64)[10..])].concat();
    assert_eq!(says(&dev, &[&between]).await.unwrap(), Answer::Text(PONG.into()), "a ping between fragments");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_64_kib_is_taken_and_one_byte_more_is_not() {
    let dev = node().await;
    let pong = Answer::Text(PONG.into());
    assert_eq!(says(&dev, &[&frame(FIN | TEXT, &ping(MESSAGE_BYTES_MAX))]).await.unwrap(), pong);
    assert_eq!(says(&dev, &[&frame(FIN | TEXT, &ping(MESSAGE_BYTES_MAX + 1))]).await.unwrap(), Answer::Closed(1009));
    let text = ping(MESSAGE_BYTES_MAX + 1);
    let (first, rest) = text.split_at(MESSAGE_BYTES_MAX / 2);
    let fragments = [frame(TEXT, first), frame(FIN | CONTINUATION, rest)].concat();
    assert_eq!(says(&dev, &[&fragments]).await.unwrap(), Answer::Closed(1009), "in two fragments");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announced_length_is_not_believed() {
    let dev = node().await;
    for length in [1 << 62, 1 << 32, (1 << 63) - 1] {
        let asked = Instant::now();
        let head = announced(FIN | TEXT, length);
        assert_eq!(says(&dev, &[&head, b"{}"]).await.unwrap(), Answer::Closed(1009), "{length}");
        assert!(asked.elapsed() < Duration::from_secs(10), "{length}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_fragments_cost_what_their_bytes_cost() {
    let dev = node().await;
    let fragments = |text: &[u8]| -> Vec<u8> {
        let last = text.len() - 1;
        let kind = |at: usize| if at == 0 { TEXT } else { CONTINUATION } | if at == last { FIN } else { 0 };
        text.iter().enumerate().flat_map(|(at, byte)| frame(kind(at), &[*byte])).collect()
    };
    assert_eq!(says(&dev, &[&fragments(&ping(MESSAGE_BYTES_MAX))]).await.unwrap(), Answer::Text(PONG.into()));
    assert_eq!(says(&dev, &[&fragments(&ping(MESSAGE_BYTES_MAX + 1))]).await.unwrap(), Answer::Closed(1009));
    // Fragments of nothing hold nothing.
    let mut empty = frame(TEXT, b"{\"type\":");
    for _ in 0..100_000 {
        empty.extend(frame(CONTINUATION, b""));
    }
    empty.extend(frame(FIN | CONTINUATION, b"\"ping\"}"));
    assert_eq!(says(&dev, &[&empty]).await.unwrap(), Answer::Text(PONG.into()));
}
