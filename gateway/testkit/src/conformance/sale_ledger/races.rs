//! Buyers, payments and time meet at the same instant: each order ends one way, and the units are right.

use std::sync::Arc;

use gateway_core::ports::SaleLedger;
use gateway_core::sale::{CancelOutcome, OrderEvent, OrderState, PayOutcome, Persisted};

use super::*;

/// Orders in each race; the pairs run in parallel.
const PAIRS: usize = 1_000;

/// Every check.
pub async fn all(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    a_thousand_cancellations_race_as_many_payments(store, fresh).await;
    a_thousand_payments_race_the_clock(store, fresh).await;
    racing_payments_of_one_order_pay_once(store, fresh).await;
    racing_cancellations_give_back_once(store, fresh).await;
}

/// `PAIRS` unpaid orders of one unit in one lot, written at `written`.
async fn unpaid(store: &dyn SaleLedger, fresh: &Fresh, written: UnixMillis) -> (Lot, Vec<OrderEvent>) {
    let stock = u32::try_from(PAIRS).expect("a thousand");
    let lot = selling(store, fresh, stock).await;
    let events: Vec<_> = (0..PAIRS).map(|_| somebody(fresh, 1)).collect();
    let lease = lease(store, "worker", lot).await.expect("nobody else leases the lot");
    assert_eq!(store.persist(&lease, &events, written).await.expect("persist"), vec![Persisted::Stored; PAIRS]);
    (lot, events)
}

/// After the race: paid or closed, never both, never neither; counters and tasks agree.
async fn assert_each_ended_once(store: &dyn SaleLedger, lot: Lot, events: &[OrderEvent]) {
    let (mut paid, mut revived) = (0, 0);
    for event in events {
        let order = order(store, &event.order_no).await;
        match (order.state, order.revision, order.pay_no.is_some()) {
            (OrderState::Paid, 0, true) => paid += 1,
            (OrderState::Paid, 2, true) => revived += 1,
            (OrderState::Closed, 1, false) => {}
            _ => panic!("{order:?}"),
        }
    }
    let stock = u32::try_from(events.len()).expect("a thousand");
    assert_sold(store, lot, stock, paid + revived).await;
    let closed = u64::from(stock - paid - revived);
    assert_eq!(books(store, lot).await.owed, closed + 2 * u64::from(revived), "one release each, and one reservation per revival");
    let numbers: Vec<_> = events.iter().map(|event| &event.order_no).collect();
    let tasks = take_tasks(store, now(), &numbers).await;
    let topic = |topic| tasks.iter().filter(|entry| entry.task.topic() == topic).count() as u64;
    let (released, reserved, refunded) = (topic("release"), topic("reserve"), topic("refund"));
    assert_eq!((released, reserved, refunded), (closed + u64::from(revived), u64::from(revived), 0));
    store.finish_tasks(&tasks.iter().map(|entry| entry.id).collect::<Vec<_>>()).await.expect("finish tasks");
}

/// A cancellation that loses hears that the order is paid; a payment that loses revives it.
pub async fn a_thousand_cancellations_race_as_many_payments(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let (lot, events) = unpaid(&**store, fresh, now()).await;
    let mut racers = tokio::task::JoinSet::new();
    for (n, event) in events.iter().enumerate() {
        let (one, two) = (Arc::clone(store), Arc::clone(store));
        let (mine, theirs, money) = (event.clone(), event.clone(), pay_no(fresh));
        let cancelling = async move {
            let outcome = cancel(&*one, &mine).await;
            assert!(matches!(outcome, CancelOutcome::Cancelled | CancelOutcome::Paid), "{outcome:?}");
        };
        let paying = async move {
            let outcome = pay(&*two, &theirs, &money).await;
            assert!(matches!(outcome, PayOutcome::Paid | PayOutcome::Revived), "{outcome:?}");
        };
        if n % 2 == 0 {
            racers.spawn(cancelling);
            racers.spawn(paying);
        } else {
            racers.spawn(paying);
            racers.spawn(cancelling);
        }
    }
    while let Some(racer) = racers.join_next().await {
        racer.expect("racer");
    }
    assert_each_ended_once(&**store, lot, &events).await;
}

/// The timer sweeps while money comes in.
pub async fn a_thousand_payments_race_the_clock(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let written = UnixMillis(86_400_000);
    let (lot, events) = unpaid(&**store, fresh, written).await;
    let deadline = shift(written, 1_800);
    let mut racers = tokio::task::JoinSet::new();
    for event in events.clone() {
        let (store, money) = (Arc::clone(store), pay_no(fresh));
        racers.spawn(async move {
            let outcome = pay(&*store, &event, &money).await;
            assert!(matches!(outcome, PayOutcome::Paid | PayOutcome::Revived), "{outcome:?}");
        });
    }
    for _ in 0..2 {
        let store = Arc::clone(store);
        racers.spawn(async move {
            while !store.expire(deadline, 50, now()).await.expect("expire").is_empty() {
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(racer) = racers.join_next().await {
        racer.expect("racer");
    }
    assert_each_ended_once(&**store, lot, &events).await;
}

/// One of eight pays; the money of the others goes back.
pub async fn racing_payments_of_one_order_pay_once(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let lot = selling(&**store, fresh, 5).await;
    let event = ordered(&**store, fresh, lot, 1).await;
    let race = |_| {
        let (store, event, money) = (Arc::clone(store), event.clone(), pay_no(fresh));
        tokio::spawn(async move { pay(&*store, &event, &money).await })
    };
    let racers: Vec<_> = (0..8).map(race).collect();
    let mut outcomes = Vec::new();
    for racer in racers {
        outcomes.push(racer.await.expect("racer"));
    }
    let count = |want| outcomes.iter().filter(|outcome| **outcome == want).count();
    assert_eq!((count(PayOutcome::Paid), count(PayOutcome::Refunded)), (1, 7), "{outcomes:?}");
    let tasks = take_tasks(&**store, now(), &[&event.order_no]).await;
    assert_eq!(tasks.iter().filter(|entry| entry.task.topic() == "refund").count(), 7);
    store.finish_tasks(&tasks.iter().map(|entry| entry.id).collect::<Vec<_>>()).await.expect("finish tasks");
    assert_sold(&**store, lot, 5, 1).await;
}

/// One of eight closes it.
pub async fn racing_cancellations_give_back_once(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let lot = selling(&**store, fresh, 5).await;
    let event = ordered(&**store, fresh, lot, 2).await;
    let race = |_| {
        let (store, event) = (Arc::clone(store), event.clone());
        tokio::spawn(async move { cancel(&*store, &event).await == CancelOutcome::Cancelled })
    };
    let racers: Vec<_> = (0..8).map(race).collect();
    let mut won = 0;
    for racer in racers {
        won += u32::from(racer.await.expect("racer"));
    }
    assert_eq!((won, books(&**store, lot).await.owed), (1, 1));
    assert_sold(&**store, lot, 5, 0).await;
}
