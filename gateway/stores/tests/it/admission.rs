//! What the scripts do that no port can show: the clock of Redis, a lost script cache, what is in the keys.

use std::time::Duration;

use gateway_core::id::PrincipalId;
use gateway_core::ports::{Admission, Installed, PortErrorKind};
use gateway_core::sale::{
    Admit, ClaimedEvent, Held, OrderResult, Release, Reservation, Reserved, SaleAttempt, SaleState, SaleTerms, Shard,
};
use gateway_core::time::UnixMillis;
use gateway_stores::RedisStore;
use redis::AsyncCommands as _;

use crate::shared::{FRESH, attempt, eventually, raw_redis, redis, shard, terms};

async fn selling(store: &RedisStore, terms: &SaleTerms) -> Shard {
    let shard = shard();
    assert_eq!(store.install(shard, terms).await.expect("installs"), Installed::Yes);
    shard
}

async fn admit_one(store: &RedisStore, shard: Shard) -> Admit {
    store.admit(shard, &[attempt(1)]).await.expect("answers").remove(0)
}

fn key(shard: Shard, name: &str) -> String {
    format!("seckill:{{{shard}}}:{name}")
}

/// Everything Redis holds of a shard.
async fn dump(shard: Shard) -> Vec<Option<Vec<u8>>> {
    let mut all = redis::pipe();
    for name in ["sale", "buyers", "events", "transfers"] {
        all.cmd("DUMP").arg(key(shard, name));
    }
    all.query_async(&mut raw_redis().await).await.expect("answers")
}

/// The clock of Redis, in milliseconds.
async fn redis_now() -> u64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut raw_redis().await).await.expect("a time");
    seconds * 1_000 + micros / 1_000
}

#[tokio::test]
async fn the_window_opens_at_start_and_is_over_at_end_by_the_clock_of_redis() {
    let store = redis();
    let opens = redis_now().await + 500;
    let ends = opens + 500;
    let shard = selling(&store, &SaleTerms { start: UnixMillis(opens), end: UnixMillis(ends), ..terms(1, 1_000_000) }).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&Admit::Ended) {
        let before = redis_now().await;
        let answer = admit_one(&store, shard).await;
        let after = redis_now().await;
        match answer {
            Admit::NotStarted => assert!(before < opens, "too early to open at {before}, opens at {opens}"),
            Admit::Admitted => assert!(after >= opens && before < ends, "admitted between {before} and {after}"),
            Admit::Ended => assert!(after >= ends, "ended at {after}, ends at {ends}"),
            Admit::Replayed(_) | Admit::Again { .. } | Admit::NotReady | Admit::LimitExceeded | Admit::SoldOut { .. } => {
                panic!("{answer:?}")
            }
        }
        if seen.last() != Some(&answer) {
            seen.push(answer);
        }
    }
    assert_eq!(seen, [Admit::NotStarted, Admit::Admitted, Admit::Ended]);
}

#[tokio::test]
async fn an_instant_belongs_to_the_window_it_starts() {
    let store = redis();
    let now = redis_now().await;
    let opened = selling(&store, &SaleTerms { start: UnixMillis(now), ..terms(1, 1) }).await;
    assert_eq!(admit_one(&store, opened).await, Admit::Admitted);
    let over = selling(&store, &SaleTerms { end: UnixMillis(now), ..terms(1, 1) }).await;
    assert_eq!(admit_one(&store, over).await, Admit::Ended);
}

#[tokio::test]
async fn ten_thousand_attempts_for_a_hundred_units_sell_a_hundred() {
    let store = redis();
    let shard = selling(&store, &terms(1, 100)).await;
    let mut batches = tokio::task::JoinSet::new();
    for _ in 0..10_000 / 50 {
        let store = store.clone();
        let attempts: Vec<_> = (0..50).map(|_| attempt(1)).collect();
        batches.spawn(async move { store.admit(shard, &attempts).await.expect("answers") });
    }
    let answers: Vec<_> = batches.join_all().await.into_iter().flatten().collect();
    assert_eq!(answers.len(), 10_000);
    assert_eq!(answers.iter().filter(|answer| **answer == Admit::Admitted).count(), 100);
    assert!(answers.iter().all(|answer| matches!(answer, Admit::Admitted | Admit::SoldOut { left: 0, .. })));
    assert_eq!(store.stock(shard).await.expect("answers").map(|stock| stock.left), Some(0));
    assert_eq!(store.backlog(shard).await.expect("answers"), 100);
}

#[tokio::test]
async fn a_script_cache_flushed_under_load_goes_unnoticed() {
    let store = redis();
    let shard = selling(&store, &terms(1, 1_000_000)).await;
    let mut buying = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        buying.spawn(async move {
            for _ in 0..100 {
                assert_eq!(admit_one(&store, shard).await, Admit::Admitted);
            }
        });
    }
    let mut flushes = 0;
    let mut raw = raw_redis().await;
    while buying.try_join_next().is_none_or(|done| done.is_ok()) && !buying.is_empty() {
        let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut raw).await.expect("flushes");
        flushes += 1;
    }
    assert!(flushes > 3, "{flushes} flushes");
    assert_eq!(store.backlog(shard).await.expect("answers"), 800);
}

#[tokio::test]
async fn a_sale_with_more_buyers_than_one_call_carries_is_installed() {
    let store = redis();
    let buyers: Vec<_> =
        (0..2_500).map(|_| (FRESH.principal(), Held::Reserved(Reservation { qty: 1, order_no: FRESH.order_no(), revision: 0 }))).collect();
    let shard = selling(&store, &SaleTerms { buyers: buyers.clone(), ..terms(3, 7) }).await;
    for (user, held) in [&buyers[0], &buyers[1_250], &buyers[2_499]] {
        assert_eq!(store.held(shard, user).await.expect("answers").as_ref(), Some(held));
    }
    let ttl: i64 = redis::cmd("TTL").arg(key(shard, "buyers")).query_async(&mut raw_redis().await).await.expect("a TTL");
    assert_eq!(ttl, -1, "buyers must not expire with the staging key");
    assert_eq!(store.install(shard, &terms(3, 7)).await.expect("answers"), Installed::Stale);
    assert_eq!(store.install(shard, &terms(4, 7)).await.expect("answers"), Installed::Yes);
    assert_eq!(store.held(shard, &buyers[0].0).await.expect("answers"), None);
    let left_over: Vec<String> =
        redis::cmd("KEYS").arg(key(shard, "staged:*").replace(['{', '}'], "?")).query_async(&mut raw_redis().await).await.expect("keys");
    assert!(left_over.is_empty(), "{left_over:?}");
}

#[tokio::test]
async fn poison_in_the_stream_is_handed_out_as_poison_and_can_be_acknowledged() {
    let store = redis();
    let shard = selling(&store, &terms(1, 10)).await;
    let _: String =
        redis::cmd("XADD").arg(key(shard, "events")).arg("*").arg("x").arg("y").query_async(&mut raw_redis().await).await.expect("added");
    admit_one(&store, shard).await;
    let claimed = store.claim(shard, "w", 10).await.expect("answers");
    let [ClaimedEvent::Poison { id, raw, names: None }, ClaimedEvent::Order(order)] = claimed.as_slice() else { panic!("{claimed:?}") };
    assert_eq!(raw, "x y");
    store.acknowledge(shard, &[id.clone(), order.id.clone()]).await.expect("acknowledged");
    assert_eq!(store.backlog(shard).await.expect("answers"), 0);
    assert!(store.claim(shard, "w", 10).await.expect("answers").is_empty());
}

#[tokio::test]
async fn a_lost_consumer_group_comes_back_with_every_event() {
    let store = redis();
    let shard = selling(&store, &terms(1, 10)).await;
    admit_one(&store, shard).await;
    assert_eq!(store.claim(shard, "w", 10).await.expect("answers").len(), 1);
    let _: i64 = redis::cmd("XGROUP")
        .arg("DESTROY")
        .arg(key(shard, "events"))
        .arg("orders")
        .query_async(&mut raw_redis().await)
        .await
        .expect("gone");
    assert_eq!(store.claim(shard, "w", 10).await.expect("answers").len(), 1);
}

#[tokio::test]
async fn results_live_for_seven_days() {
    let store = redis();
    let order_no = FRESH.order_no();
    let result = OrderResult::Success { user: FRESH.principal() };
    store.put_results(&[(order_no.clone(), result)]).await.expect("stored");
    let ttl: i64 = redis::cmd("TTL").arg(format!("seckill:result:{order_no}")).query_async(&mut raw_redis().await).await.expect("a TTL");
    assert!((7 * 86_400 - 60..=7 * 86_400).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn a_key_of_another_type_is_damage_not_absence() {
    let store = redis();
    let shard = shard();
    let () = redis::cmd("SET").arg(key(shard, "sale")).arg("1").query_async(&mut raw_redis().await).await.expect("set");
    let error = store.admit(shard, &[attempt(1)]).await.expect_err("a string is no sale");
    assert_eq!(error.kind, PortErrorKind::Broken);
}

#[tokio::test]
async fn a_server_that_evicts_is_warned_about() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = gateway_testkit::services::Redis::start(folder.path(), false).expect("starts");
    let store = crate::shared::redis_at(&server.url());
    let warnings = store.warnings().await.expect("answers");
    assert_eq!(warnings.len(), 1, "no append-only file: {warnings:?}");
    let client = redis::Client::open(server.url()).expect("a valid URL");
    let mut raw = client.get_multiplexed_async_connection().await.expect("connects");
    let set = ["SET", "maxmemory-policy", "allkeys-lru"];
    let () = redis::cmd("CONFIG").arg(&set).query_async(&mut raw).await.expect("set");
    eventually("two warnings", || async { store.warnings().await.is_ok_and(|warnings| warnings.len() == 2) }).await;
    assert_eq!(redis().warnings().await.expect("answers"), Vec::<String>::new());
    tokio::time::timeout(Duration::from_secs(5), store.ping()).await.expect("in time").expect("answers");
}

/// Around both ends of the window, judged by the clock that stood still around the call.
#[tokio::test]
async fn the_window_is_exact_to_the_millisecond() {
    const ADMIT: &str = include_str!("../../../../lua/seckill/admit.lua");
    let store = redis();
    let mut raw = raw_redis().await;
    let mut seen = std::collections::BTreeSet::new();
    for _round in 0..50 {
        let start = redis_now().await + 30;
        let end = start + 3;
        let shard = selling(&store, &SaleTerms { start: UnixMillis(start), end: UnixMillis(end), ..terms(1, 1_000_000) }).await;
        loop {
            let who = attempt(1);
            let mut step = redis::pipe();
            step.atomic().cmd("TIME").cmd("EVAL").arg(ADMIT).arg(3);
            step.arg(key(shard, "sale")).arg(key(shard, "buyers")).arg(key(shard, "events"));
            step.arg(who.user.as_str()).arg(1).arg(who.order_no.as_str()).arg(0).cmd("TIME");
            let ((s0, us0), answers, (s1, us1)): ((u64, u64), Vec<String>, (u64, u64)) = step.query_async(&mut raw).await.expect("answers");
            let (before, after) = (s0 * 1_000 + us0 / 1_000, s1 * 1_000 + us1 / 1_000);
            if before == after {
                let want = if before < start {
                    "EARLY"
                } else if before < end {
                    "OK"
                } else {
                    "LATE"
                };
                assert_eq!(answers, [want], "at {before} in [{start}, {end})");
                for (name, edge) in [("start - 1", start - 1), ("start", start), ("end - 1", end - 1), ("end", end)] {
                    if before == edge {
                        seen.insert(name);
                    }
                }
            }
            if before > end {
                break;
            }
        }
        if seen.len() == 4 {
            return;
        }
    }
    panic!("a busy machine: only {seen:?} were hit");
}

#[tokio::test]
async fn a_damaged_stock_counter_fails_the_attempt_and_reserves_nothing() {
    let store = redis();
    for damaged in ["x", "", "1.5", "1e3", "nan", "inf", " 7", "99999999999999999999"] {
        let shard = selling(&store, &terms(1, 10)).await;
        let () = raw_redis().await.hset(key(shard, "sale"), "left", damaged).await.expect("damaged");
        let before = dump(shard).await;
        let error = store.admit(shard, &[attempt(1), attempt(2)]).await.expect_err("no counter");
        assert_eq!(error.kind, PortErrorKind::Broken, "{damaged}");
        assert_eq!(dump(shard).await, before, "{damaged}");
        let reserved = store.reserve(shard, &FRESH.principal(), &Reservation { qty: 1, order_no: FRESH.order_no(), revision: 1 }).await;
        assert!(reserved.is_err(), "{damaged}: {reserved:?}");
        assert!(store.send(shard, "t", 1, 1).await.is_err(), "{damaged}");
        assert_eq!(dump(shard).await, before, "{damaged}");
    }
}

#[tokio::test]
async fn what_comes_before_the_first_installation_changes_nothing() {
    let store = redis();
    let shard = shard();
    let reservation = Reservation { qty: 1, order_no: FRESH.order_no(), revision: 1 };
    let release = |epoch| Release { user: FRESH.principal(), reservation: reservation.clone(), epoch, generation: 1 };
    assert_eq!(store.release(shard, &release(None)).await.expect("answers"), None);
    assert_eq!(store.release(shard, &release(Some(1))).await.expect("answers"), None);
    assert!(!store.receive(shard, 1, "t", 5).await.expect("answers"));
    assert_eq!(store.reserve(shard, &FRESH.principal(), &reservation).await.expect("answers"), Reserved::NoSale);
    assert_eq!(store.send(shard, "t", 1, 5).await.expect("answers"), 0);
    assert!(!store.retire(shard, 1).await.expect("answers"));
    assert!(!store.set_state(shard, 1, SaleState::Open).await.expect("answers"));
    assert!(dump(shard).await.iter().all(Option::is_none), "not a key was made");
    assert_eq!(store.install(shard, &terms(1, 7)).await.expect("installs"), Installed::Yes);
    assert_eq!(store.stock(shard).await.expect("answers").map(|stock| stock.left), Some(7));
}

#[tokio::test]
async fn ten_thousand_buyers_take_at_most_150_bytes_each() {
    let store = redis();
    let shard = selling(&store, &terms(1, 10_000)).await;
    // As tokens name users: a few letters and a number.
    let user = |number: usize| PrincipalId::parse(&format!("u-{}", 1_000_000 + number)).expect("valid");
    let attempts: Vec<_> =
        (0..10_000).map(|number| SaleAttempt { user: user(number), qty: 1, order_no: FRESH.order_no(), generation: 0 }).collect();
    for batch in attempts.chunks(64) {
        assert!(store.admit(shard, batch).await.expect("answers").iter().all(|answer| *answer == Admit::Admitted));
    }
    let mut bytes = 0_usize;
    for name in ["sale", "buyers", "events"] {
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(key(shard, name)).arg("SAMPLES").arg(0);
        bytes += usage.query_async::<usize>(&mut raw_redis().await).await.expect("answers");
    }
    println!("{} bytes a buyer, the event that waits included", bytes / 10_000);
    assert!(bytes <= 150 * 10_000, "{bytes} bytes");
}

#[tokio::test]
async fn a_damaged_event_says_whose_reservation_may_hang_on_it() {
    let store = redis();
    let shard = selling(&store, &terms(1, 10)).await;
    let (user, order_no) = (FRESH.principal(), FRESH.order_no());
    let fields = [("o", order_no.as_str()), ("u", user.as_str()), ("q", "0"), ("e", "1")];
    let _: String = raw_redis().await.xadd(key(shard, "events"), "*", &fields).await.expect("added");
    let claimed = store.claim(shard, "w", 10).await.expect("answers");
    let [ClaimedEvent::Poison { names: Some(names), .. }] = claimed.as_slice() else { panic!("{claimed:?}") };
    assert_eq!(names, &(user, order_no));
}

#[tokio::test]
async fn a_retired_shard_is_forgotten_as_a_whole_unless_it_is_sold_again() {
    let store = redis();
    let shard = selling(&store, &terms(1, 10)).await;
    admit_one(&store, shard).await;
    assert_eq!(store.send(shard, "t", 1, 2).await.expect("answers"), 2);
    assert!(!store.retire(shard, 1).await.expect("answers"), "open");
    assert!(store.set_state(shard, 1, SaleState::Closed).await.expect("answers"));
    assert!(!store.retire(shard, 2).await.expect("answers"), "another epoch");
    assert!(store.retire(shard, 1).await.expect("answers"));
    let ttls = || async {
        let mut ttls = redis::pipe();
        for name in ["sale", "buyers", "events", "transfers"] {
            ttls.ttl(key(shard, name));
        }
        ttls.query_async::<Vec<i64>>(&mut raw_redis().await).await.expect("answers")
    };
    assert!(ttls().await.iter().all(|ttl| (7 * 86_400 - 60..=7 * 86_400).contains(ttl)), "{:?}", ttls().await);
    assert_eq!(store.install(shard, &terms(2, 5)).await.expect("installs"), Installed::Yes);
    // Nobody has bought yet and nothing was sent: these two keys are gone.
    assert_eq!(ttls().await, [-1, -2, -1, -2]);
}

#[tokio::test]
async fn a_late_revival_does_not_outlive_a_retired_shard() {
    let store = redis();
    let shard = selling(&store, &terms(1, 10)).await;
    assert!(store.set_state(shard, 1, SaleState::Closed).await.expect("answers"));
    assert!(store.retire(shard, 1).await.expect("answers"));
    let revived = Reservation { qty: 1, order_no: FRESH.order_no(), revision: 2 };
    assert_eq!(store.reserve(shard, &FRESH.principal(), &revived).await.expect("answers"), Reserved::Held);
    assert!(store.receive(shard, 1, "t", 1).await.expect("answers"));
    for name in ["buyers", "transfers"] {
        let ttl: i64 = raw_redis().await.ttl(key(shard, name)).await.expect("answers");
        assert!(ttl > 0, "{name}: {ttl}");
    }
}

#[tokio::test]
async fn a_shard_that_stands_still_is_counted_to_the_last_buyer_and_a_moving_one_is_not() {
    let store = redis();
    let mut buyers: Vec<_> =
        (0..5_000).map(|_| (FRESH.principal(), Held::Reserved(Reservation { qty: 2, order_no: FRESH.order_no(), revision: 1 }))).collect();
    buyers.push((FRESH.principal(), Held::Released { generation: 3 }));
    buyers.sort_by(|one, other| one.0.cmp(&other.0));
    let shard = selling(&store, &SaleTerms { buyers: buyers.clone(), ..terms(1, 1_000_000) }).await;
    let survey = store.survey(shard).await.expect("answers").expect("stands still");
    assert_eq!(survey.buyers, buyers);
    assert_eq!(survey.stock, store.stock(shard).await.expect("answers").expect("in force"));

    let selling = tokio::spawn({
        let store = store.clone();
        async move {
            loop {
                admit_one(&store, shard).await;
            }
        }
    });
    eventually("a count is given up", || async { store.survey(shard).await.expect("answers").is_none() }).await;
    selling.abort();
}
