//! What a buyer was told while away: notices are numbered, kept and replayed on any node.

use serde_json::{Value, json};

use crate::chat_socket::ChatSocket;
use crate::cluster::shared;
use crate::edge::Edge;
use crate::sale::Terms;
use crate::tokens;
use crate::wait::{RECOVERED, until};

fn result(frame: &Value) -> (&Value, &Value, &Value) {
    (&frame["orderNo"], &frame["status"], &frame["nseq"])
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_hears_what_became_of_the_order() {
    let cluster = shared().await.unwrap();
    let lot = cluster.open_sale(7301, Terms::open(5)).await.unwrap();
    let (edge, token) = (Edge::new().unwrap(), tokens::user("traveller"));
    let mut socket = ChatSocket::connect(cluster.edge(0), &token, "").await.unwrap();
    socket.expect("hello").await.unwrap();
    let nothing = socket.ask(json!({ "type": "resume", "positions": [{ "sessionId": "@me", "lastSeq": 0 }] })).await.unwrap();
    assert_eq!((&nothing["type"], &nothing["sessionId"], &nothing["lastSeq"]), (&json!("replay_end"), &json!("@me"), &json!(0)));
    socket.close().await.unwrap();

    let answer = edge.buy(cluster.edge(0), &token, lot, "k").await.unwrap();
    let order_no = &answer.body["orderNo"];
    let settled = until("the order is settled", RECOVERED, async || {
        edge.settled(cluster.edge(1), &token, order_no.as_str().unwrap_or_default()).await
    });
    assert_eq!(settled.await.unwrap(), "success");

    // On another node, from the address on.
    let mut socket = ChatSocket::connect(cluster.edge(1), &token, "?last_ack_seq=0&sessionId=@me").await.unwrap();
    let told = socket.expect("seckill_result").await.unwrap();
    assert_eq!(result(&told), (order_no, &json!("success"), &json!(1)), "{told}");
    let end = socket.expect("replay_end").await.unwrap();
    assert_eq!((&end["sessionId"], &end["lastSeq"]), (&json!("@me"), &json!(1)), "{end}");

    let closed = edge.cancel(cluster.edge(0), &token, order_no.as_str().unwrap()).await.unwrap();
    assert_eq!(closed.verdict(), (200, "CANCELLED"), "{}", closed.body);
    // The first may come once more: it was pushed when it was kept, and this socket was there by then.
    let told = socket.expect_where("the second", |frame| frame["nseq"] == 2).await.unwrap();
    assert_eq!(result(&told), (order_no, &json!("fail"), &json!(2)), "pushed to the open socket: {told}");
    socket.close().await.unwrap();

    // Whoever has the first hears the second, and nothing of anybody else.
    let mut again = ChatSocket::connect(cluster.edge(0), &token, "").await.unwrap();
    again.expect("hello").await.unwrap();
    again.send(json!({ "type": "resume", "positions": [{ "sessionId": "@me", "lastSeq": 1 }] })).await.unwrap();
    let told = again.expect("seckill_result").await.unwrap();
    assert_eq!(result(&told), (order_no, &json!("fail"), &json!(2)), "{told}");
    again.expect("replay_end").await.unwrap();
    let mut stranger = ChatSocket::connect(cluster.edge(0), &tokens::user("stay-at-home"), "?last_ack_seq=9&sessionId=@me").await.unwrap();
    let anew = stranger.expect("resync").await.unwrap();
    assert_eq!((&anew["maxSeq"], &anew["reason"]), (&json!(0), &json!("ahead")), "who claims more than there is counts anew: {anew}");
    let end = stranger.expect("replay_end").await.unwrap();
    assert_eq!(end["lastSeq"], json!(0), "{end}");
}
