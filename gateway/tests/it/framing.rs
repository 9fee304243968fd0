//! Bytes that parsers disagree about, paths that are spelt to be misread, and clients that dawdle. None may reach another
//! reading of the request, crash anything, or hold anything for long.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::raw::exchange;
use crate::settings::CLOSED;
use crate::tokens;
use crate::upstream::{Conduct, Upstream};

/// How long an open connection is watched for a second answer, the mark of a smuggled request.
const SECOND_ANSWER: Duration = Duration::from_millis(300);

/// An edge that passes everything on, so that a misread request would arrive somewhere.
async fn open_edge(upstream: &Upstream) -> Dev {
    Dev::start(&format!(
        "edge.header_timeout_ms = 800\nedge.body_timeout_ms = 800\nedge.idle_timeout_ms = 1500\n\
         [upstreams.all]\npeers = [{{ addr = \"{}\" }}]\n[[routes]]\nname = \"all\"\nprefix = \"/\"\nupstream = \"all\"\n",
        upstream.address
    ))
    .await
    .unwrap()
}

/// Checks that the edge still serves, and that nothing in it broke.
async fn assert_well(dev: &mut Dev) {
    assert!(dev.admin.is_alive().await.unwrap());
    let edge = Edge::new().unwrap();
    let answer = Answer::of(edge.http.get(format!("http://{}/fine", dev.edge))).await.unwrap();
    assert_eq!(answer.status, 200, "the edge serves as before");
    assert!(dev.process.runs().unwrap());
    assert!(!dev.process.log().contains("panicked"), "something panicked");
}

/// What an attacker hides behind a request whose end is unclear.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
/// The end of a chunked body.
const LAST_CHUNK: &str = "0\r\n\r\n";

/// A POST with these fields and what follows its head.
fn post(fields: &str, rest: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n{rest}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_end_is_unclear_is_refused_and_ends_the_connection() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let mut dev = open_edge(&upstream).await;
    let chunked = |fields: &str| post(fields, &(LAST_CHUNK.to_owned() + HIDDEN));
    let sized = |fields: &str| post(fields, &("hello".to_owned() + HIDDEN));
    for (what, request) in [
        ("both framings", chunked("Content-Length: 5\r\nTransfer-Encoding: chunked")),
        ("the other order", chunked("Transfer-Encoding: chunked\r\nContent-Length: 5")),
        ("two lengths", sized("Content-Length: 5\r\nContent-Length: 40")),
        ("two lengths in one", sized("Content-Length: 5, 40")),
        ("a signed length", sized("Content-Length: +5")),
        ("a negative length", sized("Content-Length: -1")),
        ("a hexadecimal length", sized("Content-Length: 0x5")),
        ("an endless length", sized("Content-Length: 99999999999999999999999")),
        ("a coding nobody knows", chunked("Transfer-Encoding: xchunked")),
        ("two codings", chunked("Transfer-Encoding: identity, chunked")),
        ("a coding twice", chunked("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked")),
        ("a coding behind a control character", chunked("Transfer-Encoding: \u{b}chunked")),
    ] {
        let ending = exchange(dev.edge, request.as_bytes(), SECOND_ANSWER).await.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let refused = matches!(ending.statuses.as_slice(), [] | [400..500]);
        assert!(refused && ending.closed, "{what}: {ending:?}");
    }
    assert_eq!(upstream.arrived().len(), 0, "nothing was passed on");
    assert_well(&mut dev).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let mut dev = open_edge(&upstream).await;
    for (what, request) in [
        ("two hosts", "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
        ("a NUL in a field", "GET /a HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n"),
        ("no target", "GET secret HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a server for a target", "CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n\r\n"),
        ("another scheme", "GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a field that the client wants dropped", "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close, x-forwarded-for\r\n\r\n"),
        ("no method", " /a HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("no version", "GET /a\r\nHost: x\r\n\r\n"),
        ("another version", "GET /a HTTP/3.7\r\nHost: x\r\n\r\n"),
        ("a TLS hello", "\u{16}\u{3}\u{1}\0\u{5}hello, hello, hello"),
        ("line noise", "\u{1}\u{2}\u{3}\r\n\r\n\r\n"),
    ] {
        let ending = exchange(dev.edge, request.as_bytes(), SECOND_ANSWER).await.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert!(matches!(ending.statuses.as_slice(), [] | [400..500]), "{what}: {ending:?}");
    }
    assert_eq!(upstream.arrived().len(), 0, "nothing was passed on");
    assert_well(&mut dev).await;
}

/// RFC 9112 lets a server repair these. What it must not do is find a second request in them.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_repaired_stays_one_request() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let mut dev = open_edge(&upstream).await;
    for (what, request) in [
        ("bare line feeds", "POST /a HTTP/1.1\nHost: x\nContent-Length: 0\n\n".to_owned()),
        ("a bare line feed in a head", "GET /a HTTP/1.1\r\nHost: x\nX: a\r\n\r\n".into()),
        ("a bare line feed in a field", format!("GET /a HTTP/1.1\r\nHost: x\r\nX: a\n\n{HIDDEN}")),
        ("a CR in a field", "GET /a HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n".into()),
        ("a folded field", post("X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 0", HIDDEN)),
        ("a space before the colon", post("Content-Length : 0", HIDDEN)),
        ("a coding in HTTP/1.0", format!("POST /a HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{LAST_CHUNK}{HIDDEN}")),
        ("no host", format!("GET /a HTTP/1.1\r\n\r\n{HIDDEN}")),
        ("a broken chunk size", post("Transfer-Encoding: chunked", &format!("0x5\r\nhello\r\n{LAST_CHUNK}{HIDDEN}"))),
        ("an endless chunk size", post("Transfer-Encoding: chunked", &format!("fffffffffffffffff\r\n{HIDDEN}"))),
    ] {
        let before = upstream.arrived().len();
        let ending = exchange(dev.edge, request.as_bytes(), SECOND_ANSWER).await.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let arrived = upstream.arrived()[before..].to_vec();
        let one = ending.statuses.len() <= 1 && arrived.len() <= 1;
        assert!(one && arrived.iter().all(|request| request.line.ends_with(" /a")), "{what}: {ending:?}, upstream saw {arrived:?}");
    }
    assert_well(&mut dev).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_in_one_breath_are_two_requests() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let mut dev = open_edge(&upstream).await;
    let both = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let ending = exchange(dev.edge, both.as_bytes(), SECOND_ANSWER * 10).await.unwrap();
    // A server may leave the second to be asked again, as long as it ends the connection.
    assert!(matches!(ending.statuses.as_slice(), [200] | [200, 200]) && ending.closed, "{ending:?}");
    let arrived: Vec<_> = upstream.arrived().into_iter().map(|request| request.line).collect();
    assert_eq!(arrived, ["POST /a", "GET /b"][..ending.statuses.len()]);
    assert_well(&mut dev).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_before_it_is_read() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let mut dev = open_edge(&upstream).await;
    let many = (0..300).map(|number| format!("X-{number}: 1\r\n")).collect::<String>();
    for (what, request) in [
        ("a field of 100 KB", format!("GET /a HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(100_000))),
        ("a target of 100 KB", format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000))),
        ("300 fields", format!("GET /a HTTP/1.1\r\nHost: x\r\n{many}\r\n")),
        ("a name of 100 KB", format!("GET /a HTTP/1.1\r\nHost: x\r\n{}: a\r\n\r\n", "a".repeat(100_000))),
    ] {
        let ending = exchange(dev.edge, request.as_bytes(), SECOND_ANSWER).await.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert!(matches!(ending.statuses.as_slice(), [] | [400 | 431]), "{what}: {ending:?}");
    }
    assert_eq!(upstream.arrived().len(), 0);
    assert_well(&mut dev).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dawdles_is_let_go() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let mut dev = open_edge(&upstream).await;
    for (what, request) in [
        ("nothing at all", ""),
        ("half a line", "GET / HT"),
        ("half a head", "GET /a HTTP/1.1\r\nHost: x\r\nX-Slow: "),
        ("half a body", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"),
        ("half a chunk", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"),
        ("silence after an answer", "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
    ] {
        let ending =
            exchange(dev.edge, request.as_bytes(), Duration::from_secs(8)).await.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert!(ending.closed, "{what}: {ending:?}");
    }
    assert_well(&mut dev).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_at_a_time_does_not_extend_the_patience() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let mut dev = open_edge(&upstream).await;
    let mut stream = TcpStream::connect(dev.edge).await.unwrap();
    let dripping = async {
        stream.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\n").await?;
        loop {
            stream.write_all(b"X: 1\r\n").await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        #[expect(unreachable_code, reason = "says what the block returns")]
        Ok::<(), std::io::Error>(())
    };
    let ended = tokio::time::timeout(crate::raw::ENDS_WITHIN, dripping).await.expect("the edge ends it");
    assert!(ended.is_err(), "the edge ends the connection of a client that never finishes its head");
    assert_well(&mut dev).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_path_gets_around_a_policy() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let mut dev = Dev::start(&format!(
        "[upstreams.all]\npeers = [{{ addr = \"{}\" }}]\n\
         [[routes]]\nname = \"all\"\nprefix = \"/\"\nupstream = \"all\"\n\
         [[policies]]\nname = \"guard\"\nplugin = \"jwt-auth\"\nprefixes = [\"/secret/\"]\nexact = [\"/secret\"]\nfail = {CLOSED}\n",
        upstream.address
    ))
    .await
    .unwrap();
    for target in [
        "/secret/x",
        "//secret/x",
        "/./secret/x",
        "/pub/../secret/x",
        "/pub//..//secret/x",
        "/pub/%2e%2e/secret/x",
        "/pub/%2E./secret/x",
        "/pub%2f..%2fsecret/x",
        "/pub/..%2fsecret/x",
        "/pub/..;/secret/x",
        "/pub/..;a=b/secret/x",
        "/;/secret/x",
        "/%73ecret/x",
        "/secret%2fx",
        "/secret/x%00",
        "/secret%00/x",
        "/pub/..\\secret/x",
        "/pub/%5c../secret/x",
        "\\secret/x",
        "/pub/%c0%ae%c0%ae/secret/x",
        "/pub/%252e%252e/secret/x",
        "/secret",
        "/secret/",
        "/secret?x",
        "/pub/../secret",
        "/SECRET/../secret/x",
        "/secret/x#y",
        "http://elsewhere/secret/x",
        "http://elsewhere//secret/x",
    ] {
        let before = upstream.arrived().len();
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let ending = exchange(dev.edge, request.as_bytes(), SECOND_ANSWER).await.unwrap_or_else(|error| panic!("{target}: {error:#}"));
        let arrived = upstream.arrived()[before..].to_vec();
        // What does arrive must be a path that is none of the guarded ones, however often it is decoded again.
        let harmless = target == "/pub/%252e%252e/secret/x" && arrived.iter().all(|request| request.line.contains("%25"));
        assert!(arrived.is_empty() || harmless, "{target}: upstream saw {arrived:?}");
        assert!(harmless || matches!(ending.statuses.as_slice(), [] | [400 | 401 | 404]), "{target}: {ending:?}");
    }
    let edge = Edge::new().unwrap();
    let allowed = edge.http.get(format!("http://{}//secret/./x", dev.edge)).bearer_auth(tokens::user("somebody"));
    assert_eq!(Answer::of(allowed).await.unwrap().status, 200);
    assert_eq!(upstream.arrived().last().map(|request| request.line.clone()).as_deref(), Some("GET /secret/x"), "one spelling for all");
    assert_well(&mut dev).await;
}
