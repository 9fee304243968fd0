//! Gives sessions that nobody serves to agents who are online. The choice is core's; the ledger's compare-and-set settles
//! races between nodes.

use gateway_core::chat::assign::{REASON_LEAST_UNREAD, choose};
use gateway_core::chat::event::Event;
use gateway_core::chat::{Party, SessionRecord, Side};
use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::ports::PortError;

use crate::clock;
use crate::health;
use crate::node::Node;

/// Assigns every waiting session of a shop while somebody is there to serve it.
pub(crate) async fn serve_waiting(node: &Node, shop: ShopId) {
    let served = async {
        for session in node.ports.chats.waiting(shop).await? {
            if serve(node, session).await?.agent.is_none() {
                break;
            }
        }
        Ok::<_, PortError>(())
    };
    if let Err(error) = served.await {
        tracing::debug!(error = health::chain(&error), %shop, "cannot assign waiting sessions now");
    }
}

/// Assigns one session if it waits and somebody is online; returns it as it is afterwards.
pub(crate) async fn serve(node: &Node, mut session: SessionRecord) -> Result<SessionRecord, PortError> {
    if session.agent.is_some() {
        return Ok(session);
    }
    let loads = node.ports.chats.agents(session.shop).await?;
    let parties: Vec<Party> = loads.iter().map(|load| agent(&load.agent, session.shop)).collect();
    let online = node.ports.presence.online(&parties, clock::now()).await?;
    let Some(chosen) = choose(&loads, &online) else {
        return Ok(session);
    };
    if node.ports.chats.assign(session.id, &chosen.agent).await? {
        session.agent = Some(chosen.agent.clone());
        tracing::info!(session = %session.id, agent = %chosen.agent, unread = chosen.unread, reason = REASON_LEAST_UNREAD, "session assigned");
        let event = Event::Assigned { session: session.clone(), reason: REASON_LEAST_UNREAD.into() };
        let user = Party { side: Side::User, id: session.user.clone(), shop: None };
        for party in [agent(&chosen.agent, session.shop), user] {
            if let Err(error) = node.ports.bus.publish(&party.subject(), event.encode()).await {
                tracing::debug!(error = health::chain(&error), "cannot announce an assignment now");
            }
        }
    }
    Ok(session)
}

fn agent(id: &PrincipalId, shop: ShopId) -> Party {
    Party { side: Side::Agent, id: id.clone(), shop: Some(shop) }
}
