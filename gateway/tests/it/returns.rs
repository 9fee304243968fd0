//! Units that come back: an order that its buyer cancels is sold again, at once and everywhere.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Cluster, Part, shared};
use crate::edge::{Answer, Edge};
use crate::sale::{Lot, Terms};
use crate::tokens;
use crate::wait::{RECOVERED, SOON, until};

/// A lot, and those who ask for it.
struct Shop<'a> {
    cluster: &'a Cluster,
    edge: Edge,
    lot: Lot,
}

impl<'a> Shop<'a> {
    async fn open(cluster: &'a Cluster, sku: u64, stock: u32) -> Self {
        let lot = cluster.open_sale(sku, Terms::open(stock)).await.unwrap();
        Self { cluster, edge: Edge::new().unwrap(), lot }
    }

    async fn buy(&self, who: &str, node: usize, key: &str) -> anyhow::Result<Answer> {
        self.edge.buy(self.cluster.edge(node), &tokens::user(who), self.lot, key).await
    }

    /// Buys, and waits until the order is written.
    async fn bought(&self, who: &str, node: usize, key: &str) -> String {
        let answer = self.buy(who, node, key).await.unwrap();
        assert_eq!(answer.verdict(), (202, "QUEUED"), "{who}: {}", answer.body);
        assert!(answer.body["replayed"].is_null(), "{who}: {}", answer.body);
        let order_no = answer.body["orderNo"].as_str().unwrap().to_owned();
        self.ends(who, &order_no, "success").await;
        order_no
    }

    async fn ends(&self, who: &str, order_no: &str, wanted: &str) {
        let told = until(format!("the order of {who} is told to be a {wanted}"), RECOVERED, async || {
            let told = self.edge.settled(self.cluster.edge(0), &tokens::user(who), order_no).await?;
            Ok(told.filter(|told| told == wanted))
        });
        told.await.unwrap();
    }

    async fn cancel(&self, who: &str, node: usize, order_no: &str) -> Answer {
        self.edge.cancel(self.cluster.edge(node), &tokens::user(who), order_no).await.unwrap()
    }

    /// Strangers ask until the node refuses one by itself.
    async fn flagged(&self, node: usize) {
        let (before, mut stranger) = (self.refused_here(node).await.unwrap(), 0);
        let flagged = until(format!("node {node} calls the lot sold out"), SOON, async || {
            stranger += 1;
            let answer = self.buy(&format!("stranger-{}-{node}-{stranger}", self.lot.sku), node, "k").await?;
            assert_eq!(answer.verdict(), (409, "SOLD_OUT"), "{}", answer.body);
            answer.assert_refusal(409, "SOLD_OUT");
            Ok((self.refused_here(node).await? > before).then_some(()))
        });
        flagged.await.unwrap();
    }

    async fn refused_here(&self, node: usize) -> anyhow::Result<u64> {
        let metrics = self.edge.http.get(self.cluster.admin(node).url("/metrics")).send().await?.text().await?;
        let line = metrics.lines().find_map(|line| line.strip_prefix("sluice_admit_total{outcome=\"sold_out_here\"} "));
        Ok(line.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// How long `who` asks on `node`, with one key, until there is a unit.
    async fn gets_one(&self, who: &str, node: usize) -> Duration {
        let since = Instant::now();
        let got = until(format!("{who} gets a unit on node {node}"), SOON, async || {
            let answer = self.buy(who, node, "k").await?;
            assert!([202, 409].contains(&answer.status), "{}", answer.body);
            Ok((answer.status == 202).then_some(()))
        });
        got.await.unwrap();
        since.elapsed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_unit_is_sold_again_within_a_second_where_it_was_called_sold_out() {
    let cluster = shared().await.unwrap();
    let shop = Shop::open(&cluster, 7101, 1).await;
    let order_no = shop.bought("alice", 0, "k").await;
    for node in [0, 1] {
        shop.flagged(node).await;
        let again = shop.buy("alice", node, "another").await.unwrap();
        assert_eq!(
            (again.status, &again.body["orderNo"], &again.body["replayed"]),
            (202, &json!(order_no), &json!(true)),
            "{}",
            again.body
        );
    }
    shop.cancel("mallory", 0, &order_no).await.assert_refusal(404, "NOT_FOUND");
    shop.edge.result(cluster.edge(0), &tokens::user("mallory"), &order_no).await.unwrap().assert_refusal(404, "NOT_FOUND");
    for unknown in ["SKAAAAAAAAAAAAAAAA", "nonsense", "SK"] {
        shop.cancel("alice", 0, unknown).await.assert_refusal(404, "NOT_FOUND");
    }

    let closed = shop.cancel("alice", 0, &order_no).await;
    assert_eq!(closed.verdict(), (200, "CANCELLED"), "{}", closed.body);
    assert_eq!((&closed.body["orderNo"], &closed.body["status"]), (&json!(order_no), &json!("closed")), "{}", closed.body);
    let waited = shop.gets_one("bob", 1).await;
    assert!(waited < Duration::from_secs(1), "{waited:?}");

    let twice = shop.cancel("alice", 1, &order_no).await;
    assert_eq!(twice.verdict(), (200, "CANCELLED"), "{}", twice.body);
    shop.flagged(0).await;
    shop.ends("alice", &order_no, "fail").await;
    assert_eq!(cluster.ledger().await.unwrap().live(shop.lot).await.unwrap(), [("bob".to_owned(), 0)], "one unit, one owner");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cancels_may_buy_again_and_has_another_number() {
    let cluster = shared().await.unwrap();
    let shop = Shop::open(&cluster, 7102, 3).await;
    let mut numbers = vec![shop.bought("dave", 0, "first").await];
    for round in 1..4 {
        let last = numbers.last().unwrap();
        assert_eq!(shop.cancel("dave", round % 2, last).await.verdict(), (200, "CANCELLED"));
        // A key of its own: this is a new attempt, so the one of five seconds ago counts.
        let answer = until("dave may try again", SOON, async || {
            let answer = shop.buy("dave", 0, &format!("round-{round}")).await?;
            Ok((answer.status != 429).then_some(answer))
        });
        let answer = answer.await.unwrap();
        assert_eq!((answer.verdict(), &answer.body["replayed"]), ((202, "QUEUED"), &Value::Null), "{}", answer.body);
        let order_no = answer.body["orderNo"].as_str().unwrap().to_owned();
        assert!(!numbers.contains(&order_no));
        shop.ends("dave", &order_no, "success").await;
        shop.ends("dave", numbers.last().unwrap(), "fail").await;
        assert_eq!(cluster.ledger().await.unwrap().live(shop.lot).await.unwrap(), [("dave".to_owned(), round as u16)], "the same row");
        numbers.push(order_no);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_bus_a_node_finds_out_by_itself() {
    let cluster = Cluster::start(2, 1, "").await.unwrap();
    let shop = Shop::open(&cluster, 7103, 1).await;
    let order_no = shop.bought("alice", 0, "k").await;
    cluster.kill(Part::Nats);
    for node in [0, 1] {
        shop.flagged(node).await;
    }
    assert_eq!(shop.cancel("alice", 0, &order_no).await.verdict(), (200, "CANCELLED"));
    let waited = shop.gets_one("bob", 1).await;
    assert!(waited < Duration::from_secs(3), "an attempt a second goes through: {waited:?}");
}
