//! More clients at once than a node lets in: some wait, some come back when they are told to, and all are in at the end.

use std::time::Duration;

use futures::future::try_join_all;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tokio_tungstenite::tungstenite::Error;

use crate::chat_socket::{ChatSocket, request};
use crate::dev::Dev;
use crate::{settings, tokens};

const CLIENTS: usize = 200;

/// What a client of a storm has been through.
#[derive(Debug, Default, Clone, Copy)]
struct Way {
    refused: usize,
    told_within_ms: u64,
}

/// Connects until it is let in, as often as it is told to come back.
async fn connect(dev: &Dev, number: usize) -> anyhow::Result<(ChatSocket, Way)> {
    let token = tokens::user(&format!("stormer-{number}"));
    let mut way = Way::default();
    loop {
        let stream = Box::new(TcpStream::connect(dev.edge).await?);
        match ChatSocket::handshake(stream, request(dev.edge, &token, "")?).await {
            Ok(socket) => return Ok((socket, way)),
            Err(error) => {
                let Some(Error::Http(response)) = error.downcast_ref::<Error>() else { return Err(error) };
                assert_eq!(response.status(), 503, "{error:#}");
                let seconds: u64 = response.headers()["retry-after"].to_str()?.parse()?;
                // The client library keeps of the body what came with the head.
                let body: Value = serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap_or_default();
                let after = body["retryAfterMs"].as_u64().unwrap_or(1_000 * seconds);
                assert_eq!(after.div_ceil(1_000), seconds, "{body}");
                way = Way { refused: way.refused + 1, told_within_ms: way.told_within_ms.max(after) };
                sleep(Duration::from_millis(after)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_reconnects_is_let_in_at_the_set_rate_and_nobody_is_refused_for_good() {
    let dev = Dev::start(&format!("chat.connects_per_second = 50\nchat.connect_wait_ms = 300\n{}", settings::chain())).await.unwrap();
    let began = Instant::now();
    let mut clients = try_join_all((0..CLIENTS).map(|number| connect(&dev, number))).await.unwrap();
    let took = began.elapsed();
    let refused = clients.iter().filter(|(_, way)| way.refused > 0).count();
    eprintln!("{CLIENTS} clients in {took:?}; {refused} were told to come back");
    assert!(took >= Duration::from_secs_f64((CLIENTS - 25) as f64 / 50.0), "faster than the rate: {took:?}");
    assert!(refused > 0, "the line is shorter than the storm");
    assert!(clients.iter().all(|(_, way)| way.told_within_ms <= 60_000), "{clients:?}");
    for (socket, _) in &mut clients {
        let hello = socket.expect("hello").await.unwrap();
        assert!(hello["reconnectMs"].as_u64().is_some_and(|ms| (1_000..=60_000).contains(&ms)), "{hello}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_tells_clients_when_to_come_back_and_takes_them_when_there_is_room() {
    let dev = Dev::start(&format!("chat.sockets_max = 2\n{}", settings::chain())).await.unwrap();
    let (first, _) = connect(&dev, 0).await.unwrap();
    let _second = connect(&dev, 1).await.unwrap();
    let third = request(dev.edge, &tokens::user("third"), "").unwrap();
    let refused = ChatSocket::handshake(Box::new(TcpStream::connect(dev.edge).await.unwrap()), third).await.unwrap_err();
    assert!(matches!(refused.downcast_ref::<Error>(), Some(Error::Http(response)) if response.status() == 503), "{refused:#}");
    first.close().await.unwrap();
    connect(&dev, 2).await.unwrap();
}
