//! What must be there before a chat handshake is answered: a place, a subscription, and the party's sessions.
//!
//! The subscription comes first, so that nothing falls between it and the reading of the sessions. A store that is away
//! refuses the handshake with 503; the client comes back.

use std::sync::Arc;

use gateway_core::chat::connection::{ConnId, Start};
use gateway_core::chat::handshake::Speaks;
use gateway_core::chat::{Party, Side, frame};
use gateway_core::config::Signature;
use gateway_core::id::{DeviceId, SessionId};
use gateway_core::ports::PolicySet;
use gateway_core::principal::Principal;
use gateway_core::request::RequestHead;
use tokio::sync::OwnedSemaphorePermit;

use crate::clock;
use crate::node::Node;
use crate::reception;
use crate::routes::outcome::Failure;
use crate::socket::dialect::Dialect;
use crate::socket::gate::ComeBack;
use crate::socket::hub::Seat;
use crate::socket::message::Judge;
use crate::socket::stomp;

/// Sessions told in `hello`; a user has a handful, a busy agent some hundreds.
const SESSIONS_MAX: u32 = 1_000;

/// Everything a socket starts from.
pub(crate) struct Opening {
    pub(super) start: Start,
    pub(super) seat: Seat,
    pub(super) permit: OwnedSemaphorePermit,
    pub(super) judge: Judge,
}

impl Opening {
    /// Prepares a socket for `principal`, whose handshake `policies` judged.
    pub(crate) async fn prepare(
        node: &Node,
        head: &RequestHead,
        principal: Principal,
        policies: &Arc<dyn PolicySet>,
    ) -> Result<Self, Failure> {
        let side = Side::of(principal.role).ok_or(Failure::Forbidden("only users and agents chat"))?;
        let query = head.query.as_deref().unwrap_or_default();
        let Resume { messages: resume, notices } = resume(query)?;
        let device = device(query)?;
        let shop = match side {
            Side::User => None,
            Side::Agent => Some(principal.shop.ok_or(Failure::Forbidden("an agent's token names its shop"))?),
        };
        // A node that is full is not waited for, and what waits in line holds no place yet.
        let board = &node.switchboard;
        let open = node.sockets.open();
        let full = || crowded(board.gate.come_back(open));
        if open >= node.config.chat.sockets_max {
            return Err(full());
        }
        board.gate.pass(open).await.map_err(crowded)?;
        let permit = node.sockets.admit().ok_or_else(full)?;
        let party = Party { side, id: principal.id.clone(), shop };
        let conn_id = ConnId::parse(&format!("{:032x}", rand::random::<u128>())).map_err(|_| Failure::Internal)?;
        let seat = board.hub.join(&party, principal.token_id.clone()).await;
        // Revoked while it waited: the word of it went to those who sat here.
        if node.verifier.revokes(&principal) {
            return Err(Failure::Unauthenticated);
        }
        let state = reception::arrive(node, &party, conn_id.as_str()).await?;
        let sessions = node.ports.chats.sessions(&party, SESSIONS_MAX).await?;
        let judge = Judge::new(node, head, principal.clone(), policies);
        let frame_key = (node.config.chat.guard.signature != Signature::Off).then(rand::random);
        let batch = field(query, "batch") == Some("1");
        let start = Start { party, principal, conn_id, sessions, resume, notices, device, frame_key, state, batch };
        Ok(Self { start, seat, permit, judge })
    }
}

fn crowded(ComeBack(after): ComeBack) -> Failure {
    Failure::Crowded(after)
}

/// `device` of the URL.
fn device(query: &str) -> Result<Option<DeviceId>, Failure> {
    let device = field(query, "device").map(DeviceId::parse).transpose();
    device.map_err(|error| Failure::BadRequest(error.to_string()))
}

fn field<'a>(query: &'a str, wanted: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

impl Opening {
    /// What will be spoken with the client.
    pub(crate) fn dialect(&self, speaks: Speaks, node: &Node) -> Dialect {
        match speaks {
            Speaks::Json => Dialect::Json,
            Speaks::Stomp => Dialect::Stomp(Box::new(stomp::begin(&self.start, node.config.chat.frame_bytes_max, clock::now()))),
        }
    }
}

/// `last_ack_seq` and `sessionId` of the URL.
#[derive(Debug, Default, PartialEq, Eq)]
struct Resume {
    messages: Option<(Option<SessionId>, u64)>,
    notices: Option<u64>,
}

fn resume(query: &str) -> Result<Resume, Failure> {
    let Some(seq) = field(query, "last_ack_seq") else {
        return Ok(Resume::default());
    };
    let seq = seq.parse::<u64>().ok().filter(|seq| *seq < frame::SEQ_END);
    let seq = seq.ok_or_else(|| Failure::BadRequest("last_ack_seq must be an integer from 0 to 2^53 - 1".into()))?;
    let session = match field(query, "sessionId") {
        None => None,
        Some(frame::NOTICES | "%40me") => return Ok(Resume { messages: None, notices: Some(seq) }),
        Some(text) => Some(SessionId::parse(text).map_err(|error| Failure::BadRequest(error.to_string()))?),
    };
    Ok(Resume { messages: Some((session, seq)), notices: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(query: &str) -> Option<(Option<SessionId>, u64)> {
        let Resume { messages, notices } = resume(query).unwrap();
        assert_eq!(notices, None, "{query}");
        messages
    }

    #[test]
    fn the_url_of_the_first_design_resumes() {
        assert_eq!(messages("token=x&last_ack_seq=42"), Some((None, 42)));
        assert_eq!(messages("last_ack_seq=0&sessionId=9001&device=web"), Some((Some(SessionId(9001)), 0)));
        assert_eq!(messages("token=x"), None);
    }

    #[test]
    fn notices_are_a_session_by_name() {
        for query in ["last_ack_seq=7&sessionId=@me", "sessionId=%40me&last_ack_seq=7"] {
            assert_eq!(resume(query).unwrap(), Resume { messages: None, notices: Some(7) }, "{query}");
        }
    }

    #[test]
    fn a_position_that_is_no_position_is_refused() {
        for query in ["last_ack_seq=-1", "last_ack_seq=1.5", "last_ack_seq=", "last_ack_seq=9007199254740992", "last_ack_seq=1&sessionId=x"]
        {
            assert!(matches!(resume(query), Err(Failure::BadRequest(_))), "{query}");
        }
    }
}
