//! Frames: what is read, what is refused and how, and that the protocol page shows what the code does.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::chat::code::ErrorCode;
use crate::chat::sla::Clock;
use crate::chat::{AgentState, Clocks, MessageRecord, Position, RECALLED, SessionRecord, Side};
use crate::id::{ClientMsgId, DeviceId, OrderNo, PrincipalId, SessionId, ShopId};
use crate::time::UnixMillis;

/// The key of the page's signed frame: 0, 1, 2 … 31.
const FRAME_KEY: [u8; 32] = {
    let mut key = [0; 32];
    let mut at = 0;
    while at < key.len() {
        key[at] = at as u8;
        at += 1;
    }
    key
};

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/PROTOCOL.md"));

fn parse(text: &str) -> Result<ClientBody, String> {
    ClientFrame::parse(text, &FrameLimits::default()).map(|frame| frame.body).map_err(|fault| fault.0.code.into_owned())
}

fn refused(text: &str) -> String {
    parse(text).expect_err(text)
}

/// Lines of the fenced blocks of `kind` on the protocol page.
fn examples(kind: &str) -> Vec<&'static str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in PAGE.lines() {
        if line.starts_with("```") {
            inside = line == format!("```json {kind}");
        } else if inside {
            lines.push(line);
        }
    }
    lines
}

#[test]
fn every_client_example_of_the_protocol_page_is_read() {
    let examples = examples("client");
    assert!(examples.len() >= 22);
    for example in examples {
        parse(example).unwrap_or_else(|code| panic!("{code}: {example}"));
    }
}

#[test]
fn every_server_example_of_the_protocol_page_is_what_the_code_writes() {
    let record = session();
    let message = message();
    let (o1, r1, seven) = (ReqId::Text("o1".into()), ReqId::Text("r1".into()), ReqId::Number(7));
    let [c1, t1, s1] = ["c1", "t1", "s1"].map(|text| ReqId::Text(text.into()));
    let device = DeviceId::parse("desk-1").unwrap();
    let recall_id = ClientMsgId::parse("01J9Z7").unwrap();
    let recall = MessageRecord { seq: 46, kind: RECALLED.into(), content: "40".into(), client_msg_id: recall_id, ..self::message() };
    let gone = MessageRecord { seq: 40, content: String::new(), recalled: true, ..self::message() };
    let agent = PrincipalId::parse("7").unwrap();
    let by = (Side::Agent, &agent);
    let order_no = OrderNo::parse("SKABCDEFGHIJ234567").unwrap();
    let error = ErrorFrame {
        req_id: Some(seven.clone()),
        retry_after: Some(Duration::from_millis(500)),
        session_id: Some(record.id),
        client_msg_id: Some(message.client_msg_id.clone()),
        ..ErrorFrame::of(ErrorCode::NotDurable)
    };
    let written = [
        ServerFrame::Hello {
            conn_id: "c1",
            heartbeat: Duration::from_secs(10),
            now: UnixMillis(1_780_300_000_000),
            bytes_max: 65_536,
            page_max: 200,
            reconnect_within: Duration::from_secs(1),
            device: None,
            state: None,
            frame_key: None,
            sessions: vec![SessionEntry::of(&record, Side::User)],
        },
        ServerFrame::Hello {
            conn_id: "c2",
            heartbeat: Duration::from_secs(10),
            now: UnixMillis(1_780_300_000_000),
            bytes_max: 65_536,
            page_max: 200,
            reconnect_within: Duration::from_secs(1),
            device: Some(&device),
            state: Some(AgentState::Online),
            frame_key: Some(&FRAME_KEY),
            sessions: Vec::new(),
        },
        ServerFrame::Accepted { message: &message, dup: false },
        ServerFrame::Message(&message),
        ServerFrame::Message(&recall),
        ServerFrame::Message(&gone),
        ServerFrame::Opened { req_id: Some(&o1), record: &record, max_seq: 44 },
        ServerFrame::History { req_id: Some(&seven), session: record.id, messages: std::slice::from_ref(&message), has_more: true },
        ServerFrame::ReplayEnd { req_id: None, session: record.id, last_seq: 44 },
        ServerFrame::Resync { req_id: None, session: record.id, epoch: 2, max_seq: 40, reason: "epoch" },
        ServerFrame::NoticesEnd { req_id: None, last_seq: 12 },
        ServerFrame::NoticesResync { req_id: None, max_seq: 0, reason: "ahead" },
        ServerFrame::Read { session: record.id, by, last_seq: 42, unread: 0 },
        ServerFrame::Delivered { session: record.id, by, last_seq: 45 },
        ServerFrame::Presence { who: by, state: AgentState::Online },
        ServerFrame::Typing { session: record.id, by },
        ServerFrame::Assigned { record: &record, side: Side::User, reason: "least_unread" },
        ServerFrame::SeckillResult { order_no: &order_no, success: true, message: "", nseq: Some(12) },
        ServerFrame::SeckillResult { order_no: &order_no, success: false, message: "sold out", nseq: None },
        ServerFrame::Closed { req_id: None, session: record.id, by: Some((Side::User, &record.user)) },
        ServerFrame::Closed { req_id: Some(&c1), session: record.id, by: None },
        ServerFrame::Transferred { req_id: Some(&t1), session: record.id, to: Some(&agent) },
        ServerFrame::Transferred { req_id: None, session: record.id, to: None },
        ServerFrame::Status { req_id: Some(&s1), state: AgentState::Online },
        ServerFrame::Waiting { count: 3 },
        ServerFrame::Overdue { session: record.id, clock: Clock::FirstResponse, shows: Duration::from_secs(61) },
        ServerFrame::Migrate { after: Duration::from_millis(3_200) },
        ServerFrame::TokenExpiring { left: Duration::from_secs(60) },
        ServerFrame::Refreshed { req_id: Some(&r1), expires_at: UnixMillis(1_780_303_600_000) },
        ServerFrame::Pong { req_id: None },
        ServerFrame::Error(&error),
    ];
    let written: Vec<_> = written.iter().map(ServerFrame::encode).collect();
    assert_eq!(written, examples("server"));
}

fn session() -> SessionRecord {
    SessionRecord {
        id: SessionId(9001),
        no: "CS20260601001".into(),
        shop: ShopId(1),
        user: PrincipalId::parse("88").unwrap(),
        agent: Some(PrincipalId::parse("7").unwrap()),
        subject: "returns".into(),
        open: true,
        top: Position { epoch: 1, seq: 44 },
        user_seq: 42,
        agent_seq: 40,
        user_received: 44,
        agent_received: 43,
        user_unread: 2,
        agent_unread: 3,
        clocks: Clocks { opened_at: UnixMillis(1_780_299_000_000), ..Clocks::default() },
    }
}

fn message() -> MessageRecord {
    MessageRecord {
        session: SessionId(9001),
        epoch: 1,
        seq: 45,
        side: Side::User,
        sender: PrincipalId::parse("88").unwrap(),
        client_msg_id: ClientMsgId::parse("01J9Z3").unwrap(),
        kind: "text".into(),
        content: "你好".into(),
        recalled: false,
        bot: false,
        at: UnixMillis(1_780_300_000_100),
    }
}

#[test]
fn a_bot_is_named_as_one() {
    let text = message_frame(&MessageRecord { bot: true, ..message() });
    assert!(text.contains(r#""sender":{"kind":"user","id":"88","bot":true}"#), "{text}");
}

#[test]
fn an_entry_is_seen_from_one_side() {
    let record = session();
    let seen = |side| serde_json::to_value(SessionEntry::of(&record, side)).unwrap();
    assert_eq!((&seen(Side::User)["yourSeq"], &seen(Side::User)["unread"]), (&json!(42), &json!(2)));
    assert_eq!((&seen(Side::Agent)["yourSeq"], &seen(Side::Agent)["unread"]), (&json!(40), &json!(3)));
}

#[test]
fn a_seq_is_an_integer_below_two_to_the_fifty_third() {
    for bad in ["9007199254740992", "-1", "1.5", "42.0", "1e2", "\"42\"", "null", "true", "[]", "18446744073709551616"] {
        for kind in ["ack", "recv"] {
            assert_eq!(refused(&format!(r#"{{"type":"{kind}","sessionId":"1","lastSeq":{bad}}}"#)), "BAD_REQUEST", "{bad}");
        }
        let resume = format!(r#"{{"type":"resume","positions":[{{"sessionId":"1","lastSeq":{bad}}}]}}"#);
        assert_eq!(refused(&resume), "BAD_REQUEST", "{bad}");
        assert_eq!(refused(&format!(r#"{{"type":"history","sessionId":"1","beforeSeq":{bad}}}"#)), "BAD_REQUEST", "{bad}");
    }
    assert_eq!(refused(r#"{"type":"ack","sessionId":"1"}"#), "BAD_REQUEST");
    assert_eq!(
        parse(r#"{"type":"ack","sessionId":"1","lastSeq":9007199254740991}"#),
        Ok(ClientBody::Ack { session: SessionId(1), seq: SEQ_END - 1 })
    );
}

#[test]
fn ids_are_integers_or_decimal_strings() {
    for good in ["9001", "\"9001\""] {
        let text = format!(r#"{{"type":"typing","sessionId":{good}}}"#);
        assert_eq!(parse(&text), Ok(ClientBody::Typing { session: SessionId(9001) }));
    }
    for bad in ["9001.0", "-1", "\"-1\"", "\"09\"", "\" 9\"", "\"\"", "\"@me\"", "null", "{}", "\"18446744073709551616\""] {
        assert_eq!(refused(&format!(r#"{{"type":"typing","sessionId":{bad}}}"#)), "BAD_REQUEST", "{bad}");
    }
}

#[test]
fn content_without_anything_visible_is_empty() {
    for content in ["", "   ", "\u{200b}", "\u{feff}", "\u{2060}", " \u{200b}\u{feff}\u{2060}\t\n\u{3000}", "\u{200d}\u{200e}\u{ad}"] {
        let text = json!({"type": "text", "sessionId": "1", "content": content, "clientMsgId": "m1"}).to_string();
        let fault = ClientFrame::parse(&text, &FrameLimits::default()).unwrap_err();
        assert_eq!(fault.0.code, "EMPTY_CONTENT", "{content:?}");
        assert_eq!(fault.0.client_msg_id, Some(ClientMsgId::parse("m1").unwrap()));
    }
}

#[test]
fn content_is_kept_as_it_came() {
    for content in [" a ", "a\u{200b}b", "😂", "𝐏", "👨\u{200d}👩\u{200d}👧\u{200d}👦", "🇨🇳", "\u{feff}x", "a\r\nb\u{0}", "e\u{301}"]
    {
        let text = json!({"type": "text", "sessionId": "1", "content": content}).to_string();
        match parse(&text) {
            Ok(ClientBody::Message { content: kept, .. }) => assert_eq!(kept, content),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_not_one_object_is_bad_json() {
    for bad in ["", "x", "[]", "1", "null", "{", "{}{}", "{\"type\":\"ping\"}\n{\"type\":\"ping\"}", "{\"a\":\"\\ud800\"}", "\u{feff}{}"] {
        assert_eq!(refused(bad), "BAD_JSON", "{bad}");
    }
    assert_eq!(refused(&"[".repeat(60_000)), "BAD_JSON");
}

#[test]
fn unknown_members_are_ignored_and_unknown_types_are_named() {
    assert_eq!(parse(r#"{"type":"ping","x":{"y":[1]}}"#), Ok(ClientBody::Ping));
    for bad in ["", "TEXT", "hello", "accepted"] {
        assert_eq!(refused(&format!(r#"{{"type":"{bad}"}}"#)), "UNKNOWN_TYPE");
    }
    for bad in ["{}", r#"{"type":1}"#, r#"{"type":null}"#] {
        assert_eq!(refused(bad), "BAD_REQUEST");
    }
}

#[test]
fn a_refusal_names_the_request() {
    let fault = ClientFrame::parse(r#"{"type":"ack","reqId":"r9","sessionId":"1"}"#, &FrameLimits::default()).unwrap_err();
    assert_eq!(fault.0.req_id, Some(ReqId::Text("r9".into())));
    assert_eq!(refused(&format!(r#"{{"type":"ping","reqId":"{}"}}"#, "x".repeat(65))), "BAD_REQUEST");
    assert_eq!(refused(r#"{"type":"ping","reqId":1.5}"#), "BAD_REQUEST");
}

#[test]
fn sizes_have_bounds() {
    let positions = |n: usize| json!({"type": "resume", "positions": vec![json!({"sessionId": "1", "lastSeq": 0}); n]}).to_string();
    assert!(parse(&positions(100)).is_ok());
    assert_eq!(refused(&positions(101)), "BAD_REQUEST");
    for limit in ["0", "201", "-1", "1.5", "\"50\"", "null"] {
        assert_eq!(refused(&format!(r#"{{"type":"history","sessionId":"1","limit":{limit}}}"#)), "BAD_REQUEST", "{limit}");
    }
    let long = |n: usize| format!(r#"{{"type":"ping","x":"{}"}}"#, "x".repeat(n - 22));
    assert_eq!(long(65_536).len(), 65_536);
    assert!(parse(&long(65_536)).is_ok());
    assert_eq!(refused(&long(65_537)), "TOO_LARGE");
    assert_eq!(refused(&json!({"type": "open", "subject": "退".repeat(129)}).to_string()), "BAD_REQUEST");
    for bad in ["", "a b", "é", &"x".repeat(65)] {
        let text = json!({"type": "text", "sessionId": "1", "content": "a", "clientMsgId": bad}).to_string();
        assert_eq!(refused(&text), "BAD_REQUEST", "{bad:?}");
    }
}

#[test]
fn an_epoch_we_never_issued_is_foreign_and_no_error() {
    let claim = |epoch: &str| {
        let text = format!(r#"{{"type":"resume","positions":[{{"sessionId":"1","epoch":{epoch},"lastSeq":1}}]}}"#);
        match parse(&text) {
            Ok(ClientBody::Resume { positions, .. }) => positions[0].epoch,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(claim("\"7\""), EpochClaim::Is(7));
    assert_eq!(claim("7"), EpochClaim::Is(7));
    assert_eq!(claim("null"), EpochClaim::Absent);
    for foreign in ["\"a1\"", "\"\"", "\"4294967296\"", "-1", "1.5"] {
        assert_eq!(claim(foreign), EpochClaim::Foreign);
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn any_visible_content_survives(content in "\\PC*[a-z]\\PC*") {
        let text = json!({"type": "text", "sessionId": "1", "content": content}).to_string();
        match parse(&text) {
            Ok(ClientBody::Message { content: kept, .. }) => prop_assert_eq!(kept, content),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn what_is_pushed_reads_back_byte_identical(content in any::<String>()) {
        let pushed: Value = serde_json::from_str(&message_frame(&MessageRecord { content: content.clone(), ..message() })).unwrap();
        prop_assert_eq!(pushed["content"].as_str(), Some(content.as_str()));
    }
}
