//! A database that forgets: after a failover to a replica that lagged, no number is given out a second time.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::chat_socket::ChatSocket;
use crate::cluster::Cluster;
use crate::tokens;

/// Messages before the replica lags, and those that are lost with the primary.
const KEPT: u64 = 20;
const LOST: u64 = 10;

/// Sends a message and waits for its acceptance: its epoch and number.
async fn say(socket: &mut ChatSocket, session: &str, key: &str) -> anyhow::Result<(String, u64)> {
    socket.send(json!({ "type": "text", "sessionId": session, "content": key, "clientMsgId": key })).await?;
    let accepted = socket.expect_where("accepted", |frame| frame["type"] == "accepted" && frame["clientMsgId"] == key).await?;
    place(&accepted)
}

fn place(frame: &Value) -> anyhow::Result<(String, u64)> {
    let place = frame["epoch"].as_str().map(str::to_owned).zip(frame["seq"].as_u64());
    place.ok_or_else(|| anyhow::anyhow!("{frame} has no place"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_lost_its_last_messages_goes_on_above_them_in_a_new_epoch() {
    let cluster = Cluster::start(2, 1, "").await.unwrap();
    let ledger = cluster.ledger().await.unwrap();
    let mut agent = ChatSocket::connect(cluster.edge(1), &tokens::agent("desk", 1), "").await.unwrap();
    agent.expect("hello").await.unwrap();
    let mut user = ChatSocket::connect(cluster.edge(0), &tokens::user("asker"), "").await.unwrap();
    user.expect("hello").await.unwrap();
    let opened = user.ask(json!({ "type": "open", "subject": "returns" })).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    agent.expect("assigned").await.unwrap();

    let mut told = BTreeSet::new();
    let first = opened["epoch"].as_str().unwrap().to_owned();
    for n in 1..=KEPT + LOST {
        if n == KEPT + 1 {
            ledger.replica_lags(&session).await.unwrap();
        }
        let socket = if n % 3 == 0 { &mut agent } else { &mut user };
        let place = say(socket, &session, &format!("m{n}")).await.unwrap();
        assert_eq!(place, (first.clone(), n));
        told.insert(place.1);
    }
    assert_eq!(ledger.replica_takes_over(&session).await.unwrap(), LOST);

    // Whoever writes next goes on above everything that anybody was told.
    let (epoch, seq) = say(&mut user, &session, "after").await.unwrap();
    assert_ne!(epoch, first);
    assert_eq!(seq, KEPT + LOST + 1);
    assert!(told.insert(seq), "{seq} was given out twice");
    let resync = agent.expect("resync").await.unwrap();
    assert_eq!((&resync["sessionId"], &resync["epoch"], &resync["reason"]), (&json!(session), &json!(epoch), &json!("epoch")), "{resync}");
    let pushed = agent.expect_where("the message", |frame| frame["clientMsgId"] == "after").await.unwrap();
    assert_eq!(place(&pushed).unwrap(), (epoch.clone(), seq));
    let (again, next) = say(&mut agent, &session, "and-on").await.unwrap();
    assert_eq!((again, next), (epoch.clone(), seq + 1), "the new epoch stays");
    assert!(told.insert(next));

    // Somebody who was away meanwhile, and has a message that is gone.
    let mut phone = ChatSocket::connect(cluster.edge(1), &tokens::user("asker"), "").await.unwrap();
    phone.expect("hello").await.unwrap();
    let position = json!({ "sessionId": session, "epoch": first, "lastSeq": KEPT + LOST - 2 });
    phone.send(json!({ "type": "resume", "positions": [position] })).await.unwrap();
    let resync = phone.expect("resync").await.unwrap();
    assert_eq!((&resync["epoch"], &resync["reason"]), (&json!(epoch), &json!("epoch")), "{resync}");

    let stored: Vec<u64> = ledger.messages(&session).await.unwrap().iter().map(|message| message.seq).collect();
    assert_eq!(stored, (1..=KEPT).chain([seq, next]).collect::<Vec<_>>());
}
