//! What becomes of order events.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::id::PrincipalId;
use gateway_core::ports::SaleLedger;
use gateway_core::sale::{CancelOutcome, Held, OrderEvent, OrderRecord, OrderState, PayOutcome, Persisted, Reservation};

use super::*;

/// Every check.
pub async fn all(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    an_order_is_written_with_all_its_counters(&**store, fresh).await;
    an_order_expires_its_pay_time_after_it_was_written(&**store, fresh).await;
    an_event_seen_before_changes_nothing(&**store, fresh).await;
    an_event_of_a_former_epoch_is_stale(&**store, fresh).await;
    a_user_has_one_live_order_per_lot(&**store, fresh).await;
    units_sold_never_exceed_the_lot(&**store, fresh).await;
    a_thousand_events_fit_one_call(&**store, fresh).await;
    racing_workers_write_each_order_once(store, fresh).await;
    racing_workers_never_oversell(store, fresh).await;
    the_terms_of_a_new_epoch_come_from_the_orders(&**store, fresh).await;
    a_closed_order_is_bought_again_under_the_next_generation(&**store, fresh).await;
    a_number_of_another_generation_is_stale(&**store, fresh).await;
    the_terms_tell_whose_order_was_closed(&**store, fresh).await;
}

/// The order itself, units sold, live units, SKU stock and lock.
pub async fn an_order_is_written_with_all_its_counters(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 10).await;
    let (one, two) = (somebody(fresh, 2), somebody(fresh, 3));
    assert_eq!(persist(store, lot, &[one.clone(), two.clone()]).await, [Persisted::Stored; 2]);
    assert_sold(store, lot, 10, 5).await;
    for event in [one, two] {
        let found = store.order(&event.order_no).await.expect("order").expect("it was stored");
        let want = OrderRecord {
            order_no: event.order_no,
            user: event.user,
            lot,
            qty: event.qty,
            state: OrderState::Unpaid,
            generation: 0,
            revision: 0,
            expires: found.expires,
            pay_no: None,
        };
        assert_eq!(found, want);
    }
    assert_eq!(store.order(&fresh.order_no()).await.expect("order"), None);
    assert_eq!(persist(store, lot, &[]).await, []);
}

/// Redelivered once, twice, within one call, and after the epoch was raised.
pub async fn an_event_seen_before_changes_nothing(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 3).await;
    let (one, two) = (somebody(fresh, 2), somebody(fresh, 1));
    assert_eq!(persist(store, lot, &[one.clone(), one.clone()]).await, [Persisted::Stored; 2], "twice in one call");
    assert_eq!(persist(store, lot, &[two.clone(), one.clone()]).await, [Persisted::Stored; 2], "mixed with a new one");
    assert_sold(store, lot, 3, 3).await;
    let again = OrderEvent { id: format!("{}-0", fresh.number()), ..one.clone() };
    assert_eq!(persist(store, lot, &[again]).await, [Persisted::Stored], "the same order under another log id");
    assert!(raise(store, lot, 1).await.is_some());
    assert_eq!(persist(store, lot, &[one, two]).await, [Persisted::Stored; 2], "also when its epoch is over");
    assert_sold(store, lot, 3, 3).await;
}

/// It leaves no order, alone or in company, and stays stale.
pub async fn an_event_of_a_former_epoch_is_stale(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    assert!(raise(store, lot, 1).await.is_some());
    let (late, current) = (somebody(fresh, 1), event(fresh, &fresh.principal(), 1, 2));
    let outcomes = persist(store, lot, &[late.clone(), current, late.clone()]).await;
    assert_eq!(outcomes, [Persisted::Stale, Persisted::Stored, Persisted::Stale]);
    assert_eq!(persist(store, lot, std::slice::from_ref(&late)).await, [Persisted::Stale]);
    assert_eq!(store.order(&late.order_no).await.expect("order"), None);
    assert_sold(store, lot, 5, 1).await;
}

/// Another number for the same user and lot is a duplicate; another lot is another matter.
pub async fn a_user_has_one_live_order_per_lot(store: &dyn SaleLedger, fresh: &Fresh) {
    let (lot, other) = (selling(store, fresh, 9).await, selling(store, fresh, 9).await);
    let user = fresh.principal();
    let (first, second, third) = (event(fresh, &user, 1, 1), event(fresh, &user, 1, 1), event(fresh, &user, 1, 1));
    assert_eq!(persist(store, lot, &[first.clone(), second.clone()]).await, [Persisted::Stored, Persisted::Duplicate]);
    let outcomes = persist(store, lot, &[third.clone(), second, first]).await;
    assert_eq!(outcomes, [Persisted::Duplicate, Persisted::Duplicate, Persisted::Stored]);
    assert_eq!(store.order(&third.order_no).await.expect("order"), None);
    assert_sold(store, lot, 9, 1).await;
    assert_eq!(persist(store, other, &[event(fresh, &user, 1, 1)]).await, [Persisted::Stored]);
    let namesake = PrincipalId::parse(&user.as_str().to_uppercase()).expect("valid");
    assert_eq!(persist(store, lot, &[event(fresh, &namesake, 1, 1)]).await, [Persisted::Stored], "names differ by case");
}

/// The guard is per event, in order: a wish too large leaves room for a smaller one behind it.
pub async fn units_sold_never_exceed_the_lot(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 3).await;
    let events = [somebody(fresh, 2), somebody(fresh, 2), somebody(fresh, 1), somebody(fresh, 1)];
    let want = [Persisted::Stored, Persisted::SoldOut, Persisted::Stored, Persisted::SoldOut];
    for round in ["first seen", "seen before"] {
        assert_eq!(persist(store, lot, &events).await, want, "{round}");
        assert_sold(store, lot, 3, 3).await;
    }
    assert_eq!(store.order(&events[1].order_no).await.expect("order"), None);
}

/// The port's bound can be used.
pub async fn a_thousand_events_fit_one_call(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 1_000).await;
    let events: Vec<_> = (0..1_000).map(|_| somebody(fresh, 1)).collect();
    assert_eq!(persist(store, lot, &events).await, vec![Persisted::Stored; 1_000]);
    assert_sold(store, lot, 1_000, 1_000).await;
}

/// Eight workers with the same events, each in another order.
pub async fn racing_workers_write_each_order_once(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let lot = selling(&**store, fresh, 100).await;
    let events: Vec<_> = (0..20).map(|_| somebody(fresh, 1)).collect();
    let race = |n| {
        let (store, mut events) = (Arc::clone(store), events.clone());
        events.rotate_left(n);
        tokio::spawn(async move { persist(&*store, lot, &events).await })
    };
    let racers: Vec<_> = (0..8).map(race).collect();
    for racer in racers {
        assert_eq!(racer.await.expect("racer"), vec![Persisted::Stored; 20]);
    }
    assert_sold(&**store, lot, 100, 20).await;
}

/// Eighty different events after thirty units.
pub async fn racing_workers_never_oversell(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let lot = selling(&**store, fresh, 30).await;
    let race = |_| {
        let (store, events) = (Arc::clone(store), (0..10).map(|_| somebody(fresh, 1)).collect::<Vec<_>>());
        tokio::spawn(async move { persist(&*store, lot, &events).await })
    };
    let racers: Vec<_> = (0..8).map(race).collect();
    let mut outcomes = Vec::new();
    for racer in racers {
        outcomes.extend(racer.await.expect("racer"));
    }
    let count = |want| outcomes.iter().filter(|outcome| **outcome == want).count();
    assert_eq!((count(Persisted::Stored), count(Persisted::SoldOut)), (30, 50));
    assert_sold(&**store, lot, 30, 30).await;
}

/// What is left and who holds an order, so that a rebuilt store sells exactly the rest.
pub async fn the_terms_of_a_new_epoch_come_from_the_orders(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 10).await;
    let (one, two) = (somebody(fresh, 1), somebody(fresh, 4));
    persist(store, lot, &[one.clone(), two.clone()]).await;
    let terms = raise(store, lot, 1).await.expect("the epoch is 1");
    assert_eq!((terms.epoch, terms.left, terms.per_user), (2, 5, 5));
    let mut buyers = terms.buyers;
    buyers.sort_by_key(|(_, held)| held.units());
    let held = |event: OrderEvent| (event.user, Held::Reserved(Reservation { qty: event.qty, order_no: event.order_no, revision: 0 }));
    assert_eq!(buyers, [held(one), held(two)]);
    assert_sold(store, lot, 10, 5).await;
}

/// To the millisecond, from the instant the caller names.
pub async fn an_order_expires_its_pay_time_after_it_was_written(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 1).await;
    let (event, written) = (somebody(fresh, 1), now());
    let lease = lease(store, "worker", lot).await.expect("nobody else leases the lot");
    assert_eq!(store.persist(&lease, std::slice::from_ref(&event), written).await.expect("persist"), [Persisted::Stored]);
    assert_eq!(order(store, &event.order_no).await.expires, written.plus(Duration::from_secs(1_800)));
}

/// The buyer's row is used again; the closed order keeps its number and its story.
pub async fn a_closed_order_is_bought_again_under_the_next_generation(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 3).await;
    let first = ordered(store, fresh, lot, 2).await;
    assert_eq!(cancel(store, &first).await, CancelOutcome::Cancelled);
    assert_sold(store, lot, 3, 0).await;
    assert_eq!(persist(store, lot, std::slice::from_ref(&first)).await, [Persisted::Closed], "its event comes again");
    let second = OrderEvent { qty: 3, ..next_of(fresh, &first) };
    for _ in 0..2 {
        assert_eq!(persist(store, lot, std::slice::from_ref(&second)).await, [Persisted::Stored]);
        assert_sold(store, lot, 3, 3).await;
    }
    let (old, new) = (order(store, &first.order_no).await, order(store, &second.order_no).await);
    assert_eq!((old.state, old.generation, old.qty, old.revision), (OrderState::Closed, 0, 2, 1));
    assert_eq!((new.state, new.generation, new.qty, new.revision), (OrderState::Unpaid, 1, 3, 0));
    assert_eq!(persist(store, lot, &[first, second]).await, [Persisted::Closed, Persisted::Stored]);
}

/// It would continue a history that is not there.
pub async fn a_number_of_another_generation_is_stale(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 3).await;
    let stranger = OrderEvent { generation: 1, ..somebody(fresh, 1) };
    assert_eq!(persist(store, lot, &[stranger]).await, [Persisted::Stale]);
    let first = ordered(store, fresh, lot, 1).await;
    assert_eq!(cancel(store, &first).await, CancelOutcome::Cancelled);
    let again = event(fresh, &first.user, 1, 1);
    let ahead = OrderEvent { generation: 2, ..event(fresh, &first.user, 1, 1) };
    assert_eq!(persist(store, lot, &[again, ahead]).await, [Persisted::Stale; 2]);
    assert_sold(store, lot, 3, 0).await;
}

/// A rebuilt store holds what is live, revisions included, and knows the next generation of everybody else.
pub async fn the_terms_tell_whose_order_was_closed(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 10).await;
    let closed = ordered(store, fresh, lot, 1).await;
    let revived = ordered(store, fresh, lot, 2).await;
    let again = ordered(store, fresh, lot, 3).await;
    for event in [&closed, &revived, &again] {
        assert_eq!(cancel(store, event).await, CancelOutcome::Cancelled);
    }
    assert_eq!(pay(store, &revived, &pay_no(fresh)).await, PayOutcome::Revived);
    let second = next_of(fresh, &again);
    assert_eq!(persist(store, lot, std::slice::from_ref(&second)).await, [Persisted::Stored]);
    let terms = raise(store, lot, 1).await.expect("the epoch is 1");
    assert_eq!(terms.left, 5);
    let of = |user: &PrincipalId| terms.buyers.iter().find(|(known, _)| known == user).map(|(_, held)| held.clone());
    assert_eq!(of(&closed.user), Some(Held::Released { generation: 1 }));
    let held = |event: &OrderEvent, revision| Reservation { qty: event.qty, order_no: event.order_no.clone(), revision };
    assert_eq!(of(&revived.user), Some(Held::Reserved(held(&revived, 2))));
    assert_eq!(of(&again.user), Some(Held::Reserved(held(&second, 0))));
    assert_eq!(terms.buyers.len(), 3);
}
