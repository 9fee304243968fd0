//! A ledger whose calls may fail.

use std::time::Duration;

use async_trait::async_trait;
use gateway_core::id::{ActivityId, Lot, OrderNo, PayNo, PrincipalId};
use gateway_core::ports::{LotLease, PortResult, SaleLedger, Store};
use gateway_core::sale::{
    ActivityRecord, CancelOutcome, CreateOutcome, DecideOutcome, Decision, Letter, LotBooks, LotRecord, NewActivity, NewLetter, OrderEvent,
    OrderRecord, OutboxEntry, PayOutcome, Persisted, PublishOutcome, SaleTerms, SkuUpsert, StepOutcome, Verdict,
};
use gateway_core::time::UnixMillis;

use super::Faulty;

#[async_trait]
impl SaleLedger for Faulty<dyn SaleLedger> {
    async fn upsert_sku(&self, sku: &SkuUpsert) -> PortResult<()> {
        self.faults.around(Store::Mysql, self.port.upsert_sku(sku)).await
    }

    async fn create_activity(&self, activity: &NewActivity) -> PortResult<CreateOutcome> {
        self.faults.around(Store::Mysql, self.port.create_activity(activity)).await
    }

    async fn publish(&self, activity: ActivityId) -> PortResult<PublishOutcome> {
        self.faults.around(Store::Mysql, self.port.publish(activity)).await
    }

    async fn close(&self, activity: ActivityId) -> PortResult<StepOutcome> {
        self.faults.around(Store::Mysql, self.port.close(activity)).await
    }

    async fn settle(&self, activity: ActivityId) -> PortResult<StepOutcome> {
        self.faults.around(Store::Mysql, self.port.settle(activity)).await
    }

    async fn void(&self, activity: ActivityId, now: UnixMillis) -> PortResult<StepOutcome> {
        self.faults.around(Store::Mysql, self.port.void(activity, now)).await
    }

    async fn activity(&self, activity: ActivityId) -> PortResult<Option<ActivityRecord>> {
        self.faults.around(Store::Mysql, self.port.activity(activity)).await
    }

    async fn lots(&self, now: UnixMillis) -> PortResult<Vec<LotRecord>> {
        self.faults.around(Store::Mysql, self.port.lots(now)).await
    }

    async fn books(&self, lot: Lot) -> PortResult<Option<LotBooks>> {
        self.faults.around(Store::Mysql, self.port.books(lot)).await
    }

    async fn raise_epoch(&self, lot: Lot, from: u32) -> PortResult<Option<SaleTerms>> {
        self.faults.around(Store::Mysql, self.port.raise_epoch(lot, from)).await
    }

    async fn lease_lots(&self, owner: &str, lots: &[Lot], ttl: Duration) -> PortResult<Vec<LotLease>> {
        self.faults.around(Store::Mysql, self.port.lease_lots(owner, lots, ttl)).await
    }

    async fn persist(&self, lease: &LotLease, events: &[OrderEvent], now: UnixMillis) -> PortResult<Vec<Persisted>> {
        self.faults.around(Store::Mysql, self.port.persist(lease, events, now)).await
    }

    async fn order(&self, order_no: &OrderNo) -> PortResult<Option<OrderRecord>> {
        self.faults.around(Store::Mysql, self.port.order(order_no)).await
    }

    async fn cancel(&self, order_no: &OrderNo, user: &PrincipalId, now: UnixMillis) -> PortResult<CancelOutcome> {
        self.faults.around(Store::Mysql, self.port.cancel(order_no, user, now)).await
    }

    async fn expire(&self, deadline: UnixMillis, max: u32, now: UnixMillis) -> PortResult<Vec<OrderRecord>> {
        self.faults.around(Store::Mysql, self.port.expire(deadline, max, now)).await
    }

    async fn pay(&self, order_no: &OrderNo, pay_no: &PayNo, now: UnixMillis) -> PortResult<PayOutcome> {
        self.faults.around(Store::Mysql, self.port.pay(order_no, pay_no, now)).await
    }

    async fn take_tasks(&self, now: UnixMillis, max: u32) -> PortResult<Vec<OutboxEntry>> {
        self.faults.around(Store::Mysql, self.port.take_tasks(now, max)).await
    }

    async fn finish_tasks(&self, ids: &[u64]) -> PortResult<()> {
        self.faults.around(Store::Mysql, self.port.finish_tasks(ids)).await
    }

    async fn fail_task(&self, id: u64, error: &str, again: Option<UnixMillis>) -> PortResult<()> {
        self.faults.around(Store::Mysql, self.port.fail_task(id, error, again)).await
    }

    async fn write_letter(&self, letter: &NewLetter, now: UnixMillis) -> PortResult<()> {
        self.faults.around(Store::Mysql, self.port.write_letter(letter, now)).await
    }

    async fn letters(&self, open_only: bool, after: u64, max: u32) -> PortResult<Vec<Letter>> {
        self.faults.around(Store::Mysql, self.port.letters(open_only, after, max)).await
    }

    async fn letters_open(&self) -> PortResult<u64> {
        self.faults.around(Store::Mysql, self.port.letters_open()).await
    }

    async fn decide_letter(&self, id: u64, verdict: Verdict, decision: &Decision) -> PortResult<DecideOutcome> {
        self.faults.around(Store::Mysql, self.port.decide_letter(id, verdict, decision)).await
    }
}
