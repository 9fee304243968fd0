//! What is said: every message of a run with its conversation, its side and the instant it is due, known before the first is sent.
//!
//! A message is a number here; its client id and its content follow from that, so everybody who sees one can tell which it is,
//! whether it is whole, and when it was meant to be sent.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::load::steady;

/// A side of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    User,
    Agent,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::User, Self::Agent];
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Index of the conversation.
    pub(super) conversation: usize,
    /// Who writes it.
    pub(super) side: Side,
    /// When, after the start.
    pub(super) due: Duration,
}

/// All messages of a run, by number and in the order in which they are due.
#[derive(Debug)]
pub(super) struct Script {
    run: u32,
    conversations: usize,
    lines: Vec<Line>,
}

impl Script {
    /// `rate` messages a second over all `conversations`, which take turns in a random order; the sides of each alternate. The
    /// same seed makes the same script.
    pub(super) fn new(run: u32, conversations: usize, rate: u32, over: Duration, seed: u64) -> Self {
        let mut order: Vec<usize> = (0..conversations).collect();
        order.shuffle(&mut StdRng::seed_from_u64(seed.rotate_left(16)));
        let line = |(number, due): (usize, Duration)| {
            let (round, turn) = (number / conversations, number % conversations);
            Line { conversation: order[turn], side: Side::BOTH[(round + turn) % 2], due }
        };
        Self { run, conversations, lines: steady(rate, over, seed).into_iter().enumerate().map(line).collect() }
    }

    /// How many messages there are.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Message `number`.
    pub(super) fn line(&self, number: u32) -> Line {
        self.lines[number as usize]
    }

    /// The numbers of each conversation's messages.
    pub(super) fn by_conversation(&self) -> Vec<Vec<u32>> {
        let mut numbers = vec![Vec::new(); self.conversations];
        for (number, line) in (0..).zip(&self.lines) {
            numbers[line.conversation].push(number);
        }
        numbers
    }

    /// The client id of message `number`.
    pub(super) fn key(&self, number: u32) -> String {
        format!("bench-{}-{number}", self.run)
    }

    /// Which message has this client id, if it is one of this script.
    pub(super) fn number(&self, key: &str) -> Option<u32> {
        let number = key.strip_prefix("bench-")?.strip_prefix(&self.run.to_string())?.strip_prefix('-')?.parse().ok()?;
        (number < u32::try_from(self.lines.len()).ok()?).then_some(number)
    }
}

/// What message `number` says.
pub(super) fn content(number: u32) -> String {
    format!("您好,这是第 {number} 条消息 😀 please check order {number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_every_conversation_write_equally_often() {
        let script = Script::new(3, 4, 20, Duration::from_secs(2), 7);
        assert_eq!(script.len(), 40);
        for (conversation, numbers) in script.by_conversation().into_iter().enumerate() {
            assert_eq!(numbers.len(), 10);
            let lines: Vec<Line> = numbers.iter().map(|number| script.line(*number)).collect();
            assert!(lines.iter().all(|line| line.conversation == conversation));
            assert!(lines.windows(2).all(|two| two[0].side != two[1].side && two[0].due < two[1].due));
        }
    }

    #[test]
    fn a_message_is_known_by_its_id() {
        let script = Script::new(3, 4, 20, Duration::from_secs(2), 7);
        assert_eq!(script.number(&script.key(39)), Some(39));
        for foreign in ["bench-3-40", "bench-2-1", "bench-3-", "bench-3-x", "c1-7", ""] {
            assert_eq!(script.number(foreign), None, "{foreign}");
        }
    }
}
