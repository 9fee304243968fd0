//! A service that is absent, hangs, dies and comes back: calls answer in time, and the store heals by itself.

use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::chat::{Party, Side};
use gateway_core::id::ShopId;
use gateway_core::ports::{Admission, Bus, ChatLedger, Notices, PortErrorKind, PortResult, SaleLedger};
use gateway_core::sale::{Admit, ClaimedEvent, OrderResult, Persisted, Shard};
use gateway_stores::{MysqlSettings, MysqlStore, NatsBus, NatsSettings, RedisSettings, RedisStore};
use gateway_testkit::services::{MariaDb, Nats, Redis};

use crate::shared::{FRESH, attempt, event, eventually, leased, mysql_at, nats_at, now, published_lot, redis_at, shard, terms};

/// The deadline under test, and what a call may take on a busy machine.
const TIMEOUT: Duration = Duration::from_millis(500);
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

async fn is_unavailable<T>(call: impl Future<Output = PortResult<T>>) {
    let asked = Instant::now();
    let answer = tokio::time::timeout(ANSWERED_WITHIN, call).await.expect("a call has a deadline");
    let kind = answer.err().map(|error| error.kind);
    assert_eq!(kind, Some(PortErrorKind::Unavailable), "after {:?}", asked.elapsed());
}

fn buyer() -> Party {
    Party { side: Side::User, id: FRESH.principal(), shop: None }
}

#[tokio::test]
async fn absent_services_are_unavailable_and_stop_nobody_from_starting() {
    // Nobody listens on the discard port of loopback.
    let redis = RedisStore::connect(&RedisSettings { timeout: TIMEOUT, ..RedisSettings::new("redis://127.0.0.1:9") }).expect("starts");
    let bus = NatsBus::connect(NatsSettings { timeout: TIMEOUT, ..NatsSettings::new("nats://127.0.0.1:9") }).await.expect("starts");
    let ledger =
        MysqlStore::connect(&MysqlSettings { timeout: TIMEOUT, ..MysqlSettings::new("mysql://u:p@127.0.0.1:9/d") }).expect("starts");
    is_unavailable(redis.ping()).await;
    is_unavailable(redis.admit(shard(), &[attempt(1)])).await;
    for url in ["redis-sentinel://127.0.0.1:9,127.0.0.1:9/main", "redis-cluster://127.0.0.1:9,127.0.0.1:9"] {
        let redis = RedisStore::connect(&RedisSettings { timeout: TIMEOUT, ..RedisSettings::new(url) }).expect("starts");
        for _ in 0..3 {
            is_unavailable(redis.admit(shard(), &[attempt(1)])).await;
            is_unavailable(redis.incarnation(shard())).await;
        }
        is_unavailable(redis.ping()).await;
        is_unavailable(redis.warnings()).await;
    }
    is_unavailable(bus.ping()).await;
    is_unavailable(bus.publish("x", Bytes::new())).await;
    is_unavailable(bus.subscribe("x")).await;
    is_unavailable(bus.enqueue(0, ShopId(1), Bytes::new())).await;
    is_unavailable(bus.open_inbox(0, 1)).await;
    is_unavailable(ledger.ping()).await;
    is_unavailable(ledger.migrate()).await;
    is_unavailable(ledger.lots(now())).await;
}

#[tokio::test]
async fn a_url_that_makes_no_sense_is_refused_at_once() {
    assert!(RedisStore::connect(&RedisSettings::new("http://x")).is_err());
    assert!(NatsBus::connect(NatsSettings::new("nats://a b")).await.is_err());
    assert!(MysqlStore::connect(&MysqlSettings::new("x")).is_err());
}

#[tokio::test]
async fn a_killed_redis_comes_back_with_sale_buyers_and_events_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Redis::start(folder.path(), true).expect("starts");
    let store = redis_at(&server.url());
    let shard = shard();
    store.install(shard, &terms(1, 10)).await.expect("installs");
    let winner = attempt(1);
    assert_eq!(store.admit(shard, std::slice::from_ref(&winner)).await.expect("answers"), [Admit::Admitted]);
    let life = store.incarnation(shard).await.expect("answers");
    assert_eq!(store.stock(shard).await.expect("answers").map(|stock| stock.incarnation), Some(life.clone()));
    server.kill();
    is_unavailable(store.admit(shard, &[attempt(1)])).await;
    server.restart().expect("restarts");
    eventually("Redis answers again", || async { store.ping().await.is_ok() }).await;
    assert_ne!(store.incarnation(shard).await.expect("answers"), life, "another life");
    // The last second may be lost, but never one without the other.
    let left = store.stock(shard).await.expect("answers").map(|stock| stock.left);
    let held = store.held(shard, &winner.user).await.expect("answers").is_some();
    let logged = store.backlog(shard).await.expect("answers");
    assert!(matches!((left, held, logged), (Some(9), true, 1) | (Some(10), false, 0) | (None, false, 0)), "{left:?} {held} {logged}");
}

#[tokio::test]
async fn a_redis_that_hangs_is_unavailable_in_time_and_usable_afterwards() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Redis::start(folder.path(), false).expect("starts");
    let store = RedisStore::connect(&RedisSettings { timeout: TIMEOUT, ..RedisSettings::new(server.url()) }).expect("a valid URL");
    eventually("Redis answers", || async { store.ping().await.is_ok() }).await;
    server.freeze().expect("freezes");
    is_unavailable(store.ping()).await;
    is_unavailable(store.admit(shard(), &[attempt(1)])).await;
    server.thaw().expect("thaws");
    eventually("Redis answers again", || async { store.ping().await.is_ok() }).await;
}

#[tokio::test]
async fn a_redis_that_may_not_write_is_unavailable_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Redis::start(folder.path(), false).expect("starts");
    let store = redis_at(&server.url());
    let shard = shard();
    store.install(shard, &terms(1, 10)).await.expect("installs");
    let before = store.survey(shard).await.expect("answers");
    let result = [(FRESH.order_no(), OrderResult::Success { user: FRESH.principal() })];
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).expect("set");
    is_unavailable(store.admit(shard, &[attempt(1)])).await;
    is_unavailable(store.put_results(&result)).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).expect("set");
    assert_eq!(store.survey(shard).await.expect("answers"), before, "without a replica");

    let replica = Redis::replica(folder.path(), "replica", &server).expect("starts");
    let misled = redis_at(&replica.url());
    is_unavailable(misled.admit(shard, &[attempt(1)])).await;
    is_unavailable(misled.put_results(&result)).await;
    assert_eq!(misled.survey(shard).await.expect("answers"), before, "on a replica");
    replica.command(&["REPLICAOF", "NO", "ONE"]).expect("promoted");
    assert_eq!(misled.admit(shard, &[attempt(1)]).await.expect("answers"), [Admit::Admitted], "once it is a primary");
}

#[tokio::test]
async fn a_server_that_has_become_a_replica_is_looked_for_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Redis::start(folder.path(), false).expect("starts");
    let store = redis_at(&server.url());
    // Only the store speaks the third version of the protocol.
    let connection = || {
        let clients = server.command(&["CLIENT", "LIST"]).expect("answers");
        let line = clients.lines().find(|line| line.contains("resp=3")).expect("the store is connected").to_owned();
        line.split(' ').next().expect("an id").to_owned()
    };
    let result = [(FRESH.order_no(), OrderResult::Success { user: FRESH.principal() })];
    store.put_results(&result).await.expect("stored");
    for pipelined in [false, true] {
        let before = connection();
        // Nobody listens there; it is a replica all the same, and as one it keeps its clients.
        server.command(&["REPLICAOF", "127.0.0.1", "9"]).expect("demoted");
        if pipelined {
            is_unavailable(store.put_results(&result)).await;
        } else {
            is_unavailable(store.append(&buyer(), "k", Bytes::new())).await;
        }
        server.command(&["REPLICAOF", "NO", "ONE"]).expect("promoted");
        eventually("the store can write again", || async { store.put_results(&result).await.is_ok() }).await;
        assert_ne!(connection(), before, "pipelined: {pipelined}");
    }
}

#[tokio::test]
async fn a_killed_nats_keeps_the_queue_and_the_inbox_asks_to_be_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Nats::start(folder.path()).expect("starts");
    let bus = nats_at(&server.url()).await;
    for word in ["a", "b", "c"] {
        bus.enqueue(3, ShopId(1), Bytes::from(word)).await.expect("queued");
    }
    let mut heard = bus.subscribe("evt.user.x").await.expect("subscribes");
    let mut inbox = bus.open_inbox(3, 1).await.expect("opens");
    let first = inbox.fetch(1, ANSWERED_WITHIN).await.expect("fetches");
    assert_eq!(&first[0].payload[..], b"a");
    server.kill();
    eventually("the loss is noticed", || async { bus.ping().await.is_err() }).await;
    is_unavailable(bus.publish("x", Bytes::new())).await;
    is_unavailable(bus.enqueue(3, ShopId(1), Bytes::new())).await;
    is_unavailable(inbox.acknowledge(&first)).await;
    server.restart().expect("restarts");
    eventually("NATS answers again", || async { bus.ping().await.is_ok() }).await;
    is_unavailable(inbox.fetch(10, Duration::ZERO)).await;
    let mut inbox = bus.open_inbox(3, 1).await.expect("opens again under the same token");
    let mut got = Vec::new();
    while got.len() < 3 {
        let batch = inbox.fetch(10, ANSWERED_WITHIN).await.expect("fetches");
        assert!(!batch.is_empty(), "{got:?}");
        got.extend(batch.into_iter().map(|delivery| delivery.payload));
    }
    assert_eq!(got, ["a", "b", "c"], "unacknowledged messages come again, oldest first");
    // A subscription survives; what was published meanwhile does not.
    bus.publish("evt.user.x", Bytes::from_static(b"hi")).await.expect("published");
    let word = tokio::time::timeout(ANSWERED_WITHIN, heard.next()).await.expect("in time");
    assert_eq!(word.as_deref(), Some(&b"hi"[..]));
}

#[tokio::test]
async fn a_nats_that_hangs_is_unavailable_in_time_and_usable_afterwards() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Nats::start(folder.path()).expect("starts");
    let bus = NatsBus::connect(NatsSettings { timeout: TIMEOUT, ..NatsSettings::new(server.url()) }).await.expect("a valid URL");
    eventually("NATS answers", || async { bus.ping().await.is_ok() }).await;
    server.freeze().expect("freezes");
    is_unavailable(bus.ping()).await;
    is_unavailable(bus.enqueue(0, ShopId(1), Bytes::new())).await;
    is_unavailable(bus.subscribe("x")).await;
    server.thaw().expect("thaws");
    eventually("NATS answers again", || async { bus.enqueue(0, ShopId(1), Bytes::new()).await.is_ok() }).await;
}

#[tokio::test]
async fn a_killed_mariadb_keeps_every_answered_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = MariaDb::start(folder.path()).expect("starts");
    mysql_at(server.url()).await;
    let settings = MysqlSettings { timeout: ANSWERED_WITHIN / 2, ..MysqlSettings::new(server.url()) };
    let ledger = MysqlStore::connect(&settings).expect("a valid URL");
    let lot = published_lot(&ledger, 10).await;
    let lease = leased(&ledger, lot).await;
    let events = [event(1, 1), event(1, 2)];
    assert_eq!(ledger.persist(&lease, &events, now()).await.expect("persists"), [Persisted::Stored; 2]);
    server.kill();
    is_unavailable(ledger.persist(&lease, &events, now())).await;
    is_unavailable(ledger.ping()).await;
    server.restart().expect("restarts");
    eventually("MariaDB answers again", || async { ledger.ping().await.is_ok() }).await;
    assert_eq!(ledger.persist(&lease, &events, now()).await.expect("persists"), [Persisted::Stored; 2], "as before");
    let books = ledger.books(lot).await.expect("reads").expect("exists");
    assert_eq!((books.sold, books.live), (3, 3));
}

#[tokio::test]
async fn a_mariadb_that_hangs_is_unavailable_in_time_and_usable_afterwards() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = MariaDb::start(folder.path()).expect("starts");
    mysql_at(server.url()).await;
    let ledger = MysqlStore::connect(&MysqlSettings { timeout: TIMEOUT, ..MysqlSettings::new(server.url()) }).expect("a valid URL");
    eventually("MariaDB answers", || async { ledger.ping().await.is_ok() }).await;
    server.freeze().expect("freezes");
    is_unavailable(ledger.ping()).await;
    is_unavailable(ledger.open_session(FRESH.shop(), &FRESH.principal(), "", now())).await;
    server.thaw().expect("thaws");
    eventually("MariaDB answers again", || async { ledger.ping().await.is_ok() }).await;
}

#[tokio::test]
async fn a_worker_killed_between_commit_and_acknowledgement_sells_nothing_twice() {
    let redis = crate::shared::redis();
    let ledger = crate::shared::mysql().await;
    let lot = published_lot(&ledger, 3).await;
    let (shard, lease) = (Shard::first(lot), leased(&ledger, lot).await);
    let terms = ledger.raise_epoch(lot, 1).await.expect("raises").expect("from one");
    redis.install(shard, &terms).await.expect("installs");
    let attempts: Vec<_> = (0..5).map(|_| attempt(1)).collect();
    let admitted = redis.admit(shard, &attempts).await.expect("answers").iter().filter(|answer| **answer == Admit::Admitted).count();
    assert_eq!(admitted, 3);
    let orders = |claimed: Vec<ClaimedEvent>| -> Vec<_> {
        claimed
            .into_iter()
            .map(|claimed| match claimed {
                ClaimedEvent::Order(event) => event,
                ClaimedEvent::Poison { id, raw, .. } => panic!("{id}: {raw}"),
            })
            .collect()
    };
    // The first worker commits and is gone; the second takes over after the idle time.
    let first = orders(redis.claim(shard, "one", 10).await.expect("claims"));
    assert_eq!(ledger.persist(&lease, &first, now()).await.expect("persists"), [Persisted::Stored; 3]);
    let second = std::sync::Mutex::new(Vec::new());
    eventually("the second worker takes over", || async {
        let claimed = orders(redis.claim(shard, "two", 10).await.expect("claims"));
        *second.lock().expect("not poisoned") = claimed;
        second.lock().expect("not poisoned").len() == 3
    })
    .await;
    let second = second.into_inner().expect("not poisoned");
    assert_eq!(ledger.persist(&lease, &second, now()).await.expect("persists"), [Persisted::Stored; 3]);
    let ids: Vec<_> = second.iter().map(|event| event.id.clone()).collect();
    redis.acknowledge(shard, &ids).await.expect("acknowledges");
    assert_eq!(redis.backlog(shard).await.expect("answers"), 0);
    let books = ledger.books(lot).await.expect("reads").expect("exists");
    assert_eq!((books.sold, books.live, books.sku_stock), (3, 3, 0));
}
