//! What is passed on to upstreams, to which of them, and what becomes of it when they fail.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::json;
use tokio_tungstenite::tungstenite::ClientRequestBuilder;

use crate::chat_socket::{ChatSocket, Heard};
use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::settings::CLOSED;
use crate::tokens;
use crate::upstream::{Conduct, Upstream, nobody};
use crate::wait::{SOON, soon, until};

/// A route `/{name}` to a group of this name.
fn route(name: &str, peers: &[(std::net::SocketAddr, u32)], more: &str) -> String {
    let peers: Vec<String> = peers.iter().map(|(address, weight)| format!("{{ addr = \"{address}\", weight = {weight} }}")).collect();
    let peers = peers.join(", ");
    format!("[upstreams.{name}]\npeers = [{peers}]\n{more}\n[[routes]]\nname = \"{name}\"\nprefix = \"/{name}\"\nupstream = \"{name}\"\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weight_is_a_share() {
    let (heavy, light) = (Upstream::start(Conduct::Answer("a")).await.unwrap(), Upstream::start(Conduct::Answer("b")).await.unwrap());
    let dev = Dev::start(&route("shop", &[(heavy.address, 2), (light.address, 1)], "")).await.unwrap();
    let edge = Edge::new().unwrap();
    for _ in 0..90 {
        assert_eq!(Answer::of(edge.http.get(format!("http://{}/shop", dev.edge))).await.unwrap().status, 200);
    }
    assert_eq!((heavy.arrived().len(), light.arrived().len()), (60, 30));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_cannot_be_reached_is_passed_over() {
    let alive = Upstream::start(Conduct::Answer("a")).await.unwrap();
    let dead = nobody().await.unwrap();
    let health = "health = { interval_ms = 100, timeout_ms = 100, unhealthy_after = 1 }";
    let config = route("shop", &[(dead, 1), (alive.address, 1)], health) + &route("gone", &[(dead, 1)], health);
    let dev = Dev::start(&config).await.unwrap();
    let edge = Edge::new().unwrap();
    for number in 0..50 {
        let answer = Answer::of(edge.http.post(format!("http://{}/shop/{number}", dev.edge)).body("once")).await.unwrap();
        assert_eq!(answer.status, 200, "request {number}: {}", answer.body);
    }
    let posts = alive.arrived().into_iter().filter(|request| request.line.starts_with("POST ")).count();
    assert_eq!(posts, 50, "each arrived once");
    let gone = Answer::of(edge.http.get(format!("http://{}/gone", dev.edge))).await.unwrap();
    assert!(matches!(gone.status, 502 | 503), "{} {}", gone.status, gone.body);
    gone.assert_refusal(gone.status, gone.code());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_been_done_is_not_done_again() {
    let (first, second) = (Upstream::start(Conduct::Die).await.unwrap(), Upstream::start(Conduct::Die).await.unwrap());
    let dev = Dev::start(&route("shop", &[(first.address, 1), (second.address, 1)], "retries = 5")).await.unwrap();
    let edge = Edge::new().unwrap();
    for (number, method) in [Method::POST, Method::PUT, Method::GET].into_iter().enumerate() {
        let answer = Answer::of(edge.http.request(method, format!("http://{}/shop", dev.edge)).body("once")).await.unwrap();
        answer.assert_refusal(502, "UPSTREAM_FAILED");
        assert_eq!(first.arrived().len() + second.arrived().len(), number + 1, "it arrived once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_never_answers_is_given_up() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let upstream = Upstream::start(Conduct::Hold(gate)).await.unwrap();
    let dev = Dev::start(&route("slow", &[(upstream.address, 1)], "read_timeout_ms = 200")).await.unwrap();
    let edge = Edge::new().unwrap();
    let answer = Answer::of(edge.http.get(format!("http://{}/slow", dev.edge))).await.unwrap();
    answer.assert_refusal(504, "UPSTREAM_TIMEOUT");
    assert_eq!(upstream.arrived().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_learns_who_asks_from_the_gateway_alone() {
    let upstream = Upstream::start(Conduct::Answer("a")).await.unwrap();
    let config = route("shop", &[(upstream.address, 1)], "")
        + &route("open", &[(upstream.address, 1)], "")
        + &format!("[[policies]]\nname = \"jwt-auth\"\nprefixes = [\"/shop/\"]\nfail = {CLOSED}\n");
    let dev = Dev::start(&config).await.unwrap();
    let edge = Edge::new().unwrap();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let ask = async |path: &str, connection: &str| {
        let request = edge.http.get(format!("http://{}{path}", dev.edge)).bearer_auth(tokens::agent("desk", 7));
        let forged = [
            ("x-sluice-principal", "root"),
            ("x-sluice-role", "admin"),
            ("x-sluice-shop", "1"),
            ("x-sluice-anything", "1"),
            ("x-forwarded-for", "1.2.3.4"),
            ("connection", connection),
            ("x-own", "kept"),
        ];
        let request = forged.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = Answer::of(request.header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"))).await.unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert_eq!(answer.headers.get("x-trace-id").and_then(|id| id.to_str().ok()), Some(trace));
        upstream.arrived().last().unwrap().headers.clone()
    };
    let field = |headers: &BTreeMap<String, String>, name: &str| headers.get(name).cloned().unwrap_or_default();
    for connection in ["keep-alive", "keep-alive, x-sluice-principal, x-sluice-role"] {
        let headers = ask("/shop/x", connection).await;
        assert_eq!(
            ["x-sluice-principal", "x-sluice-role", "x-sluice-shop"].map(|name| field(&headers, name)),
            ["desk", "agent", "7"],
            "{headers:?}"
        );
        assert_eq!(
            (field(&headers, "x-sluice-anything"), field(&headers, "x-forwarded-for")),
            ("".into(), "127.0.0.1".into()),
            "{headers:?}"
        );
        assert_eq!(field(&headers, "x-own"), "kept");
        let parent = field(&headers, "traceparent");
        assert!(parent.starts_with(&format!("00-{trace}-")) && !parent.contains("b7ad6b7169203331"), "{parent}");
    }
    let headers = ask("/open/x", "keep-alive").await;
    assert!(!headers.keys().any(|name| name.starts_with("x-sluice-")), "nobody was proved: {headers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_proxy_is_believed_up_to_the_first_stranger() {
    let upstream = Upstream::start(Conduct::Answer("a")).await.unwrap();
    let config = "edge.trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n".to_owned() + &route("shop", &[(upstream.address, 1)], "");
    let dev = Dev::start(&config).await.unwrap();
    let edge = Edge::new().unwrap();
    for (lines, client) in [
        (vec!["1.2.3.4"], "1.2.3.4"),
        (vec!["6.6.6.6, 1.2.3.4, 10.1.1.1"], "1.2.3.4"),
        (vec!["6.6.6.6", "1.2.3.4, 10.1.1.1"], "1.2.3.4"),
        (vec!["6.6.6.6, unknown, 10.1.1.1"], "10.1.1.1"),
        (vec!["::ffff:1.2.3.4"], "1.2.3.4"),
        (vec!["2001:db8::1"], "2001:db8::1"),
        (vec!["1.2.3.4:567"], "1.2.3.4"),
        (vec!["[2001:db8::1]:567"], "2001:db8::1"),
        (vec!["[2001:db8::1]"], "2001:db8::1"),
        (vec!["unknown"], "127.0.0.1"),
        (vec![], "127.0.0.1"),
    ] {
        let mut request = edge.http.get(format!("http://{}/shop", dev.edge));
        for line in &lines {
            request = request.header("x-forwarded-for", *line);
        }
        assert_eq!(Answer::of(request).await.unwrap().status, 200);
        assert_eq!(upstream.arrived().last().unwrap().headers["x-forwarded-for"], client, "{lines:?}");
    }
}

/// Tunnels that may end before their time, in a row. The proxy library ends one when the upstream's 101 overtakes the word that the
/// request has no body, which takes a busy machine and an upstream that answers at once; a client connects again then.
const TUNNELS_MAX: usize = 8;

/// Says whether the tunnel carried bytes both ways; `false`: it ended after the upstream's frame.
async fn tunnel(edge: std::net::SocketAddr) -> anyhow::Result<bool> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(edge).await?;
    let handshake = "GET /tunnel HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(handshake.as_bytes()).await?;
    let mut heard = Vec::new();
    while !heard.ends_with(b"\x81\x02hi") {
        anyhow::ensure!(stream.read_buf(&mut heard).await? > 0, "the tunnel ended after {:?}", String::from_utf8_lossy(&heard));
    }
    anyhow::ensure!(heard.starts_with(b"HTTP/1.1 101 "), "{:?}", String::from_utf8_lossy(&heard));
    let sent = stream.write_all(b"and back").await;
    while !heard.ends_with(b"and back") {
        if sent.is_err() || stream.read_buf(&mut heard).await.unwrap_or(0) == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_carries_the_first_frame_that_comes_with_the_101() {
    // A text frame "hi" from a server.
    let upstream = Upstream::start(Conduct::Tunnel(b"\x81\x02hi")).await.unwrap();
    let dev = Dev::start(&route("tunnel", &[(upstream.address, 1)], "")).await.unwrap();
    let mut tunnels = 0..TUNNELS_MAX;
    while !soon("a tunnel", tunnel(dev.edge)).await.unwrap().unwrap() {
        assert!(tunnels.next().is_some(), "{TUNNELS_MAX} tunnels in a row ended early");
    }
    // The edge serves on.
    until("the edge serves", SOON, async || Ok(dev.admin.is_alive().await?.then_some(()))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_behind_an_upgrade_nobody_agreed_to_are_no_tunnel() {
    let upstream = Upstream::start(Conduct::Answer("no upgrade here")).await.unwrap();
    let dev = Dev::start(&route("shop", &[(upstream.address, 1)], "")).await.unwrap();
    let request = "GET /shop HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let ending = crate::raw::exchange(dev.edge, request.as_bytes(), std::time::Duration::from_millis(500)).await.unwrap();
    assert!(ending.statuses.iter().all(|status| *status == 200 || *status == 400 || *status == 404), "{ending:?}");
    assert!(upstream.arrived().iter().all(|request| request.line == "GET /shop"), "{:?}", upstream.arrived());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_shadows_the_products_own_paths() {
    let upstream = Upstream::start(Conduct::Answer("mine now")).await.unwrap();
    let config = route("api", &[(upstream.address, 1)], "") + &route("ws", &[(upstream.address, 1)], "");
    let dev = Dev::start(&(config + &crate::settings::chain())).await.unwrap();
    let edge = Edge::new().unwrap();
    let lot = crate::sale::Lot { activity: 999, sku: 999 };
    edge.buy(dev.edge, &tokens::user("somebody"), lot, "k").await.unwrap().assert_refusal(404, "UNKNOWN_ITEM");
    let uri = format!("ws://{}/ws/chat?token={}", dev.edge, tokens::user("somebody")).parse().unwrap();
    let stream = tokio::net::TcpStream::connect(dev.edge).await.unwrap();
    let mut socket = ChatSocket::handshake(Box::new(stream), ClientRequestBuilder::new(uri)).await.unwrap();
    assert!(matches!(socket.hear().await.unwrap(), Heard::Frame(frame) if frame["type"] == json!("hello")));
    assert_eq!(upstream.arrived().len(), 0);
}
