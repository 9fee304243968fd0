//! The rest of `docs/PROTOCOL.md` on real processes: taking back, cursors of devices, one message sent on two nodes, frames that
//! prove themselves, and what a stranger is told. Each test has a shop of its own.

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use serde_json::{Value, json};

use crate::chat_socket::ChatSocket;
use crate::cluster::{Cluster, shared};
use crate::dev::Dev;
use crate::settings;
use crate::tokens;

fn user(shop: u64) -> String {
    tokens::user(&format!("protocol-user-{shop}"))
}

fn agent(shop: u64) -> String {
    tokens::agent(&format!("protocol-desk-{shop}"), shop)
}

async fn connect(cluster: &Cluster, node: usize, token: &str, query: &str) -> (ChatSocket, Value) {
    let mut socket = ChatSocket::connect(cluster.edge(node), token, query).await.unwrap();
    let hello = socket.expect("hello").await.unwrap();
    (socket, hello)
}

async fn open(socket: &mut ChatSocket, shop: u64) -> String {
    let opened = socket.ask(json!({ "type": "open", "subject": "protocol", "shopId": shop.to_string() })).await.unwrap();
    opened["sessionId"].as_str().unwrap().to_owned()
}

fn text(session: &str, content: &str, key: &str) -> Value {
    json!({ "type": "text", "sessionId": session, "content": content, "clientMsgId": key })
}

async fn accepted(socket: &mut ChatSocket, key: &str) -> Value {
    socket.expect_where("accepted", |frame| frame["type"] == "accepted" && frame["clientMsgId"] == key).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_taken_back_is_gone_for_everybody_and_counts_for_nobody() {
    let cluster = shared().await.unwrap();
    let (mut desk, _) = connect(&cluster, 1, &agent(41), "").await;
    let (mut client, _) = connect(&cluster, 0, &user(41), "").await;
    let session = open(&mut client, 41).await;
    client.send(text(&session, "a slip", "m1")).await.unwrap();
    accepted(&mut client, "m1").await;
    desk.expect("text").await.unwrap();
    client.send(json!({ "type": "recall", "sessionId": session, "seq": 1, "clientMsgId": "r1" })).await.unwrap();
    assert_eq!(accepted(&mut client, "r1").await["seq"], 2, "it has a place of its own");
    let told = desk.expect("recalled").await.unwrap();
    assert_eq!((&told["seq"], &told["refSeq"]), (&json!(2), &json!(1)), "{told}");
    let history = desk.ask(json!({ "type": "history", "sessionId": session })).await.unwrap();
    let first = &history["messages"][0];
    assert_eq!((&first["content"], &first["recalled"]), (&json!(""), &json!(true)), "{history}");
    let (_late, hello) = connect(&cluster, 0, &agent(41), "").await;
    assert_eq!(hello["sessions"][0]["unread"], 0, "{hello}");
    // Sent again it is the same recall; of somebody else's message there is none.
    client.send(json!({ "type": "recall", "sessionId": session, "seq": 1, "clientMsgId": "r1" })).await.unwrap();
    assert_eq!(accepted(&mut client, "r1").await["dup"], true);
    let refused = desk.ask(json!({ "type": "recall", "sessionId": session, "seq": 1, "clientMsgId": "r2" })).await.unwrap();
    assert_eq!(refused["code"], "NOT_FOUND", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrived_and_what_was_read_is_known_of_each_side() {
    let cluster = shared().await.unwrap();
    let (mut desk, _) = connect(&cluster, 1, &agent(42), "").await;
    let (mut client, _) = connect(&cluster, 0, &user(42), "?device=phone-1").await;
    let session = open(&mut client, 42).await;
    desk.expect("assigned").await.unwrap();
    for key in ["a1", "a2", "a3"] {
        desk.send(text(&session, "answer", key)).await.unwrap();
        accepted(&mut desk, key).await;
    }
    client.expect_where("the third", |frame| frame["seq"] == 3).await.unwrap();
    client.send(json!({ "type": "recv", "sessionId": session, "lastSeq": 3 })).await.unwrap();
    let delivered = desk.expect("delivered").await.unwrap();
    assert_eq!((&delivered["lastSeq"], &delivered["by"]), (&json!(3), &json!("user:protocol-user-42")), "{delivered}");
    client.send(json!({ "type": "ack", "sessionId": session, "lastSeq": 2 })).await.unwrap();
    let read = desk.expect("read").await.unwrap();
    assert_eq!((&read["lastSeq"], &read["unread"]), (&json!(2), &json!(1)), "{read}");
    let (_late, hello) = connect(&cluster, 0, &agent(42), "").await;
    let entry = &hello["sessions"][0];
    assert_eq!((&entry["peerSeq"], &entry["peerReceived"]), (&json!(2), &json!(3)), "{hello}");
    // What was said just before leaving was said.
    client.send(json!({ "type": "ack", "sessionId": session, "lastSeq": 3 })).await.unwrap();
    client.close().await.unwrap();
    let read = desk.expect("read").await.unwrap();
    assert_eq!((&read["lastSeq"], &read["unread"]), (&json!(3), &json!(0)), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_sent_on_two_nodes_at_once_is_one_row() {
    let cluster = shared().await.unwrap();
    let (mut here, _) = connect(&cluster, 0, &user(43), "").await;
    let session = open(&mut here, 43).await;
    let (mut there, _) = connect(&cluster, 1, &user(43), "").await;
    for round in 1..=10 {
        let key = format!("twice-{round}");
        let (one, two) = tokio::join!(here.send(text(&session, "once", &key)), there.send(text(&session, "once", &key)));
        one.and(two).unwrap();
        let (one, two) = (accepted(&mut here, &key).await, accepted(&mut there, &key).await);
        assert_eq!((&one["seq"], &two["seq"]), (&json!(round), &json!(round)), "{one} {two}");
        assert!(one["dup"] != two["dup"], "exactly one of the two had been stored before: {one} {two}");
    }
    let rows = cluster.ledger().await.unwrap().messages(&session).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    let refused = here.ask(text(&session, "other words", "twice-1")).await.unwrap();
    assert_eq!(refused["code"], "CLIENT_MSG_ID_CONFLICT", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_hears_of_a_session_what_it_hears_of_none() {
    let cluster = shared().await.unwrap();
    let (mut desk, _) = connect(&cluster, 1, &agent(44), "").await;
    let (mut owner, _) = connect(&cluster, 0, &user(44), "").await;
    let session = open(&mut owner, 44).await;
    desk.expect("assigned").await.unwrap();
    owner.send(text(&session, "private", "m1")).await.unwrap();
    accepted(&mut owner, "m1").await;
    desk.expect("text").await.unwrap();
    let missing = "9007199254740000";
    for (who, token) in
        [("another user", tokens::user("protocol-stranger")), ("another shop's agent", tokens::agent("protocol-desk-44", 45))]
    {
        let (mut stranger, hello) = connect(&cluster, 0, &token, "").await;
        assert_eq!(hello["sessions"], json!([]), "{who}: {hello}");
        let requests = |session: &str| {
            let mut requests = vec![
                text(session, "hello?", "s1"),
                json!({ "type": "ack", "sessionId": session, "lastSeq": 1 }),
                json!({ "type": "recv", "sessionId": session, "lastSeq": 1 }),
                json!({ "type": "history", "sessionId": session }),
                json!({ "type": "typing", "sessionId": session }),
                json!({ "type": "close", "sessionId": session }),
                json!({ "type": "recall", "sessionId": session, "seq": 1, "clientMsgId": "s2" }),
                json!({ "type": "resume", "positions": [{ "sessionId": session, "lastSeq": 0 }] }),
            ];
            if who != "another user" {
                requests.push(json!({ "type": "transfer", "sessionId": session, "to": "agent:protocol-desk-44" }));
            }
            requests
        };
        for (theirs, nobodys) in requests(&session).into_iter().zip(requests(missing)) {
            let mut theirs_answer = stranger.ask(theirs.clone()).await.unwrap();
            let mut nobodys_answer = stranger.ask(nobodys).await.unwrap();
            assert_eq!(theirs_answer["code"], "NOT_FOUND", "{who}: {theirs} {theirs_answer}");
            for member in ["reqId", "sessionId"] {
                theirs_answer[member].take();
                nobodys_answer[member].take();
            }
            assert_eq!(theirs_answer, nobodys_answer, "{who}: {theirs}");
        }
        stranger.assert_quiet().await.unwrap();
    }
    owner.assert_quiet().await.unwrap();
    desk.assert_quiet().await.unwrap();
    assert_eq!(cluster.ledger().await.unwrap().messages(&session).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_objects_travel_in_one_text_when_that_was_agreed() {
    let cluster = shared().await.unwrap();
    let (mut client, _) = connect(&cluster, 0, &user(46), "?batch=1").await;
    let pings = "{\"type\":\"ping\",\"reqId\":1}\n{\"type\":\"ping\",\"reqId\":2}\n{\"type\":\"ping\",\"reqId\":3}";
    client.send_text(pings).await.unwrap();
    client.expect_where("the last pong", |frame| frame["type"] == "pong" && frame["reqId"] == 3).await.unwrap();
}

fn now() -> u64 {
    u64::try_from(tokens::now_s()).unwrap() * 1_000
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_was_recorded_is_not_taken_twice() {
    let config = settings::base().unwrap() + "chat.guard.required = true\n" + &settings::chain();
    let dev = Dev::start_with(&config, &[]).await.unwrap();
    let mut client = ChatSocket::connect(dev.edge, &tokens::user("guarded"), "").await.unwrap();
    client.expect("hello").await.unwrap();
    let frame = |timestamp: u64, nonce: &str| json!({ "type": "open", "subject": "guard", "timestamp": timestamp, "nonce": nonce });
    assert_eq!(client.ask(frame(now(), "n1")).await.unwrap()["type"], "opened");
    assert_eq!(client.ask(frame(now(), "n1")).await.unwrap()["code"], "REPLAYED_NONCE");
    assert_eq!(client.ask(frame(now(), "n2")).await.unwrap()["type"], "opened");
    for far in [now() - 400_000, now() + 400_000] {
        assert_eq!(client.ask(frame(far, "n3")).await.unwrap()["code"], "STALE_TIMESTAMP");
    }
    for bare in [json!({ "type": "open" }), json!({ "type": "open", "nonce": "n4" }), json!({ "type": "open", "timestamp": now() })] {
        assert_eq!(client.ask(bare).await.unwrap()["code"], "BAD_REQUEST");
    }
    // Another connection of the same user has the same nonces behind it.
    let mut again = ChatSocket::connect(dev.edge, &tokens::user("guarded"), "").await.unwrap();
    again.expect("hello").await.unwrap();
    assert_eq!(again.ask(frame(now(), "n1")).await.unwrap()["code"], "REPLAYED_NONCE");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_signatures_are_required_only_signed_frames_are_carried_out() {
    let config = settings::base().unwrap() + "chat.guard.signature = \"required\"\n" + &settings::chain();
    let dev = Dev::start_with(&config, &[]).await.unwrap();
    let mut client = ChatSocket::connect(dev.edge, &tokens::user("signer"), "").await.unwrap();
    let hello = client.expect("hello").await.unwrap();
    let key = BASE64URL_NOPAD.decode(hello["frameKey"].as_str().unwrap().as_bytes()).unwrap();
    let sign = |body: &str| {
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), body.as_bytes());
        json!({ "type": "signed", "mac": BASE64URL_NOPAD.encode(mac.as_ref()), "body": body })
    };
    assert_eq!(client.ask(json!({ "type": "open" })).await.unwrap()["code"], "FORBIDDEN", "not signed");
    let body = json!({ "type": "open", "reqId": "signed-1" }).to_string();
    client.send(sign(&body)).await.unwrap();
    client.expect_where("the answer", |frame| frame["type"] == "opened" && frame["reqId"] == "signed-1").await.unwrap();
    let mut forged = sign(&body);
    forged["body"] = json!(body.replace("signed-1", "signed-2"));
    client.send(forged).await.unwrap();
    let refused = client.expect("error").await.unwrap();
    assert_eq!(refused["code"], "FORBIDDEN", "{refused}");
}
