//! The flash sale's two client paths: trying to buy, and asking what became of it.

use std::sync::Arc;

use gateway_core::id::{Lot, OrderNo, PrincipalId};
use gateway_core::ports::PortError;
use gateway_core::sale::order_no::order_no;
use gateway_core::sale::purchase::Purchase;
use gateway_core::sale::{Admit, OrderResult, OrderState, SaleAttempt};

use crate::node::Node;
use crate::routes::outcome::{Failure, Outcome};
use crate::sale::batcher::BatchError;

/// An order number of a first purchase; buying again after a release would be the next generation.
const FIRST_GENERATION: u16 = 0;

/// Tries to buy. Everything about the request was checked before: identity, body, policies, budgets.
pub(crate) async fn buy(node: &Node, user: &PrincipalId, purchase: &Purchase) -> Result<Outcome, Failure> {
    let lot = Lot { activity: purchase.activity, sku: purchase.sku };
    if node.catalog.find(lot).await?.is_none() {
        return Err(Failure::UnknownItem);
    }
    let order_no = order_no(&node.order_key, lot, user, FIRST_GENERATION);
    let attempt = SaleAttempt { user: user.clone(), qty: purchase.qty, order_no: order_no.clone() };
    let admit = match node.batcher.admit(lot, attempt).await {
        Ok(admit) => admit,
        Err(BatchError::Full) => return Err(Failure::Overloaded),
        Err(BatchError::Port(error)) => return Err(shared(node, &error)),
    };
    node.metrics.admit.with_label_values(&[word(&admit)]).inc();
    match admit {
        Admit::Admitted => Ok(Outcome::Queued { order_no, replayed: false }),
        Admit::Replayed(reservation) => Ok(Outcome::Queued { order_no: reservation.order_no, replayed: true }),
        Admit::NotStarted => Err(Failure::NotStarted),
        Admit::Ended => Err(Failure::Ended),
        Admit::NotReady => Err(Failure::NotReady),
        Admit::LimitExceeded => Err(Failure::LimitExceeded),
        Admit::SoldOut { left } => Err(Failure::SoldOut { left }),
    }
}

/// The answer to somebody whom a budget refused, if that user holds this lot already: asking again is no new attempt.
pub(crate) async fn held(node: &Node, user: &PrincipalId, purchase: &Purchase) -> Option<Outcome> {
    let lot = Lot { activity: purchase.activity, sku: purchase.sku };
    node.catalog.all().get(&lot)?;
    let reservation = node.ports.admission.reservation(lot, user).await.ok()??;
    Some(Outcome::Queued { order_no: reservation.order_no, replayed: true })
}

/// What became of an order number. Another user's number is answered like one that does not exist.
pub(crate) async fn result(node: &Node, user: &PrincipalId, text: &str) -> Result<Outcome, Failure> {
    let order_no = OrderNo::parse(text).map_err(|_| Failure::NotFound)?;
    // The cache of results comes first; it may be away while the ledger still knows.
    let cached = node.ports.admission.result(&order_no).await;
    if let Ok(Some(result)) = &cached {
        return final_result(user, &order_no, result);
    }
    let written = node.ports.sales.order(&order_no).await;
    if let Ok(Some(order)) = &written {
        if order.user != *user {
            return Err(Failure::NotFound);
        }
        return Ok(match order.state {
            OrderState::Unpaid | OrderState::Paid => outcome(&order_no, "success", "抢购成功"),
            OrderState::Closed => outcome(&order_no, "fail", "订单已关闭"),
        });
    }
    cached?;
    // No result and no row: the number is either on its way, was lost with the admission store, or was never given out.
    // It is a function of lot and user, so whose it is needs no look-up.
    let Some(lot) = owned_lot(node, user, &order_no).await? else {
        return Err(Failure::NotFound);
    };
    let reserved = node.ports.admission.reservation(lot, user).await?;
    if reserved.is_some_and(|reservation| reservation.order_no == order_no) {
        // Also while the ledger is away: that is what the order waits for.
        return Ok(outcome(&order_no, "pending", "排队中"));
    }
    written?;
    Ok(outcome(&order_no, "fail", "未抢到，请重试"))
}

async fn owned_lot(node: &Node, user: &PrincipalId, number: &OrderNo) -> Result<Option<Lot>, Failure> {
    let find = || node.catalog.all().keys().find(|lot| order_no(&node.order_key, **lot, user, FIRST_GENERATION) == *number).copied();
    if let Some(lot) = find() {
        return Ok(Some(lot));
    }
    node.catalog.refresh_on_miss().await?;
    Ok(find())
}

fn final_result(user: &PrincipalId, order_no: &OrderNo, result: &OrderResult) -> Result<Outcome, Failure> {
    if result.user() != user {
        return Err(Failure::NotFound);
    }
    Ok(match result {
        OrderResult::Success { .. } => outcome(order_no, "success", "抢购成功"),
        OrderResult::Fail { message, .. } => outcome(order_no, "fail", message),
    })
}

fn outcome(order_no: &OrderNo, status: &'static str, message: &str) -> Outcome {
    Outcome::OrderResult { order_no: order_no.clone(), status, message: message.to_owned() }
}

fn word(admit: &Admit) -> &'static str {
    match admit {
        Admit::Admitted => "admitted",
        Admit::Replayed(_) => "replayed",
        Admit::NotStarted => "not_started",
        Admit::Ended => "ended",
        Admit::NotReady => "not_ready",
        Admit::LimitExceeded => "limit_exceeded",
        Admit::SoldOut { .. } => "sold_out",
    }
}

/// One failed call answers every attempt of its batch; the error itself is logged where the batch is.
fn shared(node: &Node, error: &Arc<PortError>) -> Failure {
    node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
    Failure::Unavailable(PortError { kind: error.kind, store: error.store, doing: error.doing, source: None })
}
