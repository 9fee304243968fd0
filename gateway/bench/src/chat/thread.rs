//! One client's side of one conversation, by the protocol's rules for clients: what it shows, what it still has to get accepted,
//! what it sends next.
//!
//! Counting: the next number is shown, a smaller one dropped, a larger one means that something is missing and is asked for.
//! Sending: what is not accepted is sent again with its old id, the oldest first. What never happens here: a socket, a wait.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::script::{Script, content};

/// Messages sent and not accepted at a time.
const WINDOW: usize = 16;
/// How long something may stay without an answer before it is sent, or asked for, again.
const AGAIN_AFTER: Duration = Duration::from_secs(3);
/// Between two marks of how far somebody has read.
const READ_EVERY: Duration = Duration::from_secs(2);

/// A message that is shown: its seq, and its number in the script; `None` for one that is not of the script.
pub(super) type Shown = (u64, Option<u32>);

#[derive(Debug, Clone, Copy)]
struct Unaccepted {
    number: u32,
    sent_before: bool,
}

/// What a message, or the acceptance of one, was to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// Shown now.
    Shown,
    /// It had been shown.
    Repeat,
    /// Something before it is missing, and is being asked for.
    Early,
}

#[derive(Debug)]
pub(super) struct Thread {
    session: Option<String>,
    epoch: String,
    last: u64,
    shown: Vec<Shown>,
    outbox: VecDeque<Unaccepted>,
    /// How many of the outbox, from its front, were sent on this connection.
    sent: usize,
    /// A `resume` is to be sent.
    resumes: bool,
    /// One was sent and not answered: what is newer comes with its answer.
    resuming: bool,
    /// Nothing is sent before this; then the outbox is sent from its front.
    held: Option<Instant>,
    /// When there was last an answer, or something sent.
    moved: Instant,
    read: (u64, Instant),
    /// Messages sent again.
    resends: u64,
}

impl Thread {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            session: None,
            epoch: String::new(),
            last: 0,
            shown: Vec::new(),
            outbox: VecDeque::new(),
            sent: 0,
            resumes: false,
            resuming: false,
            held: None,
            moved: now,
            read: (0, now),
            resends: 0,
        }
    }

    /// Its session, once there is one.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// What it shows, in the order in which it does.
    pub(super) fn shown(&self) -> &[Shown] {
        &self.shown
    }

    /// What was written and not accepted.
    pub(super) fn unaccepted(&self) -> impl Iterator<Item = u32> {
        self.outbox.iter().map(|message| message.number)
    }

    /// How often messages were sent again.
    pub(super) fn resends(&self) -> u64 {
        self.resends
    }

    /// The session exists, and is read from its start.
    pub(super) fn begins(&mut self, session: &str, epoch: &str) {
        self.session = Some(session.to_owned());
        epoch.clone_into(&mut self.epoch);
        self.resumes = true;
    }

    /// A new connection: nothing was sent on it.
    pub(super) fn connected(&mut self, now: Instant) {
        self.sent = 0;
        self.resumes = self.session.is_some();
        self.resuming = false;
        self.held = None;
        self.moved = now;
    }

    /// The client writes a message.
    pub(super) fn write(&mut self, number: u32) {
        self.outbox.push_back(Unaccepted { number, sent_before: false });
    }

    /// An own message is stored; whether that was not known.
    pub(super) fn accepted(&mut self, number: u32, now: Instant) -> bool {
        let Some(at) = self.outbox.iter().position(|message| message.number == number) else { return false };
        self.outbox.remove(at);
        self.sent -= usize::from(at < self.sent);
        self.moved = now;
        true
    }

    /// A message of the session, or an acceptance, which stands for one.
    pub(super) fn count(&mut self, seq: u64, number: Option<u32>) -> Counted {
        if seq <= self.last {
            return Counted::Repeat;
        }
        if seq > self.last + 1 {
            self.resumes |= !self.resuming;
            return Counted::Early;
        }
        self.last = seq;
        self.shown.push((seq, number));
        Counted::Shown
    }

    /// Answer to a `resume`: this far.
    pub(super) fn replayed(&mut self, more: bool, now: Instant) {
        self.resuming = false;
        self.resumes |= more;
        self.moved = now;
    }

    /// The server counts anew. Numbers that were never used are passed over, and found missing in the end; everything else is
    /// read again from the start of the session.
    pub(super) fn resynced(&mut self, epoch: &str, max_seq: u64, reason: &str, now: Instant) {
        self.replayed(true, now);
        epoch.clone_into(&mut self.epoch);
        if reason == "gap" {
            self.last = self.last.max(max_seq);
        } else {
            self.last = 0;
            self.shown.clear();
        }
    }

    /// The server could not: what was asked or sent is tried again after `pause`.
    pub(super) fn put_off(&mut self, pause: Duration, now: Instant) {
        self.resumes |= self.resuming;
        self.resuming = false;
        self.held.get_or_insert(now + pause);
    }

    /// When [`Thread::frames`] has something to do without anything having arrived.
    pub(super) fn wakes(&self) -> Option<Instant> {
        self.held.or_else(|| (self.sent > 0 || self.resuming).then(|| self.moved + AGAIN_AFTER))
    }

    /// What it sends now.
    pub(super) fn frames(&mut self, script: &Script, now: Instant, out: &mut Vec<String>) {
        let Some(session) = &self.session else { return };
        if self.wakes().is_some_and(|wakes| wakes <= now) {
            // Silence is an answer too: whatever was sent, and whatever should have come, may be lost.
            self.resumes |= self.held.is_none();
            self.held = None;
            self.sent = 0;
        }
        if self.held.is_some() {
            return;
        }
        if self.resumes {
            let position = json!({ "sessionId": session, "epoch": self.epoch, "lastSeq": self.last });
            out.push(json!({ "type": "resume", "positions": [position] }).to_string());
            (self.resumes, self.resuming, self.moved) = (false, true, now);
        }
        while self.sent < WINDOW
            && let Some(message) = self.outbox.get_mut(self.sent)
        {
            self.resends += u64::from(message.sent_before);
            message.sent_before = true;
            self.sent += 1;
            self.moved = now;
            let number = message.number;
            let frame = json!({ "type": "text", "sessionId": session, "content": content(number), "clientMsgId": script.key(number) });
            out.push(frame.to_string());
        }
        if self.last > self.read.0 && now >= self.read.1 + READ_EVERY {
            self.read = (self.last, now);
            out.push(json!({ "type": "ack", "sessionId": session, "lastSeq": self.last }).to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    struct Case {
        thread: Thread,
        script: Script,
        now: Instant,
    }

    impl Case {
        /// On its first connection, with what is older asked for and answered.
        fn new() -> Self {
            let now = Instant::now();
            let mut thread = Thread::new(now);
            thread.connected(now);
            thread.begins("9001", "1");
            let mut case = Self { thread, script: Script::new(1, 1, 100, Duration::from_secs(1), 0), now };
            assert_eq!(case.sends(), ["resume after 0"]);
            case.thread.replayed(false, now);
            case
        }

        fn sends(&mut self) -> Vec<String> {
            let mut frames = Vec::new();
            self.thread.frames(&self.script, self.now, &mut frames);
            let told = |frame: &String| {
                let frame: Value = serde_json::from_str(frame).unwrap();
                match frame["type"].as_str().unwrap() {
                    "resume" => format!("resume after {}", frame["positions"][0]["lastSeq"]),
                    "text" => self.script.number(frame["clientMsgId"].as_str().unwrap()).unwrap().to_string(),
                    kind => format!("{kind} {}", frame["lastSeq"]),
                }
            };
            frames.iter().map(told).collect()
        }
    }

    #[test]
    fn what_is_refused_is_sent_again_with_all_after_it_oldest_first() {
        let mut case = Case::new();
        (0..3).for_each(|number| case.thread.write(number));
        assert_eq!(case.sends(), ["0", "1", "2"]);
        assert!(case.thread.accepted(0, case.now));
        case.thread.put_off(Duration::from_millis(500), case.now);
        case.thread.write(3);
        assert_eq!(case.sends(), [""; 0], "nothing passes what was put off");
        case.now = case.thread.wakes().unwrap();
        assert_eq!(case.sends(), ["1", "2", "3"]);
        assert_eq!(case.thread.resends(), 2);
        assert!(!case.thread.accepted(0, case.now), "known");
    }

    #[test]
    fn a_new_connection_resumes_and_sends_what_is_not_accepted() {
        let mut case = Case::new();
        case.thread.write(0);
        case.sends();
        assert_eq!(case.thread.count(1, Some(7)), Counted::Shown);
        case.thread.connected(case.now);
        assert_eq!(case.sends(), ["resume after 1", "0"]);
    }

    #[test]
    fn a_gap_is_asked_for_once_and_repeats_are_dropped() {
        let mut case = Case::new();
        assert_eq!(case.thread.count(1, Some(0)), Counted::Shown);
        assert_eq!(case.thread.count(1, Some(0)), Counted::Repeat);
        assert_eq!(case.thread.count(4, Some(3)), Counted::Early);
        assert_eq!(case.sends(), ["resume after 1"]);
        assert_eq!(case.thread.count(5, Some(4)), Counted::Early);
        assert_eq!(case.sends(), [""; 0]);
        for (seq, number) in [(2, 1), (3, 2), (4, 3), (5, 4)] {
            assert_eq!(case.thread.count(seq, Some(number)), Counted::Shown);
        }
        case.thread.replayed(false, case.now);
        assert_eq!(case.thread.shown(), [(1, Some(0)), (2, Some(1)), (3, Some(2)), (4, Some(3)), (5, Some(4))]);
    }

    #[test]
    fn silence_makes_it_ask_and_send_again() {
        let mut case = Case::new();
        case.thread.write(0);
        case.sends();
        case.now += AGAIN_AFTER;
        assert_eq!(case.sends(), ["resume after 0", "0"]);
    }

    #[test]
    fn no_more_is_under_way_than_the_window() {
        let mut case = Case::new();
        (0..50).for_each(|number| case.thread.write(number));
        assert_eq!(case.sends().len(), WINDOW);
        assert!(case.thread.accepted(0, case.now));
        assert_eq!(case.sends(), ["16"]);
    }

    #[test]
    fn another_epoch_is_read_from_its_start_and_numbers_never_used_are_passed_over() {
        let mut case = Case::new();
        case.thread.count(1, Some(0));
        case.thread.resynced("2", 1, "epoch", case.now);
        assert_eq!(case.sends(), ["resume after 0"]);
        assert_eq!(case.thread.shown(), []);
        case.thread.count(1, Some(0));
        case.thread.resynced("2", 5, "gap", case.now);
        assert_eq!(case.sends(), ["resume after 5"]);
        case.thread.count(6, Some(1));
        assert_eq!(case.thread.shown(), [(1, Some(0)), (6, Some(1))], "the hole stays to be seen");
    }

    #[test]
    fn it_says_how_far_it_has_read_now_and_then() {
        let mut case = Case::new();
        (1..=3).for_each(|seq| assert_eq!(case.thread.count(seq, None), Counted::Shown));
        assert_eq!(case.sends(), [""; 0]);
        case.now += READ_EVERY;
        assert_eq!(case.sends(), ["ack 3"]);
        assert_eq!(case.sends(), [""; 0]);
    }
}
