//! The rule by which an attempt is admitted: the model that every admission store must agree with, step by step.
//!
//! What lives here: one sale in force (terms, state, stock, buyers) and the steps that change it. What never happens
//! here: reading a clock, logging the order event (the store does both in the same atomic step). Called by the embedded
//! store; the Redis script is its twin.

use std::collections::BTreeMap;

use crate::id::PrincipalId;
use crate::sale::{Admit, Reservation, SaleAttempt, SaleState, SaleTerms};
use crate::time::UnixMillis;

/// The sale in force for one lot.
///
/// Units are never made or lost between two installations: what is left and what buyers hold always add up to the
/// stock the terms brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sale {
    epoch: u32,
    state: SaleState,
    start: UnixMillis,
    end: UnixMillis,
    per_user: u32,
    left: u32,
    buyers: BTreeMap<PrincipalId, Reservation>,
    /// Sum of the buyers' units, kept so that the invariant costs one addition to check.
    reserved: u64,
    /// `left + reserved` when the terms were installed.
    stock: u64,
}

impl Sale {
    /// Puts `terms` in force, open. Where they name a buyer twice the last reservation counts.
    #[must_use]
    pub fn new(terms: &SaleTerms) -> Self {
        let buyers: BTreeMap<_, _> = terms.buyers.iter().cloned().collect();
        let reserved = buyers.values().map(|held| u64::from(held.qty)).sum();
        let SaleTerms { epoch, start, end, per_user, left, buyers: _ } = *terms;
        Self { epoch, state: SaleState::Open, start, end, per_user, left, buyers, reserved, stock: u64::from(left) + reserved }
    }

    /// The epoch the terms were installed under.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
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

    /// What `user` holds.
    #[must_use]
    pub fn reservation(&self, user: &PrincipalId) -> Option<&Reservation> {
        self.buyers.get(user)
    }

    /// Judges one attempt at `now`; only [`Admit::Admitted`] changes anything.
    ///
    /// A buyer's own reservation comes before every refusal, so the winner's retry never hears "sold out". The window is
    /// half open: `start` is in, `end` is out.
    pub fn admit(&mut self, attempt: &SaleAttempt, now: UnixMillis) -> Admit {
        if let Some(held) = self.buyers.get(&attempt.user) {
            return Admit::Replayed(held.clone());
        }
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
        let Some(left) = self.left.checked_sub(attempt.qty) else { return Admit::SoldOut { left: self.left } };
        self.left = left;
        self.reserved += u64::from(attempt.qty);
        self.buyers.insert(attempt.user.clone(), Reservation { qty: attempt.qty, order_no: attempt.order_no.clone() });
        self.check_invariants();
        Admit::Admitted
    }

    /// Gives `reservation` back when `user` holds exactly that under `epoch`; says whether it did. Doing it twice, late
    /// or after the stock was rebuilt is therefore harmless.
    pub fn release(&mut self, epoch: u32, user: &PrincipalId, reservation: &Reservation) -> bool {
        if epoch != self.epoch || self.buyers.get(user) != Some(reservation) {
            return false;
        }
        self.buyers.remove(user);
        // The units came out of `left`, so they fit back into it.
        self.left += reservation.qty;
        self.reserved -= u64::from(reservation.qty);
        self.check_invariants();
        true
    }

    /// Sets the state when `epoch` is the one in force; says whether it was.
    pub fn set_state(&mut self, epoch: u32, state: SaleState) -> bool {
        if epoch == self.epoch {
            self.state = state;
        }
        epoch == self.epoch
    }

    fn check_invariants(&self) {
        debug_assert_eq!(u64::from(self.left) + self.reserved, self.stock, "units appeared or vanished");
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
        SaleAttempt { user: user(n), qty, order_no: OrderNo::from_bits([n; 10]) }
    }

    fn held(n: u8, qty: u32) -> Reservation {
        Reservation { qty, order_no: OrderNo::from_bits([n; 10]) }
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
        assert_eq!(sale.admit(&attempt(1, 3), OPEN), Admit::SoldOut { left: 2 });
        assert_eq!(sale.left(), 2);
        assert_eq!(sale.admit(&attempt(1, 2), OPEN), Admit::Admitted);
        assert_eq!(sale.admit(&attempt(2, 1), OPEN), Admit::SoldOut { left: 0 });
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
        assert!(!sale.release(2, &user(1), &held(1, 2)), "another epoch");
        assert!(!sale.release(1, &user(1), &held(1, 1)), "another quantity");
        assert!(!sale.release(1, &user(1), &held(2, 2)), "another order");
        assert!(!sale.release(1, &user(2), &held(1, 2)), "another user");
        assert_eq!(sale.left(), 0);
        assert!(sale.release(1, &user(1), &held(1, 2)));
        assert!(!sale.release(1, &user(1), &held(1, 2)), "twice");
        assert_eq!(sale.left(), 2);
        assert_eq!(sale.admit(&attempt(1, 1), OPEN), Admit::Admitted, "the right to buy came back");
    }

    #[test]
    fn buyers_of_the_terms_hold_their_orders() {
        let terms =
            SaleTerms { epoch: 7, start: UnixMillis(0), end: UnixMillis(9_999), per_user: 1, left: 1, buyers: vec![(user(1), held(1, 1))] };
        let mut sale = Sale::new(&terms);
        assert_eq!(sale.reservation(&user(1)), Some(&held(1, 1)));
        assert!(sale.release(7, &user(1), &held(1, 1)));
        assert_eq!(sale.left(), 2);
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
                    prop_assert_eq!(sale.release(1, &user(who), &claim), owned.remove(&user(who)).is_some());
                } else {
                    match sale.admit(&attempt(who, qty), UnixMillis(at)) {
                        Admit::Admitted => {
                            prop_assert!((1_000..2_000).contains(&at) && qty <= per_user);
                            prop_assert_eq!(owned.insert(user(who), held(who, qty)), None, "a second reservation");
                        }
                        Admit::Replayed(same) => prop_assert_eq!(Some(&same), owned.get(&user(who))),
                        Admit::SoldOut { left } => prop_assert!(left < qty && left == sale.left()),
                        Admit::NotStarted | Admit::Ended | Admit::NotReady | Admit::LimitExceeded => {}
                    }
                }
                let sold: u32 = owned.values().map(|held| held.qty).sum();
                prop_assert_eq!(sale.left() + sold, stock);
            }
        }
    }
}
