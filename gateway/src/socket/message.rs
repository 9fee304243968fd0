//! The message phase: policies judge a chat message before it is queued, and may have a bot answer it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::chat::code::ErrorCode;
use gateway_core::chat::frame::ErrorFrame;
use gateway_core::chat::{Fingerprint, Party, Send, Side as Of};
use gateway_core::config::SocketRule;
use gateway_core::id::{ClientMsgId, PrincipalId, ShopId};
use gateway_core::policy::chain::{self, ChainState, Subject};
use gateway_core::policy::{Call, Digest, Facts, Message, Phase, Refusal};
use gateway_core::ports::{Answer, Canary, PolicySet, Side};
use gateway_core::principal::Principal;
use gateway_core::request::RequestHead;

use crate::charging::{Uncharged, charge};
use crate::clock;
use crate::decisions::{MessageRecord, Verdicts};
use crate::node::Node;
use crate::witness::Witness;

/// Policies bound to the socket's path see its messages, whichever path the socket came in by.
const PATH: &str = "/ws/chat";

/// Who a bot's messages are from. The ledger takes it for a member of every shop.
pub(super) const BOT: &str = "bot";

/// Judges the messages of one socket.
pub(crate) struct Judge {
    principal: Principal,
    device: Option<String>,
    trace_id: String,
    pinned: Option<Pinned>,
}

/// The policies that judge every message of a socket as they judged its handshake.
#[derive(Clone)]
struct Pinned {
    names: Arc<[Arc<str>]>,
    /// As long as a socket has pinned policies, it keeps the generations of its handshake; without any it keeps none.
    set: Arc<dyn PolicySet>,
}

/// A message that may be queued.
#[derive(Debug)]
pub(crate) struct Passed {
    /// The text to queue instead.
    pub replace: Option<String>,
    /// What a bot answers.
    pub reply: Option<String>,
}

impl Judge {
    /// For the socket that `head` opens for `principal`; `policies` are the generations that judged the handshake.
    pub(crate) fn new(node: &Node, head: &RequestHead, principal: Principal, policies: &Arc<dyn PolicySet>) -> Self {
        let pins = node.bindings.iter().filter(|binding| binding.sockets == SocketRule::Pin && binding.covers(PATH));
        let names: Arc<[Arc<str>]> = pins.map(|binding| Arc::clone(&binding.policy)).collect();
        Self {
            principal,
            device: head.header("x-device-id").map(str::to_owned),
            trace_id: head.trace_id.clone(),
            pinned: (!names.is_empty()).then(|| Pinned { names, set: Arc::clone(policies) }),
        }
    }

    /// Lets the policies judge `send`: what to queue, or the refusal for the sender.
    pub(crate) async fn judge(&self, node: &Node, shop: ShopId, send: &Send) -> Result<Passed, ErrorFrame> {
        let facts = Facts { now: clock::now(), principal: Some(self.principal.clone()), device: self.device.clone(), tags: Vec::new() };
        let message = Message { session: send.session, shop, kind: send.kind.clone(), content: send.content.clone() };
        let mut state = ChainState::new(facts);
        let mut budgets = Vec::new();
        let judged = self.run(node, &message, &mut state, &mut budgets).await;
        node.metrics.count(&state.decisions);
        if !state.decisions.is_empty() {
            let refused = judged.as_ref().err().map(|frame| frame.code.to_string());
            let verdicts = Verdicts::take(&mut state, budgets);
            let record = MessageRecord { client_msg_id: send.client_msg_id.clone(), session: send.session, refused, verdicts };
            node.decisions.keep_message(&self.trace_id, record);
        }
        judged.map(|()| Passed { replace: state.replace, reply: state.reply })
    }

    async fn run(&self, node: &Node, message: &Message, state: &mut ChainState, budgets: &mut Vec<String>) -> Result<(), ErrorFrame> {
        // A socket may live for days, and its next message follows the newest rule where none is pinned.
        let live = node.policies.current();
        let routed = self.pinned.clone().map(|pinned| Routed { live: Arc::clone(&live), pinned });
        let set = routed.as_ref().map_or(&*live, |routed| routed as &dyn PolicySet);
        let witness = Witness::of(node, set, &self.trace_id);
        let set = witness.as_ref().map_or(set, |witness| witness as &dyn PolicySet);
        if let Some(refusal) = chain::run(set, &node.bindings, Subject::Message { path: PATH, message }, state).await {
            return Err(frame(refusal));
        }
        match charge(node, state, budgets, Duration::ZERO).await {
            Ok(()) => Ok(()),
            Err(Uncharged::Exhausted { refusal, .. }) => Err(frame(refusal)),
            Err(Uncharged::Away(_)) => Err(ErrorFrame::of(ErrorCode::NotDurable)),
        }
    }
}

/// The message with which a bot of `shop` answers `send`. Whoever sends a message again gets the same answer again, and the
/// ledger stores it once: its id is made of the message's.
pub(crate) fn answer(send: &Send, shop: ShopId, text: String) -> Option<Send> {
    // Only the shop has a bot, so nobody but a user is answered.
    if send.sender.side != Of::User {
        return None;
    }
    let name = format!("{} {} {}", send.session, send.sender.id.as_str(), send.client_msg_id.as_str());
    Some(Send {
        session: send.session,
        sender: Party { side: Of::Agent, id: PrincipalId::parse(BOT).ok()?, shop: Some(shop) },
        client_msg_id: ClientMsgId::parse(&format!("{BOT}-{}", &Digest::of(name.as_bytes()).as_str()[..32])).ok()?,
        fingerprint: Fingerprint::of("text", &text),
        kind: "text".to_owned(),
        content: text,
        origin: BOT.to_owned(),
        bot: true,
    })
}

/// Pinned policies answer as they did at the handshake, the others as they are now.
struct Routed {
    live: Arc<dyn PolicySet>,
    pinned: Pinned,
}

impl Routed {
    fn of(&self, policy: &str) -> &dyn PolicySet {
        if self.pinned.names.iter().any(|name| &**name == policy) { &*self.pinned.set } else { &*self.live }
    }
}

#[async_trait]
impl PolicySet for Routed {
    fn takes_part(&self, policy: &str, side: Side, phase: Phase) -> bool {
        self.of(policy).takes_part(policy, side, phase)
    }

    fn canary(&self, policy: &str) -> Option<Canary<'_>> {
        self.of(policy).canary(policy)
    }

    fn headers(&self, policy: &str, side: Side) -> &[String] {
        self.of(policy).headers(policy, side)
    }

    async fn call(&self, policy: &str, side: Side, call: Call<'_>) -> Answer {
        self.of(policy).call(policy, side, call).await
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

#[cfg(test)]
mod tests {
    use gateway_core::id::SessionId;

    use super::*;

    fn send(side: Of, client_msg_id: &str) -> Send {
        Send {
            session: SessionId(9),
            sender: Party { side, id: PrincipalId::parse("u1").unwrap(), shop: None },
            client_msg_id: ClientMsgId::parse(client_msg_id).unwrap(),
            kind: "text".into(),
            content: "?".into(),
            fingerprint: Fingerprint::of("text", "?"),
            origin: "c".into(),
            bot: false,
        }
    }

    #[test]
    fn a_bot_answers_a_message_once_however_often_it_is_sent() {
        let answered = |id: &str| answer(&send(Of::User, id), ShopId(7), "here".into()).unwrap();
        let first = answered("m1");
        assert_eq!(first, answered("m1"));
        assert_ne!(first.client_msg_id, answered("m2").client_msg_id);
        assert!(first.bot && first.sender.side == Of::Agent && first.sender.shop == Some(ShopId(7)));
        // The longest id a client may give.
        assert!(answer(&send(Of::User, &"m".repeat(64)), ShopId(7), "here".into()).is_some());
    }

    #[test]
    fn nobody_answers_an_agent_in_the_name_of_a_user() {
        assert_eq!(answer(&send(Of::Agent, "m1"), ShopId(7), "here".into()), None);
    }
}
