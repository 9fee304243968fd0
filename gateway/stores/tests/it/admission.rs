//! What the scripts do that no port can show: the clock of Redis, a lost script cache, what is in the keys.

use std::time::Duration;

use gateway_core::id::Lot;
use gateway_core::ports::{Admission, Installed, PortErrorKind};
use gateway_core::sale::{Admit, ClaimedEvent, OrderResult, Reservation, SaleTerms};
use gateway_core::time::UnixMillis;
use gateway_stores::RedisStore;

use crate::shared::{FRESH, attempt, eventually, raw_redis, redis, terms};

async fn selling(store: &RedisStore, terms: &SaleTerms) -> Lot {
    let lot = FRESH.lot();
    assert_eq!(store.install(lot, terms).await.expect("installs"), Installed::Yes);
    lot
}

async fn admit_one(store: &RedisStore, lot: Lot) -> Admit {
    store.admit(lot, &[attempt(1)]).await.expect("answers").remove(0)
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
    let lot = selling(&store, &SaleTerms { start: UnixMillis(opens), end: UnixMillis(ends), ..terms(1, 1_000_000) }).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&Admit::Ended) {
        let before = redis_now().await;
        let answer = admit_one(&store, lot).await;
        let after = redis_now().await;
        match answer {
            Admit::NotStarted => assert!(before < opens, "too early to open at {before}, opens at {opens}"),
            Admit::Admitted => assert!(after >= opens && before < ends, "admitted between {before} and {after}"),
            Admit::Ended => assert!(after >= ends, "ended at {after}, ends at {ends}"),
            Admit::Replayed(_) | Admit::NotReady | Admit::LimitExceeded | Admit::SoldOut { .. } => panic!("{answer:?}"),
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
    let lot = selling(&store, &terms(1, 100)).await;
    let mut batches = tokio::task::JoinSet::new();
    for _ in 0..10_000 / 50 {
        let store = store.clone();
        let attempts: Vec<_> = (0..50).map(|_| attempt(1)).collect();
        batches.spawn(async move { store.admit(lot, &attempts).await.expect("answers") });
    }
    let answers: Vec<_> = batches.join_all().await.into_iter().flatten().collect();
    assert_eq!(answers.len(), 10_000);
    assert_eq!(answers.iter().filter(|answer| **answer == Admit::Admitted).count(), 100);
    assert!(answers.iter().all(|answer| matches!(answer, Admit::Admitted | Admit::SoldOut { left: 0 })));
    assert_eq!(store.stock(lot).await.expect("answers").map(|stock| stock.left), Some(0));
    assert_eq!(store.backlog(lot).await.expect("answers"), 100);
}

#[tokio::test]
async fn a_flushed_script_cache_goes_unnoticed() {
    let store = redis();
    let lot = selling(&store, &terms(1, 10)).await;
    for _ in 0..3 {
        let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut raw_redis().await).await.expect("flushes");
        assert_eq!(admit_one(&store, lot).await, Admit::Admitted);
    }
}

#[tokio::test]
async fn a_sale_with_more_buyers_than_one_call_carries_is_installed() {
    let store = redis();
    let buyers: Vec<_> = (0..2_500).map(|_| (FRESH.principal(), Reservation { qty: 1, order_no: FRESH.order_no() })).collect();
    let lot = selling(&store, &SaleTerms { buyers: buyers.clone(), ..terms(3, 7) }).await;
    for (user, held) in [&buyers[0], &buyers[1_250], &buyers[2_499]] {
        assert_eq!(store.reservation(lot, user).await.expect("answers").as_ref(), Some(held));
    }
    let ttl: i64 = redis::cmd("TTL").arg(format!("seckill:{{{lot}}}:buyers")).query_async(&mut raw_redis().await).await.expect("a TTL");
    assert_eq!(ttl, -1, "buyers must not expire with the staging key");
    assert_eq!(store.install(lot, &terms(3, 7)).await.expect("answers"), Installed::Stale);
    assert_eq!(store.install(lot, &terms(4, 7)).await.expect("answers"), Installed::Yes);
    assert_eq!(store.reservation(lot, &buyers[0].0).await.expect("answers"), None);
    let left_over: Vec<String> = redis::cmd("KEYS")
        .arg(format!("seckill:{{{lot}}}:staged:*").replace(['{', '}'], "?"))
        .query_async(&mut raw_redis().await)
        .await
        .expect("keys");
    assert!(left_over.is_empty(), "{left_over:?}");
}

#[tokio::test]
async fn poison_in_the_stream_is_handed_out_as_poison_and_can_be_acknowledged() {
    let store = redis();
    let lot = selling(&store, &terms(1, 10)).await;
    let _: String = redis::cmd("XADD")
        .arg(format!("seckill:{{{lot}}}:events"))
        .arg("*")
        .arg("x")
        .arg("y")
        .query_async(&mut raw_redis().await)
        .await
        .expect("added");
    admit_one(&store, lot).await;
    let claimed = store.claim(lot, "w", 10).await.expect("answers");
    let [ClaimedEvent::Poison { id, raw }, ClaimedEvent::Order(order)] = claimed.as_slice() else { panic!("{claimed:?}") };
    assert_eq!(raw, "x y");
    store.acknowledge(lot, &[id.clone(), order.id.clone()]).await.expect("acknowledged");
    assert_eq!(store.backlog(lot).await.expect("answers"), 0);
    assert!(store.claim(lot, "w", 10).await.expect("answers").is_empty());
}

#[tokio::test]
async fn a_lost_consumer_group_comes_back_with_every_event() {
    let store = redis();
    let lot = selling(&store, &terms(1, 10)).await;
    admit_one(&store, lot).await;
    assert_eq!(store.claim(lot, "w", 10).await.expect("answers").len(), 1);
    let _: i64 = redis::cmd("XGROUP")
        .arg("DESTROY")
        .arg(format!("seckill:{{{lot}}}:events"))
        .arg("orders")
        .query_async(&mut raw_redis().await)
        .await
        .expect("gone");
    assert_eq!(store.claim(lot, "w", 10).await.expect("answers").len(), 1);
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
    let lot = FRESH.lot();
    let () = redis::cmd("SET").arg(format!("seckill:{{{lot}}}:sale")).arg("1").query_async(&mut raw_redis().await).await.expect("set");
    let error = store.admit(lot, &[attempt(1)]).await.expect_err("a string is no sale");
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
