//! Sessions that end and change hands, agents and their states, messages taken back.

use super::*;
use crate::chat::RECALLED;
use crate::chat::sla::Clock;

fn desk(sessions: Vec<SessionRecord>) -> Rig {
    Rig::of(agent(sessions), ConnectionLimits::default())
}

fn gone(session: SessionId) -> SessionRecord {
    SessionRecord { agent: Some(id("a2")), ..record(session, 4) }
}

#[test]
fn hello_says_what_a_client_needs_to_know() {
    let device = DeviceId::parse("desk-1").ok();
    let open = SessionRecord { user_seq: 3, user_received: 4, agent_seq: 1, agent_unread: 2, ..record(S, 5) };
    let start = Start { device, frame_key: Some([0; 32]), ..agent(vec![open]) };
    let mut rig = Rig { connection: Connection::new(start, ConnectionLimits::default(), START), now: START };
    let hello = &rig.frames()[0];
    assert_eq!((&hello["device"], &hello["state"], &hello["reconnectMs"]), (&json!("desk-1"), &json!("online"), &json!(1_000)));
    assert_eq!(hello["frameKey"], json!("A".repeat(43)));
    let entry = &hello["sessions"][0];
    let seen = ["yourSeq", "unread", "peerSeq", "peerReceived"].map(|name| entry[name].as_u64().unwrap());
    assert_eq!(seen, [1, 2, 3, 4]);
}

#[test]
fn either_side_ends_a_session_and_everybody_hears_it_once() {
    for start in [start(vec![record(S, 4)]), agent(vec![record(S, 4)])] {
        let side = start.party.side.as_str();
        let who = start.party.id.clone();
        let mut rig = Rig::of(start, ConnectionLimits::default());
        rig.text(&json!({"type": "close", "reqId": "c", "sessionId": "9001"}));
        rig.text(&json!({"type": "close", "reqId": "d", "sessionId": "9001"}));
        assert_eq!(rig.drain(), [Output::CloseSession(S)], "one question");
        let closed = SessionRecord { open: false, ..record(S, 4) };
        rig.connection.handle_session_closed(S, Ok(Some((closed, true))), rig.now);
        let by = format!("{side}:{who}");
        let answer = |req_id: &str| json!({"type": "closed", "reqId": req_id, "sessionId": "9001", "by": by});
        assert_eq!(rig.frames(), [answer("c"), answer("d")]);
        rig.event(Event::Closed { session: S, by: rig.connection.party().side, closer: who });
        assert!(rig.short().is_empty(), "it knows");
    }
    let mut rig = Rig::at(4);
    rig.event(Event::Closed { session: S, by: Side::Agent, closer: id("a1") });
    rig.event(Event::Closed { session: S, by: Side::Agent, closer: id("a1") });
    assert_eq!(rig.frames(), [json!({"type": "closed", "sessionId": "9001", "by": "agent:a1"})]);
    rig.text(&json!({"type": "close", "reqId": 1, "sessionId": "9001"}));
    rig.drain();
    rig.connection.handle_session_closed(S, Ok(Some((SessionRecord { open: false, ..record(S, 4) }, false))), rig.now);
    assert_eq!(rig.frames(), [json!({"type": "closed", "reqId": 1, "sessionId": "9001"})], "it had been closed before");
}

#[test]
fn a_closing_that_fails_says_so() {
    let mut rig = Rig::at(4);
    rig.text(&json!({"type": "close", "sessionId": "9001"}));
    rig.drain();
    rig.connection.handle_session_closed(S, Err(Unavailable), rig.now);
    assert_eq!(rig.short(), ["error INTERNAL"]);
    rig.text(&json!({"type": "close", "sessionId": "9001"}));
    rig.drain();
    rig.connection.handle_session_closed(S, Ok(None), rig.now);
    assert_eq!(rig.short(), ["error NOT_FOUND"]);
}

#[test]
fn a_message_to_a_closed_session_is_the_ledgers_to_refuse() {
    let mut rig = Rig::at(4);
    rig.event(Event::Closed { session: S, by: Side::Agent, closer: id("a1") });
    rig.drain();
    rig.send("m1");
    assert_eq!(rig.short(), ["enqueue 9001 m1"], "it may be a copy of one that was stored in time");
    rig.outcome("m1", SendOutcome::Queued);
    let (client_msg_id, code) = (ClientMsgId::parse("m1").unwrap(), ErrorCode::SessionClosed);
    rig.event(Event::Refused { client_msg_id, session: S, origin: "c1".into(), code });
    assert_eq!(rig.short(), ["error SESSION_CLOSED m1"]);
}

#[test]
fn an_agent_hands_a_session_over_and_hears_of_it_no_more() {
    let mut rig = desk(vec![record(S, 4)]);
    rig.text(&json!({"type": "transfer", "reqId": "t", "sessionId": "9001", "to": "agent:a2"}));
    assert_eq!(rig.drain(), [Output::Transfer { session: S, to: Some(id("a2")) }]);
    rig.connection.handle_transferred(S, Ok(Transferred::Done(Box::new(gone(S)))), rig.now);
    assert_eq!(rig.frames(), [json!({"type": "transferred", "reqId": "t", "sessionId": "9001", "to": "agent:a2"})]);
    assert!(rig.connection.sessions.is_empty());
    rig.text(&json!({"type": "typing", "sessionId": "9001"}));
    assert_eq!(rig.short(), ["session 9001"], "it is looked up like any other");
}

#[test]
fn an_agent_puts_a_session_back_into_the_line_and_takes_one_out() {
    let mut rig = desk(vec![record(S, 4)]);
    rig.text(&json!({"type": "transfer", "sessionId": "9001", "to": "waiting"}));
    assert_eq!(rig.drain(), [Output::Transfer { session: S, to: None }]);
    let waits = SessionRecord { agent: None, ..record(S, 4) };
    rig.connection.handle_transferred(S, Ok(Transferred::Done(Box::new(waits))), rig.now);
    assert_eq!(rig.frames(), [json!({"type": "transferred", "sessionId": "9001", "to": "waiting"})]);
    assert!(rig.connection.sessions.is_empty());
    rig.text(&json!({"type": "transfer", "sessionId": "9001", "to": "agent:a1"}));
    rig.drain();
    rig.connection.handle_transferred(S, Ok(Transferred::Done(Box::new(record(S, 4)))), rig.now);
    assert_eq!(rig.frames()[0]["to"], "agent:a1");
    rig.event(live(5));
    assert_eq!(rig.short(), ["accepted a5 1 5 false"].map(|_| "text a5 1 5"), "and follows it");
}

#[test]
fn a_transfer_that_cannot_be_says_why() {
    let mut rig = desk(vec![record(S, 4)]);
    for (answer, code) in
        [(Ok(Transferred::NotFound), "NOT_FOUND"), (Ok(Transferred::NoSuchAgent), "BAD_REQUEST"), (Err(Unavailable), "INTERNAL")]
    {
        rig.text(&json!({"type": "transfer", "sessionId": "7", "to": "agent:a2", "reqId": 5}));
        rig.drain();
        rig.connection.handle_transferred(SessionId(7), answer, rig.now);
        let frames = rig.frames();
        assert_eq!((&frames[0]["code"], &frames[0]["reqId"]), (&json!(code), &json!(5)));
    }
    for to in ["", "agent:", "agent:a b", "user:a2", "a2", "Waiting"] {
        rig.text(&json!({"type": "transfer", "sessionId": "9001", "to": to}));
        assert_eq!(rig.short(), ["error BAD_REQUEST"], "{to}");
    }
    for n in 0..9 {
        rig.text(&json!({"type": "transfer", "sessionId": n, "to": "waiting"}));
    }
    assert_eq!(rig.short().last().unwrap(), "error RATE_LIMITED", "eight may be under way");
}

#[test]
fn users_neither_transfer_nor_have_a_state() {
    let mut rig = Rig::at(4);
    rig.text(&json!({"type": "transfer", "sessionId": "9001", "to": "agent:a2"}));
    rig.text(&json!({"type": "transfer", "sessionId": "7", "to": "agent:a2"}));
    rig.text(&json!({"type": "status", "state": "away"}));
    assert_eq!(rig.short(), ["error FORBIDDEN"; 3]);
}

#[test]
fn an_agents_last_word_on_itself_is_the_one_that_counts() {
    let mut rig = desk(Vec::new());
    rig.text(&json!({"type": "status", "state": "away", "reqId": 1}));
    rig.text(&json!({"type": "status", "state": "online", "limit": 5, "reqId": 2}));
    assert_eq!(rig.drain(), [Output::SetState { state: AgentState::Away, open_max: None }], "one at a time");
    rig.connection.handle_state_set(Ok(()), rig.now);
    let outputs = rig.drain();
    assert_eq!(outputs[0], Output::SetState { state: AgentState::Online, open_max: Some(5) });
    assert_eq!(frame(&outputs[1]), json!({"type": "status", "reqId": 1, "state": "away"}));
    rig.connection.handle_state_set(Err(Unavailable), rig.now);
    assert_eq!(rig.short(), ["error INTERNAL"]);
    for bad in [json!({"state": "asleep"}), json!({}), json!({"state": "busy", "limit": 0}), json!({"state": "busy", "limit": 1_001})] {
        let mut frame = bad.clone();
        frame["type"] = json!("status");
        rig.text(&frame);
        assert_eq!(rig.short(), ["error BAD_REQUEST"], "{bad}");
    }
}

#[test]
fn a_recall_goes_the_way_of_messages() {
    let mut rig = Rig::at(44);
    rig.text(&json!({"type": "recall", "reqId": 9, "sessionId": "9001", "seq": 40, "clientMsgId": "r1"}));
    let asked = rig.drain();
    let Output::Enqueue { send, alone: true, .. } = &asked[0] else { panic!("{asked:?}") };
    assert_eq!((send.kind.as_str(), send.content.as_str()), (RECALLED, "40"));
    rig.outcome("r1", SendOutcome::Queued);
    let recall = MessageRecord { kind: RECALLED.into(), content: "40".into(), ..row(S, 45, "alice", "r1") };
    rig.event(stored(recall.clone(), false, "c1"));
    assert_eq!(rig.short(), ["accepted r1 1 45 false"]);

    let mut other = Rig::at(44);
    other.event(stored(recall, false, "another"));
    let frames = other.frames();
    assert_eq!((&frames[0]["type"], &frames[0]["seq"], &frames[0]["refSeq"]), (&json!("recalled"), &json!(45), &json!(40)));
    assert_eq!(frames[0].get("content"), None);
    other.resume("1", 39);
    other.drain();
    let taken_back = MessageRecord { content: String::new(), recalled: true, ..row(S, 40, "alice", "m") };
    other.page(39, [vec![taken_back], rows(41..=45)].concat());
    let frames = other.frames();
    assert_eq!((&frames[0]["content"], &frames[0]["recalled"]), (&json!(""), &json!(true)));
}

#[test]
fn a_recall_that_comes_too_late_is_forbidden_and_holds_nothing() {
    let mut rig = Rig::at(44);
    rig.text(&json!({"type": "recall", "sessionId": "9001", "seq": 40, "clientMsgId": "r1"}));
    rig.drain();
    rig.outcome("r1", SendOutcome::Queued);
    let client_msg_id = ClientMsgId::parse("r1").unwrap();
    rig.event(Event::Refused { client_msg_id, session: S, origin: "c1".into(), code: ErrorCode::Forbidden });
    rig.send("m1");
    assert_eq!(rig.short(), ["enqueue 9001 m1", "error FORBIDDEN r1"]);
}

#[test]
fn agents_hear_of_the_waiting_line_and_of_users_who_wait_too_long() {
    let mut rig = desk(vec![record(S, 4)]);
    rig.event(Event::Waiting { count: 3 });
    rig.event(Event::Overdue { session: S, clock: Clock::FirstResponse, shows: Duration::from_secs(61) });
    assert_eq!(
        rig.frames(),
        [
            json!({"type": "waiting", "count": 3}),
            json!({"type": "overdue", "sessionId": "9001", "clock": "first_response", "elapsedMs": 61_000})
        ]
    );
}

#[test]
fn an_agent_that_lost_a_session_unheard_gets_none_of_its_messages() {
    let check = |rig: &mut Rig| {
        rig.later(10_000);
        rig.connection.handle_pong(rig.now);
        rig.connection.handle_timeout(rig.now);
        rig.drain();
        rig.tops(1, 6);
    };
    let mut rig = desk(vec![record(S, 4)]);
    check(&mut rig);
    assert_eq!(rig.short(), ["session 9001"], "messages that it did not hear: are they its own?");
    rig.connection.handle_session(S, Ok(None), rig.now);
    assert!(rig.short().is_empty());
    assert!(rig.connection.sessions.is_empty());

    let mut rig = desk(vec![record(S, 4)]);
    check(&mut rig);
    rig.drain();
    rig.connection.handle_session(S, Ok(Some(record(S, 6))), rig.now);
    assert_eq!(rig.short(), [format!("page {S} after 4 limit 200")]);
    rig.page(4, rows(5..=6));
    assert_eq!(rig.drain().len(), 2);
}

#[test]
fn a_right_that_was_withdrawn_ends_the_connection_at_once() {
    let mut rig = Rig::at(4);
    rig.event(live(5));
    rig.connection.revoke();
    rig.event(live(6));
    assert_eq!(rig.short(), ["close 4403"]);
}
