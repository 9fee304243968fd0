//! [`Admission`] in memory: the sale model of core, and a log of order events with claims.
//!
//! Bounds: a lot's log holds what was admitted and not yet acknowledged, so never more than the units put on sale;
//! results are kept for seven days and at most [`RESULTS_MAX`]. Called through the port only.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::id::{Lot, OrderNo, PrincipalId};
use gateway_core::ports::{Admission, Installed, PortResult, Store};
use gateway_core::sale::{Admit, ClaimedEvent, OrderEvent, OrderResult, Reservation, Sale, SaleAttempt, SaleState, SaleStock, SaleTerms};
use gateway_core::time::UnixMillis;

use crate::{Clock, lock, too_many};

/// How long another consumer's event stays unacknowledged before it is handed out again, unless told otherwise.
pub const CLAIM_IDLE: Duration = Duration::from_secs(15);

/// Results kept at most; the oldest go first. About 200 bytes each.
pub const RESULTS_MAX: usize = 1_000_000;

/// The port's bound on one call.
const ATTEMPTS_MAX: usize = 64;

/// The port's promise.
const RESULT_TTL: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Stock, buyers and order events in memory.
pub struct EmbeddedAdmission {
    clock: Clock,
    claim_idle: Duration,
    /// Drawn once: this store never comes back with older data, it comes back empty.
    incarnation: String,
    lots: Mutex<HashMap<Lot, LotRoom>>,
    results: Mutex<Results>,
}

struct LotRoom {
    sale: Sale,
    log: Log,
}

impl EmbeddedAdmission {
    /// An empty store that judges windows by `clock` and hands abandoned events out again after [`CLAIM_IDLE`].
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let incarnation = format!("embedded-{}", clock().0);
        Self { clock, claim_idle: CLAIM_IDLE, incarnation, lots: Mutex::default(), results: Mutex::default() }
    }

    /// The same with another idle time.
    #[must_use]
    pub fn with_claim_idle(self, claim_idle: Duration) -> Self {
        Self { claim_idle, ..self }
    }

    /// One step on the lot's room, or `None` when no sale was ever installed.
    fn step<T>(&self, lot: Lot, step: impl FnOnce(&mut LotRoom) -> T) -> Option<T> {
        lock(&self.lots).get_mut(&lot).map(step)
    }
}

#[async_trait]
impl Admission for EmbeddedAdmission {
    async fn admit(&self, lot: Lot, attempts: &[SaleAttempt]) -> PortResult<Vec<Admit>> {
        if attempts.len() > ATTEMPTS_MAX {
            return Err(too_many(Store::Redis, "admit attempts"));
        }
        let now = (self.clock)();
        let judged = self.step(lot, |room| {
            let judge = |attempt: &SaleAttempt| {
                let answer = room.sale.admit(attempt, now);
                if answer == Admit::Admitted {
                    room.log.append(attempt, room.sale.epoch());
                }
                answer
            };
            attempts.iter().map(judge).collect()
        });
        Ok(judged.unwrap_or_else(|| vec![Admit::NotReady; attempts.len()]))
    }

    async fn reservation(&self, lot: Lot, user: &PrincipalId) -> PortResult<Option<Reservation>> {
        Ok(self.step(lot, |room| room.sale.reservation(user).cloned()).flatten())
    }

    async fn install(&self, lot: Lot, terms: &SaleTerms) -> PortResult<Installed> {
        let mut lots = lock(&self.lots);
        if let Some(room) = lots.get_mut(&lot) {
            if terms.epoch <= room.sale.epoch() {
                return Ok(Installed::Stale);
            }
            room.sale = Sale::new(terms);
        } else {
            lots.insert(lot, LotRoom { sale: Sale::new(terms), log: Log::default() });
        }
        Ok(Installed::Yes)
    }

    async fn set_state(&self, lot: Lot, epoch: u32, state: SaleState) -> PortResult<bool> {
        Ok(self.step(lot, |room| room.sale.set_state(epoch, state)).unwrap_or(false))
    }

    async fn stock(&self, lot: Lot) -> PortResult<Option<SaleStock>> {
        Ok(self.step(lot, |LotRoom { sale, .. }| SaleStock {
            epoch: sale.epoch(),
            state: sale.state(),
            left: sale.left(),
            incarnation: self.incarnation.clone(),
        }))
    }

    async fn release(&self, lot: Lot, epoch: u32, user: &PrincipalId, reservation: &Reservation) -> PortResult<bool> {
        Ok(self.step(lot, |room| room.sale.release(epoch, user, reservation)).unwrap_or(false))
    }

    async fn claim(&self, lot: Lot, consumer: &str, max: usize) -> PortResult<Vec<ClaimedEvent>> {
        let now = (self.clock)();
        Ok(self.step(lot, |room| room.log.claim(consumer, max, now, self.claim_idle)).unwrap_or_default())
    }

    async fn acknowledge(&self, lot: Lot, ids: &[String]) -> PortResult<()> {
        self.step(lot, |room| room.log.acknowledge(ids));
        Ok(())
    }

    async fn backlog(&self, lot: Lot) -> PortResult<u64> {
        Ok(self.step(lot, |room| room.log.entries.len() as u64).unwrap_or(0))
    }

    async fn put_results(&self, results: &[(OrderNo, OrderResult)]) -> PortResult<()> {
        let now = (self.clock)();
        let mut kept = lock(&self.results);
        for (order_no, result) in results {
            kept.put(order_no, result, now);
        }
        Ok(())
    }

    async fn result(&self, order_no: &OrderNo) -> PortResult<Option<OrderResult>> {
        Ok(lock(&self.results).get(order_no, (self.clock)()))
    }

    async fn incarnation(&self) -> PortResult<String> {
        Ok(self.incarnation.clone())
    }
}

/// Order events of one lot, oldest first, until they are acknowledged.
#[derive(Default)]
struct Log {
    last_id: u64,
    entries: BTreeMap<u64, Entry>,
}

struct Entry {
    event: OrderEvent,
    claim: Option<Claim>,
}

struct Claim {
    consumer: String,
    at: UnixMillis,
}

impl Log {
    fn append(&mut self, attempt: &SaleAttempt, epoch: u32) {
        self.last_id += 1;
        let SaleAttempt { user, qty, order_no } = attempt.clone();
        let event = OrderEvent { id: self.last_id.to_string(), order_no, user, qty, epoch };
        self.entries.insert(self.last_id, Entry { event, claim: None });
    }

    /// The consumer's own events, then abandoned ones, then new ones; each group oldest first.
    fn claim(&mut self, consumer: &str, max: usize, now: UnixMillis, idle: Duration) -> Vec<ClaimedEvent> {
        let group = |claim: &Option<Claim>| match claim {
            Some(claim) if claim.consumer == consumer => Some(0),
            Some(claim) if now.since(claim.at) > idle => Some(1),
            Some(_) => None,
            None => Some(2),
        };
        let mut due: Vec<(u8, u64)> = self.entries.iter().filter_map(|(&id, entry)| group(&entry.claim).map(|group| (group, id))).collect();
        due.sort_unstable();
        due.truncate(max);
        let hand_out = |(_, id): &(u8, u64)| {
            let entry = self.entries.get_mut(id)?;
            entry.claim = Some(Claim { consumer: consumer.to_owned(), at: now });
            Some(ClaimedEvent::Order(entry.event.clone()))
        };
        due.iter().filter_map(hand_out).collect()
    }

    fn acknowledge(&mut self, ids: &[String]) {
        for id in ids.iter().filter_map(|id| id.parse().ok()) {
            self.entries.remove(&id);
        }
    }
}

/// Final results, each for seven days.
#[derive(Default)]
struct Results {
    by_order: HashMap<OrderNo, (OrderResult, UnixMillis)>,
    /// Expiry of each write; all live equally long, so the front expires first.
    expiries: VecDeque<(UnixMillis, OrderNo)>,
}

impl Results {
    fn put(&mut self, order_no: &OrderNo, result: &OrderResult, now: UnixMillis) {
        let expiry = now.plus(RESULT_TTL);
        self.by_order.insert(order_no.clone(), (result.clone(), expiry));
        self.expiries.push_back((expiry, order_no.clone()));
        while self.expiries.len() > RESULTS_MAX || self.expiries.front().is_some_and(|(expiry, _)| *expiry <= now) {
            let Some((expiry, oldest)) = self.expiries.pop_front() else { break };
            // A result written again has a later expiry and stays.
            if self.by_order.get(&oldest).is_some_and(|(_, kept)| *kept == expiry) {
                self.by_order.remove(&oldest);
            }
        }
    }

    fn get(&self, order_no: &OrderNo, now: UnixMillis) -> Option<OrderResult> {
        self.by_order.get(order_no).filter(|(_, expiry)| *expiry > now).map(|(result, _)| result.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_no(letter: char) -> OrderNo {
        OrderNo::parse(&format!("SK{}", letter.to_string().repeat(16))).expect("valid")
    }

    fn success() -> OrderResult {
        OrderResult::Success { user: PrincipalId::parse("u").expect("valid") }
    }

    #[test]
    fn a_result_lives_for_seven_days_after_its_last_writing() {
        let mut results = Results::default();
        results.put(&order_no('A'), &success(), UnixMillis(0));
        results.put(&order_no('B'), &success(), UnixMillis(0));
        results.put(&order_no('A'), &success(), UnixMillis(1_000));
        let first_end = UnixMillis(0).plus(RESULT_TTL);
        assert_eq!(results.get(&order_no('B'), UnixMillis(first_end.0 - 1)), Some(success()));
        assert_eq!(results.get(&order_no('B'), first_end), None);
        results.put(&order_no('C'), &success(), first_end);
        assert_eq!(results.get(&order_no('A'), first_end), Some(success()), "written again later");
        assert_eq!((results.by_order.len(), results.expiries.len()), (2, 2), "what expired is forgotten");
    }
}
