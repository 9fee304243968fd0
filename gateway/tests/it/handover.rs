//! SIGTERM: what is under way ends well, nothing new begins, and the process is gone in time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::chat_socket::ChatSocket;
use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::wait::{SOON, until};
use crate::{settings, tokens};

/// `node.drain_ms` of the tests, twice because requests and sockets may each take it, and room for a busy machine.
const GONE_WITHIN: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_stop_hands_over() {
    let gate = Arc::new(Semaphore::new(0));
    let upstream = crate::upstream::Upstream::start(crate::upstream::Conduct::Hold(gate.clone())).await.unwrap();
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
    let upstream = crate::upstream::Upstream::start(crate::upstream::Conduct::Hold(gate)).await.unwrap();
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
