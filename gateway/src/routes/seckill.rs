//! The flash sale's client paths: trying to buy, asking what became of it, and taking it back.

use std::sync::Arc;

use gateway_core::id::{Lot, OrderNo, PrincipalId};
use gateway_core::ports::{PortError, PortResult};
use gateway_core::sale::purchase::Purchase;
use gateway_core::sale::soldout::Gate;
use gateway_core::sale::{Admit, CancelOutcome, Held, LotRecord, OrderRecord, OrderResult, OrderState, Shard, order_no};

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::routes::outcome::{Failure, Outcome};
use crate::sale::batcher::BatchError;
use crate::sale::desk::Desk;

/// Order numbers that are computed to find out whose one is, at about a microsecond each. With few lots that covers a
/// thousand repurchases of one user; with many, the first four.
const NUMBERS_MAX: usize = 2_048;
const GENERATIONS_MIN: usize = 4;

/// The refusal of an attempt that no service needs to be asked about: sold out, and the user holds nothing. Costs no call.
pub(crate) fn refused_here(node: &Node, user: &PrincipalId, purchase: &Purchase) -> Option<Failure> {
    let lots = node.catalog.all();
    let record = lots.get(&lot_of(purchase))?;
    if node.buying.flags.gate(record, user, clock::now()) == Gate::Ask {
        return None;
    }
    node.metrics.admit.with_label_values(&["sold_out_here"]).inc();
    Some(if purchase.qty > u32::from(record.per_user) { Failure::LimitExceeded } else { Failure::SoldOut { left: 0 } })
}

/// Tries to buy. Everything about the request was checked before: identity, body, policies, budgets.
pub(crate) async fn buy(node: &Node, user: &PrincipalId, purchase: &Purchase) -> Result<Outcome, Failure> {
    let record = node.catalog.find(lot_of(purchase)).await?.ok_or(Failure::UnknownItem)?;
    let (order_no, admit) = match node.buying.attempt(&record, user, purchase.qty).await {
        Ok(answer) => answer,
        Err(BatchError::Full) => return Err(Failure::Overloaded),
        Err(BatchError::Port(error)) => return Err(shared(node, &error)),
    };
    node.metrics.admit.with_label_values(&[word(&admit)]).inc();
    match admit {
        Admit::Admitted => Ok(Outcome::Queued { order_no, replayed: false }),
        Admit::Replayed(reservation) => Ok(Outcome::Queued { order_no: reservation.order_no, replayed: true }),
        Admit::NotStarted => Err(Failure::NotStarted),
        Admit::Ended => Err(Failure::Ended),
        // A second change of generation between two calls: the user buys and cancels elsewhere at the same time.
        Admit::NotReady | Admit::Again { .. } => Err(Failure::NotReady),
        Admit::LimitExceeded => Err(Failure::LimitExceeded),
        Admit::SoldOut { left, at: _ } => Err(Failure::SoldOut { left }),
    }
}

/// The answer to somebody whom a policy or a budget refused, if that user holds this lot already: asking again is no new
/// attempt.
pub(crate) async fn held(node: &Node, user: &PrincipalId, purchase: &Purchase) -> Option<Outcome> {
    let lots = node.catalog.all();
    let record = lots.get(&lot_of(purchase))?;
    let held = reservation(node, record, user).await;
    if let Ok(Some(order_no)) = held {
        return Some(Outcome::Queued { order_no, replayed: true });
    }
    // It may have been the attempt that was let through to see whether the lot is still sold out.
    node.buying.flags.not_asked(Shard::of(record.lot, user, record.shards));
    None
}

/// What became of an order number. Another user's number is answered like one that does not exist.
pub(crate) async fn result(node: &Node, user: &PrincipalId, text: &str) -> Result<Outcome, Failure> {
    let order_no = OrderNo::parse(text).map_err(|_| Failure::NotFound)?;
    // The cache of results comes first; it may be away while the ledger still knows. Whoever closes or revives an order
    // writes its result anew.
    let cached = node.ports.admission.result(&order_no).await;
    let failed = match &cached {
        Ok(Some(result)) if result.user() != user => return Err(Failure::NotFound),
        Ok(Some(OrderResult::Success { .. })) => return Ok(outcome(&order_no, "success", "抢购成功")),
        // Not the last word: whose attempt was lost gets the same number when it is admitted again.
        Ok(Some(OrderResult::Fail { message, .. })) => Some(message.as_str()),
        Ok(None) | Err(_) => None,
    };
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
    let failed = failed.map(str::to_owned);
    cached?;
    // No success and no row: the number is either on its way, was lost with the admission store, or was never given out.
    let Some(record) = owned_lot(node, user, &order_no).await? else {
        return Err(Failure::NotFound);
    };
    if reservation(node, &record, user).await?.is_some_and(|held| held == order_no) {
        // Also while the ledger is away: that is what the order waits for.
        return Ok(outcome(&order_no, "pending", "排队中"));
    }
    if failed.is_none() {
        written?;
    }
    Ok(outcome(&order_no, "fail", failed.as_deref().unwrap_or("未抢到，请重试")))
}

/// Closes the user's unpaid order.
pub(crate) async fn cancel(node: &Node, user: &PrincipalId, text: &str) -> Result<Outcome, Failure> {
    let order_no = OrderNo::parse(text).map_err(|_| Failure::NotFound)?;
    let before = node.ports.sales.order(&order_no).await?;
    match Desk::of(node).cancel(&order_no, user, clock::now()).await? {
        CancelOutcome::Cancelled => {
            // The ledger wrote a task for it in the same transaction: what fails here, a worker does, and done twice it is done once.
            if let Some(order) = before
                && let Err(error) = give_back(node, &order).await
            {
                tracing::debug!(error = health::chain(&error), "cannot give units back now; a worker does");
            }
            Ok(Outcome::Cancelled { order_no })
        }
        CancelOutcome::AlreadyClosed => Ok(Outcome::Cancelled { order_no }),
        CancelOutcome::Paid => Err(Failure::AlreadyPaid),
        CancelOutcome::NotFound => {
            let Some(record) = owned_lot(node, user, &order_no).await? else {
                return Err(Failure::NotFound);
            };
            let pending = reservation(node, &record, user).await?.is_some_and(|held| held == order_no);
            Err(if pending { Failure::StillPending } else { Failure::NotFound })
        }
    }
}

/// Gives the units of a cancelled order back with the answer, so that who buys again hears no more of it.
async fn give_back(node: &Node, order: &OrderRecord) -> PortResult<()> {
    if let Some(record) = node.catalog.find(order.lot).await? {
        let shard = Shard::of(order.lot, &order.user, record.shards);
        if let Some(at) = node.ports.admission.release(shard, &order.release()).await? {
            node.buying.flags.returned(shard, at).await;
        }
    }
    Ok(())
}

fn lot_of(purchase: &Purchase) -> Lot {
    Lot { activity: purchase.activity, sku: purchase.sku }
}

/// The number of the order that `user` holds units for.
async fn reservation(node: &Node, record: &LotRecord, user: &PrincipalId) -> PortResult<Option<OrderNo>> {
    let held = node.ports.admission.held(Shard::of(record.lot, user, record.shards), user).await?;
    Ok(held.as_ref().and_then(Held::reservation).map(|reservation| reservation.order_no.clone()))
}

/// The lot that this number of `user` is for. It is a function of lot, user and generation, so whose it is needs no look-up.
async fn owned_lot(node: &Node, user: &PrincipalId, number: &OrderNo) -> Result<Option<LotRecord>, Failure> {
    let find = || {
        let lots = node.catalog.all();
        let generations = (NUMBERS_MAX / lots.len().max(1)).max(GENERATIONS_MIN);
        let generations = 0..u16::try_from(generations).unwrap_or(u16::MAX);
        // Nearly every order is a first one.
        let mut numbers = generations.flat_map(|generation| lots.values().map(move |record| (generation, record)));
        let found = numbers.find(|(generation, record)| order_no(&node.order_key, record.lot, user, *generation) == *number);
        found.map(|(_, record)| record.clone())
    };
    if let Some(record) = find() {
        return Ok(Some(record));
    }
    node.catalog.refresh_on_miss().await?;
    Ok(find())
}

fn outcome(order_no: &OrderNo, status: &'static str, message: &str) -> Outcome {
    Outcome::OrderResult { order_no: order_no.clone(), status, message: message.to_owned() }
}

fn word(admit: &Admit) -> &'static str {
    match admit {
        Admit::Admitted => "admitted",
        Admit::Replayed(_) => "replayed",
        Admit::Again { .. } => "again",
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
