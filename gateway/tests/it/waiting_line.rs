//! Users who wait: in order, each shop for itself, until somebody has room.

use serde_json::json;

use crate::desk::{Shop, assigned, is, takes_sessions};

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_longest_is_served_first() {
    let (shop, other) = (Shop::open(321).await.unwrap(), Shop::open(322).await.unwrap());
    let mut stranger = other.agent("carl", 0).await.unwrap();
    let mut anna = shop.agent("anna", 1).await.unwrap();
    is(&mut anna, "busy", Some(1)).await.unwrap();
    let (mut users, mut sessions) = (Vec::new(), Vec::new());
    for waiting in 1..=3 {
        let (user, session) = shop.user(&format!("user-{waiting}")).await.unwrap();
        users.push(user);
        sessions.push(session);
        anna.expect_where("the line grows", |frame| frame["type"] == "waiting" && frame["count"] == waiting).await.unwrap();
    }
    takes_sessions(&mut anna).await.unwrap();
    for (user, session) in users.iter_mut().zip(&sessions) {
        assigned(&mut anna, session, "anna").await.unwrap();
        let closed = user.ask(json!({ "type": "close", "sessionId": session })).await.unwrap();
        assert_eq!(closed["type"], "closed", "{closed}");
    }
    assert_eq!(shop.agents().await.unwrap()["waiting"], 0);
    stranger.assert_quiet().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_finds_those_who_waited() {
    let shop = Shop::open(323).await.unwrap();
    let (mut user, first) = shop.user("first").await.unwrap();
    let (_other, second) = shop.user("second").await.unwrap();
    let (_anna, mut served) = shop.greeted("anna", 1).await.unwrap();
    served.sort_unstable();
    let mut waited = vec![first.clone(), second];
    waited.sort_unstable();
    assert_eq!(served, waited, "the greeting names them");
    assert_eq!(assigned(&mut user, &first, "anna").await.unwrap(), "least_unread");
}
