//! A sale on a Redis that is more than one server: its primary is lost with admissions that no replica has, or it is a Cluster.
//! Orders never exceed the units, and everybody learns what became of the attempt.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt, TryStreamExt};
use gateway_testkit::services::{Redis, RedisCluster, Sentinels};
use tempfile::TempDir;
use tokio::task::block_in_place;

use crate::buyer::Shop;
use crate::cluster::{Cluster, Part};
use crate::edge::Edge;
use crate::sale::{Lot, Terms};
use crate::wait::{RECOVERED, until};

const UNITS: u32 = 100;
/// Admissions that the replica has, and admissions that it has not.
const REPLICATED: usize = 30;
const LOST: usize = 60;
/// Buyers who come after the failover; more than there can be units left.
const LATE: usize = 200;
/// Requests under way at a time.
const CROWD: usize = 40;

/// A primary with a replica and three Sentinels.
struct Watched {
    primary: Redis,
    replica: Redis,
    sentinels: Sentinels,
    _folder: TempDir,
}

impl Watched {
    fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let primary = Redis::start(folder.path(), true)?;
        let replica = Redis::replica(folder.path(), "replica", &primary)?;
        let sentinels = Sentinels::start(folder.path(), &primary)?;
        Ok(Self { primary, replica, sentinels, _folder: folder })
    }

    /// Waits until the replica has everything.
    async fn replicated(&self) -> anyhow::Result<()> {
        let offset = |server: &Redis, field: &str| -> anyhow::Result<Option<String>> {
            let info = server.command(&["INFO", "replication"])?;
            Ok(info.lines().find_map(|line| line.strip_prefix(field)).map(|offset| offset.trim().to_owned()))
        };
        until("the replica has everything", RECOVERED, async || {
            let (written, read) = (offset(&self.primary, "master_repl_offset:")?, offset(&self.replica, "slave_repl_offset:")?);
            Ok((written.is_some() && written == read).then_some(()))
        })
        .await
    }
}

/// What a worker did with the lost admissions before the failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worker {
    /// They are orders: only Redis has forgotten them.
    Wrote,
    /// It was down: nobody knows them any more.
    WasAway,
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_a_failover_forgot_are_not_sold_again() {
    fail_over(Worker::Wrote).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admissions_that_a_failover_lost_fail_and_nobody_waits_for_ever() {
    fail_over(Worker::WasAway).await;
}

async fn fail_over(worker: Worker) {
    let watched = block_in_place(Watched::start).unwrap();
    let cluster = Cluster::start_on(&watched.sentinels.url(), 2, 1).await.unwrap();
    let lot = cluster.open_sale(9_001, Terms::open(UNITS)).await.unwrap();
    let shop = Shop { edge: Edge::new().unwrap(), cluster: &cluster, lot };

    let mut answers = buyers(&shop, "early", REPLICATED).await.unwrap();
    assert_all(&shop, &answers, "success").await;
    watched.replicated().await.unwrap();
    if worker == Worker::WasAway {
        cluster.kill(Part::Worker(0));
    }
    watched.primary.cut_off_replicas().unwrap();
    let lost = buyers(&shop, "lost", LOST).await.unwrap();
    assert_eq!(lost.values().flatten().count(), LOST, "all of them were admitted");
    if worker == Worker::Wrote {
        assert_all(&shop, &lost, "success").await;
    }
    watched.primary.kill();
    if worker == Worker::WasAway {
        cluster.restart(Part::Worker(0)).await.unwrap();
    }

    // By itself: paused, drained, counted anew from the ledger, in force again.
    let admin = cluster.admin(0);
    until("the sale is in force again", RECOVERED, async || {
        let activity = admin.get(&format!("/admin/activities/{}", lot.activity)).await?;
        Ok((activity["products"][0]["epoch"].as_u64() >= Some(2) && activity["phase"] == "open").then_some(()))
    })
    .await
    .unwrap();
    assert_all(&shop, &lost, if worker == Worker::Wrote { "success" } else { "fail" }).await;

    answers.extend(buyers(&shop, "late", LATE).await.unwrap());
    answers.extend(lost);
    let mut owners = BTreeSet::new();
    for (id, order_no) in &answers {
        if let Some(order_no) = order_no
            && shop.settled(id, order_no, 1).await.unwrap() == "success"
        {
            owners.insert(id.clone());
        }
    }
    assert_eq!(cluster.ledger().await.unwrap().assert_sold(lot, UNITS).await.unwrap(), owners, "those who were told so have the orders");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_on_a_redis_cluster_sells_each_unit_once() {
    let folder = tempfile::tempdir().unwrap();
    let redis = block_in_place(|| RedisCluster::start(folder.path())).unwrap();
    let cluster = Cluster::start_on(&redis.url(), 2, 1).await.unwrap();
    // Several lots, so that several nodes of the Cluster have one; one of them in shards.
    for (sku, shards) in [(9_101, 1), (9_102, 1), (9_103, 4)] {
        let lot: Lot = cluster.open_sale(sku, Terms { shards, ..Terms::open(20) }).await.unwrap();
        let shop = Shop { edge: Edge::new().unwrap(), cluster: &cluster, lot };
        let answers = buyers(&shop, &format!("buyer-{sku}"), 60).await.unwrap();
        let won: BTreeMap<_, _> = answers.into_iter().filter(|(_, order_no)| order_no.is_some()).collect();
        assert_all(&shop, &won, "success").await;
        assert_eq!(cluster.ledger().await.unwrap().assert_sold(lot, 20).await.unwrap(), won.into_keys().collect());
    }
}

/// Buyers of one kind on both nodes: each with an order number, or without when sold out.
async fn buyers(shop: &Shop<'_>, kind: &str, count: usize) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    stream::iter(0..count)
        .map(async |number| {
            let id = format!("{kind}-{number}");
            let order_no = shop.buy(&id, number % 2).await?;
            anyhow::Ok((id, order_no))
        })
        .buffer_unordered(CROWD)
        .try_collect()
        .await
}

async fn assert_all(shop: &Shop<'_>, answers: &BTreeMap<String, Option<String>>, wanted: &str) {
    for (id, order_no) in answers {
        let order_no = order_no.as_ref().unwrap();
        assert_eq!(shop.settled(id, order_no, 0).await.unwrap(), wanted, "{id}");
    }
}
