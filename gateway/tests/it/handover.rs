//! SIGTERM: what is under way ends well, nothing new begins, and the process is gone in time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures::future::try_join_all;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::buyer::Shop;
use crate::chat_socket::ChatSocket;
use crate::cluster::{Cluster, Part};
use crate::conversation::{Conversation, seed};
use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::sale::Terms;
use crate::upstream::{Conduct, Upstream};
use crate::wait::{RECOVERED, SOON, until};
use crate::{settings, tokens};

/// `node.drain_ms` of the tests, twice because requests and sockets may each take it, and room for a busy machine.
const GONE_WITHIN: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_stop_hands_over() {
    let gate = Arc::new(Semaphore::new(0));
    let upstream = Upstream::start(Conduct::Hold(gate.clone())).await.unwrap();
    let mut dev = Dev::start(&format!(
        "[upstreams.slow]\npeers = [{{ addr = \"{}\" }}]\n[[routes]]\nname = \"slow\"\nprefix = \"/slow\"\nupstream = \"slow\"\n{}",
        upstream.address,
        settings::chain()
    ))
    .await
    .unwrap();
    let edge = Edge::new().unwrap();
    let mut socket = ChatSocket::connect(dev.edge, &tokens::user("somebody"), "").await.unwrap();
    socket.expect("hello").await.unwrap();
    let request = edge.http.get(format!("http://{}/slow", dev.edge));
    let slow = tokio::spawn(Answer::of(request));
    until("the request is under way", SOON, async || Ok((upstream.arrived().len() == 1).then_some(()))).await.unwrap();

    dev.process.terminate().unwrap();
    let migrate = socket.expect("migrate").await.unwrap();
    assert!(migrate["afterMs"].as_u64().is_some_and(|ms| ms <= 4_000), "{migrate}");
    until("new connections are refused", SOON, async || match TcpStream::connect(dev.edge).await {
        Ok(_) => bail!("a connection was accepted"),
        Err(_) => Ok(Some(())),
    })
    .await
    .unwrap();
    assert!(dev.process.runs().unwrap(), "it waits for what is under way");
    gate.add_permits(1);
    let answer = slow.await.unwrap().unwrap();
    assert_eq!(answer.status, 200, "what was under way got its answer: {}", answer.body);
    assert!(matches!(socket.closed().await.unwrap(), Some(1001 | 4000 | 4001)), "the socket is told where it stands");
    let status = dev.process.ended(GONE_WITHIN).await.unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_ends_does_not_hold_the_process() {
    let gate = Arc::new(Semaphore::new(0));
    let upstream = Upstream::start(Conduct::Hold(gate)).await.unwrap();
    let config = settings::base().unwrap().replace("node.drain_ms = 4000", "node.drain_ms = 300");
    let route = format!(
        "[upstreams.slow]\npeers = [{{ addr = \"{}\" }}]\n[[routes]]\nname = \"slow\"\nprefix = \"/slow\"\nupstream = \"slow\"\n",
        upstream.address
    );
    let mut dev = Dev::start_with(&(config + &route), &[]).await.unwrap();
    let edge = Edge::new().unwrap();
    let request = edge.http.get(format!("http://{}/slow", dev.edge));
    let slow = tokio::spawn(Answer::of(request));
    until("the request is under way", SOON, async || Ok((upstream.arrived().len() == 1).then_some(()))).await.unwrap();
    dev.process.terminate().unwrap();
    let status = dev.process.ended(GONE_WITHIN).await.unwrap();
    assert!(status.success(), "{status}");
    assert!(slow.await.unwrap().map_or(true, |answer| answer.status >= 500), "nobody was told that it worked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_loses_no_message_and_no_order() {
    const BUYERS: usize = 12;
    let cluster = Arc::new(Cluster::start(2, 2, "").await.unwrap());
    let parts = [Part::Node(0), Part::Node(1), Part::Worker(0), Part::Worker(1)];
    let units = u32::try_from(parts.len() * BUYERS).unwrap();
    let lot = cluster.open_sale(8001, Terms::open(units)).await.unwrap();
    let shop = Shop { cluster: &cluster, edge: Edge::new().unwrap(), lot };
    let mut talk = Conversation::start(cluster.near(0), cluster.near(1), None, seed()).await.unwrap();
    for part in parts {
        talk.write(10);
        let buyers = (0..BUYERS).map(async |number| {
            let id = format!("buyer-{part:?}-{number}").replace(['(', ')'], ".");
            let order_no = shop.buy(&id, number % 2).await?;
            anyhow::Ok((id, order_no))
        });
        let (stopped, bought) = tokio::join!(cluster.stop(part), try_join_all(buyers));
        stopped.unwrap();
        talk.write(10);
        let remaining = usize::from(part == Part::Node(0));
        for (id, order_no) in bought.unwrap() {
            let order_no = order_no.expect("there is a unit for everybody");
            assert_eq!(shop.settled(&id, &order_no, remaining).await.unwrap(), "success", "{id}");
        }
        cluster.restart(part).await.unwrap();
        talk.caught_up(RECOVERED).await.unwrap();
    }
    let ledger = cluster.ledger().await.unwrap();
    ledger.assert_sold(lot, units).await.unwrap();
    talk.assert_alike(&ledger).await.unwrap();
}
