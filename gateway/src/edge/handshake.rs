//! The opening handshake of RFC 6455 section 4.2, on an already parsed request.

use gateway_core::origin::{self, Origin};
use gateway_core::request::RequestHead;
use http::Version;
use pingora_proxy::Session;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::routes::outcome::Failure;

/// What the 101 says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// `Sec-WebSocket-Accept`.
    pub key: String,
    /// The chosen subprotocol, when the client offered one that we speak.
    pub protocol: Option<&'static str>,
}

/// The subprotocol of the chat's JSON frames.
pub(crate) const CHAT_JSON: &str = "chat.v1.json";

/// Checks a handshake. `origins` are the pages allowed to connect; none means the pages of this host.
pub(crate) fn check(session: &Session, head: &RequestHead, origins: &[Origin]) -> Result<Accepted, Failure> {
    if session.req_header().version != Version::HTTP_11 || session.as_downstream().is_http2() {
        return Err(Failure::UpgradeRequired);
    }
    // The head's host has no port, and an origin does.
    let host = session.req_header().headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    accept(head, host, origins)
}

fn accept(head: &RequestHead, host: Option<&str>, origins: &[Origin]) -> Result<Accepted, Failure> {
    let token = |name: &str, wanted: &str| {
        head.headers.iter().filter(|(n, _)| n == name).any(|(_, v)| v.split(',').any(|t| t.trim().eq_ignore_ascii_case(wanted)))
    };
    if !token("upgrade", "websocket") || !token("connection", "upgrade") || head.header("sec-websocket-version") != Some("13") {
        return Err(Failure::UpgradeRequired);
    }
    // "A |Sec-WebSocket-Key| header field with a base64-encoded value that, when decoded, is 16 bytes in length."
    let key = head.header("sec-websocket-key").unwrap_or_default();
    let sixteen_bytes =
        key.len() == 24 && key.ends_with("==") && key[..22].bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
    if !sixteen_bytes {
        return Err(Failure::BadRequest("Sec-WebSocket-Key is not 16 bytes in base64".into()));
    }
    if !origin::may_connect(head.header("origin"), host, origins) {
        return Err(Failure::Forbidden("this page may not open a chat here"));
    }
    let protocol = token("sec-websocket-protocol", CHAT_JSON).then_some(CHAT_JSON);
    Ok(Accepted { key: derive_accept_key(key.as_bytes()), protocol })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn head(fields: &[(&str, &str)]) -> RequestHead {
        RequestHead {
            method: "GET".into(),
            path: "/ws/chat".into(),
            query: None,
            host: "shop.test".into(),
            headers: fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            trace_id: String::new(),
            route: Arc::from("chat.socket"),
        }
    }

    const GOOD: [(&str, &str); 4] =
        [("upgrade", "websocket"), ("connection", "keep-alive, Upgrade"), ("sec-websocket-version", "13"), ("sec-websocket-key", KEY)];

    #[test]
    fn the_key_of_the_rfc_gets_the_answer_of_the_rfc() {
        let accepted = accept(&head(&GOOD), Some("shop.test"), &[]).unwrap();
        assert_eq!(accepted, Accepted { key: "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".into(), protocol: None });
    }

    #[test]
    fn the_chat_protocol_is_chosen_from_a_list_that_carries_a_token() {
        let mut fields = GOOD.to_vec();
        fields.push(("sec-websocket-protocol", "chat.v1.json, bearer.abc"));
        assert_eq!(accept(&head(&fields), Some("shop.test"), &[]).unwrap().protocol, Some(CHAT_JSON));
    }

    #[test]
    fn a_plain_request_is_told_to_upgrade() {
        for without in 0..3 {
            let mut fields = GOOD.to_vec();
            fields.remove(without);
            assert!(matches!(accept(&head(&fields), Some("shop.test"), &[]), Err(Failure::UpgradeRequired)));
        }
    }

    #[test]
    fn a_foreign_page_is_refused() {
        for origin in ["https://evil.test", "null", "https://shop.test.evil.test"] {
            let mut fields = GOOD.to_vec();
            fields.push(("origin", origin));
            assert!(matches!(accept(&head(&fields), Some("shop.test"), &[]), Err(Failure::Forbidden(_))), "{origin}");
        }
    }
}
