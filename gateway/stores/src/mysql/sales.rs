//! The port of the sale ledger: one transaction a call, each where its noun lives.

use std::time::Duration;

use async_trait::async_trait;
use gateway_core::id::{ActivityId, Lot, OrderNo, PayNo, PrincipalId};
use gateway_core::ports::{LotLease, PortResult, SaleLedger};
use gateway_core::sale::{
    ActivityRecord, CancelOutcome, CreateOutcome, DecideOutcome, Decision, Letter, LotBooks, LotRecord, NewActivity, NewLetter, OrderEvent,
    OrderRecord, OutboxEntry, PayOutcome, Persisted, PublishOutcome, SaleTerms, SkuUpsert, StepOutcome, Verdict,
};
use gateway_core::time::UnixMillis;

use super::MysqlStore;

#[async_trait]
impl SaleLedger for MysqlStore {
    async fn upsert_sku(&self, sku: &SkuUpsert) -> PortResult<()> {
        self.transact("write a SKU", || self.write_sku(sku)).await
    }

    async fn create_activity(&self, activity: &NewActivity) -> PortResult<CreateOutcome> {
        self.transact("create an activity", || self.write_activity(activity)).await
    }

    async fn publish(&self, activity: ActivityId) -> PortResult<PublishOutcome> {
        self.transact("publish an activity", || self.publish_activity(activity)).await
    }

    async fn close(&self, activity: ActivityId) -> PortResult<StepOutcome> {
        self.transact("close an activity", || self.close_activity(activity)).await
    }

    async fn settle(&self, activity: ActivityId) -> PortResult<StepOutcome> {
        self.transact("settle an activity", || self.settle_activity(activity)).await
    }

    async fn void(&self, activity: ActivityId, now: UnixMillis) -> PortResult<StepOutcome> {
        self.transact("call an activity off", || self.void_activity(activity, now)).await
    }

    async fn activity(&self, activity: ActivityId) -> PortResult<Option<ActivityRecord>> {
        self.transact("read an activity", || self.read_activity(activity)).await
    }

    async fn lots(&self, now: UnixMillis) -> PortResult<Vec<LotRecord>> {
        self.transact("list the lots", || self.read_lots(now)).await
    }

    async fn books(&self, lot: Lot) -> PortResult<Option<LotBooks>> {
        self.transact("read the books of a lot", || self.read_books(lot)).await
    }

    async fn raise_epoch(&self, lot: Lot, from: u32) -> PortResult<Option<SaleTerms>> {
        self.transact("raise an epoch", || self.next_terms(lot, from)).await
    }

    async fn lease_lots(&self, owner: &str, lots: &[Lot], ttl: Duration) -> PortResult<Vec<LotLease>> {
        self.transact("lease lots", || self.take_lot_leases(owner, lots, ttl)).await
    }

    async fn persist(&self, lease: &LotLease, events: &[OrderEvent], now: UnixMillis) -> PortResult<Vec<Persisted>> {
        self.transact("persist orders", || self.write_orders(lease, events, now)).await
    }

    async fn order(&self, order_no: &OrderNo) -> PortResult<Option<OrderRecord>> {
        self.transact("read an order", || self.read_order(order_no)).await
    }

    async fn cancel(&self, order_no: &OrderNo, user: &PrincipalId, now: UnixMillis) -> PortResult<CancelOutcome> {
        self.transact("cancel an order", || self.cancel_order(order_no, user, now)).await
    }

    async fn expire(&self, deadline: UnixMillis, max: u32, now: UnixMillis) -> PortResult<Vec<OrderRecord>> {
        self.transact("close expired orders", || self.expire_orders(deadline, max, now)).await
    }

    async fn pay(&self, order_no: &OrderNo, pay_no: &PayNo, now: UnixMillis) -> PortResult<PayOutcome> {
        self.transact("pay an order", || self.take_payment(order_no, pay_no, now)).await
    }

    async fn take_tasks(&self, now: UnixMillis, max: u32) -> PortResult<Vec<OutboxEntry>> {
        self.transact("take tasks of the outbox", || self.hand_out_tasks(now, max)).await
    }

    async fn finish_tasks(&self, ids: &[u64]) -> PortResult<()> {
        self.transact("finish tasks of the outbox", || self.forget_tasks(ids)).await
    }

    async fn fail_task(&self, id: u64, error: &str, again: Option<UnixMillis>) -> PortResult<()> {
        self.transact("put a task of the outbox off", || self.put_task_off(id, error, again)).await
    }

    async fn write_letter(&self, letter: &NewLetter, now: UnixMillis) -> PortResult<()> {
        self.transact("write a dead letter", || self.put_one_letter(letter, now)).await
    }

    async fn letters(&self, open_only: bool, after: u64, max: u32) -> PortResult<Vec<Letter>> {
        self.transact("read dead letters", || self.read_letters(open_only, after, max)).await
    }

    async fn letters_open(&self) -> PortResult<u64> {
        self.transact("count open letters", || self.count_open_letters()).await
    }

    async fn decide_letter(&self, id: u64, verdict: Verdict, decision: &Decision) -> PortResult<DecideOutcome> {
        self.transact("decide a dead letter", || self.write_decision(id, verdict, decision)).await
    }
}
