//! What `docs/PROTOCOL.md` promises, frame by frame, on two nodes. Each test has a shop of its own, so that no agent is given
//! the sessions of another test.

use jsonwebtoken::{Algorithm, Header};
use serde_json::{Value, json};

use crate::chat_socket::ChatSocket;
use crate::cluster::{Cluster, shared};
use crate::edge::{Answer, Edge};
use crate::tokens;
use crate::wait::{SOON, until};

/// A user on node 0 and the agent on node 1 who was given the session.
struct Talk {
    session: String,
    epoch: String,
    user: ChatSocket,
    agent: ChatSocket,
}

/// Starts a conversation in `shop`, whose only agent is `desk-{shop}`; the user is `user-{shop}`.
async fn talk(cluster: &Cluster, shop: u64) -> anyhow::Result<Talk> {
    let mut agent = ChatSocket::connect(cluster.edge(1), &agent(shop), "").await?;
    agent.expect("hello").await?;
    let mut user = ChatSocket::connect(cluster.edge(0), &user(shop), "").await?;
    let hello = user.expect("hello").await?;
    assert_eq!((&hello["v"], &hello["sessions"]), (&json!(1), &json!([])), "{hello}");
    let opened = user.ask(json!({ "type": "open", "subject": "returns", "shopId": shop.to_string() })).await?;
    assert_eq!((&opened["type"], &opened["maxSeq"]), (&json!("opened"), &json!(0)), "{opened}");
    assert!(opened["sessionNo"].as_str().is_some_and(|number| number.starts_with("CS")), "{opened}");
    let assigned = agent.expect("assigned").await?;
    assert_eq!((&assigned["sessionId"], &assigned["agentId"]), (&opened["sessionId"], &json!(format!("desk-{shop}"))), "{assigned}");
    assert_eq!(assigned["session"]["userId"], format!("user-{shop}"), "{assigned}");
    let text = |field: &str| opened[field].as_str().unwrap_or_default().to_owned();
    Ok(Talk { session: text("sessionId"), epoch: text("epoch"), user, agent })
}

fn user(shop: u64) -> String {
    tokens::user(&format!("user-{shop}"))
}

fn agent(shop: u64) -> String {
    tokens::agent(&format!("desk-{shop}"), shop)
}

fn text(session: &str, content: &str, key: &str) -> Value {
    json!({ "type": "text", "sessionId": session, "content": content, "clientMsgId": key })
}

/// Sends a message and waits for its acceptance, whose `seq` it returns.
async fn say(socket: &mut ChatSocket, message: Value) -> anyhow::Result<u64> {
    let key = message["clientMsgId"].clone();
    socket.send(message).await?;
    let accepted = socket.expect_where("accepted", |frame| frame["type"] == "accepted" && frame["clientMsgId"] == key).await?;
    accepted["seq"].as_u64().ok_or_else(|| anyhow::anyhow!("{accepted}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_device_of_both_sides_sees_a_message_once() {
    let cluster = shared().await.unwrap();
    let mut talk = talk(&cluster, 11).await.unwrap();
    let mut phone = ChatSocket::connect(cluster.edge(1), &user(11), "").await.unwrap();
    let hello = phone.expect("hello").await.unwrap();
    let known = &hello["sessions"][0];
    assert_eq!((&known["sessionId"], &known["maxSeq"], &known["unread"]), (&json!(talk.session), &json!(0), &json!(0)), "{hello}");

    let content = "你好 😂 𝐏 👨‍👩‍👧 🇨🇳";
    assert_eq!(say(&mut talk.user, text(&talk.session, content, "m1")).await.unwrap(), 1);
    for socket in [&mut phone, &mut talk.agent] {
        let pushed = socket.expect("text").await.unwrap();
        assert_eq!((&pushed["seq"], &pushed["content"], &pushed["clientMsgId"]), (&json!(1), &json!(content), &json!("m1")), "{pushed}");
        assert_eq!(pushed["sender"], json!({ "kind": "user", "id": "user-11" }), "{pushed}");
    }
    assert_eq!(say(&mut talk.agent, text(&talk.session, "您好", "a1")).await.unwrap(), 2);
    for socket in [&mut phone, &mut talk.user] {
        let pushed = socket.expect("text").await.unwrap();
        assert_eq!((&pushed["seq"], &pushed["sender"]), (&json!(2), &json!({ "kind": "agent", "id": "desk-11" })), "{pushed}");
    }
    for socket in [&mut phone, &mut talk.user, &mut talk.agent] {
        socket.assert_quiet().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_moves_forward_only_and_never_beyond_the_last_message() {
    let cluster = shared().await.unwrap();
    let mut talk = talk(&cluster, 12).await.unwrap();
    for number in 1..=3 {
        assert_eq!(say(&mut talk.agent, text(&talk.session, "读我", &format!("a{number}"))).await.unwrap(), number);
    }
    talk.user.expect_where("the third message", |frame| frame["seq"] == 3).await.unwrap();
    let ack = |seq: Value| json!({ "type": "ack", "sessionId": talk.session, "lastSeq": seq });
    talk.user.send(ack(json!(2))).await.unwrap();
    let read = talk.agent.expect("read").await.unwrap();
    assert_eq!((&read["by"], &read["lastSeq"]), (&json!("user:user-12"), &json!(2)), "{read}");
    // Backwards changes nothing and is no error.
    talk.user.send(ack(json!(1))).await.unwrap();
    for (seq, code) in [
        (json!(4), "ACK_OUT_OF_RANGE"),
        (json!(9_007_199_254_740_991_u64), "ACK_OUT_OF_RANGE"),
        (json!(-1), "BAD_REQUEST"),
        (json!(1.5), "BAD_REQUEST"),
        (json!("2"), "BAD_REQUEST"),
        (json!(null), "BAD_REQUEST"),
    ] {
        let answer = talk.user.ask(ack(seq.clone())).await.unwrap();
        assert_eq!((&answer["type"], &answer["code"]), (&json!("error"), &json!(code)), "{seq}: {answer}");
    }
    let mut again = ChatSocket::connect(cluster.edge(1), &user(12), "").await.unwrap();
    let hello = again.expect("hello").await.unwrap();
    assert_eq!((&hello["sessions"][0]["yourSeq"], &hello["sessions"][0]["unread"]), (&json!(2), &json!(1)), "{hello}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_gets_what_it_missed() {
    let cluster = shared().await.unwrap();
    let mut talk = talk(&cluster, 13).await.unwrap();
    for number in 1..=5 {
        say(&mut talk.agent, text(&talk.session, &format!("{number}"), &format!("a{number}"))).await.unwrap();
    }
    let resume =
        |last: u64, epoch: &str| json!({ "type": "resume", "positions": [{ "sessionId": talk.session, "epoch": epoch, "lastSeq": last }] });
    let by_frame = async |socket: &mut ChatSocket| socket.send(resume(2, &talk.epoch)).await;
    for query in ["".to_owned(), "?last_ack_seq=2".into(), format!("?last_ack_seq=2&sessionId={}&device=web", talk.session)] {
        let mut socket = ChatSocket::connect(cluster.edge(1), &user(13), &query).await.unwrap();
        socket.expect("hello").await.unwrap();
        if query.is_empty() {
            by_frame(&mut socket).await.unwrap();
        }
        for seq in 3..=5 {
            let message = socket.expect("text").await.unwrap();
            assert_eq!((&message["seq"], &message["content"]), (&json!(seq), &json!(seq.to_string())), "{query}: {message}");
        }
        let end = socket.expect("replay_end").await.unwrap();
        assert_eq!((&end["lastSeq"], &end["hasMore"]), (&json!(5), &json!(false)), "{query}: {end}");
        socket.assert_quiet().await.unwrap();
    }
    let mut socket = ChatSocket::connect(cluster.edge(0), &user(13), "").await.unwrap();
    for (last, epoch, reason) in [(500, talk.epoch.as_str(), "ahead"), (2, "77", "epoch")] {
        socket.send(resume(last, epoch)).await.unwrap();
        let resync = socket.expect("resync").await.unwrap();
        assert_eq!((&resync["maxSeq"], &resync["epoch"], &resync["reason"]), (&json!(5), &json!(talk.epoch), &json!(reason)), "{resync}");
    }
    let page = socket.ask(json!({ "type": "history", "sessionId": talk.session, "beforeSeq": 4, "limit": 2 })).await.unwrap();
    let numbers: Vec<_> = page["messages"].as_array().unwrap().iter().map(|message| message["seq"].clone()).collect();
    assert_eq!((numbers, &page["hasMore"]), (vec![json!(2), json!(3)], &json!(true)), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_again_is_stored_once() {
    let cluster = shared().await.unwrap();
    let mut talk = talk(&cluster, 14).await.unwrap();
    assert_eq!(say(&mut talk.user, text(&talk.session, "once", "k")).await.unwrap(), 1);
    let mut other = ChatSocket::connect(cluster.edge(1), &user(14), "").await.unwrap();
    for socket in [&mut talk.user, &mut other] {
        socket.send(text(&talk.session, "once", "k")).await.unwrap();
        let accepted = socket.expect("accepted").await.unwrap();
        assert_eq!((&accepted["seq"], &accepted["dup"]), (&json!(1), &json!(true)), "{accepted}");
    }
    let conflict = other.ask(text(&talk.session, "twice", "k")).await.unwrap();
    assert_eq!(conflict["code"], "CLIENT_MSG_ID_CONFLICT", "{conflict}");
    let stored = cluster.ledger().await.unwrap().messages(&talk.session).await.unwrap();
    assert_eq!(stored.iter().map(|message| message.content.as_str()).collect::<Vec<_>>(), ["once"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_others_is_not_there() {
    let cluster = shared().await.unwrap();
    let mut talk = talk(&cluster, 15).await.unwrap();
    say(&mut talk.user, text(&talk.session, "secret", "k")).await.unwrap();
    let missing = (talk.session.parse::<u64>().unwrap() + 1_000_000).to_string();
    for token in [tokens::user("mallory"), tokens::agent("desk-16", 16), tokens::agent("user-15", 16)] {
        let mut stranger = ChatSocket::connect(cluster.edge(1), &token, "").await.unwrap();
        let hello = stranger.expect("hello").await.unwrap();
        assert_eq!(hello["sessions"], json!([]), "{hello}");
        for session in [&talk.session, &missing] {
            for frame in [
                text(session, "x", "x"),
                json!({ "type": "ack", "sessionId": session, "lastSeq": 1 }),
                json!({ "type": "resume", "positions": [{ "sessionId": session, "epoch": talk.epoch, "lastSeq": 0 }] }),
                json!({ "type": "history", "sessionId": session }),
                json!({ "type": "typing", "sessionId": session }),
            ] {
                let answer = stranger.ask(frame.clone()).await.unwrap();
                assert_eq!((&answer["type"], &answer["code"]), (&json!("error"), &json!("NOT_FOUND")), "{frame}: {answer}");
            }
        }
        say(&mut talk.user, text(&talk.session, "more", &format!("m{}", rand::random::<u32>()))).await.unwrap();
        stranger.assert_quiet().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_good_opens_nothing() {
    let cluster = shared().await.unwrap();
    let edge = Edge::new().unwrap();
    let good = tokens::claims("user-17", "user", 60);
    let without = |claim: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(claim);
        tokens::sign(&claims)
    };
    let with = |claim: &str, value: Value| {
        let mut claims = good.clone();
        claims[claim] = value;
        tokens::sign(&claims)
    };
    let body = tokens::sign(&good).split('.').nth(1).unwrap().to_owned();
    let unsigned = format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{body}.");
    for (what, token) in [
        ("no token", String::new()),
        ("nonsense", "nonsense".into()),
        ("unsigned", unsigned),
        ("another secret", tokens::sign_as(&Header::new(Algorithm::HS256), "another-secret-of-at-least-32-bytes", &good)),
        ("another algorithm", tokens::sign_as(&Header::new(Algorithm::HS512), tokens::SECRET, &good)),
        ("expired", with("exp", json!(tokens::now_s() - 60))),
        ("not yet", with("nbf", json!(tokens::now_s() + 60))),
        ("without end", without("exp")),
        ("without issuer", without("iss")),
        ("without audience", without("aud")),
        ("for somebody else", with("aud", json!("elsewhere"))),
        ("for nobody", with("aud", json!([]))),
        ("from somebody else", with("iss", json!("elsewhere"))),
        ("without subject", without("sub")),
        ("a subject with a space", with("sub", json!("a b"))),
        ("an unknown role", with("role", json!("root"))),
        ("an agent without shop", with("role", json!("agent"))),
    ] {
        for path in ["/ws/chat", "/api/seckill/result/SKABCDEFGHIJ234567"] {
            let mut request = edge.http.get(format!("http://{}{path}", cluster.edge(0)));
            if !token.is_empty() {
                request = request.bearer_auth(&token);
            }
            let answer = Answer::of(upgrading(request)).await.unwrap();
            assert_eq!(answer.verdict(), (401, "UNAUTHENTICATED"), "{what} on {path}: {}", answer.body);
            answer.assert_refusal(401, "UNAUTHENTICATED");
        }
    }
    assert!(ChatSocket::connect(cluster.edge(0), &with("aud", json!(["elsewhere", "sluice"])), "").await.is_ok());
}

/// The fields of a handshake, for when the answer is expected to be an ordinary one.
fn upgrading(request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    request
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_or_the_connection_ends_with_it() {
    let cluster = shared().await.unwrap();
    let token = |id: &str, ends_in_s| tokens::sign(&tokens::claims(id, "user", ends_in_s));
    let mut renewed = ChatSocket::connect(cluster.edge(0), &token("user-18", 3), "").await.unwrap();
    let mut forgotten = ChatSocket::connect(cluster.edge(0), &token("user-18", 3), "").await.unwrap();
    let warning = renewed.expect("token_expiring").await.unwrap();
    assert!(warning["inMs"].as_u64().is_some_and(|ms| ms <= 60_000), "{warning}");
    let refused = renewed.ask(json!({ "type": "refresh", "token": "nonsense" })).await.unwrap();
    assert_eq!(refused["code"], "TOKEN_EXPIRED", "{refused}");
    let answer = renewed.ask(json!({ "type": "refresh", "token": token("user-18", 3_600) })).await.unwrap();
    assert_eq!(answer["type"], "refreshed", "{answer}");
    assert_eq!(forgotten.closed().await.unwrap(), Some(4401));
    renewed.assert_quiet().await.unwrap();
    renewed.send(json!({ "type": "refresh", "token": token("mallory", 3_600) })).await.unwrap();
    assert_eq!(renewed.closed().await.unwrap(), Some(4403), "a token of somebody else");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_first_design_are_served() {
    let cluster = shared().await.unwrap();
    let mut talk = talk(&cluster, 19).await.unwrap();
    let session: u64 = talk.session.parse().unwrap();
    for path in [format!("/ws/chat?token={}", user(19)), format!("/im/{}", user(19))] {
        let mut old = ChatSocket::connect_plain(cluster.edge(1), &path).await.unwrap();
        old.send(json!({ "sessionId": session, "type": "text", "content": "old" })).await.unwrap();
        let accepted = old.expect("accepted").await.unwrap();
        assert_eq!(accepted["sessionId"], talk.session, "{accepted}");
        let pushed = talk.agent.expect("text").await.unwrap();
        assert_eq!((&pushed["seq"], &pushed["content"]), (&accepted["seq"], &json!("old")), "{pushed}");
        old.send(json!({ "type": "ack", "sessionId": session, "lastSeq": accepted["seq"] })).await.unwrap();
        let read = talk.agent.expect("read").await.unwrap();
        assert_eq!(read["lastSeq"], accepted["seq"], "{read}");
    }
    let path = format!("/ws/chat?token={}&last_ack_seq=1", user(19));
    let mut old = ChatSocket::connect_plain(cluster.edge(0), &path).await.unwrap();
    let replayed = old.expect("text").await.unwrap();
    assert_eq!((&replayed["seq"], &replayed["content"]), (&json!(2), &json!("old")), "{replayed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_session_goes_to_the_agent_who_comes() {
    let cluster = shared().await.unwrap();
    let mut user = ChatSocket::connect(cluster.edge(0), &user(20), "").await.unwrap();
    user.expect("hello").await.unwrap();
    let opened = user.ask(json!({ "type": "open", "subject": "nobody is here", "shopId": "20" })).await.unwrap();
    let session = opened["sessionId"].clone();
    let again = user.ask(json!({ "type": "open", "subject": "nobody is here", "shopId": "20" })).await.unwrap();
    assert_eq!(again["sessionId"], session, "one open session for one subject");
    say(&mut user, json!({ "type": "text", "sessionId": session, "content": "hello?", "clientMsgId": "k" })).await.unwrap();

    let mut desk = ChatSocket::connect(cluster.edge(1), &agent(20), "").await.unwrap();
    let hello = desk.expect("hello").await.unwrap();
    let entry = &hello["sessions"][0];
    assert_eq!((&entry["sessionId"], &entry["maxSeq"], &entry["unread"]), (&session, &json!(1), &json!(1)), "{hello}");
    let assigned = user.expect("assigned").await.unwrap();
    assert_eq!((&assigned["sessionId"], &assigned["agentId"]), (&session, &json!("desk-20")), "{assigned}");
    desk.send(json!({ "type": "typing", "sessionId": session })).await.unwrap();
    let typing = user.expect("typing").await.unwrap();
    assert_eq!(typing["by"], "agent:desk-20", "{typing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_sees_the_agent_come_and_go() {
    let cluster = shared().await.unwrap();
    let mut talk = talk(&cluster, 21).await.unwrap();
    talk.agent.close().await.unwrap();
    let gone = talk.user.expect("presence").await.unwrap();
    assert_eq!((&gone["who"], &gone["state"]), (&json!("agent:desk-21"), &json!("offline")), "{gone}");
    let mut back = ChatSocket::connect(cluster.edge(0), &agent(21), "").await.unwrap();
    back.expect("hello").await.unwrap();
    let there = talk.user.expect("presence").await.unwrap();
    assert_eq!((&there["who"], &there["state"]), (&json!("agent:desk-21"), &json!("online")), "{there}");
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_without_sense_are_answered_and_survived() {
    let cluster = shared().await.unwrap();
    let mut talk = talk(&cluster, 22).await.unwrap();
    for (text, code) in [
        ("not json".to_owned(), "BAD_JSON"),
        ("[]".into(), "BAD_JSON"),
        ("{}".into(), "BAD_REQUEST"),
        (r#"{"type":"teleport"}"#.into(), "UNKNOWN_TYPE"),
        (r#"{"type":"close"}"#.into(), "BAD_REQUEST"),
        (r#"{"type":"text"}"#.into(), "BAD_REQUEST"),
        (text(&talk.session, "", "e").to_string(), "EMPTY_CONTENT"),
        (text(&talk.session, " \u{200b}\u{feff}\u{2060}", "e").to_string(), "EMPTY_CONTENT"),
    ] {
        talk.user.send_text(text.clone()).await.unwrap();
        let error = talk.user.expect("error").await.unwrap();
        assert_eq!((&error["code"], &error["temporary"]), (&json!(code), &json!(false)), "{text}: {error}");
    }
    assert_eq!(say(&mut talk.user, text(&talk.session, "a\u{200b}b", "k")).await.unwrap(), 1, "the connection is as good as before");

    for (what, message, code) in [("64 KiB and one byte", Err("x".repeat(65_537)), 1009), ("bytes", Ok(vec![0_u8; 3]), 1003)] {
        let mut socket = ChatSocket::connect(cluster.edge(0), &user(22), "").await.unwrap();
        socket.expect("hello").await.unwrap();
        match message {
            Ok(bytes) => socket.send_binary(bytes).await.unwrap(),
            Err(text) => socket.send_text(text).await.unwrap(),
        }
        assert_eq!(socket.closed().await.unwrap(), Some(code), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_a_lot_is_read_back_in_pages() {
    let cluster = shared().await.unwrap();
    let mut talk = talk(&cluster, 23).await.unwrap();
    const MANY: u64 = 450;
    for number in 1..=MANY {
        talk.user.send(text(&talk.session, &number.to_string(), &format!("k{number}"))).await.unwrap();
        // As many as the server takes at a time without refusing any.
        if number % 100 == 0 || number == MANY {
            talk.user.expect_where("the last of a batch", |frame| frame["type"] == "accepted" && frame["seq"] == number).await.unwrap();
        }
    }
    let mut socket =
        ChatSocket::connect(cluster.edge(1), &agent(23), &format!("?last_ack_seq=0&sessionId={}", talk.session)).await.unwrap();
    let mut last = 0;
    until("everything is replayed", SOON, async || {
        let frame = socket.expect_where("text or replay_end", |frame| frame["type"] == "text" || frame["type"] == "replay_end").await?;
        if frame["type"] == "text" {
            assert_eq!(frame["seq"], last + 1);
            last += 1;
        } else if frame["hasMore"] == true {
            let position = json!({ "sessionId": talk.session, "epoch": talk.epoch, "lastSeq": last });
            socket.send(json!({ "type": "resume", "positions": [position] })).await?;
        }
        Ok((last == MANY).then_some(()))
    })
    .await
    .unwrap();
}
