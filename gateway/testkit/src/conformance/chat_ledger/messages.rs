//! Messages: numbers without a gap, each message once, every byte; leases and their fences; pages.

use std::collections::BTreeSet;

use gateway_core::chat::sla::Clock;
use gateway_core::ports::PortErrorKind;

use super::*;

/// Every check of this room.
pub async fn all(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    sequence_numbers_have_no_gap(&**store, fresh).await;
    a_batch_keeps_its_order(&**store, fresh).await;
    more_than_a_batch_is_refused_whole(&**store, fresh).await;
    the_same_message_is_stored_once(&**store, fresh).await;
    the_same_message_from_two_connections_at_once_is_stored_once(store, fresh).await;
    the_same_message_a_week_later_is_stored_once(&**store, fresh).await;
    the_same_id_with_other_content_conflicts(&**store, fresh).await;
    what_was_sealed_anew_is_the_same_message(&**store, fresh).await;
    a_former_agent_hears_what_became_of_its_message(&**store, fresh).await;
    the_shops_bot_may_speak(&**store, fresh).await;
    content_comes_back_byte_for_byte(&**store, fresh).await;
    racing_commits_leave_no_gap(store, fresh).await;
    direct_and_leased_commits_share_one_numbering(store, fresh).await;
    batches_over_many_sessions_do_not_block_each_other(store, fresh).await;
    a_lease_has_one_holder(&**store, fresh).await;
    a_former_holder_is_fenced(&**store, fresh).await;
    a_page_is_a_window_in_ascending_order(&**store, fresh).await;
}

/// 1, 2, 3 … over several commits, and every field as sent.
pub async fn sequence_numbers_have_no_gap(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let epoch = room.record(store).await.top.epoch;
    let at = now();
    let mut want = Vec::new();
    for n in 0..5 {
        let said = if n % 2 == 0 { room.user_says(fresh) } else { room.agent_says(fresh) };
        let send = ChatSend { kind: "order_card".to_owned(), ..said };
        let committed = store.commit(Some(&room.lease), std::slice::from_ref(&send), &[], at).await.expect("commit");
        let message = MessageRecord {
            session: room.session,
            epoch,
            seq: n + 1,
            side: send.sender.side,
            sender: send.sender.id,
            client_msg_id: send.client_msg_id,
            kind: send.kind,
            content: send.content,
            recalled: false,
            bot: false,
            at,
        };
        let stopped =
            (n == 1).then_some((Clock::FirstResponse, Duration::ZERO)).or((n == 3).then_some((Clock::NextResponse, Duration::ZERO)));
        let (user, agent) = (room.user.id.clone(), Some(room.agent.id.clone()));
        let outcome = Committed::Stored { message: message.clone(), dup: false, shop: room.shop, user, agent, stopped };
        assert_eq!(committed, [outcome]);
        want.push(message);
    }
    assert_eq!(room.all(store).await, want);
    assert_eq!(room.record(store).await.top, Position { epoch, seq: 5 });
    assert_eq!(room.commit(store, &[]).await, []);
}

/// Two sessions interleaved in one call of the largest size.
pub async fn a_batch_keeps_its_order(store: &dyn ChatLedger, fresh: &Fresh) {
    let (one, two) = (Room::new(store, fresh).await, Room::new(store, fresh).await);
    let sends: Vec<_> = (0..256).map(|n| if n % 3 == 0 { two.agent_says(fresh) } else { one.user_says(fresh) }).collect();
    let outcomes = one.commit(store, &sends).await;
    assert_eq!(outcomes.len(), 256);
    for (send, outcome) in sends.iter().zip(outcomes) {
        let (message, dup) = stored(outcome);
        assert!(!dup && message.client_msg_id == send.client_msg_id, "one outcome per message, in order");
    }
    for room in [&one, &two] {
        let want: Vec<_> = sends.iter().filter(|send| send.session == room.session).map(|send| send.content.clone()).collect();
        let all = room.all(store).await;
        assert_eq!(seqs(&all), (1..=want.len() as u64).collect::<Vec<_>>());
        assert_eq!(all.into_iter().map(|message| message.content).collect::<Vec<_>>(), want);
    }
}

/// Whenever it comes again, it answers with the row of the first time and takes no number.
pub async fn the_same_message_is_stored_once(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let (one, two, three) = (room.user_says(fresh), room.user_says(fresh), room.user_says(fresh));
    let first_time = shift(now(), -60);
    let first = store.commit(Some(&room.lease), &[one.clone(), one.clone(), two.clone()], &[], first_time).await.expect("commit");
    let first: Vec<_> = first.into_iter().map(stored).collect();
    assert_eq!(first.iter().map(|(message, dup)| (message.seq, *dup)).collect::<Vec<_>>(), [(1, false), (1, true), (2, false)]);

    let elsewhere = ChatSend { origin: "conn-2".to_owned(), ..one };
    let again: Vec<_> = room.commit(store, &[three, elsewhere, two]).await.into_iter().map(stored).collect();
    assert_eq!((again[0].0.seq, again[0].1), (3, false), "repetitions take no number");
    assert_eq!(again[1], (first[0].0.clone(), true), "the row as stored the first time");
    assert_eq!(again[2], (first[2].0.clone(), true));

    let sender_two = ChatSend { client_msg_id: first[0].0.client_msg_id.clone(), ..room.agent_says(fresh) };
    let (message, dup) = stored(room.commit(store, &[sender_two]).await.remove(0));
    assert!(!dup && message.seq == 4, "the id is the sender's own");
    let shouting = message_id(&message.client_msg_id.as_str().to_uppercase());
    let (message, dup) = stored(room.commit(store, &[ChatSend { client_msg_id: shouting, ..room.agent_says(fresh) }]).await.remove(0));
    assert!(!dup && message.seq == 5, "ids differ by case");
}

/// Nothing is stored, and the others of the batch are.
pub async fn the_same_id_with_other_content_conflicts(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let first = room.user_says(fresh);
    stored(room.commit(store, std::slice::from_ref(&first)).await.remove(0));
    let changed = saying(&first, &format!("{} ", first.content));
    let outcomes = room.commit(store, &[changed.clone(), room.user_says(fresh), changed]).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Committed::Conflict, &Committed::Conflict));
    assert_eq!(stored(outcomes[1].clone()).0.seq, 2, "a conflict takes no number");
    assert_eq!(room.all(store).await[0].content, first.content);

    let fresh_id = room.user_says(fresh);
    let twisted = saying(&fresh_id, "other");
    let outcomes = room.commit(store, &[fresh_id, twisted]).await;
    assert_eq!(outcomes[1], Committed::Conflict, "within one call as well");
}

/// On the shop's behalf, also before anybody serves the session; it counts as the shop's message.
pub async fn the_shops_bot_may_speak(store: &dyn ChatLedger, fresh: &Fresh) {
    let (shop, user, lease) = (fresh.shop(), Party::user(fresh.principal()), lease(store, fresh).await);
    let session = open(store, shop, &user.id, "s").await.id;
    let bot = Party::agent(shop, PrincipalId::parse("bot").expect("valid"));
    let send = ChatSend { bot: true, ..text(session, &bot, &fresh.word("m"), "hello") };
    let outcomes = store.commit(Some(&lease), std::slice::from_ref(&send), &[], now()).await.expect("commit");
    let (message, dup) = stored(outcomes[0].clone());
    assert!(message.bot && !dup && message.seq == 1 && message.side == Side::Agent);
    let next_door = Party { shop: Some(fresh.shop()), ..bot };
    let lost = ChatSend { sender: next_door, client_msg_id: message_id(&fresh.word("m")), ..send };
    assert_eq!(store.commit(None, &[lost], &[], now()).await.expect("commit"), [Committed::NotFound], "another shop's bot");
    let record = store.session(&user, session).await.expect("session").expect("the user's own session");
    assert_eq!((record.user_unread, record.agent_unread, record.agent), (1, 0, None));
}

/// Characters outside the basic plane, joined ones, quotes, zero-width ones, trailing space, and long text.
pub async fn content_comes_back_byte_for_byte(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let long = "长".repeat(20_000);
    let contents = ["😂", "𝐏", "👨‍👩‍👧‍👦", "🇨🇳", "' \" \\ ; -- % _ \u{0}\n\r\t", "a\u{200b}b\u{feff}", " x ", &long];
    let sends: Vec<_> = contents.iter().map(|content| saying(&room.user_says(fresh), content)).collect();
    room.commit(store, &sends).await;
    let seen: Vec<_> = room.all(store).await.into_iter().map(|message| message.content).collect();
    assert_eq!(seen, contents);
    let again: Vec<_> = room.commit(store, &sends).await.into_iter().map(stored).collect();
    assert!(again.iter().all(|(_, dup)| *dup), "the same content is no conflict");
}

/// Eight writers under one lease: every number once, each writer's order kept.
pub async fn racing_commits_leave_no_gap(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let room = Arc::new(Room::new(&**store, fresh).await);
    let mut racers = Vec::new();
    for writer in 0..8 {
        let (store, room) = (Arc::clone(store), Arc::clone(&room));
        let sends: Vec<_> = (0..12).map(|n| saying(&room.user_says(fresh), &format!("{writer:02} {n:02}"))).collect();
        racers.push(tokio::spawn(async move {
            for pair in sends.chunks(2) {
                for outcome in room.commit(&*store, pair).await {
                    stored(outcome);
                }
            }
        }));
    }
    for racer in racers {
        racer.await.expect("racer");
    }
    let all = room.all(&**store).await;
    assert_eq!(seqs(&all), (1..=96).collect::<Vec<_>>());
    let mut contents: Vec<_> = all.into_iter().map(|message| message.content).collect();
    // A stable sort by writer leaves each writer's messages in stored order.
    contents.sort_by_key(|content| content[..2].to_owned());
    assert!(contents.is_sorted(), "a writer's own order is kept: {contents:?}");
}

/// It is prolonged under the same token, and passes on under a higher one when it has expired.
pub async fn a_lease_has_one_holder(store: &dyn ChatLedger, fresh: &Fresh) {
    let partition = fresh.partition();
    let (one, two) = (fresh.word("owner"), fresh.word("owner"));
    let take = async |owner: &str, ttl| store.lease(partition, owner, ttl).await.expect("lease");
    let first = eventually("a lease that an earlier run left behind expires", || take(&one, LONG)).await;
    assert_eq!((first.partition, &first.owner), (partition, &one));
    assert_eq!(take(&two, LONG).await, None, "somebody else holds it");
    assert_eq!(take(&one, LONG).await, Some(first.clone()), "prolonged");
    assert_eq!(take(&one, Duration::from_millis(50)).await, Some(first.clone()));
    let second = eventually("an expired lease passes on", || take(&two, LONG)).await;
    assert!(second.token > first.token && second.owner == two, "{second:?} after {first:?}");
    assert_eq!(take(&one, LONG).await, None);
}

/// It is told so, and nothing it brought is stored.
pub async fn a_former_holder_is_fenced(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User]).await;
    let Lease { partition, owner, token } = room.lease.clone();
    store.lease(partition, &owner, Duration::from_millis(50)).await.expect("lease").expect("the holder's own");
    let heir = fresh.word("owner");
    let second = eventually("an expired lease passes on", || async { store.lease(partition, &heir, LONG).await.expect("lease") }).await;

    let late = room.user_says(fresh);
    let impostors = [
        (room.lease.clone(), "the former holder"),
        (Lease { token, ..second.clone() }, "the former token"),
        (Lease { token: second.token + 1, ..second.clone() }, "a token nobody was given"),
        (Lease { partition: fresh.partition(), ..second.clone() }, "another partition"),
    ];
    for (lease, who) in impostors {
        let error = store.commit(Some(&lease), std::slice::from_ref(&late), &[], now()).await.expect_err(who);
        assert_eq!(error.kind, PortErrorKind::Fenced, "{who}");
    }
    assert_eq!(seqs(&room.all(store).await), [1], "nothing of theirs is stored");
    let outcomes = store.commit(Some(&second), &[late], &[], now()).await.expect("commit");
    let (message, dup) = stored(outcomes[0].clone());
    assert!(!dup && message.seq == 2, "no number was lost");
}

/// After: the oldest above; before: the latest below; never more than asked for, nor than 200.
pub async fn a_page_is_a_window_in_ascending_order(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User; 205]).await;
    let page = async |page| seqs(&store.messages(room.session, page).await.expect("messages"));
    for (seq, limit, want) in [(0, 3, 1..=3), (200, 3, 201..=203), (203, 3, 204..=205), (0, 200, 1..=200), (0, 1_000, 1..=200)] {
        assert_eq!(page(Page::After { seq, limit }).await, want.collect::<Vec<_>>(), "{limit} after {seq}");
    }
    for (seq, limit, want) in [(4, 2, 2..=3), (3, 9, 1..=2), (206, 3, 203..=205), (1 << 50, 3, 203..=205), (206, 1_000, 6..=205)] {
        assert_eq!(page(Page::Before { seq, limit }).await, want.collect::<Vec<_>>(), "{limit} before {seq}");
    }
    for empty in [
        Page::After { seq: 205, limit: 9 },
        Page::After { seq: 1 << 50, limit: 9 },
        Page::After { seq: 0, limit: 0 },
        Page::Before { seq: 1, limit: 9 },
        Page::Before { seq: 0, limit: 9 },
        Page::Before { seq: 9, limit: 0 },
    ] {
        assert_eq!(page(empty).await, [] as [u64; 0], "{empty:?}");
    }
}

/// 257 messages: not the first 256 of them.
pub async fn more_than_a_batch_is_refused_whole(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let sends: Vec<_> = (0..257).map(|_| room.user_says(fresh)).collect();
    let error = store.commit(Some(&room.lease), &sends, &[], now()).await.expect_err("too many");
    assert_eq!(error.kind, PortErrorKind::Broken);
    assert_eq!(room.all(store).await, []);
}

/// Sixteen copies, through the queue and past it: one row, one number, one first time.
pub async fn the_same_message_from_two_connections_at_once_is_stored_once(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let room = Arc::new(Room::new(&**store, fresh).await);
    let send = room.user_says(fresh);
    let mut racers = Vec::new();
    for n in 0..16 {
        let (store, room, send) = (Arc::clone(store), Arc::clone(&room), ChatSend { origin: format!("conn-{n}"), ..send.clone() });
        racers.push(tokio::spawn(async move {
            let lease = (n % 2 == 0).then_some(&room.lease);
            stored(store.commit(lease, &[send], &[], now()).await.expect("commit").remove(0))
        }));
    }
    let (mut rows, mut first_times) = (Vec::new(), 0);
    for racer in racers {
        let (message, dup) = racer.await.expect("racer");
        first_times += u32::from(!dup);
        rows.push(message);
    }
    assert_eq!(first_times, 1);
    assert!(rows.iter().all(|row| *row == rows[0]), "everybody hears of the same row: {rows:?}");
    assert_eq!(room.all(&**store).await, [rows.remove(0)]);
}

/// However long ago, and whatever came between.
pub async fn the_same_message_a_week_later_is_stored_once(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let (send, at) = (room.user_says(fresh), shift(now(), -7 * 86_400));
    let first = stored(room.commit_at(store, std::slice::from_ref(&send), at).await.remove(0));
    room.fill(store, fresh, &[Side::Agent; 3]).await;
    let again = stored(store.commit(None, &[send], &[], now()).await.expect("commit").remove(0));
    assert_eq!(again, (first.0, true), "the row as it was stored, at the time it was stored");
    assert_eq!(room.record(store).await.top.seq, 4);
}

/// A fingerprint is of what the client sent. What is stored may differ each time it is sealed.
pub async fn what_was_sealed_anew_is_the_same_message(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let first = room.user_says(fresh);
    let again = ChatSend { content: "sealed under another nonce".to_owned(), ..first.clone() };
    let outcomes: Vec<_> = room.commit(store, &[first.clone(), again]).await.into_iter().map(stored).collect();
    assert_eq!((outcomes[1].1, &outcomes[1].0.content), (true, &first.content));
}

/// It sent, lost the answer, and handed the session over: asking again tells it. A new message it may not send.
pub async fn a_former_agent_hears_what_became_of_its_message(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let send = room.agent_says(fresh);
    let first = stored(room.commit(store, std::slice::from_ref(&send)).await.remove(0)).0;
    let heir = hired(store, fresh, room.shop).await;
    assert!(matches!(hand_over(store, &handover(room.session, Some(&room.agent.id), Some(&heir.id))).await, HandoverOutcome::Done(_)));
    let namesake = ChatSend { sender: Party { shop: Some(fresh.shop()), ..room.agent.clone() }, ..send.clone() };
    let outcomes = room.commit(store, &[send.clone(), saying(&send, "other"), room.agent_says(fresh), namesake]).await;
    assert_eq!(stored(outcomes[0].clone()), (first, true));
    assert_eq!(outcomes[1..], [Committed::Conflict, Committed::NotFound, Committed::NotFound]);
}

/// Half of the writers go through the queue, half past it: one numbering, each writer's order kept.
pub async fn direct_and_leased_commits_share_one_numbering(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let room = Arc::new(Room::new(&**store, fresh).await);
    let mut racers = Vec::new();
    for writer in 0..8 {
        let (store, room) = (Arc::clone(store), Arc::clone(&room));
        let sends: Vec<_> = (0..12).map(|n| saying(&room.user_says(fresh), &format!("{writer:02} {n:02}"))).collect();
        racers.push(tokio::spawn(async move {
            for three in sends.chunks(3) {
                let lease = (writer % 2 == 0).then_some(&room.lease);
                for outcome in store.commit(lease, three, &[], now()).await.expect("commit") {
                    stored(outcome);
                }
            }
        }));
    }
    for racer in racers {
        racer.await.expect("racer");
    }
    let all = room.all(&**store).await;
    assert_eq!(seqs(&all), (1..=96).collect::<Vec<_>>());
    let mut contents: Vec<_> = all.into_iter().map(|message| message.content).collect();
    contents.sort_by_key(|content| content[..2].to_owned());
    assert!(contents.is_sorted(), "a writer's own order is kept: {contents:?}");
}

/// Every batch names every session, each in another order, while marks and recalls go on.
pub async fn batches_over_many_sessions_do_not_block_each_other(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let mut rooms = Vec::new();
    for _ in 0..6 {
        rooms.push(Arc::new(Room::new(&**store, fresh).await));
    }
    let mut racers = Vec::new();
    for writer in 0..8 {
        let (store, rooms) = (Arc::clone(store), rooms.clone());
        let batches: Vec<Vec<_>> = (0..6)
            .map(|round| {
                let order = (0..rooms.len()).map(|n| (n * (writer % 5 + 1) + round) % rooms.len()).collect::<BTreeSet<_>>();
                let order: Vec<_> = if writer % 2 == 0 { order.into_iter().collect() } else { order.into_iter().rev().collect() };
                order.into_iter().map(|n| rooms[n].user_says(fresh)).collect()
            })
            .collect();
        let recalls: Vec<_> = rooms.iter().map(|room| room.recall(fresh, Side::User, writer as u64 + 1)).collect();
        racers.push(tokio::spawn(async move {
            let mut written = 0;
            for batch in batches {
                written += batch.len();
                for outcome in store.commit(None, &batch, &[], now()).await.expect("commit") {
                    stored(outcome);
                }
                let room = &rooms[writer % rooms.len()];
                room.mark(&*store, Side::Agent, writer as u64).await;
            }
            store.commit(None, &recalls, &[], now()).await.expect("commit");
            written
        }));
    }
    let mut written = 0;
    for racer in racers {
        written += racer.await.expect("racer");
    }
    let mut found = 0;
    for room in &rooms {
        let all = room.all(&**store).await;
        assert_eq!(seqs(&all), (1..=all.len() as u64).collect::<Vec<_>>());
        found += all.iter().filter(|message| message.kind != RECALLED).count();
        room.assert_unread_is_exact(&**store).await;
    }
    assert_eq!(found, written);
}
