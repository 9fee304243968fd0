//! A message that MySQL cannot take: it holds nobody up, and an operator has it stored later.

use anyhow::Context;
use serde_json::{Value, json};

use crate::chat_socket::ChatSocket;
use crate::cluster::Cluster;
use crate::operating::sluice;
use crate::tokens;
use crate::wait::{RECOVERED, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_mysql_refuses_is_set_aside_alone_and_stored_when_it_is_tried_again() {
    let cluster = Cluster::start(1, 1, "").await.unwrap();
    let ledger = cluster.ledger().await.unwrap();
    let mut agent = ChatSocket::connect(cluster.edge(0), &tokens::agent("desk", 1), "").await.unwrap();
    agent.expect("hello").await.unwrap();
    let mut user = ChatSocket::connect(cluster.edge(0), &tokens::user("asker"), "").await.unwrap();
    user.expect("hello").await.unwrap();
    let opened = user.ask(json!({ "type": "open", "subject": "returns" })).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap();
    agent.expect("assigned").await.unwrap();

    ledger.refuse_messages(true).await.unwrap();
    for (key, content) in [("m1", "before"), ("m2", "poison"), ("m3", "after")] {
        user.send(json!({ "type": "text", "sessionId": session, "content": content, "clientMsgId": key })).await.unwrap();
    }
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    while accepted.len() + refused.len() < 3 {
        let frame = user.expect_where("a word on each", |frame| !frame["clientMsgId"].is_null()).await.unwrap();
        match frame["code"].as_str() {
            None => accepted.push((frame["clientMsgId"].clone(), frame["seq"].clone())),
            Some(code) => refused.push((frame["clientMsgId"].clone(), code.to_owned(), frame["temporary"].clone())),
        }
    }
    assert_eq!(accepted, [(json!("m1"), json!(1)), (json!("m3"), json!(2))]);
    assert_eq!(refused, [(json!("m2"), "SET_ASIDE".to_owned(), json!(false))]);

    let letter: Value = until("it is on the list", RECOVERED, async || {
        let listed = sluice(&cluster, &["compensation", "list", "--json"]).await?;
        let entries = listed["compensations"].as_array().context("entries")?;
        Ok(entries.iter().find(|entry| entry["kind"] == "chat-message").cloned())
    })
    .await
    .unwrap();
    let payload = &letter["payload"];
    assert_eq!((&payload["session"], &payload["sender"], &payload["clientMsgId"]), (&json!(session), &json!("asker"), &json!("m2")));

    ledger.refuse_messages(false).await.unwrap();
    sluice(&cluster, &["compensation", "retry", &letter["id"].to_string(), "--note", "the table is mended", "--json"]).await.unwrap();
    for socket in [&mut user, &mut agent] {
        let stored = socket.expect_where("the message", |frame| frame["clientMsgId"] == "m2" && frame["seq"] == 3).await.unwrap();
        assert!(stored["type"] == "accepted" || stored["content"] == "poison", "{stored}");
    }
    let stored: Vec<String> = ledger.messages(session).await.unwrap().into_iter().map(|message| message.content).collect();
    assert_eq!(stored, ["before", "after", "poison"]);
    let listed = sluice(&cluster, &["compensation", "list", "--json"]).await.unwrap();
    assert_eq!(listed["open"].as_u64().unwrap_or(0), 0, "{listed}");
}
