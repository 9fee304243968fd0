//! How orders end: cancelled, expired, paid, paid too late.

use std::time::Duration;

use gateway_core::id::{Lot, PrincipalId};
use gateway_core::ports::SaleLedger;
use gateway_core::sale::{CancelOutcome, OrderEvent, OrderRecord, OrderState, PayOutcome, Persisted, Release, Reservation, Task};

use super::*;

/// Every check.
pub async fn all(store: &dyn SaleLedger, fresh: &Fresh) {
    only_its_buyer_cancels_an_order(store, fresh).await;
    cancelling_gives_units_back_once(store, fresh).await;
    a_paid_order_is_not_cancelled(store, fresh).await;
    orders_expire_from_the_instant_on(store, fresh).await;
    expiry_takes_the_oldest_first_and_no_more_than_asked_for(store, fresh).await;
    a_paid_order_never_expires(store, fresh).await;
    a_payment_pays_once(store, fresh).await;
    a_second_payment_goes_back_once(store, fresh).await;
    a_payment_pays_no_second_order(store, fresh).await;
    nobody_pays_an_order_that_does_not_exist(store, fresh).await;
    late_money_revives_an_order_whose_units_are_there(store, fresh).await;
    late_money_goes_back_when_the_units_are_gone(store, fresh).await;
    late_money_goes_back_when_its_buyer_has_bought_again(store, fresh).await;
    a_revived_order_stays_paid(store, fresh).await;
}

fn held(event: &OrderEvent, revision: u16) -> Reservation {
    Reservation { qty: event.qty, order_no: event.order_no.clone(), revision }
}

fn release(lot: Lot, event: &OrderEvent, revision: u16) -> Task {
    let release = Release { user: event.user.clone(), reservation: held(event, revision), epoch: None, generation: event.generation + 1 };
    Task::Release { lot, release }
}

async fn tasks(store: &dyn SaleLedger, event: &OrderEvent) -> Vec<Task> {
    let taken = take_tasks(store, now(), &[&event.order_no]).await;
    let ids: Vec<u64> = taken.iter().map(|entry| entry.id).collect();
    store.finish_tasks(&ids).await.expect("finish tasks");
    taken.into_iter().map(|entry| entry.task).collect()
}

/// Anybody else is told that there is none.
pub async fn only_its_buyer_cancels_an_order(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let mine = ordered(store, fresh, lot, 2).await;
    let thief = OrderEvent { user: fresh.principal(), ..mine.clone() };
    let namesake = OrderEvent { user: PrincipalId::parse(&mine.user.as_str().to_uppercase()).expect("valid"), ..mine.clone() };
    let unknown = somebody(fresh, 1);
    for event in [&thief, &namesake, &unknown] {
        assert_eq!(cancel(store, event).await, CancelOutcome::NotFound);
    }
    assert_sold(store, lot, 5, 2).await;
    assert_eq!(tasks(store, &mine).await, []);
}

/// Every counter moves back, one release is owed, and saying it again changes nothing.
pub async fn cancelling_gives_units_back_once(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let (mine, other) = (ordered(store, fresh, lot, 2).await, ordered(store, fresh, lot, 1).await);
    for want in [CancelOutcome::Cancelled, CancelOutcome::AlreadyClosed, CancelOutcome::AlreadyClosed] {
        assert_eq!(cancel(store, &mine).await, want);
        assert_sold(store, lot, 5, 1).await;
        assert_eq!(books(store, lot).await.owed, 1);
    }
    let closed = order(store, &mine.order_no).await;
    assert_eq!((closed.state, closed.revision, closed.pay_no), (OrderState::Closed, 1, None));
    assert_eq!(order(store, &other.order_no).await.state, OrderState::Unpaid);
    assert_eq!(tasks(store, &mine).await, [release(lot, &mine, 0)]);
    assert_eq!(books(store, lot).await.owed, 0);
    let again = next_of(fresh, &mine);
    assert_eq!(persist(store, lot, std::slice::from_ref(&again)).await, [Persisted::Stored]);
    assert_eq!(cancel(store, &again).await, CancelOutcome::Cancelled);
    assert_eq!(tasks(store, &again).await, [release(lot, &again, 0)], "the next order has a task of its own");
}

/// Giving back what is paid is the shop's business.
pub async fn a_paid_order_is_not_cancelled(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let mine = ordered(store, fresh, lot, 2).await;
    assert_eq!(pay(store, &mine, &pay_no(fresh)).await, PayOutcome::Paid);
    assert_eq!(cancel(store, &mine).await, CancelOutcome::Paid);
    assert_sold(store, lot, 5, 2).await;
    assert_eq!(tasks(store, &mine).await, []);
}

/// Writes orders that were made at `written`, decades ago.
async fn ordered_at(store: &dyn SaleLedger, fresh: &Fresh, lot: Lot, written: UnixMillis) -> OrderEvent {
    let event = somebody(fresh, 1);
    let lease = lease(store, "worker", lot).await.expect("nobody else leases the lot");
    assert_eq!(store.persist(&lease, std::slice::from_ref(&event), written).await.expect("persist"), [Persisted::Stored]);
    event
}

/// A day long ago, and the pay time of [`activity_of`] after it.
const LONG_AGO: UnixMillis = UnixMillis(86_400_000);
const ITS_DEADLINE: UnixMillis = UnixMillis(86_400_000 + 1_800_000);

async fn expire(store: &dyn SaleLedger, deadline: UnixMillis, max: u32) -> Vec<OrderRecord> {
    store.expire(deadline, max, now()).await.expect("expire")
}

/// One millisecond earlier it is left alone.
pub async fn orders_expire_from_the_instant_on(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let mine = ordered_at(store, fresh, lot, LONG_AGO).await;
    assert_eq!(expire(store, UnixMillis(ITS_DEADLINE.0 - 1), 500).await, []);
    assert_eq!(order(store, &mine.order_no).await.state, OrderState::Unpaid);
    let closed = expire(store, ITS_DEADLINE, 500).await;
    assert_eq!(closed.iter().map(|order| &order.order_no).collect::<Vec<_>>(), [&mine.order_no]);
    assert_eq!((&closed[0].user, closed[0].lot, closed[0].qty), (&mine.user, lot, 1));
    assert_eq!(expire(store, ITS_DEADLINE, 500).await, [], "once");
    let after = order(store, &mine.order_no).await;
    assert_eq!((after.state, after.revision), (OrderState::Closed, 1));
    assert_sold(store, lot, 5, 0).await;
    assert_eq!(cancel(store, &mine).await, CancelOutcome::AlreadyClosed);
    assert_eq!(tasks(store, &mine).await, [release(lot, &mine, 0)]);
}

/// In whatever lots they are.
pub async fn expiry_takes_the_oldest_first_and_no_more_than_asked_for(store: &dyn SaleLedger, fresh: &Fresh) {
    let lots = [selling(store, fresh, 5).await, selling(store, fresh, 5).await];
    let mut made = Vec::new();
    for n in [4, 1, 3, 0, 2] {
        let lot = lots[usize::from(n % 2 == 0)];
        made.push((n, ordered_at(store, fresh, lot, LONG_AGO.plus(Duration::from_secs(n))).await.order_no));
    }
    made.sort_unstable();
    assert_eq!(expire(store, ITS_DEADLINE.plus(Duration::from_secs(60)), 0).await, []);
    let mut seen = Vec::new();
    for want in [2, 2, 1, 0] {
        let closed = expire(store, ITS_DEADLINE.plus(Duration::from_secs(60)), 2).await;
        assert_eq!(closed.len(), want);
        let mut closed: Vec<_> = closed.into_iter().map(|order| (order.expires, order.order_no)).collect();
        closed.sort_unstable();
        seen.extend(closed.into_iter().map(|(_, order_no)| order_no));
    }
    assert_eq!(seen, made.into_iter().map(|(_, order_no)| order_no).collect::<Vec<_>>());
    for lot in lots {
        assert_sold(store, lot, 5, 0).await;
    }
}

/// However old it is.
pub async fn a_paid_order_never_expires(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let mine = ordered_at(store, fresh, lot, LONG_AGO).await;
    assert_eq!(pay(store, &mine, &pay_no(fresh)).await, PayOutcome::Paid, "nobody had closed it yet");
    assert_eq!(expire(store, ITS_DEADLINE, 500).await, []);
    assert_sold(store, lot, 5, 1).await;
}

/// The same payment again hears the same.
pub async fn a_payment_pays_once(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let (mine, money) = (ordered(store, fresh, lot, 2).await, pay_no(fresh));
    for _ in 0..3 {
        assert_eq!(pay(store, &mine, &money).await, PayOutcome::Paid);
        let paid = order(store, &mine.order_no).await;
        assert_eq!((paid.state, paid.revision, paid.pay_no.as_ref()), (OrderState::Paid, 0, Some(&money)));
        assert_sold(store, lot, 5, 2).await;
    }
    assert_eq!(tasks(store, &mine).await, [], "paying in time owes nothing to anybody");
}

/// With the amount of the order, not more than once, whatever is called how often.
pub async fn a_second_payment_goes_back_once(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let (mine, first, second) = (ordered(store, fresh, lot, 2).await, pay_no(fresh), pay_no(fresh));
    assert_eq!(pay(store, &mine, &first).await, PayOutcome::Paid);
    for _ in 0..3 {
        assert_eq!(pay(store, &mine, &second).await, PayOutcome::Refunded);
    }
    assert_eq!(pay(store, &mine, &first).await, PayOutcome::Paid, "the first one stays");
    assert_eq!(order(store, &mine.order_no).await.pay_no, Some(first));
    let refund = Task::Refund { order_no: mine.order_no.clone(), pay_no: second.clone(), amount_cents: 1_980 };
    assert_eq!(tasks(store, &mine).await, [refund]);
    assert_eq!(pay(store, &mine, &second).await, PayOutcome::Refunded, "also after the refund was made");
    assert_eq!(tasks(store, &mine).await, []);
    assert_eq!(books(store, lot).await.owed, 0, "money is not units");
}

/// The number of a payment that paid another order does nothing.
pub async fn a_payment_pays_no_second_order(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let (mine, other, money) = (ordered(store, fresh, lot, 2).await, ordered(store, fresh, lot, 1).await, pay_no(fresh));
    assert_eq!(pay(store, &mine, &money).await, PayOutcome::Paid);
    assert_eq!(pay(store, &other, &money).await, PayOutcome::Conflict);
    assert_eq!(order(store, &other.order_no).await.state, OrderState::Unpaid);
    assert_eq!(cancel(store, &other).await, CancelOutcome::Cancelled);
    assert_eq!(pay(store, &other, &money).await, PayOutcome::Conflict, "nor a closed one");
    assert_eq!(tasks(store, &other).await, [release(lot, &other, 0)]);
    assert_sold(store, lot, 5, 2).await;
}

/// And the payment is free for the right order.
pub async fn nobody_pays_an_order_that_does_not_exist(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let money = pay_no(fresh);
    assert_eq!(pay(store, &somebody(fresh, 1), &money).await, PayOutcome::NotFound);
    let mine = ordered(store, fresh, lot, 1).await;
    assert_eq!(pay(store, &mine, &money).await, PayOutcome::Paid);
}

/// Its units are sold again, its revision rises, and the admission store will hear of it.
pub async fn late_money_revives_an_order_whose_units_are_there(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 2).await;
    let (mine, money) = (ordered(store, fresh, lot, 2).await, pay_no(fresh));
    assert_eq!(cancel(store, &mine).await, CancelOutcome::Cancelled);
    for _ in 0..3 {
        assert_eq!(pay(store, &mine, &money).await, PayOutcome::Revived);
        let revived = order(store, &mine.order_no).await;
        assert_eq!((revived.state, revived.revision, revived.pay_no.as_ref()), (OrderState::Paid, 2, Some(&money)));
        assert_sold(store, lot, 2, 2).await;
        assert_eq!(books(store, lot).await.owed, 2);
    }
    let reserve = Task::Reserve { lot, user: mine.user.clone(), reservation: held(&mine, 2) };
    let mut owed = tasks(store, &mine).await;
    owed.sort_by_key(|task| task.topic());
    assert_eq!(owed, [release(lot, &mine, 0), reserve]);
    assert_eq!(persist(store, lot, std::slice::from_ref(&mine)).await, [Persisted::Stored], "its event hears that it is live");
}

/// Not one unit more is sold than there is, and nothing changes but that money is owed.
pub async fn late_money_goes_back_when_the_units_are_gone(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 2).await;
    let (mine, money) = (ordered(store, fresh, lot, 2).await, pay_no(fresh));
    assert_eq!(cancel(store, &mine).await, CancelOutcome::Cancelled);
    let next = ordered(store, fresh, lot, 1).await;
    for _ in 0..2 {
        assert_eq!(pay(store, &mine, &money).await, PayOutcome::Refunded, "one of two is not enough");
    }
    assert_eq!(order(store, &mine.order_no).await.state, OrderState::Closed);
    assert_sold(store, lot, 2, 1).await;
    let refund = Task::Refund { order_no: mine.order_no.clone(), pay_no: money.clone(), amount_cents: 1_980 };
    let mut owed = tasks(store, &mine).await;
    owed.sort_by_key(|task| task.topic());
    assert_eq!(owed, [refund, release(lot, &mine, 0)]);
    assert_eq!(cancel(store, &next).await, CancelOutcome::Cancelled);
    assert_eq!(pay(store, &mine, &money).await, PayOutcome::Refunded, "what was answered once is answered again");
    assert_sold(store, lot, 2, 0).await;
}

/// One buyer has one live order.
pub async fn late_money_goes_back_when_its_buyer_has_bought_again(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let (mine, money) = (ordered(store, fresh, lot, 2).await, pay_no(fresh));
    assert_eq!(cancel(store, &mine).await, CancelOutcome::Cancelled);
    let again = next_of(fresh, &mine);
    assert_eq!(persist(store, lot, std::slice::from_ref(&again)).await, [Persisted::Stored]);
    assert_eq!(pay(store, &mine, &money).await, PayOutcome::Refunded);
    assert_sold(store, lot, 5, 2).await;
    assert_eq!(pay(store, &again, &pay_no(fresh)).await, PayOutcome::Paid);
    assert_sold(store, lot, 5, 2).await;
}

/// Neither its buyer nor time closes it again, and no other order takes its place.
pub async fn a_revived_order_stays_paid(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    let mine = ordered_at(store, fresh, lot, LONG_AGO).await;
    assert_eq!(expire(store, ITS_DEADLINE, 500).await.len(), 1);
    assert_eq!(pay(store, &mine, &pay_no(fresh)).await, PayOutcome::Revived);
    assert_eq!(expire(store, ITS_DEADLINE, 500).await, []);
    assert_eq!(cancel(store, &mine).await, CancelOutcome::Paid);
    assert_eq!(persist(store, lot, &[next_of(fresh, &mine)]).await, [Persisted::Duplicate]);
    assert_sold(store, lot, 5, 1).await;
}
