//! Agents and their work, and why a session is with whom it is.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use gateway_core::chat::{HandoverRecord, assign};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use serde_json::{Value, json};

use crate::admin::{Answer, Refused, instants};
use crate::clock;
use crate::node::Node;
use crate::reception::Reception;

/// `GET /admin/shops/{shop}/agents`: who is registered, who of them is there, what they have to do, and how many users wait.
pub(super) async fn agents(State(node): State<Arc<Node>>, Path(shop): Path<String>) -> Answer {
    let shop = ShopId::parse(&shop).map_err(|_| Refused::missing("there is no such shop"))?;
    let reception = Reception::of(&node);
    let staff = reception.staff(shop, clock::now()).await?;
    let agents: Vec<Value> = staff
        .everybody()
        .map(|(load, there)| {
            json!({
                "agent": load.agent.as_str(), "there": there, "state": load.state.as_str(), "unread": load.unread,
                "openSessions": load.open_sessions, "openMax": assign::room(load, reception.open_max),
            })
        })
        .collect();
    let waiting = node.ports.chats.waiting_count(shop).await?;
    Ok((StatusCode::OK, axum::Json(json!({ "shop": shop.to_string(), "waiting": waiting, "agents": agents }))))
}

/// `GET /admin/sessions/{id}/handovers`: how a session has changed hands, oldest first.
pub(super) async fn handovers(State(node): State<Arc<Node>>, Path(id): Path<String>) -> Answer {
    let unknown = || Refused::missing("there is no such session");
    let session = SessionId::parse(&id).map_err(|_| unknown())?;
    if node.ports.chats.tops(&[session]).await?.is_empty() {
        return Err(unknown());
    }
    let handovers: Vec<Value> = node.ports.chats.handovers(session).await?.iter().map(describe).collect();
    Ok((StatusCode::OK, axum::Json(json!({ "sessionId": session.to_string(), "handovers": handovers }))))
}

fn describe(handover: &HandoverRecord) -> Value {
    let HandoverRecord { from, to, reason, detail, at } = handover;
    json!({
        "from": from.as_ref().map(PrincipalId::as_str), "to": to.as_ref().map(PrincipalId::as_str), "reason": reason.as_str(),
        "detail": detail, "at": instants::write(*at),
    })
}
