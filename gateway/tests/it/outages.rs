//! What goes on, and what is refused and how soon, while one service is away: killed, so that connections are refused, or
//! frozen, so that they are accepted and nothing answers.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::chat_socket::ChatSocket;
use crate::cluster::{Cluster, Part};
use crate::conversation::Conversation;
use crate::edge::{Answer, Edge};
use crate::sale::{Lot, Terms};
use crate::wait::{RECOVERED, until};
use crate::{tokens, wait};

/// A refusal must not take longer: every call to a service has a deadline of at most three seconds in the tests' settings, and
/// an answer needs at most two of them.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);

/// How a service is away.
#[derive(Debug, Clone, Copy)]
enum Away {
    Killed,
    Frozen,
}

impl Away {
    fn take(self, cluster: &Cluster, part: Part) -> anyhow::Result<()> {
        match self {
            Self::Killed => {
                cluster.kill(part);
                Ok(())
            }
            Self::Frozen => cluster.freeze(part),
        }
    }

    async fn bring_back(self, cluster: &Cluster, part: Part) -> anyhow::Result<()> {
        match self {
            Self::Killed => cluster.restart(part).await,
            Self::Frozen => cluster.thaw(part),
        }
    }
}

/// A node, a worker, a sale and a conversation.
struct Shop {
    cluster: Cluster,
    edge: Edge,
    lot: Lot,
    talk: Conversation,
}

impl Shop {
    async fn open() -> anyhow::Result<Self> {
        let cluster = Cluster::start(1, 1, "").await?;
        let lot = cluster.open_sale(5001, Terms::open(100)).await?;
        let address = cluster.edge(0);
        let talk = Conversation::start(Box::new(move |_| address), Box::new(move |_| address), None, 0).await?;
        Ok(Self { cluster, edge: Edge::new()?, lot, talk })
    }

    async fn buy(&self, id: &str) -> anyhow::Result<Answer> {
        let asked = Instant::now();
        let answer = self.edge.buy(self.cluster.edge(0), &tokens::user(id), self.lot, "k").await?;
        assert!(asked.elapsed() < REFUSED_WITHIN, "{id} waited for {:?}", asked.elapsed());
        Ok(answer)
    }

    /// Both say something, and both see it.
    async fn say(&mut self) -> anyhow::Result<()> {
        self.talk.write(1);
        self.talk.caught_up(RECOVERED).await
    }

    async fn assert_settled(&self, id: &str, order_no: &str) -> anyhow::Result<()> {
        let token = tokens::user(id);
        let settled =
            until(format!("the order of {id}"), RECOVERED, async || self.edge.settled(self.cluster.edge(0), &token, order_no).await);
        assert_eq!(settled.await?, "success", "{id}");
        Ok(())
    }

    /// Everything works: what an outage must lead back to, without anybody restarting anything.
    async fn assert_whole(&mut self, mark: &str) -> anyhow::Result<()> {
        self.cluster.ready(0).await?;
        let id = format!("buyer-after-{mark}");
        let bought = until("it sells", RECOVERED, async || Ok(Some(self.buy(&id).await?).filter(|answer| answer.status == 202))).await?;
        self.assert_settled(&id, bought.body["orderNo"].as_str().unwrap_or_default()).await?;
        self.say().await?;
        let late = ChatSocket::connect(self.cluster.edge(0), &tokens::user(&format!("late-{mark}")), "").await?;
        late.close().await
    }

    /// Waits until the node says that `name` is away.
    async fn noticed(&self, name: &str) -> anyhow::Result<()> {
        let admin = self.cluster.admin(0);
        until(format!("{name} is told to be away"), wait::SOON, async || {
            let (status, report) = admin.readyz().await?;
            Ok((status == 503 && report["dependencies"][name]["ok"] == false).then_some(()))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_ledger_the_sale_goes_on_and_orders_wait() {
    let mut shop = Shop::open().await.unwrap();
    for away in [Away::Killed, Away::Frozen] {
        let mark = format!("{away:?}");
        away.take(&shop.cluster, Part::MariaDb).unwrap();
        let mut orders = Vec::new();
        for number in 0..5 {
            let id = format!("buyer-{mark}-{number}");
            let answer = shop.buy(&id).await.unwrap();
            assert_eq!(answer.verdict(), (202, "QUEUED"), "{id}: {}", answer.body);
            orders.push((id, answer.body["orderNo"].as_str().unwrap().to_owned()));
        }
        shop.noticed("mysql").await.unwrap();
        for (id, order_no) in &orders {
            let result = shop.edge.result(shop.cluster.edge(0), &tokens::user(id), order_no).await.unwrap();
            assert_eq!((result.status, &result.body["status"]), (200, &json!("pending")), "{id}: {}", result.body);
        }
        away.bring_back(&shop.cluster, Part::MariaDb).await.unwrap();
        for (id, order_no) in &orders {
            shop.assert_settled(id, order_no).await.unwrap();
        }
        shop.assert_whole(&mark).await.unwrap();
    }
    // Five and one after each of the two outages.
    shop.cluster.ledger().await.unwrap().assert_sold(shop.lot, 12).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_nobody_buys_and_everybody_chats() {
    let mut shop = Shop::open().await.unwrap();
    for away in [Away::Killed, Away::Frozen] {
        let mark = format!("{away:?}");
        away.take(&shop.cluster, Part::Redis).unwrap();
        for number in 0..3 {
            let answer = shop.buy(&format!("buyer-{mark}-{number}")).await.unwrap();
            answer.assert_refusal(503, "UNAVAILABLE");
        }
        shop.noticed("redis").await.unwrap();
        shop.say().await.unwrap();
        let other = ChatSocket::connect(shop.cluster.edge(0), &tokens::user(&format!("other-{mark}")), "").await.unwrap();
        other.close().await.unwrap();
        away.bring_back(&shop.cluster, Part::Redis).await.unwrap();
        shop.assert_whole(&mark).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_bus_the_sale_goes_on_and_messages_are_stored() {
    let mut shop = Shop::open().await.unwrap();
    for away in [Away::Killed, Away::Frozen] {
        let mark = format!("{away:?}");
        let mut socket = ChatSocket::connect(shop.cluster.edge(0), &tokens::user("asker"), "").await.unwrap();
        socket.expect("hello").await.unwrap();
        away.take(&shop.cluster, Part::Nats).unwrap();
        let message =
            json!({ "type": "text", "sessionId": shop.talk.session(), "content": "lost?", "clientMsgId": format!("lost-{mark}") });
        let asked = Instant::now();
        socket.send(message).await.unwrap();
        let accepted = socket.expect("accepted").await.unwrap();
        assert_eq!((&accepted["clientMsgId"], &accepted["dup"]), (&json!(format!("lost-{mark}")), &json!(false)), "{accepted}");
        assert!(asked.elapsed() < REFUSED_WITHIN, "{mark}: accepted after {:?}", asked.elapsed());
        drop(socket);
        for number in 0..3 {
            let id = format!("buyer-{mark}-{number}");
            let answer = shop.buy(&id).await.unwrap();
            assert_eq!(answer.verdict(), (202, "QUEUED"), "{id}: {}", answer.body);
            shop.assert_settled(&id, answer.body["orderNo"].as_str().unwrap()).await.unwrap();
        }
        shop.noticed("nats").await.unwrap();
        away.bring_back(&shop.cluster, Part::Nats).await.unwrap();
        shop.assert_whole(&mark).await.unwrap();
    }
}
