//! The steps of the worker on in-memory ports, one behaviour each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::id::{OrderNo, PayNo};
use gateway_core::ports::{Admission as _, PortErrorKind, SaleLedger as _};
use gateway_core::sale::activity::CLOSE_AFTER_END;
use gateway_core::sale::soldout::{self, News};
use gateway_core::sale::{
    ActivityState, Admit, CancelOutcome, Held, Invariant, LetterKind, OrderState, PayOutcome, SaleState, Shard, StepOutcome, StockVersion,
};

use super::lots::Lots;
use super::orders::Orders;
use super::picky::Picky;
use super::reconcile::Reconcile;
use super::refunds::Refunds;
use super::relay::Payback;
use super::rig::{END, PAY_TTL_S, PREHEAT, Rig, START, WAREHOUSE, settings, user};
use super::timer::Timer;
use crate::sale::desk::Desk;
use crate::sale::ending::Ended;
use crate::sale::keeper::Kept;

fn pay_no(text: &str) -> PayNo {
    PayNo::parse(text).unwrap()
}

#[tokio::test]
async fn an_admitted_attempt_becomes_an_order_and_its_buyer_is_told() {
    let rig = Rig::open(2, 1).await;
    assert_eq!(rig.buy("ann", 0).await, Admit::Admitted);
    assert_eq!(rig.write().await, 1);
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("success"));
    assert_eq!(rig.told("ann").await, [true]);
    assert_eq!(rig.admission.backlog(Shard::first(rig.lot)).await.unwrap(), 0);
    assert_eq!(rig.desk.metrics.orders_persisted.get(), 1);
}

#[tokio::test]
async fn an_event_that_comes_again_changes_nothing_and_tells_nobody_twice() {
    let rig = Rig::open(2, 1).await;
    rig.buy("ann", 0).await;
    let unacknowledged = rig.admission.snapshot();
    rig.write().await;
    rig.admission.restore(unacknowledged);
    assert_eq!(rig.write().await, 1, "it comes again");
    assert_eq!(rig.told("ann").await, [true]);
    assert_eq!(rig.record().await.sold, 1);
}

#[tokio::test]
async fn a_loser_gets_its_unit_released_and_hears_of_it() {
    let rig = Rig::open(2, 1).await;
    rig.buy("ann", 0).await;
    rig.ledger.raise_epoch(rig.lot, 1).await.unwrap().unwrap();
    let mut news = rig.desk.bus.subscribe(soldout::SUBJECT).await.unwrap();
    rig.write().await;
    assert_eq!(rig.left().await, 2);
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("未抢到，请重试"));
    assert_eq!(rig.told("ann").await, [false]);
    let told = News::decode(&news.next().await.unwrap()).unwrap();
    assert_eq!(told, News { shard: Shard::first(rig.lot), at: StockVersion { epoch: 1, returns: 1 }, sold_out: false });
}

#[tokio::test]
async fn a_lost_number_that_its_buyer_holds_again_does_not_fail() {
    let rig = Rig::open(2, 1).await;
    rig.buy("ann", 0).await;
    let terms = rig.ledger.raise_epoch(rig.lot, 1).await.unwrap().unwrap();
    rig.admission.install(Shard::first(rig.lot), &terms).await.unwrap();
    assert_eq!(rig.buy("ann", 0).await, Admit::Admitted, "the new epoch knows nothing of her");
    let lease = rig.lease().await;
    let mut one_by_one = settings();
    one_by_one.batch_max = 1;
    let mut orders = Orders::new(rig.desk.clone(), Shard::first(rig.lot), "worker".into(), &one_by_one);
    orders.turn(&lease, rig.now()).await.unwrap();
    assert_eq!(rig.result("ann", 0).await, None, "the first event is stale and its number is under way again");
    orders.turn(&lease, rig.now()).await.unwrap();
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("success"));
    assert_eq!(rig.told("ann").await, [true]);
    assert_eq!(rig.left().await, 1);
}

#[tokio::test]
async fn whoever_lost_the_lease_writes_nothing() {
    let rig = Rig::open(2, 1).await;
    rig.buy("ann", 0).await;
    let old = rig.lease().await;
    rig.ledger.lease_lots("worker", &[rig.lot], Duration::ZERO).await.unwrap();
    rig.ledger.lease_lots("another", &[rig.lot], Duration::from_secs(60)).await.unwrap();
    let refused = rig.orders(Shard::first(rig.lot)).turn(&old, rig.now()).await.unwrap_err();
    assert_eq!(refused.kind, PortErrorKind::Fenced);
    assert_eq!(rig.record().await.sold, 0);
    assert_eq!(rig.admission.backlog(Shard::first(rig.lot)).await.unwrap(), 1, "it comes again to the other");
}

#[tokio::test]
async fn poison_becomes_a_letter_and_the_rest_flows() {
    let rig = Rig::open(3, 1).await;
    let shard = Shard::first(rig.lot);
    // A reservation whose event was damaged: the entry still names it.
    rig.buy("ann", 0).await;
    let claimed = rig.admission.claim(shard, "worker", 1).await.unwrap();
    assert_eq!(claimed.len(), 1);
    rig.admission.acknowledge(shard, &["1".into()]).await.unwrap();
    assert_eq!(rig.admission.backlog(shard).await.unwrap(), 0);
    rig.admission.poison(shard, "q=many", Some((user("ann"), rig.number("ann", 0))));
    rig.admission.poison(shard, "nonsense", None);
    rig.buy("bob", 0).await;
    rig.write().await;
    assert_eq!(rig.result("bob", 0).await.as_deref(), Some("success"));
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("未抢到，请重试"));
    assert_eq!(rig.left().await, 2, "her unit is back");
    assert_eq!(rig.admission.backlog(shard).await.unwrap(), 0);
    let letters = rig.ledger.letters(true, 0, 10).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.what.kind).collect::<Vec<_>>(), [LetterKind::Event; 2]);
    assert!(letters[0].what.payload.contains("q=many") && letters[0].what.payload.contains("ann"), "{}", letters[0].what.payload);
}

#[tokio::test]
async fn poison_that_names_a_live_order_leaves_it_alone() {
    let rig = Rig::open(2, 1).await;
    rig.buy("ann", 0).await;
    rig.admission.poison(Shard::first(rig.lot), "forged", Some((user("ann"), rig.number("ann", 0))));
    rig.write().await;
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("success"));
    assert_eq!((rig.left().await, rig.record().await.sold), (1, 1));
}

#[tokio::test]
async fn an_event_that_the_ledger_cannot_take_is_found_given_up_and_its_unit_released() {
    let rig = Rig::open(9, 1).await;
    let shard = Shard::first(rig.lot);
    for name in ["ann", "bob", "cid", "dan", "eve", "fay", "guy"] {
        assert_eq!(rig.buy(name, 0).await, Admit::Admitted);
    }
    let ledger = Arc::new(Picky { ledger: rig.ledger.clone(), refuses: BTreeSet::from([rig.number("dan", 0)]) });
    let desk = Desk { ledger, ..rig.desk.clone() };
    let mut orders = Orders::new(desk, shard, "worker".into(), &settings());
    let lease = rig.lease().await;
    for attempt in 1..3 {
        let error = orders.turn(&lease, rig.now()).await.unwrap_err();
        assert_eq!(error.kind, PortErrorKind::Broken, "attempt {attempt}");
        assert_eq!((rig.record().await.sold, rig.admission.backlog(shard).await.unwrap()), (6, 1), "the others do not wait for it");
        assert_eq!(rig.ledger.letters_open().await.unwrap(), 0);
    }
    assert_eq!(orders.turn(&lease, rig.now()).await.unwrap(), 1);
    assert_eq!(rig.result("dan", 0).await.as_deref(), Some("未抢到，请重试"));
    assert_eq!((rig.left().await, rig.admission.backlog(shard).await.unwrap()), (3, 0));
    let letters = rig.ledger.letters(true, 0, 10).await.unwrap();
    assert_eq!((letters.len(), letters[0].what.attempts), (1, 3));
    assert!(letters[0].what.payload.contains(rig.number("dan", 0).as_str()), "{}", letters[0].what.payload);
    assert_eq!(rig.desk.metrics.orders_persisted.get(), 6);
}

#[tokio::test]
async fn every_shard_is_preheated_once() {
    let rig = Rig::published(10, 4).await;
    let mut keeper = rig.keeper();
    rig.turn_clock_to(START.plus(Duration::ZERO));
    assert_eq!(rig.keep(&mut keeper).await, Kept::Installed(1));
    assert_eq!(rig.left().await, 10);
    for _ in 0..3 {
        assert_eq!(rig.keep(&mut keeper).await, Kept::Well);
    }
    assert_eq!(rig.record().await.epoch, 1);
}

#[tokio::test]
async fn a_sale_is_preheated_when_its_time_has_come() {
    let rig = Rig::published(10, 1).await;
    let mut keeper = rig.keeper();
    let preheated_at = START.0 - PREHEAT.as_millis() as u64;
    rig.turn_clock_to(gateway_core::time::UnixMillis(preheated_at - 1));
    assert_eq!(rig.keep(&mut keeper).await, Kept::Well);
    assert_eq!(rig.record().await.epoch, 0);
    rig.turn_clock_to(gateway_core::time::UnixMillis(preheated_at));
    assert_eq!(rig.keep(&mut keeper).await, Kept::Installed(1));
    assert_eq!(rig.buy("early", 0).await, Admit::NotStarted);
}

#[tokio::test]
async fn dying_between_two_shards_heals() {
    let rig = Rig::published(10, 2).await;
    let terms = rig.ledger.raise_epoch(rig.lot, 0).await.unwrap().unwrap();
    let parts = gateway_core::sale::shard::split(rig.lot, terms, 2);
    rig.admission.install(Shard::first(rig.lot), &parts[0]).await.unwrap();
    let mut keeper = rig.keeper();
    assert_eq!(rig.keep(&mut keeper).await, Kept::Elsewhere, "whoever does it may be about to");
    assert_eq!(rig.keep(&mut keeper).await, Kept::Installed(2));
    assert_eq!(rig.left().await, 10);
}

#[tokio::test]
async fn a_store_that_came_back_older_is_paused_drained_and_rebuilt() {
    let rig = Rig::open(10, 2).await;
    let caught_up = rig.admission.snapshot();
    rig.buy("ann", 0).await;
    rig.write().await;
    rig.admission.restore(caught_up);
    assert_eq!(rig.buy("bob", 0).await, Admit::Admitted, "nobody has noticed yet");
    let mut keeper = rig.keeper();
    assert_eq!(rig.keep(&mut keeper).await, Kept::Draining(1));
    assert_eq!(rig.buy("cid", 0).await, Admit::NotReady, "every shard is paused");
    assert_eq!(rig.buy("dan", 0).await, Admit::NotReady);
    rig.write().await;
    assert_eq!(rig.keep(&mut keeper).await, Kept::Installed(2));
    assert_eq!((rig.left().await, rig.record().await.sold), (8, 2));
    let ann = rig.admission.held(rig.shard_of(&user("ann")), &user("ann")).await.unwrap();
    assert_eq!(ann.as_ref().and_then(Held::reservation).map(|held| &held.order_no), Some(&rig.number("ann", 0)), "MySQL remembers her");
    assert_eq!(rig.keep(&mut keeper).await, Kept::Well);
}

#[tokio::test]
async fn one_shard_that_lost_everything_takes_the_others_along() {
    let rig = Rig::open(10, 2).await;
    rig.buy("ann", 0).await;
    rig.write().await;
    // A part of a Cluster is gone: the store has the other part only.
    let gone = Shard { lot: rig.lot, index: 1 - rig.shard_of(&user("ann")).index };
    let kept = rig.shard_of(&user("ann"));
    let survey = rig.admission.survey(kept).await.unwrap().unwrap();
    rig.admission.flush();
    let terms =
        gateway_core::sale::SaleTerms { epoch: 1, start: START, end: END, per_user: 5, left: survey.stock.left, buyers: survey.buyers };
    rig.admission.install(kept, &terms).await.unwrap();
    assert_eq!(rig.admission.stock(gone).await.unwrap(), None);
    let mut keeper = rig.keeper();
    assert_eq!(rig.keep(&mut keeper).await, Kept::Elsewhere);
    assert_eq!(rig.keep(&mut keeper).await, Kept::Installed(2));
    assert_eq!(rig.left().await, 9);
}

#[tokio::test]
async fn an_activity_ends_by_itself_once_its_events_are_written() {
    let rig = Rig::open(5, 2).await;
    rig.buy("ann", 0).await;
    rig.turn_clock_to(END.plus(CLOSE_AFTER_END));
    let mut keeper = rig.keeper();
    assert_eq!(rig.keep(&mut keeper).await, Kept::Closing);
    assert_eq!(rig.keep(&mut keeper).await, Kept::Ending(Ended::Waiting(1)));
    for shard in rig.shards() {
        assert_eq!(rig.stock(shard).await.state, SaleState::Closed, "closed before its events are waited for");
    }
    rig.write().await;
    assert_eq!(rig.keep(&mut keeper).await, Kept::Ending(Ended::Settled));
    let books = rig.ledger.books(rig.lot).await.unwrap().unwrap();
    assert_eq!((books.state, books.sku_locked, books.sku_stock, books.sold), (ActivityState::Settled, 0, WAREHOUSE - 1, 1));
    // Not paid: the unit goes back to the warehouse, and the buyer hears of it.
    rig.pass(Duration::from_secs(u64::from(PAY_TTL_S)));
    assert_eq!(Timer::new(rig.desk.clone(), Duration::ZERO).turn(rig.now()).await.unwrap(), 1);
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("订单已关闭"));
    let books = rig.ledger.books(rig.lot).await.unwrap().unwrap();
    assert_eq!((books.sku_locked, books.sku_stock, books.sold), (0, WAREHOUSE, 0));
}

#[tokio::test]
async fn a_store_that_lost_a_closing_sale_does_not_hold_it_up() {
    let rig = Rig::open(5, 1).await;
    rig.buy("lost", 0).await;
    assert_eq!(rig.ledger.close(rig.activity()).await.unwrap(), StepOutcome::Done);
    rig.admission.flush();
    assert_eq!(rig.keep(&mut rig.keeper()).await, Kept::Ending(Ended::Settled));
    assert_eq!(rig.ledger.books(rig.lot).await.unwrap().unwrap().sku_locked, 0);
}

#[tokio::test]
async fn an_unpaid_order_is_closed_and_its_unit_is_sold_again() {
    let rig = Rig::open(1, 1).await;
    rig.buy("ann", 0).await;
    rig.write().await;
    let timer = Timer::new(rig.desk.clone(), Duration::from_secs(10));
    rig.pass(Duration::from_secs(u64::from(PAY_TTL_S) + 9));
    assert_eq!(timer.turn(rig.now()).await.unwrap(), 0, "a payment may be on its way");
    rig.pass(Duration::from_secs(1));
    assert_eq!(timer.turn(rig.now()).await.unwrap(), 1);
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("订单已关闭"));
    assert!(matches!(rig.buy("bob", 0).await, Admit::SoldOut { left: 0, .. }), "her unit is still on its way");
    let mut news = rig.desk.bus.subscribe(soldout::SUBJECT).await.unwrap();
    assert_eq!(rig.relay().await.taken, 1);
    assert!(!News::decode(&news.next().await.unwrap()).unwrap().sold_out);
    assert_eq!(rig.told("ann").await, [true, false], "told once, by whoever was first");
    assert_eq!(rig.buy("bob", 0).await, Admit::Admitted);
    rig.write().await;
    assert_eq!(rig.result("bob", 0).await.as_deref(), Some("success"));
    assert_eq!(rig.desk.metrics.orders_closed.with_label_values(&["expired"]).get(), 1);
}

#[tokio::test]
async fn whoever_cancelled_buys_again_under_the_next_number() {
    let rig = Rig::open(2, 2).await;
    rig.buy("ann", 0).await;
    rig.write().await;
    let cancelled = rig.ledger.cancel(&rig.number("ann", 0), &user("ann"), rig.now()).await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Cancelled);
    rig.relay().await;
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("订单已关闭"));
    assert_eq!(rig.buy("ann", 0).await, Admit::Again { generation: 1 });
    assert_eq!(rig.buy("ann", 1).await, Admit::Admitted);
    rig.write().await;
    assert_eq!(rig.result("ann", 1).await.as_deref(), Some("success"));
    assert_eq!(rig.record().await.sold, 1);
}

#[tokio::test]
async fn a_late_payment_gets_the_unit_back_or_the_money() {
    let rig = Rig::open(1, 1).await;
    rig.buy("ann", 0).await;
    rig.write().await;
    let ann = rig.number("ann", 0);
    rig.ledger.cancel(&ann, &user("ann"), rig.now()).await.unwrap();
    rig.relay().await;
    assert_eq!(rig.ledger.pay(&ann, &pay_no("p1"), rig.now()).await.unwrap(), PayOutcome::Revived);
    assert_eq!(rig.relay().await.taken, 1);
    assert_eq!(rig.left().await, 0, "the sale knows that she holds it again");
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("success"));
    assert_eq!(rig.told("ann").await, [true, false, true]);

    let rig = Rig::open(1, 1).await;
    rig.buy("ann", 0).await;
    rig.write().await;
    let ann = rig.number("ann", 0);
    rig.ledger.cancel(&ann, &user("ann"), rig.now()).await.unwrap();
    rig.relay().await;
    rig.buy("bob", 0).await;
    rig.write().await;
    assert_eq!(rig.ledger.pay(&ann, &pay_no("p1"), rig.now()).await.unwrap(), PayOutcome::Refunded);
    let turn = rig.relay().await;
    assert_eq!((turn.taken, turn.refunds.len()), (1, 1));
    let payments = gateway_core::config::Payments {
        refund_url: None,
        token: gateway_core::config::Secret::default(),
        timeout: Duration::from_secs(1),
    };
    let payback = Payback::new(rig.desk.clone(), Refunds::new(&payments).unwrap());
    payback.send(&turn.refunds[0], rig.now()).await.unwrap();
    let letters = rig.ledger.letters(true, 0, 10).await.unwrap();
    assert_eq!(letters.len(), 1, "without a service an operator sends it");
    assert_eq!(letters[0].what.kind, LetterKind::Outbox);
    assert!(letters[0].what.error.contains("payments.refund_url"), "{}", letters[0].what.error);
    assert_eq!(rig.result("ann", 0).await.as_deref(), Some("订单已关闭"));
}

#[tokio::test]
async fn a_revived_order_gets_its_unit_from_another_shard() {
    let rig = Rig::open(2, 2).await;
    let (here, there) = (Shard { lot: rig.lot, index: 0 }, Shard { lot: rig.lot, index: 1 });
    let names: Vec<_> = (0..20).map(|number| format!("user-{number}")).filter(|name| rig.shard_of(&user(name)) == here).take(2).collect();
    let [ann, bob] = [names[0].as_str(), names[1].as_str()];
    rig.buy(ann, 0).await;
    rig.write().await;
    rig.ledger.cancel(&rig.number(ann, 0), &user(ann), rig.now()).await.unwrap();
    rig.relay().await;
    assert_eq!(rig.buy(bob, 0).await, Admit::Admitted);
    rig.write().await;
    assert_eq!((rig.stock(here).await.left, rig.stock(there).await.left), (0, 1));
    assert_eq!(rig.ledger.pay(&rig.number(ann, 0), &pay_no("p1"), rig.now()).await.unwrap(), PayOutcome::Revived);
    rig.relay().await;
    assert_eq!((rig.stock(here).await.left, rig.stock(there).await.left), (0, 0));
    assert_eq!(Reconcile::new(rig.desk.clone()).round(&rig.record().await, rig.now()).await.unwrap(), []);
    assert_eq!(rig.ledger.books(rig.lot).await.unwrap().unwrap().owed, 0);
}

#[tokio::test]
async fn tasks_in_the_wrong_order_end_in_the_same_place() {
    let rig = Rig::open(2, 1).await;
    rig.buy("ann", 0).await;
    rig.write().await;
    let ann = rig.number("ann", 0);
    rig.ledger.cancel(&ann, &user("ann"), rig.now()).await.unwrap();
    let before_release = rig.admission.snapshot();
    rig.ledger.pay(&ann, &pay_no("p1"), rig.now()).await.unwrap();
    // Both are due; the store forgets what the first time did, and both are done again.
    assert_eq!(rig.relay().await.taken, 2);
    rig.admission.restore(before_release);
    let order = rig.ledger.order(&ann).await.unwrap().unwrap();
    assert_eq!(order.state, OrderState::Paid);
    rig.admission.reserve(Shard::first(rig.lot), &user("ann"), &order.reservation()).await.unwrap();
    rig.desk.conclude(&ann).await.unwrap();
    assert_eq!((rig.left().await, rig.result("ann", 0).await.as_deref()), (1, Some("success")));
}

#[tokio::test]
async fn a_contradiction_alarms_at_once_and_is_listed_when_it_stays() {
    let rig = Rig::open(3, 1).await;
    rig.buy("ann", 0).await;
    rig.write().await;
    let gauge = |invariant: Invariant| rig.desk.metrics.invariant_broken.with_label_values(&[invariant.as_str()]).get();
    let mut reconcile = Reconcile::new(rig.desk.clone());
    let record = rig.record().await;
    assert_eq!(reconcile.round(&record, rig.now()).await.unwrap(), []);
    // Somebody takes her reservation away behind the ledger's back.
    let order = rig.ledger.order(&rig.number("ann", 0)).await.unwrap().unwrap();
    rig.admission.release(Shard::first(rig.lot), &order.release()).await.unwrap().unwrap();
    let found = reconcile.round(&record, rig.now()).await.unwrap();
    assert_eq!(found.iter().map(|difference| difference.invariant).collect::<Vec<_>>(), [Invariant::ReservedIsLive]);
    assert_eq!((gauge(Invariant::ReservedIsLive), gauge(Invariant::SoldIsLive)), (1, 0));
    assert_eq!(rig.ledger.letters_open().await.unwrap(), 0, "once may be chance");
    for _ in 0..3 {
        reconcile.round(&record, rig.now()).await.unwrap();
    }
    let letters = rig.ledger.letters(true, 0, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].what.source_id, format!("{}:reserved_is_live", rig.lot));
    // What an operator's retry does: the keeper finds the sale paused and rebuilds it from the ledger.
    rig.admission.set_state(Shard::first(rig.lot), 1, SaleState::Paused).await.unwrap();
    assert_eq!(rig.keep(&mut rig.keeper()).await, Kept::Installed(2));
    assert_eq!(reconcile.round(&rig.record().await, rig.now()).await.unwrap(), []);
    assert_eq!(gauge(Invariant::ReservedIsLive), 0);
}

#[tokio::test]
async fn nothing_is_compared_while_something_is_under_way() {
    let rig = Rig::open(3, 1).await;
    rig.buy("ann", 0).await;
    let mut reconcile = Reconcile::new(rig.desk.clone());
    assert_eq!(reconcile.round(&rig.record().await, rig.now()).await.unwrap(), [], "an event waits");
    rig.write().await;
    rig.ledger.cancel(&rig.number("ann", 0), &user("ann"), rig.now()).await.unwrap();
    assert_eq!(reconcile.round(&rig.record().await, rig.now()).await.unwrap(), [], "a task waits");
    rig.relay().await;
    assert_eq!(reconcile.round(&rig.record().await, rig.now()).await.unwrap(), []);
}

#[tokio::test]
async fn units_whose_carrier_died_arrive_in_the_round_after_the_next() {
    let rig = Rig::open(10, 2).await;
    let (from, to) = (Shard { lot: rig.lot, index: 0 }, Shard { lot: rig.lot, index: 1 });
    assert_eq!(rig.admission.send(from, "t1", 1, 3).await.unwrap(), 3);
    let mut reconcile = Reconcile::new(rig.desk.clone());
    reconcile.round(&rig.record().await, rig.now()).await.unwrap();
    assert_eq!(rig.left().await, 7, "whoever carries them may be about to arrive");
    reconcile.round(&rig.record().await, rig.now()).await.unwrap();
    assert_eq!((rig.left().await, rig.stock(to).await.left), (10, 8));
    assert_eq!(reconcile.round(&rig.record().await, rig.now()).await.unwrap(), []);
}

#[tokio::test]
async fn one_worker_has_a_lot_until_it_gives_it_back() {
    let rig = Rig::published(3, 1).await;
    let lots = |owner: &str| Lots::new(rig.desk.clone(), owner.into(), Duration::from_secs(3), PREHEAT, Duration::from_secs(10));
    let (mut one, mut two) = (lots("one"), lots("two"));
    let has = async |lots: &mut Lots| lots.step(rig.now()).await.unwrap().len();
    assert_eq!((has(&mut one).await, has(&mut two).await), (1, 0));
    rig.pass(Duration::from_secs(2));
    assert_eq!((has(&mut one).await, has(&mut two).await), (1, 0), "renewed");
    rig.pass(Duration::from_secs(2));
    assert_eq!(has(&mut two).await, 0, "counted from the renewal");
    one.give_back().await.unwrap();
    assert_eq!(has(&mut two).await, 1);
    rig.pass(Duration::from_secs(4));
    assert_eq!(has(&mut one).await, 1, "whoever died is not waited for longer than its lease");
}

#[tokio::test]
async fn a_lot_is_taken_from_its_preheating_until_it_is_settled() {
    let rig = Rig::published(3, 1).await;
    let mut lots = Lots::new(rig.desk.clone(), "one".into(), Duration::from_secs(3), PREHEAT, Duration::from_secs(10));
    rig.turn_clock_to(gateway_core::time::UnixMillis(START.0 - PREHEAT.as_millis() as u64 - 1));
    assert_eq!(lots.step(rig.now()).await.unwrap().len(), 0);
    rig.pass(Duration::from_millis(1));
    assert_eq!(lots.step(rig.now()).await.unwrap().len(), 1);
    let mut keeper = rig.keeper();
    rig.keep(&mut keeper).await;
    rig.turn_clock_to(START);
    let in_force = rig.admission.snapshot();
    rig.ledger.close(rig.activity()).await.unwrap();
    assert_eq!(rig.keep(&mut keeper).await, Kept::Ending(Ended::Settled));
    rig.pass(Duration::from_secs(10));
    assert_eq!(lots.step(rig.now()).await.unwrap().len(), 0);
    // A failover after that: the old store sells what is settled, until somebody looks.
    rig.admission.restore(in_force);
    assert_eq!(rig.buy("late", 0).await, Admit::Admitted);
    rig.pass(Duration::from_secs(10));
    assert_eq!(lots.step(rig.now()).await.unwrap().len(), 1, "somebody has to answer her");
    rig.keep(&mut keeper).await;
    rig.pass(Duration::from_secs(4));
    rig.write().await;
    assert_eq!(rig.result("late", 0).await.as_deref(), Some("未抢到，请重试"));
    assert_eq!(rig.buy("later", 0).await, Admit::Ended);
    rig.pass(Duration::from_secs(10));
    assert_eq!(lots.step(rig.now()).await.unwrap().len(), 0);
}

#[tokio::test]
async fn payments_are_answered_and_nonsense_is_told() {
    let rig = Rig::open(1, 1).await;
    rig.buy("ann", 0).await;
    rig.write().await;
    let number = rig.number("ann", 0);
    let tell = async |text: &str| super::payments::pay(&rig.desk, text.as_bytes(), rig.now()).await;
    let paid = format!(r#"{{"orderNo":"{number}","payNo":"p1","more":1}}"#);
    assert_eq!(tell(&paid).await["outcome"], "paid");
    assert_eq!(tell(&paid).await["outcome"], "paid", "told again");
    assert_eq!(tell(&paid.replace("p1", "p2")).await["outcome"], "refunded", "somebody paid twice");
    let unknown = OrderNo::parse("SKAAAAAAAAAAAAAAAA").unwrap();
    assert_eq!(tell(&format!(r#"{{"orderNo":"{unknown}","payNo":"p3"}}"#)).await["outcome"], "not_found");
    assert_eq!(tell(r#"{"orderNo":"x","payNo":"p3"}"#).await["outcome"], "not_found");
    for text in ["", "[]", "{}", r#"{"orderNo":1,"payNo":"p"}"#, r#"{"orderNo":"x","payNo":"a b"}"#, &" ".repeat(2_000)] {
        assert_eq!(tell(text).await["code"], "BAD_REQUEST", "{text}");
    }
}
