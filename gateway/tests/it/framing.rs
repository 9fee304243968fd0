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

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_can_be_read_in_two_ways_is_refused() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let mut dev = open_edge(&upstream).await;
    let chunk = "0\r\n\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    for (what, request) in [
        (
            "both framings",
            format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{smuggled}"),
        ),
        (
            "the other order",
            format!("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n{chunk}{smuggled}"),
        ),
        (
            "two lengths",
            format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: {}\r\n\r\n{smuggled}", smuggled.len()),
        ),
        ("two lengths in one", format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0, {}\r\n\r\n{smuggled}", smuggled.len())),
        ("a signed length", format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello{smuggled}")),
        ("a negative length", format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{smuggled}")),
        ("a hexadecimal length", format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\nhello{smuggled}")),
        ("an endless length", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n".into()),
        ("a hidden coding", format!("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n{chunk}{smuggled}")),
        ("two codings", format!("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity, chunked\r\n\r\n{chunk}{smuggled}")),
        (
            "a coding twice",
            format!("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{smuggled}"),
        ),
        ("a coding with a tab", format!("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n{chunk}{smuggled}")),
        ("a coding in HTTP/1.0", format!("POST /a HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{smuggled}")),
        ("a space before the colon", format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length : 0\r\n\r\n{smuggled}")),
        (
            "a folded field",
            format!("POST /a HTTP/1.1\r\nHost: x\r\nX: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n{smuggled}"),
        ),
        ("a NUL in a field", "GET /a HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n".into()),
        ("a CR in a field", "GET /a HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n".into()),
        ("two hosts", "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n".into()),
        ("no host", "GET /a HTTP/1.1\r\n\r\n".into()),
        (
            "a broken chunk size",
            format!("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n{chunk}{smuggled}"),
        ),
        ("an endless chunk size", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n".into()),
        ("no target", "GET secret HTTP/1.1\r\nHost: x\r\n\r\n".into()),
        ("a server for a target", "CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n\r\n".into()),
        ("another scheme", "GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n".into()),
        ("a field that the client wants dropped", "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close, x-forwarded-for\r\n\r\n".into()),
        ("no method", " /a HTTP/1.1\r\nHost: x\r\n\r\n".into()),
        ("no version", "GET /a\r\nHost: x\r\n\r\n".into()),
        ("another version", "GET /a HTTP/3.7\r\nHost: x\r\n\r\n".into()),
        ("a TLS hello", "\u{16}\u{3}\u{1}\0\u{5}hello, hello, hello".into()),
        ("line noise", "\u{1}\u{2}\u{3}\r\n\r\n\r\n".into()),
    ] {
        let before = upstream.arrived().len();
        let ending = exchange(dev.edge, request.as_bytes(), SECOND_ANSWER).await.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let arrived = upstream.arrived()[before..].to_vec();
        let refused = ending.statuses.iter().all(|status| (400..500).contains(status)) && ending.statuses.len() <= 1;
        let lone = ending.statuses.len() <= 1 && arrived.iter().all(|request| !request.line.contains("smuggled"));
        match what {
            // Repairing these is allowed, reading a second request out of them is not.
            "a folded field"
            | "a coding in HTTP/1.0"
            | "a space before the colon"
            | "no host"
            | "a broken chunk size"
            | "an endless chunk size"
            | "a CR in a field" => {
                assert!(lone, "{what}: {ending:?}, upstream saw {arrived:?}");
            }
            _ => {
                // Where the next request would begin is unknown, so there is no next request.
                let over = ending.closed || !request.contains("smuggled");
                assert!(refused && over && arrived.is_empty(), "{what}: {ending:?}, upstream saw {arrived:?}");
            }
        }
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
