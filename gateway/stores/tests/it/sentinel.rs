//! Redis behind Sentinels: who reaches the primary through them finds the new one, and knows that it is another life.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway_core::ports::Admission;
use gateway_core::sale::{Admit, Shard};
use gateway_stores::{RedisSettings, RedisStore};
use gateway_testkit::services::{Redis, Sentinels};

use crate::shared::{attempt, eventually, shard, terms, unless_away};

/// A primary, its replica, and the three that watch them.
struct Watched {
    sentinels: Sentinels,
    primary: Redis,
    replica: Redis,
    _folder: tempfile::TempDir,
}

impl Watched {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let primary = Redis::start(folder.path(), true).expect("starts");
        let replica = Redis::replica(folder.path(), "replica", &primary).expect("starts");
        let sentinels = Sentinels::start(folder.path(), &primary).expect("starts");
        Self { sentinels, primary, replica, _folder: folder }
    }

    fn store(&self) -> RedisStore {
        let settings = RedisSettings { timeout: Duration::from_secs(1), ..RedisSettings::new(self.sentinels.url()) };
        RedisStore::connect(&settings).expect("a valid URL")
    }

    async fn replicated(&self) {
        eventually("the replica has everything", || async {
            let offset = |server: &Redis, field: &str| {
                let info = server.command(&["INFO", "replication"]).ok()?;
                info.lines().find_map(|line| line.strip_prefix(field)).map(|offset| offset.trim().to_owned())
            };
            let (written, read) = (offset(&self.primary, "master_repl_offset:"), offset(&self.replica, "slave_repl_offset:"));
            written.is_some() && written == read
        })
        .await;
    }
}

async fn admit(store: &RedisStore, shard: Shard, users: usize) {
    for _ in 0..users {
        assert_eq!(store.admit(shard, &[attempt(1)]).await.expect("answers"), [Admit::Admitted]);
    }
}

#[tokio::test]
async fn calls_find_the_new_primary_by_themselves_and_learn_that_it_is_another_life() {
    let watched = Watched::start();
    let (store, shard) = (watched.store(), shard());
    store.install(shard, &terms(1, 100)).await.expect("installs");
    admit(&store, shard, 10).await;
    let life = store.incarnation(shard).await.expect("answers");
    watched.replicated().await;
    // One Sentinel less must not matter.
    watched.sentinels.kill(0);
    watched.primary.kill();
    eventually("attempts are admitted again", || async {
        unless_away(store.admit(shard, &[attempt(1)]).await).is_some_and(|answers| answers == [Admit::Admitted])
    })
    .await;
    let stock = store.stock(shard).await.expect("answers").expect("in force");
    assert_eq!(stock.left, 89, "what was replicated is there");
    assert_eq!(stock.incarnation, life, "the sale remembers under which life it was installed");
    assert_ne!(store.incarnation(shard).await.expect("answers"), life);
}

#[tokio::test]
async fn what_a_failover_loses_is_lost_together() {
    let watched = Watched::start();
    let (store, shard) = (watched.store(), shard());
    store.install(shard, &terms(1, 100)).await.expect("installs");
    admit(&store, shard, 30).await;
    watched.replicated().await;
    watched.primary.cut_off_replicas().expect("cut off");
    admit(&store, shard, 60).await;
    watched.primary.kill();
    eventually("the sale is back", || async { unless_away(store.survey(shard).await).is_some_and(|survey| survey.is_some()) }).await;
    let survey = store.survey(shard).await.expect("answers").expect("stands still");
    let logged = store.backlog(shard).await.expect("answers");
    assert_eq!((survey.stock.left, survey.buyers.len(), logged), (70, 30, 30));
    assert_ne!(store.incarnation(shard).await.expect("answers"), survey.stock.incarnation, "so it has to be rebuilt");
}

#[tokio::test]
async fn a_primary_that_hangs_is_left_once_it_was_replaced() {
    let watched = Watched::start();
    let (store, shard) = (watched.store(), shard());
    store.install(shard, &terms(1, 100)).await.expect("installs");
    watched.replicated().await;
    watched.primary.freeze().expect("freezes");
    eventually("attempts are admitted again", || async { unless_away(store.admit(shard, &[attempt(1)]).await).is_some() }).await;
    assert_eq!(watched.replica.command(&["ROLE"]).expect("answers").split(' ').next(), Some("master"));
    // Thawed, it believes itself primary until the Sentinels tell it otherwise; nobody of ours asks it.
    watched.primary.thaw().expect("thaws");
    admit(&store, shard, 5).await;
    let left = store.stock(shard).await.expect("answers").map(|stock| stock.left);
    assert_eq!(left, Some(94));
}

#[tokio::test]
async fn a_batch_that_no_replica_has_in_time_is_answered_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let primary = Redis::start(folder.path(), true).expect("starts");
    let replica = Redis::replica(folder.path(), "replica", &primary).expect("starts");
    let settings = RedisSettings { wait_replicas: 1, wait: Duration::from_secs(5), ..RedisSettings::new(primary.url()) };
    let missed = Arc::new(AtomicUsize::new(0));
    let connect = |settings: &RedisSettings| {
        let missed = missed.clone();
        let store = RedisStore::connect(settings).expect("a valid URL");
        store.on_unreplicated(move || {
            missed.fetch_add(1, Ordering::Relaxed);
        })
    };
    let unreplicated = || missed.load(Ordering::Relaxed);
    let patient = connect(&settings);
    let shard = shard();
    patient.install(shard, &terms(1, 20)).await.expect("installs");
    admit(&patient, shard, 10).await;
    assert_eq!(unreplicated(), 0, "the replica had each in time");

    let hasty = connect(&RedisSettings { wait: Duration::from_millis(5), ..settings });
    replica.kill();
    admit(&hasty, shard, 10).await;
    assert_eq!(unreplicated(), 10);
    let answers = hasty.admit(shard, &[attempt(1)]).await.expect("answers");
    assert!(matches!(answers[..], [Admit::SoldOut { left: 0, .. }]), "{answers:?}");
    assert_eq!(unreplicated(), 10, "a refusal needs no replica");
}
