//! STOMP on the chat socket: the two clients of message brokers as they are, driven by `tests/stomp`; and whose sessions
//! a STOMP client may touch.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::{SinkExt, StreamExt};
use gateway_core::chat::stomp::{Command, Decoder, Frame, StompLimits, Version};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command as Process;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{ClientRequestBuilder, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::chat_socket::ChatSocket;
use crate::cluster::shared;
use crate::settings::repository;
use crate::tokens;
use crate::wait::SOON;

/// An exchange takes about two seconds on an idle machine.
const EXCHANGE_WITHIN: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn the_current_client_of_message_brokers_runs_its_exchange() {
    exchange("current", 71).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_client_of_message_brokers_runs_its_exchange() {
    exchange("old", 72).await.unwrap();
}

/// The user's side runs in the client, on node 0; the agent of `shop` is played here, on node 1.
async fn exchange(client: &str, shop: u64) -> anyhow::Result<()> {
    let folder = repository().join("tests/stomp");
    ensure!(folder.join("node_modules/@stomp/stompjs").is_dir(), "run `npm ci` in {}: `cargo xtask test` does", folder.display());
    let cluster = shared().await?;
    let mut agent = ChatSocket::connect(cluster.edge(1), &tokens::agent(&format!("desk-{shop}"), shop), "").await?;
    agent.expect("hello").await?;
    let mut script = Process::new("node")
        .args(["exchange.mjs", client])
        .current_dir(&folder)
        .env("SLUICE_WS", format!("ws://{}/ws/chat", cluster.edge(0)))
        .env("SLUICE_TOKEN", tokens::user(&format!("user-{shop}")))
        .env("SLUICE_SHOP", shop.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("node is installed")?;
    let mut told = BufReader::new(script.stdout.take().context("its output")?).lines();
    let mut tell = script.stdin.take().context("its input")?;
    let played = async {
        let first = agent.expect("text").await?;
        ensure!(first["content"] == "你好: \\ 😂" && first["seq"] == 1, "{first}");
        agent.send(message(&first["sessionId"], "您好 😀", "a1")).await?;
        let away: Value = serde_json::from_str(&told.next_line().await?.unwrap_or_default()).context("what the script says")?;
        for (content, key) in [("first", "a2"), ("second", "a3")] {
            agent.send(message(&away["away"], content, key)).await?;
            agent.expect_where("its acceptance", |frame| frame["type"] == "accepted" && frame["clientMsgId"] == key).await?;
        }
        tell.write_all(b"written\n").await?;
        told.next_line().await.context("the end")
    };
    let played = timeout(EXCHANGE_WITHIN, played).await;
    if !matches!(played, Ok(Ok(Some(_)))) {
        // What the script says about itself says more.
        script.start_kill()?;
        let said = script.wait_with_output().await?;
        bail!("{played:?}: {}", String::from_utf8_lossy(&said.stderr));
    }
    let output = timeout(SOON, script.wait_with_output()).await??;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn message(session: &Value, content: &str, key: &str) -> Value {
    json!({ "type": "text", "sessionId": session, "content": content, "clientMsgId": key })
}

/// A STOMP connection, frame by frame.
struct StompSocket {
    stream: WebSocketStream<TcpStream>,
    decoder: Decoder,
}

impl StompSocket {
    /// Connects with the token in the query and says CONNECT.
    async fn connect(edge: SocketAddr, token: &str) -> anyhow::Result<Self> {
        let uri = format!("ws://{edge}/ws/chat?token={token}").parse().context("a URI")?;
        let request = ClientRequestBuilder::new(uri).with_sub_protocol("v12.stomp");
        let (stream, answer) = timeout(SOON, client_async(request, TcpStream::connect(edge).await?)).await??;
        ensure!(answer.headers()["sec-websocket-protocol"] == "v12.stomp", "{answer:?}");
        let mut socket = Self { stream, decoder: Decoder::new(StompLimits::default()) };
        socket.send("CONNECT\naccept-version:1.2\n\n\0").await?;
        let connected = socket.hear().await?.context("an answer")?;
        ensure!(connected.command == Command::Connected, "{connected:?}");
        Ok(socket)
    }

    async fn send(&mut self, text: &str) -> anyhow::Result<()> {
        Ok(self.stream.send(Message::text(text)).await?)
    }

    /// The next frame; `None` when the socket was closed.
    async fn hear(&mut self) -> anyhow::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.decoder.next_frame(Some(Version::V12))? {
                return Ok(Some(frame));
            }
            match timeout(SOON, self.stream.next()).await.context("silence")?.transpose()? {
                Some(Message::Text(text)) => self.decoder.feed(&text),
                Some(Message::Close(_)) | None => return Ok(None),
                Some(_) => {}
            }
        }
    }

    /// What a request ends the conversation with.
    async fn refusal(mut self, request: &str) -> anyhow::Result<Frame> {
        self.send(request).await?;
        let mut last = None;
        while let Some(frame) = self.hear().await? {
            ensure!(frame.command != Command::Message, "something is delivered: {frame:?}");
            ensure!(frame.command != Command::Receipt, "it is carried out: {request:?}");
            last = Some(frame);
        }
        last.context("no answer before the end")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strange_session_is_no_session() {
    let cluster = shared().await.unwrap();
    let owner = "stomp-owner";
    let mut own = ChatSocket::connect(cluster.edge(1), &tokens::user(owner), "").await.unwrap();
    own.expect("hello").await.unwrap();
    let opened = own.ask(json!({ "type": "open", "subject": "private", "shopId": "73" })).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    own.send(message(&opened["sessionId"], "a secret", "k1")).await.unwrap();
    own.expect("accepted").await.unwrap();

    let missing = "987654321012345678";
    for stranger in [tokens::user("stomp-stranger"), tokens::agent("desk-74", 74)] {
        for request in [
            "SUBSCRIBE\nid:1\ndestination:/topic/chat/{id}\nreceipt:r\n\n\0",
            "SUBSCRIBE\nid:1\ndestination:/topic/chat/{id}\nlast-seq:0\nreceipt:r\n\n\0",
            "SEND\ndestination:/app/chat/{id}\nreceipt:r\n\nhello\0",
            "SEND\ndestination:/app/typing/{id}\n\n\0",
            "ACK\nid:{id}-1\nreceipt:r\n\n\0",
        ] {
            let mut answers = Vec::new();
            for id in [session.as_str(), missing] {
                let socket = StompSocket::connect(cluster.edge(0), &stranger).await.unwrap();
                let error = socket.refusal(&request.replace("{id}", id)).await.unwrap();
                assert_eq!((error.command, error.header("message")), (Command::Error, Some("NOT_FOUND")), "{request:?}: {error:?}");
                let plain = |text: &str| text.replace(id, "{id}");
                answers.push((plain(&error.body), error.header("receipt-id").map(str::to_owned)));
            }
            // The message's own id names the connection.
            if !request.contains("/app/chat/") {
                assert_eq!(answers[0], answers[1], "{request:?} tells whether a session exists");
            }
        }
    }
    own.assert_quiet().await.unwrap();
    let stored = cluster.ledger().await.unwrap().messages(&session).await.unwrap();
    assert_eq!(stored.len(), 1, "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_greeting_must_be_the_same_principals() {
    let cluster = shared().await.unwrap();
    for (passcode, ends) in [(tokens::user("greeter"), None), (tokens::user("somebody-else"), Some(4403)), ("guest".into(), Some(4400))] {
        let uri = format!("ws://{}/ws/chat?token={}", cluster.edge(0), tokens::user("greeter")).parse().unwrap();
        let request = ClientRequestBuilder::new(uri).with_sub_protocol("v11.stomp");
        let (stream, _) = client_async(request, TcpStream::connect(cluster.edge(0)).await.unwrap()).await.unwrap();
        let mut socket = StompSocket { stream, decoder: Decoder::new(StompLimits::default()) };
        socket.send(&format!("CONNECT\naccept-version:1.1\nlogin:x\npasscode:{passcode}\n\n\0")).await.unwrap();
        let mut code = None;
        while let Some(message) = timeout(SOON, socket.stream.next()).await.unwrap() {
            #[expect(clippy::wildcard_enum_match_arm, reason = "everything else says nothing")]
            match message.unwrap() {
                Message::Text(text) if text.starts_with("CONNECTED") => break,
                Message::Close(frame) => code = frame.map(|frame| u16::from(frame.code)),
                _ => {}
            }
        }
        assert_eq!(code, ends, "{passcode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_without_a_token_does_not_begin() {
    let cluster = shared().await.unwrap();
    let uri = format!("ws://{}/ws/chat", cluster.edge(0)).parse().unwrap();
    let request = ClientRequestBuilder::new(uri).with_sub_protocol("v12.stomp");
    let refused = client_async(request, TcpStream::connect(cluster.edge(0)).await.unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
}
