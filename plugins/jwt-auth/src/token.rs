//! Where a token may stand.
//!
//! A token in the URL ends up in logs and histories, so it is read only where the configuration says that a client cannot
//! send a field: sockets, the short link of a mini-program, a page that is opened by navigation.

use sluice_sdk::types::Request;
use sluice_sdk::{HeaderBlock, covers};

pub(crate) const AUTHORIZATION: &str = "authorization";
pub(crate) const SUBPROTOCOL: &str = "sec-websocket-protocol";

/// Where the WebSocket subprotocol list carries a token; browsers cannot set `Authorization` on a handshake.
const SUBPROTOCOL_BEARER: &str = "bearer.";

/// The paths on which a token is read from other places than `Authorization`.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) path: Vec<String>,
    pub(crate) subprotocol: Vec<String>,
    pub(crate) query: Vec<String>,
}

/// What a request says about its sender.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// Nothing.
    None,
    /// One token.
    One(&'a str),
    /// Something that two readers could read differently, or that is no bearer token.
    Unclear,
}

impl Sources {
    /// The token of `request`. When there is an `Authorization` field, nothing else is read.
    pub(crate) fn find<'a>(&self, request: &'a Request) -> Token<'a> {
        let path = request.path.as_str();
        let mut fields = request.fields().filter(|(name, _)| *name == AUTHORIZATION);
        if let Some((_, value)) = fields.next() {
            return if fields.next().is_some() { Token::Unclear } else { bearer(value) };
        }
        if let Some(token) = self.path.iter().find_map(|prefix| path.strip_prefix(prefix.as_str())) {
            return one(token);
        }
        if self.subprotocol.iter().any(|pattern| covers(pattern, path)) {
            let names = request.fields().filter(|(name, _)| *name == SUBPROTOCOL).flat_map(|(_, value)| value.split(','));
            match only(names.filter_map(|name| name.trim().strip_prefix(SUBPROTOCOL_BEARER))) {
                Token::None => {}
                found => return found,
            }
        }
        if self.query.iter().any(|pattern| covers(pattern, path)) {
            return only(request.query.as_deref().unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("token=")));
        }
        Token::None
    }
}

/// The scheme's case does not matter (RFC 9110, 11.1).
fn bearer(value: &str) -> Token<'_> {
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => one(token.trim()),
        _ => Token::Unclear,
    }
}

fn one(token: &str) -> Token<'_> {
    if token.is_empty() { Token::None } else { Token::One(token) }
}

fn only<'a>(mut tokens: impl Iterator<Item = &'a str>) -> Token<'a> {
    match (tokens.next(), tokens.next()) {
        (None, _) => Token::None,
        (Some(token), None) => one(token),
        (Some(_), Some(_)) => Token::Unclear,
    }
}
