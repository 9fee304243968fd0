//! Order events to orders: claim, write in one transaction, announce, acknowledge.
//!
//! Every step may be repeated: a claim that was not acknowledged comes again, and the ledger answers a repeated event with
//! the outcome it had. One task per lot, so that a lot that is stuck does not hold up the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway_core::chat::event::Event;
use gateway_core::chat::{Party, Side};
use gateway_core::id::{Lot, OrderNo};
use gateway_core::ports::PortError;
use gateway_core::sale::{ClaimedEvent, OrderEvent, OrderResult, Persisted, Reservation};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::worker::Pause;

pub(super) async fn run(node: Arc<Node>) {
    let mut tasks: BTreeMap<Lot, JoinHandle<()>> = BTreeMap::new();
    let mut pause = Pause::new();
    while !node.drain.started() {
        match node.catalog.refresh().await {
            Ok(()) => pause.reset(),
            Err(error) => {
                tracing::debug!(error = health::chain(&error), "cannot list the lots");
                pause.wait(&node).await;
                continue;
            }
        }
        let lots = node.catalog.all();
        for lot in lots.keys() {
            tasks.entry(*lot).or_insert_with(|| tokio::spawn(lot_loop(node.clone(), *lot)));
        }
        tasks.retain(|_, task| !task.is_finished());
        tokio::select! {
            () = sleep(node.config.sale.catalog_refresh) => {}
            () = node.drain.wait() => {}
        }
    }
    for (_, task) in tasks {
        let _ = task.await;
    }
}

/// Ends when draining starts or the lot has left the catalog and has nothing more to write.
async fn lot_loop(node: Arc<Node>, lot: Lot) {
    let mut pause = Pause::new();
    while !node.drain.started() {
        match turn(&node, lot).await {
            Ok(0) if !node.catalog.all().contains_key(&lot) => return,
            Ok(0) => {
                pause.reset();
                tokio::select! {
                    () = sleep(node.config.worker.idle) => {}
                    () = node.drain.wait() => {}
                }
            }
            Ok(_) => pause.reset(),
            Err(error) => {
                // Nothing was acknowledged, so the same events come again; a service that is away costs time only.
                node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
                tracing::warn!(%lot, error = health::chain(&error), "cannot write orders now");
                pause.wait(&node).await;
            }
        }
    }
}

/// One batch; says how many events it had.
async fn turn(node: &Node, lot: Lot) -> Result<usize, PortError> {
    let claimed = node.ports.admission.claim(lot, &node.name, node.config.worker.batch_max).await?;
    let count = claimed.len();
    if count == 0 {
        return Ok(0);
    }
    let mut events = Vec::with_capacity(count);
    let mut done = Vec::with_capacity(count);
    for event in claimed {
        match event {
            ClaimedEvent::Order(event) => events.push(event),
            ClaimedEvent::Poison { id, raw } => {
                // Not written by admission, so no unit hangs on it.
                tracing::error!(%lot, id, raw, "an entry of the event log is no order event; dropped");
                done.push(id);
            }
        }
    }
    let outcomes = if events.is_empty() { Vec::new() } else { node.ports.sales.persist(lot, &events, clock::now()).await? };
    let mut results = Vec::with_capacity(events.len());
    for (event, outcome) in events.iter().zip(outcomes) {
        results.push((event.order_no.clone(), conclude(node, lot, event, outcome).await?));
    }
    node.ports.admission.put_results(&results).await?;
    done.extend(events.iter().map(|event| event.id.clone()));
    node.ports.admission.acknowledge(lot, &done).await?;
    for (order_no, result) in results {
        announce(node, &order_no, &result).await;
    }
    Ok(count)
}

async fn conclude(node: &Node, lot: Lot, event: &OrderEvent, outcome: Persisted) -> Result<OrderResult, PortError> {
    let message = match outcome {
        Persisted::Stored => {
            node.metrics.orders_persisted.inc();
            return Ok(OrderResult::Success { user: event.user.clone() });
        }
        Persisted::Stale => "未抢到，请重试",
        Persisted::SoldOut => {
            node.metrics.orders_oversold.inc();
            "已抢完"
        }
        Persisted::Duplicate => "已有订单",
    };
    let reservation = Reservation { qty: event.qty, order_no: event.order_no.clone() };
    node.ports.admission.release(lot, event.epoch, &event.user, &reservation).await?;
    Ok(OrderResult::Fail { user: event.user.clone(), message: message.into() })
}

/// Tells the buyer's sockets. A lost push is no loss: the result is there to be asked for.
async fn announce(node: &Node, order_no: &OrderNo, result: &OrderResult) {
    let (success, message) = match result {
        OrderResult::Success { .. } => (true, "抢购成功"),
        OrderResult::Fail { message, .. } => (false, message.as_str()),
    };
    let event = Event::SaleResult { order_no: order_no.clone(), success, message: message.into(), nseq: None };
    let party = Party { side: Side::User, id: result.user().clone(), shop: None };
    if let Err(error) = node.ports.bus.publish(&party.subject(), event.encode()).await {
        tracing::debug!(error = health::chain(&error), "cannot announce a result now");
    }
}
