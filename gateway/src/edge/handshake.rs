//! The opening handshake of RFC 6455 section 4.2: the rules are `core::chat::handshake`'s, the answer is made here.

use gateway_core::chat::handshake::{self, Agreed, Refusal, Speaks};
use gateway_core::origin::Origin;
use gateway_core::request::RequestHead;
use http::Version;
use pingora_proxy::Session;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::routes::outcome::Failure;

/// What the 101 says, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// `Sec-WebSocket-Accept`.
    pub key: String,
    /// The chosen subprotocol, when the client offered one that we speak.
    pub protocol: Option<&'static str>,
    /// What is spoken on the socket.
    pub speaks: Speaks,
}

/// Checks a handshake. `origins` are the pages allowed to connect; none means the pages of this host.
pub(crate) fn check(session: &Session, head: &RequestHead, origins: &[Origin]) -> Result<Accepted, Failure> {
    if session.req_header().version != Version::HTTP_11 || session.as_downstream().is_http2() {
        return Err(Failure::UpgradeRequired);
    }
    // The head's host has no port, and an origin does.
    let host = session.req_header().headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    answer(handshake::check(head, host, origins))
}

fn answer(outcome: Result<Agreed<'_>, Refusal>) -> Result<Accepted, Failure> {
    match outcome {
        Ok(Agreed { key, protocol, speaks }) => Ok(Accepted { key: derive_accept_key(key.as_bytes()), protocol, speaks }),
        Err(Refusal::NoHandshake) => Err(Failure::UpgradeRequired),
        Err(refusal @ (Refusal::Key | Refusal::Repeated)) => Err(Failure::BadRequest(refusal.to_string())),
        Err(Refusal::Page) => Err(Failure::Forbidden("this page may not open a chat here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_rfc_gets_the_answer_of_the_rfc() {
        let agreed = Agreed { key: "dGhlIHNhbXBsZSBub25jZQ==", protocol: None, speaks: Speaks::Json };
        let accepted = Accepted { key: "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".into(), protocol: None, speaks: Speaks::Json };
        assert_eq!(answer(Ok(agreed)).unwrap(), accepted);
    }
}
