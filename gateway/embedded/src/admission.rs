//! [`Admission`] in memory: the sale model of core per shard, and a log of order events with claims.
//!
//! Bounds: a shard's log holds what was admitted and not yet acknowledged, so never more than the units put on sale; a
//! retired shard is forgotten after seven days; results are kept for seven days and at most [`RESULTS_MAX`]. Called through
//! the port; what follows it here ([`EmbeddedAdmission::snapshot`] and the like) lets tests do what happens to real stores.

mod log;
mod results;

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::id::{OrderNo, PrincipalId};
use gateway_core::ports::{Admission, Installed, PortResult, Store};
use gateway_core::sale::{
    Admit, ClaimedEvent, Held, OrderEvent, OrderResult, Release, Reservation, Reserved, Sale, SaleAttempt, SaleState, SaleStock, SaleTerms,
    Shard, StockVersion, Survey,
};
use gateway_core::time::UnixMillis;
use log::Log;
pub use results::RESULTS_MAX;
use results::Results;

use crate::{Clock, lock, too_many};

/// How long another consumer's event stays unacknowledged before it is handed out again, unless told otherwise.
pub const CLAIM_IDLE: Duration = Duration::from_secs(15);

/// The port's bound on one call.
const ATTEMPTS_MAX: usize = 64;

/// How long a retired shard is kept: the port's promise.
const RETIRED_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Stock, buyers and order events in memory.
pub struct EmbeddedAdmission {
    clock: Clock,
    claim_idle: Duration,
    rooms: Mutex<Rooms>,
}

/// Everything the store holds, as it was at one instant; see [`EmbeddedAdmission::snapshot`].
#[derive(Clone, Default)]
pub struct Snapshot {
    shards: HashMap<Shard, Room>,
    results: Results,
}

struct Rooms {
    /// Named after the first instant of this life of the store.
    incarnation: String,
    /// How often older data came back.
    restored: u64,
    /// Given to the latest event. It never goes back, as real logs number by the clock.
    last_event: u64,
    data: Snapshot,
}

#[derive(Clone)]
struct Room {
    sale: Sale,
    log: Log,
    /// The store's incarnation when the sale was installed.
    incarnation: String,
    forget_at: Option<UnixMillis>,
}

impl EmbeddedAdmission {
    /// An empty store that judges windows by `clock` and hands abandoned events out again after [`CLAIM_IDLE`].
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let incarnation = format!("embedded-{}", clock().0);
        let rooms = Rooms { incarnation, restored: 0, last_event: 0, data: Snapshot::default() };
        Self { clock, claim_idle: CLAIM_IDLE, rooms: Mutex::new(rooms) }
    }

    /// The same with another idle time.
    #[must_use]
    pub fn with_claim_idle(self, claim_idle: Duration) -> Self {
        Self { claim_idle, ..self }
    }

    /// For tests: what a replica has that has just caught up.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.rooms).data.clone()
    }

    /// For tests: a failover to a replica that last caught up when `snapshot` was taken. What came after is lost, and the
    /// incarnation is another.
    pub fn restore(&self, snapshot: Snapshot) {
        let mut rooms = lock(&self.rooms);
        rooms.restored += 1;
        rooms.incarnation = format!("embedded-{}-{}", (self.clock)().0, rooms.restored);
        rooms.data = snapshot;
    }

    /// For tests: an operator empties the store. Its incarnation stays what it is.
    pub fn flush(&self) {
        lock(&self.rooms).data = Snapshot::default();
    }

    /// For tests: somebody writes an entry into the shard's log that is no order event. Without a sale nothing happens.
    pub fn poison(&self, shard: Shard, raw: &str, names: Option<(PrincipalId, OrderNo)>) {
        self.step(shard, |room, last_event| {
            *last_event += 1;
            room.log.append(*last_event, ClaimedEvent::Poison { id: last_event.to_string(), raw: raw.to_owned(), names });
        });
    }

    /// One step on the shard's room, or `None` when no sale was ever installed.
    fn step<T>(&self, shard: Shard, step: impl FnOnce(&mut Room, &mut u64) -> T) -> Option<T> {
        let Rooms { last_event, data, .. } = &mut *lock(&self.rooms);
        let room = data.shards.get_mut(&shard)?;
        if room.forget_at.is_some_and(|at| at <= (self.clock)()) {
            data.shards.remove(&shard);
            return None;
        }
        Some(step(room, last_event))
    }
}

impl Room {
    fn stock(&self) -> SaleStock {
        let Self { sale, incarnation, .. } = self;
        SaleStock { state: sale.state(), left: sale.left(), at: sale.at(), incarnation: incarnation.clone() }
    }
}

#[async_trait]
impl Admission for EmbeddedAdmission {
    async fn admit(&self, shard: Shard, attempts: &[SaleAttempt]) -> PortResult<Vec<Admit>> {
        if attempts.len() > ATTEMPTS_MAX {
            return Err(too_many(Store::Redis, "admit attempts"));
        }
        let now = (self.clock)();
        let judged = self.step(shard, |room, last_event| {
            let judge = |attempt: &SaleAttempt| {
                let answer = room.sale.admit(attempt, now);
                if answer == Admit::Admitted {
                    *last_event += 1;
                    let SaleAttempt { user, qty, order_no, generation } = attempt.clone();
                    let epoch = room.sale.at().epoch;
                    let event = OrderEvent { id: last_event.to_string(), order_no, user, qty, epoch, generation };
                    room.log.append(*last_event, ClaimedEvent::Order(event));
                }
                answer
            };
            attempts.iter().map(judge).collect()
        });
        Ok(judged.unwrap_or_else(|| vec![Admit::NotReady; attempts.len()]))
    }

    async fn held(&self, shard: Shard, user: &PrincipalId) -> PortResult<Option<Held>> {
        Ok(self.step(shard, |room, _| room.sale.held(user).cloned()).flatten())
    }

    async fn install(&self, shard: Shard, terms: &SaleTerms) -> PortResult<Installed> {
        let mut rooms = lock(&self.rooms);
        let incarnation = rooms.incarnation.clone();
        if let Some(room) = rooms.data.shards.get_mut(&shard) {
            if terms.epoch <= room.sale.at().epoch {
                return Ok(Installed::Stale);
            }
            *room = Room { sale: Sale::new(terms), log: std::mem::take(&mut room.log), incarnation, forget_at: None };
        } else {
            rooms.data.shards.insert(shard, Room { sale: Sale::new(terms), log: Log::default(), incarnation, forget_at: None });
        }
        Ok(Installed::Yes)
    }

    async fn set_state(&self, shard: Shard, epoch: u32, state: SaleState) -> PortResult<bool> {
        Ok(self.step(shard, |room, _| room.sale.set_state(epoch, state)).unwrap_or(false))
    }

    async fn stock(&self, shard: Shard) -> PortResult<Option<SaleStock>> {
        Ok(self.step(shard, |room, _| room.stock()))
    }

    async fn release(&self, shard: Shard, release: &Release) -> PortResult<Option<StockVersion>> {
        Ok(self.step(shard, |room, _| room.sale.release(release)).flatten())
    }

    async fn refuse(&self, shard: Shard, consumer: &str, id: &str, release: &Release) -> PortResult<Option<StockVersion>> {
        let refused = self.step(shard, |room, _| if room.log.take(consumer, id) { room.sale.release(release) } else { None });
        Ok(refused.flatten())
    }

    async fn reserve(&self, shard: Shard, user: &PrincipalId, reservation: &Reservation) -> PortResult<Reserved> {
        Ok(self.step(shard, |room, _| room.sale.reserve(user, reservation)).unwrap_or(Reserved::NoSale))
    }

    async fn send(&self, from: Shard, id: &str, to: u8, wanted: u32) -> PortResult<u32> {
        Ok(self.step(from, |room, _| room.sale.send(id, to, wanted)).unwrap_or(0))
    }

    async fn receive(&self, to: Shard, epoch: u32, id: &str, units: u32) -> PortResult<bool> {
        Ok(self.step(to, |room, _| room.sale.at().epoch == epoch && room.sale.receive(id, units)).unwrap_or(false))
    }

    async fn survey(&self, shard: Shard) -> PortResult<Option<Survey>> {
        Ok(self.step(shard, |room, _| Survey {
            stock: room.stock(),
            buyers: room.sale.buyers().map(|(user, held)| (user.clone(), held.clone())).collect(),
            sent: room.sale.sent().cloned().collect(),
            received: room.sale.received().map(str::to_owned).collect(),
        }))
    }

    async fn retire(&self, shard: Shard, epoch: u32) -> PortResult<bool> {
        let forget_at = (self.clock)().plus(RETIRED_FOR);
        let retired = self.step(shard, |room, _| {
            let over = room.sale.at().epoch == epoch && room.sale.state() == SaleState::Closed;
            if over {
                room.forget_at = Some(forget_at);
            }
            over
        });
        Ok(retired.unwrap_or(false))
    }

    async fn claim(&self, shard: Shard, consumer: &str, max: usize) -> PortResult<Vec<ClaimedEvent>> {
        let now = (self.clock)();
        Ok(self.step(shard, |room, _| room.log.claim(consumer, max, now, self.claim_idle)).unwrap_or_default())
    }

    async fn acknowledge(&self, shard: Shard, ids: &[String]) -> PortResult<()> {
        self.step(shard, |room, _| room.log.acknowledge(ids));
        Ok(())
    }

    async fn backlog(&self, shard: Shard) -> PortResult<u64> {
        Ok(self.step(shard, |room, _| room.log.len()).unwrap_or(0))
    }

    async fn put_results(&self, results: &[(OrderNo, OrderResult)]) -> PortResult<()> {
        let now = (self.clock)();
        let mut rooms = lock(&self.rooms);
        for (order_no, result) in results {
            rooms.data.results.put(order_no, result, now);
        }
        Ok(())
    }

    async fn result(&self, order_no: &OrderNo) -> PortResult<Option<OrderResult>> {
        Ok(lock(&self.rooms).data.results.get(order_no, (self.clock)()))
    }

    async fn incarnation(&self, _shard: Shard) -> PortResult<String> {
        Ok(lock(&self.rooms).incarnation.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use gateway_core::id::{ActivityId, Lot, SkuId};

    use super::*;

    const SHARD: Shard = Shard { lot: Lot { activity: ActivityId(1), sku: SkuId(2) }, index: 0 };

    fn terms(epoch: u32) -> SaleTerms {
        SaleTerms { epoch, start: UnixMillis(0), end: UnixMillis(1_000), per_user: 1, left: 5, buyers: Vec::new() }
    }

    fn order_no(n: u8) -> OrderNo {
        OrderNo::parse(&format!("SK{}", char::from(b'A' + n).to_string().repeat(16))).expect("valid")
    }

    fn attempt(n: u8) -> SaleAttempt {
        let user = PrincipalId::parse(&format!("u{n}")).expect("valid");
        SaleAttempt { user, qty: 1, order_no: order_no(n), generation: 0 }
    }

    #[tokio::test]
    async fn a_restored_snapshot_is_older_consistent_and_another_life() {
        let store = EmbeddedAdmission::new(Arc::new(|| UnixMillis(1)));
        store.install(SHARD, &terms(1)).await.expect("install");
        store.admit(SHARD, &[attempt(1)]).await.expect("admit");
        let (replica, life) = (store.snapshot(), store.incarnation(SHARD).await.expect("incarnation"));
        store.admit(SHARD, &[attempt(2), attempt(3)]).await.expect("admit");
        store.restore(replica);
        assert_ne!(store.incarnation(SHARD).await.expect("incarnation"), life);
        let survey = store.survey(SHARD).await.expect("survey").expect("in force");
        assert_eq!((survey.stock.left, survey.buyers.len(), store.backlog(SHARD).await.expect("backlog")), (4, 1, 1));
        assert_eq!(survey.stock.incarnation, life, "the sale was installed in the life before");
        store.admit(SHARD, &[attempt(4)]).await.expect("admit");
        store.acknowledge(SHARD, &["2".to_owned(), "3".to_owned()]).await.expect("acknowledge");
        assert_eq!(store.backlog(SHARD).await.expect("backlog"), 2, "ids of lost events are not used again");
        store.flush();
        assert_eq!(store.stock(SHARD).await.expect("stock"), None);
    }

    #[tokio::test]
    async fn a_retired_shard_is_forgotten_after_seven_days() {
        let now = Arc::new(AtomicU64::new(1));
        let hand = Arc::clone(&now);
        let store = EmbeddedAdmission::new(Arc::new(move || UnixMillis(hand.load(Ordering::Relaxed))));
        store.install(SHARD, &terms(1)).await.expect("install");
        assert!(store.set_state(SHARD, 1, SaleState::Closed).await.expect("set state"));
        assert!(store.retire(SHARD, 1).await.expect("retire"));
        let end = UnixMillis(1).plus(RETIRED_FOR).0;
        now.store(end - 1, Ordering::Relaxed);
        assert!(store.stock(SHARD).await.expect("stock").is_some());
        now.store(end, Ordering::Relaxed);
        assert_eq!(store.stock(SHARD).await.expect("stock"), None);
        assert!(lock(&store.rooms).data.shards.is_empty());
    }
}
