//! The operators' listener: health, metrics, sales, orders, compensations, people, plugins, decisions.
//!
//! Thin: parse, call a port, shape the answer. `/healthz`, `/readyz` and `/metrics` need no token; everything else needs
//! `Authorization: Bearer <admin.token>`.

mod activities;
mod body;
mod compensations;
pub(crate) mod instants;
mod lists;
mod nodes;
mod orders;
mod people;
mod plugins;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gateway_core::ports::PortError;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;

use crate::health;
use crate::node::Node;

/// Largest body of the paths that do not say otherwise: an activity with a thousand products.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest name of an operator.
const OPERATOR_CHARS_MAX: usize = 64;
/// Longest time an admin call may take; a large bundle travels to the registry in pieces.
const CALL_MAX: Duration = Duration::from_secs(60);

/// A refused or failed admin call.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refused {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BAD_REQUEST", message)
    }

    fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
    }
}

impl From<PortError> for Refused {
    fn from(error: PortError) -> Self {
        tracing::warn!(error = health::chain(&error), "admin call failed");
        // Operators may see what is away; clients of the edge may not.
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", error.to_string())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, axum::Json(json!({ "code": self.code, "message": self.message }))).into_response()
    }
}

type Answer = Result<(StatusCode, axum::Json<Value>), Refused>;

/// Serves until its task is ended; health and metrics stay visible while the rest of the process drains.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, router(node)).await
}

fn router(node: Arc<Node>) -> Router {
    let guarded = Router::new()
        .route("/admin/skus", post(activities::put_sku))
        .route("/admin/activities", get(activities::list).post(activities::create))
        .route("/admin/activities/{id}", get(activities::show))
        .route("/admin/activities/{id}/publish", post(activities::publish))
        .route("/admin/activities/{id}/preheat", post(activities::preheat))
        .route("/admin/activities/{id}/close", post(activities::close))
        .route("/admin/activities/{id}/void", post(activities::void))
        .route("/admin/activities/{id}/reconcile", post(activities::reconcile))
        .route("/admin/orders/{order_no}", get(orders::show))
        .route("/admin/orders/{order_no}/paid", post(orders::paid))
        .route("/admin/compensations", get(compensations::list))
        .route("/admin/compensations/{id}/retry", post(compensations::retry))
        .route("/admin/compensations/{id}/discard", post(compensations::discard))
        .route("/admin/shops/{shop}/agents", get(people::agents))
        .route("/admin/sessions/{id}/handovers", get(people::handovers))
        .route("/admin/plugins", get(plugins::list).post(plugins::push))
        .route("/admin/plugins/{name}/component", get(plugins::component))
        .route("/admin/plugins/{name}/rollout", post(plugins::rollout))
        .route("/admin/plugins/{name}/promote", post(plugins::promote))
        .route("/admin/plugins/{name}/rollback", post(plugins::roll_back))
        .route("/admin/nodes", get(nodes::list))
        .route("/admin/lists", get(lists::list))
        .route("/admin/lists/{name}", get(lists::show).put(lists::replace))
        .route("/admin/decisions/{trace_id}", get(decision))
        .layer(middleware::from_fn_with_state(node.clone(), authenticate));
    Router::new()
        .route("/healthz", get(|| async { axum::Json(json!({ "alive": true })) }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .merge(guarded)
        .fallback(|| async { Refused::missing("there is no such admin path; docs/ARCHITECTURE.md lists them") })
        .method_not_allowed_fallback(|| async {
            Refused::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "this path does not take that method")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(bounded))
        .with_state(node)
}

/// Who takes a step, as the history of a rollout will have it.
fn operator(by: Option<String>) -> Result<String, Refused> {
    let by = by.filter(|by| !by.is_empty()).unwrap_or_else(|| "admin".to_owned());
    // Only a node says of itself that it is one.
    let fits = by.chars().count() <= OPERATOR_CHARS_MAX && !by.contains(char::is_control) && !by.starts_with("node ");
    if fits { Ok(by) } else { Err(Refused::bad("by is a name of at most 64 characters on one line")) }
}

async fn bounded(request: Request, next: Next) -> Response {
    match tokio::time::timeout(CALL_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Refused::new(StatusCode::SERVICE_UNAVAILABLE, "TIMEOUT", "the call took too long").into_response(),
    }
}

async fn authenticate(State(node): State<Arc<Node>>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    // Compared in constant time; the length of the token is no secret.
    let wanted = node.config.admin.token.expose().as_bytes();
    match given {
        Some(given) if bool::from(given.as_bytes().ct_eq(wanted)) => next.run(request).await,
        Some(_) | None => Refused::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", "the admin token is required").into_response(),
    }
}

async fn ready(State(node): State<Arc<Node>>) -> Response {
    let (ready, report) = node.health.report(&node);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(report)).into_response()
}

async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let policies = node.policies.status();
    let live = policies.iter().map(|policy| policy.generations_live).sum::<usize>();
    node.metrics.policy_generations_live.set(i64::try_from(live).unwrap_or(i64::MAX));
    let text = node.metrics.render();
    node.metrics.forget_versions(&policies);
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", error.to_string()).into_response(),
    }
}

async fn decision(State(node): State<Arc<Node>>, Path(trace_id): Path<String>) -> Answer {
    match node.decisions.find(&trace_id) {
        Some(record) => Ok((StatusCode::OK, axum::Json(record))),
        None => Err(Refused::missing("this node has no decision record of that trace id")),
    }
}
