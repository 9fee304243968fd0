//! Plugins of this node: what is loaded, and loading another.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use gateway_core::policy::Digest;
use gateway_core::ports::{Artefact, PolicyStatus, Versions};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::{Answer, Refused};
use crate::node::Node;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    name: String,
}

pub(super) async fn list(State(node): State<Arc<Node>>) -> Answer {
    let policies: Vec<Value> = node.policies.status().into_iter().map(describe).collect();
    Ok((StatusCode::OK, axum::Json(json!({ "policies": policies }))))
}

/// `POST /admin/plugins?name=rate-limit` with the component as the body.
pub(super) async fn install(
    State(node): State<Arc<Node>>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
    component: Bytes,
) -> Answer {
    let Query(Which { name }) = which.map_err(|_| Refused::bad("name the policy: POST /admin/plugins?name=rate-limit"))?;
    if !node.policies.status().iter().any(|policy| policy.name == name) {
        return Err(Refused::missing(format!("no policy is called {name:?} in the configuration")));
    }
    let live = Some(Artefact { digest: Digest::of(&component), component });
    match node.policies.apply(&name, Versions { live, ..Versions::default() }).await {
        Ok(()) => {
            let status = node.policies.status().into_iter().find(|policy| policy.name == name);
            Ok((StatusCode::OK, axum::Json(status.map_or(Value::Null, describe))))
        }
        // Parsers of wasm draw pictures; an operator gets one line.
        Err(reason) => {
            let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, "BAD_PLUGIN", reason))
        }
    }
}

fn describe(policy: PolicyStatus) -> Value {
    json!({ "name": policy.name, "version": policy.version, "error": policy.error, "generationsLive": policy.generations_live })
}
