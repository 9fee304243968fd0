//! Redis comes back without what it had accepted. Units may be sold later than they could have been, but none is sold twice,
//! none is lost, and nobody waits for ever.

use std::collections::{BTreeMap, BTreeSet};

use redis_commands::command;
use serde_json::json;

use crate::cluster::{Cluster, Part};
use crate::edge::{Answer, Edge};
use crate::sale::{Lot, Terms};
use crate::tokens;
use crate::wait::{RECOVERED, until};

const UNITS: u32 = 40;
/// Buyers of each kind below.
const EACH: usize = 8;

/// How Redis loses.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// The end of its log: it restarts with what it had a while ago.
    Tail,
    /// All of it, while it runs.
    Everything,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_its_latest_writes_sells_nothing_twice() {
    lose(Loss::Tail).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_everything_sells_nothing_twice() {
    lose(Loss::Everything).await;
}

async fn lose(loss: Loss) {
    let cluster = Cluster::start(2, 1, "").await.unwrap();
    let lot = cluster.open_sale(6001, Terms::open(UNITS)).await.unwrap();
    let shop = Shop { cluster: &cluster, edge: Edge::new().unwrap(), lot };

    // Some are in the ledger before anything is lost; some are lost and in the ledger; some are lost altogether.
    let early = shop.admit("early").await.unwrap();
    shop.assert_all(&early, "success").await;
    if let Loss::Tail = loss {
        command(&cluster.services.redis.url(), "CONFIG SET appendonly no").await.unwrap();
    }
    let written = shop.admit("written").await.unwrap();
    shop.assert_all(&written, "success").await;
    cluster.kill(Part::Worker(0));
    let lost = shop.admit("lost").await.unwrap();
    match loss {
        Loss::Tail => {
            cluster.kill(Part::Redis);
            cluster.restart(Part::Redis).await.unwrap();
        }
        Loss::Everything => command(&cluster.services.redis.url(), "FLUSHALL").await.unwrap(),
    }
    cluster.restart(Part::Worker(0)).await.unwrap();

    // A new epoch counts what the ledger has, and nothing else.
    let admin = cluster.admin(0);
    until("the sale is in force again", RECOVERED, async || {
        let activity = admin.get(&format!("/admin/activities/{}", lot.activity)).await?;
        let product = &activity["products"][0];
        Ok((product["epoch"].as_u64() >= Some(2) && product["sale"]["state"] == "open" && product["sale"]["epoch"] == product["epoch"])
            .then_some(()))
    })
    .await
    .unwrap();
    shop.assert_all(&early, "success").await;
    shop.assert_all(&written, "success").await;
    shop.assert_all(&lost, "fail").await;

    // Who has an order hears so; who lost one may try again; the others get the rest.
    for (id, order_no) in early.iter().chain(&written) {
        let again = shop.buy(id, "again").await.unwrap();
        assert_eq!(
            (again.status, &again.body["replayed"], &again.body["orderNo"]),
            (202, &json!(true), &json!(order_no)),
            "{id}: {}",
            again.body
        );
    }
    let mut owners: BTreeSet<String> = early.keys().chain(written.keys()).cloned().collect();
    for (id, order_no) in &lost {
        let again = shop.buy(id, "again").await.unwrap();
        assert_eq!((again.status, &again.body["orderNo"]), (202, &json!(order_no)), "{id}: {}", again.body);
        owners.insert(id.clone());
    }
    shop.assert_all(&lost, "success").await;
    for number in 0..2 * UNITS {
        let id = format!("late-{number}");
        let answer = shop.buy(&id, "k").await.unwrap();
        if answer.status == 202 {
            owners.insert(id);
        } else {
            answer.assert_refusal(409, "SOLD_OUT");
        }
    }
    let ledger = cluster.ledger().await.unwrap();
    until("everything is written", RECOVERED, async || {
        let activity = admin.get(&format!("/admin/activities/{}", lot.activity)).await?;
        Ok((activity["products"][0]["sale"]["eventsWaiting"] == 0 && activity["products"][0]["sold"] == UNITS).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(ledger.assert_sold(lot, UNITS).await.unwrap(), owners);
}

struct Shop<'a> {
    cluster: &'a Cluster,
    edge: Edge,
    lot: Lot,
}

impl Shop<'_> {
    /// Asks with keys of its own kind until the sale answers: it is paused while it is rebuilt.
    async fn buy(&self, id: &str, key: &str) -> anyhow::Result<Answer> {
        let node = usize::from(id.ends_with(['1', '3', '5', '7', '9']));
        let token = tokens::user(id);
        until(format!("{id} gets an answer"), RECOVERED, async || {
            let answer = self.edge.buy(self.cluster.edge(node), &token, self.lot, &format!("{id}-{key}")).await?;
            Ok((answer.status != 503).then_some(answer))
        })
        .await
    }

    /// [`EACH`] buyers, all of whom are admitted: ids and order numbers.
    async fn admit(&self, kind: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let mut orders = BTreeMap::new();
        for number in 0..EACH {
            let id = format!("{kind}-{number}");
            let answer = self.buy(&id, "first").await?;
            assert_eq!(answer.verdict(), (202, "QUEUED"), "{id}: {}", answer.body);
            orders.insert(id, answer.body["orderNo"].as_str().unwrap_or_default().to_owned());
        }
        Ok(orders)
    }

    async fn assert_all(&self, orders: &BTreeMap<String, String>, wanted: &str) {
        for (id, order_no) in orders {
            let token = tokens::user(id);
            let settled = until(format!("the order of {id} is settled"), RECOVERED, async || {
                Ok(self.edge.settled(self.cluster.edge(0), &token, order_no).await?.filter(|status| status == wanted))
            });
            settled.await.unwrap();
        }
    }
}

/// Redis as an operator speaks to it.
mod redis_commands {
    use anyhow::ensure;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpStream;

    use crate::wait::soon;

    /// Sends one command and waits for `+OK`.
    pub(super) async fn command(url: &str, command: &str) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(url.trim_start_matches("redis://")).await?;
        stream.write_all(format!("{command}\r\n").as_bytes()).await?;
        let mut answer = String::new();
        soon(command, BufReader::new(stream).read_line(&mut answer)).await??;
        ensure!(answer == "+OK\r\n", "{command}: {answer}");
        Ok(())
    }
}
