//! Where the head of a request may carry a bearer token: for fetching a key in time, and for keeping tokens out of what is
//! written down.
//!
//! What never happens here: deciding which of these places counts. That is a policy's (`plugins/jwt-auth`); this list has to
//! cover at least what it reads.

use gateway_core::request::RequestHead;

/// Where old chat clients put their token.
pub(crate) const PATH: &str = "/im/";
/// What a token is called in a query.
pub(crate) const PARAMETER: &str = "token";
/// What a token begins with in a WebSocket's list of subprotocols.
pub(crate) const SUBPROTOCOL: &str = "bearer.";

/// Every token of `head`; empty ones are none.
pub(crate) fn tokens(head: &RequestHead) -> Vec<&str> {
    let mut tokens = Vec::new();
    for (name, value) in &head.headers {
        match name.as_str() {
            "authorization" => tokens.extend(of_authorization(value)),
            "sec-websocket-protocol" => tokens.extend(value.split(',').filter_map(|name| name.trim().strip_prefix(SUBPROTOCOL))),
            _ => {}
        }
    }
    let query = head.query.as_deref().unwrap_or_default();
    tokens.extend(query.split('&').filter_map(|pair| pair.strip_prefix(PARAMETER)?.strip_prefix('=')));
    tokens.extend(head.path.strip_prefix(PATH));
    tokens.retain(|token| !token.is_empty());
    tokens
}

/// The token of an `Authorization` field, when its scheme is Bearer.
pub(crate) fn of_authorization(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn finds_a_token_wherever_a_policy_reads_one() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let head = RequestHead {
            method: "GET".into(),
            path: "/im/p".into(),
            query: Some("a=b&token=q&token=&mytoken=x".into()),
            host: String::new(),
            headers: vec![
                field("authorization", "bEaReR h"),
                field("authorization", "Basic x"),
                field("sec-websocket-protocol", "chat.v1.json, bearer.s"),
            ],
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            trace_id: String::new(),
            route: "r".into(),
        };
        assert_eq!(tokens(&head), ["h", "s", "q", "p"]);
    }
}
