//! Many at once, and what must not come of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cluster::{Cluster, Part, shared};
use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::sale::{self, Terms};
use crate::wait::{RECOVERED, SOON, until};
use crate::{settings, tokens};

const CROWD: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_people_behind_one_address_do_not_stand_in_each_others_way() {
    let config =
        settings::chain().replace("network_limit = 1000000, network_window_ms = 1000", "network_limit = 1000, network_window_ms = 3600000");
    let dev = Dev::start(&config).await.unwrap();
    let lot = sale::open(&dev.admin, 7201, Terms::open(2_000)).await.unwrap();
    let edge = Edge::new().unwrap();
    // Each claims to come from an address of its own, and nobody believes it: there is no trusted proxy.
    let buy = async |number: usize| {
        let body = serde_json::json!({ "activityId": lot.activity, "skuId": lot.sku, "qty": 1 });
        let request = edge.http.post(format!("http://{}/api/seckill/buy", dev.edge)).bearer_auth(tokens::user(&format!("user-{number}")));
        let forged = format!("203.0.{}.{}", number / 250, number % 250);
        Answer::of(request.header("x-forwarded-for", forged).header("x-device-id", format!("device-{number}")).json(&body)).await
    };
    let answers: Vec<Answer> = stream::iter(0..1_000).map(buy).buffer_unordered(CROWD).try_collect().await.unwrap();
    for answer in &answers {
        assert_eq!(answer.verdict(), (202, "QUEUED"), "{}", answer.body);
    }
    // The account of the network fills up again, by one in three and a half seconds.
    let mut refused = 0;
    for number in 1_000..1_050 {
        let answer = buy(number).await.unwrap();
        if answer.status != 202 {
            assert_eq!(answer.status, 429, "{}", answer.body);
            refused += 1;
        }
    }
    assert!(refused > 30, "the ceiling holds whatever the header says: {refused} of 50 were refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn buyers_do_not_see_that_the_store_forgot_its_scripts() {
    let cluster = shared().await.unwrap();
    let lot = cluster.open_sale(7202, Terms::open(200)).await.unwrap();
    let edge = Edge::new().unwrap();
    let (done, flushed) = (AtomicBool::new(false), AtomicU32::new(0));
    let redis = cluster.services.redis.url();
    let forgetting = async {
        let mut connection = Redis::connect(&redis).await?;
        while !done.load(Ordering::Relaxed) {
            connection.forget_scripts().await?;
            flushed.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    };
    let buying = async {
        let bought: Vec<Answer> = stream::iter(0..600)
            .map(async |number| edge.buy(cluster.edge(number % 2), &tokens::user(&format!("scripted-{number}")), lot, "k").await)
            .buffer_unordered(CROWD)
            .try_collect()
            .await?;
        done.store(true, Ordering::Relaxed);
        anyhow::Ok(bought)
    };
    let (forgot, answers) = tokio::join!(forgetting, buying);
    forgot.unwrap();
    let answers = answers.unwrap();
    let admitted = answers.iter().filter(|answer| answer.status == 202).count();
    assert!(answers.iter().all(|answer| answer.status == 202 || answer.verdict() == (409, "SOLD_OUT")));
    assert_eq!(admitted, 200);
    assert!(flushed.load(Ordering::Relaxed) > 10, "it forgot again and again");
}

#[tokio::test(flavor = "multi_thread")]
async fn buyers_wait_for_a_store_that_is_restarted_and_are_not_refused() {
    let cluster = Cluster::start(2, 1, "sale.patience_ms = 15000\n").await.unwrap();
    let lot = cluster.open_sale(7203, Terms::open(1_000)).await.unwrap();
    let edge = Edge::new().unwrap();
    let buy = async |number: usize| {
        let who = tokens::user(&format!("patient-{number}"));
        let answer = edge.buy(cluster.edge(number % 2), &who, lot, "k").await?;
        ensure!(answer.status == 202, "{number}: {} {}", answer.status, answer.body);
        anyhow::Ok(answer)
    };
    let mut answers = stream::iter(0..400).map(buy).buffer_unordered(CROWD);
    for _ in 0..50 {
        answers.next().await.unwrap().unwrap();
    }
    cluster.kill(Part::Redis);
    let (back, rest) = tokio::join!(cluster.restart(Part::Redis), answers.try_collect::<Vec<_>>());
    back.unwrap();
    assert_eq!(rest.unwrap().len(), 350);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lot_of_several_shards_is_sold_to_its_last_unit_and_no_further() {
    let cluster = shared().await.unwrap();
    let lot = cluster.open_sale(7204, Terms { shards: 4, ..Terms::open(50) }).await.unwrap();
    let edge = Edge::new().unwrap();
    let buy = async |number: usize| {
        let answer = edge.buy(cluster.edge(number % 3), &tokens::user(&format!("sharded-{number}")), lot, "k").await?;
        ensure!(answer.status == 202 || answer.verdict() == (409, "SOLD_OUT"), "{number}: {} {}", answer.status, answer.body);
        anyhow::Ok(answer.status == 202)
    };
    let bought: Vec<bool> = stream::iter(0..300).map(buy).buffer_unordered(CROWD).try_collect().await.unwrap();
    let mut sold = bought.iter().filter(|bought| **bought).count();
    eprintln!("{sold} of 50 were sold to the first crowd");
    // Who was refused while the last units were between two shards has gone; whoever comes next gets them.
    for number in 300..400 {
        sold += usize::from(buy(number).await.unwrap());
    }
    assert_eq!(sold, 50);
    let ledger = cluster.ledger().await.unwrap();
    until("every order is written", RECOVERED, async || Ok((ledger.live(lot).await?.len() == 50).then_some(()))).await.unwrap();
    ledger.assert_sold(lot, 50).await.unwrap();
}

/// As much of a Redis client as it takes.
struct Redis(TcpStream);

impl Redis {
    async fn connect(url: &str) -> anyhow::Result<Self> {
        let address: SocketAddr = url.trim_start_matches("redis://").trim_end_matches('/').parse().with_context(|| url.to_owned())?;
        Ok(Self(TcpStream::connect(address).await?))
    }

    async fn forget_scripts(&mut self) -> anyhow::Result<()> {
        self.0.write_all(b"*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n").await?;
        let mut answer = [0; 5];
        timeout(SOON, self.0.read_exact(&mut answer)).await??;
        ensure!(&answer == b"+OK\r\n", "{answer:?}");
        Ok(())
    }
}
