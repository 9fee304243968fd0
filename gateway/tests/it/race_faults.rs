//! The race while one part after another is killed without warning and comes back. Buyers do what a good client does: they
//! ask again, with the same key, until they get an answer that is one.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, Part};
use crate::edge::{Answer, Edge};
use crate::sale::{Lot, Terms};
use crate::tokens;
use crate::wait::{RECOVERED, until};

const BUYERS: usize = 800;
const UNITS: u32 = 100;
const CROWD: usize = 100;
/// Buyers who come while a part is killed; four such waves leave units for the last one.
const WAVE: usize = 24;
/// Between two attempts of one buyer.
const AGAIN_AFTER: Duration = Duration::from_millis(150);

/// Redis goes while there are units left: what it may have lost of the last second is then sold again, and no buyer was told
/// "sold out" before.
const FAULTS: [Part; 5] = [Part::Worker(0), Part::Node(0), Part::Redis, Part::Nats, Part::MariaDb];

#[tokio::test(flavor = "multi_thread")]
async fn stays_exact_while_every_part_is_killed_in_turn() {
    let cluster = Cluster::start(2, 2, "").await.unwrap();
    let lot = cluster.open_sale(2001, Terms::open(UNITS)).await.unwrap();
    let shop = Shop { edge: Edge::new().unwrap(), cluster: &cluster, lot };

    let mut answers = BTreeMap::new();
    let mut next = 0;
    for (wave, part) in FAULTS.into_iter().enumerate() {
        let end = if wave + 1 == FAULTS.len() { BUYERS } else { next + WAVE };
        eprintln!("killing {part:?} while buyers {next} to {end} are at it");
        answers.extend(shop.wave(next..end, part).await.unwrap());
        next = end;
    }

    let admitted: BTreeMap<&String, &String> =
        answers.iter().filter_map(|(id, order)| order.as_ref().map(|order_no| (id, order_no))).collect();
    assert!(admitted.len() >= UNITS as usize, "{} were admitted", admitted.len());
    let mut winners = Vec::new();
    for (id, order_no) in admitted {
        let token = tokens::user(id);
        let settled =
            until(format!("the order of {id} is settled"), RECOVERED, async || shop.edge.settled(cluster.edge(0), &token, order_no).await);
        if settled.await.unwrap() == "success" {
            winners.push(id.clone());
        }
    }
    let owners = cluster.ledger().await.unwrap().assert_sold(lot, UNITS).await.unwrap();
    assert_eq!(owners, winners.into_iter().collect(), "those who were told so have the orders");
}

struct Shop<'a> {
    edge: Edge,
    cluster: &'a Cluster,
    lot: Lot,
}

impl Shop<'_> {
    /// A wave of buyers; `part` is killed once the first has its answer, and comes back while the others go on asking.
    async fn wave(&self, buyers: std::ops::Range<usize>, part: Part) -> anyhow::Result<Vec<(String, Option<String>)>> {
        let mut answers = stream::iter(buyers)
            .map(async |number| {
                let id = format!("buyer-{number}");
                let order_no = self.buy(&id, number % 2).await?;
                anyhow::Ok((id, order_no))
            })
            .buffer_unordered(CROWD);
        let first = answers.next().await.context("a wave has buyers")??;
        self.cluster.kill(part);
        let (back, rest) = tokio::join!(self.cluster.restart(part), answers.try_collect::<Vec<_>>());
        back?;
        Ok([vec![first], rest?].concat())
    }

    /// Asks until there is an answer: an order number, or none when sold out.
    async fn buy(&self, id: &str, node: usize) -> anyhow::Result<Option<String>> {
        let (token, key) = (tokens::user(id), format!("key-{id}"));
        let asking = async {
            let mut node = node;
            loop {
                match self.edge.buy(self.cluster.edge(node), &token, self.lot, &key).await {
                    Ok(answer) if answer.status == 503 => {}
                    Ok(answer) => return judged(&answer),
                    // The node is away, or went away with the request: another one knows as much.
                    Err(_) => node = 1 - node,
                }
                sleep(AGAIN_AFTER).await;
            }
        };
        timeout(RECOVERED, asking).await.with_context(|| format!("{id} got no answer within {RECOVERED:?}"))?
    }
}

fn judged(answer: &Answer) -> anyhow::Result<Option<String>> {
    if answer.verdict() == (409, "SOLD_OUT") {
        return Ok(None);
    }
    ensure!(answer.status == 202, "{} {}", answer.status, answer.body);
    let order_no = answer.body["orderNo"].as_str().context("no orderNo")?;
    Ok(Some(order_no.to_owned()))
}
