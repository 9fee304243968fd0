//! What could not be done waits for an operator, who decides once.

use gateway_core::ports::SaleLedger;
use gateway_core::sale::outbox::HIDDEN_FOR;
use gateway_core::sale::{
    CancelOutcome, DecideOutcome, Decision, Invariant, Letter, LetterKind, LetterState, NewLetter, Verdict, books as rules,
};

use super::*;

/// Every check.
pub async fn all(store: &dyn SaleLedger, fresh: &Fresh) {
    a_letter_is_written_once_per_source(store, fresh).await;
    letters_are_paged_in_order(store, fresh).await;
    a_letter_is_decided_once_and_says_by_whom(store, fresh).await;
    an_event_cannot_be_retried(store, fresh).await;
    a_retried_task_is_due_at_once_and_its_letter_opens_again_when_it_fails(store, fresh).await;
    a_discarded_task_is_not_due_any_more(store, fresh).await;
    a_retried_invariant_that_holds_changes_no_counter(store, fresh).await;
}

/// The letter of a source, whatever its state.
pub(super) async fn letter_of(store: &dyn SaleLedger, kind: LetterKind, source_id: &str) -> Option<Letter> {
    let mut after = 0;
    loop {
        let page = store.letters(false, after, 1_000).await.expect("letters");
        after = page.last()?.id;
        if let Some(letter) = page.into_iter().find(|letter| letter.what.kind == kind && letter.what.source_id == source_id) {
            return Some(letter);
        }
    }
}

fn letter(fresh: &Fresh, kind: LetterKind) -> NewLetter {
    let payload = "{\"raw\":\"x \\\"y\\\" 😂\"}".to_owned();
    NewLetter {
        kind,
        source_id: format!("1:2:{}-0", fresh.number()),
        payload,
        error: "无法读取 not an order event".to_owned(),
        attempts: 3,
    }
}

async fn write(store: &dyn SaleLedger, letter: &NewLetter) -> Letter {
    store.write_letter(letter, now()).await.expect("write a letter");
    letter_of(store, letter.kind, &letter.source_id).await.expect("it was written")
}

fn decision(fresh: &Fresh) -> Decision {
    Decision { by: fresh.word("operator"), at: now(), note: "看过了 seen it".to_owned() }
}

async fn decide(store: &dyn SaleLedger, id: u64, verdict: Verdict, decision: &Decision) -> DecideOutcome {
    store.decide_letter(id, verdict, decision).await.expect("decide a letter")
}

/// Again, it has the new error and the new attempts, and counts as one.
pub async fn a_letter_is_written_once_per_source(store: &dyn SaleLedger, fresh: &Fresh) {
    let (new, open) = (letter(fresh, LetterKind::Event), store.letters_open().await.expect("letters open"));
    let before = now();
    let first = write(store, &new).await;
    assert_eq!((&first.what.error, first.what.attempts, first.state, &first.decision), (&new.error, 3, LetterState::Open, &None));
    assert!(first.created >= before && first.created <= now(), "{:?}", first.created);
    let text: serde_json::Value = serde_json::from_str(&first.what.payload).expect("the payload is JSON");
    assert_eq!(text["raw"], "x \"y\" 😂");
    let again = write(store, &NewLetter { error: "still".to_owned(), attempts: 4, ..new.clone() }).await;
    assert_eq!((again.id, again.what.error.as_str(), again.what.attempts), (first.id, "still", 4));
    assert_eq!(again.created, first.created);
    assert_eq!(store.letters_open().await.expect("letters open"), open + 1);
    let other = write(store, &NewLetter { kind: LetterKind::Invariant, ..new }).await;
    assert_ne!(other.id, first.id, "the same source of another kind is another letter");
}

/// By id, after the one named, no more than asked for; decided ones only when asked for.
pub async fn letters_are_paged_in_order(store: &dyn SaleLedger, fresh: &Fresh) {
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(write(store, &letter(fresh, LetterKind::Event)).await.id);
    }
    assert!(ids.is_sorted(), "{ids:?}");
    let page = async |open_only, max| -> Vec<u64> {
        let letters = store.letters(open_only, ids[0] - 1, max).await.expect("letters");
        letters.iter().map(|letter| letter.id).collect()
    };
    assert_eq!(page(true, 2).await, ids[..2]);
    assert!(page(true, 0).await.is_empty());
    let outcome = decide(store, ids[1], Verdict::Discard, &decision(fresh)).await;
    assert!(matches!(outcome, DecideOutcome::Decided(_)), "{outcome:?}");
    assert_eq!(page(true, 10).await, [ids[0], ids[2]]);
    assert_eq!(page(false, 10).await, ids);
    assert_eq!(store.letters(false, u64::MAX >> 2, 10).await.expect("letters"), []);
}

/// The audit line stays, also when it opens again.
pub async fn a_letter_is_decided_once_and_says_by_whom(store: &dyn SaleLedger, fresh: &Fresh) {
    let (new, line) = (letter(fresh, LetterKind::Event), decision(fresh));
    let written = write(store, &new).await;
    let open = store.letters_open().await.expect("letters open");
    let decided = Letter { state: LetterState::Discarded, decision: Some(line.clone()), ..written.clone() };
    assert_eq!(decide(store, written.id, Verdict::Discard, &line).await, DecideOutcome::Decided(decided.clone()));
    assert_eq!(store.letters_open().await.expect("letters open"), open - 1);
    for verdict in [Verdict::Discard, Verdict::Retry] {
        let outcome = decide(store, written.id, verdict, &decision(fresh)).await;
        assert_eq!(outcome, DecideOutcome::NotOpen(LetterState::Discarded), "{verdict:?}");
    }
    assert_eq!(letter_of(store, new.kind, &new.source_id).await, Some(decided));
    assert_eq!(decide(store, u64::MAX >> 2, Verdict::Discard, &line).await, DecideOutcome::NotFound);
    assert_eq!(write(store, &new).await.state, LetterState::Open, "it happened again");
}

/// Its units are back in the sale; it can be dismissed.
pub async fn an_event_cannot_be_retried(store: &dyn SaleLedger, fresh: &Fresh) {
    let written = write(store, &letter(fresh, LetterKind::Event)).await;
    assert_eq!(decide(store, written.id, Verdict::Retry, &decision(fresh)).await, DecideOutcome::NothingToRetry);
    let outcome = decide(store, written.id, Verdict::Discard, &decision(fresh)).await;
    assert!(matches!(outcome, DecideOutcome::Decided(_)), "it was still open: {outcome:?}");
}

/// A cancelled order's release that was given up: the task's id, its order and its letter.
async fn given_up(store: &dyn SaleLedger, fresh: &Fresh) -> (u64, OrderNo, Letter) {
    let lot = selling(store, fresh, 5).await;
    let event = ordered(store, fresh, lot, 1).await;
    assert_eq!(cancel(store, &event).await, CancelOutcome::Cancelled);
    let task = take_tasks(store, now(), &[&event.order_no]).await.pop().expect("due at once");
    store.fail_task(task.id, "gave up", None).await.expect("give a task up");
    let letter = letter_of(store, LetterKind::Outbox, &task.id.to_string()).await.expect("a letter was written");
    (task.id, event.order_no, letter)
}

/// One letter for all its failures.
pub async fn a_retried_task_is_due_at_once_and_its_letter_opens_again_when_it_fails(store: &dyn SaleLedger, fresh: &Fresh) {
    let (id, order_no, letter) = given_up(store, fresh).await;
    let outcome = decide(store, letter.id, Verdict::Retry, &decision(fresh)).await;
    let DecideOutcome::Decided(retried) = outcome else { panic!("{outcome:?}") };
    assert_eq!(retried.state, LetterState::Retried);
    let again = take_tasks(store, now(), &[&order_no]).await;
    assert_eq!(again.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id]);
    store.fail_task(id, "gave up again", None).await.expect("give a task up");
    let reopened = letter_of(store, LetterKind::Outbox, &id.to_string()).await.expect("the letter is there");
    assert_eq!((reopened.id, reopened.state, reopened.what.error.as_str()), (letter.id, LetterState::Open, "gave up again"));
    let outcome = decide(store, letter.id, Verdict::Retry, &decision(fresh)).await;
    assert!(matches!(outcome, DecideOutcome::Decided(_)), "{outcome:?}");
    let task = take_tasks(store, now(), &[&order_no]).await.pop().expect("due at once");
    store.finish_tasks(&[task.id]).await.expect("finish tasks");
}

/// The operator took it over.
pub async fn a_discarded_task_is_not_due_any_more(store: &dyn SaleLedger, fresh: &Fresh) {
    let (_, order_no, letter) = given_up(store, fresh).await;
    let outcome = decide(store, letter.id, Verdict::Discard, &decision(fresh)).await;
    assert!(matches!(outcome, DecideOutcome::Decided(_)), "{outcome:?}");
    assert_eq!(take_tasks(store, now().plus(HIDDEN_FOR * 4), &[&order_no]).await, []);
}

/// Mending what is whole mends nothing.
pub async fn a_retried_invariant_that_holds_changes_no_counter(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    ordered(store, fresh, lot, 2).await;
    let before = books(store, lot).await;
    for invariant in Invariant::ALL {
        let source_id = format!("{lot}:{}", invariant.as_str());
        let written = write(store, &NewLetter { source_id, ..letter(fresh, LetterKind::Invariant) }).await;
        let outcome = decide(store, written.id, Verdict::Retry, &decision(fresh)).await;
        assert!(matches!(&outcome, DecideOutcome::Decided(letter) if letter.state == LetterState::Retried), "{invariant:?}: {outcome:?}");
        assert_eq!(books(store, lot).await, before, "{invariant:?}");
    }
    assert_eq!(rules::in_ledger(&before), []);
}
