//! Who serves a session: the choice, and agents who come, go and fall silent.

use serde_json::{Value, json};

use crate::cluster::Part;
use crate::desk::{Shop, assigned, is, say, takes_sessions};

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_the_fewest_unread_serves_and_operators_can_ask_why() {
    let shop = Shop::open(301).await.unwrap();
    let (mut anna, mut ben) = (shop.agent("anna", 0).await.unwrap(), shop.agent("ben", 1).await.unwrap());
    let (mut user, first) = shop.user("first").await.unwrap();
    assert_eq!(assigned(&mut anna, &first, "anna").await.unwrap(), "least_unread");
    say(&mut user, &first, 0..3).await.unwrap();
    let (_second, session) = shop.user("second").await.unwrap();
    assigned(&mut ben, &session, "ben").await.unwrap();
    let (_third, session) = shop.user("third").await.unwrap();
    assigned(&mut ben, &session, "ben").await.unwrap();
    let (handovers, why) = shop.handovers(&session).await.unwrap();
    assert_eq!(handovers, [["-", "ben", "least_unread"]]);
    assert_eq!(why, "ben unread 0 open 1/20, anna unread 3 open 1/20; not there 0");
    let told = shop.agents().await.unwrap();
    assert_eq!(
        told["agents"],
        json!([
            { "agent": "anna", "there": true, "state": "online", "unread": 3, "openSessions": 1, "openMax": 20 },
            { "agent": "ben", "there": true, "state": "online", "unread": 0, "openSessions": 2, "openMax": 20 },
        ]),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_and_a_busy_agent_get_nothing_and_keep_what_they_have() {
    let shop = Shop::open(302).await.unwrap();
    let (mut anna, mut ben) = (shop.agent("anna", 0).await.unwrap(), shop.agent("ben", 1).await.unwrap());
    is(&mut anna, "online", Some(1)).await.unwrap();
    is(&mut ben, "busy", None).await.unwrap();
    let (mut user, first) = shop.user("first").await.unwrap();
    assigned(&mut anna, &first, "anna").await.unwrap();
    let (_other, second) = shop.user("second").await.unwrap();
    for agent in [&mut anna, &mut ben] {
        agent.expect_where("one waits", |frame| frame["type"] == "waiting" && frame["count"] == 1).await.unwrap();
    }
    is(&mut anna, "busy", None).await.unwrap();
    user.expect_where("anna is busy", |frame| frame["type"] == "presence" && frame["state"] == "busy").await.unwrap();
    takes_sessions(&mut ben).await.unwrap();
    assigned(&mut ben, &second, "ben").await.unwrap();
    say(&mut anna, &first, 0..1).await.unwrap();
    assert_eq!(shop.handovers(&first).await.unwrap().0, [["-", "anna", "least_unread"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_who_leaves_its_desk_is_replaced_at_once() {
    let shop = Shop::open(303).await.unwrap();
    let mut anna = shop.agent("anna", 0).await.unwrap();
    let (mut user, session) = shop.user("somebody").await.unwrap();
    assigned(&mut anna, &session, "anna").await.unwrap();
    say(&mut user, &session, 0..2).await.unwrap();
    let mut ben = shop.agent("ben", 1).await.unwrap();
    is(&mut anna, "away", None).await.unwrap();
    assert_eq!(assigned(&mut ben, &session, "ben").await.unwrap(), "agent_away");
    assert_eq!(assigned(&mut user, &session, "ben").await.unwrap(), "agent_away");
    // Nobody is there: the user waits, and is the first whom anybody serves.
    is(&mut ben, "offline", None).await.unwrap();
    let fits = |frame: &Value| frame["type"] == "assigned" && frame["agentId"].is_null();
    user.expect_where("nobody serves", fits).await.unwrap();
    takes_sessions(&mut anna).await.unwrap();
    assert_eq!(assigned(&mut anna, &session, "anna").await.unwrap(), "least_unread");
    let hops = shop.handovers(&session).await.unwrap().0;
    let path: Vec<_> = hops.iter().map(|[_, to, reason]| (to.as_str(), reason.as_str())).collect();
    assert_eq!(path, [("anna", "least_unread"), ("ben", "agent_away"), ("-", "agent_away"), ("anna", "least_unread")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_of_a_killed_node_are_replaced_and_no_message_is_lost() {
    let shop = Shop::open(304).await.unwrap();
    let mut anna = shop.agent("anna", 2).await.unwrap();
    let (mut user, session) = shop.user("somebody").await.unwrap();
    assigned(&mut anna, &session, "anna").await.unwrap();
    let mut ben = shop.agent("ben", 1).await.unwrap();
    say(&mut user, &session, 0..5).await.unwrap();
    shop.cluster.kill(Part::Node(2));
    say(&mut user, &session, 5..10).await.unwrap();
    let (told, served) = tokio::join!(assigned(&mut user, &session, "ben"), assigned(&mut ben, &session, "ben"));
    assert_eq!((told.unwrap(), served.unwrap()), ("agent_gone".to_owned(), "agent_gone".to_owned()));
    say(&mut user, &session, 10..12).await.unwrap();
    let live = ben.expect_where("message 10", |frame| frame["content"] == "m10").await.unwrap();
    assert_eq!(live["seq"], 11, "{live}");
    let history = ben.ask(json!({ "type": "history", "sessionId": session })).await.unwrap();
    let rows: Vec<_> = history["messages"].as_array().unwrap().iter().map(|row| (row["seq"].clone(), row["content"].clone())).collect();
    let written: Vec<_> = (0..12).map(|number| (json!(number + 1), json!(format!("m{number}")))).collect();
    assert_eq!(rows, written);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_loaded_again_keeps_its_sessions() {
    let shop = Shop::open(305).await.unwrap();
    let mut anna = shop.agent("anna", 1).await.unwrap();
    let (mut user, session) = shop.user("somebody").await.unwrap();
    assigned(&mut anna, &session, "anna").await.unwrap();
    let _ben = shop.agent("ben", 0).await.unwrap();
    let presence = |state: &'static str| move |frame: &Value| frame["type"] == "presence" && frame["state"] == state;
    for node in [0, 1] {
        drop(anna);
        user.expect_where("anna is away for a moment", presence("offline")).await.unwrap();
        let (socket, sessions) = shop.greeted("anna", node).await.unwrap();
        assert_eq!(sessions, std::slice::from_ref(&session));
        user.expect_where("anna is back", presence("online")).await.unwrap();
        anna = socket;
    }
    // A second tab comes and goes: nobody hears of it.
    let tab = shop.agent("anna", 0).await.unwrap();
    tab.close().await.unwrap();
    user.assert_quiet().await.unwrap();
    assert_eq!(shop.handovers(&session).await.unwrap().0, [["-", "anna", "least_unread"]]);
}
