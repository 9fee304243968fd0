//! Sessions: one open session per user, shop and subject; what is found by whom; closing.

use gateway_core::chat::Clocks;

use super::*;

/// Every check of this room.
pub async fn all(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    opening_again_finds_the_open_session(&**store, fresh).await;
    racing_openings_find_one_session(store, fresh).await;
    strangers_find_nothing(&**store, fresh).await;
    agents_find_what_waits_in_their_shop(&**store, fresh).await;
    a_closed_session_takes_no_message_and_is_still_read(&**store, fresh).await;
    sessions_are_listed_by_latest_activity(&**store, fresh).await;
    tops_name_sessions_that_exist(&**store, fresh).await;
}

/// Per shop, user and subject; each with a number of its own.
pub async fn opening_again_finds_the_open_session(store: &dyn ChatLedger, fresh: &Fresh) {
    let (shop, user) = (fresh.shop(), fresh.principal());
    let at = now();
    let first = store.open_session(shop, &user, "订单 order", at).await.expect("open session");
    assert_eq!(
        (first.shop, &first.user, &first.agent, first.subject.as_str(), first.open, first.top.seq),
        (shop, &user, &None, "订单 order", true, 0)
    );
    let cursors = (first.user_seq, first.agent_seq, first.user_received, first.agent_received, first.user_unread, first.agent_unread);
    assert_eq!(cursors, (0, 0, 0, 0, 0, 0));
    assert_eq!(first.clocks, Clocks { opened_at: at, waiting_since: Some(at), ..Clocks::default() });
    let digits = first.no.strip_prefix("CS").unwrap_or_default();
    assert!(digits.len() >= 11 && digits.bytes().all(|b| b.is_ascii_digit()), "CS, a date and a running number, got {}", first.no);
    assert_eq!(open(store, shop, &user, "订单 order").await, first);

    let shouting = PrincipalId::parse(&user.as_str().to_uppercase()).expect("valid");
    let others = [
        open(store, shop, &user, "订单 ORDER").await,
        open(store, shop, &user, "").await,
        open(store, fresh.shop(), &user, "订单 order").await,
        open(store, shop, &shouting, "订单 order").await,
    ];
    let mut ids: Vec<_> = others.iter().chain([&first]).map(|session| session.id).collect();
    let mut numbers: Vec<_> = others.iter().chain([&first]).map(|session| &session.no).collect();
    ids.sort_unstable();
    ids.dedup();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((ids.len(), numbers.len()), (5, 5), "subject, shop and user all count, by case: {others:?}");
}

/// Sixteen devices of one user.
pub async fn racing_openings_find_one_session(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let (shop, user) = (fresh.shop(), fresh.principal());
    let race = |_| {
        let (store, user) = (Arc::clone(store), user.clone());
        tokio::spawn(async move { open(&*store, shop, &user, "s").await.id })
    };
    let racers: Vec<_> = (0..16).map(race).collect();
    let first = open(&**store, shop, &user, "s").await.id;
    for racer in racers {
        assert_eq!(racer.await.expect("racer"), first);
    }
}

/// Another user, another shop's agent, a session that does not exist: one answer for all, and no trace.
pub async fn strangers_find_nothing(store: &dyn ChatLedger, fresh: &Fresh) {
    let (room, next_door) = (Room::new(store, fresh).await, Room::new(store, fresh).await);
    let user_as_agent = Party { side: Side::Agent, id: room.user.id.clone(), shop: None };
    let agent_as_user = Party { side: Side::User, id: room.agent.id.clone(), shop: None };
    let namesake = Party { id: room.agent.id.clone(), ..next_door.agent.clone() };
    for stranger in [&next_door.user, &next_door.agent, &Party::user(fresh.principal()), &user_as_agent, &agent_as_user, &namesake] {
        assert_eq!(store.session(stranger, room.session).await.expect("session"), None, "{stranger:?}");
        let listed = store.sessions(stranger, 100).await.expect("sessions");
        assert!(listed.iter().all(|session| session.id != room.session), "{stranger:?}");
        let outcomes = room.commit(store, &[room.send(fresh, stranger), room.user_says(fresh)]).await;
        assert_eq!(outcomes[0], Committed::NotFound, "{stranger:?}");
        stored(outcomes[1].clone());
    }
    assert_eq!(seqs(&room.all(store).await), [1, 2, 3, 4, 5, 6], "a refusal takes no number");
    for member in [&room.user, &room.agent] {
        assert!(store.session(member, room.session).await.expect("session").is_some(), "{member:?}");
        assert_eq!(store.session(member, UNKNOWN).await.expect("session"), None);
    }
    let nowhere = ChatSend { session: UNKNOWN, ..room.user_says(fresh) };
    assert_eq!(room.commit(store, &[nowhere]).await, [Committed::NotFound]);
    for session in [room.session, UNKNOWN] {
        let reader = next_door.user.clone();
        let mark = Mark { session, reader, device: None, cursor: Cursor::Read, seq: 1 };
        assert_eq!(store.mark(&mark, now()).await.expect("mark"), MarkOutcome::NotFound);
        assert_eq!(store.close_session(&next_door.agent, session, now()).await.expect("close session"), None);
    }
    assert_eq!(room.record(store).await.agent_seq, 0, "nothing was marked");
    assert_eq!(store.messages(UNKNOWN, Page::After { seq: 0, limit: 10 }).await.expect("messages"), []);
}

/// A new message brings a session to the front, for the user and for the agent who serves it.
pub async fn sessions_are_listed_by_latest_activity(store: &dyn ChatLedger, fresh: &Fresh) {
    let (room, start) = (Room::new(store, fresh).await, now());
    let mut sessions = vec![room.session];
    for n in 1..4 {
        let session = store.open_session(room.shop, &room.user.id, &fresh.word("s"), shift(start, n)).await.expect("open session");
        assert!(assign(store, session.id, &room.agent.id).await);
        sessions.push(session.id);
    }
    let listed = async |party: &Party, limit| -> Vec<SessionId> {
        store.sessions(party, limit).await.expect("sessions").into_iter().map(|session| session.id).collect()
    };
    let [a, b, c, d] = sessions[..] else { unreachable!("four sessions") };
    for party in [&room.user, &room.agent] {
        assert_eq!(listed(party, 10).await, [d, c, b, a], "{:?}: opened last comes first", party.side);
    }
    for (n, session) in [(10, b), (20, a)] {
        let send = ChatSend { session, ..room.user_says(fresh) };
        let outcomes = store.commit(Some(&room.lease), &[send], &[], shift(start, n)).await.expect("commit");
        stored(outcomes[0].clone());
    }
    for party in [&room.user, &room.agent] {
        assert_eq!(listed(party, 10).await, [a, b, d, c], "{:?}", party.side);
        assert_eq!(listed(party, 2).await, [a, b], "{:?}: at most two", party.side);
    }
}

/// Unknown ones are left out.
pub async fn tops_name_sessions_that_exist(store: &dyn ChatLedger, fresh: &Fresh) {
    let (one, two) = (Room::new(store, fresh).await, Room::new(store, fresh).await);
    one.fill(store, fresh, &[Side::User; 3]).await;
    let mut tops = store.tops(&[two.session, UNKNOWN, one.session]).await.expect("tops");
    tops.sort_by_key(|(session, _)| *session);
    let want = [(one.session, one.record(store).await.top), (two.session, two.record(store).await.top)];
    assert_eq!(tops, want);
    assert_eq!((want[0].1.seq, want[1].1.seq), (3, 0));
    assert_eq!(store.tops(&[]).await.expect("tops"), []);
}

/// By id, whoever of the shop asks, as long as nobody serves it; and nobody of another shop does.
pub async fn agents_find_what_waits_in_their_shop(store: &dyn ChatLedger, fresh: &Fresh) {
    let shop = fresh.shop();
    let (one, two) = (hired(store, fresh, shop).await, hired(store, fresh, shop).await);
    let (stranger, user) = (hired(store, fresh, fresh.shop()).await, Party::user(fresh.principal()));
    let session = open(store, shop, &user.id, "s").await;
    let finds = async |party: &Party| store.session(party, session.id).await.expect("session").is_some();
    assert_eq!((finds(&one).await, finds(&two).await, finds(&stranger).await), (true, true, false), "while it waits");
    assert_eq!(store.sessions(&one, 10).await.expect("sessions"), [], "it is nobody's own");
    assert_eq!(store.close_session(&one, session.id, now()).await.expect("close session"), None, "and nobody's to close");
    assert!(assign(store, session.id, &one.id).await);
    assert_eq!((finds(&one).await, finds(&two).await, finds(&user).await), (true, false, true), "while it is served");
    hand_over(store, &handover(session.id, Some(&one.id), None)).await;
    assert_eq!((finds(&one).await, finds(&two).await), (true, true), "when it waits again");
    assert!(store.close_session(&user, session.id, now()).await.expect("close session").is_some());
    assert_eq!((finds(&one).await, finds(&two).await, finds(&user).await), (false, false, true), "closed while it waited");
}

/// Closing again changes nothing; the same user and subject get a new session.
pub async fn a_closed_session_takes_no_message_and_is_still_read(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let first = room.user_says(fresh);
    stored(room.commit(store, std::slice::from_ref(&first)).await.remove(0));
    let at = shift(now(), 5);
    let close = async |party: &Party, at| store.close_session(party, room.session, at).await.expect("close session").expect("its own");
    let (closed, was_open) = close(&room.agent, at).await;
    assert!(was_open && !closed.open && closed.clocks.closed_at == Some(at) && closed.clocks.waiting_since.is_none(), "{closed:?}");
    let again = close(&room.user, shift(at, 5)).await;
    assert_eq!(again, (closed.clone(), false), "closing again changes nothing");
    assert_eq!(room.record(store).await, closed);

    let outcomes = room.commit(store, &[room.user_says(fresh), first, room.recall(fresh, Side::User, 1)]).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Committed::Closed, &Committed::Closed));
    assert_eq!(stored(outcomes[1].clone()).0.seq, 1, "what was accepted before is still answered");
    assert_eq!(seqs(&room.all(store).await), [1]);
    assert_eq!(room.mark(store, Side::Agent, 1).await, MarkOutcome::At { seq: 1, unread: 0 }, "and may be read");
    assert_eq!(hand_over(store, &handover(room.session, Some(&room.agent.id), None)).await, HandoverOutcome::Changed);
    for party in [&room.user, &room.agent] {
        assert_eq!(store.sessions(party, 10).await.expect("sessions"), [], "it is not listed");
    }
    let next = open(store, room.shop, &room.user.id, "order 1").await;
    assert!(next.open && next.id != room.session && next.top.seq == 0, "the next matter is a new session");
    assert_eq!(close(&room.user, at).await.0.id, room.session);
}
