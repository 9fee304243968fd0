//! What both sides of a conversation saw against what the ledger holds.

use std::collections::BTreeSet;
use std::ops::AddAssign;

use serde::Serialize;

use super::ledger::Row;
use super::script::{Script, Side, content};
use super::thread::Shown;

/// What is wrong; all zero when every log is what the ledger holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Messages that were accepted and are not in the ledger, or are in one of ledger and log and not in the other.
    pub lost: u64,
    /// Messages that are in the ledger, or in a log, under more than one number.
    pub duplicates: u64,
    /// Messages of one sender that come, in the ledger or in a log, after one that was written later.
    pub reordered: u64,
    /// Numbers that are missing between 1 and the last.
    pub gaps: u64,
    /// Messages whose content is not what was written, or that nobody wrote.
    pub altered: u64,
    /// Messages that were not accepted when the run's patience was over.
    pub unsent: u64,
}

impl Verdict {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_well(&self) -> bool {
        *self == Self::default()
    }

    /// Of one conversation: `written` by its sides and accepted but for `unaccepted`, stored as `rows`, shown as `logs`.
    pub(super) fn of(script: &Script, written: &[u32], unaccepted: &BTreeSet<u32>, rows: &[Row], logs: [&[Shown]; 2]) -> Self {
        let stored: Vec<Shown> = rows.iter().map(|row| (row.seq, script.number(&row.key))).collect();
        let is_altered = |row: &&Row| script.number(&row.key).is_none_or(|number| row.content != content(number));
        let in_ledger: BTreeSet<u32> = stored.iter().filter_map(|(_, number)| *number).collect();
        let forgotten = written.iter().filter(|number| !unaccepted.contains(number) && !in_ledger.contains(number));
        let mut verdict = Self {
            lost: forgotten.count() as u64,
            altered: rows.iter().filter(is_altered).count() as u64,
            unsent: unaccepted.len() as u64,
            ..Self::in_itself(script, &stored)
        };
        let places: BTreeSet<&Shown> = stored.iter().collect();
        for log in logs {
            verdict += Self::in_itself(script, log);
            let shown: BTreeSet<&Shown> = log.iter().collect();
            verdict.lost += places.symmetric_difference(&shown).count() as u64;
        }
        verdict
    }

    /// What a list of messages says against itself.
    fn in_itself(script: &Script, messages: &[Shown]) -> Self {
        let mut found = Self::default();
        let (mut seen, mut last, mut latest) = (BTreeSet::new(), 0, [None; 2]);
        for (seq, number) in messages {
            found.gaps += seq.saturating_sub(last + 1);
            last = *seq;
            let Some(number) = number else { continue };
            if !seen.insert(number) {
                found.duplicates += 1;
                continue;
            }
            let latest = &mut latest[usize::from(script.line(*number).side == Side::Agent)];
            if latest.is_some_and(|latest| latest > *number) {
                found.reordered += 1;
            } else {
                *latest = Some(*number);
            }
        }
        found
    }
}

impl AddAssign for Verdict {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.gaps += other.gaps;
        self.altered += other.altered;
        self.unsent += other.unsent;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// One conversation of ten messages, sides taking turns, of which `stored` are in the ledger under 1, 2, 3 …
    struct Case {
        script: Script,
        rows: Vec<Row>,
        logs: [Vec<Shown>; 2],
    }

    impl Case {
        fn new(stored: &[u32]) -> Self {
            let script = Script::new(1, 1, 10, Duration::from_secs(1), 0);
            let rows = (1..).zip(stored).map(|(seq, number)| Row { seq, key: script.key(*number), content: content(*number) }).collect();
            let log: Vec<Shown> = (1..).zip(stored).map(|(seq, number)| (seq, Some(*number))).collect();
            Self { script, rows, logs: [log.clone(), log] }
        }

        fn verdict(&self, unaccepted: &[u32]) -> Verdict {
            let written: Vec<u32> = (0..10).collect();
            let unaccepted = unaccepted.iter().copied().collect();
            Verdict::of(&self.script, &written, &unaccepted, &self.rows, [&self.logs[0], &self.logs[1]])
        }
    }

    const ALL: [u32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

    #[test]
    fn logs_that_are_what_the_ledger_holds_are_well() {
        assert!(Case::new(&ALL).verdict(&[]).is_well());
        assert!(Case::new(&[1, 0, 2, 3, 5, 4, 6, 7, 8, 9]).verdict(&[]).is_well(), "sides do not wait for each other");
    }

    #[test]
    fn what_was_accepted_and_is_nowhere_is_lost() {
        assert_eq!(Case::new(&ALL[..9]).verdict(&[]), Verdict { lost: 1, ..Verdict::default() });
        assert_eq!(Case::new(&ALL[..9]).verdict(&[9]), Verdict { unsent: 1, ..Verdict::default() });
        assert_eq!(Case::new(&ALL).verdict(&[9]), Verdict { unsent: 1, ..Verdict::default() }, "stored, and its sender does not know");
    }

    #[test]
    fn what_one_side_does_not_show_is_lost() {
        let mut case = Case::new(&ALL);
        case.logs[1].pop();
        assert_eq!(case.verdict(&[]), Verdict { lost: 1, ..Verdict::default() });
        case.logs[1].remove(2);
        assert_eq!(case.verdict(&[]), Verdict { lost: 2, gaps: 1, ..Verdict::default() });
    }

    #[test]
    fn a_message_under_two_numbers_is_a_duplicate() {
        let verdict = Case::new(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 5]).verdict(&[]);
        assert_eq!(verdict, Verdict { duplicates: 3, ..Verdict::default() }, "in the ledger and in both logs");
    }

    #[test]
    fn a_message_after_a_later_one_of_its_sender_is_reordered() {
        let verdict = Case::new(&[2, 1, 0, 3, 4, 5, 6, 7, 8, 9]).verdict(&[]);
        assert_eq!(verdict, Verdict { reordered: 3, ..Verdict::default() });
    }

    #[test]
    fn a_number_that_was_never_used_is_a_gap() {
        let mut case = Case::new(&ALL);
        case.rows[9].seq += 2;
        case.logs.iter_mut().for_each(|log| log[9].0 += 2);
        assert_eq!(case.verdict(&[]), Verdict { gaps: 6, ..Verdict::default() });
    }

    #[test]
    fn another_content_and_a_message_that_nobody_wrote_are_altered() {
        let mut case = Case::new(&ALL);
        case.rows[3].content.push('!');
        assert_eq!(case.verdict(&[]).altered, 1);
        case.rows.push(Row { seq: 11, key: "c1-1".into(), content: "hello".into() });
        case.logs.iter_mut().for_each(|log| log.push((11, None)));
        assert_eq!(case.verdict(&[]), Verdict { altered: 2, ..Verdict::default() });
    }
}
