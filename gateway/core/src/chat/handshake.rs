//! The opening handshake of RFC 6455 section 4.2, on an already parsed request: whether it is one, who may try, and what is
//! spoken afterwards.
//!
//! What never happens here: asking who the client is (policies do), or making the answer. Called by the edge.

use crate::chat::stomp::Version;
use crate::origin::{self, Origin};
use crate::request::RequestHead;

/// The subprotocol of the chat's JSON frames.
pub const CHAT_JSON: &str = "chat.v1.json";

/// A handshake that may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed<'a> {
    /// The client's key, to be answered with what the RFC derives from it.
    pub key: &'a str,
    /// The chosen subprotocol, when the client offered one that is spoken here.
    pub protocol: Option<&'static str>,
    /// What is spoken on the socket.
    pub speaks: Speaks,
}

/// What a socket speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// JSON frames: what is spoken when nothing else was asked for.
    Json,
    /// STOMP: by subprotocol, or by `protocol=stomp` in the query for clients that can offer none. It is not guessed from the
    /// first frame, for the server speaks first in the other language.
    Stomp,
}

/// Why a handshake may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No handshake, or one of another version.
    #[error("a WebSocket handshake of version 13 is needed here")]
    NoHandshake,
    /// The key is missing or not 16 bytes.
    #[error("Sec-WebSocket-Key is not 16 bytes in base64")]
    Key,
    /// A field that may occur once occurs again.
    #[error("a field of the handshake occurs twice")]
    Repeated,
    /// A page of another site tries.
    #[error("this page may not open a chat here")]
    Page,
}

/// Checks a handshake. `host` is the `Host` field as sent, with its port; `origins` are the pages allowed to connect, none means
/// the pages of this host.
pub fn check<'a>(head: &'a RequestHead, host: Option<&str>, origins: &[Origin]) -> Result<Agreed<'a>, Refusal> {
    let token = |name: &str, wanted: &str| list(head, name).any(|token| token.eq_ignore_ascii_case(wanted));
    if !token("upgrade", "websocket") || !token("connection", "upgrade") || head.header("sec-websocket-version") != Some("13") {
        return Err(Refusal::NoHandshake);
    }
    if ["sec-websocket-key", "sec-websocket-version", "origin"].into_iter().any(|name| repeats(head, name)) {
        return Err(Refusal::Repeated);
    }
    // "A |Sec-WebSocket-Key| header field with a base64-encoded value that, when decoded, is 16 bytes in length."
    let key = head.header("sec-websocket-key").unwrap_or_default();
    let base64 = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
    if key.len() != 24 || !key.strip_suffix("==").is_some_and(base64) {
        return Err(Refusal::Key);
    }
    if !origin::may_connect(head.header("origin"), host, origins) {
        return Err(Refusal::Page);
    }
    let (protocol, speaks) = choose(head);
    Ok(Agreed { key, protocol, speaks })
}

/// The subprotocol and what it means. Names are compared letter by letter, as browsers compare the answer.
fn choose(head: &RequestHead) -> (Option<&'static str>, Speaks) {
    let offered = |name: &str| list(head, "sec-websocket-protocol").any(|token| token == name);
    if offered(CHAT_JSON) {
        return (Some(CHAT_JSON), Speaks::Json);
    }
    if let Some(version) = Version::ALL.into_iter().find(|version| offered(version.subprotocol())) {
        return (Some(version.subprotocol()), Speaks::Stomp);
    }
    let asked = head.query.as_deref().unwrap_or_default().split('&').any(|pair| pair == "protocol=stomp");
    (None, if asked { Speaks::Stomp } else { Speaks::Json })
}

/// The members of a comma-separated field, over all its lines.
fn list<'a>(head: &'a RequestHead, name: &str) -> impl Iterator<Item = &'a str> {
    head.headers.iter().filter(move |(own, _)| own == name).flat_map(|(_, value)| value.split(',')).map(str::trim)
}

fn repeats(head: &RequestHead, name: &str) -> bool {
    head.headers.iter().filter(|(own, _)| own == name).count() > 1
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    const GOOD: [(&str, &str); 4] =
        [("upgrade", "websocket"), ("connection", "keep-alive, Upgrade"), ("sec-websocket-version", "13"), ("sec-websocket-key", KEY)];

    fn head(more: &[(&str, &str)], query: Option<&str>) -> RequestHead {
        let fields = GOOD.iter().chain(more);
        RequestHead {
            method: "GET".into(),
            path: "/ws/chat".into(),
            query: query.map(str::to_owned),
            host: "shop.test".into(),
            headers: fields.map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            trace_id: String::new(),
            route: Arc::from("chat.socket"),
        }
    }

    fn refusal(head: &RequestHead) -> Option<Refusal> {
        check(head, Some("shop.test"), &[]).err()
    }

    #[test]
    fn what_is_spoken_is_what_was_offered() {
        for (offered, query, protocol, speaks) in [
            ("", None, None, Speaks::Json),
            ("chat.v1.json, bearer.abc", None, Some(CHAT_JSON), Speaks::Json),
            ("v10.stomp, v11.stomp, v12.stomp, bearer.abc", None, Some("v12.stomp"), Speaks::Stomp),
            ("v10.stomp,v11.stomp", None, Some("v11.stomp"), Speaks::Stomp),
            ("v10.stomp", None, Some("v10.stomp"), Speaks::Stomp),
            ("v12.stomp, chat.v1.json", None, Some(CHAT_JSON), Speaks::Json),
            ("V12.STOMP", None, None, Speaks::Json),
            ("mqtt", Some("token=x&protocol=stomp"), None, Speaks::Stomp),
            ("chat.v1.json", Some("protocol=stomp"), Some(CHAT_JSON), Speaks::Json),
            ("", Some("protocol=stompx"), None, Speaks::Json),
        ] {
            let head = head(&[("sec-websocket-protocol", offered)], query);
            let agreed = check(&head, Some("shop.test"), &[]).unwrap();
            assert_eq!(agreed, Agreed { key: KEY, protocol, speaks }, "{offered} {query:?}");
        }
        let lines = head(&[("sec-websocket-protocol", "bearer.abc"), ("sec-websocket-protocol", "v12.stomp")], None);
        assert_eq!(check(&lines, None, &[]).unwrap().protocol, Some("v12.stomp"));
    }

    #[test]
    fn a_plain_request_is_told_to_upgrade() {
        for without in 0..3 {
            let mut plain = head(&[], None);
            plain.headers.remove(without);
            assert_eq!(refusal(&plain), Some(Refusal::NoHandshake));
        }
    }

    #[test]
    fn a_key_is_sixteen_bytes() {
        for key in [
            "",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZQ=A",
            "dGhlIHNhbXBsZSBub25j!Q==",
            "dGhlIHNhbXBsZSBub25jZQA=",
            "ééééééééééé==",
        ] {
            let mut broken = head(&[], None);
            broken.headers[3].1 = key.to_owned();
            assert_eq!(refusal(&broken), Some(Refusal::Key), "{key}");
        }
    }

    #[test]
    fn what_may_occur_once_occurs_once() {
        for field in [("sec-websocket-key", KEY), ("sec-websocket-version", "13")] {
            assert_eq!(refusal(&head(&[field], None)), Some(Refusal::Repeated));
        }
        let own = ("origin", "http://shop.test");
        assert_eq!(refusal(&head(&[own], None)), None);
        assert_eq!(refusal(&head(&[own, ("origin", "https://evil.test")], None)), Some(Refusal::Repeated));
    }

    #[test]
    fn a_foreign_page_is_refused() {
        for origin in ["https://evil.test", "null", "https://shop.test.evil.test", ""] {
            assert_eq!(refusal(&head(&[("origin", origin)], None)), Some(Refusal::Page), "{origin}");
        }
    }
}
