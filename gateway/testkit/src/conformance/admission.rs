//! What every [`Admission`] promises.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::id::{Lot, PrincipalId};
use gateway_core::ports::{Admission, Installed};
use gateway_core::sale::{
    Admit, ClaimedEvent, Held, OrderEvent, OrderResult, Release, Reservation, Reserved, SaleAttempt, SaleState, SaleStock, SaleTerms,
    Shard, StockVersion, Survey, Transfer,
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
    the_window_is_judged_to_the_millisecond(&**store, fresh).await;
    sold_out_says_since_when(&**store, fresh).await;
    who_had_an_order_closed_is_told_the_generation(&**store, fresh).await;
    a_release_without_an_epoch_is_good_under_any(&**store, fresh).await;
    racing_releases_give_back_once(store, fresh).await;
    a_refused_event_is_given_back_and_acknowledged_at_once(&**store, fresh).await;
    whoever_lost_an_event_refuses_nothing(&**store, fresh, claim_idle).await;
    a_revived_order_gets_its_units_whatever_came_first(&**store, fresh).await;
    a_revived_order_waits_for_units_and_for_its_place(&**store, fresh).await;
    units_travel_between_shards_once(&**store, fresh).await;
    a_sale_that_is_not_open_sends_nothing(&**store, fresh).await;
    a_new_epoch_forgets_transfers(&**store, fresh).await;
    a_survey_shows_everything_in_a_shard(&**store, fresh).await;
    shards_of_a_lot_know_nothing_of_each_other(&**store, fresh).await;
    a_closed_sale_is_retired_under_its_epoch_only(&**store, fresh).await;
    a_late_result_replaces_the_earlier_one(&**store, fresh).await;
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

/// What the machine's clock says around an answer decides which answers are right: half open, to the millisecond.
pub async fn the_window_is_judged_to_the_millisecond(store: &dyn Admission, fresh: &Fresh) {
    let shard = a_shard(fresh);
    let start = now().plus(Duration::from_millis(100));
    let end = start.plus(Duration::from_millis(200));
    install(store, shard, &SaleTerms { start, end, ..terms(1, 1_000_000, 1) }).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&Admit::Ended) {
        let (before, answer, after) = (now(), admit(store, shard, &attempt(fresh, 1)).await, now());
        let right = match answer {
            Admit::NotStarted => before < start,
            Admit::Admitted => after >= start && before < end,
            Admit::Ended => after >= end,
            Admit::Replayed(_) | Admit::Again { .. } | Admit::NotReady | Admit::LimitExceeded | Admit::SoldOut { .. } => false,
        };
        assert!(right, "{answer:?} between {before:?} and {after:?}, the window is {start:?} to {end:?}");
        if seen.last() != Some(&answer) {
            seen.push(answer);
        }
    }
    assert_eq!(seen, [Admit::NotStarted, Admit::Admitted, Admit::Ended]);
}

/// The version rises with each return of units, so that news of it can be put in order.
pub async fn sold_out_says_since_when(store: &dyn Admission, fresh: &Fresh) {
    let shard = a_shard(fresh);
    install(store, shard, &terms(3, 2, 2)).await;
    let at = |returns| StockVersion { epoch: 3, returns };
    for round in 0..3 {
        let buyer = attempt(fresh, 2);
        assert_eq!(admit(store, shard, &buyer).await, Admit::Admitted);
        assert_eq!(admit(store, shard, &attempt(fresh, 1)).await, Admit::SoldOut { left: 0, at: at(round) });
        assert_eq!(store.stock(shard).await.expect("stock").map(|stock| stock.at), Some(at(round)));
        assert_eq!(store.release(shard, &release_of(&buyer, 3)).await.expect("release"), Some(at(round + 1)));
    }
    install(store, shard, &terms(4, 0, 2)).await;
    let anew = StockVersion { epoch: 4, returns: 0 };
    assert_eq!(admit(store, shard, &attempt(fresh, 1)).await, Admit::SoldOut { left: 0, at: anew }, "an epoch counts anew");
}

/// Only when everything else allows the purchase; the event carries the generation, and the new terms know it too.
pub async fn who_had_an_order_closed_is_told_the_generation(store: &dyn Admission, fresh: &Fresh) {
    let shard = selling(store, fresh, 1, 1).await;
    let first = attempt(fresh, 1);
    assert_eq!(admit(store, shard, &SaleAttempt { generation: 1, ..first.clone() }).await, Admit::Again { generation: 0 });
    assert_eq!(admit(store, shard, &first).await, Admit::Admitted);
    let closed = Release { epoch: None, generation: 1, ..release_of(&first, 1) };
    assert!(release(store, shard, &closed).await);
    assert!(!release(store, shard, &closed).await, "twice");
    assert_eq!(store.held(shard, &first.user).await.expect("held"), Some(Held::Released { generation: 1 }));
    assert_eq!(left(store, shard).await, 1);
    assert_eq!(admit(store, shard, &first).await, Admit::Again { generation: 1 });
    assert_eq!(admit(store, shard, &SaleAttempt { qty: 2, ..first.clone() }).await, Admit::LimitExceeded, "a refusal needs no number");
    assert_eq!(left(store, shard).await, 1, "being told takes nothing");
    assert_eq!(store.backlog(shard).await.expect("backlog"), 1, "and logs nothing");
    let second = SaleAttempt { order_no: fresh.order_no(), generation: 1, ..first.clone() };
    assert_eq!(admit(store, shard, &second).await, Admit::Admitted);
    assert_eq!(admit(store, shard, &first).await, Admit::Replayed(held_by(&second)), "the former number replays the present order");
    assert!(!release(store, shard, &closed).await, "the first order's release comes once more");
    let events = claim(store, shard, "c", 10).await;
    assert_eq!(events.iter().map(|event| event.generation).collect::<Vec<_>>(), [0, 1]);

    let known = vec![(first.user.clone(), Held::Released { generation: 7 })];
    install(store, shard, &SaleTerms { buyers: known, ..terms(2, 1, 1) }).await;
    assert_eq!(admit(store, shard, &second).await, Admit::Again { generation: 7 });
    assert_eq!(admit(store, shard, &SaleAttempt { generation: 7, ..second }).await, Admit::Admitted);
}

/// Whoever closed the order has read that it was live; what another epoch rebuilt is the same order.
pub async fn a_release_without_an_epoch_is_good_under_any(store: &dyn Admission, fresh: &Fresh) {
    let shard = selling(store, fresh, 1, 1).await;
    let buyer = attempt(fresh, 1);
    assert_eq!(admit(store, shard, &buyer).await, Admit::Admitted);
    let rebuilt = vec![(buyer.user.clone(), Held::Reserved(held_by(&buyer)))];
    install(store, shard, &SaleTerms { buyers: rebuilt, ..terms(2, 0, 1) }).await;
    assert!(!release(store, shard, &release_of(&buyer, 1)).await, "an epoch that is named has to be in force");
    for state in [SaleState::Paused, SaleState::Closed] {
        assert!(store.set_state(shard, 2, state).await.expect("set state"));
    }
    assert!(release(store, shard, &Release { epoch: None, generation: 1, ..release_of(&buyer, 1) }).await, "in whatever state");
    assert_eq!(left(store, shard).await, 1);
}

/// Sixteen at once.
pub async fn racing_releases_give_back_once(store: &Arc<dyn Admission>, fresh: &Fresh) {
    let shard = selling(&**store, fresh, 3, 2).await;
    let buyer = attempt(fresh, 2);
    assert_eq!(admit(&**store, shard, &buyer).await, Admit::Admitted);
    let race = |_| {
        let (store, what) = (Arc::clone(store), release_of(&buyer, 1));
        tokio::spawn(async move { release(&*store, shard, &what).await })
    };
    let racers: Vec<_> = (0..16).map(race).collect();
    let mut won = 0;
    for racer in racers {
        won += u32::from(racer.await.expect("racer"));
    }
    assert_eq!((won, left(&**store, shard).await), (1, 3));
}

/// An event that comes again was not given back, and one that was given back does not come again.
pub async fn a_refused_event_is_given_back_and_acknowledged_at_once(store: &dyn Admission, fresh: &Fresh) {
    let shard = selling(store, fresh, 3, 2).await;
    let (one, two) = (attempt(fresh, 2), attempt(fresh, 1));
    for attempt in [&one, &two] {
        assert_eq!(admit(store, shard, attempt).await, Admit::Admitted);
    }
    let events = claim(store, shard, "c", 10).await;
    let refuse = async |consumer: &str, id: &str, what: &Release| store.refuse(shard, consumer, id, what).await.expect("refuse");
    let at = Some(StockVersion { epoch: 1, returns: 1 });
    assert_eq!(refuse("c", &events[0].id, &release_of(&one, 1)).await, at);
    assert_eq!(refuse("c", &events[0].id, &release_of(&one, 1)).await, None, "twice");
    assert_eq!((left(store, shard).await, store.backlog(shard).await.expect("backlog")), (2, 1));
    assert_eq!(users(&claim(store, shard, "c", 10).await), std::slice::from_ref(&two.user));
    assert_eq!(refuse("c", &events[1].id, &release_of(&two, 2)).await, None, "of another epoch, nothing comes back");
    assert_eq!((left(store, shard).await, store.backlog(shard).await.expect("backlog")), (2, 0), "but it was answered");
    assert_eq!(store.refuse(a_shard(fresh), "c", "1-0", &release_of(&one, 1)).await.expect("refuse"), None);
}

/// Somebody else has it, and may have made an order of it.
pub async fn whoever_lost_an_event_refuses_nothing(store: &dyn Admission, fresh: &Fresh, claim_idle: Duration) {
    let shard = selling(store, fresh, 2, 1).await;
    let buyers = [attempt(fresh, 1), attempt(fresh, 1)];
    for attempt in &buyers {
        assert_eq!(admit(store, shard, attempt).await, Admit::Admitted);
    }
    let events = claim(store, shard, "slow", 1).await;
    let refuse =
        async |consumer: &str, n: usize, id: &str| store.refuse(shard, consumer, id, &release_of(&buyers[n], 1)).await.expect("refuse");
    let unclaimed = claim(store, shard, "other", 1).await;
    assert_eq!(refuse("slow", 1, &unclaimed[0].id).await, None, "never its own");
    eventually("an abandoned event is handed out again", || async { (claim(store, shard, "heir", 10).await.len() == 2).then_some(()) })
        .await;
    assert_eq!(refuse("slow", 0, &events[0].id).await, None, "after {claim_idle:?} it is another's");
    assert_eq!((left(store, shard).await, store.backlog(shard).await.expect("backlog")), (0, 2));
    assert!(refuse("heir", 0, &events[0].id).await.is_some());
    assert_eq!((left(store, shard).await, store.backlog(shard).await.expect("backlog")), (1, 1));
}

/// The release first or the reservation first, each twice: the units are held once and stay held.
pub async fn a_revived_order_gets_its_units_whatever_came_first(store: &dyn Admission, fresh: &Fresh) {
    for release_first in [true, false] {
        let shard = selling(store, fresh, 2, 2).await;
        let buyer = attempt(fresh, 2);
        let closed = Release { epoch: None, generation: 1, ..release_of(&buyer, 1) };
        let revived = Reservation { revision: 2, ..held_by(&buyer) };
        assert_eq!(admit(store, shard, &buyer).await, Admit::Admitted);
        if release_first {
            assert!(release(store, shard, &closed).await);
        }
        assert!(store.set_state(shard, 1, SaleState::Closed).await.expect("set state"), "money is taken after the end too");
        for _ in 0..2 {
            assert_eq!(store.reserve(shard, &buyer.user, &revived).await.expect("reserve"), Reserved::Held);
            assert!(!release(store, shard, &closed).await, "it is of an earlier revision");
            assert_eq!((left(store, shard).await, reservation(store, shard, &buyer.user).await), (0, Some(revived.clone())));
        }
        assert_eq!(admit(store, shard, &buyer).await, Admit::Replayed(revived));
        assert_eq!(store.backlog(shard).await.expect("backlog"), 1, "a revived order is no event");
    }
}

/// Nothing is taken that is not there.
pub async fn a_revived_order_waits_for_units_and_for_its_place(store: &dyn Admission, fresh: &Fresh) {
    let (shard, one, two) = (selling(store, fresh, 2, 2).await, attempt(fresh, 2), attempt(fresh, 1));
    let reserve =
        async |buyer: &SaleAttempt, reservation: &Reservation| store.reserve(shard, &buyer.user, reservation).await.expect("reserve");
    let nowhere = store.reserve(a_shard(fresh), &one.user, &held_by(&one)).await.expect("reserve");
    assert_eq!(nowhere, Reserved::NoSale);
    assert_eq!(admit(store, shard, &one).await, Admit::Admitted);
    assert_eq!(reserve(&two, &held_by(&two)).await, Reserved::NoUnits);
    let other = Reservation { order_no: fresh.order_no(), revision: 2, ..held_by(&one) };
    assert_eq!(reserve(&one, &other).await, Reserved::Taken, "the buyer holds another order");
    assert_eq!((left(store, shard).await, reservation(store, shard, &one.user).await), (0, Some(held_by(&one))));
    assert_eq!(store.held(shard, &two.user).await.expect("held"), None);
    assert!(release(store, shard, &release_of(&one, 1)).await);
    assert_eq!(reserve(&two, &held_by(&two)).await, Reserved::Held);
    assert_eq!(reserve(&one, &other).await, Reserved::NoUnits, "one is left of two");
    assert_eq!(left(store, shard).await, 1);
}

/// The same transfer again says the same again and moves nothing.
pub async fn units_travel_between_shards_once(store: &dyn Admission, fresh: &Fresh) {
    let lot = fresh.lot();
    let (donor, receiver) = (Shard { lot, index: 0 }, Shard { lot, index: 1 });
    install(store, donor, &terms(1, 10, 5)).await;
    install(store, receiver, &terms(1, 0, 5)).await;
    let send = async |id, wanted| store.send(donor, id, 1, wanted).await.expect("send");
    let receive = async |epoch, id, units| store.receive(receiver, epoch, id, units).await.expect("receive");
    assert_eq!([send("t-1", 4).await, send("t-1", 9).await], [4, 4]);
    assert_eq!(left(store, donor).await, 6);
    assert!(!receive(2, "t-1", 4).await, "another epoch");
    assert_eq!([receive(1, "t-1", 4).await, receive(1, "t-1", 4).await], [true, false]);
    assert_eq!(left(store, receiver).await, 4);
    let at = |stock: Option<SaleStock>| stock.expect("a sale in force").at;
    assert_eq!(at(store.stock(receiver).await.expect("stock")).returns, 1, "units came back to it");
    assert_eq!(at(store.stock(donor).await.expect("stock")).returns, 0, "and went from this one");
    assert_eq!([send("t-2", 99).await, send("t-3", 1).await], [6, 0], "no more than there is, and nothing for nothing");
    assert_eq!(admit(store, donor, &attempt(fresh, 1)).await, sold_out(0));
    assert_eq!(admit(store, receiver, &attempt(fresh, 4)).await, Admit::Admitted);
    let [donor, receiver] = [survey(store, donor).await, survey(store, receiver).await];
    let mut sent = donor.sent;
    sent.sort_by(|one, two| one.id.cmp(&two.id));
    let transfer = |id: &str, units| Transfer { id: id.to_owned(), to: 1, units };
    assert_eq!(sent, [transfer("t-1", 4), transfer("t-2", 6)]);
    assert_eq!(receiver.received, ["t-1"]);
}

/// Nor does a store without a sale; and none receives without one.
pub async fn a_sale_that_is_not_open_sends_nothing(store: &dyn Admission, fresh: &Fresh) {
    let shard = a_shard(fresh);
    assert_eq!(store.send(shard, "t", 1, 5).await.expect("send"), 0);
    assert!(!store.receive(shard, 1, "t", 5).await.expect("receive"));
    assert_eq!(store.stock(shard).await.expect("stock"), None, "units that come too early make no sale");
    install(store, shard, &terms(1, 10, 5)).await;
    assert_eq!(store.send(shard, "before", 1, 3).await.expect("send"), 3);
    for state in [SaleState::Paused, SaleState::Closed] {
        assert!(store.set_state(shard, 1, state).await.expect("set state"));
        assert_eq!(store.send(shard, "later", 1, 5).await.expect("send"), 0, "{state:?}");
        assert_eq!(store.send(shard, "before", 1, 5).await.expect("send"), 3, "{state:?}: what was sent is said again");
    }
    assert!(store.receive(shard, 1, "in", 2).await.expect("receive"), "units on their way arrive all the same");
    assert_eq!(left(store, shard).await, 9);
}

/// Its stock was counted without them.
pub async fn a_new_epoch_forgets_transfers(store: &dyn Admission, fresh: &Fresh) {
    let shard = selling(store, fresh, 10, 5).await;
    assert_eq!(store.send(shard, "t", 1, 4).await.expect("send"), 4);
    assert!(store.receive(shard, 1, "u", 1).await.expect("receive"));
    install(store, shard, &terms(2, 10, 5)).await;
    let after = survey(store, shard).await;
    assert_eq!((after.stock.left, after.sent, after.received), (10, Vec::new(), Vec::new()));
    assert!(!store.receive(shard, 1, "v", 4).await.expect("receive"), "a transfer of the former epoch");
    assert_eq!(store.send(shard, "t", 1, 2).await.expect("send"), 2, "ids count anew");
}

async fn survey(store: &dyn Admission, shard: Shard) -> Survey {
    // A store that reads in steps says so when it was disturbed; nobody disturbs a check's own shard.
    eventually("a quiet shard is surveyed", || async { store.survey(shard).await.expect("survey") }).await
}

/// Also more buyers than one read carries.
pub async fn a_survey_shows_everything_in_a_shard(store: &dyn Admission, fresh: &Fresh) {
    assert_eq!(store.survey(a_shard(fresh)).await.expect("survey"), None);
    let shard = a_shard(fresh);
    let held = |number: usize, order_no| match number % 3 {
        0 => Held::Released { generation: 1 },
        revision => Held::Reserved(Reservation { qty: 2, order_no, revision: u16::try_from(revision - 1).expect("small") * 2 }),
    };
    let mut buyers: Vec<_> = (0..2_500).map(|number| (fresh.principal(), held(number, fresh.order_no()))).collect();
    install(store, shard, &SaleTerms { buyers: buyers.clone(), ..terms(5, 9, 5) }).await;
    let late = attempt(fresh, 3);
    assert_eq!(admit(store, shard, &late).await, Admit::Admitted);
    buyers.push((late.user.clone(), Held::Reserved(held_by(&late))));
    let mut seen = survey(store, shard).await;
    assert_eq!(Some(&seen.stock), store.stock(shard).await.expect("stock").as_ref());
    assert_eq!((seen.stock.left, seen.stock.state, seen.stock.at), (6, SaleState::Open, StockVersion { epoch: 5, returns: 0 }));
    assert_eq!(seen.stock.incarnation, store.incarnation(shard).await.expect("incarnation"));
    buyers.sort_by(|one, two| one.0.cmp(&two.0));
    seen.buyers.sort_by(|one, two| one.0.cmp(&two.0));
    assert!(seen.buyers == buyers, "{} buyers of {}", seen.buyers.len(), buyers.len());
}

/// Each has its stock, its buyers and its log.
pub async fn shards_of_a_lot_know_nothing_of_each_other(store: &dyn Admission, fresh: &Fresh) {
    let (lot, buyer) = (fresh.lot(), attempt(fresh, 1));
    for index in [0, 1, 15] {
        let shard = Shard { lot, index };
        assert_eq!(admit(store, shard, &buyer).await, Admit::NotReady, "shard {index}");
        install(store, shard, &terms(1, 1, 1)).await;
        assert_eq!(admit(store, shard, &buyer).await, Admit::Admitted, "shard {index}");
        assert_eq!(users(&claim(store, shard, "c", 10).await), std::slice::from_ref(&buyer.user), "shard {index}");
        assert!(!store.incarnation(shard).await.expect("incarnation").is_empty());
    }
}

/// Until it is forgotten, in days, everything is there.
pub async fn a_closed_sale_is_retired_under_its_epoch_only(store: &dyn Admission, fresh: &Fresh) {
    let retire = async |shard, epoch| store.retire(shard, epoch).await.expect("retire");
    assert!(!retire(a_shard(fresh), 1).await, "no sale is in force");
    let shard = selling(store, fresh, 2, 1).await;
    let buyer = attempt(fresh, 1);
    assert_eq!(admit(store, shard, &buyer).await, Admit::Admitted);
    for state in [SaleState::Open, SaleState::Paused] {
        assert!(store.set_state(shard, 1, state).await.expect("set state"));
        assert!(!retire(shard, 1).await, "{state:?}");
    }
    assert!(store.set_state(shard, 1, SaleState::Closed).await.expect("set state"));
    assert!(!retire(shard, 2).await, "another epoch");
    for _ in 0..2 {
        assert!(retire(shard, 1).await);
        assert_eq!(left(store, shard).await, 1);
        assert_eq!(admit(store, shard, &buyer).await, Admit::Replayed(held_by(&buyer)));
    }
    assert!(release(store, shard, &release_of(&buyer, 1)).await, "orders that close late still find it");
}

/// A closed order that was revived, or one that was refused and then bought again.
pub async fn a_late_result_replaces_the_earlier_one(store: &dyn Admission, fresh: &Fresh) {
    let (order_no, user) = (fresh.order_no(), fresh.principal());
    let fail = OrderResult::Fail { user: user.clone(), message: "closed".to_owned() };
    for result in [OrderResult::Success { user: user.clone() }, fail, OrderResult::Success { user }] {
        store.put_results(&[(order_no.clone(), result.clone())]).await.expect("put results");
        assert_eq!(store.result(&order_no).await.expect("result"), Some(result));
    }
}
