//! Sessions that change hands by hand, and sessions that end.

use serde_json::{Value, json};

use crate::desk::{Shop, assigned, is, say};

fn transfer(session: &str, to: &str) -> Value {
    json!({ "type": "transfer", "sessionId": session, "to": to })
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_over_has_the_history_and_whoever_gave_it_away_has_nothing() {
    let shop = Shop::open(311).await.unwrap();
    let mut anna = shop.agent("anna", 0).await.unwrap();
    let (mut user, session) = shop.user("somebody").await.unwrap();
    assigned(&mut anna, &session, "anna").await.unwrap();
    say(&mut user, &session, 0..4).await.unwrap();
    let mut ben = shop.agent("ben", 1).await.unwrap();
    let done = anna.ask(transfer(&session, "agent:ben")).await.unwrap();
    assert_eq!((&done["type"], &done["to"]), (&json!("transferred"), &json!("agent:ben")), "{done}");
    let fits = |frame: &Value| frame["type"] == "assigned" && frame["agentId"] == "ben";
    let given = ben.expect_where("ben is given the session", fits).await.unwrap();
    assert_eq!((&given["reason"], &given["session"]["unread"], &given["session"]["maxSeq"]), (&json!("transferred"), &json!(4), &json!(4)));
    assert_eq!(assigned(&mut user, &session, "ben").await.unwrap(), "transferred");
    let history = ben.ask(json!({ "type": "history", "sessionId": session })).await.unwrap();
    assert_eq!(history["messages"].as_array().map(Vec::len), Some(4), "{history}");
    for frame in [
        json!({ "type": "text", "sessionId": session, "content": "still here", "clientMsgId": "a1" }),
        json!({ "type": "history", "sessionId": session }),
        json!({ "type": "ack", "sessionId": session, "lastSeq": 4 }),
        json!({ "type": "close", "sessionId": session }),
        transfer(&session, "agent:anna"),
        transfer(&session, "waiting"),
    ] {
        let refused = anna.ask(frame.clone()).await.unwrap();
        assert_eq!(refused["code"], "NOT_FOUND", "{frame}: {refused}");
    }
    say(&mut ben, &session, 10..11).await.unwrap();
    user.expect_where("ben's answer", |frame| frame["seq"] == 5 && frame["sender"]["id"] == "ben").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_waits_for_somebody_else_and_may_be_taken() {
    let shop = Shop::open(312).await.unwrap();
    let mut anna = shop.agent("anna", 0).await.unwrap();
    let (mut user, session) = shop.user("somebody").await.unwrap();
    assigned(&mut anna, &session, "anna").await.unwrap();
    let done = anna.ask(transfer(&session, "waiting")).await.unwrap();
    assert_eq!((&done["type"], &done["to"]), (&json!("transferred"), &json!("waiting")), "{done}");
    anna.expect_where("one waits", |frame| frame["type"] == "waiting" && frame["count"] == 1).await.unwrap();
    let taken = anna.ask(transfer(&session, "agent:anna")).await.unwrap();
    assert_eq!(taken["type"], "transferred", "{taken}");
    user.expect_where("anna took it", |frame| frame["type"] == "assigned" && frame["reason"] == "taken").await.unwrap();
    anna.ask(transfer(&session, "waiting")).await.unwrap();
    let mut ben = shop.agent("ben", 1).await.unwrap();
    assert_eq!(assigned(&mut user, &session, "ben").await.unwrap(), "least_unread");
    let refused = anna.ask(transfer(&session, "agent:anna")).await.unwrap();
    assert_eq!(refused["code"], "NOT_FOUND", "it waits no more: {refused}");
    say(&mut ben, &session, 0..1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_crosses_the_border_of_a_shop() {
    let (shop, other) = (Shop::open(313).await.unwrap(), Shop::open(314).await.unwrap());
    let mut anna = shop.agent("anna", 0).await.unwrap();
    let mut stranger = other.agent("carl", 1).await.unwrap();
    let (_user, session) = shop.user("somebody").await.unwrap();
    assigned(&mut anna, &session, "anna").await.unwrap();
    let refused = anna.ask(transfer(&session, "agent:carl")).await.unwrap();
    assert_eq!(refused["code"], "BAD_REQUEST", "the shop has no such agent: {refused}");
    let missing = stranger.ask(transfer("999999", "agent:carl")).await.unwrap();
    for to in ["agent:carl", "waiting", "agent:anna"] {
        let refused = stranger.ask(transfer(&session, to)).await.unwrap();
        assert_eq!((&refused["code"], &refused["message"]), (&missing["code"], &missing["message"]), "{refused}");
    }
    anna.ask(transfer(&session, "waiting")).await.unwrap();
    let refused = stranger.ask(transfer(&session, "agent:carl")).await.unwrap();
    assert_eq!(refused["code"], "NOT_FOUND", "nor while it waits: {refused}");
    is(&mut anna, "away", None).await.unwrap();
    let refused = anna.ask(transfer(&session, "agent:anna")).await.unwrap();
    assert_eq!(refused["code"], "BAD_REQUEST", "an agent who is away takes nothing: {refused}");
    stranger.assert_quiet().await.unwrap();
    assert_eq!(other.agents().await.unwrap()["waiting"], 0);
    assert_eq!(shop.agents().await.unwrap()["waiting"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_session_takes_no_message_and_opening_again_begins_a_new_one() {
    let shop = Shop::open(315).await.unwrap();
    let mut anna = shop.agent("anna", 1).await.unwrap();
    let (mut user, session) = shop.user("somebody").await.unwrap();
    assigned(&mut anna, &session, "anna").await.unwrap();
    say(&mut user, &session, 0..2).await.unwrap();
    let closed = anna.ask(json!({ "type": "close", "sessionId": session })).await.unwrap();
    assert_eq!((&closed["type"], &closed["by"]), (&json!("closed"), &json!("agent:anna")), "{closed}");
    let heard = user.expect("closed").await.unwrap();
    assert_eq!((&heard["sessionId"], &heard["by"]), (&json!(session), &json!("agent:anna")), "{heard}");
    let late = user.ask(json!({ "type": "text", "sessionId": session, "content": "late", "clientMsgId": "late" })).await.unwrap();
    assert_eq!(late["code"], "SESSION_CLOSED", "{late}");
    let history = user.ask(json!({ "type": "history", "sessionId": session })).await.unwrap();
    assert_eq!(history["messages"].as_array().map(Vec::len), Some(2), "it can still be read: {history}");
    let again = shop.ask_for_help(&mut user).await.unwrap();
    assert_ne!(again, session);
    assigned(&mut anna, &again, "anna").await.unwrap();
    say(&mut user, &again, 5..6).await.unwrap();
}
