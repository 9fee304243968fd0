//! A message whose queue is away goes straight to the ledger, by the transaction that the chat worker would have made.
//!
//! Why that keeps the sender's order: the connection says of each message whether an earlier one of its session still waits for
//! its acceptance, and one that does is not taken here; the client sends it again behind the others. What the queue still holds
//! of them is found to be stored when it comes.
//! What never happens here: waiting for the bus. Whoever is on another node finds the message when positions are compared.

use std::sync::Arc;

use gateway_core::chat::event::{Event, Heard, fan_out};
use gateway_core::chat::{Committed, Send as ChatSend};
use gateway_core::ports::PortResult;

use crate::clock;
use crate::node::Node;
use crate::socket::reads::{note, roaming};
use crate::socket::seals;

/// Stores `send` and tells this node's sockets; returns what the sender is to hear.
pub(crate) async fn commit(node: &Arc<Node>, send: &ChatSend) -> PortResult<Option<Event>> {
    let began = clock::now();
    let tops = roaming(node, node.ports.roaming.tops(&[send.session])).await.unwrap_or_default();
    let announced: Vec<_> = tops.into_iter().flatten().map(|top| (send.session, top)).collect();
    let outcomes = node.ports.chats.commit(None, std::slice::from_ref(send), &announced, clock::now()).await?;
    let Some(outcome) = outcomes.first() else { return Ok(None) };
    if let Committed::Stored { message, dup: false, .. } = outcome {
        node.metrics.chat_accepted.inc();
        node.metrics.chat_direct.inc();
        node.metrics.chat_accept_seconds.with_label_values::<&str>(&[]).observe(clock::now().since(began).as_secs_f64());
        let _ = roaming(node, node.ports.roaming.append(std::slice::from_ref(message))).await;
    }
    if let Committed::Stored { stopped: Some((clock, shows)), .. } = outcome {
        node.metrics.chat_response_seconds.with_label_values(&[clock.as_str()]).observe(shows.as_secs_f64());
    }
    let (mut own, own_subject) = (None, send.sender.subject());
    for (subject, event) in fan_out(send, outcome) {
        let payload = event.encode();
        let heard = Arc::new(Heard::new(seals::open_event(&*node.ports.vault, event)));
        node.switchboard.hub.tell(&subject, &heard);
        if subject == own_subject {
            own = Some(heard.event.clone());
        }
        // The rest of the bus may work while the queue does not. Sockets of this node drop what they have.
        let node = node.clone();
        tokio::spawn(async move {
            if let Err(error) = node.ports.bus.publish(&subject, payload).await {
                note(&node, &error);
            }
        });
    }
    Ok(own)
}
