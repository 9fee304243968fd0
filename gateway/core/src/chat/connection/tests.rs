//! Rules of a connection, one at a time, against answers given by hand. The rooms beside this file have their own; this one
//! has delivery, sending, notices and ends.

#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect ends it")]

mod guard;
mod marks;
mod people;

use serde_json::{Value, json};

use super::*;
use crate::chat::event::Event;
use crate::chat::{Clocks, Cursor, Mark, MarkOutcome, MessageRecord, Page, Position, Side};
use crate::id::{ClientMsgId, OrderNo, PrincipalId};

const S: SessionId = SessionId(9001);
const START: UnixMillis = UnixMillis(1_000_000);
/// The token of the rig ends an hour after [`START`].
const TOKEN_ENDS: UnixMillis = UnixMillis(4_600_000);

struct Rig {
    connection: Connection,
    now: UnixMillis,
}

fn id(text: &str) -> PrincipalId {
    PrincipalId::parse(text).unwrap()
}

fn principal(name: &str, expires_at: UnixMillis) -> Principal {
    Principal { id: id(name), role: Role::User, shop: None, scopes: Vec::new(), expires_at, token_id: None }
}

fn record(session: SessionId, seq: u64) -> SessionRecord {
    SessionRecord {
        id: session,
        no: "CS1".into(),
        shop: ShopId(1),
        user: id("alice"),
        agent: Some(id("a1")),
        subject: String::new(),
        open: true,
        top: Position { epoch: 1, seq },
        user_seq: 0,
        agent_seq: 0,
        user_received: 0,
        agent_received: 0,
        user_unread: 0,
        agent_unread: 0,
        clocks: Clocks::default(),
    }
}

fn row(session: SessionId, seq: u64, sender: &str, client_msg_id: &str) -> MessageRecord {
    MessageRecord {
        session,
        epoch: 1,
        seq,
        side: if sender == "alice" { Side::User } else { Side::Agent },
        sender: id(sender),
        client_msg_id: ClientMsgId::parse(client_msg_id).unwrap(),
        kind: "text".into(),
        content: format!("content of {client_msg_id}"),
        recalled: false,
        bot: false,
        at: START,
    }
}

/// The agent's messages with these numbers.
fn rows(seqs: std::ops::RangeInclusive<u64>) -> Vec<MessageRecord> {
    seqs.map(|seq| row(S, seq, "a1", &format!("a{seq}"))).collect()
}

fn stored(message: MessageRecord, dup: bool, origin: &str) -> Event {
    Event::Stored { message, dup, origin: origin.into(), shop: ShopId(1), user: id("alice"), agent: Some(id("a1")) }
}

fn live(seq: u64) -> Event {
    stored(row(S, seq, "a1", &format!("a{seq}")), false, "other")
}

/// Alice's connection.
fn start(sessions: Vec<SessionRecord>) -> Start {
    Start {
        party: Party::user(id("alice")),
        principal: principal("alice", TOKEN_ENDS),
        conn_id: ConnId::parse("c1").unwrap(),
        sessions,
        resume: None,
        notices: None,
        device: None,
        frame_key: None,
        state: None,
        batch: false,
    }
}

/// The connection of agent `a1` of shop 1.
fn agent(sessions: Vec<SessionRecord>) -> Start {
    Start {
        party: Party::agent(ShopId(1), id("a1")),
        principal: Principal { role: Role::Agent, shop: Some(ShopId(1)), ..principal("a1", TOKEN_ENDS) },
        state: Some(AgentState::Online),
        ..start(sessions)
    }
}

impl Rig {
    /// Starts, with `hello` read.
    fn of(start: Start, limits: ConnectionLimits) -> Self {
        let mut rig = Self { connection: Connection::new(start, limits, START), now: START };
        assert_eq!(rig.frames()[0]["type"], "hello");
        rig
    }

    fn start(sessions: Vec<SessionRecord>, resume: Option<(Option<SessionId>, u64)>, limits: ConnectionLimits) -> Self {
        let start = Start { resume, ..start(sessions) };
        Self { connection: Connection::new(start, limits, START), now: START }
    }

    /// One session whose highest seq is `top`, with `hello` read.
    fn at(top: u64) -> Self {
        let mut rig = Self::start(vec![record(S, top)], None, ConnectionLimits::default());
        assert_eq!(rig.frames()[0]["type"], "hello");
        rig
    }

    fn drain(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.connection.poll_output()).collect()
    }

    /// Drains; all must be frames.
    fn frames(&mut self) -> Vec<Value> {
        self.drain().iter().map(frame).collect()
    }

    /// Drains; short forms of frames, requests in debug form.
    fn short(&mut self) -> Vec<String> {
        self.drain().iter().map(short).collect()
    }

    fn text(&mut self, frame: &Value) {
        self.connection.handle_text(&frame.to_string(), self.now);
    }

    fn event(&mut self, event: Event) {
        self.connection.handle_event(&Heard::new(event), self.now);
    }

    fn page(&mut self, after: u64, rows: Vec<MessageRecord>) {
        self.connection.handle_page(S, Page::After { seq: after, limit: 200 }, Ok(rows), self.now);
    }

    fn tops(&mut self, epoch: u32, seq: u64) {
        self.connection.handle_tops(Ok(vec![(S, Position { epoch, seq })]), self.now);
    }

    fn resume(&mut self, epoch: &str, last_seq: u64) {
        self.text(&json!({"type": "resume", "reqId": "r", "positions": [{"sessionId": S.0, "epoch": epoch, "lastSeq": last_seq}]}));
    }

    fn send(&mut self, client_msg_id: &str) {
        self.send_to(S, client_msg_id);
    }

    fn send_to(&mut self, session: SessionId, client_msg_id: &str) {
        let content = format!("content of {client_msg_id}");
        self.text(&json!({"type": "text", "sessionId": session.0, "content": content, "clientMsgId": client_msg_id}));
    }

    fn outcome(&mut self, client_msg_id: &str, outcome: SendOutcome) {
        self.connection.handle_send_outcome(&ClientMsgId::parse(client_msg_id).unwrap(), outcome, self.now);
    }

    fn marked(&mut self, seq: u64, outcome: MarkOutcome) {
        self.marked_on(None, Cursor::Read, seq, outcome);
    }

    fn marked_on(&mut self, device: Option<&str>, cursor: Cursor, seq: u64, outcome: MarkOutcome) {
        let reader = self.connection.party().clone();
        let mark = Mark { session: S, reader, device: device.map(|name| DeviceId::parse(name).unwrap()), cursor, seq };
        self.connection.handle_mark(&mark, Ok(outcome), self.now);
    }

    fn later(&mut self, millis: u64) {
        self.now = UnixMillis(self.now.0 + millis);
    }
}

fn frame(output: &Output) -> Value {
    match output {
        Output::Write(text) => serde_json::from_str(text.as_str()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn short(output: &Output) -> String {
    match output {
        Output::Write(text) => {
            let value: Value = serde_json::from_str(text.as_str()).unwrap();
            let field = |name: &str| match &value[name] {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            let words = ["type", "code", "clientMsgId", "epoch", "seq", "refSeq", "lastSeq", "maxSeq", "reason", "dup"];
            words.iter().filter_map(|word| field(word)).collect::<Vec<_>>().join(" ")
        }
        Output::Enqueue { send, .. } => format!("enqueue {} {}", send.session, send.client_msg_id.as_str()),
        Output::ReadPage { session, page: Page::After { seq, limit } } => format!("page {session} after {seq} limit {limit}"),
        Output::ReadTops(sessions) => format!("tops {}", sessions.len()),
        Output::ReadSession(session) => format!("session {session}"),
        Output::Mark(Mark { cursor: Cursor::Read, seq, .. }) => format!("mark {seq}"),
        Output::Mark(Mark { cursor: Cursor::Received, seq, .. }) => format!("arrived {seq}"),
        Output::UseNonce { nonce, .. } => format!("nonce {nonce}"),
        Output::Publish { to, event: Event::Received { seq, .. } } => format!("publish {} received {seq}", to.subject()),
        Output::Publish { to, event: Event::Read { seq, .. } } => format!("publish {} read {seq}", to.subject()),
        Output::Close(code) => format!("close {}", code.number()),
        other => format!("{other:?}"),
    }
}

// Delivery

#[test]
fn the_next_message_is_written_and_an_old_one_dropped() {
    let mut rig = Rig::at(44);
    rig.event(live(45));
    rig.event(live(45));
    rig.event(live(44));
    assert_eq!(rig.short(), ["text a45 1 45"]);
}

#[test]
fn one_encoded_frame_serves_every_socket() {
    let heard = Heard::new(live(45));
    let written: Vec<_> = (0..2)
        .map(|_| {
            let mut rig = Rig::at(44);
            rig.connection.handle_event(&heard, START);
            match &rig.drain()[..] {
                [Output::Write(text)] => text.as_str().as_ptr(),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    assert_eq!(written[0], written[1]);
}

#[test]
fn a_client_that_was_away_for_a_quiet_hour_gets_nothing_and_no_error() {
    let mut rig = Rig::at(42);
    rig.later(3_600_000 - 1);
    rig.connection.handle_pong(rig.now);
    rig.connection.handle_timeout(rig.now);
    rig.drain();
    let limits = ConnectionLimits::default();
    let mut again = Rig::start(vec![record(S, 42)], Some((Some(S), 42)), limits);
    assert_eq!(again.short(), ["hello", "replay_end 42"]);
    let mut empty = Rig::start(vec![record(S, 0)], Some((Some(S), 0)), limits);
    assert_eq!(empty.short(), ["hello", "replay_end 0"]);
}

#[test]
fn a_late_message_is_shown_in_its_place() {
    let mut rig = Rig::at(0);
    rig.event(live(3));
    assert_eq!(rig.short(), [format!("page {S} after 0 limit 200")]);
    rig.event(live(1));
    rig.event(live(2));
    assert!(rig.short().is_empty(), "live messages are left to the page");
    rig.page(0, rows(1..=3));
    assert_eq!(rig.short(), ["text a1 1 1", "text a2 1 2", "text a3 1 3"]);
    rig.event(live(4));
    assert_eq!(rig.short(), ["text a4 1 4"]);
}

#[test]
fn a_message_committed_while_a_page_was_read_is_not_lost() {
    let mut rig = Rig::at(0);
    rig.event(live(2));
    rig.drain();
    rig.event(live(3));
    rig.page(0, rows(1..=2));
    assert_eq!(rig.short(), ["text a1 1 1", "text a2 1 2"], "the page is short, but 3 was heard of");
    let due = rig.connection.poll_timeout().unwrap();
    rig.connection.handle_timeout(due);
    assert_eq!(rig.short(), [format!("page {S} after 2 limit 200")]);
    rig.page(2, rows(3..=3));
    assert_eq!(rig.short(), ["text a3 1 3"]);
}

#[test]
fn a_store_that_fails_is_asked_again_after_a_pause() {
    let mut rig = Rig::at(0);
    rig.event(live(2));
    rig.drain();
    rig.connection.handle_page(S, Page::After { seq: 0, limit: 200 }, Err(Unavailable), rig.now);
    assert!(rig.short().is_empty());
    assert_eq!(rig.connection.poll_timeout(), Some(UnixMillis(START.0 + 100)));
    rig.connection.handle_timeout(UnixMillis(START.0 + 100));
    assert_eq!(rig.short(), [format!("page {S} after 0 limit 200")]);
}

#[test]
fn the_position_check_finds_what_the_bus_lost() {
    let mut rig = Rig::at(5);
    rig.later(10_000);
    rig.connection.handle_timeout(rig.now);
    assert_eq!(rig.short(), ["Ping", "tops 1"]);
    rig.tops(1, 7);
    assert_eq!(rig.short(), [format!("page {S} after 5 limit 200")]);
    rig.page(5, rows(6..=7));
    assert_eq!(rig.short(), ["text a6 1 6", "text a7 1 7"]);
    rig.later(10_000);
    rig.connection.handle_timeout(rig.now);
    rig.drain();
    rig.tops(1, 7);
    assert!(rig.short().is_empty());
}

#[test]
fn a_long_replay_is_read_page_by_page_with_bounded_memory_and_others_go_on() {
    let other = SessionId(9002);
    let limits = ConnectionLimits::default();
    let mut rig = Rig::start(vec![record(S, 50_000), record(other, 0)], None, limits);
    rig.drain();
    rig.resume("1", 0);
    let (mut last, mut asked, mut pages, mut heard) = (0, 0, 0, 0);
    let mut ended = false;
    while let Some(output) = rig.connection.poll_output() {
        assert!(rig.connection.outbox.bytes() < 2 * limits.queue_bytes_max);
        match output {
            Output::ReadPage { session, page: Page::After { seq, limit } } => {
                assert_eq!((session, seq), (S, asked));
                pages += 1;
                let end = (seq + u64::from(limit)).min(50_000);
                asked = end;
                rig.connection.handle_page(S, Page::After { seq, limit }, Ok(rows(seq + 1..=end)), rig.now);
                rig.event(stored(row(other, pages, "a1", &format!("o{pages}")), false, "other"));
            }
            Output::Write(text) => {
                let value: Value = serde_json::from_str(text.as_str()).unwrap();
                match (value["type"].as_str().unwrap(), value["sessionId"].as_str().unwrap()) {
                    ("text", "9001") => {
                        last += 1;
                        assert_eq!(value["seq"], last);
                    }
                    ("text", "9002") => heard += 1,
                    ("replay_end", "9001") => {
                        ended = true;
                        assert_eq!((&value["lastSeq"], &value["hasMore"], &value["reqId"]), (&json!(50_000), &json!(false), &json!("r")));
                    }
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(ended);
    assert_eq!((last, heard), (50_000, pages));
}

#[test]
fn large_messages_are_written_as_far_as_they_fit_and_the_rest_is_read_again() {
    let mut rig = Rig::at(0);
    rig.event(live(20));
    rig.drain();
    let big = |seq| MessageRecord { content: "x".repeat(60_000), ..row(S, seq, "a1", &format!("a{seq}")) };
    rig.page(0, (1..=20).map(big).collect());
    assert!(rig.connection.is_congested());
    let written = rig.connection.outbox.bytes();
    assert!(written < 400_000, "{written}");
    assert_eq!(rig.connection.poll_ask(), None, "no page is asked for while the socket does not keep up");
    let drained = rig.short();
    let written = |seq: u64| format!("text a{seq} 1 {seq}");
    let again = format!("page {S} after 5 limit 5");
    assert_eq!(drained, [written(1), written(2), written(3), again, written(4), written(5)], "half the queue must be free");
}

#[test]
fn a_client_that_reads_nothing_costs_bounded_memory_and_is_closed_as_slow() {
    let mut rig = Rig::at(0);
    for seq in 1..=10_000 {
        rig.event(live(seq));
    }
    assert!(rig.connection.outbox.bytes() < 257 * 1024);
    assert_eq!(rig.connection.poll_timeout(), Some(UnixMillis(START.0 + 10_000)));
    rig.later(10_000);
    rig.connection.handle_pong(rig.now);
    rig.connection.handle_timeout(rig.now);
    assert_eq!(rig.short(), ["close 4008"], "pongs do not make up for frames that are not read");
}

// Resume

#[test]
fn a_position_that_fits_is_replayed() {
    let mut rig = Rig::at(44);
    rig.resume("1", 42);
    assert_eq!(rig.short(), [format!("page {S} after 42 limit 200")]);
    rig.page(42, rows(43..=44));
    assert_eq!(rig.short(), ["text a43 1 43", "text a44 1 44", "replay_end 44"]);
}

#[test]
fn a_current_client_gets_just_the_end() {
    let mut rig = Rig::at(44);
    rig.resume("1", 44);
    assert_eq!(rig.short(), ["replay_end 44"]);
}

#[test]
fn an_empty_session_resumes_from_nothing() {
    let mut rig = Rig::at(0);
    rig.resume("1", 0);
    assert_eq!(rig.short(), ["replay_end 0"]);
    let mut rig = Rig::start(Vec::new(), Some((None, 0)), ConnectionLimits::default());
    assert_eq!(rig.short(), ["hello"]);
}

#[test]
fn a_position_beyond_the_end_is_compared_with_the_ledger_first() {
    let mut rig = Rig::at(42);
    rig.resume("1", 500);
    assert_eq!(rig.short(), ["tops 1"]);
    rig.tops(1, 42);
    assert_eq!(rig.short(), ["resync 1 42 ahead"]);
    rig.event(live(43));
    assert_eq!(rig.short(), ["text a43 1 43"]);

    rig.resume("1", 45);
    rig.drain();
    rig.tops(1, 45);
    assert_eq!(rig.short(), ["replay_end 45"], "the client knew more than this node");
}

#[test]
fn an_earlier_answer_does_not_settle_a_later_question() {
    let mut rig = Rig::at(42);
    rig.later(10_000);
    rig.connection.handle_timeout(rig.now);
    rig.drain();
    rig.resume("1", 43);
    assert!(rig.short().is_empty(), "one question at a time");
    rig.tops(1, 42);
    assert_eq!(rig.short(), ["tops 1"]);
    rig.tops(1, 43);
    assert_eq!(rig.short(), ["replay_end 43"]);
}

#[test]
fn another_epoch_is_a_resync_however_plausible_the_seq() {
    for epoch in ["2", "0", "a1"] {
        let mut rig = Rig::at(42);
        rig.resume(epoch, 40);
        assert_eq!(rig.short(), ["tops 1"]);
        rig.tops(1, 42);
        assert_eq!(rig.short(), ["resync 1 42 epoch"], "{epoch}");
    }
    let mut rig = Rig::at(42);
    rig.resume("2", 40);
    rig.drain();
    rig.tops(2, 41);
    assert_eq!(rig.short(), [format!("page {S} after 40 limit 200")], "the client was ahead of this node's epoch");
}

#[test]
fn a_new_epoch_moves_the_client() {
    let mut rig = Rig::at(42);
    rig.event(stored(MessageRecord { epoch: 2, ..row(S, 46, "a1", "n") }, false, "other"));
    assert_eq!(rig.short(), ["resync 2 45 epoch", "text n 2 46"]);
    rig.event(live(43));
    assert!(rig.short().is_empty(), "the old epoch is over");

    let mut rig = Rig::at(42);
    rig.later(10_000);
    rig.connection.handle_timeout(rig.now);
    rig.drain();
    rig.tops(2, 40);
    assert_eq!(rig.short(), ["resync 2 40 epoch"]);
}

#[test]
fn numbers_that_were_never_used_do_not_make_a_client_wait_for_ever() {
    let mut rig = Rig::at(46);
    rig.text(&json!({"type": "resume", "positions": [{"sessionId": "9001", "lastSeq": 40}]}));
    rig.drain();
    rig.page(40, vec![row(S, 41, "a1", "x"), row(S, 46, "a1", "y")]);
    assert_eq!(rig.short(), ["text x 1 41", "resync 1 45 gap", "text y 1 46", "replay_end 46"]);

    // A top that no row ever reaches.
    let mut rig = Rig::start(vec![record(S, 0)], None, ConnectionLimits { position_check: Duration::MAX, ..ConnectionLimits::default() });
    rig.drain();
    rig.event(live(2));
    for _ in 0..8 {
        assert_eq!(rig.drain().last(), Some(&Output::ReadPage { session: S, page: Page::After { seq: 0, limit: 200 } }));
        rig.page(0, Vec::new());
        rig.later(5_000);
        rig.connection.handle_pong(rig.now);
        rig.connection.handle_timeout(rig.now);
    }
    rig.drain();
    rig.page(0, Vec::new());
    assert_eq!(rig.short(), ["resync 1 2 gap"]);
}

#[test]
fn a_resume_during_a_replay_starts_over_from_its_own_position() {
    let mut rig = Rig::at(44);
    rig.resume("1", 42);
    rig.drain();
    rig.resume("1", 10);
    rig.page(42, rows(43..=44));
    assert_eq!(rig.short(), [format!("page {S} after 10 limit 200")]);
    rig.page(10, rows(11..=44));
    let written = rig.short();
    assert_eq!((written.len(), written.last().unwrap().as_str()), (35, "replay_end 44"));
}

#[test]
fn the_url_resumes_at_once() {
    let mut rig = Rig::start(vec![record(S, 44)], Some((None, 42)), ConnectionLimits::default());
    assert_eq!(rig.short(), [format!("page {S} after 42 limit 200"), "hello".into()]);
    let two = vec![record(S, 44), record(SessionId(1), 3)];
    let mut rig = Rig::start(two.clone(), Some((None, 42)), ConnectionLimits::default());
    assert_eq!(rig.short(), ["hello", "error RESUME_AMBIGUOUS"]);
    let mut rig = Rig::start(two, Some((Some(S), 44)), ConnectionLimits::default());
    assert_eq!(rig.short(), ["hello", "replay_end 44"]);
}

#[test]
fn somebody_elses_session_answers_like_a_missing_one() {
    let foreign = SessionId(7);
    let frames = [
        json!({"type": "text", "sessionId": 7, "content": "x", "clientMsgId": "m"}),
        json!({"type": "ack", "sessionId": 7, "lastSeq": 1}),
        json!({"type": "resume", "positions": [{"sessionId": 7, "lastSeq": 1}]}),
        json!({"type": "history", "sessionId": 7}),
        json!({"type": "typing", "sessionId": 7}),
    ];
    let mut rig = Rig::at(0);
    for frame in &frames {
        rig.text(frame);
    }
    assert_eq!(rig.short(), ["session 7"], "one look-up serves all");
    rig.connection.handle_session(foreign, Ok(None), rig.now);
    let answers = rig.frames();
    assert_eq!(answers.len(), frames.len());
    assert!(answers.iter().all(|answer| answer["code"] == "NOT_FOUND"), "{answers:?}");
}

#[test]
fn an_unknown_session_of_the_party_is_served_after_the_look_up() {
    let mut rig = Rig::at(0);
    rig.send_to(SessionId(7), "m1");
    rig.send_to(SessionId(7), "m2");
    assert_eq!(rig.short(), ["session 7"]);
    rig.connection.handle_session(SessionId(7), Ok(Some(record(SessionId(7), 3))), rig.now);
    assert_eq!(rig.short(), ["enqueue 7 m1"]);
    rig.outcome("m1", SendOutcome::Queued);
    assert_eq!(rig.short(), ["enqueue 7 m2"]);
}

#[test]
fn a_session_opened_on_another_device_is_announced_before_its_first_message() {
    let mut rig = Rig::at(0);
    let other = SessionId(7);
    rig.event(stored(row(other, 1, "a1", "x1"), false, "other"));
    rig.event(stored(row(other, 2, "a1", "x2"), false, "other"));
    assert_eq!(rig.short(), ["session 7"]);
    rig.connection.handle_session(other, Ok(Some(record(other, 2))), rig.now);
    assert_eq!(rig.short(), ["opened 1 0", "text x1 1 1", "text x2 1 2"]);
}

#[test]
fn a_session_lost_to_another_agent_is_no_longer_followed() {
    let start = agent(Vec::new());
    let mut rig = Rig { connection: Connection::new(start, ConnectionLimits::default(), START), now: START };
    rig.drain();
    rig.event(Event::Assigned { session: record(S, 4), reason: "least_unread".into() });
    rig.event(live(5));
    let frames = rig.frames();
    assert_eq!((&frames[0]["type"], &frames[0]["session"]["maxSeq"]), (&json!("assigned"), &json!(4)));
    assert_eq!(frames[1]["seq"], 5);
    rig.event(Event::Assigned { session: SessionRecord { agent: Some(id("a2")), ..record(S, 5) }, reason: "transfer".into() });
    rig.drain();
    assert!(rig.connection.sessions.is_empty());
    rig.text(&json!({"type": "open"}));
    assert_eq!(rig.short(), ["error FORBIDDEN"]);
}

// Sends

#[test]
fn the_sending_socket_gets_accepted_in_the_messages_place() {
    let mut rig = Rig::at(0);
    rig.send("m1");
    let outputs = rig.drain();
    assert!(matches!(&outputs[..], [Output::Enqueue { send, .. }] if send.origin == "c1" && send.content == "content of m1"));
    rig.outcome("m1", SendOutcome::Queued);
    rig.event(stored(row(S, 2, "alice", "m1"), false, "c1"));
    assert_eq!(rig.short(), [format!("page {S} after 0 limit 200")]);
    rig.page(0, vec![row(S, 1, "a1", "a1"), row(S, 2, "alice", "m1")]);
    assert_eq!(rig.short(), ["text a1 1 1", "accepted m1 1 2 false"]);
}

#[test]
fn a_message_whose_event_was_lost_is_accepted_from_the_page() {
    let mut rig = Rig::at(0);
    rig.send("m1");
    rig.outcome("m1", SendOutcome::Queued);
    rig.drain();
    rig.event(live(2));
    rig.drain();
    rig.page(0, vec![row(S, 1, "alice", "m1"), row(S, 2, "a1", "a2")]);
    assert_eq!(rig.short(), ["accepted m1 1 1 false", "text a2 1 2"]);
    rig.event(stored(row(S, 1, "alice", "m1"), false, "c1"));
    assert_eq!(rig.short(), ["accepted m1 1 1 false"], "saying it again does no harm");
}

#[test]
fn other_devices_of_the_sender_get_the_message() {
    let mut rig = Rig::at(0);
    rig.event(stored(row(S, 1, "alice", "m1"), false, "c2"));
    assert_eq!(rig.short(), ["text m1 1 1"]);
}

#[test]
fn a_duplicate_is_always_answered_with_the_first_seq() {
    let mut rig = Rig::at(44);
    rig.send("m1");
    rig.outcome("m1", SendOutcome::Queued);
    rig.drain();
    rig.event(stored(row(S, 17, "alice", "m1"), true, "c1"));
    assert_eq!(rig.short(), ["accepted m1 1 17 true"]);
    rig.event(stored(MessageRecord { epoch: 0, ..row(S, 17, "alice", "m1") }, true, "c1"));
    assert_eq!(rig.short(), ["accepted m1 0 17 true"], "stored in an epoch that is over");
}

#[test]
fn the_same_id_with_other_content_is_a_conflict_and_not_accepted() {
    let mut rig = Rig::at(0);
    rig.send("m1");
    rig.outcome("m1", SendOutcome::Queued);
    rig.drain();
    rig.event(stored(MessageRecord { content: "other".into(), ..row(S, 1, "alice", "m1") }, false, "c2"));
    assert_eq!(rig.short(), ["text m1 1 1"]);
    let refused = |origin: &str| Event::Refused {
        client_msg_id: ClientMsgId::parse("m1").unwrap(),
        session: S,
        origin: origin.into(),
        code: ErrorCode::ClientMsgIdConflict,
    };
    rig.event(refused("c2"));
    rig.event(refused("c1"));
    assert_eq!(rig.short(), ["error CLIENT_MSG_ID_CONFLICT m1"], "only the connection that sent it hears");
}

#[test]
fn a_failed_message_is_not_overtaken() {
    let mut rig = Rig::at(0);
    let other = SessionId(9002);
    rig.event(Event::Assigned { session: record(other, 0), reason: String::new() });
    rig.drain();
    for m in ["m1", "m2", "m3"] {
        rig.send(m);
    }
    rig.send_to(other, "o1");
    assert_eq!(rig.short(), ["enqueue 9001 m1"], "one at a time");
    rig.outcome("m1", SendOutcome::Failed);
    assert_eq!(
        rig.short(),
        ["enqueue 9002 o1", "error NOT_DURABLE m1", "error NOT_DURABLE m2", "error NOT_DURABLE m3"],
        "another session goes on"
    );
    rig.outcome("o1", SendOutcome::Queued);
    rig.send("m4");
    assert_eq!(rig.short(), ["error NOT_DURABLE m4"]);
    for m in ["m1", "m2", "m3", "m4"] {
        rig.send(m);
    }
    for m in ["m1", "m2", "m3", "m4"] {
        assert_eq!(rig.short(), [format!("enqueue 9001 {m}")]);
        rig.outcome(m, SendOutcome::Queued);
    }
}

#[test]
fn a_client_that_gives_a_message_up_is_held_ten_seconds() {
    let mut rig = Rig::at(0);
    rig.send("m1");
    rig.outcome("m1", SendOutcome::Failed);
    rig.drain();
    rig.later(9_999);
    rig.send("m2");
    assert_eq!(rig.short(), ["error NOT_DURABLE m2"]);
    rig.later(1);
    rig.send("m2");
    assert_eq!(rig.short(), ["enqueue 9001 m2"]);
}

#[test]
fn more_than_the_queue_holds_is_refused_and_keeps_its_place() {
    let mut rig = Rig::at(0);
    for n in 0..256 {
        rig.send(&format!("m{n}"));
    }
    rig.drain();
    rig.send("late");
    assert_eq!(rig.short(), ["error RATE_LIMITED late"]);
    rig.outcome("m0", SendOutcome::Queued);
    rig.drain();
    rig.send("later");
    assert_eq!(rig.short(), ["error NOT_DURABLE later"], "room is for the refused one first");
    rig.send("late");
    rig.outcome("m1", SendOutcome::Queued);
    rig.send("later");
    assert_eq!(rig.short(), ["enqueue 9001 m2"]);
}

#[test]
fn a_refusal_of_a_policy_reaches_the_sender_and_holds_nothing() {
    let mut rig = Rig::at(0);
    rig.send("m1");
    rig.drain();
    let refusal = ErrorFrame { code: "SENSITIVE".into(), message: "not here".into(), ..ErrorFrame::of(ErrorCode::Forbidden) };
    rig.outcome("m1", SendOutcome::Refused(refusal));
    rig.send("m2");
    assert_eq!(rig.short(), ["enqueue 9001 m2", "error SENSITIVE m1"]);
}

#[test]
fn replaced_content_is_still_the_senders_own() {
    let mut rig = Rig::at(0);
    rig.send("m1");
    rig.drain();
    rig.outcome("m1", SendOutcome::QueuedAs("***".into()));
    rig.event(live(2));
    rig.drain();
    rig.page(0, vec![MessageRecord { content: "***".into(), ..row(S, 1, "alice", "m1") }, row(S, 2, "a1", "a2")]);
    assert_eq!(rig.short(), ["accepted m1 1 1 false", "text a2 1 2"]);
}

impl Rig {
    /// Drains; messages to queue, and whether each may go straight to the ledger.
    fn alone(&mut self) -> Vec<(String, bool)> {
        let asked = self.drain();
        let sends = asked.iter().filter_map(|output| match output {
            Output::Enqueue { send, alone, .. } => Some((send.client_msg_id.as_str().to_owned(), *alone)),
            _ => None,
        });
        sends.collect()
    }

    /// The queue is away and the ledger took the message as `seq`.
    fn settled(&mut self, client_msg_id: &str, seq: u64, dup: bool) {
        let event = stored(row(S, seq, "alice", client_msg_id), dup, "c1");
        self.outcome(client_msg_id, SendOutcome::Settled(Box::new(event)));
    }
}

fn may(client_msg_id: &str, alone: bool) -> Vec<(String, bool)> {
    vec![(client_msg_id.to_owned(), alone)]
}

#[test]
fn no_message_passes_an_earlier_one_that_lies_in_a_queue_that_died() {
    let mut rig = Rig::at(0);
    rig.send("m1");
    assert_eq!(rig.alone(), may("m1", true));
    rig.outcome("m1", SendOutcome::Queued);
    rig.send("m2");
    rig.send("m3");
    assert_eq!(rig.alone(), may("m2", false), "the queue took m1, and is away now");
    rig.outcome("m2", SendOutcome::Failed);
    assert_eq!(rig.short(), ["error NOT_DURABLE m2", "error NOT_DURABLE m3"]);
    rig.later(60_000);
    rig.connection.handle_pong(rig.now);
    rig.send("m2");
    assert_eq!(rig.alone(), may("m2", false), "however long it takes");
    rig.outcome("m2", SendOutcome::Failed);
    rig.drain();

    for m in ["m1", "m2", "m3"] {
        rig.send(m);
    }
    assert_eq!(rig.alone(), may("m1", true), "it has the first place still");
    rig.settled("m1", 1, false);
    assert_eq!(rig.alone(), may("m2", true));
    rig.settled("m2", 2, true);
    assert_eq!(rig.alone(), may("m3", true));
    rig.settled("m3", 3, false);
    rig.send("m4");
    assert_eq!(rig.alone(), may("m4", true));
    // The queue comes back with what it had.
    rig.event(stored(row(S, 1, "alice", "m1"), true, "c1"));
    assert_eq!(rig.short(), ["accepted m1 1 1 true"]);
}

#[test]
fn sessions_do_not_stand_in_each_others_way() {
    let mut rig = Rig::start(vec![record(S, 0), record(SessionId(2), 0)], None, ConnectionLimits::default());
    rig.send("m1");
    rig.outcome("m1", SendOutcome::Queued);
    rig.drain();
    rig.send_to(SessionId(2), "o1");
    assert_eq!(rig.alone(), may("o1", true));
}

#[test]
fn a_message_that_failed_and_was_given_up_stands_in_nobodys_way() {
    let mut rig = Rig::at(0);
    rig.send("m1");
    rig.outcome("m1", SendOutcome::Failed);
    rig.drain();
    rig.later(10_000);
    rig.send("m2");
    assert_eq!(rig.alone(), may("m2", true));
}

#[test]
fn what_goes_straight_to_the_ledger_is_answered_in_its_place() {
    let mut rig = Rig::at(3);
    rig.send("m1");
    rig.drain();
    rig.settled("m1", 5, false);
    assert_eq!(rig.short(), [format!("page {S} after 3 limit 200")], "somebody else was faster");
    rig.page(3, vec![row(S, 4, "a1", "a4"), row(S, 5, "alice", "m1")]);
    assert_eq!(rig.short(), ["text a4 1 4", "accepted m1 1 5 false"]);
    rig.send("m2");
    rig.drain();
    let (client_msg_id, code) = (ClientMsgId::parse("m2").unwrap(), ErrorCode::ClientMsgIdConflict);
    let refused = Event::Refused { client_msg_id, session: S, origin: "c1".into(), code };
    rig.outcome("m2", SendOutcome::Settled(Box::new(refused)));
    assert_eq!(rig.short(), ["error CLIENT_MSG_ID_CONFLICT m2"]);
}

#[test]
fn more_unaccepted_messages_than_can_be_kept_are_refused_until_they_are_given_up() {
    let mut rig = Rig::at(0);
    for n in 0..1_024 {
        rig.send(&format!("m{n}"));
        rig.drain();
        rig.outcome(&format!("m{n}"), SendOutcome::Queued);
    }
    rig.send("late");
    assert_eq!(rig.short(), ["error RATE_LIMITED late"]);
    rig.send("m0");
    assert_eq!(rig.alone(), may("m0", true), "a copy of an early one needs no room");
    rig.outcome("m0", SendOutcome::Queued);
    rig.later(10_000);
    rig.connection.handle_pong(rig.now);
    rig.send("late");
    assert_eq!(rig.alone(), may("late", false));
}

#[test]
fn clients_without_message_ids_are_served() {
    let mut rig = Rig::at(0);
    for _ in 0..2 {
        rig.text(&json!({"sessionId": 9001, "type": "text", "content": "hi"}));
    }
    assert_eq!(rig.short(), ["enqueue 9001 c1-1"]);
    rig.outcome("c1-1", SendOutcome::Queued);
    assert_eq!(rig.short(), ["enqueue 9001 c1-2"]);
}

// The other frames

#[test]
fn history_is_answered_ascending_and_says_whether_there_is_more() {
    let mut rig = Rig::at(50);
    rig.text(&json!({"type": "history", "reqId": "h", "sessionId": "9001", "beforeSeq": 42, "limit": 2}));
    let page = Page::Before { seq: 42, limit: 2 };
    assert_eq!(rig.drain(), [Output::ReadPage { session: S, page }]);
    rig.connection.handle_page(S, page, Ok(rows(40..=41)), rig.now);
    let frames = rig.frames();
    assert_eq!((&frames[0]["reqId"], &frames[0]["hasMore"]), (&json!("h"), &json!(true)));
    assert_eq!((&frames[0]["messages"][0]["seq"], &frames[0]["messages"][1]["seq"]), (&json!(40), &json!(41)));
    for _ in 0..5 {
        rig.text(&json!({"type": "history", "sessionId": "9001"}));
    }
    assert_eq!(rig.short().last().unwrap(), "error BUSY_REPLAY");
}

#[test]
fn opening_a_session_follows_it() {
    let mut rig = Rig::at(0);
    rig.text(&json!({"type": "open", "reqId": 3, "subject": "returns"}));
    assert_eq!(rig.drain(), [Output::OpenSession { shop: None, subject: "returns".into() }]);
    rig.connection.handle_opened(Ok(record(SessionId(5), 0)), rig.now);
    let frames = rig.frames();
    assert_eq!((&frames[0]["type"], &frames[0]["reqId"], &frames[0]["sessionId"]), (&json!("opened"), &json!(3), &json!("5")));
    rig.send_to(SessionId(5), "m1");
    assert_eq!(rig.short(), ["enqueue 5 m1"]);
}

#[test]
fn typing_goes_to_the_other_side_at_most_once_a_second() {
    let mut rig = Rig::at(0);
    for _ in 0..3 {
        rig.text(&json!({"type": "typing", "sessionId": "9001"}));
    }
    let outputs = rig.drain();
    assert!(matches!(&outputs[..], [Output::Publish { to, event: Event::Typing { .. } }] if to.side == Side::Agent), "{outputs:?}");
}

#[test]
fn an_order_result_is_pushed() {
    let mut rig = Rig::at(0);
    let order_no = OrderNo::parse("SKABCDEFGHIJ234567").unwrap();
    rig.event(Event::SaleResult { order_no, success: true, message: String::new(), nseq: None });
    assert_eq!(rig.frames(), [json!({"type": "seckill_result", "orderNo": "SKABCDEFGHIJ234567", "status": "success"})]);
}

// Notices

/// The order `SKAAA…` followed by the letter, as a worker announces it.
fn notice(letter: char, nseq: Option<u64>) -> Event {
    let order_no = OrderNo::parse(&format!("SK{}{letter}", "A".repeat(15))).unwrap();
    Event::SaleResult { order_no, success: true, message: String::new(), nseq }
}

/// What is kept: notices are appended before they have a number.
fn kept(numbers: std::ops::RangeInclusive<u64>) -> Vec<(u64, bytes::Bytes)> {
    numbers.map(|number| (number, notice('B', None).encode())).collect()
}

impl Rig {
    fn resume_notices(&mut self, after: u64) {
        self.text(&json!({"type": "resume", "reqId": "r", "positions": [{"sessionId": "@me", "lastSeq": after}]}));
    }

    /// Drains; types and numbers of the frames.
    fn numbered(&mut self) -> Vec<String> {
        let frames = self.frames();
        frames.iter().map(|frame| format!("{} {}{}{}", frame["type"], frame["nseq"], frame["lastSeq"], frame["maxSeq"])).map(tidy).collect()
    }
}

fn tidy(text: String) -> String {
    text.replace("null", "").replace('"', "")
}

#[test]
fn notices_are_replayed_from_where_the_client_is() {
    let mut rig = Rig::at(0);
    rig.resume_notices(2);
    assert_eq!(rig.drain(), [Output::ReadNotices]);
    rig.connection.handle_notices(Ok(kept(1..=4)), rig.now);
    let frames = rig.frames();
    assert_eq!(frames[0], json!({"type": "seckill_result", "orderNo": "SKAAAAAAAAAAAAAAAB", "status": "success", "nseq": 3}));
    assert_eq!(frames[2], json!({"type": "replay_end", "reqId": "r", "sessionId": "@me", "lastSeq": 4, "hasMore": false}));
    rig.resume_notices(4);
    assert_eq!(rig.drain(), [Output::ReadNotices]);
    rig.connection.handle_notices(Ok(kept(1..=4)), rig.now);
    assert_eq!(rig.numbered(), ["replay_end 4"], "a current client gets just the end");
}

#[test]
fn the_url_resumes_notices_too() {
    let start = Start { notices: Some(7), ..start(Vec::new()) };
    let mut rig = Rig { connection: Connection::new(start, ConnectionLimits::default(), START), now: START };
    assert_eq!(rig.short(), ["ReadNotices", "hello"]);
}

#[test]
fn a_notice_that_arrives_during_a_replay_comes_after_it_and_once() {
    let mut rig = Rig::at(0);
    rig.resume_notices(0);
    rig.event(notice('C', Some(2)));
    rig.event(notice('C', Some(3)));
    rig.event(notice('C', None));
    assert_eq!(rig.short(), ["ReadNotices", "seckill_result"], "one without a number waits for nothing");
    rig.connection.handle_notices(Ok(kept(1..=2)), rig.now);
    assert_eq!(rig.numbered(), ["seckill_result 1", "seckill_result 2", "replay_end 2", "seckill_result 3"]);
    rig.event(notice('C', Some(4)));
    assert_eq!(rig.numbered(), ["seckill_result 4"]);
}

#[test]
fn a_client_hears_when_its_notices_are_gone_or_counted_anew() {
    let mut rig = Rig::at(0);
    for (after, list, want) in [
        (50, kept(1..=2), &["resync 0", "seckill_result 1", "seckill_result 2", "replay_end 2"][..]),
        (50, Vec::new(), &["resync 0", "replay_end 0"]),
        (3, kept(7..=8), &["resync 6", "seckill_result 7", "seckill_result 8", "replay_end 8"]),
        (0, Vec::new(), &["replay_end 0"]),
    ] {
        rig.resume_notices(after);
        assert_eq!(rig.drain(), [Output::ReadNotices]);
        rig.connection.handle_notices(Ok(list), rig.now);
        assert_eq!(rig.numbered(), want, "after {after}");
    }
}

#[test]
fn a_store_that_is_away_loses_no_live_notice() {
    let mut rig = Rig::at(0);
    rig.resume_notices(0);
    rig.event(notice('C', Some(1)));
    rig.resume_notices(0);
    assert_eq!(rig.short(), ["ReadNotices", "error BUSY_REPLAY"]);
    rig.connection.handle_notices(Err(Unavailable), rig.now);
    assert_eq!(rig.short(), ["error INTERNAL", "seckill_result"]);
}

#[test]
fn what_cannot_be_read_is_passed_over() {
    let mut rig = Rig::at(0);
    rig.resume_notices(0);
    rig.drain();
    rig.connection.handle_notices(Ok(vec![(1, bytes::Bytes::from_static(b"other")), (2, notice('B', None).encode())]), rig.now);
    assert_eq!(rig.numbered(), ["seckill_result 2", "replay_end 2"]);
}

#[test]
fn many_notices_during_a_replay_cost_bounded_memory() {
    let mut rig = Rig::at(0);
    rig.resume_notices(0);
    for number in 1..=150 {
        rig.event(notice('C', Some(number)));
    }
    assert_eq!(rig.drain().len(), 1 + 50);
    rig.connection.handle_notices(Ok(Vec::new()), rig.now);
    assert_eq!(rig.drain().len(), 1 + 100);
}

// Ends

#[test]
fn a_token_is_announced_to_expire_and_then_ends_the_connection() {
    let mut rig = Rig::at(0);
    rig.now = UnixMillis(TOKEN_ENDS.0 - 60_000);
    rig.connection.handle_pong(rig.now);
    rig.connection.handle_timeout(rig.now);
    let notice = rig.drain().iter().filter(|o| matches!(o, Output::Write(_))).map(frame).next();
    assert_eq!(notice, Some(json!({"type": "token_expiring", "inMs": 60_000})));
    rig.now = TOKEN_ENDS;
    rig.connection.handle_timeout(rig.now);
    assert_eq!(rig.short(), ["close 4401"]);
    assert_eq!(rig.connection.poll_timeout(), None);
    rig.text(&json!({"type": "ping"}));
    assert!(rig.short().is_empty());
}

#[test]
fn a_refresh_extends_the_same_principal_only() {
    let refresh = json!({"type": "refresh", "reqId": 1, "token": "t"});
    let mut rig = Rig::at(0);
    rig.text(&refresh);
    assert_eq!(rig.drain(), [Output::VerifyToken("t".into())]);
    let later = UnixMillis(TOKEN_ENDS.0 + 3_600_000);
    rig.connection.handle_token(TokenCheck::Valid(principal("alice", later)), rig.now);
    assert_eq!(rig.frames(), [json!({"type": "refreshed", "reqId": 1, "expiresAt": later.0})]);
    rig.now = TOKEN_ENDS;
    rig.connection.handle_pong(rig.now);
    rig.connection.handle_timeout(rig.now);
    assert!(!rig.connection.is_closing());
    rig.drain();

    rig.text(&refresh);
    rig.drain();
    rig.connection.handle_token(TokenCheck::Invalid, rig.now);
    assert_eq!(rig.short(), ["error TOKEN_EXPIRED"]);
    for other in [principal("bob", later), Principal { role: Role::Agent, ..principal("alice", later) }] {
        let mut rig = Rig::at(0);
        rig.text(&refresh);
        rig.drain();
        rig.connection.handle_token(TokenCheck::Valid(other), rig.now);
        assert_eq!(rig.short(), ["close 4403"]);
    }
}

#[test]
fn three_heartbeats_of_silence_end_the_connection() {
    let mut rig = Rig::at(0);
    rig.later(29_000);
    rig.connection.handle_pong(rig.now);
    rig.later(29_999);
    rig.connection.handle_timeout(rig.now);
    assert!(!rig.connection.is_closing());
    rig.drain();
    rig.later(1);
    rig.connection.handle_timeout(rig.now);
    assert_eq!(rig.short(), ["close 4009"]);
}

#[test]
fn a_hundred_frames_without_sense_in_a_row_end_the_connection() {
    let mut rig = Rig::at(0);
    for _ in 0..99 {
        rig.connection.handle_text("{", rig.now);
    }
    rig.text(&json!({"type": "ping"}));
    for _ in 0..99 {
        rig.connection.handle_text("{", rig.now);
    }
    assert!(!rig.connection.is_closing());
    rig.connection.handle_text("{", rig.now);
    assert_eq!(rig.short().last().unwrap(), "close 4400");
}

#[test]
fn the_least_recently_active_session_makes_room() {
    let limits = ConnectionLimits { sessions_max: 2, ..ConnectionLimits::default() };
    let mut rig = Rig::start(vec![record(SessionId(1), 0), record(SessionId(2), 0)], None, limits);
    rig.event(stored(row(SessionId(1), 1, "a1", "x"), false, "other"));
    rig.event(Event::Assigned { session: record(SessionId(3), 0), reason: String::new() });
    rig.drain();
    assert_eq!(rig.connection.sessions.keys().copied().collect::<Vec<_>>(), [SessionId(1), SessionId(3)]);
    rig.event(stored(row(SessionId(2), 1, "a1", "y"), false, "other"));
    assert_eq!(rig.short(), ["session 2"], "what was forgotten is found again");
    rig.connection.handle_session(SessionId(2), Ok(Some(record(SessionId(2), 1))), rig.now);
    assert_eq!(rig.short(), ["opened 1 0", "text y 1 1"]);
}

#[test]
fn an_idle_connection_is_small() {
    let mut rig = Rig::at(44);
    rig.event(live(45));
    rig.send("m1");
    rig.drain();
    rig.outcome("m1", SendOutcome::Queued);
    rig.event(stored(row(S, 46, "alice", "m1"), false, "c1"));
    rig.drain();
    let own = size_of::<Connection>() + size_of::<Session>();
    assert!(own <= 1_250, "{own} bytes; at eight thousand sockets every kilobyte is eight megabytes");
    let Connection { outbox, sends, guard, .. } = &rig.connection;
    assert_eq!((outbox.room(), sends.room(), guard.waiting()), (0, 0, 0), "queues let go of what busier times needed");
}
