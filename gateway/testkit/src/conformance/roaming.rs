//! What every [`Roaming`] promises.

use std::sync::Arc;

use gateway_core::chat::{MessageRecord, Position, RECALLED, Side};
use gateway_core::id::{ClientMsgId, SessionId};
use gateway_core::ports::{ROAMING_MAX, Roaming};
use gateway_core::time::UnixMillis;

use super::{Fresh, now};

/// Every check.
pub async fn all(store: &Arc<dyn Roaming>, fresh: &Fresh) {
    nothing_is_known_of_a_session_without_messages(&**store, fresh).await;
    what_was_appended_is_read_back_letter_by_letter(&**store, fresh).await;
    pages_go_on_where_the_last_one_ended(&**store, fresh).await;
    a_place_that_is_not_kept_is_no_answer(&**store, fresh).await;
    messages_that_come_again_change_nothing(&**store, fresh).await;
    a_gap_begins_the_list_anew(&**store, fresh).await;
    an_epoch_begins_the_list_anew(&**store, fresh).await;
    tops_rise_only(&**store, fresh).await;
    a_recall_takes_the_content_out_and_keeps_the_order(&**store, fresh).await;
    the_latest_messages_are_kept(&**store, fresh).await;
    sessions_are_appended_to_together(&**store, fresh).await;
    racing_appends_leave_no_hole(store, fresh).await;
}

fn session(fresh: &Fresh) -> SessionId {
    SessionId(fresh.number())
}

fn message(session: SessionId, epoch: u32, seq: u64) -> MessageRecord {
    MessageRecord {
        session,
        epoch,
        seq,
        side: if seq.is_multiple_of(2) { Side::Agent } else { Side::User },
        sender: gateway_core::id::PrincipalId::parse("p:1").expect("valid"),
        client_msg_id: ClientMsgId::parse(&format!("m{seq}")).expect("valid"),
        kind: "text".to_owned(),
        content: format!("message {seq}"),
        recalled: false,
        bot: seq.is_multiple_of(3),
        at: now(),
    }
}

fn run(session: SessionId, epoch: u32, seqs: impl IntoIterator<Item = u64>) -> Vec<MessageRecord> {
    seqs.into_iter().map(|seq| message(session, epoch, seq)).collect()
}

async fn append(store: &dyn Roaming, messages: &[MessageRecord]) {
    store.append(messages).await.expect("append");
}

async fn after(store: &dyn Roaming, session: SessionId, seq: u64, epoch: u32) -> Option<Vec<u64>> {
    let rows = store.after(session, seq, epoch, 1_000).await.expect("after");
    rows.map(|rows| rows.iter().map(|row| row.seq).collect())
}

async fn top(store: &dyn Roaming, session: SessionId) -> Option<(u32, u64)> {
    let tops = store.tops(&[session]).await.expect("tops");
    assert_eq!(tops.len(), 1);
    tops[0].map(|Position { epoch, seq }| (epoch, seq))
}

/// Nothing is as good as not being asked.
pub async fn nothing_is_known_of_a_session_without_messages(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    append(store, &[]).await;
    assert_eq!(top(store, session).await, None);
    assert_eq!(after(store, session, 0, 1).await, None);
    assert_eq!(store.tops(&[]).await.expect("tops"), []);
}

/// Every field, whatever clients write.
pub async fn what_was_appended_is_read_back_letter_by_letter(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    let mut rows = run(session, 1, 1..=7);
    rows[0].content = "\",\"gone\":true,\"\\ \u{0} 你好 😂 \r\n\u{2028}".to_owned();
    rows[1].content = "x".repeat(64 * 1024);
    rows[2].kind = "order_card".to_owned();
    rows[2].content = r#"{"content":"","orderNo":"SKABCDEFGHIJ234567"}"#.to_owned();
    rows[3].client_msg_id = ClientMsgId::parse("a'b{}%1").unwrap_or_else(|_| ClientMsgId::parse("a-b").expect("valid"));
    rows[4].at = UnixMillis(1_780_300_000_123);
    rows[5].content.clear();
    rows[5].recalled = true;
    append(store, &rows).await;
    assert_eq!(store.after(session, 0, 1, 100).await.expect("after"), Some(rows));
    assert_eq!(top(store, session).await, Some((1, 7)));
}

/// The oldest ones first, no more than asked for.
pub async fn pages_go_on_where_the_last_one_ended(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    append(store, &run(session, 1, 1..=10)).await;
    let mut seen = Vec::new();
    loop {
        let after = seen.last().copied().unwrap_or(0);
        let page = store.after(session, after, 1, 4).await.expect("after").expect("known");
        assert!(page.len() <= 4);
        seen.extend(page.iter().map(|row| row.seq));
        if page.len() < 4 {
            break;
        }
    }
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    assert_eq!(after(store, session, 10, 1).await, Some(Vec::new()), "all of it is known to be there");
    assert_eq!(store.after(session, 2, 1, 0).await.expect("after"), Some(Vec::new()));
}

/// Before its first message, beyond its last, in another epoch.
pub async fn a_place_that_is_not_kept_is_no_answer(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    append(store, &run(session, 2, 5..=8)).await;
    assert_eq!(after(store, session, 4, 2).await, Some(vec![5, 6, 7, 8]));
    assert_eq!(after(store, session, 3, 2).await, None, "5 may not be the first after 3");
    assert_eq!(after(store, session, 9, 2).await, None, "what comes after 9 is not known");
    for epoch in [1, 3] {
        assert_eq!(after(store, session, 6, epoch).await, None);
    }
}

/// Alone, together with news, and long gone.
pub async fn messages_that_come_again_change_nothing(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    let rows = run(session, 1, 1..=6);
    append(store, &rows[..4]).await;
    let changed = MessageRecord { content: "another".to_owned(), ..rows[2].clone() };
    append(store, &[changed]).await;
    append(store, &rows[1..]).await;
    append(store, &rows[..1]).await;
    append(store, &run(session, 0, 1..=9)).await;
    assert_eq!(store.after(session, 0, 1, 100).await.expect("after"), Some(rows));
}

/// What is missing stays missing here.
pub async fn a_gap_begins_the_list_anew(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    append(store, &run(session, 1, 1..=3)).await;
    append(store, &run(session, 1, [5, 6])).await;
    assert_eq!(after(store, session, 3, 1).await, None);
    assert_eq!(after(store, session, 4, 1).await, Some(vec![5, 6]));
    append(store, &run(session, 1, [4])).await;
    assert_eq!(after(store, session, 3, 1).await, None, "it comes too late");
    assert_eq!(after(store, session, 4, 1).await, Some(vec![5, 6]));
    append(store, &run(session, 1, [7, 9, 10])).await;
    assert_eq!(after(store, session, 8, 1).await, Some(vec![9, 10]), "also within one call");
    assert_eq!(after(store, session, 6, 1).await, None);
}

/// Numbers go on above; the former epoch is the ledger's alone.
pub async fn an_epoch_begins_the_list_anew(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    append(store, &run(session, 1, 1..=5)).await;
    append(store, &run(session, 2, [6])).await;
    assert_eq!(after(store, session, 5, 2).await, Some(vec![6]), "the very next number, and yet another stream");
    assert_eq!(after(store, session, 4, 2).await, None);
    assert_eq!(after(store, session, 5, 1).await, None);
    append(store, &run(session, 1, [6, 7])).await;
    assert_eq!(after(store, session, 5, 2).await, Some(vec![6]), "the former one is over");
    assert_eq!(top(store, session).await, Some((2, 6)));
}

/// By epoch first, then by number.
pub async fn tops_rise_only(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    for (epoch, seq, top_after) in [(1, 9, (1, 9)), (1, 4, (1, 9)), (1, 10, (1, 10)), (2, 3, (2, 3)), (1, 99, (2, 3)), (10, 1, (10, 1))] {
        append(store, &run(session, epoch, [seq])).await;
        assert_eq!(top(store, session).await, Some(top_after), "after {epoch}:{seq}");
    }
    let far = run(session, 10, [9_007_199_254_740_990, 9_007_199_254_740_991]);
    append(store, &far).await;
    assert_eq!(top(store, session).await, Some((10, 9_007_199_254_740_991)));
    assert_eq!(store.after(session, 9_007_199_254_740_989, 10, 9).await.expect("after"), Some(far), "no number is rounded");
}

/// A replay tells of both, and the words are gone; whatever they were.
pub async fn a_recall_takes_the_content_out_and_keeps_the_order(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    let contents = ["secret", "\",\"at\":5}", "a \\\" b \\\\", "{\"content\":\"\",\"x\":\"\"}", "", "secret"];
    let mut rows = run(session, 1, 1..=6);
    for (row, content) in rows.iter_mut().zip(contents) {
        row.content = content.to_owned();
    }
    append(store, &rows).await;
    let recall = |seq: u64, named: u64| MessageRecord { kind: RECALLED.into(), content: named.to_string(), ..message(session, 1, seq) };
    // The last one is recalled by the next message of the same call, and one that is gone already again.
    let mut later = vec![recall(7, 1), recall(8, 2), recall(9, 3), recall(10, 4), recall(11, 5), recall(12, 1)];
    later.push(message(session, 1, 13));
    later.push(recall(14, 13));
    append(store, &later).await;
    for row in rows.iter_mut().take(5).chain(later.iter_mut().filter(|row| row.seq == 13)) {
        row.content.clear();
        row.recalled = true;
    }
    rows.extend(later);
    assert_eq!(store.after(session, 0, 1, 100).await.expect("after"), Some(rows.clone()));
    // One that is kept no more, or never was, is no reason to fail.
    for (seq, named) in [(15, 99), (16, 0), (17, 17)] {
        append(store, &[recall(seq, named)]).await;
    }
    append(store, &[MessageRecord { content: "many".into(), ..recall(18, 1) }]).await;
    assert_eq!(after(store, session, 14, 1).await, Some(vec![15, 16, 17, 18]));
    append(store, &run(session, 1, [20])).await;
    append(store, &[recall(21, 13)]).await;
    assert_eq!(after(store, session, 19, 1).await, Some(vec![20, 21]));
}

/// The bound holds however they come, and older ones are asked of the ledger.
pub async fn the_latest_messages_are_kept(store: &dyn Roaming, fresh: &Fresh) {
    let session = session(fresh);
    let max = ROAMING_MAX as u64;
    append(store, &run(session, 1, 1..=max - 5)).await;
    append(store, &run(session, 1, max - 4..=max + 10)).await;
    assert_eq!(after(store, session, 9, 1).await, None);
    assert_eq!(after(store, session, 10, 1).await, Some((11..=max + 10).collect()));
    let recall = MessageRecord { kind: RECALLED.into(), content: "12".into(), ..message(session, 1, max + 11) };
    append(store, &[recall]).await;
    let rows = store.after(session, 11, 1, 2).await.expect("after").expect("kept");
    assert_eq!((rows[0].seq, rows[0].recalled, rows[1].seq, rows[1].recalled), (12, true, 13, false));
}

/// In any mixture; answers come in the order of the question.
pub async fn sessions_are_appended_to_together(store: &dyn Roaming, fresh: &Fresh) {
    let (one, two, none) = (session(fresh), session(fresh), session(fresh));
    let many: Vec<_> = (0..100).map(|_| session(fresh)).collect();
    let mut mixed = Vec::new();
    for seq in 1..=3 {
        mixed.extend([message(one, 1, seq), message(two, 4, 10 + seq)]);
        mixed.extend(many.iter().map(|session| message(*session, 1, seq)));
    }
    append(store, &mixed).await;
    assert_eq!(after(store, one, 0, 1).await, Some(vec![1, 2, 3]));
    assert_eq!(after(store, two, 10, 4).await, Some(vec![11, 12, 13]));
    let tops = store.tops(&[two, none, one, two]).await.expect("tops");
    let two = Some(Position { epoch: 4, seq: 13 });
    assert_eq!(tops, [two, None, Some(Position { epoch: 1, seq: 3 }), two]);
    assert_eq!(store.tops(&many).await.expect("tops"), vec![Some(Position { epoch: 1, seq: 3 }); 100]);
}

/// Whoever is first, and also when one that was overtaken comes last: what is read has no hole.
pub async fn racing_appends_leave_no_hole(store: &Arc<dyn Roaming>, fresh: &Fresh) {
    let session = session(fresh);
    append(&**store, &run(session, 1, [1])).await;
    let race = |n: u64| {
        let store = Arc::clone(store);
        tokio::spawn(async move { append(&*store, &run(session, 1, [2 + n])).await })
    };
    let racers: Vec<_> = (0..30).map(race).collect();
    for racer in racers {
        racer.await.expect("racer");
    }
    assert_eq!(top(&**store, session).await, Some((1, 31)));
    for seq in 0..=31 {
        if let Some(rows) = after(&**store, session, seq, 1).await {
            assert_eq!(rows, (seq + 1..=31).collect::<Vec<_>>(), "complete, or no answer");
        }
    }
}
