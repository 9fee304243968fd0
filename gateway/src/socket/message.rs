//! The message phase: policies judge a chat message before it is queued.

use std::time::Duration;

use gateway_core::chat::Send;
use gateway_core::chat::code::ErrorCode;
use gateway_core::chat::frame::ErrorFrame;
use gateway_core::id::ShopId;
use gateway_core::policy::chain::{self, ChainState, Subject};
use gateway_core::policy::{Facts, Message, Refusal};
use gateway_core::principal::Principal;

use crate::charging::{Uncharged, charge};
use crate::clock;
use crate::node::Node;

/// Policies bound to the socket's path see its messages, whichever path the socket came in by.
const PATH: &str = "/ws/chat";

/// Lets the policies judge `send`: the text to queue instead, if they replaced it, or the refusal for the sender.
pub(crate) async fn judge(node: &Node, principal: &Principal, shop: ShopId, send: &Send) -> Result<Option<String>, ErrorFrame> {
    let facts = Facts { now: clock::now(), principal: Some(principal.clone()), device: None, tags: Vec::new() };
    let message = Message { session: send.session, shop, kind: send.kind.clone(), content: send.content.clone() };
    let mut state = ChainState::new(facts);
    // The generations current now: a socket may live for days, and its next message follows the newest rule.
    let set = node.policies.current();
    let refused = chain::run(&*set, &node.bindings, Subject::Message { path: PATH, message: &message }, &mut state).await;
    if let Some(refusal) = refused {
        return Err(frame(refusal));
    }
    match charge(node, &state.charges).await {
        Ok(()) => Ok(state.replace),
        Err(Uncharged::Exhausted { refusal, .. }) => Err(frame(refusal)),
        Err(Uncharged::Away(_)) => Err(ErrorFrame::of(ErrorCode::NotDurable)),
    }
}

fn frame(refusal: Refusal) -> ErrorFrame {
    ErrorFrame {
        code: refusal.code.into(),
        message: refusal.message.into(),
        temporary: refusal.retry_after_ms.is_some(),
        retry_after: refusal.retry_after_ms.map(Duration::from_millis),
        ..ErrorFrame::of(ErrorCode::RateLimited)
    }
}
