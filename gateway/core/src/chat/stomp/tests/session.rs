//! A STOMP client on one side, the connection's frames on the other; both are played here.

use std::time::Duration;

use serde_json::{Value, json};

use crate::chat::Party;
use crate::chat::code::CloseCode;
use crate::chat::connection::ConnId;
use crate::chat::stomp::{Command, Decoder, Frame, Nacked, Stomp, StompLimits, Version};
use crate::id::{PrincipalId, SessionId};
use crate::time::UnixMillis;

struct Talk {
    stomp: Stomp,
    version: Version,
    now: UnixMillis,
}

impl Talk {
    /// Before CONNECT.
    fn begin() -> Self {
        let party = Party::user(PrincipalId::parse("88").unwrap());
        let now = UnixMillis(1_780_300_000_000);
        let stomp = Stomp::new(party, ConnId::parse("c1").unwrap(), StompLimits::default(), now);
        let mut talk = Self { stomp, version: Version::V12, now };
        talk.hears(json!({ "type": "hello", "v": 1, "connId": "c1", "sessions": [] }));
        assert_eq!(talk.written(), [], "nothing is said before CONNECT");
        talk
    }

    /// After CONNECTED.
    fn open(version: Version) -> Self {
        let mut talk = Self::begin();
        talk.version = version;
        talk.says(&format!("CONNECT\naccept-version:{}\nheart-beat:0,0\n\n\0", version.as_str()));
        assert_eq!(talk.written_one(Command::Connected).header("version"), Some(version.as_str()));
        talk
    }

    fn says(&mut self, text: &str) {
        self.stomp.handle_text(text, self.now);
    }

    fn hears(&mut self, frame: Value) {
        self.stomp.handle_frame(&frame.to_string(), self.now);
    }

    fn passes(&mut self, span: Duration) {
        self.now = self.now.plus(span);
        self.stomp.handle_timeout(self.now);
    }

    /// What the connection is asked.
    fn asked(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.stomp.poll_request()).map(|request| serde_json::from_str(&request).unwrap()).collect()
    }

    fn asked_one(&mut self) -> Value {
        let [request] = <[Value; 1]>::try_from(self.asked()).unwrap_or_else(|requests| panic!("asked {requests:?}"));
        request
    }

    /// What the client gets.
    fn written(&mut self) -> Vec<Frame> {
        let mut decoder = Decoder::new(StompLimits::default());
        let mut frames = Vec::new();
        while let Some(text) = self.stomp.poll_write() {
            decoder.feed(text.as_str());
            while let Some(frame) = decoder.next_frame(Some(self.version)).unwrap() {
                frames.push(frame);
            }
        }
        assert!(!decoder.is_inside_frame(), "whole frames");
        frames
    }

    fn written_one(&mut self, command: Command) -> Frame {
        let [frame] = <[Frame; 1]>::try_from(self.written()).unwrap_or_else(|frames| panic!("wrote {frames:?}"));
        assert_eq!(frame.command, command, "{frame:?}");
        frame
    }

    /// The numbers of the messages it gets.
    fn seqs(&mut self) -> Vec<u64> {
        self.written().iter().filter_map(|frame| frame.header("seq")?.parse().ok()).collect()
    }

    fn fails(&mut self, message: &str, code: CloseCode) -> Frame {
        let frames = self.written();
        let error = frames.last().unwrap_or_else(|| panic!("nothing is written, {message} was expected"));
        assert_eq!((error.command, error.header("message")), (Command::Error, Some(message)), "{error:?}");
        assert_eq!(self.stomp.closes_with(), Some(code), "{message}");
        error.clone()
    }

    /// Subscribes as `id` and settles where it stands.
    fn listens(&mut self, id: &str, more: &str, top: u64) {
        self.says(&format!("SUBSCRIBE\nid:{id}\ndestination:/topic/chat/9001\nreceipt:sub-{id}\n{more}\n\0"));
        let asked = self.asked_one();
        self.hears(json!({ "type": "history", "reqId": asked["reqId"], "sessionId": "9001", "hasMore": true,
            "messages": [{ "seq": top, "epoch": "1" }] }));
        assert_eq!(self.written_one(Command::Receipt).header("receipt-id"), Some(format!("sub-{id}").as_str()));
    }

    fn sends(&mut self, text: &str, receipt: &str) {
        self.says(&format!("SEND\ndestination:/app/chat/9001\nclient-msg-id:{receipt}\nreceipt:{receipt}\n\n{text}\0"));
    }
}

fn message(seq: u64) -> Value {
    json!({ "id": format!("9001-{seq}"), "type": "text", "sessionId": "9001", "seq": seq, "epoch": "1", "content": "你好",
        "sender": { "kind": "agent", "id": "7" }, "clientMsgId": format!("a{seq}"), "time": 1 })
}

fn accepted(id: &str, seq: u64) -> Value {
    json!({ "type": "accepted", "sessionId": "9001", "clientMsgId": id, "id": format!("9001-{seq}"), "seq": seq, "epoch": "1", "dup": false,
        "time": 7 })
}

fn refused(request: &Value, code: &str, temporary: bool) -> Value {
    json!({ "type": "error", "reqId": request["reqId"], "code": code, "message": "no", "temporary": temporary, "sessionId": "9001",
        "clientMsgId": request["clientMsgId"] })
}

#[test]
fn a_greeting_is_answered_with_version_session_and_heart_beat() {
    let mut talk = Talk::begin();
    talk.says("STOMP\naccept-version:1.0,1.1,1.2\nhost:shop\nheart-beat:0,0\n\n\0\n");
    let connected = talk.written_one(Command::Connected);
    for (name, value) in [("version", "1.2"), ("heart-beat", "10000,10000"), ("session", "c1"), ("user-name", "88")] {
        assert_eq!(connected.header(name), Some(value));
    }
    assert!(connected.header("server").is_some_and(|server| server.starts_with("sluice/")));
}

#[test]
fn the_first_frame_must_be_a_greeting_and_come_in_time() {
    for text in ["SEND\ndestination:/app/open\n\n\0", "DISCONNECT\n\n\0", "CONNECTED\nversion:1.2\n\n\0"] {
        let mut talk = Talk::begin();
        talk.says(text);
        talk.fails("the first frame must be CONNECT or STOMP", CloseCode::Misuse);
    }
    let mut talk = Talk::begin();
    talk.passes(Duration::from_millis(14_999));
    assert_eq!(talk.stomp.closes_with(), None);
    talk.passes(Duration::from_millis(1));
    assert_eq!(talk.stomp.closes_with(), Some(CloseCode::HelloTimeout));
}

#[test]
fn a_client_of_another_version_is_told_which_there_are() {
    let mut talk = Talk::begin();
    talk.says("CONNECT\naccept-version:2.0\n\n\0");
    let error = talk.fails("no version in common", CloseCode::Version);
    assert_eq!(error.header("version"), Some("1.0,1.1,1.2"));
}

#[test]
fn a_token_in_the_greeting_is_verified_before_the_answer() {
    for header in ["passcode:t.o.k", "Authorization:Bearer t.o.k"] {
        let mut talk = Talk::begin();
        talk.says(&format!("CONNECT\naccept-version:1.2\n{header}\n\n\0"));
        let asked = talk.asked_one();
        assert_eq!((&asked["type"], &asked["token"]), (&json!("refresh"), &json!("t.o.k")));
        assert_eq!(talk.written(), []);
        talk.hears(json!({ "type": "refreshed", "reqId": asked["reqId"], "expiresAt": 1 }));
        talk.written_one(Command::Connected);
    }
    let mut talk = Talk::begin();
    talk.says("CONNECT\naccept-version:1.2\npasscode:guest\n\n\0");
    let asked = talk.asked_one();
    talk.hears(json!({ "type": "error", "reqId": asked["reqId"], "code": "TOKEN_EXPIRED", "message": "no", "temporary": false }));
    talk.fails("TOKEN_EXPIRED", CloseCode::Misuse);
}

#[test]
fn a_message_is_receipted_when_it_is_accepted_and_not_before() {
    let mut talk = Talk::open(Version::V12);
    talk.sends("你好", "m1");
    let asked = talk.asked_one();
    for (member, value) in [("type", "text"), ("sessionId", "9001"), ("content", "你好"), ("clientMsgId", "m1")] {
        assert_eq!(asked[member], value);
    }
    assert_eq!(talk.written(), []);
    talk.hears(accepted("m1", 5));
    assert_eq!(talk.written_one(Command::Receipt).header("receipt-id"), Some("m1"));
}

#[test]
fn messages_of_a_session_leave_one_after_another_and_those_of_two_sessions_do_not_wait() {
    let mut talk = Talk::open(Version::V12);
    talk.sends("one", "m1");
    talk.sends("two", "m2");
    talk.says("SEND\ndestination:/app/chat/9002\n\nelsewhere\0");
    let asked: Vec<_> = talk.asked().iter().map(|request| request["content"].clone()).collect();
    assert_eq!(asked, ["one", "elsewhere"]);
    talk.hears(accepted("m1", 5));
    assert_eq!(talk.asked_one()["content"], "two");
}

#[test]
fn bodies_are_text_or_objects() {
    for (headers, body, kind, content, id) in [
        ("", "plain", "text", "plain", None),
        ("", r#"{"type":"image","content":"https://cdn/a.jpg"}"#, "image", "https://cdn/a.jpg", None),
        ("", r#"{"not":"a message"}"#, "text", r#"{"not":"a message"}"#, None),
        ("content-type:text/plain\n", r#"{"type":"text","content":"x"}"#, "text", r#"{"type":"text","content":"x"}"#, None),
        ("content-type:application/json\n", r#"{"type":"order_card","content":"{}","clientMsgId":"k"}"#, "order_card", "{}", Some("k")),
        ("content-type:application/json;charset=UTF-8\n", r#"{"content":"no type"}"#, "text", "no type", None),
        ("content-type:application/json\nclient-msg-id:h\n", r#"{"content":"x","clientMsgId":"k"}"#, "text", "x", Some("h")),
    ] {
        let mut talk = Talk::open(Version::V12);
        talk.says(&format!("SEND\ndestination:/app/chat/9001\n{headers}\n{body}\0"));
        let asked = talk.asked_one();
        assert_eq!((asked["type"].as_str(), asked["content"].as_str()), (Some(kind), Some(content)), "{body}");
        assert_eq!(asked["clientMsgId"], id.unwrap_or("c1-s1"), "{body}");
    }
    for (body, code) in [("{", "BAD_JSON"), ("[]", "BAD_JSON"), ("{}", "BAD_REQUEST"), (r#"{"type":"ack","content":"x"}"#, "UNKNOWN_TYPE")]
    {
        let mut talk = Talk::open(Version::V12);
        talk.says(&format!("SEND\ndestination:/app/chat/9001\ncontent-type:application/json\nreceipt:r\n\n{body}\0"));
        let error = talk.fails(code, CloseCode::Misuse);
        assert_eq!(error.header("receipt-id"), Some("r"));
    }
}

#[test]
fn a_refusal_for_good_ends_the_conversation_and_names_the_frame() {
    let mut talk = Talk::open(Version::V12);
    talk.sends("x", "m1");
    let asked = talk.asked_one();
    talk.hears(refused(&asked, "NOT_FOUND", false));
    let error = talk.fails("NOT_FOUND", CloseCode::Misuse);
    assert_eq!((error.header("receipt-id"), error.header("content-type")), (Some("m1"), Some("application/json")));
    assert!(error.body.contains("\"code\":\"NOT_FOUND\""));
    talk.sends("y", "m2");
    talk.hears(message(3));
    assert_eq!((talk.asked(), talk.written()), (vec![], vec![]), "nothing follows");
}

#[test]
fn a_refusal_that_may_pass_is_tried_again_before_any_later_message() {
    let mut talk = Talk::open(Version::V12);
    talk.sends("one", "m1");
    talk.sends("two", "m2");
    let first = talk.asked_one();
    talk.hears(json!({ "type": "error", "reqId": first["reqId"], "code": "RATE_LIMITED", "message": "", "temporary": true,
        "retryAfterMs": 800, "sessionId": "9001", "clientMsgId": "m1" }));
    assert_eq!((talk.asked(), talk.written()), (vec![], vec![]));
    talk.passes(Duration::from_millis(799));
    assert_eq!(talk.asked(), [] as [Value; 0]);
    assert_eq!(talk.stomp.poll_timeout(), Some(talk.now.plus(Duration::from_millis(1))));
    talk.passes(Duration::from_millis(1));
    assert_eq!(talk.asked_one(), first, "the same frame");
    talk.hears(accepted("m1", 1));
    assert_eq!(talk.asked_one()["content"], "two");
}

#[test]
fn what_is_refused_again_and_again_is_given_up() {
    let mut talk = Talk::open(Version::V12);
    talk.sends("one", "m1");
    let start = talk.now;
    for _ in 0..8 {
        let asked = talk.asked_one();
        talk.hears(refused(&asked, "NOT_DURABLE", true));
        if let Some(at) = talk.stomp.poll_timeout() {
            talk.passes(at.since(talk.now));
        }
    }
    talk.fails("NOT_DURABLE", CloseCode::InternalError);
    assert!(talk.now.since(start) <= Duration::from_secs(30));

    let mut talk = Talk::open(Version::V12);
    talk.sends("one", "m1");
    let asked = talk.asked_one();
    let mut error = refused(&asked, "RATE_LIMITED", true);
    error["retryAfterMs"] = json!(31_000);
    talk.hears(error);
    talk.fails("RATE_LIMITED", CloseCode::InternalError);
}

#[test]
fn an_answer_that_never_comes_ends_the_conversation() {
    let mut talk = Talk::open(Version::V12);
    talk.sends("one", "m1");
    talk.asked_one();
    assert_eq!(talk.stomp.poll_timeout(), Some(talk.now.plus(Duration::from_secs(30))));
    talk.passes(Duration::from_secs(30));
    let error = talk.fails("INTERNAL", CloseCode::InternalError);
    assert_eq!(error.header("receipt-id"), Some("m1"));
}

#[test]
fn a_message_sent_twice_while_under_way_is_one() {
    let mut talk = Talk::open(Version::V12);
    talk.sends("x", "m1");
    talk.says("SEND\ndestination:/app/chat/9001\nclient-msg-id:m1\nreceipt:again\n\nx\0");
    talk.asked_one();
    talk.hears(accepted("m1", 5));
    let receipts: Vec<_> = talk.written().iter().filter_map(|frame| frame.header("receipt-id").map(str::to_owned)).collect();
    assert_eq!(receipts, ["m1", "again"]);

    talk.sends("x", "m2");
    talk.says("SEND\ndestination:/app/chat/9001\nclient-msg-id:m2\n\nother\0");
    talk.fails("CLIENT_MSG_ID_CONFLICT", CloseCode::Misuse);
}

#[test]
fn a_subscription_shows_messages_with_their_place() {
    let mut talk = Talk::open(Version::V12);
    talk.listens("s1", "ack:client\n", 4);
    talk.hears(message(5));
    let shown = talk.written_one(Command::Message);
    for (name, value) in [
        ("destination", "/topic/chat/9001"),
        ("message-id", "9001-5"),
        ("subscription", "s1"),
        ("ack", "9001-5"),
        ("seq", "5"),
        ("epoch", "1"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(shown.header(name), Some(value), "{name}");
    }
    assert_eq!(serde_json::from_str::<Value>(&shown.body).unwrap(), message(5));
    talk.says("UNSUBSCRIBE\nid:s1\nreceipt:u\n\n\0");
    talk.written_one(Command::Receipt);
    talk.hears(message(6));
    assert_eq!(talk.written(), []);
}

#[test]
fn a_sender_sees_its_own_message_where_everybody_does() {
    let mut talk = Talk::open(Version::V12);
    talk.listens("s1", "", 4);
    talk.sends("你好", "m1");
    talk.asked_one();
    talk.hears(accepted("m1", 5));
    let frames = talk.written();
    assert_eq!(frames.iter().map(|frame| frame.command).collect::<Vec<_>>(), [Command::Message, Command::Receipt]);
    let shown: Value = serde_json::from_str(&frames[0].body).unwrap();
    assert_eq!(
        shown,
        json!({ "id": "9001-5", "type": "text", "sessionId": "9001", "seq": 5, "epoch": "1", "content": "你好",
            "sender": { "kind": "user", "id": "88" }, "clientMsgId": "m1", "time": 7 })
    );
}

#[test]
fn an_own_message_that_comes_as_a_push_is_receipted() {
    let mut talk = Talk::open(Version::V12);
    talk.sends("x", "m1");
    talk.asked_one();
    let mut push = message(5);
    push["sender"] = json!({ "kind": "user", "id": "88" });
    push["clientMsgId"] = json!("m1");
    talk.hears(push);
    assert_eq!(talk.written_one(Command::Receipt).header("receipt-id"), Some("m1"));
}

#[test]
fn a_subscription_of_a_strange_session_is_refused() {
    let mut talk = Talk::open(Version::V12);
    talk.says("SUBSCRIBE\nid:s\ndestination:/topic/chat/9001\nreceipt:r\n\n\0");
    let asked = talk.asked_one();
    assert_eq!((&asked["type"], &asked["limit"]), (&json!("history"), &json!(1)));
    talk.hears(
        json!({ "type": "error", "reqId": asked["reqId"], "code": "NOT_FOUND", "message": "", "temporary": false, "sessionId": "9001" }),
    );
    let error = talk.fails("NOT_FOUND", CloseCode::Misuse);
    assert_eq!(error.header("receipt-id"), Some("r"));
}

#[test]
fn a_subscription_goes_on_where_the_client_was() {
    let mut talk = Talk::open(Version::V12);
    talk.says("SUBSCRIBE\nid:s\ndestination:/topic/chat/9001\nlast-seq:2\nepoch:1\nreceipt:r\n\n\0");
    let asked = talk.asked_one();
    assert_eq!(asked["positions"], json!([{ "sessionId": "9001", "lastSeq": 2, "epoch": "1" }]));
    // Live messages that arrive before the replay come with it.
    talk.hears(message(5));
    assert_eq!(talk.seqs(), [] as [u64; 0]);
    for seq in 3..=5 {
        talk.hears(message(seq));
    }
    assert_eq!(talk.seqs(), [3, 4, 5]);
    talk.hears(json!({ "type": "replay_end", "reqId": asked["reqId"], "sessionId": "9001", "lastSeq": 5, "hasMore": false }));
    assert_eq!(talk.written_one(Command::Receipt).header("receipt-id"), Some("r"));
    talk.hears(message(6));
    assert_eq!(talk.seqs(), [6]);
}

#[test]
fn a_position_that_does_not_fit_is_put_right() {
    let mut talk = Talk::open(Version::V12);
    talk.says("SUBSCRIBE\nid:s\ndestination:/topic/chat/9001\nlast-seq:500\nreceipt:r\n\n\0");
    let asked = talk.asked_one();
    talk.hears(json!({ "type": "resync", "reqId": asked["reqId"], "sessionId": "9001", "epoch": "2", "maxSeq": 42, "reason": "ahead" }));
    let frames = talk.written();
    assert_eq!(frames.iter().map(|frame| frame.command).collect::<Vec<_>>(), [Command::Message, Command::Receipt]);
    assert!(frames[0].body.contains("\"resync\"") && frames[0].header("seq").is_none());
    for (seq, epoch) in [(43, "1"), (43, "2")] {
        let mut next = message(seq);
        next["epoch"] = json!(epoch);
        talk.hears(next);
        assert_eq!(talk.written().len(), usize::from(epoch == "2"), "a message of a former epoch is none of this stream");
    }
}

#[test]
fn two_subscriptions_of_a_session_count_each_for_itself() {
    let mut talk = Talk::open(Version::V12);
    talk.listens("live", "", 4);
    talk.says("SUBSCRIBE\nid:old\ndestination:/topic/chat/9001\nlast-seq:2\n\n\0");
    let asked = talk.asked_one();
    for seq in 3..=5 {
        talk.hears(message(seq));
    }
    talk.hears(json!({ "type": "replay_end", "reqId": asked["reqId"], "sessionId": "9001", "lastSeq": 5, "hasMore": false }));
    let frames = talk.written();
    let of = |id: &str| -> Vec<&str> {
        frames.iter().filter(|frame| frame.header("subscription") == Some(id)).filter_map(|frame| frame.header("seq")).collect()
    };
    assert_eq!((of("live"), of("old")), (vec!["5"], vec!["3", "4", "5"]));
}

#[test]
fn replays_of_one_session_come_one_after_another_and_four_run_at_once() {
    let mut talk = Talk::open(Version::V12);
    for (id, session) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5)] {
        talk.says(&format!("SUBSCRIBE\nid:{id}\ndestination:/topic/chat/{session}\nlast-seq:0\n\n\0"));
    }
    let asked = talk.asked();
    let sessions: Vec<_> = asked.iter().map(|request| request["positions"][0]["sessionId"].as_str().unwrap()).collect();
    assert_eq!(sessions, ["1", "2", "3", "4"]);
    assert_eq!(talk.stomp.poll_timeout(), Some(talk.now.plus(Duration::from_secs(30))), "what waits for an answer wakes nobody");
    talk.hears(json!({ "type": "replay_end", "reqId": asked[0]["reqId"], "sessionId": "1", "lastSeq": 0, "hasMore": false }));
    assert_eq!(talk.asked_one()["positions"][0]["sessionId"], "1");
}

#[test]
fn an_acknowledgement_is_cumulative() {
    for (version, ack) in [
        (Version::V12, "ACK\nid:9001-7\nreceipt:a\n\n\0"),
        (Version::V11, "ACK\nmessage-id:9001-7\nsubscription:s\nreceipt:a\n\n\0"),
        (Version::V10, "ACK\nmessage-id:9001-7\nreceipt:a\n\n\0"),
    ] {
        let mut talk = Talk::open(version);
        talk.listens("s", "ack:client\n", 4);
        talk.says(ack);
        let asked = talk.asked_one();
        assert_eq!((&asked["type"], &asked["lastSeq"]), (&json!("ack"), &json!(7)));
        assert_eq!(talk.written_one(Command::Receipt).header("receipt-id"), Some("a"));
    }
}

#[test]
fn single_acknowledgements_move_over_runs_without_a_gap() {
    let mut talk = Talk::open(Version::V12);
    talk.listens("s", "ack:client-individual\n", 4);
    for (seq, moved) in [(6, None), (8, None), (5, Some(6)), (5, None), (7, Some(8)), (3, None), (9, Some(9))] {
        talk.says(&format!("ACK\nid:9001-{seq}\n\n\0"));
        let asked: Vec<_> = talk.asked().iter().map(|request| request["lastSeq"].as_u64()).collect();
        assert_eq!(asked, moved.map(Some).into_iter().collect::<Vec<_>>(), "after {seq}");
    }
}

#[test]
fn what_a_client_does_not_listen_to_it_cannot_acknowledge() {
    for id in ["9001-5", "9002-1", "nonsense", "9001-x", "-1-1"] {
        let mut talk = Talk::open(Version::V12);
        talk.says(&format!("ACK\nid:{id}\n\n\0"));
        talk.fails("NOT_FOUND", CloseCode::Misuse);
        assert_eq!(talk.asked(), [] as [Value; 0]);
    }
    let mut talk = Talk::open(Version::V12);
    talk.listens("s", "ack:client\n", 4);
    talk.says("ACK\nid:9001-50\n\n\0");
    let asked = talk.asked_one();
    talk.hears(json!({ "type": "error", "reqId": asked["reqId"], "code": "ACK_OUT_OF_RANGE", "message": "", "temporary": false }));
    talk.fails("ACK_OUT_OF_RANGE", CloseCode::Misuse);
}

#[test]
fn a_message_that_is_not_taken_moves_nothing() {
    let mut talk = Talk::open(Version::V12);
    talk.listens("s", "ack:client\n", 4);
    talk.says("NACK\nid:9001-5\nreceipt:n\n\n\0");
    assert_eq!(talk.asked(), [] as [Value; 0]);
    assert_eq!(talk.stomp.poll_nacked(), Some(Nacked { session: SessionId(9001), seq: 5 }));
    talk.written_one(Command::Receipt);
    let mut talk = Talk::open(Version::V10);
    talk.says("NACK\nmessage-id:9001-5\n\n\0");
    talk.fails("no such command", CloseCode::Misuse);
}

#[test]
fn everything_else_goes_to_the_clients_own_queue() {
    let mut talk = Talk::open(Version::V12);
    talk.says("SUBSCRIBE\nid:me\ndestination:/user/queue/notify\nlast-seq:3\nreceipt:r\n\n\0");
    let asked = talk.asked_one();
    assert_eq!(asked["positions"], json!([{ "sessionId": "@me", "lastSeq": 3 }]));
    let notices = [
        json!({ "type": "seckill_result", "orderNo": "SKABCDEFGHIJ234567", "status": "success", "nseq": 4 }),
        json!({ "type": "assigned", "sessionId": "9001", "agentId": "7" }),
        json!({ "type": "presence", "who": "agent:7", "state": "online" }),
        json!({ "type": "read", "sessionId": "9001", "by": "agent:7", "lastSeq": 4, "unread": 0 }),
        json!({ "type": "closed", "sessionId": "9001" }),
        json!({ "type": "error", "code": "RESUME_AMBIGUOUS", "message": "", "temporary": false }),
        json!({ "type": "migrate", "afterMs": 5 }),
    ];
    for notice in &notices {
        talk.hears(notice.clone());
    }
    let shown: Vec<Value> = talk.written().iter().map(|frame| serde_json::from_str(&frame.body).unwrap()).collect();
    assert_eq!(shown, notices);
    talk.hears(json!({ "type": "replay_end", "reqId": asked["reqId"], "sessionId": "@me", "lastSeq": 4, "hasMore": false }));
    talk.written_one(Command::Receipt);
}

#[test]
fn a_session_is_opened_and_told_on_a_queue() {
    let mut talk = Talk::open(Version::V12);
    talk.says("SUBSCRIBE\nid:o\ndestination:/user/queue/opened\n\n\0");
    talk.says("SEND\ndestination:/app/open\nreceipt:r\n\n{\"subject\":\"returns\"}\0");
    let asked = talk.asked_one();
    assert_eq!((&asked["type"], &asked["subject"]), (&json!("open"), &json!("returns")));
    talk.hears(json!({ "type": "opened", "reqId": asked["reqId"], "sessionId": "9001", "epoch": "1", "maxSeq": 0 }));
    let frames = talk.written();
    assert_eq!(frames.iter().map(|frame| frame.command).collect::<Vec<_>>(), [Command::Message, Command::Receipt]);
    assert_eq!(frames[0].header("destination"), Some("/user/queue/opened"));
}

#[test]
fn transactions_are_not_supported() {
    for text in [
        "BEGIN\ntransaction:t\n\n\0",
        "COMMIT\ntransaction:t\n\n\0",
        "ABORT\ntransaction:t\n\n\0",
        "SEND\ndestination:/app/chat/1\ntransaction:t\n\nx\0",
    ] {
        let mut talk = Talk::open(Version::V12);
        talk.says(text);
        talk.fails("transactions unsupported", CloseCode::Misuse);
        assert_eq!(talk.asked(), [] as [Value; 0]);
    }
}

#[test]
fn what_makes_no_sense_ends_the_conversation() {
    for (text, message) in [
        ("CONNECT\n\n\0", "already connected"),
        ("MESSAGE\n\n\0", "a frame that only servers send"),
        ("SEND\n\nx\0", "SEND without a destination"),
        ("SEND\ndestination:/topic/chat/1\n\nx\0", "no such destination"),
        ("SEND\ndestination:/app/chat/01\n\nx\0", "no such destination"),
        ("SUBSCRIBE\nid:1\n\n\0", "SUBSCRIBE without a destination"),
        ("SUBSCRIBE\ndestination:/topic/chat/1\n\n\0", "SUBSCRIBE without an id"),
        ("SUBSCRIBE\nid:1\ndestination:/topic/other\n\n\0", "no such destination"),
        ("SUBSCRIBE\nid:1\ndestination:/topic/chat/1\nack:maybe\n\n\0", "ack is auto, client or client-individual"),
        ("SUBSCRIBE\nid:1\ndestination:/topic/chat/1\nlast-seq:x\n\n\0", "last-seq is no number"),
        ("UNSUBSCRIBE\n\n\0", "UNSUBSCRIBE without an id"),
        ("ACK\n\n\0", "the header id is missing"),
        ("SEND\ndestination:/app/chat/1\na:\\t\n\n\0", "a header holds an undefined escape"),
        ("nonsense\n", "no such command"),
    ] {
        let mut talk = Talk::open(Version::V12);
        talk.says(text);
        talk.fails(message, CloseCode::Misuse);
    }
    let mut talk = Talk::open(Version::V12);
    talk.listens("1", "", 4);
    talk.says("SUBSCRIBE\nid:1\ndestination:/topic/chat/2\n\n\0");
    talk.fails("this subscription exists", CloseCode::Misuse);
}

#[test]
fn version_1_0_subscribes_without_an_id() {
    let mut talk = Talk::open(Version::V10);
    talk.says("SUBSCRIBE\ndestination:/user/queue/notify\n\n\0");
    talk.hears(json!({ "type": "presence", "who": "agent:7", "state": "online" }));
    assert_eq!(talk.written_one(Command::Message).header("subscription"), None);
    talk.says("UNSUBSCRIBE\ndestination:/user/queue/notify\n\n\0");
    talk.hears(json!({ "type": "presence", "who": "agent:7", "state": "online" }));
    assert_eq!(talk.written(), []);
}

#[test]
fn goodbye_waits_for_what_is_under_way() {
    let mut talk = Talk::open(Version::V12);
    talk.sends("one", "m1");
    talk.sends("two", "m2");
    talk.says("DISCONNECT\nreceipt:bye\n\n\0");
    talk.asked_one();
    assert_eq!((talk.written(), talk.stomp.closes_with()), (vec![], None));
    talk.hears(accepted("m1", 1));
    talk.asked_one();
    talk.hears(accepted("m2", 2));
    let receipts: Vec<_> = talk.written().iter().filter_map(|frame| frame.header("receipt-id").map(str::to_owned)).collect();
    assert_eq!(receipts, ["m1", "m2", "bye"]);
    assert_eq!(talk.stomp.closes_with(), Some(CloseCode::Normal));
    assert_eq!(talk.stomp.poll_timeout(), None);
}

#[test]
fn heart_beats_go_both_ways() {
    let mut talk = Talk::begin();
    talk.says("CONNECT\naccept-version:1.2\nheart-beat:4000,20000\n\n\0");
    talk.written_one(Command::Connected);
    let start = talk.now;
    // The client promised every 4 s and this side wants every 10 s; the client wants every 20 s and gets them earlier.
    assert_eq!(talk.stomp.poll_timeout(), Some(start.plus(Duration::from_secs(16))));
    talk.passes(Duration::from_secs(16));
    assert_eq!(talk.stomp.poll_write().unwrap().as_str(), "\n");
    talk.says("\n");
    talk.passes(Duration::from_millis(19_999));
    assert_eq!(talk.stomp.closes_with(), None);
    talk.passes(Duration::from_millis(1));
    assert_eq!(talk.stomp.closes_with(), Some(CloseCode::NoHeartbeat));

    for header in ["1000", "a,b", "-1,0", "1,2,3", "99999999999,0"] {
        let mut talk = Talk::begin();
        talk.says(&format!("CONNECT\naccept-version:1.2\nheart-beat:{header}\n\n\0"));
        talk.fails("heart-beat is no pair of milliseconds", CloseCode::Misuse);
    }
}

#[test]
fn a_flood_is_read_as_fast_as_it_is_answered() {
    let mut talk = Talk::open(Version::V12);
    let flood: String = (0..2_000).map(|number| format!("SEND\ndestination:/app/chat/9001\nclient-msg-id:m{number}\n\nx\0")).collect();
    talk.says(&flood);
    assert!(talk.stomp.is_full());
    let mut asked = 0;
    while let Some(request) = talk.stomp.poll_request() {
        let request: Value = serde_json::from_str(&request).unwrap();
        assert_eq!(request["clientMsgId"], format!("m{asked}"));
        asked += 1;
        talk.hears(accepted(&format!("m{}", asked - 1), asked));
    }
    assert_eq!(asked, 2_000);
    assert!(!talk.stomp.is_full());
}
