//! Tells users that their agent came or went.
//!
//! A hint, told once: what is lost here is not repeated, and a killed node says nothing. Who is online now is known to the
//! presence port alone. Called when an agent's socket opens and when it has ended.

use std::collections::BTreeSet;

use gateway_core::chat::event::Event;
use gateway_core::chat::{Party, SessionRecord, Side};
use gateway_core::ports::PortError;

use crate::clock;
use crate::health;
use crate::node::Node;

/// Marks a connection of `agent` alive; says whether it is the only one.
pub(super) async fn arrive(node: &Node, agent: &Party, connection: &str) -> Result<bool, PortError> {
    let known = is_online(node, agent).await?;
    node.ports.presence.beat(agent, connection, clock::now().plus(node.config.chat.presence_ttl)).await?;
    Ok(!known)
}

/// Takes a connection of `who` away and tells an agent's users when it was the last one. `sessions_max` bounds how many.
pub(super) async fn leave(node: &Node, who: &Party, connection: &str, sessions_max: u32) -> Result<(), PortError> {
    node.ports.presence.leave(who, connection).await?;
    if who.side == Side::Agent && !is_online(node, who).await? {
        let sessions = node.ports.chats.sessions(who, sessions_max).await?;
        tell(node, who, &sessions, false).await;
    }
    Ok(())
}

/// Tells the users of `sessions`, each once.
pub(super) async fn tell(node: &Node, agent: &Party, sessions: &[SessionRecord], online: bool) {
    let payload = Event::Presence { side: agent.side, id: agent.id.clone(), online }.encode();
    let users: BTreeSet<_> = sessions.iter().map(|session| &session.user).collect();
    for user in users {
        let party = Party { side: Side::User, id: user.clone(), shop: None };
        if let Err(error) = node.ports.bus.publish(&party.subject(), payload.clone()).await {
            tracing::debug!(error = health::chain(&error), "cannot tell that an agent came or went");
        }
    }
}

async fn is_online(node: &Node, who: &Party) -> Result<bool, PortError> {
    Ok(node.ports.presence.online(std::slice::from_ref(who), clock::now()).await?.first() == Some(&true))
}
