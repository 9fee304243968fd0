//! Dead letters and what was decided about them.

use std::collections::BTreeMap;

use gateway_core::sale::{Decision, Letter, LetterKind, LetterState, NewLetter};
use gateway_core::time::UnixMillis;

/// Characters of an error that are kept: the port's bound.
const ERROR_CHARS_MAX: usize = 512;

/// Every letter, one per kind and source.
#[derive(Default)]
pub(super) struct Letters {
    by_id: BTreeMap<u64, Letter>,
    by_source: BTreeMap<(&'static str, String), u64>,
}

impl Letters {
    /// Whether `letter` is the first of its source.
    pub(super) fn is_new(&self, letter: &NewLetter) -> bool {
        !self.by_source.contains_key(&source(letter.kind, &letter.source_id))
    }

    /// Letters kept.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Writes a letter, or the news of one that is there.
    pub(super) fn write(&mut self, letter: &NewLetter, now: UnixMillis) {
        let error: String = letter.error.chars().take(ERROR_CHARS_MAX).collect();
        if let Some(known) = self.by_source.get(&source(letter.kind, &letter.source_id)).and_then(|id| self.by_id.get_mut(id)) {
            (known.what.error, known.what.attempts, known.state) = (error, letter.attempts, LetterState::Open);
            return;
        }
        let id = self.by_id.len() as u64 + 1;
        self.by_source.insert(source(letter.kind, &letter.source_id), id);
        let what = NewLetter { error, ..letter.clone() };
        self.by_id.insert(id, Letter { id, what, state: LetterState::Open, created: now, decision: None });
    }

    pub(super) fn get(&self, id: u64) -> Option<&Letter> {
        self.by_id.get(&id)
    }

    /// Records a decision.
    pub(super) fn decide(&mut self, id: u64, state: LetterState, decision: &Decision) -> Option<Letter> {
        let letter = self.by_id.get_mut(&id)?;
        (letter.state, letter.decision) = (state, Some(decision.clone()));
        Some(letter.clone())
    }

    pub(super) fn page(&self, open_only: bool, after: u64, max: usize) -> Vec<Letter> {
        let wanted = |letter: &&Letter| !open_only || letter.state == LetterState::Open;
        self.by_id.range(after.saturating_add(1)..).map(|(_, letter)| letter).filter(wanted).take(max).cloned().collect()
    }

    pub(super) fn open(&self) -> u64 {
        self.by_id.values().filter(|letter| letter.state == LetterState::Open).count() as u64
    }
}

fn source(kind: LetterKind, source_id: &str) -> (&'static str, String) {
    (kind.as_str(), source_id.to_owned())
}
