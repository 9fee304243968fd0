//! Orders, the one row each buyer has in a lot, and payments.
//!
//! What never happens here: a decision; those are `gateway_core::sale::order`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gateway_core::id::{Lot, OrderNo, PayNo, PrincipalId};
use gateway_core::sale::order::{self, PayStep, Payment, Row};
use gateway_core::sale::{CancelOutcome, Held, OrderEvent, OrderRecord, OrderState, PayOutcome, Persisted, Task};
use gateway_core::time::UnixMillis;

use super::Books;

#[derive(Default)]
pub(super) struct Orders {
    by_no: BTreeMap<OrderNo, OrderRecord>,
    /// The order that used the row of a buyer last.
    rows: BTreeMap<Lot, BTreeMap<PrincipalId, OrderNo>>,
    /// Unpaid orders by when their time is over.
    unpaid: BTreeSet<(UnixMillis, OrderNo)>,
    /// What each payment paid.
    paid: BTreeMap<PayNo, OrderNo>,
    refunded: BTreeSet<PayNo>,
}

impl Orders {
    /// Orders written.
    pub(super) fn len(&self) -> usize {
        self.by_no.len()
    }

    /// Payments seen.
    pub(super) fn payments(&self) -> usize {
        self.paid.len() + self.refunded.len()
    }

    pub(super) fn get(&self, order_no: &OrderNo) -> Option<&OrderRecord> {
        self.by_no.get(order_no)
    }

    /// The order in a buyer's row.
    fn row(&self, lot: Lot, user: &PrincipalId) -> Option<&OrderRecord> {
        self.by_no.get(self.rows.get(&lot)?.get(user)?)
    }

    /// The order in each row of a lot.
    fn rows(&self, lot: Lot) -> impl Iterator<Item = &OrderRecord> {
        self.rows.get(&lot).into_iter().flatten().filter_map(|(_, order_no)| self.by_no.get(order_no))
    }

    /// Units in live orders.
    pub(super) fn live(&self, lot: Lot) -> u64 {
        self.rows(lot).filter(|order| order.state != OrderState::Closed).map(|order| u64::from(order.qty)).sum()
    }

    /// Who holds an order of a lot, and whose order was closed.
    pub(super) fn buyers(&self, lot: Lot) -> Vec<(PrincipalId, Held)> {
        let held = |order: &OrderRecord| match order.state {
            OrderState::Unpaid | OrderState::Paid => Held::Reserved(order.reservation()),
            OrderState::Closed => Held::Released { generation: order.generation.saturating_add(1) },
        };
        self.rows(lot).map(|order| (order.user.clone(), held(order))).collect()
    }
}

impl Books {
    pub(super) fn persist(&mut self, lot: Lot, events: &[OrderEvent], now: UnixMillis) -> Vec<Persisted> {
        let known =
            |event: &OrderEvent| self.orders.get(&event.order_no).map(|order| (order.order_no.clone(), order.state != OrderState::Closed));
        let known = events.iter().filter_map(known).collect();
        let row = |user: &PrincipalId| {
            let order = self.orders.row(lot, user)?;
            Some((user.clone(), Row { live: order.state != OrderState::Closed, generation: order.generation }))
        };
        let rows = order::users(events).into_iter().filter_map(row).collect();
        let pay_ttl_s = self.sales.lot(lot).map_or(0, |(activity, _, _)| activity.terms.pay_ttl_s);
        let expires = now.plus(Duration::from_secs(u64::from(pay_ttl_s)));
        let judged = order::judge_events(self.sales.room(lot), &known, &rows, events);
        for (event, (_, write)) in events.iter().zip(&judged) {
            if *write {
                self.write_order(lot, event.clone(), expires);
            }
        }
        judged.into_iter().map(|(outcome, _)| outcome).collect()
    }

    fn write_order(&mut self, lot: Lot, event: OrderEvent, expires: UnixMillis) {
        let OrderEvent { order_no, user, qty, generation, epoch: _, id: _ } = event;
        self.sales.take(lot, qty);
        self.orders.rows.entry(lot).or_default().insert(user.clone(), order_no.clone());
        self.orders.unpaid.insert((expires, order_no.clone()));
        let state = OrderState::Unpaid;
        let order = OrderRecord { order_no: order_no.clone(), user, lot, qty, state, generation, revision: 0, expires, pay_no: None };
        self.orders.by_no.insert(order_no, order);
    }

    pub(super) fn cancel(&mut self, order_no: &OrderNo, user: &PrincipalId, now: UnixMillis) -> CancelOutcome {
        let outcome = order::cancel(self.orders.get(order_no), user);
        if outcome == CancelOutcome::Cancelled {
            self.close_order(order_no, now);
        }
        outcome
    }

    pub(super) fn expire(&mut self, deadline: UnixMillis, max: usize, now: UnixMillis) -> Vec<OrderRecord> {
        let candidates = self.orders.unpaid.iter().map(|(_, order_no)| order_no).filter_map(|order_no| self.orders.get(order_no));
        let due: Vec<_> =
            candidates.take_while(|order| order::expired(order, deadline)).take(max).map(|order| order.order_no.clone()).collect();
        due.iter().filter_map(|order_no| self.close_order(order_no, now)).collect()
    }

    /// Unpaid to closed: its units come back, and the admission store will hear of it.
    fn close_order(&mut self, order_no: &OrderNo, now: UnixMillis) -> Option<OrderRecord> {
        let order = self.orders.by_no.get_mut(order_no)?;
        let (lot, release) = (order.lot, order.release());
        (order.state, order.revision) = (OrderState::Closed, order.revision.saturating_add(1));
        let closed = order.clone();
        self.orders.unpaid.remove(&(closed.expires, closed.order_no.clone()));
        if self.sales.give_back(lot, closed.qty) {
            self.outbox.owe(Task::Release { lot, release }, now);
        }
        Some(closed)
    }

    pub(super) fn pay(&mut self, order_no: &OrderNo, pay_no: &PayNo, now: UnixMillis) -> PayOutcome {
        let order = self.orders.get(order_no);
        let payment = Payment {
            pay_no,
            paid: self.orders.paid.get(pay_no),
            refunded: self.orders.refunded.contains(pay_no),
            superseded: order.is_some_and(|order| self.orders.row(order.lot, &order.user).is_some_and(|row| row.order_no != *order_no)),
            free: order.map_or(0, |order| self.sales.room(order.lot).free),
        };
        match order::pay(order, payment) {
            PayStep::Answer(outcome) => outcome,
            PayStep::Pay => self.mark_paid(order_no, pay_no, false, now),
            PayStep::Revive => self.mark_paid(order_no, pay_no, true, now),
            PayStep::Refund => {
                let Some(order) = self.orders.get(order_no) else { return PayOutcome::NotFound };
                let price = self.sales.lot(order.lot).map_or(0, |(_, product, _)| product.terms.price_cents);
                let amount_cents = price.saturating_mul(u64::from(order.qty));
                self.orders.refunded.insert(pay_no.clone());
                self.outbox.owe(Task::Refund { order_no: order_no.clone(), pay_no: pay_no.clone(), amount_cents }, now);
                PayOutcome::Refunded
            }
        }
    }

    fn mark_paid(&mut self, order_no: &OrderNo, pay_no: &PayNo, revived: bool, now: UnixMillis) -> PayOutcome {
        let Some(order) = self.orders.by_no.get_mut(order_no) else { return PayOutcome::NotFound };
        order.state = OrderState::Paid;
        order.pay_no = Some(pay_no.clone());
        order.revision = order.revision.saturating_add(u16::from(revived));
        let (lot, user, reservation) = (order.lot, order.user.clone(), order.reservation());
        self.orders.unpaid.remove(&(order.expires, order_no.clone()));
        self.orders.paid.insert(pay_no.clone(), order_no.clone());
        if !revived {
            return PayOutcome::Paid;
        }
        if self.sales.take(lot, reservation.qty) {
            self.outbox.owe(Task::Reserve { lot, user, reservation }, now);
        }
        PayOutcome::Revived
    }
}
