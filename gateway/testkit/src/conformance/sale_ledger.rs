//! What every [`SaleLedger`] promises.
//!
//! The outbox and the deadlines of unpaid orders belong to the whole ledger, so nobody else may take tasks of the one under
//! test while the suite runs. Checks that let orders expire write them decades ago, where nobody else's are.

pub mod activities;
pub mod leases;
pub mod letters;
pub mod orders;
pub mod outbox;
pub mod payments;
pub mod races;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::id::{ActivityId, Lot, OrderNo, PayNo, PrincipalId, SkuId};
use gateway_core::ports::{LotLease, SaleLedger};
use gateway_core::sale::{
    ActivityRecord, CancelOutcome, CreateOutcome, LotBooks, LotRecord, NewActivity, NewProduct, OrderEvent, OrderRecord, OutboxEntry,
    PayOutcome, Persisted, PublishOutcome, SaleTerms, SkuUpsert, StepOutcome, Task, books as rules,
};
use gateway_core::time::UnixMillis;

use super::{Fresh, now, shift};

/// Every check.
pub async fn all(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    activities::all(store, fresh).await;
    orders::all(store, fresh).await;
    leases::all(store, fresh).await;
    payments::all(&**store, fresh).await;
    outbox::all(&**store, fresh).await;
    letters::all(&**store, fresh).await;
    races::all(store, fresh).await;
}

/// How long checks hold a lease.
const LEASE: Duration = Duration::from_secs(60);

pub(super) async fn sku(store: &dyn SaleLedger, fresh: &Fresh, stock: u32) -> SkuId {
    let sku = SkuId(fresh.number());
    store.upsert_sku(&SkuUpsert { sku, name: "茶 tea".to_owned(), price_cents: 1_990, add_stock: stock }).await.expect("upsert sku");
    sku
}

pub(super) fn product(sku: SkuId, stock: u32) -> NewProduct {
    NewProduct { sku, price_cents: 990, stock, per_user: 5, shards: 1 }
}

pub(super) fn activity_of(products: Vec<NewProduct>) -> NewActivity {
    NewActivity { title: "秒杀 flash".to_owned(), start: shift(now(), -3_600), end: shift(now(), 3_600), pay_ttl_s: 1_800, products }
}

pub(super) async fn draft(store: &dyn SaleLedger, activity: &NewActivity) -> ActivityId {
    match store.create_activity(activity).await.expect("create activity") {
        CreateOutcome::Created(id) => id,
        CreateOutcome::UnknownSku(sku) => panic!("{sku} was created just now"),
    }
}

pub(super) async fn published(store: &dyn SaleLedger, activity: &NewActivity) -> ActivityId {
    let id = draft(store, activity).await;
    assert_eq!(store.publish(id).await.expect("publish"), PublishOutcome::Published);
    id
}

/// A published lot of `stock` units in epoch 1.
pub(super) async fn selling(store: &dyn SaleLedger, fresh: &Fresh, stock: u32) -> Lot {
    let sku = sku(store, fresh, stock).await;
    let lot = Lot { activity: published(store, &activity_of(vec![product(sku, stock)])).await, sku };
    assert_eq!(raise(store, lot, 0).await.map(|terms| terms.epoch), Some(1));
    lot
}

pub(super) async fn raise(store: &dyn SaleLedger, lot: Lot, from: u32) -> Option<SaleTerms> {
    store.raise_epoch(lot, from).await.expect("raise epoch")
}

pub(super) async fn record(store: &dyn SaleLedger, activity: ActivityId) -> ActivityRecord {
    store.activity(activity).await.expect("activity").expect("the activity exists")
}

pub(super) async fn lot_record(store: &dyn SaleLedger, lot: Lot) -> LotRecord {
    let activity = record(store, lot.activity).await;
    activity.products.into_iter().find(|product| product.lot == lot).expect("the lot exists")
}

pub(super) fn event(fresh: &Fresh, user: &PrincipalId, qty: u32, epoch: u32) -> OrderEvent {
    OrderEvent { id: format!("{}-0", fresh.number()), order_no: fresh.order_no(), user: user.clone(), qty, epoch, generation: 0 }
}

pub(super) fn somebody(fresh: &Fresh, qty: u32) -> OrderEvent {
    event(fresh, &fresh.principal(), qty, 1)
}

pub(super) async fn books(store: &dyn SaleLedger, lot: Lot) -> LotBooks {
    store.books(lot).await.expect("books").expect("the lot exists")
}

/// A lease of `lot` for `owner`, long enough for any check.
pub(super) async fn lease(store: &dyn SaleLedger, owner: &str, lot: Lot) -> Option<LotLease> {
    store.lease_lots(owner, &[lot], LEASE).await.expect("lease lots").pop()
}

/// Persists as the one worker that all checks but those about leases speak for.
pub(super) async fn persist(store: &dyn SaleLedger, lot: Lot, events: &[OrderEvent]) -> Vec<Persisted> {
    let lease = lease(store, "worker", lot).await.expect("nobody else leases the lot");
    store.persist(&lease, events, now()).await.expect("persist")
}

/// Asserts every number that an order moves, given the units sold.
pub(super) async fn assert_sold(store: &dyn SaleLedger, lot: Lot, stock: u32, sold: u32) {
    let books = books(store, lot).await;
    let seen = (books.stock, books.sold, books.live, books.moved, books.sku_stock, books.sku_locked);
    let want = (stock, sold, u64::from(sold), i64::from(sold), stock - sold, stock - sold);
    assert_eq!(seen, want, "stock, sold, live, moved, SKU stock, SKU locked");
    assert_eq!(rules::in_ledger(&books), [], "the ledger agrees with itself");
    assert_eq!(lot_record(store, lot).await.sold, sold);
}

/// A buyer's unpaid order of `qty` units.
pub(super) async fn ordered(store: &dyn SaleLedger, fresh: &Fresh, lot: Lot, qty: u32) -> OrderEvent {
    let event = somebody(fresh, qty);
    assert_eq!(persist(store, lot, std::slice::from_ref(&event)).await, [Persisted::Stored]);
    event
}

/// The buyer's next order after a closed one.
pub(super) fn next_of(fresh: &Fresh, former: &OrderEvent) -> OrderEvent {
    OrderEvent { generation: former.generation + 1, ..event(fresh, &former.user, former.qty, former.epoch) }
}

pub(super) async fn order(store: &dyn SaleLedger, order_no: &OrderNo) -> OrderRecord {
    store.order(order_no).await.expect("order").expect("the order exists")
}

pub(super) async fn cancel(store: &dyn SaleLedger, event: &OrderEvent) -> CancelOutcome {
    store.cancel(&event.order_no, &event.user, now()).await.expect("cancel")
}

pub(super) fn pay_no(fresh: &Fresh) -> PayNo {
    PayNo::parse(&fresh.word("pay")).expect("well-formed")
}

pub(super) async fn pay(store: &dyn SaleLedger, event: &OrderEvent, pay_no: &PayNo) -> PayOutcome {
    store.pay(&event.order_no, pay_no, now()).await.expect("pay")
}

pub(super) async fn close(store: &dyn SaleLedger, lot: Lot) {
    assert_eq!(store.close(lot.activity).await.expect("close"), StepOutcome::Done);
}

pub(super) async fn settle(store: &dyn SaleLedger, lot: Lot) {
    assert_eq!(store.settle(lot.activity).await.expect("settle"), StepOutcome::Done);
}

/// Takes everything that is due at `at`, and keeps what is owed for one of `orders`.
pub(super) async fn take_tasks(store: &dyn SaleLedger, at: UnixMillis, orders: &[&OrderNo]) -> Vec<OutboxEntry> {
    let mut found = Vec::new();
    // A ledger has no more tasks than a few per order of all runs together.
    for _ in 0..10_000 {
        let taken = store.take_tasks(at, 200).await.expect("take tasks");
        if taken.is_empty() {
            return found;
        }
        assert!(taken.len() <= 200, "{} tasks in one call", taken.len());
        found.extend(taken.into_iter().filter(|entry| orders.contains(&order_of(&entry.task))));
    }
    panic!("tasks that were taken do not hide");
}

/// The order a task is about.
pub(super) fn order_of(task: &Task) -> &OrderNo {
    match task {
        Task::Release { release, .. } => &release.reservation.order_no,
        Task::Reserve { reservation, .. } => &reservation.order_no,
        Task::Refund { order_no, .. } => order_no,
    }
}
