//! Codecs: whatever is written reads back, and nothing else is taken for it.

use proptest::prelude::*;

use super::*;
use crate::chat::{Clocks, Fingerprint, Position};
use crate::id::ShopId;

fn principal() -> impl Strategy<Value = PrincipalId> {
    "[A-Za-z0-9_.:-]{1,64}".prop_map(|text| PrincipalId::parse(&text).unwrap())
}

fn client_msg_id() -> impl Strategy<Value = ClientMsgId> {
    "[!-~]{1,64}".prop_map(|text| ClientMsgId::parse(&text).unwrap())
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::User), Just(Side::Agent)]
}

fn message() -> impl Strategy<Value = MessageRecord> {
    ((any::<u64>(), any::<u32>(), any::<u64>()), (side(), principal(), client_msg_id()), any::<String>(), any::<bool>(), any::<u64>())
        .prop_map(|((session, epoch, seq), (side, sender, client_msg_id), content, bot, at)| MessageRecord {
            session: SessionId(session),
            epoch,
            seq,
            side,
            sender,
            client_msg_id,
            kind: "text".to_owned(),
            content,
            recalled: bot,
            bot,
            at: UnixMillis(at),
        })
}

fn session() -> impl Strategy<Value = SessionRecord> {
    (
        (any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>()),
        any::<[u64; 4]>(),
        (principal(), proptest::option::of(principal())),
        any::<String>(),
        any::<bool>(),
    )
        .prop_map(|((id, shop, epoch, seq), counts, (user, agent), subject, open)| SessionRecord {
            id: SessionId(id),
            no: "CS20260601001".to_owned(),
            shop: ShopId(shop),
            user,
            agent,
            subject,
            open,
            top: Position { epoch, seq },
            user_seq: counts[0],
            agent_seq: counts[1],
            user_received: counts[1],
            agent_received: counts[0],
            user_unread: counts[2],
            agent_unread: counts[3],
            clocks: Clocks { opened_at: UnixMillis(counts[2]), waiting_since: open.then_some(UnixMillis(counts[3])), ..Clocks::default() },
        })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (message(), any::<bool>(), "[!-~]{0,40}", principal(), proptest::option::of(principal()))
            .prop_map(|(message, dup, origin, user, agent)| Event::Stored { message, dup, origin, shop: ShopId(7), user, agent }),
        (client_msg_id(), any::<u64>(), "[!-~]{0,40}", proptest::sample::select(&ErrorCode::ALL[..]))
            .prop_map(|(client_msg_id, session, origin, code)| Event::Refused { client_msg_id, session: SessionId(session), origin, code }),
        (session(), any::<String>()).prop_map(|(session, reason)| Event::Assigned { session, reason }),
        (any::<u64>(), side(), principal(), any::<u64>(), any::<u64>()).prop_map(|(session, by, reader, seq, unread)| Event::Read {
            session: SessionId(session),
            by,
            reader,
            seq,
            unread
        }),
        ("SK[A-Z2-7]{16}", any::<bool>(), any::<String>(), any::<Option<u64>>()).prop_map(|(no, success, message, nseq)| {
            Event::SaleResult { order_no: OrderNo::parse(&no).unwrap(), success, message, nseq }
        }),
        (any::<u64>(), side(), principal()).prop_map(|(session, by, writer)| Event::Typing { session: SessionId(session), by, writer }),
        (side(), principal(), proptest::sample::select(&AgentState::ALL[..])).prop_map(|(side, id, state)| Event::Presence {
            side,
            id,
            state
        }),
        (any::<u64>(), side(), principal(), any::<u64>()).prop_map(|(session, by, reader, seq)| Event::Received {
            session: SessionId(session),
            by,
            reader,
            seq
        }),
        (any::<u64>(), side(), principal()).prop_map(|(session, by, closer)| Event::Closed { session: SessionId(session), by, closer }),
        any::<u64>().prop_map(|count| Event::Waiting { count }),
        (any::<u64>(), proptest::sample::select(&Clock::ALL[..]), any::<u64>()).prop_map(|(session, clock, ms)| Event::Overdue {
            session: SessionId(session),
            clock,
            shows: Duration::from_millis(ms)
        }),
    ]
}

fn queued() -> impl Strategy<Value = QueuedSend> {
    (message(), proptest::option::of(any::<u64>()), "[!-~]{0,40}", any::<u64>()).prop_map(|(message, shop, origin, at)| QueuedSend {
        send: Send {
            session: message.session,
            sender: Party { side: message.side, id: message.sender, shop: shop.map(ShopId) },
            client_msg_id: message.client_msg_id,
            fingerprint: Fingerprint::of(&message.kind, &message.content),
            kind: message.kind,
            content: message.content,
            origin,
            bot: message.bot,
        },
        queued_at: UnixMillis(at),
    })
}

proptest! {
    #[test]
    fn an_event_reads_back_as_it_was_written(event in event()) {
        prop_assert_eq!(Event::decode(&event.encode()), Ok(event));
    }

    #[test]
    fn a_queued_send_reads_back_as_it_was_written(queued in queued()) {
        prop_assert_eq!(QueuedSend::decode(&queued.encode()), Ok(queued));
    }

    #[test]
    fn hostile_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Event::decode(&bytes).is_err());
        prop_assert!(QueuedSend::decode(&bytes).is_err());
    }

    #[test]
    fn damaged_payloads_never_panic(event in event(), at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = event.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Event::decode(&bytes);
        let _ = Event::decode(&bytes[..at]);
        let _ = QueuedSend::decode(&bytes);
    }
}

#[test]
fn ids_are_checked_again_on_arrival() {
    for bad in [
        r#"{"t":"typing","s":1,"by":"user","id":"a b"}"#,
        r#"{"t":"typing","s":1,"by":"shop","id":"a"}"#,
        r#"{"t":"typing","s":-1,"by":"user","id":"a"}"#,
        r#"{"t":"sale_result","no":"SK1","ok":true}"#,
        r#"{"t":"refused","cid":"a","s":1,"origin":"c","code":"NEW"}"#,
        r#"{"t":"else"}"#,
    ] {
        assert!(Event::decode(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_fault_says_where_and_never_what() {
    let fault = Event::decode(br#"{"t":"typing","s":"secret"}"#).unwrap_err();
    assert!(!fault.to_string().contains("secret"), "{fault}");
}

#[test]
fn a_stored_message_goes_once_to_each_party_and_a_refusal_to_the_sender_alone() {
    let user = Party { side: Side::User, id: PrincipalId::parse("alice").unwrap(), shop: None };
    let send = Send {
        session: SessionId(1),
        sender: user.clone(),
        client_msg_id: ClientMsgId::parse("m1").unwrap(),
        kind: "text".to_owned(),
        content: "hi".to_owned(),
        fingerprint: Fingerprint::of("text", "hi"),
        origin: "c1".to_owned(),
        bot: false,
    };
    let message = MessageRecord {
        session: SessionId(1),
        epoch: 1,
        seq: 1,
        side: Side::User,
        sender: user.id.clone(),
        client_msg_id: send.client_msg_id.clone(),
        kind: send.kind.clone(),
        content: send.content.clone(),
        recalled: false,
        bot: false,
        at: UnixMillis(1),
    };
    let agent = Some(PrincipalId::parse("a.1").unwrap());
    let stored = Committed::Stored { message, dup: false, shop: ShopId(1), user: user.id, agent, stopped: None };
    let subjects = |outcome: &Committed| fan_out(&send, outcome).into_iter().map(|(subject, _)| subject).collect::<Vec<_>>();
    assert_eq!(subjects(&stored), ["evt.agent.1.a=2E1", "evt.user.alice"]);
    for outcome in [Committed::Conflict, Committed::NotFound, Committed::Closed, Committed::TooLate] {
        assert_eq!(subjects(&outcome), ["evt.user.alice"]);
    }
}
