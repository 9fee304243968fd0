//! What must be there before a chat handshake is answered: a place, a subscription, and the party's sessions.
//!
//! The subscription comes first, so that nothing falls between it and the reading of the sessions. A store that is away
//! refuses the handshake with 503; the client comes back.

use std::sync::Arc;

use gateway_core::chat::connection::{ConnId, Start};
use gateway_core::chat::{Party, Side, frame};
use gateway_core::id::SessionId;
use gateway_core::ports::{PolicySet, Subscription};
use gateway_core::principal::Principal;
use gateway_core::request::RequestHead;
use tokio::sync::OwnedSemaphorePermit;

use crate::health;
use crate::node::Node;
use crate::routes::outcome::Failure;
use crate::socket::message::Judge;
use crate::socket::{assignment, presence};

/// Sessions told in `hello`; a user has a handful, a busy agent some hundreds.
pub(super) const SESSIONS_MAX: u32 = 1_000;

/// Everything a socket starts from.
pub(crate) struct Opening {
    pub(super) start: Start,
    pub(super) subscription: Box<dyn Subscription>,
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
        let Resume { messages: resume, notices } = resume(head.query.as_deref().unwrap_or_default())?;
        let shop = match side {
            Side::User => None,
            Side::Agent => Some(principal.shop.ok_or(Failure::Forbidden("an agent's token names its shop"))?),
        };
        let permit = node.sockets.admit().ok_or(Failure::Overloaded)?;
        let party = Party { side, id: principal.id.clone(), shop };
        let conn_id = ConnId::parse(&format!("{:032x}", rand::random::<u128>())).map_err(|_| Failure::Internal)?;
        let subscription = node.ports.bus.subscribe(&party.subject()).await?;
        let mut came = false;
        if let Some(shop) = shop {
            node.ports.chats.upsert_agent(shop, &party.id).await?;
            // Who is online is a hint: without it the agent still serves the sessions it has.
            match presence::arrive(node, &party, conn_id.as_str()).await {
                Ok(first) => {
                    came = first;
                    assignment::serve_waiting(node, shop).await;
                }
                Err(error) => tracing::debug!(error = health::chain(&error), "cannot tell that an agent is online"),
            }
        }
        let sessions = node.ports.chats.sessions(&party, SESSIONS_MAX).await?;
        if came {
            presence::tell(node, &party, &sessions, true).await;
        }
        let judge = Judge::new(node, head, principal.clone(), policies);
        Ok(Self { start: Start { party, principal, conn_id, sessions, resume, notices }, subscription, permit, judge })
    }
}

/// `last_ack_seq` and `sessionId` of the URL.
#[derive(Debug, Default, PartialEq, Eq)]
struct Resume {
    messages: Option<(Option<SessionId>, u64)>,
    notices: Option<u64>,
}

fn resume(query: &str) -> Result<Resume, Failure> {
    let field = |wanted: &str| query.split('&').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == wanted).map(|(_, v)| v);
    let Some(seq) = field("last_ack_seq") else {
        return Ok(Resume::default());
    };
    let seq = seq.parse::<u64>().ok().filter(|seq| *seq < frame::SEQ_END);
    let seq = seq.ok_or_else(|| Failure::BadRequest("last_ack_seq must be an integer from 0 to 2^53 - 1".into()))?;
    let session = match field("sessionId") {
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
