//! Clients that do not keep up: they cost nobody else anything, are told to come back, and then find everything.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Interval, interval};

use crate::chat_socket::{ChatSocket, Heard, request};
use crate::dev::Dev;
use crate::wait::{SOON, until};
use crate::{settings, tokens};

/// Messages that are pushed, and the characters of each: 24 MB, far more than any buffer on the way takes.
const MESSAGES: u64 = 400;
const CHARACTERS: usize = 20_000;

/// A connection of which a client reads some bytes a second.
#[derive(Debug)]
struct Trickle {
    stream: TcpStream,
    ticks: Interval,
    left: usize,
}

const BYTES_A_TICK: usize = 100;
const TICK: Duration = Duration::from_millis(100);

impl AsyncRead for Trickle {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        while self.left == 0 {
            std::task::ready!(self.ticks.poll_tick(cx));
            self.left = BYTES_A_TICK;
        }
        let mut part = [0; BYTES_A_TICK];
        let room = self.left.min(buf.remaining()).min(BYTES_A_TICK);
        let mut part = ReadBuf::new(&mut part[..room]);
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        self.left -= part.filled().len();
        buf.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Trickle {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Reads its messages as fast as they come; says the longest it waited for one after it had been accepted.
async fn read_all(socket: &mut ChatSocket) -> Vec<u64> {
    let mut seqs = Vec::new();
    while seqs.len() < MESSAGES as usize {
        match tokio::time::timeout(SOON, socket.hear()).await.unwrap().unwrap() {
            Heard::Frame(frame) if frame["type"] == "text" => seqs.push(frame["seq"].as_u64().unwrap()),
            Heard::Frame(_) => {}
            Heard::Closed(code) => panic!("closed with {code:?} after {}", seqs.len()),
        }
    }
    seqs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_or_next_to_nothing_is_sent_away_and_holds_up_nobody() {
    let dev = Dev::start(&settings::chain()).await.unwrap();
    let mut agent = ChatSocket::connect(dev.edge, &tokens::agent("desk", 1), "").await.unwrap();
    agent.expect("hello").await.unwrap();
    let token = tokens::user("u");
    let mut quick = ChatSocket::connect(dev.edge, &token, "").await.unwrap();
    quick.expect("hello").await.unwrap();
    let opened = quick.ask(json!({ "type": "open", "subject": "x", "shopId": "1" })).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    agent.expect("assigned").await.unwrap();

    let mut still = ChatSocket::connect(dev.edge, &token, "").await.unwrap();
    still.expect("hello").await.unwrap();
    let stream = TcpStream::connect(dev.edge).await.unwrap();
    let mut trickle = {
        let transport = Trickle { stream, ticks: interval(TICK), left: 4_096 };
        ChatSocket::handshake(Box::new(transport), request(dev.edge, &token, "").unwrap()).await.unwrap()
    };

    let content = "满".repeat(CHARACTERS);
    let sending = async {
        for number in 0..MESSAGES {
            let id = format!("m{number}");
            agent.send(json!({ "type": "text", "sessionId": session, "content": content, "clientMsgId": id })).await.unwrap();
            agent.expect("accepted").await.unwrap();
        }
        Instant::now()
    };
    let reading = async { (read_all(&mut quick).await, Instant::now()) };
    let (sent, (seqs, read)) = tokio::join!(sending, reading);
    assert_eq!(seqs, (1..=MESSAGES).collect::<Vec<_>>(), "the quick device sees each once and in order");
    assert!(read.saturating_duration_since(sent) < Duration::from_secs(5), "and is not held up");

    // Both show signs of life and take too little of what waits for them.
    until("the slow ones are sent away", Duration::from_secs(40), async || {
        for socket in [&mut still, &mut trickle] {
            let _ = socket.send(json!({ "type": "ping" })).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok((dev.admin.metric("sluice_chat_closed_total{code=\"4008\"}").await? == Some(2.0)).then_some(()))
    })
    .await
    .unwrap();

    let mut back = ChatSocket::connect(dev.edge, &token, &format!("?last_ack_seq=0&sessionId={session}")).await.unwrap();
    assert_eq!(read_all(&mut back).await, (1..=MESSAGES).collect::<Vec<_>>(), "and find everything when they come back");
}
