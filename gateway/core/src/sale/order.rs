//! Orders: which events become one, and what cancelling, waiting too long and paying do to it.
//!
//! What lives here: the decisions, as functions of the rows a ledger has locked. What never happens here: reading or
//! writing a row. Every ledger locks, asks here, writes what it is told.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{Lot, OrderNo, PayNo, PrincipalId};
use crate::sale::{OrderEvent, Release, Reservation};
use crate::time::UnixMillis;

/// State of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrderState {
    /// Waiting for payment.
    Unpaid,
    /// Paid.
    Paid,
    /// Closed unpaid.
    Closed,
}

/// Why an order was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Not paid in time.
    Expired,
    /// Cancelled by its buyer.
    Cancelled,
}

/// An order as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderRecord {
    /// Its number.
    pub order_no: OrderNo,
    /// Its buyer.
    pub user: PrincipalId,
    /// Its lot.
    pub lot: Lot,
    /// Units.
    pub qty: u32,
    /// Its state.
    pub state: OrderState,
    /// Which of the buyer's orders for this lot it is; 0 is the first.
    pub generation: u16,
    /// How often it was closed and revived.
    pub revision: u16,
    /// From when on it may be closed for want of a payment.
    pub expires: UnixMillis,
    /// The payment that paid it.
    pub pay_no: Option<PayNo>,
}

impl OrderRecord {
    /// What its buyer holds in the admission store while it is live.
    #[must_use]
    pub fn reservation(&self) -> Reservation {
        Reservation { qty: self.qty, order_no: self.order_no.clone(), revision: self.revision }
    }

    /// What gives its units back to the sale once it is closed. Ask before its revision is raised.
    #[must_use]
    pub fn release(&self) -> Release {
        Release { user: self.user.clone(), reservation: self.reservation(), epoch: None, generation: self.generation.saturating_add(1) }
    }
}

/// What the ledger made of an order event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persisted {
    /// The order is live, written now or before.
    Stored,
    /// The order was written before and is closed.
    Closed,
    /// The event belongs to an epoch or an activity that is over; the buyer may try again.
    Stale,
    /// No unit was left for it.
    SoldOut,
    /// The user has another live order for this lot.
    Duplicate,
}

/// What a lot has, while its rows are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Whether orders may still be written: the activity is published or closing.
    pub selling: bool,
    /// The current epoch.
    pub epoch: u32,
    /// Units that may still be sold: of the lot, and of what its SKU has for it.
    pub free: u32,
}

/// The one row a user has in a lot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Unpaid or paid.
    pub live: bool,
    /// Of the order that used the row last.
    pub generation: u16,
}

/// One outcome per event, in order, and for each whether it is to be written now.
///
/// `known` has those of the events' order numbers that exist, and whether each is live; `rows` has the rows of the
/// events' users. What is known already is judged first, so that an event that comes again hears what it heard before.
#[must_use]
pub fn judge_events(
    room: Room,
    known: &BTreeMap<OrderNo, bool>,
    rows: &BTreeMap<PrincipalId, Row>,
    events: &[OrderEvent],
) -> Vec<(Persisted, bool)> {
    let mut free = room.free;
    let mut written: BTreeMap<&PrincipalId, &OrderNo> = BTreeMap::new();
    let judged = events.iter().map(|OrderEvent { order_no, user, qty, epoch, generation, id: _ }| {
        match known.get(order_no) {
            Some(true) => return (Persisted::Stored, false),
            Some(false) => return (Persisted::Closed, false),
            None => {}
        }
        if written.get(user) == Some(&order_no) {
            return (Persisted::Stored, false);
        }
        if !room.selling || *epoch != room.epoch {
            return (Persisted::Stale, false);
        }
        let row = rows.get(user);
        if written.contains_key(user) || row.is_some_and(|row| row.live) {
            return (Persisted::Duplicate, false);
        }
        // A number of another generation would be written over a history it does not continue.
        if *generation != row.map_or(0, |row| row.generation.saturating_add(1)) {
            return (Persisted::Stale, false);
        }
        let Some(rest) = free.checked_sub(*qty) else { return (Persisted::SoldOut, false) };
        free = rest;
        written.insert(user, order_no);
        (Persisted::Stored, true)
    });
    judged.collect()
}

/// The reservation of an event that did not become a live order, to be given back. `None`: it became one.
#[must_use]
pub fn release_of(event: &OrderEvent, outcome: Persisted) -> Option<Release> {
    let reservation = Reservation { qty: event.qty, order_no: event.order_no.clone(), revision: 0 };
    let (epoch, generation) = match outcome {
        Persisted::Stored => return None,
        // The number is used up; the next one is the next generation's.
        Persisted::Closed => (None, event.generation.saturating_add(1)),
        // Only what this very event reserved: in a later epoch the buyer may hold the same number again.
        Persisted::Stale | Persisted::SoldOut | Persisted::Duplicate => (Some(event.epoch), event.generation),
    };
    Some(Release { user: event.user.clone(), reservation, epoch, generation })
}

/// What became of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// Closed now.
    Cancelled,
    /// It was closed before, by whomever.
    AlreadyClosed,
    /// It is paid; giving it back is the shop's business.
    Paid,
    /// No such order of this user.
    NotFound,
}

/// Whether a buyer's cancellation closes the order ([`CancelOutcome::Cancelled`]) or what it is answered otherwise.
#[must_use]
pub fn cancel(order: Option<&OrderRecord>, user: &PrincipalId) -> CancelOutcome {
    match order.filter(|order| order.user == *user).map(|order| order.state) {
        None => CancelOutcome::NotFound,
        Some(OrderState::Unpaid) => CancelOutcome::Cancelled,
        Some(OrderState::Closed) => CancelOutcome::AlreadyClosed,
        Some(OrderState::Paid) => CancelOutcome::Paid,
    }
}

/// Whether an order is closed because it was not paid before `deadline`, which is now without the grace.
#[must_use]
pub fn expired(order: &OrderRecord, deadline: UnixMillis) -> bool {
    order.state == OrderState::Unpaid && order.expires <= deadline
}

/// What became of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayOutcome {
    /// The order is paid by it, now or before.
    Paid,
    /// The order had been closed, got its units again, and is paid, now or before.
    Revived,
    /// The money goes back: the order is closed and its units are gone, or another payment was first. Now or before.
    Refunded,
    /// This payment paid another order; nothing was done.
    Conflict,
    /// No such order; nothing was done.
    NotFound,
}

impl PayOutcome {
    /// The word in answers of the bus and of the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Revived => "revived",
            Self::Refunded => "refunded",
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
        }
    }
}

/// What a payment meets, while the rows are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payment<'a> {
    /// Its number.
    pub pay_no: &'a PayNo,
    /// Which order this number has paid, if any.
    pub paid: Option<&'a OrderNo>,
    /// Whether this number is among the refunds.
    pub refunded: bool,
    /// Whether the buyer has bought the lot again since: the row is another order's.
    pub superseded: bool,
    /// Units that may be sold again: of the lot, and of what its SKU has for it (free ones once the activity is settled).
    pub free: u32,
}

/// What a payment does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayStep {
    /// Nothing; the answer is this.
    Answer(PayOutcome),
    /// Unpaid to paid.
    Pay,
    /// Closed to paid: sell its units again and raise its revision.
    Revive,
    /// Send the money back.
    Refund,
}

/// What a payment does to `order`.
#[must_use]
pub fn pay(order: Option<&OrderRecord>, payment: Payment<'_>) -> PayStep {
    let Some(order) = order else { return PayStep::Answer(PayOutcome::NotFound) };
    // What was answered once is answered again, whatever has happened since.
    if payment.refunded {
        return PayStep::Answer(PayOutcome::Refunded);
    }
    match payment.paid {
        Some(other) if *other != order.order_no => return PayStep::Answer(PayOutcome::Conflict),
        Some(_) if order.revision > 0 => return PayStep::Answer(PayOutcome::Revived),
        Some(_) => return PayStep::Answer(PayOutcome::Paid),
        None => {}
    }
    match order.state {
        OrderState::Unpaid => PayStep::Pay,
        OrderState::Paid => PayStep::Refund,
        OrderState::Closed if payment.superseded || payment.free < order.qty => PayStep::Refund,
        OrderState::Closed => PayStep::Revive,
    }
}

/// The final result of an order number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderResult {
    /// The order exists.
    Success {
        /// Whose it is.
        user: PrincipalId,
    },
    /// There is no order.
    Fail {
        /// Whose it would have been.
        user: PrincipalId,
        /// Why, for the client.
        message: String,
    },
}

impl OrderResult {
    /// Whose result it is; anybody else is told that it does not exist.
    #[must_use]
    pub fn user(&self) -> &PrincipalId {
        match self {
            Self::Success { user } | Self::Fail { user, .. } => user,
        }
    }
}

/// Users of `events`, each once, in order: the order in which their rows are locked.
#[must_use]
pub fn users(events: &[OrderEvent]) -> BTreeSet<&PrincipalId> {
    events.iter().map(|event| &event.user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ActivityId, SkuId};

    const ROOM: Room = Room { selling: true, epoch: 1, free: 9 };

    fn user(name: &str) -> PrincipalId {
        PrincipalId::parse(name).expect("valid")
    }

    fn number(byte: u8) -> OrderNo {
        OrderNo::from_bits([byte; 10])
    }

    fn event(name: &str, order: u8, epoch: u32, qty: u32, generation: u16) -> OrderEvent {
        OrderEvent { id: "1-0".to_owned(), order_no: number(order), user: user(name), qty, epoch, generation }
    }

    fn judged(room: Room, known: &[(u8, bool)], rows: &[(&str, bool, u16)], events: &[OrderEvent]) -> Vec<(Persisted, bool)> {
        let known = known.iter().map(|(order, live)| (number(*order), *live)).collect();
        let rows = rows.iter().map(|(name, live, generation)| (user(name), Row { live: *live, generation: *generation })).collect();
        judge_events(room, &known, &rows, events)
    }

    #[test]
    fn what_is_known_is_answered_as_before_whatever_has_happened_since() {
        let events = [event("a", 1, 7, 2, 0), event("b", 2, 7, 2, 0)];
        let over = Room { selling: false, epoch: 9, free: 0 };
        assert_eq!(judged(over, &[(1, true), (2, false)], &[], &events), [(Persisted::Stored, false), (Persisted::Closed, false)]);
    }

    #[test]
    fn another_epoch_and_a_settled_activity_write_nothing() {
        let events = [event("a", 1, 2, 1, 0)];
        assert_eq!(judged(ROOM, &[], &[], &events), [(Persisted::Stale, false)]);
        let settled = Room { selling: false, epoch: 2, free: 9 };
        assert_eq!(judged(settled, &[], &[], &events), [(Persisted::Stale, false)]);
    }

    #[test]
    fn units_go_to_events_in_order_and_small_wishes_fit_behind_large_ones() {
        let events = [event("a", 1, 1, 5, 0), event("b", 2, 1, 5, 0), event("c", 3, 1, 4, 0), event("d", 4, 1, 1, 0)];
        let outcomes = [(Persisted::Stored, true), (Persisted::SoldOut, false), (Persisted::Stored, true), (Persisted::SoldOut, false)];
        assert_eq!(judged(ROOM, &[], &[], &events), outcomes);
    }

    #[test]
    fn one_event_twice_in_a_batch_is_written_once_and_another_order_of_the_user_is_refused() {
        let events = [event("a", 1, 1, 2, 0), event("a", 1, 1, 2, 0), event("a", 2, 1, 2, 0)];
        assert_eq!(judged(ROOM, &[], &[], &events), [(Persisted::Stored, true), (Persisted::Stored, false), (Persisted::Duplicate, false)]);
    }

    #[test]
    fn a_closed_order_leaves_room_for_one_of_the_next_generation_only() {
        assert_eq!(judged(ROOM, &[], &[("a", false, 3)], &[event("a", 1, 1, 2, 4)]), [(Persisted::Stored, true)]);
        assert_eq!(judged(ROOM, &[], &[("a", false, 3)], &[event("a", 1, 1, 2, 0)]), [(Persisted::Stale, false)]);
        assert_eq!(judged(ROOM, &[], &[("a", true, 3)], &[event("a", 1, 1, 2, 4)]), [(Persisted::Duplicate, false)]);
        assert_eq!(judged(ROOM, &[], &[], &[event("a", 1, 1, 2, 1)]), [(Persisted::Stale, false)]);
    }

    #[test]
    fn a_refused_event_gives_back_what_it_reserved_and_no_more() {
        let event = event("a", 1, 7, 2, 3);
        assert_eq!(release_of(&event, Persisted::Stored), None);
        let of = |outcome| release_of(&event, outcome).map(|release| (release.epoch, release.generation));
        assert_eq!(of(Persisted::Closed), Some((None, 4)));
        for refused in [Persisted::Stale, Persisted::SoldOut, Persisted::Duplicate] {
            assert_eq!(of(refused), Some((Some(7), 3)));
        }
    }

    fn order(state: OrderState, revision: u16) -> OrderRecord {
        OrderRecord {
            order_no: number(1),
            user: user("a"),
            lot: Lot { activity: ActivityId(1), sku: SkuId(2) },
            qty: 2,
            state,
            generation: 0,
            revision,
            expires: UnixMillis(1_000),
            pay_no: None,
        }
    }

    #[test]
    fn only_its_buyer_cancels_and_only_what_is_unpaid() {
        for (state, want) in [
            (OrderState::Unpaid, CancelOutcome::Cancelled),
            (OrderState::Closed, CancelOutcome::AlreadyClosed),
            (OrderState::Paid, CancelOutcome::Paid),
        ] {
            assert_eq!(cancel(Some(&order(state, 0)), &user("a")), want);
            assert_eq!(cancel(Some(&order(state, 0)), &user("b")), CancelOutcome::NotFound);
        }
        assert_eq!(cancel(None, &user("a")), CancelOutcome::NotFound);
    }

    #[test]
    fn time_closes_unpaid_orders_from_the_instant_on() {
        for (state, deadline, want) in [
            (OrderState::Unpaid, 999, false),
            (OrderState::Unpaid, 1_000, true),
            (OrderState::Paid, 1_000, false),
            (OrderState::Closed, 1_000, false),
        ] {
            assert_eq!(expired(&order(state, 0), UnixMillis(deadline)), want, "{state:?} at {deadline}");
        }
    }

    #[test]
    fn a_payment_pays_once_and_late_money_buys_or_goes_back() {
        let (one, two) = (PayNo::parse("p1").expect("valid"), number(2));
        let new = Payment { pay_no: &one, paid: None, refunded: false, superseded: false, free: 2 };
        let step = |state, revision, payment| pay(Some(&order(state, revision)), payment);
        assert_eq!(step(OrderState::Unpaid, 0, Payment { free: 0, ..new }), PayStep::Pay);
        assert_eq!(step(OrderState::Paid, 0, new), PayStep::Refund, "another payment was first");
        assert_eq!(step(OrderState::Closed, 1, new), PayStep::Revive);
        assert_eq!(step(OrderState::Closed, 1, Payment { free: 1, ..new }), PayStep::Refund);
        assert_eq!(step(OrderState::Closed, 1, Payment { superseded: true, ..new }), PayStep::Refund);
        let before = number(1);
        let again = Payment { paid: Some(&before), ..new };
        assert_eq!(step(OrderState::Paid, 0, again), PayStep::Answer(PayOutcome::Paid));
        assert_eq!(step(OrderState::Paid, 2, again), PayStep::Answer(PayOutcome::Revived));
        assert_eq!(step(OrderState::Unpaid, 0, Payment { paid: Some(&two), ..new }), PayStep::Answer(PayOutcome::Conflict));
        assert_eq!(step(OrderState::Closed, 1, Payment { refunded: true, ..new }), PayStep::Answer(PayOutcome::Refunded));
        assert_eq!(pay(None, new), PayStep::Answer(PayOutcome::NotFound));
    }
}
