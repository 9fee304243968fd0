//! What the steps of a sale act through: the ports with what counts and tells, and the few effects that several steps share.
//!
//! What never happens here: reading a clock, drawing randomness, waiting. Every effect may happen twice. Used by the worker's
//! steps, the keeper and the admin API.

use std::sync::Arc;

use gateway_core::chat::event::Event;
use gateway_core::chat::{Party, Side};
use gateway_core::id::{OrderNo, PayNo, PrincipalId};
use gateway_core::ports::{Admission, Bus, Notices, PortError, PortResult, SaleLedger};
use gateway_core::sale::soldout::{self, News};
use gateway_core::sale::{CancelOutcome, OrderRecord, OrderResult, OrderState, PayOutcome, Shard, StockVersion};
use gateway_core::time::UnixMillis;

use crate::health;
use crate::node::Node;
use crate::telemetry::Metrics;

/// What a buyer reads of an order that was closed.
const CLOSED: &str = "订单已关闭";

/// How often an order may change while its result is written, before the next task about it is left to say the last word.
const CHANGES_MAX: usize = 4;

/// The ports of a sale, and the metrics of its work.
#[derive(Clone)]
pub(crate) struct Desk {
    /// Who may try.
    pub admission: Arc<dyn Admission>,
    /// Who wins.
    pub ledger: Arc<dyn SaleLedger>,
    /// What nodes and sockets hear.
    pub bus: Arc<dyn Bus>,
    /// What buyers catch up with.
    pub notices: Arc<dyn Notices>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Desk {
    /// The desk of a process.
    pub(crate) fn of(node: &Node) -> Self {
        Self {
            admission: node.ports.admission.clone(),
            ledger: node.ports.sales.clone(),
            bus: node.ports.bus.clone(),
            notices: node.ports.notices.clone(),
            metrics: node.metrics.clone(),
        }
    }

    /// Counts a failed call to a service.
    pub(crate) fn failed(&self, error: &PortError) {
        self.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
    }

    /// Tells every node that units came back to `shard`. Lost news costs a second: nodes probe.
    pub(crate) async fn returned(&self, shard: Shard, at: StockVersion) {
        let news = News { shard, at, sold_out: false };
        if let Err(error) = self.bus.publish(soldout::SUBJECT, news.encode().into()).await {
            tracing::debug!(%shard, error = health::chain(&error), "cannot tell now that units came back");
        }
    }

    /// Tells the buyer a result: kept in the buyer's notices, once per `key` (at most 64 characters), and pushed to open
    /// sockets. A lost push is no loss, because the notice is there to be asked for.
    pub(crate) async fn announce(&self, key: &str, order_no: &OrderNo, result: &OrderResult) -> PortResult<()> {
        let (success, message) = match result {
            OrderResult::Success { .. } => (true, "抢购成功"),
            OrderResult::Fail { message, .. } => (false, message.as_str()),
        };
        let event = |nseq| Event::SaleResult { order_no: order_no.clone(), success, message: message.to_owned(), nseq };
        let party = Party { side: Side::User, id: result.user().clone(), shop: None };
        let number = self.notices.append(&party, key, event(None).encode()).await?;
        if let Err(error) = self.bus.publish(&party.subject(), event(Some(number)).encode()).await {
            tracing::debug!(error = health::chain(&error), "cannot push a result now");
        }
        Ok(())
    }

    /// Books a payment. A revived order's buyer is told here too: once its activity is settled no task of the outbox does.
    pub(crate) async fn pay(&self, order_no: &OrderNo, pay_no: &PayNo, now: UnixMillis) -> PortResult<PayOutcome> {
        let outcome = self.ledger.pay(order_no, pay_no, now).await?;
        if outcome == PayOutcome::Revived {
            self.conclude_or_log(order_no).await;
        }
        Ok(outcome)
    }

    /// Closes an order for its buyer, who is told here too, for the same reason.
    pub(crate) async fn cancel(&self, order_no: &OrderNo, user: &PrincipalId, now: UnixMillis) -> PortResult<CancelOutcome> {
        let outcome = self.ledger.cancel(order_no, user, now).await?;
        if outcome == CancelOutcome::Cancelled {
            self.metrics.orders_closed.with_label_values(&["cancelled"]).inc();
        }
        // Also when it was closed before: whoever did that may have been stopped short of this.
        if matches!(outcome, CancelOutcome::Cancelled | CancelOutcome::AlreadyClosed) {
            self.conclude_or_log(order_no).await;
        }
        Ok(outcome)
    }

    /// [`Desk::conclude`] after a step that is done and stays done.
    pub(crate) async fn conclude_or_log(&self, order_no: &OrderNo) {
        if let Err(error) = self.conclude(order_no).await {
            self.failed(&error);
            tracing::debug!(%order_no, error = health::chain(&error), "cannot tell now what became of an order");
        }
    }

    /// Makes the final result of an order what the ledger says of it now, and tells its buyer.
    ///
    /// Tasks about one order may come in any order and run side by side. Each reads again after it wrote, so whoever writes
    /// last has written what is true.
    pub(crate) async fn conclude(&self, order_no: &OrderNo) -> PortResult<()> {
        for _ in 0..CHANGES_MAX {
            let Some(order) = self.ledger.order(order_no).await? else { return Ok(()) };
            let result = result_of(&order);
            self.admission.put_results(&[(order_no.clone(), result.clone())]).await?;
            let after = self.ledger.order(order_no).await?;
            if after.is_some_and(|after| after.state == order.state && after.revision == order.revision) {
                return self.announce(&format!("{order_no}:r{}", order.revision), order_no, &result).await;
            }
        }
        Ok(())
    }
}

fn result_of(order: &OrderRecord) -> OrderResult {
    let user = order.user.clone();
    match order.state {
        OrderState::Unpaid | OrderState::Paid => OrderResult::Success { user },
        OrderState::Closed => OrderResult::Fail { user, message: CLOSED.to_owned() },
    }
}
