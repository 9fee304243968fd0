//! The chat over plain HTTP, for clients that cannot open a WebSocket: the same sessions, numbers, ids and rules.
//!
//! `lists` reads, `errand` carries one frame out, `events` is the stream of frames, `positions` what its event ids say. What
//! never happens here: a rule of the chat (core), choosing a status (`edge/respond.rs`). Called by the edge.

pub(crate) mod errand;
pub(crate) mod events;
pub(crate) mod lists;
mod positions;

use std::sync::Arc;

use gateway_core::chat::{Party, Side};
use gateway_core::ports::PolicySet;
use gateway_core::principal::Principal;
use gateway_core::request::RequestHead;

use crate::node::Node;
use crate::routes::chat::Question;
use crate::routes::outcome::{Failure, Outcome};

/// Who asks, by which request.
pub(crate) struct Caller<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The request.
    pub head: &'a RequestHead,
    /// Whom the policies proved.
    pub principal: Principal,
    /// The generations that judged the request.
    pub policies: &'a Arc<dyn PolicySet>,
}

/// Answers every question but [`Question::Events`].
pub(crate) async fn answer(caller: Caller<'_>, question: Question, body: &[u8]) -> Result<Outcome, Failure> {
    let party = party(&caller.principal)?;
    let node = caller.node;
    match question {
        Question::Sessions => lists::sessions(node, &party).await,
        Question::Messages => lists::messages(node, &party, caller.head.query.as_deref().unwrap_or_default()).await,
        Question::Waiting => lists::waiting(node, &party).await,
        Question::Agents => lists::agents(node, &party).await,
        Question::Open | Question::Send | Question::Read | Question::Frame => {
            let frame = errand::frame(question, body, node.config.chat.frame_bytes_max)?;
            errand::run(caller, party, frame).await
        }
        Question::Events => Err(Failure::Internal),
    }
}

/// Who takes part in chats as `principal`.
pub(crate) fn party(principal: &Principal) -> Result<Party, Failure> {
    match Side::of(principal.role).ok_or(Failure::Forbidden("only users and agents chat"))? {
        Side::User => Ok(Party::user(principal.id.clone())),
        Side::Agent => {
            let shop = principal.shop.ok_or(Failure::Forbidden("an agent's token names its shop"))?;
            Ok(Party::agent(shop, principal.id.clone()))
        }
    }
}

/// The value of a field of a query, as it stands there.
fn field<'a>(query: &'a str, wanted: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == wanted).map(|(_, value)| value)
}
