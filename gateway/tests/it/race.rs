//! Six thousand people, a hundred units, three nodes: who wins is written exactly once, and everybody learns it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{SeedableRng, random};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::chat_socket::{ChatSocket, Heard};
use crate::cluster::Cluster;
use crate::edge::{Answer, Edge};
use crate::sale::Terms;
use crate::tokens;
use crate::wait::{RECOVERED, SOON, until};

const BUYERS: usize = 6_000;
const NODES: usize = 3;
const UNITS: u32 = 100;
/// Requests under way at a time.
const CROWD: usize = 200;
/// Buyers who have a chat open while they buy.
const WATCHERS: usize = 150;

/// One who wants a unit.
#[derive(Debug, Clone)]
struct Buyer {
    id: String,
    token: String,
    /// The node that is asked.
    node: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn sells_each_unit_once_and_tells_every_buyer() {
    let cluster = Cluster::start(NODES, 2, "").await.unwrap();
    let lot = cluster.open_sale(1001, Terms::open(UNITS)).await.unwrap();
    let edge = Edge::new().unwrap();
    let buyers: Vec<Buyer> = (0..BUYERS).map(buyer).collect();
    let buy = async |buyer: &Buyer, node: usize, key: String| edge.buy(cluster.edge(node), &buyer.token, lot, &key).await;

    // Each watches on the node that it does not buy from.
    let watchers = buyers[..WATCHERS].iter().map(|buyer| Watcher::start(cluster.edge((buyer.node + 1) % NODES), buyer));
    let watchers = try_join_all(watchers).await.unwrap();

    let seed: u64 = random();
    eprintln!("the order of the buyers comes from seed {seed}");
    let answers: Vec<(Buyer, Answer)> = stream::iter(queue(&buyers, seed))
        .map(async |buyer| anyhow::Ok((buyer.clone(), buy(&buyer, buyer.node, format!("first-{}", buyer.id)).await?)))
        .buffer_unordered(CROWD)
        .try_collect()
        .await
        .unwrap();

    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, answer)| answer.status == 202);
    for (buyer, answer) in &lost {
        assert_eq!(answer.verdict(), (409, "SOLD_OUT"), "{}: {}", buyer.id, answer.body);
        answer.assert_refusal(409, "SOLD_OUT");
    }
    assert_eq!((won.len(), lost.len()), (UNITS as usize, BUYERS - UNITS as usize));
    for (buyer, answer) in &won {
        assert_eq!((answer.code(), &answer.body["status"]), ("QUEUED", &Value::from("pending")), "{}: {}", buyer.id, answer.body);
    }
    let orders: BTreeMap<String, String> = won.iter().map(|(buyer, answer)| (buyer.id.clone(), order_no(answer))).collect();
    assert_eq!(orders.values().collect::<BTreeSet<_>>().len(), UNITS as usize, "every order has its own number");

    for (buyer, answer) in &won {
        let order_no = order_no(answer);
        for node in 0..NODES {
            let settled =
                until("the order is settled", RECOVERED, async || edge.settled(cluster.edge(node), &buyer.token, &order_no).await);
            assert_eq!(settled.await.unwrap(), "success", "{} on node {node}", buyer.id);
        }
    }
    let owners = cluster.ledger().await.unwrap().assert_sold(lot, UNITS).await.unwrap();
    assert_eq!(owners, orders.keys().cloned().collect(), "those who were told so have the orders");

    let winners = watchers.iter().filter_map(|watcher| Some((watcher, orders.get(&watcher.id)?)));
    assert!(winners.clone().count() > 0, "none of {WATCHERS} watchers won with seed {seed}");
    for (watcher, order_no) in winners {
        let result = until("the result is pushed", SOON, async || watcher.result()).await.unwrap();
        assert_eq!((&result["orderNo"], &result["status"]), (&Value::from(order_no.as_str()), &Value::from("success")), "{}", watcher.id);
    }
    for watcher in watchers.iter().filter(|watcher| !orders.contains_key(&watcher.id)) {
        assert_eq!(watcher.result().unwrap(), None, "{} bought nothing", watcher.id);
    }

    for (buyer, answer) in &won {
        for node in 0..NODES {
            let again = buy(buyer, node, format!("again-{}-{node}", buyer.id)).await.unwrap();
            assert_eq!(again.status, 202, "{}: {}", buyer.id, again.body);
            assert_eq!((&again.body["orderNo"], &again.body["replayed"]), (&answer.body["orderNo"], &Value::Bool(true)));
        }
        let stranger = if buyer.id == "buyer-0" { &buyers[1] } else { &buyers[0] };
        let peeked = edge.result(cluster.edge(0), &stranger.token, &order_no(answer)).await.unwrap();
        peeked.assert_refusal(404, "NOT_FOUND");
    }
    let sale = until("the books agree", RECOVERED, async || {
        let sale = cluster.admin(1).get(&format!("/admin/activities/{}", lot.activity)).await?;
        let invariants = sale["products"][0]["invariants"].as_object().context("invariants")?.clone();
        ensure!(invariants.len() == 4 && invariants.values().all(|holds| holds == true), "{sale}");
        Ok(Some(sale))
    })
    .await
    .unwrap();
    let product = &sale["products"][0];
    assert_eq!((&product["sold"], &product["sale"]["left"]), (&Value::from(UNITS), &Value::from(0)), "{sale}");
}

/// A buyer's open chat, and the result that was pushed to it.
struct Watcher {
    id: String,
    result: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

impl Watcher {
    async fn start(node: SocketAddr, buyer: &Buyer) -> anyhow::Result<Self> {
        let mut socket = ChatSocket::connect(node, &buyer.token, "").await?;
        socket.expect("hello").await?;
        let result = Arc::new(Mutex::new(Vec::new()));
        let kept = result.clone();
        let task = tokio::spawn(async move {
            while let Ok(Heard::Frame(frame)) = socket.hear().await {
                if frame["type"] == "seckill_result" {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(frame);
                }
            }
        });
        Ok(Self { id: buyer.id.clone(), result, task })
    }

    /// What was pushed so far; more than one result is a fault.
    fn result(&self) -> anyhow::Result<Option<Value>> {
        let results = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(results.len() <= 1, "{results:?}");
        Ok(results.first().cloned())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn buyer(number: usize) -> Buyer {
    let id = format!("buyer-{number}");
    Buyer { token: tokens::user(&id), id, node: number % NODES }
}

fn order_no(answer: &Answer) -> String {
    answer.body["orderNo"].as_str().unwrap_or_default().to_owned()
}

/// Everybody in random order, the watchers among the first, so that some of them win.
fn queue(buyers: &[Buyer], seed: u64) -> Vec<Buyer> {
    let mut random = StdRng::seed_from_u64(seed);
    let (front, back) = buyers.split_at(2 * WATCHERS);
    let (mut front, mut back) = (front.to_vec(), back.to_vec());
    front.shuffle(&mut random);
    back.shuffle(&mut random);
    front.append(&mut back);
    front
}
