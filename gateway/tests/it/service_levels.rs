//! Clocks that run too long are told once, to whoever can act.

use serde_json::{Value, json};

use crate::desk::{Shop, assigned, is, say};

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lets_a_user_wait_is_told_once() {
    let shop = Shop::open(331).await.unwrap();
    let mut anna = shop.agent("anna", 0).await.unwrap();
    let mut ben = shop.agent("ben", 1).await.unwrap();
    is(&mut ben, "busy", None).await.unwrap();
    let (mut user, session) = shop.user("somebody").await.unwrap();
    assigned(&mut anna, &session, "anna").await.unwrap();
    say(&mut user, &session, 0..2).await.unwrap();
    let overdue = |session: &str| {
        let session = session.to_owned();
        move |frame: &Value| frame["type"] == "overdue" && frame["sessionId"] == session && frame["clock"] == "first_response"
    };
    let told = anna.expect_where("anna is told", overdue(&session)).await.unwrap();
    assert!(told["elapsedMs"].as_u64().is_some_and(|shows| shows > 1_500), "{told}");
    // Somebody waits whom nobody serves: that concerns everybody.
    is(&mut anna, "busy", None).await.unwrap();
    let (mut other, waits) = shop.user("other").await.unwrap();
    say(&mut other, &waits, 0..1).await.unwrap();
    let (first, second) = tokio::join!(
        anna.expect_where("anna is told", overdue(&waits)),
        ben.expect_where("ben is told", |frame| frame["type"] == "overdue")
    );
    first.unwrap();
    assert_eq!(second.unwrap()["sessionId"], json!(waits), "and of the other session ben has heard nothing");
    let counted: f64 = {
        let mut sum = 0.0;
        for worker in 0..2 {
            let series = r#"sluice_chat_overdue_total{clock="first_response"}"#;
            sum += shop.cluster.worker_admin(worker).metric(series).await.unwrap().unwrap_or(0.0);
        }
        sum
    };
    assert!(counted >= 2.0, "{counted}");
}
