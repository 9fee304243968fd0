//! The cluster as its nodes see it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::admin::{Answer, instants};
use crate::clock;
use crate::node::Node;
use crate::rollouts::report::{is_gone, summary};

/// `GET /admin/nodes`: what each node runs, and how many run what.
pub(super) async fn list(State(node): State<Arc<Node>>) -> Answer {
    let now = clock::now();
    // Without the registry a node still knows itself.
    let (reports, trouble) = match node.rollouts.reports().await {
        Ok(reports) => (reports, None),
        Err(error) => (vec![node.rollouts.own_report()], Some(error.to_string())),
    };
    let nodes: Vec<Value> = reports
        .iter()
        .map(|report| {
            json!({
                "name": report.name,
                "seen": instants::write(report.seen),
                "gone": is_gone(report.seen, now),
                "here": report.name == node.name,
                "plugins": report.plugins,
                "lists": report.lists,
            })
        })
        .collect();
    Ok((StatusCode::OK, axum::Json(json!({ "nodes": nodes, "summary": summary(&reports, now), "registry": registry(&node, trouble) }))))
}

/// How this node and the registry are.
pub(super) fn registry(node: &Node, trouble: Option<String>) -> Value {
    match node.rollouts.trouble().or(trouble) {
        None => json!({ "ok": true }),
        Some(error) => json!({ "ok": false, "error": error }),
    }
}
