//! Orders: one by its number, and payments that the shop tells by HTTP.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use gateway_core::id::{OrderNo, PayNo};
use gateway_core::sale::{OrderRecord, OrderState, PayOutcome};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::{Answer, Refused, instants};
use crate::clock;
use crate::node::Node;
use crate::sale::desk::Desk;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Paid {
    pay_no: String,
}

/// `GET /admin/orders/{orderNo}`.
pub(super) async fn show(State(node): State<Arc<Node>>, Path(order_no): Path<String>) -> Answer {
    let order = node.ports.sales.order(&number(&order_no)?).await?.ok_or_else(unknown)?;
    Ok((StatusCode::OK, axum::Json(describe(&order))))
}

/// `POST /admin/orders/{orderNo}/paid`: the money is there. Telling it again changes nothing and is answered alike.
pub(super) async fn paid(State(node): State<Arc<Node>>, Path(order_no): Path<String>, bytes: Bytes) -> Answer {
    let Paid { pay_no } = serde_json::from_slice(&bytes).map_err(|error| Refused::bad(error.to_string()))?;
    let pay_no = PayNo::parse(&pay_no).map_err(|_| Refused::bad("payNo is 1 to 64 printable ASCII characters without space"))?;
    let order_no = number(&order_no)?;
    let outcome = Desk::of(&node).pay(&order_no, &pay_no, clock::now()).await?;
    tracing::info!(target: "audit", %order_no, %pay_no, outcome = outcome.as_str(), "a payment was told");
    match outcome {
        PayOutcome::Paid | PayOutcome::Revived | PayOutcome::Refunded => {
            let answer = json!({ "orderNo": order_no.as_str(), "payNo": pay_no.as_str(), "outcome": outcome.as_str() });
            Ok((StatusCode::OK, axum::Json(answer)))
        }
        PayOutcome::Conflict => Err(Refused::new(StatusCode::CONFLICT, "PAY_NO_USED", "this payment has paid another order")),
        PayOutcome::NotFound => Err(unknown()),
    }
}

fn number(text: &str) -> Result<OrderNo, Refused> {
    OrderNo::parse(text).map_err(|_| unknown())
}

fn unknown() -> Refused {
    Refused::missing("there is no such order")
}

fn describe(order: &OrderRecord) -> Value {
    json!({
        "orderNo": order.order_no.as_str(), "user": order.user.as_str(), "activityId": order.lot.activity.to_string(),
        "skuId": order.lot.sku.to_string(), "qty": order.qty, "state": state(order.state), "generation": order.generation,
        "revision": order.revision, "expiresAt": instants::write(order.expires), "payNo": order.pay_no.as_ref().map(PayNo::as_str),
    })
}

fn state(state: OrderState) -> &'static str {
    match state {
        OrderState::Unpaid => "unpaid",
        OrderState::Paid => "paid",
        OrderState::Closed => "closed",
    }
}
