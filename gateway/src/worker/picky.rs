//! A ledger that cannot take the orders of some numbers, whatever is tried.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::id::{ActivityId, Lot, OrderNo, PayNo, PrincipalId};
use gateway_core::ports::{LotLease, PortError, PortErrorKind, PortResult, SaleLedger, Store};
use gateway_core::sale::{
    ActivityRecord, CancelOutcome, CreateOutcome, DecideOutcome, Decision, Letter, LotBooks, LotRecord, NewActivity, NewLetter, OrderEvent,
    OrderRecord, OutboxEntry, PayOutcome, Persisted, PublishOutcome, SaleTerms, SkuUpsert, StepOutcome, Verdict,
};
use gateway_core::time::UnixMillis;

/// Passes everything on but batches with such an order.
pub(super) struct Picky {
    pub(super) ledger: Arc<dyn SaleLedger>,
    pub(super) refuses: BTreeSet<OrderNo>,
}

#[async_trait]
impl SaleLedger for Picky {
    async fn upsert_sku(&self, sku: &SkuUpsert) -> PortResult<()> {
        self.ledger.upsert_sku(sku).await
    }

    async fn create_activity(&self, activity: &NewActivity) -> PortResult<CreateOutcome> {
        self.ledger.create_activity(activity).await
    }

    async fn publish(&self, activity: ActivityId) -> PortResult<PublishOutcome> {
        self.ledger.publish(activity).await
    }

    async fn close(&self, activity: ActivityId) -> PortResult<StepOutcome> {
        self.ledger.close(activity).await
    }

    async fn settle(&self, activity: ActivityId) -> PortResult<StepOutcome> {
        self.ledger.settle(activity).await
    }

    async fn void(&self, activity: ActivityId, now: UnixMillis) -> PortResult<StepOutcome> {
        self.ledger.void(activity, now).await
    }

    async fn activity(&self, activity: ActivityId) -> PortResult<Option<ActivityRecord>> {
        self.ledger.activity(activity).await
    }

    async fn lots(&self, now: UnixMillis) -> PortResult<Vec<LotRecord>> {
        self.ledger.lots(now).await
    }

    async fn books(&self, lot: Lot) -> PortResult<Option<LotBooks>> {
        self.ledger.books(lot).await
    }

    async fn raise_epoch(&self, lot: Lot, from: u32) -> PortResult<Option<SaleTerms>> {
        self.ledger.raise_epoch(lot, from).await
    }

    async fn lease_lots(&self, owner: &str, lots: &[Lot], ttl: Duration) -> PortResult<Vec<LotLease>> {
        self.ledger.lease_lots(owner, lots, ttl).await
    }

    async fn persist(&self, lease: &LotLease, events: &[OrderEvent], now: UnixMillis) -> PortResult<Vec<Persisted>> {
        if events.iter().any(|event| self.refuses.contains(&event.order_no)) {
            return Err(PortError { kind: PortErrorKind::Broken, store: Store::Mysql, doing: "persist orders", source: None });
        }
        self.ledger.persist(lease, events, now).await
    }

    async fn order(&self, order_no: &OrderNo) -> PortResult<Option<OrderRecord>> {
        self.ledger.order(order_no).await
    }

    async fn cancel(&self, order_no: &OrderNo, user: &PrincipalId, now: UnixMillis) -> PortResult<CancelOutcome> {
        self.ledger.cancel(order_no, user, now).await
    }

    async fn expire(&self, deadline: UnixMillis, max: u32, now: UnixMillis) -> PortResult<Vec<OrderRecord>> {
        self.ledger.expire(deadline, max, now).await
    }

    async fn pay(&self, order_no: &OrderNo, pay_no: &PayNo, now: UnixMillis) -> PortResult<PayOutcome> {
        self.ledger.pay(order_no, pay_no, now).await
    }

    async fn take_tasks(&self, now: UnixMillis, max: u32) -> PortResult<Vec<OutboxEntry>> {
        self.ledger.take_tasks(now, max).await
    }

    async fn finish_tasks(&self, ids: &[u64]) -> PortResult<()> {
        self.ledger.finish_tasks(ids).await
    }

    async fn fail_task(&self, id: u64, error: &str, again: Option<UnixMillis>) -> PortResult<()> {
        self.ledger.fail_task(id, error, again).await
    }

    async fn write_letter(&self, letter: &NewLetter, now: UnixMillis) -> PortResult<()> {
        self.ledger.write_letter(letter, now).await
    }

    async fn letters(&self, open_only: bool, after: u64, max: u32) -> PortResult<Vec<Letter>> {
        self.ledger.letters(open_only, after, max).await
    }

    async fn letters_open(&self) -> PortResult<u64> {
        self.ledger.letters_open().await
    }

    async fn decide_letter(&self, id: u64, verdict: Verdict, decision: &Decision) -> PortResult<DecideOutcome> {
        self.ledger.decide_letter(id, verdict, decision).await
    }
}
