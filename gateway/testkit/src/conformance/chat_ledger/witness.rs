//! A second witness remembers more than the ledger: numbering goes on above it in a new epoch, and no number is given twice.

use super::*;

/// Every check of this room.
pub async fn all(store: &dyn ChatLedger, fresh: &Fresh) {
    numbering_goes_on_above_what_was_announced(store, fresh).await;
    a_witness_that_knows_less_changes_nothing(store, fresh).await;
    nothing_new_begins_no_epoch(store, fresh).await;
    lost_numbers_are_passed_over(store, fresh).await;
}

async fn commit(store: &dyn ChatLedger, room: &Room, sends: &[ChatSend], announced: &[(SessionId, Position)]) -> Vec<MessageRecord> {
    let outcomes = store.commit(None, sends, announced, now()).await.expect("commit");
    assert_eq!(outcomes.len(), sends.len());
    let messages: Vec<_> = outcomes.into_iter().map(|outcome| stored(outcome).0).collect();
    assert!(messages.iter().all(|message| message.session == room.session));
    messages
}

/// Asking again with the same announcement begins no second epoch.
pub async fn numbering_goes_on_above_what_was_announced(store: &dyn ChatLedger, fresh: &Fresh) {
    let (room, other) = (Room::new(store, fresh).await, Room::new(store, fresh).await);
    room.fill(store, fresh, &[Side::User; 3]).await;
    let first = room.record(store).await.top;
    let untouched = other.record(store).await.top;
    let announced = [(other.session, untouched), (room.session, Position { epoch: first.epoch, seq: 10 })];
    let messages = commit(store, &room, &[room.user_says(fresh), room.agent_says(fresh)], &announced).await;
    assert_eq!(
        messages.iter().map(|message| (message.epoch, message.seq)).collect::<Vec<_>>(),
        [(first.epoch + 1, 11), (first.epoch + 1, 12)]
    );
    let more = commit(store, &room, &[room.user_says(fresh)], &announced).await;
    assert_eq!((more[0].epoch, more[0].seq), (first.epoch + 1, 13));
    assert_eq!(room.record(store).await.top, Position { epoch: first.epoch + 1, seq: 13 });
    assert_eq!(other.record(store).await.top, untouched);
    let higher = [(room.session, Position { epoch: first.epoch + 4, seq: 5 })];
    let last = commit(store, &room, &[room.user_says(fresh)], &higher).await;
    assert_eq!((last[0].epoch, last[0].seq), (first.epoch + 5, 14), "a higher epoch with a lower number: above both");
    room.assert_unread_is_exact(store).await;
}

/// Nor does one that agrees, or one of an earlier epoch.
pub async fn a_witness_that_knows_less_changes_nothing(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User; 3]).await;
    let Position { epoch, seq } = room.record(store).await.top;
    for (n, announced) in [Position { epoch, seq: 2 }, Position { epoch, seq: 4 }, Position { epoch: 0, seq: 99 }].into_iter().enumerate() {
        let messages = commit(store, &room, &[room.user_says(fresh)], &[(room.session, announced)]).await;
        assert_eq!((messages[0].epoch, messages[0].seq), (epoch, seq + 1 + n as u64), "{announced:?}");
    }
}

/// Repetitions and refusals are answered from what is there.
pub async fn nothing_new_begins_no_epoch(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let send = room.user_says(fresh);
    stored(room.commit(store, std::slice::from_ref(&send)).await.remove(0));
    let top = room.record(store).await.top;
    let announced = [(room.session, Position { seq: 50, ..top })];
    let sends = [send.clone(), saying(&send, "other"), ChatSend { sender: Party::user(fresh.principal()), ..room.user_says(fresh) }];
    let outcomes = store.commit(Some(&room.lease), &sends, &announced, now()).await.expect("commit");
    let (message, dup) = stored(outcomes[0].clone());
    assert!(dup && message.seq == 1 && message.epoch == top.epoch);
    assert_eq!(outcomes[1..], [Committed::Conflict, Committed::NotFound]);
    assert_eq!(room.record(store).await.top, top);
}

/// Pages, marks, recalls and counts work on both sides of the gap and inside it.
pub async fn lost_numbers_are_passed_over(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User, Side::Agent, Side::User]).await;
    let epoch = room.record(store).await.top.epoch;
    let announced = [(room.session, Position { epoch, seq: 100 })];
    commit(store, &room, &[room.user_says(fresh), room.agent_says(fresh), room.user_says(fresh)], &announced).await;
    assert_eq!(seqs(&room.all(store).await), [1, 2, 3, 101, 102, 103]);
    let page = async |page| seqs(&store.messages(room.session, page).await.expect("messages"));
    assert_eq!(page(Page::After { seq: 2, limit: 2 }).await, [3, 101]);
    assert_eq!(page(Page::After { seq: 50, limit: 2 }).await, [101, 102]);
    assert_eq!(page(Page::Before { seq: 102, limit: 2 }).await, [3, 101]);
    assert_eq!(page(Page::Before { seq: 60, limit: 2 }).await, [2, 3]);

    stored(room.commit(store, &[room.recall(fresh, Side::User, 101)]).await.remove(0));
    let lost = room.commit(store, &[room.recall(fresh, Side::User, 50)]).await;
    assert_eq!(lost, [Committed::NotFound], "nobody has a number that was lost");
    for (seq, unread) in [(2, 2), (50, 1), (100, 1), (101, 1), (103, 0), (104, 0)] {
        assert_eq!(room.mark(store, Side::Agent, seq).await, MarkOutcome::At { seq, unread }, "at {seq}");
        room.assert_unread_is_exact(store).await;
    }
    assert_eq!(room.mark(store, Side::User, 60).await, MarkOutcome::At { seq: 60, unread: 1 });
    assert_eq!(room.mark(store, Side::User, 105).await, MarkOutcome::OutOfRange);
    room.assert_unread_is_exact(store).await;
}
