//! One buyer at a time, on three nodes: clicking often, and asking for more than there is.

use futures::future::try_join_all;
use serde_json::json;

use crate::cluster::shared;
use crate::edge::Edge;
use crate::sale::Terms;
use crate::tokens;
use crate::wait::{RECOVERED, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_clicks_of_one_person_are_one_order() {
    let cluster = shared().await.unwrap();
    let lot = cluster.open_sale(7001, Terms::open(10)).await.unwrap();
    let (edge, token) = (Edge::new().unwrap(), tokens::user("clicker"));
    let clicks = (0..100).map(|click| edge.buy(cluster.edge(click % 3), &token, lot, "the-same-click"));
    let answers = try_join_all(clicks).await.unwrap();
    for answer in &answers {
        assert_eq!((answer.status, &answer.body["orderNo"]), (202, &answers[0].body["orderNo"]), "{}", answer.body);
    }
    let first = answers.iter().filter(|answer| answer.body["replayed"].is_null()).count();
    assert_eq!(first, 1, "one was the first");
    let order_no = answers[0].body["orderNo"].as_str().unwrap();
    let settled = until("the order is settled", RECOVERED, async || edge.settled(cluster.edge(1), &token, order_no).await).await;
    assert_eq!(settled.unwrap(), "success");
    cluster.ledger().await.unwrap().assert_sold(lot, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_more_than_is_left_hears_how_much_that_is() {
    let cluster = shared().await.unwrap();
    let lot = cluster.open_sale(7002, Terms { per_user: 4, ..Terms::open(5) }).await.unwrap();
    let edge = Edge::new().unwrap();
    let buy = async |id: &str, qty: u32| edge.buy_units(cluster.edge(0), &tokens::user(id), lot, "k", qty).await.unwrap();
    assert_eq!(buy("three", 3).await.status, 202);
    let refused = buy("too-many", 3).await;
    refused.assert_refusal(409, "SOLD_OUT");
    assert_eq!(refused.body["left"], json!(2), "{}", refused.body);
    let greedy = buy("greedy", 5).await;
    greedy.assert_refusal(409, "LIMIT_EXCEEDED");
    assert_eq!(buy("two", 2).await.status, 202);
    let empty = buy("one", 1).await;
    empty.assert_refusal(409, "SOLD_OUT");
    assert!(empty.body["left"].is_null(), "nothing is left: {}", empty.body);
}
