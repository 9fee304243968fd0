//! Redis as a Cluster of three: every promise holds there, and no call reaches over a slot.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use gateway_core::ports::{Admission, Budgets, Nonces, Notices, Presence, Roaming};
use gateway_core::sale::{Admit, OrderResult, Shard};
use gateway_stores::RedisStore;
use gateway_testkit::conformance;
use gateway_testkit::services::{Redis, RedisCluster};

use crate::shared::{FRESH, RECLAIM_IDLE, attempt, eventually, redis_at, shard, terms, unless_away};

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));
static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(|| RedisCluster::start(FOLDER.path()).expect("starts"));

fn cluster() -> RedisStore {
    redis_at(&CLUSTER.url())
}

#[tokio::test]
async fn a_cluster_keeps_the_promises_of_admission() {
    let store: Arc<dyn Admission> = Arc::new(cluster());
    conformance::admission::all(&store, &FRESH, RECLAIM_IDLE).await;
}

#[tokio::test]
async fn a_cluster_keeps_the_promises_of_budgets() {
    let store: Arc<dyn Budgets> = Arc::new(cluster());
    conformance::budgets::all(&store, &FRESH).await;
}

#[tokio::test]
async fn a_cluster_keeps_the_promises_of_presence() {
    let store: Arc<dyn Presence> = Arc::new(cluster());
    conformance::presence::all(&store, &FRESH).await;
}

#[tokio::test]
async fn a_cluster_keeps_the_promises_of_notices() {
    let store: Arc<dyn Notices> = Arc::new(cluster());
    conformance::notices::all(&store, &FRESH).await;
}

#[tokio::test]
async fn a_cluster_keeps_the_promises_of_roaming() {
    let store: Arc<dyn Roaming> = Arc::new(cluster());
    conformance::roaming::all(&store, &FRESH).await;
}

#[tokio::test]
async fn a_cluster_keeps_the_promises_of_nonces() {
    let store: Arc<dyn Nonces> = Arc::new(cluster());
    conformance::nonces::all(&store, &FRESH).await;
}

#[tokio::test]
async fn results_of_orders_all_over_the_cluster_are_stored_and_found() {
    let store = cluster();
    let results: Vec<_> = (0..200).map(|_| (FRESH.order_no(), OrderResult::Success { user: FRESH.principal() })).collect();
    store.put_results(&results).await.expect("stored");
    for (order_no, result) in &results {
        assert_eq!(store.result(order_no).await.expect("answers").as_ref(), Some(result));
    }
}

#[tokio::test]
async fn shards_of_one_lot_live_on_different_servers() {
    let store = cluster();
    let mut lives = std::collections::BTreeSet::new();
    for shard in Shard::all(FRESH.lot(), 16) {
        store.install(shard, &terms(1, 5)).await.expect("installs");
        assert_eq!(store.admit(shard, &[attempt(1)]).await.expect("answers"), [Admit::Admitted]);
        assert!(store.survey(shard).await.expect("answers").is_some_and(|survey| survey.buyers.len() == 1));
        lives.insert(store.incarnation(shard).await.expect("answers"));
    }
    assert_eq!(lives.len(), 3, "each server has a life of its own");
}

#[tokio::test]
async fn a_cluster_is_warned_about_what_a_failover_would_lose() {
    let warnings = cluster().warnings().await.expect("answers");
    assert_eq!(warnings.len(), 2, "no replica, and none insisted on: {warnings:?}");
}

#[tokio::test]
async fn a_killed_node_comes_back_with_another_life_and_the_others_keep_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = RedisCluster::start(folder.path()).expect("starts");
    let store = redis_at(&cluster.url());
    let shards: Vec<_> = (0..12).map(|_| shard()).collect();
    let mut before = Vec::new();
    for shard in &shards {
        store.install(*shard, &terms(1, 5)).await.expect("installs");
        before.push(store.incarnation(*shard).await.expect("answers"));
    }
    let node = &cluster.nodes()[1];
    node.kill();
    let away = async |shard: Shard| unless_away(store.admit(shard, &[attempt(1)]).await).is_none();
    let mut unreachable = 0;
    for shard in &shards {
        unreachable += usize::from(away(*shard).await);
    }
    // The node's own ones at once, and all of them when the others have noticed that slots are missing.
    assert!(unreachable > 0, "no shard is away with one of three nodes");
    node.restart().expect("restarts");
    let mut changed = 0;
    for (shard, before) in shards.iter().zip(before) {
        eventually("the shard sells again", || async { unless_away(store.admit(*shard, &[attempt(1)]).await).is_some() }).await;
        changed += usize::from(store.incarnation(*shard).await.expect("answers") != before);
    }
    assert!((1..12).contains(&changed), "{changed} of 12 shards have another life");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_while_it_sells_goes_unnoticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = RedisCluster::start(folder.path()).expect("starts");
    let (store, shard) = (redis_at(&cluster.url()), shard());
    store.install(shard, &terms(1, 1_000_000)).await.expect("installs");
    let keys = ["sale", "buyers", "events"].map(|name| format!("seckill:{{{shard}}}:{name}"));
    let command = |node: &Redis, words: &[&str]| node.command(words).expect("answers");

    let admitted = Arc::new(AtomicU64::new(0));
    let buying = tokio::spawn({
        let (store, admitted) = (store.clone(), admitted.clone());
        async move {
            loop {
                assert_eq!(store.admit(shard, &[attempt(1)]).await.expect("answers"), [Admit::Admitted]);
                admitted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let sold_on = async || {
        let before = admitted.load(Ordering::Relaxed);
        eventually("twenty more are sold", || async { admitted.load(Ordering::Relaxed) >= before + 20 || buying.is_finished() }).await;
        assert!(!buying.is_finished(), "an attempt failed");
    };
    sold_on().await;

    let slot = command(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", &keys[0]]);
    let holds = |node: &&Redis| command(node, &["CLUSTER", "COUNTKEYSINSLOT", &slot]) != "0";
    let from = cluster.nodes().iter().find(holds).expect("somebody holds it");
    let to = cluster.nodes().iter().find(|node| !holds(node)).expect("somebody does not");
    let (from_id, to_id) = (command(from, &["CLUSTER", "MYID"]), command(to, &["CLUSTER", "MYID"]));
    command(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    command(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    sold_on().await;
    let to_port = to.port().to_string();
    command(from, &[&["MIGRATE", "127.0.0.1", &to_port, "", "0", "5000", "KEYS"][..], &keys.each_ref().map(String::as_str)].concat());
    sold_on().await;
    for node in [to, from] {
        command(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
    sold_on().await;
    buying.abort();
    let _ = buying.await;
    let survey = store.survey(shard).await.expect("answers").expect("stands still");
    let sold = survey.buyers.len() as u64;
    assert_eq!((store.backlog(shard).await.expect("answers"), u64::from(survey.stock.left)), (sold, 1_000_000 - sold));
    assert!(sold >= admitted.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_replica_takes_over_with_another_life_and_what_was_replicated() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = RedisCluster::start(folder.path()).expect("starts");
    let store = redis_at(&cluster.url());
    let shard = shard();
    store.install(shard, &terms(1, 10)).await.expect("installs");
    let life = store.incarnation(shard).await.expect("answers");
    let holds = |node: &&Redis| node.command(&["INFO", "server"]).expect("answers").contains(life.split('.').next().expect("a run"));
    let primary = cluster.nodes().iter().find(holds).expect("somebody holds it");
    let replica = cluster.replica(folder.path(), "replica", primary).expect("starts");
    assert_eq!(store.admit(shard, &[attempt(1)]).await.expect("answers"), [Admit::Admitted]);
    let has_both = || replica.command(&["INFO", "keyspace"]).expect("answers").contains("keys=3");
    eventually("the replica has sale, buyers and events", || async { has_both() }).await;
    primary.kill();
    eventually("the shard sells again", || async { unless_away(store.admit(shard, &[attempt(1)]).await).is_some() }).await;
    assert_eq!(store.stock(shard).await.expect("answers").map(|stock| stock.left), Some(8));
    assert_ne!(store.incarnation(shard).await.expect("answers"), life);
}
