//! The rule by which an attempt is admitted: the model that every admission store must agree with, step by step.
//!
//! What lives here: one sale in force for one shard (terms, state, stock, buyers) and the steps that change it. What never
//! happens here: reading a clock, logging the order event (the store does both in the same atomic step). Called by the
//! embedded store; the Redis scripts are its twin.

use std::collections::BTreeMap;

use crate::id::PrincipalId;
use crate::sale::{Admit, Held, Release, Reservation, Reserved, SaleAttempt, SaleState, SaleTerms, StockVersion, Transfer};
use crate::time::UnixMillis;

/// Transfers a shard takes part in per epoch: each moves half of what a donor has, so a handful is usual. Beyond it a shard
/// lends and borrows no more, and units may be left over; a new epoch counts anew.
pub const TRANSFERS_MAX: usize = 1_000;

/// The sale in force for one shard.
///
/// Units are never made or lost between two installations: what is left, what buyers hold and what was sent away, less
/// what was received, always add up to the stock the terms brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sale {
    at: StockVersion,
    state: SaleState,
    start: UnixMillis,
    end: UnixMillis,
    per_user: u32,
    left: u32,
    buyers: BTreeMap<PrincipalId, Held>,
    sent: BTreeMap<String, Transfer>,
    received: BTreeMap<String, u32>,
    /// Sum of the buyers' units, kept so that the invariant costs one addition to check.
    reserved: u64,
    /// `left + reserved + sent - received` when the terms were installed, and ever since.
    stock: u64,
}

impl Sale {
    /// Puts `terms` in force, open. Where they name a buyer twice the last entry counts.
    #[must_use]
    pub fn new(terms: &SaleTerms) -> Self {
        let buyers: BTreeMap<_, _> = terms.buyers.iter().cloned().collect();
        let reserved = buyers.values().map(Held::units).sum();
        let SaleTerms { epoch, start, end, per_user, left, buyers: _ } = *terms;
        Self {
            at: StockVersion { epoch, returns: 0 },
            state: SaleState::Open,
            start,
            end,
            per_user,
            left,
            buyers,
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            reserved,
            stock: u64::from(left) + reserved,
        }
    }

    /// The epoch the terms were installed under, and how often units came back since.
    #[must_use]
    pub fn at(&self) -> StockVersion {
        self.at
    }

    /// Whether attempts are judged, put off or turned away.
    #[must_use]
    pub fn state(&self) -> SaleState {
        self.state
    }

    /// Units left.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// What is known of `user`.
    #[must_use]
    pub fn held(&self, user: &PrincipalId) -> Option<&Held> {
        self.buyers.get(user)
    }

    /// What is known of every user, in order.
    pub fn buyers(&self) -> impl Iterator<Item = (&PrincipalId, &Held)> {
        self.buyers.iter()
    }

    /// What was sent away in this epoch.
    pub fn sent(&self) -> impl Iterator<Item = &Transfer> {
        self.sent.values()
    }

    /// Ids of what was received in this epoch.
    pub fn received(&self) -> impl Iterator<Item = &str> {
        self.received.keys().map(String::as_str)
    }

    /// Judges one attempt at `now`; only [`Admit::Admitted`] changes anything.
    ///
    /// A buyer's own reservation comes before every refusal, so the winner's retry never hears "sold out". The window is
    /// half open: `start` is in, `end` is out. Who bought before and had the order closed is told the generation only when
    /// everything else allows the purchase.
    pub fn admit(&mut self, attempt: &SaleAttempt, now: UnixMillis) -> Admit {
        let generation = match self.buyers.get(&attempt.user) {
            Some(Held::Reserved(held)) => return Admit::Replayed(held.clone()),
            Some(Held::Released { generation }) => *generation,
            None => 0,
        };
        match self.state {
            SaleState::Paused => return Admit::NotReady,
            SaleState::Closed => return Admit::Ended,
            SaleState::Open if now < self.start => return Admit::NotStarted,
            SaleState::Open if now >= self.end => return Admit::Ended,
            SaleState::Open => {}
        }
        if attempt.qty > self.per_user {
            return Admit::LimitExceeded;
        }
        let Some(left) = self.left.checked_sub(attempt.qty) else { return Admit::SoldOut { left: self.left, at: self.at } };
        if attempt.generation != generation {
            return Admit::Again { generation };
        }
        self.left = left;
        self.hold(&attempt.user, Reservation { qty: attempt.qty, order_no: attempt.order_no.clone(), revision: 0 });
        self.check_invariants();
        Admit::Admitted
    }

    /// Gives a reservation back when exactly that is held, and under the epoch that is named if one is; says when that
    /// was. Doing it twice, late or after the stock was rebuilt is therefore harmless.
    pub fn release(&mut self, release: &Release) -> Option<StockVersion> {
        let Release { user, reservation, epoch, generation } = release;
        let held = self.buyers.get(user).and_then(Held::reservation);
        if epoch.is_some_and(|epoch| epoch != self.at.epoch) || held != Some(reservation) {
            return None;
        }
        match generation {
            0 => self.buyers.remove(user),
            generation => self.buyers.insert(user.clone(), Held::Released { generation: *generation }),
        };
        // The units came out of `left`, or out of the stock it was computed from, so they fit back into it.
        self.left += reservation.qty;
        self.reserved -= u64::from(reservation.qty);
        self.at.returns += 1;
        self.check_invariants();
        Some(self.at)
    }

    /// Gives a revived order its units again, whatever the window and the state. An earlier release of the same order
    /// that has not come yet finds another revision and does nothing.
    pub fn reserve(&mut self, user: &PrincipalId, reservation: &Reservation) -> Reserved {
        match self.buyers.get_mut(user) {
            Some(Held::Reserved(held)) if held.order_no != reservation.order_no => return Reserved::Taken,
            Some(Held::Reserved(held)) => {
                held.revision = held.revision.max(reservation.revision);
                return Reserved::Held;
            }
            Some(Held::Released { .. }) | None => {}
        }
        let Some(left) = self.left.checked_sub(reservation.qty) else { return Reserved::NoUnits };
        self.left = left;
        self.hold(user, reservation.clone());
        self.check_invariants();
        Reserved::Held
    }

    /// Sends at most `wanted` units to the shard `to` and says how many; the same `id` again says the same again.
    pub fn send(&mut self, id: &str, to: u8, wanted: u32) -> u32 {
        if let Some(sent) = self.sent.get(id) {
            return sent.units;
        }
        let units = if self.transfers() < TRANSFERS_MAX && self.state == SaleState::Open { wanted.min(self.left) } else { 0 };
        if units > 0 {
            self.left -= units;
            self.sent.insert(id.to_owned(), Transfer { id: id.to_owned(), to, units });
            self.check_invariants();
        }
        units
    }

    /// Takes the units of a transfer in, once per `id`; says whether it did.
    pub fn receive(&mut self, id: &str, units: u32) -> bool {
        if self.received.contains_key(id) {
            return false;
        }
        self.received.insert(id.to_owned(), units);
        self.left += units;
        self.at.returns += 1;
        self.check_invariants();
        true
    }

    /// Sets the state when `epoch` is the one in force; says whether it was.
    pub fn set_state(&mut self, epoch: u32, state: SaleState) -> bool {
        if epoch == self.at.epoch {
            self.state = state;
        }
        epoch == self.at.epoch
    }

    fn transfers(&self) -> usize {
        self.sent.len() + self.received.len()
    }

    fn hold(&mut self, user: &PrincipalId, reservation: Reservation) {
        self.reserved += u64::from(reservation.qty);
        self.buyers.insert(user.clone(), Held::Reserved(reservation));
    }

    fn check_invariants(&self) {
        let sent: u64 = self.sent.values().map(|transfer| u64::from(transfer.units)).sum();
        let received: u64 = self.received.values().map(|units| u64::from(*units)).sum();
        debug_assert_eq!(u64::from(self.left) + self.reserved + sent, self.stock + received, "units appeared or vanished");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::OrderNo;

    const OPEN: UnixMillis = UnixMillis(1_500);

    fn sale(left: u32, per_user: u32) -> Sale {
        Sale::new(&SaleTerms { epoch: 1, start: UnixMillis(1_000), end: UnixMillis(2_000), per_user, left, buyers: vec![] })
    }

    fn user(n: u8) -> PrincipalId {
        PrincipalId::parse(&format!("u{n}")).expect("valid")
    }

    fn attempt(n: u8, qty: u32) -> SaleAttempt {
        again(n, qty, 0)
    }

    /// The number says whose order it is and of which generation.
    fn again(n: u8, qty: u32, generation: u16) -> SaleAttempt {
        let byte = n + 100 * generation as u8;
        SaleAttempt { user: user(n), qty, order_no: OrderNo::from_bits([byte; 10]), generation }
    }

    fn held(n: u8, qty: u32) -> Reservation {
        Reservation { qty, order_no: OrderNo::from_bits([n; 10]), revision: 0 }
    }

    fn release(epoch: u32, n: u8, reservation: Reservation) -> Release {
        Release { user: user(n), reservation, epoch: Some(epoch), generation: 0 }
    }

    fn sold_out(left: u32) -> Admit {
        Admit::SoldOut { left, at: StockVersion { epoch: 1, returns: 0 } }
    }

    #[test]
    fn the_window_is_half_open() {
        for (at, want) in [(999, Admit::NotStarted), (1_000, Admit::Admitted), (1_999, Admit::Admitted), (2_000, Admit::Ended)] {
            assert_eq!(sale(1, 1).admit(&attempt(1, 1), UnixMillis(at)), want, "at {at}");
        }
    }

    #[test]
    fn one_user_may_have_the_limit_and_no_more() {
        assert_eq!(sale(10, 3).admit(&attempt(1, 3), OPEN), Admit::Admitted);
        assert_eq!(sale(10, 3).admit(&attempt(1, 4), OPEN), Admit::LimitExceeded);
        assert_eq!(sale(0, 3).admit(&attempt(1, 4), OPEN), Admit::LimitExceeded, "the limit is looked at before the stock");
    }

    #[test]
    fn too_large_a_wish_leaves_the_rest_for_smaller_ones() {
        let mut sale = sale(2, 5);
        assert_eq!(sale.admit(&attempt(1, 3), OPEN), sold_out(2));
        assert_eq!(sale.left(), 2);
        assert_eq!(sale.admit(&attempt(1, 2), OPEN), Admit::Admitted);
        assert_eq!(sale.admit(&attempt(2, 1), OPEN), sold_out(0));
    }

    #[test]
    fn a_buyer_gets_the_same_reservation_whatever_has_happened_since() {
        let mut sale = sale(2, 2);
        assert_eq!(sale.admit(&attempt(1, 2), OPEN), Admit::Admitted);
        let replayed = Admit::Replayed(held(1, 2));
        assert_eq!(sale.admit(&attempt(1, 2), OPEN), replayed, "sold out");
        assert_eq!(sale.admit(&attempt(1, 9), OPEN), replayed, "another quantity beyond the limit");
        assert_eq!(sale.admit(&attempt(1, 1), UnixMillis(0)), replayed, "before the window");
        assert_eq!(sale.admit(&attempt(1, 1), UnixMillis(9_999)), replayed, "after the window");
        for state in [SaleState::Paused, SaleState::Closed] {
            assert!(sale.set_state(1, state));
            assert_eq!(sale.admit(&attempt(1, 1), OPEN), replayed, "{state:?}");
        }
    }

    #[test]
    fn a_paused_sale_is_not_ready_and_a_closed_one_has_ended() {
        let mut sale = sale(1, 1);
        assert!(sale.set_state(1, SaleState::Paused));
        assert_eq!(sale.admit(&attempt(1, 1), UnixMillis(0)), Admit::NotReady);
        assert!(sale.set_state(1, SaleState::Closed));
        assert_eq!(sale.admit(&attempt(1, 1), UnixMillis(0)), Admit::Ended);
        assert!(!sale.set_state(2, SaleState::Open), "another epoch");
        assert_eq!(sale.state(), SaleState::Closed);
    }

    #[test]
    fn a_release_gives_back_exactly_what_is_held_and_once() {
        let mut sale = sale(2, 2);
        assert_eq!(sale.admit(&attempt(1, 2), OPEN), Admit::Admitted);
        assert!(sale.release(&release(2, 1, held(1, 2))).is_none(), "another epoch");
        assert!(sale.release(&release(1, 1, held(1, 1))).is_none(), "another quantity");
        assert!(sale.release(&release(1, 1, held(2, 2))).is_none(), "another order");
        assert!(sale.release(&release(1, 2, held(1, 2))).is_none(), "another user");
        assert_eq!(sale.left(), 0);
        assert!(sale.release(&release(1, 1, held(1, 2))).is_some());
        assert!(sale.release(&release(1, 1, held(1, 2))).is_none(), "twice");
        assert_eq!(sale.left(), 2);
        assert_eq!(sale.admit(&attempt(1, 1), OPEN), Admit::Admitted, "the right to buy came back");
    }

    #[test]
    fn buyers_of_the_terms_hold_their_orders() {
        let terms = SaleTerms {
            epoch: 7,
            start: UnixMillis(0),
            end: UnixMillis(9_999),
            per_user: 1,
            left: 1,
            buyers: vec![(user(1), Held::Reserved(held(1, 1)))],
        };
        let mut sale = Sale::new(&terms);
        assert_eq!(sale.held(&user(1)), Some(&Held::Reserved(held(1, 1))));
        assert!(sale.release(&release(7, 1, held(1, 1))).is_some());
        assert_eq!(sale.left(), 2);
    }

    #[test]
    fn who_had_an_order_closed_buys_again_under_the_next_number() {
        let mut sale = sale(1, 1);
        assert_eq!(sale.admit(&attempt(1, 1), OPEN), Admit::Admitted);
        let closed = Release { epoch: None, generation: 1, ..release(1, 1, held(1, 1)) };
        assert_eq!(sale.release(&closed), Some(StockVersion { epoch: 1, returns: 1 }));
        assert_eq!(sale.release(&closed), None, "twice");
        assert_eq!(sale.admit(&attempt(1, 1), OPEN), Admit::Again { generation: 1 });
        assert_eq!(sale.admit(&attempt(1, 1), UnixMillis(0)), Admit::NotStarted, "a refusal needs no number");
        assert_eq!(sale.admit(&again(1, 1, 1), OPEN), Admit::Admitted);
        assert_eq!(sale.release(&closed), None, "the first order's release comes once more");
        assert_eq!(sale.admit(&attempt(2, 1), OPEN), Admit::SoldOut { left: 0, at: StockVersion { epoch: 1, returns: 1 } });
    }

    #[test]
    fn a_revived_order_takes_its_units_again_and_late_releases_pass_it_by() {
        let closed = Release { epoch: None, generation: 1, ..release(1, 1, held(1, 2)) };
        let revived = Reservation { revision: 2, ..held(1, 2) };
        // The release first, then the reservation; and the other way round.
        for release_first in [true, false] {
            let mut sale = sale(2, 2);
            assert_eq!(sale.admit(&attempt(1, 2), OPEN), Admit::Admitted);
            if release_first {
                assert!(sale.release(&closed).is_some());
            }
            assert_eq!(sale.reserve(&user(1), &revived), Reserved::Held);
            assert_eq!(sale.release(&closed), None);
            assert_eq!(sale.reserve(&user(1), &revived), Reserved::Held, "twice");
            assert_eq!((sale.left(), sale.held(&user(1))), (0, Some(&Held::Reserved(revived.clone()))));
        }
    }

    #[test]
    fn a_revived_order_waits_for_units_that_others_hold() {
        let mut sale = sale(2, 2);
        assert_eq!(sale.admit(&attempt(2, 2), OPEN), Admit::Admitted);
        assert_eq!(sale.reserve(&user(1), &held(1, 1)), Reserved::NoUnits);
        assert_eq!(sale.reserve(&user(2), &held(3, 1)), Reserved::Taken);
        assert!(sale.release(&release(1, 2, held(2, 2))).is_some());
        assert_eq!(sale.reserve(&user(1), &held(1, 1)), Reserved::Held);
    }

    #[test]
    fn units_travel_between_shards_once() {
        let (mut donor, mut receiver) = (sale(10, 5), sale(0, 5));
        assert_eq!((donor.send("t1", 1, 4), donor.send("t1", 1, 9)), (4, 4));
        assert_eq!((receiver.receive("t1", 4), receiver.receive("t1", 4)), (true, false));
        assert_eq!((donor.left(), receiver.left(), receiver.at().returns), (6, 4, 1));
        assert_eq!(donor.send("t2", 1, 99), 6);
        assert_eq!(donor.send("t3", 1, 1), 0, "nothing is left to send");
        assert_eq!(donor.sent().count(), 2);
        assert_eq!(receiver.received().collect::<Vec<_>>(), ["t1"]);
        assert!(receiver.set_state(1, SaleState::Closed));
        assert_eq!(receiver.send("t4", 0, 1), 0, "a closed sale keeps what it has");
    }

    proptest! {
        /// Every interleaving of admissions and releases: one reservation per user, units constant, never oversold.
        #[test]
        fn units_are_conserved(stock in 0_u32..20, per_user in 1_u32..5, steps in prop::collection::vec((0_u8..8, 1_u32..7, any::<bool>(), 900_u64..2_100), 0..200)) {
            let mut sale = sale(stock, per_user);
            let mut owned: BTreeMap<PrincipalId, Reservation> = BTreeMap::new();
            for (who, qty, give_back, at) in steps {
                if give_back {
                    let claim = owned.get(&user(who)).cloned().unwrap_or_else(|| held(who, qty));
                    prop_assert_eq!(sale.release(&release(1, who, claim)).is_some(), owned.remove(&user(who)).is_some());
                } else {
                    match sale.admit(&attempt(who, qty), UnixMillis(at)) {
                        Admit::Admitted => {
                            prop_assert!((1_000..2_000).contains(&at) && qty <= per_user);
                            prop_assert_eq!(owned.insert(user(who), held(who, qty)), None, "a second reservation");
                        }
                        Admit::Replayed(same) => prop_assert_eq!(Some(&same), owned.get(&user(who))),
                        Admit::SoldOut { left, .. } => prop_assert!(left < qty && left == sale.left()),
                        Admit::Again { .. } => prop_assert!(false, "nobody has a closed order"),
                        Admit::NotStarted | Admit::Ended | Admit::NotReady | Admit::LimitExceeded => {}
                    }
                }
                let sold: u32 = owned.values().map(|held| held.qty).sum();
                prop_assert_eq!(sale.left() + sold, stock);
            }
        }
    }
}
