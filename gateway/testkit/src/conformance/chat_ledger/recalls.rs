//! Messages taken back: by their sender, for two minutes, once; the event has a number, the content is gone, nobody has to
//! read what is not there any more.

use gateway_core::chat::recall::WINDOW;

use super::*;

/// Every check of this room.
pub async fn all(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    a_recalled_message_is_served_without_its_content(&**store, fresh).await;
    only_the_sender_takes_back_and_in_time(&**store, fresh).await;
    a_second_recall_answers_with_the_first(&**store, fresh).await;
    racing_recalls_have_one_row(store, fresh).await;
    a_message_is_taken_back_in_the_batch_that_brings_it(&**store, fresh).await;
    what_was_taken_back_is_not_unread(&**store, fresh).await;
}

/// The event is a message with a number of its own that names the other one.
pub async fn a_recalled_message_is_served_without_its_content(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User, Side::Agent, Side::User]).await;
    let before = room.all(store).await;
    let recall = room.recall(fresh, Side::User, 1);
    let (event, dup) = stored(room.commit(store, std::slice::from_ref(&recall)).await.remove(0));
    assert_eq!((event.seq, event.takes_back(), event.recalled, dup), (4, Some(1), false, false));
    let all = room.all(store).await;
    let gone = MessageRecord { content: String::new(), recalled: true, ..before[0].clone() };
    assert_eq!(all, [gone.clone(), before[1].clone(), before[2].clone(), event.clone()]);
    let page = store.messages(room.session, Page::Before { seq: 2, limit: 1 }).await.expect("messages");
    assert_eq!(page, std::slice::from_ref(&gone));

    let first = text(room.session, &room.user, before[0].client_msg_id.as_str(), &before[0].content);
    let outcomes: Vec<_> = room.commit(store, &[recall, first.clone(), saying(&first, "other")]).await;
    assert_eq!(stored(outcomes[0].clone()), (event, true), "the recall sent again");
    assert_eq!(stored(outcomes[1].clone()), (gone, true), "the message sent again: stored, and taken back");
    assert_eq!(outcomes[2], Committed::Conflict);
}

/// Somebody else's message, a recall, a number that nobody has: all the same.
pub async fn only_the_sender_takes_back_and_in_time(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let (at, window_s) = (shift(now(), -600), i64::try_from(WINDOW.as_secs()).expect("short"));
    room.commit_at(store, &[room.user_says(fresh), room.agent_says(fresh), room.user_says(fresh)], at).await;
    let nonsense = ["", "0", "-1", "4", "1.0", "１", "18446744073709551616", "one"]
        .map(|seq| ChatSend { content: seq.to_owned(), ..room.recall(fresh, Side::User, 0) });
    for send in [room.recall(fresh, Side::User, 2), room.recall(fresh, Side::Agent, 1)].into_iter().chain(nonsense) {
        assert_eq!(room.commit_at(store, std::slice::from_ref(&send), at).await, [Committed::NotFound], "{:?}", send.content);
    }
    let stranger = ChatSend { sender: Party::user(fresh.principal()), ..room.recall(fresh, Side::User, 1) };
    assert_eq!(room.commit_at(store, &[stranger], at).await, [Committed::NotFound]);
    let late = shift(at, window_s + 1);
    assert_eq!(room.commit_at(store, &[room.recall(fresh, Side::User, 1)], late).await, [Committed::TooLate]);
    assert_eq!(room.record(store).await.top.seq, 3, "a refusal takes no number");
    let in_time = room.commit_at(store, &[room.recall(fresh, Side::User, 3)], shift(at, window_s)).await.remove(0);
    assert_eq!(stored(in_time).0.seq, 4);
    assert_eq!(room.commit(store, &[room.recall(fresh, Side::User, 4)]).await, [Committed::NotFound], "a recall is not taken back");
    let recalled: Vec<_> = room.all(store).await.iter().map(|message| message.recalled).collect();
    assert_eq!(recalled, [false, false, true, false]);
}

/// Under another id, from another device, also when it would be too late by now.
pub async fn a_second_recall_answers_with_the_first(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let at = shift(now(), -600);
    room.commit_at(store, &[room.agent_says(fresh)], at).await;
    let (first, _) = stored(room.commit_at(store, &[room.recall(fresh, Side::Agent, 1)], at).await.remove(0));
    let batch = [room.recall(fresh, Side::Agent, 1), room.user_says(fresh), room.recall(fresh, Side::Agent, 1)];
    let outcomes: Vec<_> = room.commit(store, &batch).await.into_iter().map(stored).collect();
    assert_eq!((&outcomes[0], &outcomes[2]), (&(first.clone(), true), &(first, true)));
    assert_eq!(outcomes[1].0.seq, 3);
    assert_eq!(room.commit(store, &[room.recall(fresh, Side::User, 1)]).await, [Committed::NotFound], "not for the other side");
}

/// Eight devices at once, through the queue and past it.
pub async fn racing_recalls_have_one_row(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let room = Arc::new(Room::new(&**store, fresh).await);
    room.fill(&**store, fresh, &[Side::User]).await;
    let mut racers = Vec::new();
    for n in 0..8 {
        let (store, room, recall) = (Arc::clone(store), Arc::clone(&room), room.recall(fresh, Side::User, 1));
        racers.push(tokio::spawn(async move {
            let lease = (n % 2 == 0).then_some(&room.lease);
            stored(store.commit(lease, &[recall], &[], now()).await.expect("commit").remove(0))
        }));
    }
    let mut first_times = 0;
    for racer in racers {
        let (event, dup) = racer.await.expect("racer");
        assert_eq!((event.seq, event.takes_back()), (2, Some(1)));
        first_times += u32::from(!dup);
    }
    assert_eq!((first_times, room.record(&**store).await.top.seq), (1, 2));
    room.assert_unread_is_exact(&**store).await;
}

/// Sent, taken back, and taken back again, in one call.
pub async fn a_message_is_taken_back_in_the_batch_that_brings_it(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let send = room.user_says(fresh);
    let batch = [send.clone(), room.user_says(fresh), room.recall(fresh, Side::User, 1), room.recall(fresh, Side::User, 1), send];
    let outcomes: Vec<_> = room.commit(store, &batch).await.into_iter().map(stored).collect();
    assert_eq!(
        outcomes.iter().map(|(message, dup)| (message.seq, *dup)).collect::<Vec<_>>(),
        [(1, false), (2, false), (3, false), (3, true), (1, true)]
    );
    assert!(outcomes[4].0.recalled && outcomes[4].0.content.is_empty(), "{:?}", outcomes[4]);
    assert_eq!(room.all(store).await.iter().map(|message| message.recalled).collect::<Vec<_>>(), [true, false, false]);
    room.assert_unread_is_exact(store).await;
}

/// Nor does the event count; what had been read already changes nothing.
pub async fn what_was_taken_back_is_not_unread(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User, Side::User, Side::Agent, Side::User, Side::User]).await;
    let unread = async || room.record(store).await.agent_unread;
    assert_eq!(room.mark(store, Side::Agent, 1).await, MarkOutcome::At { seq: 1, unread: 3 });
    for (seq, left) in [(1, 3), (4, 2), (5, 1)] {
        stored(room.commit(store, &[room.recall(fresh, Side::User, seq)]).await.remove(0));
        assert_eq!(unread().await, left, "after taking back {seq}");
        room.assert_unread_is_exact(store).await;
    }
    for (seq, left) in [(2, 0), (3, 0), (4, 0), (8, 0)] {
        assert_eq!(room.mark(store, Side::Agent, seq).await, MarkOutcome::At { seq, unread: left });
    }
    room.fill(store, fresh, &[Side::User, Side::User]).await;
    assert_eq!(unread().await, 2);
    stored(room.commit(store, &[room.recall(fresh, Side::User, 9)]).await.remove(0));
    assert_eq!(unread().await, 1);
    assert_eq!(room.mark(store, Side::Agent, 11).await, MarkOutcome::At { seq: 11, unread: 0 });
}
