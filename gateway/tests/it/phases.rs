//! When policies are asked: about requests, handshakes and tunnels, about what is answered to them, and about the messages of
//! sockets; and what comes of it where a policy does not enforce.

use std::fs;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::chat_socket::ChatSocket;
use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::policies::{copied_plugins, rebuilt, replace};
use crate::settings::{self, CLOSED};
use crate::tokens;
use crate::upstream::{Conduct, Upstream};
use crate::wait::{RECOVERED, SOON, soon, until};

/// A route `/{name}` to `upstream`.
fn route(name: &str, upstream: &Upstream) -> String {
    format!(
        "[upstreams.{name}]\npeers = [{{ addr = \"{}\" }}]\n[[routes]]\nname = \"{name}\"\nprefix = \"/{name}\"\nupstream = \"{name}\"\n",
        upstream.address
    )
}

fn bound(name: &str, plugin: &str, more: &str) -> String {
    format!("[[policies]]\nname = \"{name}\"\nplugin = \"{plugin}\"\ntimeout_ms = 2000\nfail = {CLOSED}\n{more}\n")
}

/// Conformance sets `x-status` on every response. With a token it is asked about responses alone: who is asking is proved
/// after its turn in the request phase.
fn responses() -> String {
    bound("watch", "conformance", "prefixes = [\"/\"]\nwhen = { roles = [\"user\"] }")
        + &bound("jwt-auth", "jwt-auth", "prefixes = [\"/\"]")
}

const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_response_is_judged_wherever_it_comes_from() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let tunnel = Upstream::start(Conduct::Tunnel(b"hi")).await.unwrap();
    let dev = Dev::start(&(route("api", &upstream) + &route("ws", &tunnel) + &responses())).await.unwrap();
    let edge = Edge::new().unwrap();
    let ask = async |path: &str, fields: &[(&str, &str)]| {
        let request = edge.http.get(format!("http://{}{path}", dev.edge)).bearer_auth(tokens::user("u1"));
        Answer::of(fields.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await.unwrap()
    };
    let says = |answer: &Answer| answer.headers.get("x-status").and_then(|value| value.to_str().ok()).map(str::to_owned);
    for (what, path, fields, status) in [
        ("an upstream's", "/api/x", &[][..], 200),
        ("one of our own", "/nothing", &[], 404),
        ("the 101 of a chat", "/ws/chat", &HANDSHAKE, 101),
        ("the 101 of a tunnel", "/ws/other", &HANDSHAKE, 101),
    ] {
        let answer = if status == 101 { raw_handshake(&dev, path, "").await } else { ask(path, fields).await };
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
        assert_eq!(says(&answer).as_deref(), Some(&*status.to_string()), "{what}: {:?}", answer.headers);
        let trace = answer.headers["x-trace-id"].to_str().unwrap();
        let record = record(&dev, trace).await;
        let phases: Vec<_> = record["policies"].as_array().unwrap().iter().map(|asked| asked["phase"].clone()).collect();
        assert_eq!(phases, ["request", "response"], "{what}: {record}");
        assert_eq!(record["status"], status, "{what}: {record}");
    }
    // An answer that breaks a rule of the host is no verdict, and this policy is closed for that.
    for (what, path, fields) in [
        ("an upstream's", "/api/x", &[][..]),
        ("one of our own", "/nothing", &[]),
        ("the 101 of a chat", "/ws/chat", &HANDSHAKE),
        ("the 101 of a tunnel", "/ws/other", &HANDSHAKE),
    ] {
        let answer = ask(path, &[fields, &[("x-conformance", "framing")]].concat()).await;
        answer.assert_refusal(503, "POLICY_UNAVAILABLE");
        assert_eq!(answer.headers.get("content-length").unwrap(), &answer.body.to_string().len().to_string(), "{what}");
        assert_eq!(says(&answer), None, "{what}");
    }
    assert_eq!(upstream.arrived().len(), 2, "the upstream has answered, and its answer was withheld");
}

/// Shakes hands over a bare connection, and reads the head of the answer.
async fn raw_handshake(dev: &Dev, path: &str, fields: &str) -> Answer {
    let mut stream = TcpStream::connect(dev.edge).await.unwrap();
    let handshake: String = HANDSHAKE.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n{handshake}{fields}\r\n", tokens::user("u1"));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    let head = async {
        while !heard.windows(4).any(|window| window == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0, "{}", String::from_utf8_lossy(&heard));
        }
    };
    soon("the answer to a handshake", head).await.unwrap();
    let text = String::from_utf8_lossy(&heard).into_owned();
    let mut lines = text.split("\r\n\r\n").next().unwrap().lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    Answer { status, headers: headers.collect(), body: Value::Null }
}

/// The decision record of a request, which is kept when the request has ended.
async fn record(dev: &Dev, trace: &str) -> Value {
    until("its decision record", SOON, async || Ok(dev.admin.get(&format!("/admin/decisions/{trace}")).await.ok())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_a_handshake_and_the_handshake_of_a_tunnel_are_judged_alike() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let tunnel = Upstream::start(Conduct::Tunnel(b"hi")).await.unwrap();
    let config = route("api", &upstream)
        + &route("ws", &tunnel)
        + &bound("jwt-auth", "jwt-auth", "prefixes = [\"/\"]")
        + &bound("rule", "conformance", "prefixes = [\"/\"]");
    let dev = Dev::start(&config).await.unwrap();
    let edge = Edge::new().unwrap();
    for (path, fields) in [("/api/x", &[][..]), ("/ws/chat", &HANDSHAKE), ("/ws/other", &HANDSHAKE)] {
        let ask = async |token: Option<String>, word: &str| {
            let mut request = edge.http.get(format!("http://{}{path}", dev.edge)).header("x-conformance", word);
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            Answer::of(fields.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await.unwrap()
        };
        ask(None, "allow").await.assert_refusal(401, "UNAUTHENTICATED");
        ask(Some(tokens::user("u1")), "refuse").await.assert_refusal(429, "NO");
        ask(Some(tokens::user("u1")), "trap").await.assert_refusal(503, "POLICY_UNAVAILABLE");
    }
    assert_eq!((upstream.arrived().len(), tunnel.arrived().len()), (0, 0), "who is refused does not arrive");
    let opened = raw_handshake(&dev, "/ws/other", "x-conformance: header\r\n").await;
    assert_eq!(opened.status, 101);
    assert_eq!(tunnel.arrived()[0].headers["x-policy"], "1", "the upstream of a tunnel sees the edits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_does_not_enforce_is_asked_and_counted_and_changes_nothing() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let limit = "prefixes = [\"/api/\"]\nenforce = false\nconfig = { budgets = [{ name = \"one\", key = \"ip\", limit = 1, window_ms = 3600000, scope = \"cluster\" }] }";
    let config = route("api", &upstream)
        + &bound("dry-limit", "rate-limit", limit)
        + &bound("dry-rule", "conformance", "prefixes = [\"/api/\"]\nenforce = false");
    let dev = Dev::start(&config).await.unwrap();
    let edge = Edge::new().unwrap();
    let ask = async |word: &str| {
        let answer = Answer::of(edge.http.get(format!("http://{}/api/x", dev.edge)).header("x-conformance", word)).await.unwrap();
        assert_eq!(answer.status, 200, "{word}: {}", answer.body);
        let record = record(&dev, answer.headers["x-trace-id"].to_str().unwrap()).await;
        let policies = record["policies"].as_array().unwrap();
        // Both are asked about the request, and conformance about the response too.
        [0, 1].map(|index| (policies[index]["outcome"].as_str().unwrap().to_owned(), policies[index]["code"].clone()))
    };
    let proceed = ("proceed".to_owned(), Value::Null);
    let would = |code: &str| ("would-refuse".to_owned(), json!(code));
    assert_eq!(ask("header").await, [proceed.clone(), proceed.clone()]);
    assert!(!upstream.arrived()[0].headers.contains_key("x-policy"), "its edits are not made");
    assert_eq!(ask("refuse").await, [would("RATE_LIMITED"), would("NO")], "the account is exhausted by the first");
    assert_eq!(ask("trap").await, [would("RATE_LIMITED"), ("trap".to_owned(), Value::Null)]);
    let metrics = edge.http.get(dev.admin.url("/metrics")).send().await.unwrap().text().await.unwrap();
    let counted = |policy: &str, outcome: &str| {
        metrics.lines().any(|line| {
            line.starts_with("sluice_policy_calls_total")
                && line.contains(&format!("policy=\"{policy}\""))
                && line.contains(&format!("outcome=\"{outcome}\""))
        })
    };
    assert!(counted("dry-limit", "would-refuse") && counted("dry-rule", "would-refuse") && counted("dry-rule", "trap"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_says_who_is_judged() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let config = route("api", &upstream)
        + &bound("jwt-auth", "jwt-auth", "prefixes = [\"/api/\"]")
        + &bound(
            "agents",
            "conformance",
            "prefixes = [\"/api/\"]\nwhen = { roles = [\"agent\"], methods = [\"GET\"], headers = [\"x-beta=1\"] }",
        );
    let dev = Dev::start(&config).await.unwrap();
    let edge = Edge::new().unwrap();
    for (method, token, beta, status) in [
        ("GET", tokens::agent("a1", 1), "1", 429),
        ("GET", tokens::agent("a1", 1), "2", 200),
        ("POST", tokens::agent("a1", 1), "1", 200),
        ("GET", tokens::user("u1"), "1", 200),
    ] {
        let request = edge.http.request(method.parse().unwrap(), format!("http://{}/api/x", dev.edge)).bearer_auth(token);
        let answer = Answer::of(request.header("x-beta", beta).header("x-conformance", "refuse")).await.unwrap();
        assert_eq!(answer.status, status, "{method} {beta}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_policy_judges_a_socket_as_it_did_at_the_handshake() {
    let folder = copied_plugins();
    let plugins = settings::plugins().unwrap();
    let base = settings::base().unwrap().replace(&plugins.display().to_string(), &folder.path().display().to_string());
    let chat = |name: &str, sockets: &str| bound(name, "conformance", &format!("prefixes = [\"/ws/\"]\nsockets = \"{sockets}\""));
    let config = base + &bound("jwt-auth", "jwt-auth", "prefixes = [\"/ws/\"]") + &chat("pinned", "pin") + &chat("newest", "next-message");
    let dev = Dev::start_with(&config, &[]).await.unwrap();
    let handshake = raw_handshake(&dev, "/ws/chat", "").await;
    assert_eq!(handshake.status, 101);

    let trace = "0af7651916cd43dd8448eb211c80319c";
    let request = crate::chat_socket::request(dev.edge, &tokens::user("u1"), "").unwrap();
    let request = request.with_header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
    let mut socket = ChatSocket::handshake(Box::new(TcpStream::connect(dev.edge).await.unwrap()), request).await.unwrap();
    socket.expect("hello").await.unwrap();
    let opened = socket.ask(json!({ "type": "open", "subject": "x", "shopId": "1" })).await.unwrap();
    let mut say = async |key: &str| {
        let frame = json!({ "type": "text", "sessionId": opened["sessionId"], "content": key, "clientMsgId": key });
        socket.send(frame).await.unwrap();
        socket.expect_where("accepted", |frame| frame["type"] == "accepted" && frame["clientMsgId"] == key).await.unwrap();
        let record = record(&dev, trace).await;
        let messages = record["messages"].as_array().unwrap().clone();
        let message = messages.iter().find(|message| message["clientMsgId"] == key).unwrap_or_else(|| panic!("{record}")).clone();
        let version = |index: usize| message["policies"][index]["version"].as_str().unwrap().to_owned();
        (version(0), version(1))
    };
    let (pinned, newest) = say("before").await;
    assert_eq!(pinned, newest);

    let file = folder.path().join("conformance.wasm");
    replace(&file, &rebuilt(&fs::read(&file).unwrap(), b"new"));
    let changed = until("another version answers", RECOVERED, async || {
        let now = dev.admin.policy_version("newest").await?;
        Ok((now != newest).then_some(now))
    });
    let changed = changed.await.unwrap();
    assert_eq!(say("after").await, (pinned, changed));
}
