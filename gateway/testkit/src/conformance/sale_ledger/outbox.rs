//! What is owed to the outside is done at least once.

use std::time::Duration;

use gateway_core::ports::SaleLedger;
use gateway_core::sale::outbox::HIDDEN_FOR;
use gateway_core::sale::{CancelOutcome, LetterKind, LetterState, OrderEvent, OutboxEntry};

use super::letters::letter_of;
use super::*;

/// Every check.
pub async fn all(store: &dyn SaleLedger, fresh: &Fresh) {
    a_task_that_was_taken_is_hidden_for_a_while(store, fresh).await;
    a_finished_task_is_over(store, fresh).await;
    a_failed_task_comes_again_when_it_is_due(store, fresh).await;
    a_task_that_is_given_up_becomes_a_letter(store, fresh).await;
    tasks_come_oldest_first_and_no_more_than_asked_for(store, fresh).await;
}

/// A buyer's order that was cancelled just now, so that one release is owed.
async fn owing(store: &dyn SaleLedger, fresh: &Fresh) -> OrderEvent {
    let lot = selling(store, fresh, 5).await;
    let event = ordered(store, fresh, lot, 1).await;
    assert_eq!(cancel(store, &event).await, CancelOutcome::Cancelled);
    event
}

async fn take(store: &dyn SaleLedger, at: UnixMillis, event: &OrderEvent) -> Option<OutboxEntry> {
    let mut taken = take_tasks(store, at, &[&event.order_no]).await;
    assert!(taken.len() <= 1, "{taken:?}");
    taken.pop()
}

/// Whoever took it may have died; then it comes again, with its attempts counted.
pub async fn a_task_that_was_taken_is_hidden_for_a_while(store: &dyn SaleLedger, fresh: &Fresh) {
    let (event, start) = (owing(store, fresh).await, now());
    let first = take(store, start, &event).await.expect("due at once");
    assert_eq!(first.attempts, 1);
    let again = start.plus(HIDDEN_FOR);
    assert_eq!(take(store, start, &event).await, None);
    assert_eq!(take(store, UnixMillis(again.0 - 1), &event).await, None);
    let second = take(store, again, &event).await.expect("nobody finished it");
    assert_eq!(second, OutboxEntry { attempts: 2, ..first });
}

/// Finishing twice, or what nobody knows, is harmless.
pub async fn a_finished_task_is_over(store: &dyn SaleLedger, fresh: &Fresh) {
    let (event, start) = (owing(store, fresh).await, now());
    let task = take(store, start, &event).await.expect("due at once");
    for _ in 0..2 {
        store.finish_tasks(&[task.id, u64::MAX >> 2]).await.expect("finish tasks");
        assert_eq!(take(store, start.plus(HIDDEN_FOR * 2), &event).await, None);
    }
    store.finish_tasks(&[]).await.expect("finish nothing");
    store.fail_task(task.id, "too late", Some(start)).await.expect("fail a task");
    assert_eq!(take(store, start.plus(HIDDEN_FOR * 4), &event).await, None, "a late failure does not bring it back");
}

/// Not earlier, not hidden for longer.
pub async fn a_failed_task_comes_again_when_it_is_due(store: &dyn SaleLedger, fresh: &Fresh) {
    let (event, start) = (owing(store, fresh).await, now());
    let task = take(store, start, &event).await.expect("due at once");
    let again = start.plus(Duration::from_secs(5));
    store.fail_task(task.id, "the store is away", Some(again)).await.expect("fail a task");
    assert_eq!(take(store, UnixMillis(again.0 - 1), &event).await, None);
    assert_eq!(take(store, again, &event).await.map(|task| task.attempts), Some(2));
    let letters = store.letters(false, 0, 1_000).await.expect("letters");
    assert!(letters.iter().all(|letter| letter.what.source_id != task.id.to_string() || letter.what.kind != LetterKind::Outbox));
}

/// It is not due any more, still owed, and an operator sees why.
pub async fn a_task_that_is_given_up_becomes_a_letter(store: &dyn SaleLedger, fresh: &Fresh) {
    let (event, start) = (owing(store, fresh).await, now());
    let task = take(store, start, &event).await.expect("due at once");
    let long = "没有 refund target ".repeat(100);
    store.fail_task(task.id, &long, None).await.expect("give a task up");
    assert_eq!(take(store, start.plus(HIDDEN_FOR * 4), &event).await, None);
    let letter = letter_of(store, LetterKind::Outbox, &task.id.to_string()).await.expect("a letter was written");
    assert_eq!((letter.state, letter.what.attempts, letter.decision), (LetterState::Open, 1, None));
    assert!(letter.what.payload.contains(event.order_no.as_str()), "{}", letter.what.payload);
    assert_eq!(letter.what.error, long.chars().take(512).collect::<String>());
}

/// By when they are due.
pub async fn tasks_come_oldest_first_and_no_more_than_asked_for(store: &dyn SaleLedger, fresh: &Fresh) {
    let start = now();
    let events = [owing(store, fresh).await, owing(store, fresh).await, owing(store, fresh).await];
    let numbers: Vec<_> = events.iter().map(|event| &event.order_no).collect();
    let tasks = take_tasks(store, now(), &numbers).await;
    assert_eq!(tasks.iter().map(|entry| order_of(&entry.task)).collect::<Vec<_>>(), numbers);
    assert_eq!(store.take_tasks(start.plus(HIDDEN_FOR * 4), 0).await.expect("take nothing"), []);
    // The last one is due first, long before anything else.
    for (entry, seconds) in tasks.iter().zip([3, 2, 1]) {
        store.fail_task(entry.id, "later", Some(UnixMillis(seconds * 1_000))).await.expect("fail a task");
    }
    let next = async || store.take_tasks(UnixMillis(10_000), 1).await.expect("take one");
    for want in numbers.iter().rev() {
        let taken = next().await;
        assert_eq!(taken.iter().map(|entry| order_of(&entry.task)).collect::<Vec<_>>(), [*want]);
    }
    assert_eq!(next().await, []);
    store.finish_tasks(&tasks.iter().map(|entry| entry.id).collect::<Vec<_>>()).await.expect("finish tasks");
}
