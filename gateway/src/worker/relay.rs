//! Does what transactions owe to the world outside the ledger: units back to the sale, units for a revived order, refunds.
//!
//! At least once and in any order; each task is made so that this is harmless. Refunds are handed on, because a slow payment
//! service must not hold up units that somebody waits for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use gateway_core::id::{Lot, PrincipalId};
use gateway_core::ports::{PortError, PortErrorKind, PortResult};
use gateway_core::sale::outbox::{ATTEMPTS_MAX, OutboxEntry, Task, retry_after};
use gateway_core::sale::{ActivityState, LotRecord, Release, Reservation, Reserved, Shard};
use gateway_core::time::UnixMillis;

use crate::health;
use crate::sale::desk::Desk;
use crate::worker::refunds::{Refund, Refunds};

/// Tasks of one turn.
pub(super) const TASKS_MAX: usize = 200;

/// Tasks under way at once.
const ABREAST: usize = 32;

/// When a task is tried again whose store is away: at once when it is back, and for as long as it takes.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// When a refund is tried again that found no room among those under way.
const PUT_OFF: Duration = Duration::from_secs(5);

/// Lots whose number of shards is remembered.
const LOTS_MAX: usize = 10_000;

/// The step for tasks of the admission store.
pub(super) struct Relay {
    desk: Desk,
    /// How many shards a lot has never changes.
    shards: BTreeMap<Lot, u8>,
}

/// What became of a task.
enum Done {
    Yes,
    /// Not now; the text is for the operator.
    Not {
        error: String,
        /// Whether a store was away, which is nobody's fault and never given up.
        away: bool,
    },
}

/// What a turn took.
pub(super) struct Turn {
    /// Tasks taken; [`TASKS_MAX`] of them mean that more may be due.
    pub taken: usize,
    /// Refunds among them, still to be sent.
    pub refunds: Vec<OutboxEntry>,
}

impl Relay {
    /// Over the ports of `desk`.
    pub(super) fn new(desk: Desk) -> Self {
        Self { desk, shards: BTreeMap::new() }
    }

    /// Takes what is due, does what is the admission store's and hands the rest back.
    pub(super) async fn turn(&mut self, now: UnixMillis) -> PortResult<Turn> {
        let entries = self.desk.ledger.take_tasks(now, TASKS_MAX as u32).await?;
        let taken = entries.len();
        let (refunds, units): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| matches!(entry.task, Task::Refund { .. }));
        let (mut finished, mut store_is_away) = (Vec::new(), false);
        for entries in units.chunks(ABREAST) {
            for entry in entries {
                self.remember(entry).await?;
            }
            let told = self.in_force(entries).await;
            // The first ones that found the store away have waited for all.
            let attempts = if store_is_away {
                entries.iter().map(|_| Done::Not { error: "the store is away".to_owned(), away: true }).collect()
            } else {
                join_all(entries.iter().map(|entry| self.attempt(entry))).await
            };
            let sold = self.on_sale(entries).await?;
            for (entry, done) in entries.iter().zip(attempts) {
                match done {
                    Done::Yes if !self.will_last(entry, &told, &sold) => {
                        let error = "the sale is being rebuilt, and what it was told may be lost with it";
                        self.desk.ledger.fail_task(entry.id, error, Some(now.plus(STORE_RETRY))).await?;
                    }
                    Done::Yes => finished.push(entry.id),
                    Done::Not { error, away } => {
                        store_is_away |= away;
                        let again = if away { Some(now.plus(STORE_RETRY)) } else { again(entry, now) };
                        self.desk.ledger.fail_task(entry.id, &error, again).await?;
                    }
                }
            }
        }
        self.desk.ledger.finish_tasks(&finished).await?;
        Ok(Turn { taken, refunds })
    }

    async fn remember(&mut self, entry: &OutboxEntry) -> PortResult<()> {
        let (Task::Release { lot, .. } | Task::Reserve { lot, .. }) = &entry.task else { return Ok(()) };
        if !self.shards.contains_key(lot) {
            if self.shards.len() >= LOTS_MAX {
                self.shards.clear();
            }
            let activity = self.desk.ledger.activity(lot.activity).await?;
            let product = activity.iter().flat_map(|activity| &activity.products).find(|product| product.lot == *lot);
            self.shards.insert(*lot, product.map_or(1, |product| product.shards));
        }
        Ok(())
    }

    /// Where a task's buyer is.
    fn shard(&self, entry: &OutboxEntry) -> Option<Shard> {
        let (lot, user) = match &entry.task {
            Task::Release { lot, release } => (lot, &release.user),
            Task::Reserve { lot, user, .. } => (lot, user),
            Task::Refund { .. } => return None,
        };
        Some(Shard::of(*lot, user, self.shards.get(lot).copied().unwrap_or(1)))
    }

    /// The epoch in force in each shard that `entries` are about, 0 for none.
    async fn in_force(&self, entries: &[OutboxEntry]) -> BTreeMap<Shard, u32> {
        let mut epochs = BTreeMap::new();
        for shard in entries.iter().filter_map(|entry| self.shard(entry)) {
            if let Entry::Vacant(unknown) = epochs.entry(shard) {
                // A store that is away is found out by the attempts, which say so for each task.
                let sale = self.desk.admission.stock(shard).await.ok().flatten();
                unknown.insert(sale.map_or(0, |sale| sale.at.epoch));
            }
        }
        epochs
    }

    /// The ledger's epoch of each lot that `entries` are about and that is not over.
    async fn on_sale(&self, entries: &[OutboxEntry]) -> PortResult<BTreeMap<Lot, u32>> {
        let lots: BTreeSet<Lot> = entries.iter().filter_map(|entry| self.shard(entry)).map(|shard| shard.lot).collect();
        let mut epochs = BTreeMap::new();
        for lot in lots {
            let activity = self.desk.ledger.activity(lot.activity).await?;
            let record = activity.iter().flat_map(|activity| &activity.products).find(|record| record.lot == lot);
            let selling = |record: &&LotRecord| matches!(record.state, ActivityState::Published | ActivityState::Closing);
            epochs.extend(record.filter(selling).map(|record| (lot, record.epoch)));
        }
        Ok(epochs)
    }

    /// Whether the store will not forget what it was told. The terms of a new epoch are counted in the ledger before they are
    /// in force: what the sale that they replace is told meanwhile is neither in them nor kept. So the sale that was `told`
    /// has to be of the epoch that the ledger names afterwards.
    fn will_last(&self, entry: &OutboxEntry, told: &BTreeMap<Shard, u32>, sold: &BTreeMap<Lot, u32>) -> bool {
        let Some(shard) = self.shard(entry) else { return true };
        sold.get(&shard.lot).is_none_or(|epoch| told.get(&shard) == Some(epoch))
    }

    async fn attempt(&self, entry: &OutboxEntry) -> Done {
        let Some(shard) = self.shard(entry) else { return Done::Yes };
        let done = match &entry.task {
            Task::Release { release, .. } => self.release(shard, release).await,
            Task::Reserve { user, reservation, .. } => self.reserve(shard, user, reservation).await,
            Task::Refund { .. } => return Done::Yes,
        };
        match done {
            Ok(done) => done,
            Err(error) => {
                self.desk.failed(&error);
                Done::Not { error: health::chain(&error), away: is_away(&error) }
            }
        }
    }

    async fn release(&self, shard: Shard, release: &Release) -> PortResult<Done> {
        if let Some(at) = self.desk.admission.release(shard, release).await? {
            self.desk.returned(shard, at).await;
        }
        self.desk.conclude(&release.reservation.order_no).await?;
        Ok(Done::Yes)
    }

    async fn reserve(&self, shard: Shard, user: &PrincipalId, reservation: &Reservation) -> PortResult<Done> {
        let mut reserved = self.desk.admission.reserve(shard, user, reservation).await?;
        if reserved == Reserved::NoUnits && self.fetch(shard, reservation).await? {
            reserved = self.desk.admission.reserve(shard, user, reservation).await?;
        }
        // Whatever the admission store has room for, the order is live.
        self.desk.conclude(&reservation.order_no).await?;
        let error = match reserved {
            Reserved::Held | Reserved::NoSale => return Ok(Done::Yes),
            Reserved::Taken => "the buyer holds another order in the admission store",
            Reserved::NoUnits => "the admission store has no units for a revived order",
        };
        Ok(Done::Not { error: error.to_owned(), away: false })
    }

    /// Brings units for a revived order from the other shards of its lot; says whether any came. The transfers are named after
    /// the order and its revision, so doing it again moves nothing twice.
    async fn fetch(&self, to: Shard, Reservation { qty, order_no, revision }: &Reservation) -> PortResult<bool> {
        let count = self.shards.get(&to.lot).copied().unwrap_or(1);
        let (mut missing, mut came) = (*qty, false);
        for from in Shard::all(to.lot, count).filter(|from| *from != to) {
            let Some(sale) = self.desk.admission.stock(to).await? else { return Ok(false) };
            missing = missing.min(qty.saturating_sub(sale.left));
            if missing == 0 {
                break;
            }
            let id = format!("{order_no}:{revision}:{}", from.index);
            let units = self.desk.admission.send(from, &id, to.index, missing).await?;
            if units > 0 && self.desk.admission.receive(to, sale.at.epoch, &id, units).await? {
                came = true;
            }
        }
        Ok(came)
    }
}

/// The step for refunds.
pub(super) struct Payback {
    desk: Desk,
    refunds: Refunds,
}

impl Payback {
    /// Sends by `refunds`.
    pub(super) fn new(desk: Desk, refunds: Refunds) -> Self {
        Self { desk, refunds }
    }

    /// One attempt at a refund, and what follows from it.
    pub(super) async fn send(&self, entry: &OutboxEntry, now: UnixMillis) -> PortResult<()> {
        let Task::Refund { order_no, pay_no, amount_cents } = &entry.task else { return Ok(()) };
        let count = |outcome| self.desk.metrics.refunds.with_label_values(&[outcome]).inc();
        let (error, again) = match self.refunds.send(order_no, pay_no, *amount_cents).await {
            Refund::Sent => {
                count("sent");
                return self.desk.ledger.finish_tasks(&[entry.id]).await;
            }
            Refund::Failed(error) => (error, again(entry, now)),
            Refund::Nowhere => {
                let error = "payments.refund_url is not set: send the money back by hand and discard, or set it and retry";
                (error.to_owned(), None)
            }
        };
        count(if again.is_some() { "failed" } else { "given_up" });
        tracing::warn!(%order_no, %pay_no, error, attempts = entry.attempts, given_up = again.is_none(), "a refund was not sent");
        self.desk.ledger.fail_task(entry.id, &error, again).await
    }

    /// There is no room for it now.
    pub(super) async fn put_off(&self, entry: &OutboxEntry, now: UnixMillis) -> PortResult<()> {
        self.desk.ledger.fail_task(entry.id, "too many refunds are under way", Some(now.plus(PUT_OFF))).await
    }
}

fn again(entry: &OutboxEntry, now: UnixMillis) -> Option<UnixMillis> {
    (entry.attempts < ATTEMPTS_MAX).then(|| now.plus(retry_after(entry.attempts)))
}

fn is_away(error: &PortError) -> bool {
    error.kind == PortErrorKind::Unavailable
}
