//! The chat without a WebSocket: requests and a stream of events, with the same numbers, ids and rules as sockets.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, Version};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::chat_socket::ChatSocket;
use crate::cluster::shared;
use crate::dev::Dev;
use crate::edge::Answer;
use crate::http;
use crate::settings;
use crate::tokens;
use crate::wait::{RECOVERED, SOON, until};

/// Somebody who speaks plain HTTP.
struct Caller {
    http: Client,
    at: SocketAddr,
    token: String,
}

impl Caller {
    fn new(at: SocketAddr, token: String) -> Self {
        Self { http: http::client().unwrap(), at, token }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("http://{}/api/chat/{path}", self.at)).bearer_auth(&self.token)
    }

    async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(body)).await.unwrap()
    }

    async fn open(&self, shop: u64) -> String {
        let opened = self.post("sessions", &json!({ "subject": "returns", "shopId": shop.to_string() })).await;
        assert_eq!((opened.status, &opened.body["type"]), (200, &json!("opened")), "{}", opened.body);
        opened.body["sessionId"].as_str().unwrap().to_owned()
    }

    async fn say(&self, session: &str, content: &str, key: &str) -> Answer {
        self.post("messages", &json!({ "sessionId": session, "type": "text", "content": content, "clientMsgId": key })).await
    }

    /// A stream of events that goes on after `last_id`.
    async fn listen(&self, last_id: &str) -> anyhow::Result<Events> {
        let mut request = self.request(Method::GET, "events");
        if !last_id.is_empty() {
            request = request.header("last-event-id", last_id);
        }
        Events::of(request).await
    }
}

/// A stream of events as it arrives.
struct Events {
    response: Response,
    text: String,
    id: String,
}

/// One event, or a comment.
#[derive(Debug)]
enum Said {
    Frame(Value),
    Close(u64),
    Beat,
    Over,
}

impl Events {
    async fn of(request: RequestBuilder) -> anyhow::Result<Self> {
        let response = request.timeout(RECOVERED).send().await?;
        if response.status() != 200 {
            bail!("{} {}", response.status(), response.text().await?);
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        assert_eq!(response.headers()["cache-control"], "no-store, no-transform");
        Ok(Self { response, text: String::new(), id: String::new() })
    }

    async fn next(&mut self) -> anyhow::Result<Said> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                if let Some(id) = field("id") {
                    id.clone_into(&mut self.id);
                }
                match (field("event"), field("data")) {
                    (Some("close"), Some(data)) => {
                        return Ok(Said::Close(serde_json::from_str::<Value>(data)?["code"].as_u64().unwrap_or_default()));
                    }
                    (None, Some(data)) => return Ok(Said::Frame(serde_json::from_str(data)?)),
                    _ if event.starts_with(':') => return Ok(Said::Beat),
                    _ => continue,
                }
            }
            match timeout_at(deadline, self.response.chunk()).await.context("nothing is said")?? {
                Some(part) => self.text.push_str(std::str::from_utf8(&part)?),
                None => return Ok(Said::Over),
            }
        }
    }

    /// The next frame of type `kind`; others are passed over.
    async fn expect(&mut self, kind: &str) -> Value {
        loop {
            match self.next().await.unwrap() {
                Said::Frame(frame) if frame["type"] == kind => return frame,
                Said::Frame(_) | Said::Beat => {}
                said @ (Said::Close(_) | Said::Over) => panic!("waiting for {kind}: {said:?}"),
            }
        }
    }

    /// What it says until it ends: the types of its frames, and why it ended.
    async fn until_its_end(&mut self) -> (Vec<String>, Option<u64>) {
        let (mut kinds, mut code) = (Vec::new(), None);
        loop {
            match self.next().await.unwrap() {
                Said::Frame(frame) => kinds.push(frame["type"].as_str().unwrap_or_default().to_owned()),
                Said::Close(number) => code = Some(number),
                Said::Beat => {}
                Said::Over => return (kinds, code),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_sockets_opens_writes_and_reads_with_the_numbers_of_sockets() {
    let cluster = shared().await.unwrap();
    let mut agent = ChatSocket::connect(cluster.edge(1), &tokens::agent("desk-61", 61), "").await.unwrap();
    agent.expect("hello").await.unwrap();
    let user = Caller::new(cluster.edge(0), tokens::user("user-61"));
    let session = user.open(61).await;
    assert_eq!(user.open(61).await, session, "the open one of the same subject is found again");
    agent.expect("assigned").await.unwrap();

    let first = user.say(&session, "你好 😂", "m1").await;
    assert_eq!((first.status, &first.body["type"], &first.body["seq"]), (200, &json!("accepted"), &json!(1)), "{}", first.body);
    assert_eq!(agent.expect("text").await.unwrap()["content"], "你好 😂");
    let again = Caller::new(cluster.edge(2), tokens::user("user-61")).say(&session, "你好 😂", "m1").await;
    assert_eq!((&again.body["seq"], &again.body["dup"]), (&json!(1), &json!(true)), "on any node: {}", again.body);
    user.say(&session, "something else", "m1").await.assert_refusal(409, "CLIENT_MSG_ID_CONFLICT");
    for number in 2..=5 {
        let accepted = user.say(&session, &format!("number {number}"), &format!("m{number}")).await;
        assert_eq!(accepted.body["seq"], number, "{}", accepted.body);
    }

    let listed = user.get("sessions").await;
    let entry = &listed.body["sessions"][0];
    assert_eq!((&entry["sessionId"], &entry["maxSeq"], &entry["agentId"]), (&json!(session), &json!(5), &json!("desk-61")), "{entry}");
    let page = user.get(&format!("messages?sessionId={session}&afterSeq=2&limit=2")).await;
    let seqs = |page: &Value| page["messages"].as_array().unwrap().iter().map(|message| message["seq"].clone()).collect::<Vec<_>>();
    assert_eq!(seqs(&page.body), [3, 4], "{}", page.body);
    assert_eq!((&page.body["hasMore"], &page.body["maxSeq"], &page.body["epoch"]), (&json!(true), &json!(5), &entry["epoch"]));
    let latest = user.get(&format!("messages?sessionId={session}&limit=2")).await;
    assert_eq!((seqs(&latest.body), &latest.body["hasMore"]), (vec![json!(4), json!(5)], &json!(true)));
    let oldest = user.get(&format!("messages?sessionId={session}&beforeSeq=3")).await;
    assert_eq!((seqs(&oldest.body), &oldest.body["hasMore"]), (vec![json!(1), json!(2)], &json!(false)));
    assert_eq!(oldest.body["messages"][0]["sender"], json!({ "kind": "user", "id": "user-61" }));

    let desk = Caller::new(cluster.edge(2), tokens::agent("desk-61", 61));
    assert_eq!(desk.get("sessions").await.body["sessions"][0]["unread"], 5);
    assert_eq!(desk.post("read", &json!({ "sessionId": session, "lastSeq": 4 })).await.status, 200);
    assert_eq!(desk.get("sessions").await.body["sessions"][0]["unread"], 1);
    desk.post("read", &json!({ "sessionId": session, "lastSeq": 6 })).await.assert_refusal(409, "ACK_OUT_OF_RANGE");
    let read = agent.expect("read").await.unwrap();
    assert_eq!((&read["lastSeq"], &read["unread"]), (&json!(4), &json!(1)), "other devices hear of it: {read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_the_frames_of_a_socket_and_go_on_where_another_stream_ended() {
    let cluster = shared().await.unwrap();
    let mut agent = ChatSocket::connect(cluster.edge(1), &tokens::agent("desk-62", 62), "").await.unwrap();
    agent.expect("hello").await.unwrap();
    let user = Caller::new(cluster.edge(0), tokens::user("user-62"));
    let session = user.open(62).await;
    let mut events = user.listen("").await.unwrap();
    let hello = events.expect("hello").await;
    assert_eq!((&hello["v"], &hello["sessions"][0]["sessionId"]), (&json!(1), &json!(session)), "{hello}");

    agent.expect("assigned").await.unwrap();
    let say = |content: &str, key: &str| json!({ "type": "text", "sessionId": session, "content": content, "clientMsgId": key });
    agent.send(say("first", "a1")).await.unwrap();
    let pushed = events.expect("text").await;
    assert_eq!((&pushed["seq"], &pushed["content"]), (&json!(1), &json!("first")), "{pushed}");
    let epoch = pushed["epoch"].as_str().unwrap();
    assert_eq!(events.id, format!("{session}.{epoch}.1"), "what a client has once it has this event");
    let own = user.say(&session, "mine", "m1").await;
    let echo = events.expect("text").await;
    assert_eq!((&echo["seq"], &echo["clientMsgId"]), (&own.body["seq"], &json!("m1")), "a stream is another device: {echo}");
    let id = events.id.clone();
    drop(events);
    for (content, key) in [("missed", "a2"), ("missed too", "a3")] {
        agent.send(say(content, key)).await.unwrap();
        agent.expect("accepted").await.unwrap();
    }

    let elsewhere = Caller::new(cluster.edge(2), tokens::user("user-62"));
    let mut events = elsewhere.listen(&id).await.unwrap();
    for (seq, content) in [(3, "missed"), (4, "missed too")] {
        let replayed = events.expect("text").await;
        assert_eq!((&replayed["seq"], &replayed["content"]), (&json!(seq), &json!(content)), "{replayed}");
    }
    assert_eq!(events.expect("replay_end").await["hasMore"], false);
    assert_eq!(events.id, format!("{session}.{epoch}.4"));
    // As a browser opens one: it can set no header, and writes a comma as it likes.
    let by_query = http::client().unwrap().get(format!(
        "http://{}/api/chat/events?lastEventId={session}.{epoch}.3%2C%40me.0&token={}",
        cluster.edge(1),
        tokens::user("user-62")
    ));
    let mut events = Events::of(by_query).await.unwrap();
    assert_eq!(events.expect("text").await["seq"], 4);
    let ahead = elsewhere.listen(&format!("{session}.{epoch}.900")).await.unwrap().expect("resync").await;
    assert_eq!((&ahead["reason"], &ahead["maxSeq"]), (&json!("ahead"), &json!(4)), "{ahead}");
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_session_is_one_that_does_not_exist() {
    let cluster = shared().await.unwrap();
    let owner = Caller::new(cluster.edge(0), tokens::user("user-63"));
    let session = owner.open(63).await;
    owner.say(&session, "private", "m1").await;
    let strangers = [tokens::user("user-63b"), tokens::agent("desk-64", 64)].map(|token| Caller::new(cluster.edge(0), token));
    for stranger in &strangers {
        for id in [session.as_str(), "999999999999"] {
            stranger.get(&format!("messages?sessionId={id}&afterSeq=0")).await.assert_refusal(404, "NOT_FOUND");
            stranger.say(id, "let me in", "s1").await.assert_refusal(404, "NOT_FOUND");
            stranger.post("read", &json!({ "sessionId": id, "lastSeq": 1 })).await.assert_refusal(404, "NOT_FOUND");
            let typing = json!({ "type": "typing", "sessionId": id });
            stranger.post("frames", &typing).await.assert_refusal(404, "NOT_FOUND");
        }
        assert_eq!(stranger.get("sessions").await.body["sessions"], json!([]));
    }
    // A claim to a position in it is no more than a claim.
    let mut events = strangers[0].listen(&format!("{session}.1.0")).await.unwrap();
    let error = events.expect("error").await;
    assert_eq!((&error["code"], &error["sessionId"]), (&json!("NOT_FOUND"), &json!(session)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_with_words() {
    let cluster = shared().await.unwrap();
    let user = Caller::new(cluster.edge(0), tokens::user("user-65"));
    let session = user.open(65).await;
    let message = |fields: Value| {
        let mut message = json!({ "sessionId": session, "type": "text", "content": "x", "clientMsgId": "m1" });
        for (name, value) in fields.as_object().unwrap() {
            message[name] = value.clone();
        }
        message
    };
    for (body, status, code) in [
        (message(json!({ "clientMsgId": null })), 400, "BAD_REQUEST"),
        (message(json!({ "type": "ack", "lastSeq": 1 })), 400, "BAD_REQUEST"),
        (message(json!({ "type": "video" })), 400, "UNKNOWN_TYPE"),
        (message(json!({ "content": "\u{200b} \u{feff}" })), 400, "EMPTY_CONTENT"),
        (message(json!({ "content": 7 })), 400, "BAD_REQUEST"),
        (message(json!({ "sessionId": "x" })), 400, "BAD_REQUEST"),
        (message(json!({ "content": "x".repeat(65_537) })), 413, "TOO_LARGE"),
        (json!([1]), 400, "BAD_REQUEST"),
    ] {
        user.post("messages", &body).await.assert_refusal(status, code);
    }
    for path in
        ["messages", "messages?sessionId=x", "messages?sessionId=1&limit=0", "messages?sessionId=1&afterSeq=-1", "events?lastEventId=x"]
    {
        user.get(path).await.assert_refusal(400, "BAD_REQUEST");
    }
    for kind in ["history", "resume", "refresh", "ping"] {
        let frame = json!({ "type": kind, "sessionId": session, "positions": [], "token": "t" });
        user.post("frames", &frame).await.assert_refusal(400, "BAD_REQUEST");
    }
    for (method, path, allow) in [
        (Method::DELETE, "messages", "GET, HEAD, POST"),
        (Method::PUT, "sessions", "GET, HEAD, POST"),
        (Method::POST, "events", "GET"),
        (Method::GET, "read", "POST"),
        (Method::POST, "waiting", "GET, HEAD"),
    ] {
        let answer = Answer::of(user.request(method, path)).await.unwrap();
        answer.assert_refusal(405, "METHOD_NOT_ALLOWED");
        assert_eq!(answer.headers["allow"], allow);
    }
    let nobody = Caller { token: "none".into(), ..Caller::new(cluster.edge(0), String::new()) };
    let operator = Caller::new(cluster.edge(0), tokens::sign(&tokens::claims("root", "admin", 3_600)));
    for path in ["sessions", "messages?sessionId=1", "events", "waiting", "agents"] {
        nobody.get(path).await.assert_refusal(401, "UNAUTHENTICATED");
        operator.get(path).await.assert_refusal(403, "FORBIDDEN");
    }
    for path in ["waiting", "agents"] {
        user.get(path).await.assert_refusal(403, "FORBIDDEN");
    }
    let agent = Caller::new(cluster.edge(0), tokens::agent("desk-65", 65));
    agent.post("sessions", &json!({ "subject": "x" })).await.assert_refusal(403, "FORBIDDEN");
    assert_eq!(agent.get("waiting").await.body["sessions"][0]["sessionId"], json!(session), "the user of this test still waits");
    let in_query = http::client().unwrap().get(format!("http://{}/api/chat/sessions?token={}", cluster.edge(0), user.token));
    Answer::of(in_query).await.unwrap().assert_refusal(401, "UNAUTHENTICATED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_beats_and_ends_with_its_token() {
    let dev = Dev::start(&format!("tokens.leeway_ms = 0\n{}", settings::chain())).await.unwrap();
    let user = Caller::new(dev.edge, tokens::sign(&tokens::claims("user-66", "user", 6)));
    let mut events = user.listen("").await.unwrap();
    events.expect("hello").await;
    assert_eq!(events.expect("token_expiring").await["type"], "token_expiring");
    assert!(matches!(events.next().await.unwrap(), Said::Beat));
    let (_, code) = events.until_its_end().await;
    assert_eq!(code, Some(4401));
    user.listen("").await.err().expect("the token has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_goes_says_so_and_ends_its_streams() {
    let mut dev = Dev::start(&settings::chain()).await.unwrap();
    let user = Caller::new(dev.edge, tokens::user("user-67"));
    let mut events = user.listen("").await.unwrap();
    events.expect("hello").await;
    dev.process.terminate().unwrap();
    let (kinds, code) = events.until_its_end().await;
    assert!(kinds.contains(&"migrate".to_owned()), "{kinds:?}");
    assert_eq!(code, Some(4001));
    assert!(dev.process.ended(RECOVERED).await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_gives_its_place_back() {
    let dev = Dev::start(&format!("chat.sockets_max = 2\n{}", settings::chain())).await.unwrap();
    let user = Caller::new(dev.edge, tokens::user("user-68"));
    let mut first = user.listen("").await.unwrap();
    first.expect("hello").await;
    let mut second = user.listen("").await.unwrap();
    second.expect("hello").await;
    let full = Answer::of(user.request(Method::GET, "events")).await.unwrap();
    full.assert_refusal(503, "OVERLOADED");
    drop(first);
    until("the place is free", Duration::from_secs(10), async || Ok(user.listen("").await.ok())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_run_over_http_2() {
    http::choose_provider();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = format!("edge.tls = {{ cert = \"{}\", key = \"{}\" }}\n", cert.display(), key.display());
    let dev = Dev::start(&(tls + &settings::chain())).await.unwrap();
    let root = Certificate::from_der(made.cert.der()).unwrap();
    let http = http::builder().tls_certs_only([root]).build().unwrap();
    let token = tokens::user("user-69");
    let url = |path: &str| format!("https://localhost:{}/api/chat/{path}", dev.edge.port());
    let mut events = Events::of(http.get(url("events")).bearer_auth(&token)).await.unwrap();
    assert_eq!(events.response.version(), Version::HTTP_2);
    events.expect("hello").await;
    // The same connection carries the requests beside it.
    let opened = Answer::of(http.post(url("sessions")).bearer_auth(&token).json(&json!({ "subject": "x" }))).await.unwrap();
    let session = opened.body["sessionId"].as_str().unwrap_or_default().to_owned();
    let message = json!({ "sessionId": session, "type": "text", "content": "over h2", "clientMsgId": "m1" });
    let accepted = Answer::of(http.post(url("messages")).bearer_auth(&token).json(&message)).await.unwrap();
    assert_eq!((accepted.status, &accepted.body["seq"]), (200, &json!(1)), "{}", accepted.body);
    assert_eq!(events.expect("text").await["content"], "over h2");
}
