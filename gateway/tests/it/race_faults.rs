//! The race while one part after another is killed without warning and comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::Context;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::buyer::Shop;
use crate::cluster::{Cluster, Part};
use crate::edge::Edge;
use crate::sale::Terms;

const BUYERS: usize = 800;
const UNITS: u32 = 100;
const CROWD: usize = 100;
/// Buyers who come while a part is killed; four such waves leave units for the last one.
const WAVE: usize = 24;

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
        answers.extend(wave_of(&shop, next..end, part).await.unwrap());
        next = end;
    }

    let admitted: Vec<(&String, &String)> = answers.iter().filter_map(|(id, order_no)| Some((id, order_no.as_ref()?))).collect();
    assert!(admitted.len() >= UNITS as usize, "{} were admitted", admitted.len());
    let mut winners = BTreeSet::new();
    for (id, order_no) in admitted {
        if shop.settled(id, order_no, 0).await.unwrap() == "success" {
            winners.insert(id.clone());
        }
    }
    let owners = cluster.ledger().await.unwrap().assert_sold(lot, UNITS).await.unwrap();
    assert_eq!(owners, winners, "those who were told so have the orders");
}

/// A wave of buyers; `part` is killed once the first has its answer, and comes back while the others go on asking.
async fn wave_of(shop: &Shop<'_>, buyers: Range<usize>, part: Part) -> anyhow::Result<Vec<(String, Option<String>)>> {
    let mut answers = stream::iter(buyers)
        .map(async |number| {
            let id = format!("buyer-{number}");
            let order_no = shop.buy(&id, number % 2).await?;
            anyhow::Ok((id, order_no))
        })
        .buffer_unordered(CROWD);
    let first = answers.next().await.context("a wave has buyers")??;
    shop.cluster.kill(part);
    let (back, rest) = tokio::join!(shop.cluster.restart(part), answers.try_collect::<Vec<_>>());
    back?;
    Ok([vec![first], rest?].concat())
}
