//! Connections that are gone without a word, and devices that take over from each other.

use serde_json::json;

use crate::chat_socket::ChatSocket;
use crate::cluster::Cluster;
use crate::dev::Dev;
use crate::tokens;
use crate::tunnel::Tunnel;
use crate::wait::{SOON, until};

/// A heartbeat short enough that three of them are no wait.
const BEAT: &str = "chat.heartbeat_ms = 2000";
const SHORT_BEAT: &str = "chat.heartbeat_ms = 300";

async fn opens(socket: &mut ChatSocket, subject: &str) -> String {
    let opened = socket.ask(json!({ "type": "open", "subject": subject, "shopId": "1" })).await.unwrap();
    opened["sessionId"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_fell_silent_is_gone_after_three_heartbeats_and_finds_what_it_missed() {
    let config = crate::settings::base().unwrap().replace(BEAT, SHORT_BEAT) + &crate::settings::chain();
    let dev = Dev::start_with(&config, &[]).await.unwrap();
    let tunnel = Tunnel::to(dev.edge).await.unwrap();
    let mut agent = ChatSocket::connect(dev.edge, &tokens::agent("desk", 1), "").await.unwrap();
    agent.expect("hello").await.unwrap();
    let mut user = ChatSocket::connect(tunnel.address, &tokens::user("u"), "").await.unwrap();
    user.expect("hello").await.unwrap();
    let session = opens(&mut user, "lift").await;
    agent.expect("assigned").await.unwrap();

    tunnel.fall_silent();
    for number in 1..=3 {
        agent.send(json!({ "type": "text", "sessionId": session, "content": number.to_string() })).await.unwrap();
        agent.expect("accepted").await.unwrap();
    }
    // It would fall silent too: nobody reads for it while the test looks elsewhere.
    agent.close().await.unwrap();
    until("the node gives the client up", SOON, async || {
        Ok((dev.admin.metric("sluice_chat_closed_total{code=\"4009\"}").await? == Some(1.0)).then_some(()))
    })
    .await
    .unwrap();
    let mut back = ChatSocket::connect(dev.edge, &tokens::user("u"), &format!("?last_ack_seq=0&sessionId={session}")).await.unwrap();
    for number in 1..=3 {
        let message = back.expect("text").await.unwrap();
        assert_eq!((&message["seq"], &message["content"]), (&json!(number), &json!(number.to_string())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_fell_silent_gets_nobody_any_more() {
    let config = crate::settings::base().unwrap().replace(BEAT, SHORT_BEAT).replace("presence_ttl_ms = 6000", "presence_ttl_ms = 900");
    let dev = Dev::start_with(&(config + &crate::settings::chain()), &[]).await.unwrap();
    let tunnel = Tunnel::to(dev.edge).await.unwrap();
    let mut agent = ChatSocket::connect(tunnel.address, &tokens::agent("desk", 1), "").await.unwrap();
    agent.expect("hello").await.unwrap();
    let mut user = ChatSocket::connect(dev.edge, &tokens::user("u"), "").await.unwrap();
    user.expect("hello").await.unwrap();
    opens(&mut user, "served").await;
    agent.expect("assigned").await.unwrap();
    tunnel.fall_silent();
    user.expect_where("the agent is offline", |frame| frame["type"] == "presence" && frame["state"] == "offline").await.unwrap();
    opens(&mut user, "unserved").await;
    user.assert_quiet().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_who_moves_to_another_node_stays_online_when_the_old_socket_ends() {
    let cluster = Cluster::start(2, 1, "").await.unwrap();
    let mut old = ChatSocket::connect(cluster.edge(0), &tokens::agent("desk", 1), "").await.unwrap();
    old.expect("hello").await.unwrap();
    let mut new = ChatSocket::connect(cluster.edge(1), &tokens::agent("desk", 1), "").await.unwrap();
    new.expect("hello").await.unwrap();
    let mut user = ChatSocket::connect(cluster.edge(0), &tokens::user("u"), "").await.unwrap();
    user.expect("hello").await.unwrap();
    opens(&mut user, "before").await;
    new.expect("assigned").await.unwrap();
    old.close().await.unwrap();
    until("node 0 has let the old socket go", SOON, async || {
        Ok((cluster.admin(0).metric("sluice_connections{kind=\"chat\"}").await? == Some(1.0)).then_some(()))
    })
    .await
    .unwrap();
    user.send(json!({ "type": "ping" })).await.unwrap();
    let heard = user.expect_where("no word that the agent went", |frame| frame["type"] == "pong" || frame["state"] == "offline");
    assert_eq!(heard.await.unwrap()["type"], "pong");
    opens(&mut user, "after").await;
    new.expect("assigned").await.unwrap();
}
