//! Payments that the shop tells by the bus: subject `order.paid`, `{"orderNo","payNo"}`.
//!
//! Each message goes to one worker, which answers with the outcome where somebody waits for it. A message may be lost before
//! it is seen, and its answer after; telling a payment twice changes nothing, so whoever hears no answer tells it again.

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::id::{OrderNo, PayNo};
use gateway_core::ports::Request;
use gateway_core::sale::PayOutcome;
use gateway_core::time::UnixMillis;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::sale::desk::Desk;
use crate::worker::{Pause, fail};

/// The subject.
const SUBJECT: &str = "order.paid";

/// Those who share its messages.
const GROUP: &str = "workers";

/// Payments under way at once.
const ABREAST: usize = 16;

/// Further tries at a payment that nobody waits for, while the ledger is away; with their pauses about ten seconds.
const TRIES_MAX: usize = 8;

/// The answer's code when the ledger is away.
const UNAVAILABLE: &str = "UNAVAILABLE";

/// Most bytes of a message: two numbers of at most 64 characters.
const BYTES_MAX: usize = 1_024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Paid {
    order_no: String,
    pay_no: String,
}

pub(super) async fn run(node: Arc<Node>) {
    let mut pause = Pause::new();
    let mut paying = JoinSet::new();
    while !node.drain.started() {
        let mut requests = match node.ports.bus.serve(SUBJECT, GROUP).await {
            Ok(requests) => requests,
            Err(error) => {
                fail(&node, &mut pause, "cannot listen to payments now", &error).await;
                continue;
            }
        };
        loop {
            let request = tokio::select! {
                // Cancel safe, as the port says.
                request = requests.next() => request,
                () = node.drain.wait() => None,
            };
            let Some(request) = request else {
                // The bus is gone; or draining has begun, and this does not wait.
                pause.wait(&node).await;
                break;
            };
            while paying.len() >= ABREAST && paying.join_next().await.is_some() {}
            pause.reset();
            let node = node.clone();
            paying.spawn(async move { answer(&node, request).await });
        }
    }
    while paying.join_next().await.is_some() {}
}

async fn answer(node: &Node, Request { payload, reply }: Request) {
    let desk = Desk::of(node);
    let mut answer = pay(&desk, &payload, clock::now()).await;
    let mut pause = Pause::new();
    // Whoever does not wait for an answer does not tell it again either.
    for _ in 0..TRIES_MAX {
        if reply.is_some() || answer["code"] != UNAVAILABLE || node.drain.started() {
            break;
        }
        pause.wait(node).await;
        answer = pay(&desk, &payload, clock::now()).await;
    }
    let Some(reply) = reply else { return };
    let text = Bytes::from(answer.to_string());
    if let Err(error) = node.ports.bus.publish(&reply, text).await {
        tracing::debug!(error = health::chain(&error), "cannot answer a payment now; it will be told again");
    }
}

/// Books a payment and says what became of it.
pub(super) async fn pay(desk: &Desk, payload: &[u8], now: UnixMillis) -> Value {
    let bad = |message: &str| json!({ "code": "BAD_REQUEST", "message": message });
    if payload.len() > BYTES_MAX {
        return bad("the message is too long");
    }
    let Ok(Paid { order_no, pay_no }) = serde_json::from_slice(payload) else {
        return bad("an object with orderNo and payNo is wanted");
    };
    let Ok(pay_no) = PayNo::parse(&pay_no) else { return bad("payNo is 1 to 64 printable ASCII characters without space") };
    // What is no number of ours is the number of no order.
    let outcome = match OrderNo::parse(&order_no) {
        Ok(order_no) => desk.pay(&order_no, &pay_no, now).await,
        Err(_) => Ok(PayOutcome::NotFound),
    };
    match outcome {
        Ok(outcome) => json!({ "orderNo": order_no, "payNo": pay_no.as_str(), "outcome": outcome.as_str() }),
        Err(error) => {
            desk.failed(&error);
            tracing::warn!(order_no, error = health::chain(&error), "a payment could not be booked");
            json!({ "code": UNAVAILABLE, "message": "the payment was not booked; tell it again" })
        }
    }
}
