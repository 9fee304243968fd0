//! What every [`Admission`] promises.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::id::{Lot, PrincipalId};
use gateway_core::ports::{Admission, Installed};
use gateway_core::sale::{
    Admit, ClaimedEvent, Held, OrderEvent, OrderResult, Release, Reservation, SaleAttempt, SaleState, SaleTerms, Shard, StockVersion,
};

use super::{Fresh, eventually, now, shift};

/// Every check. `claim_idle` is the idle time the store is configured with; keep it below a few seconds.
pub async fn all(store: &Arc<dyn Admission>, fresh: &Fresh, claim_idle: Duration) {
    without_a_sale_nothing_is_ready(&**store, fresh).await;
    installing_puts_terms_in_force(&**store, fresh).await;
    a_stale_epoch_installs_nothing(&**store, fresh).await;
    attempts_are_judged_by_the_window(&**store, fresh).await;
    attempts_are_judged_by_limit_and_stock(&**store, fresh).await;
    a_buyer_gets_the_first_reservation_before_any_refusal(&**store, fresh).await;
    a_batch_is_judged_in_order(&**store, fresh).await;
    the_state_changes_under_its_epoch_only(&**store, fresh).await;
    each_admission_logs_one_event(&**store, fresh).await;
    one_user_racing_itself_gets_one_reservation(store, fresh).await;
    racing_users_never_oversell(store, fresh).await;
    a_release_happens_once_and_only_on_an_exact_match(&**store, fresh).await;
    lots_know_nothing_of_each_other(&**store, fresh).await;
    a_consumer_gets_its_own_events_again_and_then_new_ones(&**store, fresh).await;
    acknowledged_events_never_come_again(&**store, fresh).await;
    an_abandoned_event_goes_to_another_consumer(&**store, fresh, claim_idle).await;
    events_outlive_the_epoch_they_were_admitted_in(&**store, fresh).await;
    results_are_read_back(&**store, fresh).await;
    the_incarnation_is_stable_while_the_store_lives(&**store, fresh).await;
}

/// A shard nobody sells.
fn a_shard(fresh: &Fresh) -> Shard {
    Shard::first(fresh.lot())
}

fn terms(epoch: u32, left: u32, per_user: u32) -> SaleTerms {
    SaleTerms { epoch, start: shift(now(), -3_600), end: shift(now(), 3_600), per_user, left, buyers: Vec::new() }
}

fn attempt(fresh: &Fresh, qty: u32) -> SaleAttempt {
    SaleAttempt { user: fresh.principal(), qty, order_no: fresh.order_no(), generation: 0 }
}

fn held_by(attempt: &SaleAttempt) -> Reservation {
    Reservation { qty: attempt.qty, order_no: attempt.order_no.clone(), revision: 0 }
}

fn sold_out(left: u32) -> Admit {
    Admit::SoldOut { left, at: StockVersion { epoch: 1, returns: 0 } }
}

fn release_of(attempt: &SaleAttempt, epoch: u32) -> Release {
    Release { user: attempt.user.clone(), reservation: held_by(attempt), epoch: Some(epoch), generation: 0 }
}

async fn release(store: &dyn Admission, shard: Shard, what: &Release) -> bool {
    store.release(shard, what).await.expect("release").is_some()
}

/// What the buyer holds; `None` also for who holds nothing any more.
async fn reservation(store: &dyn Admission, shard: Shard, user: &PrincipalId) -> Option<Reservation> {
    store.held(shard, user).await.expect("held").as_ref().and_then(Held::reservation).cloned()
}

async fn install(store: &dyn Admission, shard: Shard, terms: &SaleTerms) {
    assert_eq!(store.install(shard, terms).await.expect("install"), Installed::Yes, "terms of a higher epoch");
}

/// A shard that sells `left` units, at most `per_user` to one user, in epoch 1.
async fn selling(store: &dyn Admission, fresh: &Fresh, left: u32, per_user: u32) -> Shard {
    let shard = a_shard(fresh);
    install(store, shard, &terms(1, left, per_user)).await;
    shard
}

async fn admit(store: &dyn Admission, shard: Shard, attempt: &SaleAttempt) -> Admit {
    let answers = store.admit(shard, std::slice::from_ref(attempt)).await.expect("admit");
    let [answer] = answers.as_slice() else { panic!("one answer per attempt, got {answers:?}") };
    answer.clone()
}

async fn left(store: &dyn Admission, shard: Shard) -> u32 {
    store.stock(shard).await.expect("stock").expect("a sale in force").left
}

async fn claim(store: &dyn Admission, shard: Shard, consumer: &str, max: usize) -> Vec<OrderEvent> {
    let claimed = store.claim(shard, consumer, max).await.expect("claim");
    let order = |claimed| match claimed {
        ClaimedEvent::Order(event) => event,
        ClaimedEvent::Poison { id, raw, .. } => panic!("entry {id} came back as poison: {raw}"),
    };
    claimed.into_iter().map(order).collect()
}

async fn acknowledge(store: &dyn Admission, shard: Shard, events: &[OrderEvent]) {
    let ids: Vec<String> = events.iter().map(|event| event.id.clone()).collect();
    store.acknowledge(shard, &ids).await.expect("acknowledge");
}

fn users(events: &[OrderEvent]) -> Vec<PrincipalId> {
    events.iter().map(|event| event.user.clone()).collect()
}

/// A shard where `count` fresh users, in the order returned, hold one unit each.
async fn with_buyers(store: &dyn Admission, fresh: &Fresh, count: u32) -> (Shard, Vec<PrincipalId>) {
    let shard = selling(store, fresh, count, 1).await;
    let mut buyers = Vec::new();
    for _ in 0..count {
        let attempt = attempt(fresh, 1);
        assert_eq!(admit(store, shard, &attempt).await, Admit::Admitted);
        buyers.push(attempt.user);
    }
    (shard, buyers)
}

/// A shard nobody installed answers, and answers that there is nothing.
pub async fn without_a_sale_nothing_is_ready(store: &dyn Admission, fresh: &Fresh) {
    let (shard, attempt) = (a_shard(fresh), attempt(fresh, 1));
    assert_eq!(admit(store, shard, &attempt).await, Admit::NotReady);
    assert_eq!(store.stock(shard).await.expect("stock"), None);
    assert_eq!(reservation(store, shard, &attempt.user).await, None);
    assert!(!store.set_state(shard, 1, SaleState::Open).await.expect("set state"), "no epoch is in force");
    assert!(!release(store, shard, &release_of(&attempt, 1)).await, "nothing is held");
    assert_eq!(claim(store, shard, "c", 10).await, []);
    assert_eq!(store.backlog(shard).await.expect("backlog"), 0);
    store.acknowledge(shard, &["1-0".to_owned()]).await.expect("unknown ids are ignored");
    assert_eq!(store.stock(shard).await.expect("stock"), None, "asking must not create a sale");
}

/// Stock, buyers and state are replaced, and the store's life is remembered.
pub async fn installing_puts_terms_in_force(store: &dyn Admission, fresh: &Fresh) {
    let (shard, early) = (a_shard(fresh), attempt(fresh, 1));
    install(store, shard, &terms(1, 5, 2)).await;
    assert_eq!(admit(store, shard, &early).await, Admit::Admitted);
    assert!(store.set_state(shard, 1, SaleState::Closed).await.expect("set state"));

    let known = attempt(fresh, 2);
    install(store, shard, &SaleTerms { buyers: vec![(known.user.clone(), Held::Reserved(held_by(&known)))], ..terms(4, 7, 2) }).await;
    let stock = store.stock(shard).await.expect("stock").expect("a sale in force");
    assert_eq!((stock.at.epoch, stock.state, stock.left), (4, SaleState::Open, 7));
    assert_eq!(stock.incarnation, store.incarnation(shard).await.expect("incarnation"), "remembered with the sale");
    assert_eq!(reservation(store, shard, &known.user).await, Some(held_by(&known)));
    assert_eq!(reservation(store, shard, &early.user).await, None, "former buyers are gone");
    assert_eq!(admit(store, shard, &known).await, Admit::Replayed(held_by(&known)));
    assert_eq!(admit(store, shard, &early).await, Admit::Admitted, "a former buyer may buy anew");
}

/// The same or a lower epoch changes nothing.
pub async fn a_stale_epoch_installs_nothing(store: &dyn Admission, fresh: &Fresh) {
    let shard = a_shard(fresh);
    install(store, shard, &terms(3, 5, 1)).await;
    let buyer = attempt(fresh, 1);
    assert_eq!(admit(store, shard, &buyer).await, Admit::Admitted);
    let before = store.stock(shard).await.expect("stock");
    for epoch in [1, 2, 3] {
        assert_eq!(store.install(shard, &terms(epoch, 99, 9)).await.expect("install"), Installed::Stale, "epoch {epoch}");
        assert_eq!(store.stock(shard).await.expect("stock"), before, "epoch {epoch}");
        assert_eq!(reservation(store, shard, &buyer.user).await, Some(held_by(&buyer)), "epoch {epoch}");
    }
}

/// Before, inside, after; the window outranks limit and stock.
pub async fn attempts_are_judged_by_the_window(store: &dyn Admission, fresh: &Fresh) {
    let (early, over) = (a_shard(fresh), a_shard(fresh));
    install(store, early, &SaleTerms { start: shift(now(), 1_800), ..terms(1, 0, 1) }).await;
    install(store, over, &SaleTerms { end: shift(now(), -1), ..terms(1, 0, 1) }).await;
    for qty in [1, 9] {
        assert_eq!(admit(store, early, &attempt(fresh, qty)).await, Admit::NotStarted);
        assert_eq!(admit(store, over, &attempt(fresh, qty)).await, Admit::Ended);
    }
    let soon = a_shard(fresh);
    install(store, soon, &SaleTerms { start: now().plus(Duration::from_millis(100)), ..terms(1, 1_000_000, 1) }).await;
    eventually("the window opens by itself", || async {
        let answer = admit(store, soon, &attempt(fresh, 1)).await;
        assert!(matches!(answer, Admit::NotStarted | Admit::Admitted), "before or inside the window, got {answer:?}");
        (answer == Admit::Admitted).then_some(())
    })
    .await;
}

/// Limit before stock; a wish too large leaves what is left to others.
pub async fn attempts_are_judged_by_limit_and_stock(store: &dyn Admission, fresh: &Fresh) {
    let shard = selling(store, fresh, 5, 3).await;
    assert_eq!(admit(store, shard, &attempt(fresh, 4)).await, Admit::LimitExceeded);
    assert_eq!(admit(store, shard, &attempt(fresh, 3)).await, Admit::Admitted, "exactly the limit");
    assert_eq!(admit(store, shard, &attempt(fresh, 3)).await, sold_out(2));
    assert_eq!(left(store, shard).await, 2, "a refusal takes nothing");
    assert_eq!(admit(store, shard, &attempt(fresh, 2)).await, Admit::Admitted, "exactly what is left");
    assert_eq!(admit(store, shard, &attempt(fresh, 1)).await, sold_out(0));
    assert_eq!(admit(store, shard, &attempt(fresh, 4)).await, Admit::LimitExceeded, "the limit comes before the stock");
}

/// The winner's retry never hears a refusal, and never gets another number.
pub async fn a_buyer_gets_the_first_reservation_before_any_refusal(store: &dyn Admission, fresh: &Fresh) {
    let shard = selling(store, fresh, 2, 2).await;
    let first = attempt(fresh, 2);
    assert_eq!(admit(store, shard, &first).await, Admit::Admitted);
    let retry = SaleAttempt { user: first.user.clone(), qty: 9, order_no: fresh.order_no(), generation: 0 };
    let replayed = Admit::Replayed(held_by(&first));
    assert_eq!(admit(store, shard, &retry).await, replayed, "sold out and beyond the limit");
    for state in [SaleState::Paused, SaleState::Closed] {
        assert!(store.set_state(shard, 1, state).await.expect("set state"));
        assert_eq!(admit(store, shard, &retry).await, replayed, "{state:?}");
    }
    let known = SaleTerms { end: shift(now(), -1), buyers: vec![(first.user.clone(), Held::Reserved(held_by(&first)))], ..terms(2, 0, 1) };
    install(store, shard, &known).await;
    assert_eq!(admit(store, shard, &retry).await, replayed, "after the window");
    assert_eq!(store.backlog(shard).await.expect("backlog"), 1, "replays log nothing");
}

/// One call is as many attempts one after another.
pub async fn a_batch_is_judged_in_order(store: &dyn Admission, fresh: &Fresh) {
    let shard = selling(store, fresh, 3, 2).await;
    let (one, two, three, four) = (attempt(fresh, 2), attempt(fresh, 2), attempt(fresh, 1), attempt(fresh, 1));
    let batch = [one.clone(), two.clone(), one.clone(), attempt(fresh, 3), three.clone(), four];
    let want = vec![Admit::Admitted, sold_out(1), Admit::Replayed(held_by(&one)), Admit::LimitExceeded, Admit::Admitted, sold_out(0)];
    assert_eq!(store.admit(shard, &batch).await.expect("admit"), want);
    assert_eq!(users(&claim(store, shard, "c", 10).await), [one.user, three.user], "events in the order of the batch");

    let shard = selling(store, fresh, 63, 1).await;
    let batch: Vec<_> = (0..64).map(|_| attempt(fresh, 1)).collect();
    let answers = store.admit(shard, &batch).await.expect("admit 64 at once");
    assert_eq!(answers.len(), 64);
    assert!(answers[..63].iter().all(|answer| *answer == Admit::Admitted), "{answers:?}");
    assert_eq!(answers[63], sold_out(0));
    assert_eq!(store.admit(shard, &[]).await.expect("admit nothing"), []);
}

/// `set_state` acts under exactly the epoch in force.
pub async fn the_state_changes_under_its_epoch_only(store: &dyn Admission, fresh: &Fresh) {
    let shard = a_shard(fresh);
    install(store, shard, &terms(2, 9, 1)).await;
    for epoch in [1, 3] {
        assert!(!store.set_state(shard, epoch, SaleState::Closed).await.expect("set state"), "epoch {epoch}");
    }
    for (state, want) in [(SaleState::Paused, Admit::NotReady), (SaleState::Closed, Admit::Ended), (SaleState::Open, Admit::Admitted)] {
        assert!(store.set_state(shard, 2, state).await.expect("set state"), "{state:?}");
        assert_eq!(store.stock(shard).await.expect("stock").expect("a sale in force").state, state);
        assert_eq!(admit(store, shard, &attempt(fresh, 1)).await, want, "{state:?}");
    }
}

/// The event carries what was admitted; refusals and replays leave none.
pub async fn each_admission_logs_one_event(store: &dyn Admission, fresh: &Fresh) {
    let shard = a_shard(fresh);
    install(store, shard, &terms(6, 3, 2)).await;
    let (one, two) = (attempt(fresh, 2), attempt(fresh, 1));
    for attempt in [&one, &one, &attempt(fresh, 3), &two, &attempt(fresh, 1), &two] {
        admit(store, shard, attempt).await;
    }
    assert_eq!(store.backlog(shard).await.expect("backlog"), 2);
    let events = claim(store, shard, "c", 10).await;
    let seen: Vec<_> = events.iter().map(|event| (event.user.clone(), event.qty, event.order_no.clone(), event.epoch)).collect();
    assert_eq!(seen, [(one.user, 2, one.order_no, 6), (two.user, 1, two.order_no, 6)]);
    assert_ne!(events[0].id, events[1].id);
}

/// A hundred parallel attempts of one user: one reservation, one event, one number for all answers.
pub async fn one_user_racing_itself_gets_one_reservation(store: &Arc<dyn Admission>, fresh: &Fresh) {
    let shard = selling(&**store, fresh, 100, 1).await;
    let attempt = attempt(fresh, 1);
    let race = |_| {
        let (store, attempt) = (Arc::clone(store), attempt.clone());
        tokio::spawn(async move { admit(&*store, shard, &attempt).await })
    };
    let racers: Vec<_> = (0..100).map(race).collect();
    let mut admitted = 0;
    for racer in racers {
        let answer = racer.await.expect("racer");
        assert!([Admit::Admitted, Admit::Replayed(held_by(&attempt))].contains(&answer), "{answer:?}");
        admitted += u32::from(answer == Admit::Admitted);
    }
    assert_eq!((admitted, left(&**store, shard).await, store.backlog(shard).await.expect("backlog")), (1, 99, 1));
}

/// Two hundred users after fifty units: fifty win.
pub async fn racing_users_never_oversell(store: &Arc<dyn Admission>, fresh: &Fresh) {
    let shard = selling(&**store, fresh, 50, 1).await;
    let race = |_| {
        let (store, attempt) = (Arc::clone(store), attempt(fresh, 1));
        tokio::spawn(async move { admit(&*store, shard, &attempt).await })
    };
    let racers: Vec<_> = (0..200).map(race).collect();
    let mut admitted = 0;
    for racer in racers {
        let answer = racer.await.expect("racer");
        assert!([Admit::Admitted, sold_out(0)].contains(&answer), "{answer:?}");
        admitted += u32::from(answer == Admit::Admitted);
    }
    assert_eq!((admitted, left(&**store, shard).await, store.backlog(shard).await.expect("backlog")), (50, 0, 50));
}

/// Unit and right to buy come back, exactly once, and only for who asks with the whole truth.
pub async fn a_release_happens_once_and_only_on_an_exact_match(store: &dyn Admission, fresh: &Fresh) {
    let shard = a_shard(fresh);
    install(store, shard, &terms(2, 2, 2)).await;
    let buyer = attempt(fresh, 2);
    let (held, exact) = (held_by(&buyer), release_of(&buyer, 2));
    assert_eq!(admit(store, shard, &buyer).await, Admit::Admitted);
    let wrong = [
        (release_of(&buyer, 1), "another epoch"),
        (Release { user: fresh.principal(), ..exact.clone() }, "another user"),
        (Release { reservation: Reservation { qty: 1, ..held.clone() }, ..exact.clone() }, "another quantity"),
        (Release { reservation: Reservation { order_no: fresh.order_no(), ..held.clone() }, ..exact.clone() }, "another order"),
        (Release { reservation: Reservation { revision: 2, ..held.clone() }, ..exact.clone() }, "another revision"),
    ];
    for (what, why) in wrong {
        assert!(!release(store, shard, &what).await, "{why}");
        assert_eq!(left(store, shard).await, 0, "{why}");
    }
    assert_eq!(store.release(shard, &exact).await.expect("release"), Some(StockVersion { epoch: 2, returns: 1 }));
    for again in 0..2 {
        assert!(!release(store, shard, &exact).await, "repetition {again}");
        assert_eq!(left(store, shard).await, 2, "repetition {again}");
    }
    assert_eq!(store.held(shard, &buyer.user).await.expect("held"), None);
    let anew = SaleAttempt { order_no: fresh.order_no(), ..buyer };
    assert_eq!(admit(store, shard, &anew).await, Admit::Admitted, "the right to buy came back");
    assert!(!release(store, shard, &exact).await, "a late release of the former order");
    assert_eq!(reservation(store, shard, &anew.user).await, Some(held_by(&anew)));
}

/// Stock, buyers and events are per shard, also within one activity or one SKU.
pub async fn lots_know_nothing_of_each_other(store: &dyn Admission, fresh: &Fresh) {
    let shard = selling(store, fresh, 1, 1).await;
    let others = [Lot { activity: fresh.lot().activity, ..shard.lot }, Lot { sku: fresh.lot().sku, ..shard.lot }].map(Shard::first);
    let buyer = attempt(fresh, 1);
    assert_eq!(admit(store, shard, &buyer).await, Admit::Admitted);
    for other in others {
        assert_eq!(admit(store, other, &buyer).await, Admit::NotReady);
        install(store, other, &terms(1, 1, 1)).await;
        assert_eq!(admit(store, other, &buyer).await, Admit::Admitted);
        assert_eq!(claim(store, other, "c", 10).await.len(), 1);
    }
    assert_eq!(claim(store, shard, "c", 10).await.len(), 1);
}

/// Unacknowledged events of the same consumer come first, then new ones, oldest first, never more than asked for.
pub async fn a_consumer_gets_its_own_events_again_and_then_new_ones(store: &dyn Admission, fresh: &Fresh) {
    let (shard, buyers) = with_buyers(store, fresh, 5).await;
    assert_eq!(users(&claim(store, shard, "c", 2).await), buyers[..2]);
    assert_eq!(users(&claim(store, shard, "c", 2).await), buyers[..2], "claimed and not acknowledged");
    assert_eq!(users(&claim(store, shard, "c", 3).await), buyers[..3], "its own, then a new one");
    assert_eq!(users(&claim(store, shard, "c", 100).await), buyers);
    assert_eq!(store.backlog(shard).await.expect("backlog"), 5, "claiming acknowledges nothing");
}

/// What is acknowledged is over; the rest stays.
pub async fn acknowledged_events_never_come_again(store: &dyn Admission, fresh: &Fresh) {
    let (shard, buyers) = with_buyers(store, fresh, 4).await;
    let events = claim(store, shard, "c", 3).await;
    acknowledge(store, shard, &events[1..2]).await;
    assert_eq!(store.backlog(shard).await.expect("backlog"), 3, "two claimed and one not");
    let rest = claim(store, shard, "c", 10).await;
    assert_eq!(users(&rest), [&buyers[..1], &buyers[2..]].concat());
    acknowledge(store, shard, &events).await;
    acknowledge(store, shard, &rest).await;
    acknowledge(store, shard, &rest).await;
    assert_eq!(claim(store, shard, "c", 10).await, []);
    assert_eq!(store.backlog(shard).await.expect("backlog"), 0);
}

/// Another consumer gets them oldest first, not before the idle time, and then they are its own.
pub async fn an_abandoned_event_goes_to_another_consumer(store: &dyn Admission, fresh: &Fresh, claim_idle: Duration) {
    let (shard, buyers) = with_buyers(store, fresh, 3).await;
    let before = Instant::now();
    assert_eq!(users(&claim(store, shard, "dead", 2).await), buyers[..2]);
    assert_eq!(users(&claim(store, shard, "heir", 1).await), buyers[2..], "what nobody claimed is free");
    let inherited = eventually("an abandoned event is handed out again", || async {
        let events = claim(store, shard, "heir", 10).await;
        (events.len() == 3).then_some(events)
    })
    .await;
    // Stores count idle time in whole milliseconds, on a clock of their own.
    let early = claim_idle.saturating_sub(Duration::from_millis(5));
    assert!(before.elapsed() >= early, "handed out after {:?}, idle time is {claim_idle:?}", before.elapsed());
    assert_eq!(users(&inherited), [&buyers[2..], &buyers[..2]].concat(), "its own first, then the abandoned ones, oldest first");
    acknowledge(store, shard, &inherited).await;
    assert_eq!(claim(store, shard, "dead", 10).await, [], "the former holder has nothing left");
    assert_eq!(store.backlog(shard).await.expect("backlog"), 0);
}

/// A new epoch replaces stock and buyers, never the log.
pub async fn events_outlive_the_epoch_they_were_admitted_in(store: &dyn Admission, fresh: &Fresh) {
    let (shard, buyers) = with_buyers(store, fresh, 2).await;
    assert_eq!(users(&claim(store, shard, "c", 1).await), buyers[..1]);
    install(store, shard, &terms(2, 1, 1)).await;
    let late = attempt(fresh, 1);
    assert_eq!(admit(store, shard, &late).await, Admit::Admitted);
    let seen: Vec<_> = claim(store, shard, "c", 10).await.into_iter().map(|event| (event.user, event.epoch)).collect();
    assert_eq!(seen, [(buyers[0].clone(), 1), (buyers[1].clone(), 1), (late.user, 2)]);
}

/// Results keep their owner and their words; writing one again is harmless.
pub async fn results_are_read_back(store: &dyn Admission, fresh: &Fresh) {
    let (good, bad, unknown) = (fresh.order_no(), fresh.order_no(), fresh.order_no());
    let success = OrderResult::Success { user: fresh.principal() };
    let fail = OrderResult::Fail { user: fresh.principal(), message: "售罄: \"再试\"\n😂".to_owned() };
    let results = [(good.clone(), success.clone()), (bad.clone(), fail.clone())];
    for _ in 0..2 {
        store.put_results(&results).await.expect("put results");
        assert_eq!(store.result(&good).await.expect("result"), Some(success.clone()));
        assert_eq!(store.result(&bad).await.expect("result"), Some(fail.clone()));
    }
    assert_eq!(store.result(&unknown).await.expect("result"), None);
    store.put_results(&[]).await.expect("put nothing");
}

/// Two looks at a store that lived through both agree.
pub async fn the_incarnation_is_stable_while_the_store_lives(store: &dyn Admission, fresh: &Fresh) {
    let shard = a_shard(fresh);
    let incarnation = store.incarnation(shard).await.expect("incarnation");
    assert!(!incarnation.is_empty());
    assert_eq!(store.incarnation(shard).await.expect("incarnation"), incarnation);
}
