//! Service clocks: started and stopped by messages, overdue once for each time they were started.

use gateway_core::chat::sla::{Clock, Targets};

use super::*;

/// Every check of this room.
pub async fn all(store: &dyn ChatLedger, fresh: &Fresh) {
    an_answer_of_a_person_stops_the_clock(store, fresh).await;
    what_was_stored_before_stops_nothing(store, fresh).await;
    an_overdue_clock_is_told_once_for_each_start(store, fresh).await;
    a_closed_session_is_not_overdue(store, fresh).await;
    overdue_clocks_come_in_portions(store, fresh).await;
}

/// Decades ago, where nobody else's sessions are; a day for each check.
fn long_ago(fresh: &Fresh) -> UnixMillis {
    UnixMillis(86_400_000 * (1_000 + fresh.number() % 3_000))
}

/// What stopped in each of the outcomes.
fn stopped(outcomes: Vec<Committed>) -> Vec<Option<(Clock, Duration)>> {
    let stopped = |outcome| match outcome {
        Committed::Stored { stopped, .. } => stopped,
        Committed::Conflict | Committed::NotFound | Committed::Closed | Committed::TooLate => panic!("must be stored, got {outcome:?}"),
    };
    outcomes.into_iter().map(stopped).collect()
}

/// The first one the first-response clock, later ones the next-response clock; a bot's none, and a recall neither starts nor
/// stops one.
pub async fn an_answer_of_a_person_stops_the_clock(store: &dyn ChatLedger, fresh: &Fresh) {
    let start = long_ago(fresh);
    let room = Room::opened(store, fresh, start).await;
    let bot = ChatSend { bot: true, ..room.send(fresh, &Party::agent(room.shop, PrincipalId::parse("bot").expect("valid"))) };
    let at = |seconds| shift(start, seconds);
    let say = async |send: ChatSend, seconds| stopped(room.commit_at(store, &[send], at(seconds)).await).remove(0);
    let clocks = async || {
        let clocks = room.record(store).await.clocks;
        (clocks.asked_at, clocks.answered_at)
    };
    assert_eq!(say(room.agent_says(fresh), 1).await, None, "nobody asked");
    assert_eq!(clocks().await, (None, None), "so nothing was answered");
    assert_eq!(say(room.user_says(fresh), 10).await, None);
    assert_eq!(say(room.user_says(fresh), 20).await, None);
    assert_eq!(say(bot, 30).await, None, "a bot answers nobody");
    assert_eq!(clocks().await, (Some(at(10)), None), "the oldest question counts");
    assert_eq!(say(room.recall(fresh, Side::User, 2), 35).await, None);
    assert_eq!(clocks().await, (Some(at(10)), None), "taking it back changes nothing");
    assert_eq!(say(room.agent_says(fresh), 40).await, Some((Clock::FirstResponse, Duration::from_secs(30))));
    assert_eq!(clocks().await, (None, Some(at(40))));
    assert_eq!(say(room.agent_says(fresh), 41).await, None);
    assert_eq!(say(room.recall(fresh, Side::User, 3), 45).await, None);
    assert_eq!(clocks().await, (None, Some(at(40))), "a recall is no question");
    assert_eq!(say(room.user_says(fresh), 50).await, None);
    assert_eq!(say(room.agent_says(fresh), 57).await, Some((Clock::NextResponse, Duration::from_secs(7))));
    let batch = [room.user_says(fresh), room.agent_says(fresh), room.agent_says(fresh), room.user_says(fresh)];
    let outcomes = stopped(room.commit_at(store, &batch, at(60)).await);
    assert_eq!(outcomes, [None, Some((Clock::NextResponse, Duration::ZERO)), None, None], "also within one call");
    assert_eq!(clocks().await, (Some(at(60)), Some(at(40))));
    close(store, &room).await;
}

/// A message sent again answered at its first time, whatever was asked since.
pub async fn what_was_stored_before_stops_nothing(store: &dyn ChatLedger, fresh: &Fresh) {
    let start = long_ago(fresh);
    let room = Room::opened(store, fresh, start).await;
    let (question, answer) = (room.user_says(fresh), room.agent_says(fresh));
    let first = stopped(room.commit_at(store, &[question.clone(), answer.clone()], shift(start, 5)).await);
    assert_eq!(first, [None, Some((Clock::FirstResponse, Duration::ZERO))]);
    room.commit_at(store, &[room.user_says(fresh)], shift(start, 10)).await;
    assert_eq!(stopped(room.commit_at(store, &[question, answer], shift(start, 20)).await), [None, None]);
    assert_eq!(room.record(store).await.clocks.asked_at, Some(shift(start, 10)), "the new question still waits");
    close(store, &room).await;
}

/// Those of `room` among the overdue clocks; of others none are left.
async fn overdue(store: &dyn ChatLedger, room: &Room, targets: &Targets, at: UnixMillis) -> Vec<Clock> {
    let mut found = Vec::new();
    loop {
        let taken = store.take_overdue(targets, at, 100).await.expect("take overdue");
        let full = taken.len() == 100;
        found.extend(taken.into_iter().filter(|(session, _)| session.id == room.session).map(|(_, clock)| clock));
        if !full {
            return found;
        }
    }
}

async fn close(store: &dyn ChatLedger, room: &Room) {
    store.close_session(&room.user, room.session, now()).await.expect("close session").expect("its own");
}

fn targets(first_s: Option<u64>, next_s: Option<u64>, resolution_s: Option<u64>) -> Targets {
    let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
    Targets { first_response: seconds(first_s), next_response: seconds(next_s), resolution: seconds(resolution_s) }
}

/// Strictly longer than its target; and again when it runs again.
pub async fn an_overdue_clock_is_told_once_for_each_start(store: &dyn ChatLedger, fresh: &Fresh) {
    let start = long_ago(fresh);
    let room = Room::opened(store, fresh, start).await;
    let at = |seconds| shift(start, seconds);
    let take = async |seconds| overdue(store, &room, &targets(Some(30), Some(60), Some(3_600)), at(seconds)).await;
    assert_eq!(take(100).await, [], "nobody asked");
    room.commit_at(store, &[room.user_says(fresh)], at(100)).await;
    assert_eq!(take(130).await, [], "just in time");
    assert_eq!(overdue(store, &room, &targets(None, Some(1), None), at(131)).await, [], "a clock without a target");
    assert_eq!(take(131).await, [Clock::FirstResponse]);
    assert_eq!(take(131).await, [], "told once");
    room.commit_at(store, &[room.user_says(fresh)], at(140)).await;
    assert_eq!(take(200).await, [], "a second question starts nothing");
    room.commit_at(store, &[room.agent_says(fresh)], at(210)).await;
    assert_eq!(take(900).await, [], "answered");
    room.commit_at(store, &[room.user_says(fresh)], at(1_000)).await;
    assert_eq!(take(1_060).await, []);
    assert_eq!(take(1_061).await, [Clock::NextResponse]);
    room.commit_at(store, &[room.agent_says(fresh), room.user_says(fresh)], at(1_100)).await;
    assert_eq!(take(1_161).await, [Clock::NextResponse], "it was started again");
    assert_eq!(take(3_600).await, []);
    assert_eq!(take(3_601).await, [Clock::Resolution]);
    room.commit_at(store, &[room.agent_says(fresh), room.user_says(fresh)], at(3_700)).await;
    assert_eq!(take(9_000).await, [Clock::NextResponse], "the long one was told");
    assert_eq!(take(9_000).await, []);
    close(store, &room).await;
}

/// Whatever ran when it was closed.
pub async fn a_closed_session_is_not_overdue(store: &dyn ChatLedger, fresh: &Fresh) {
    let start = long_ago(fresh);
    let room = Room::opened(store, fresh, start).await;
    room.commit_at(store, &[room.user_says(fresh)], start).await;
    close(store, &room).await;
    assert_eq!(overdue(store, &room, &targets(Some(1), Some(1), Some(1)), shift(start, 100)).await, []);
}

/// At most as many as asked for, the rest next time, none twice; the record is the session's.
pub async fn overdue_clocks_come_in_portions(store: &dyn ChatLedger, fresh: &Fresh) {
    let start = UnixMillis(86_400_000 * (100 + fresh.number() % 800));
    let targets = targets(Some(10), None, Some(10));
    let mut rooms = Vec::new();
    for _ in 0..5 {
        let room = Room::opened(store, fresh, start).await;
        room.commit_at(store, &[room.user_says(fresh)], start).await;
        rooms.push(room);
    }
    let mut taken = Vec::new();
    loop {
        let portion = store.take_overdue(&targets, shift(start, 11), 3).await.expect("take overdue");
        assert!(portion.len() <= 3);
        if portion.is_empty() {
            break;
        }
        taken.extend(portion);
    }
    assert_eq!(store.take_overdue(&targets, shift(start, 11), 0).await.expect("take overdue"), []);
    for room in &rooms {
        let record = room.record(store).await;
        let mut of_room: Vec<_> = taken.iter().filter(|(session, _)| session.id == room.session).collect();
        of_room.sort_by_key(|(_, clock)| *clock);
        assert_eq!(of_room, [&(record.clone(), Clock::FirstResponse), &(record, Clock::Resolution)]);
        close(store, room).await;
    }
}
