//! [`SaleLedger`] in memory: SKUs, activities, orders, outbox and letters under one lock, so that each call is one
//! transaction.
//!
//! Bounds: at most [`ACTIVITIES_MAX`] activities, [`ORDERS_MAX`] orders, as many payments, [`LETTERS_MAX`] letters and leases
//! for [`LEASES_MAX`] lots; an order owes at most two tasks, a payment one; SKUs are as many as operators created. Rules are
//! core's: rows are read, core is asked, rows are written. Called through the port only.

mod leases;
mod letters;
mod orders;
mod outbox;
mod sales;

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::id::{ActivityId, Lot, OrderNo, PayNo, PrincipalId, SkuId};
use gateway_core::ports::{LotLease, PortError, PortErrorKind, PortResult, SaleLedger, Store};
use gateway_core::sale::{
    ActivityRecord, CancelOutcome, CreateOutcome, DecideOutcome, Decision, Invariant, Letter, LetterKind, LetterState, LotBooks, LotRecord,
    NewActivity, NewLetter, OrderEvent, OrderRecord, OutboxEntry, PayOutcome, Persisted, PublishOutcome, SaleTerms, SkuUpsert, StepOutcome,
    Verdict,
};
use gateway_core::time::UnixMillis;
use leases::Leases;
use letters::Letters;
use orders::Orders;
use outbox::Outbox;
use sales::Sales;

use crate::{Clock, full, lock, too_many};

/// Orders kept at most, and payments; about 400 bytes each.
pub const ORDERS_MAX: usize = 1_000_000;

/// Activities kept at most, the port's bound on listed lots.
pub const ACTIVITIES_MAX: usize = 10_000;

/// Letters kept at most.
pub const LETTERS_MAX: usize = 100_000;

/// Lots that may have had a lease.
pub const LEASES_MAX: usize = 100_000;

/// The port's bounds.
const EVENTS_MAX: usize = 1_000;
const EXPIRED_MAX: u32 = 500;
const LETTERS_PAGE_MAX: u32 = 1_000;
const LOTS_MAX: usize = 10_000;
const TASKS_MAX: u32 = 200;

/// Sales and orders in memory.
pub struct EmbeddedSaleLedger {
    clock: Clock,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    sales: Sales,
    orders: Orders,
    outbox: Outbox,
    letters: Letters,
    leases: Leases,
}

impl EmbeddedSaleLedger {
    /// Empty books; leases run by `clock`, everything else by the instants that callers name.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, books: Mutex::default() }
    }
}

fn at_most(max: u32, bound: u32) -> usize {
    usize::try_from(max.min(bound)).unwrap_or(usize::MAX)
}

#[async_trait]
impl SaleLedger for EmbeddedSaleLedger {
    async fn upsert_sku(&self, sku: &SkuUpsert) -> PortResult<()> {
        lock(&self.books).sales.upsert_sku(sku)
    }

    async fn create_activity(&self, activity: &NewActivity) -> PortResult<CreateOutcome> {
        lock(&self.books).sales.create(activity)
    }

    async fn publish(&self, activity: ActivityId) -> PortResult<PublishOutcome> {
        Ok(lock(&self.books).sales.publish(activity))
    }

    async fn close(&self, activity: ActivityId) -> PortResult<StepOutcome> {
        Ok(lock(&self.books).sales.close(activity))
    }

    async fn settle(&self, activity: ActivityId) -> PortResult<StepOutcome> {
        Ok(lock(&self.books).sales.settle(activity))
    }

    async fn void(&self, activity: ActivityId, now: UnixMillis) -> PortResult<StepOutcome> {
        Ok(lock(&self.books).sales.void(activity, now))
    }

    async fn activity(&self, activity: ActivityId) -> PortResult<Option<ActivityRecord>> {
        Ok(lock(&self.books).sales.record(activity))
    }

    async fn lots(&self, now: UnixMillis) -> PortResult<Vec<LotRecord>> {
        Ok(lock(&self.books).sales.lots(now))
    }

    async fn books(&self, lot: Lot) -> PortResult<Option<LotBooks>> {
        Ok(lock(&self.books).of_lot(lot))
    }

    async fn raise_epoch(&self, lot: Lot, from: u32) -> PortResult<Option<SaleTerms>> {
        let Books { sales, orders, .. } = &mut *lock(&self.books);
        Ok(sales.raise_epoch(lot, from).map(|(activity, product)| SaleTerms {
            epoch: product.epoch,
            start: activity.start,
            end: activity.end,
            per_user: u32::from(product.terms.per_user),
            left: product.terms.stock - product.sold,
            buyers: orders.buyers(lot),
        }))
    }

    async fn lease_lots(&self, owner: &str, lots: &[Lot], ttl: Duration) -> PortResult<Vec<LotLease>> {
        if lots.len() > LOTS_MAX {
            return Err(too_many(Store::Mysql, "lease lots"));
        }
        let now = (self.clock)();
        let leases = &mut lock(&self.books).leases;
        if leases.len() + lots.len() > LEASES_MAX + LOTS_MAX {
            return Err(full(Store::Mysql, "lease lots"));
        }
        Ok(lots.iter().filter_map(|lot| leases.take(owner, *lot, ttl, now)).collect())
    }

    async fn persist(&self, lease: &LotLease, events: &[OrderEvent], now: UnixMillis) -> PortResult<Vec<Persisted>> {
        if events.len() > EVENTS_MAX {
            return Err(too_many(Store::Mysql, "persist orders"));
        }
        let mut books = lock(&self.books);
        if !books.leases.holds(lease, (self.clock)()) {
            return Err(PortError { kind: PortErrorKind::Fenced, store: Store::Mysql, doing: "persist orders", source: None });
        }
        if books.orders.len() + events.len() > ORDERS_MAX {
            return Err(full(Store::Mysql, "persist orders"));
        }
        Ok(books.persist(lease.lot, events, now))
    }

    async fn order(&self, order_no: &OrderNo) -> PortResult<Option<OrderRecord>> {
        Ok(lock(&self.books).orders.get(order_no).cloned())
    }

    async fn cancel(&self, order_no: &OrderNo, user: &PrincipalId, now: UnixMillis) -> PortResult<CancelOutcome> {
        Ok(lock(&self.books).cancel(order_no, user, now))
    }

    async fn expire(&self, deadline: UnixMillis, max: u32, now: UnixMillis) -> PortResult<Vec<OrderRecord>> {
        Ok(lock(&self.books).expire(deadline, at_most(max, EXPIRED_MAX), now))
    }

    async fn pay(&self, order_no: &OrderNo, pay_no: &PayNo, now: UnixMillis) -> PortResult<PayOutcome> {
        let mut books = lock(&self.books);
        if books.orders.payments() >= ORDERS_MAX {
            return Err(full(Store::Mysql, "pay an order"));
        }
        Ok(books.pay(order_no, pay_no, now))
    }

    async fn take_tasks(&self, now: UnixMillis, max: u32) -> PortResult<Vec<OutboxEntry>> {
        Ok(lock(&self.books).outbox.take(now, at_most(max, TASKS_MAX)))
    }

    async fn finish_tasks(&self, ids: &[u64]) -> PortResult<()> {
        lock(&self.books).outbox.finish(ids);
        Ok(())
    }

    async fn fail_task(&self, id: u64, error: &str, again: Option<UnixMillis>) -> PortResult<()> {
        let now = (self.clock)();
        let Books { outbox, letters, .. } = &mut *lock(&self.books);
        if again.is_none() && letters.len() >= LETTERS_MAX {
            return Err(full(Store::Mysql, "give a task up"));
        }
        if let Some(owed) = outbox.fail(id, again).filter(|_| again.is_none()) {
            let payload = format!("{{\"topic\":\"{}\",\"task\":{}}}", owed.task.topic(), owed.task.encode());
            let (kind, source_id, error, attempts) = (LetterKind::Outbox, id.to_string(), error.to_owned(), owed.attempts);
            letters.write(&NewLetter { kind, source_id, payload, error, attempts }, now);
        }
        Ok(())
    }

    async fn write_letter(&self, letter: &NewLetter, now: UnixMillis) -> PortResult<()> {
        let letters = &mut lock(&self.books).letters;
        if letters.is_new(letter) && letters.len() >= LETTERS_MAX {
            return Err(full(Store::Mysql, "write a letter"));
        }
        letters.write(letter, now);
        Ok(())
    }

    async fn letters(&self, open_only: bool, after: u64, max: u32) -> PortResult<Vec<Letter>> {
        Ok(lock(&self.books).letters.page(open_only, after, at_most(max, LETTERS_PAGE_MAX)))
    }

    async fn letters_open(&self) -> PortResult<u64> {
        Ok(lock(&self.books).letters.open())
    }

    async fn decide_letter(&self, id: u64, verdict: Verdict, decision: &Decision) -> PortResult<DecideOutcome> {
        Ok(lock(&self.books).decide(id, verdict, decision))
    }
}

impl Books {
    fn of_lot(&self, lot: Lot) -> Option<LotBooks> {
        let (activity, product, sku) = self.sales.lot(lot)?;
        Some(LotBooks {
            state: activity.state,
            epoch: product.epoch,
            stock: product.terms.stock,
            sold: product.sold,
            live: self.orders.live(lot),
            moved: product.moved,
            owed: self.outbox.owed(lot),
            sku_stock: sku.stock,
            sku_locked: sku.locked,
            sku_promised: self.sales.promised(lot.sku),
        })
    }

    fn decide(&mut self, id: u64, verdict: Verdict, decision: &Decision) -> DecideOutcome {
        let Some(letter) = self.letters.get(id) else { return DecideOutcome::NotFound };
        if letter.state != LetterState::Open {
            return DecideOutcome::NotOpen(letter.state);
        }
        let (kind, source_id) = (letter.what.kind, letter.what.source_id.clone());
        let task: Option<u64> = source_id.parse().ok();
        let state = match (verdict, kind) {
            (Verdict::Retry, LetterKind::Event) => return DecideOutcome::NothingToRetry,
            (Verdict::Retry, LetterKind::Outbox) => {
                if !task.is_some_and(|task| self.outbox.retry(task, decision.at)) {
                    return DecideOutcome::NothingToRetry;
                }
                LetterState::Retried
            }
            (Verdict::Retry, LetterKind::Invariant) => {
                self.mend(&source_id);
                LetterState::Retried
            }
            // Whoever decides has queued it.
            (Verdict::Retry, LetterKind::ChatMessage) => LetterState::Retried,
            (Verdict::Discard, LetterKind::Outbox) => {
                self.outbox.finish(task.as_slice());
                LetterState::Discarded
            }
            (Verdict::Discard, LetterKind::Event | LetterKind::ChatMessage | LetterKind::Invariant) => LetterState::Discarded,
        };
        self.letters.decide(id, state, decision).map_or(DecideOutcome::NotFound, DecideOutcome::Decided)
    }

    /// Sets the counters that `activity:sku:invariant` names to what the rows say. What lies between the ledger and the
    /// admission store is not the ledger's to mend.
    fn mend(&mut self, source_id: &str) {
        let mut parts = source_id.splitn(3, ':');
        let (activity, sku, name) = (parts.next(), parts.next(), parts.next());
        let number = |part: Option<&str>| part.and_then(|part| part.parse().ok());
        let (Some(activity), Some(sku)) = (number(activity), number(sku)) else { return };
        let lot = Lot { activity: ActivityId(activity), sku: SkuId(sku) };
        match name.and_then(Invariant::parse) {
            Some(Invariant::SoldIsLive) => self.sales.mend_sold(lot, self.orders.live(lot)),
            Some(Invariant::LockedIsPromised) => self.sales.mend_locked(lot.sku),
            Some(Invariant::StockIsLeftAndReserved | Invariant::ReservedIsLive) | None => {}
        }
    }
}
