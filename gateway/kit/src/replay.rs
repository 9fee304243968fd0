//! Asking another version what a recording says was asked, and telling what it would have answered otherwise.
//!
//! What lives here: the format of a recording ([`line`]), the comparison, and asking a component again ([`Replay`]). Nodes
//! write lines (`gateway/src/recording.rs`); `sluice plugin replay` reads them.

pub mod line;
mod run;

use std::collections::BTreeMap;

use gateway_core::policy::{Fault, Verdict, difference};
use serde::Serialize;

pub use line::{Line, Question, TokenText, VerdictText};
pub use run::Replay;

/// A verdict that another version answers otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The request.
    pub trace_id: String,
    /// When the policy was asked.
    pub phase: String,
    /// Which policy.
    pub policy: String,
    /// Why the verdicts differ, in one word.
    pub difference: &'static str,
    /// What was answered.
    pub old: VerdictText,
    /// What would be answered.
    pub new: VerdictText,
}

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Lines asked again.
    pub asked: u64,
    /// Of which this many were answered otherwise.
    pub changed: u64,
    /// Changes by why.
    pub differences: BTreeMap<&'static str, u64>,
    /// Lines of other policies.
    pub others: u64,
    /// Lines that could not be read, for example the half of one at the end of a file that was being written.
    pub unreadable: u64,
}

impl Summary {
    /// Compares the answer of `line` with `new`, counts it, and tells the change if there is one.
    ///
    /// # Errors
    /// When the recorded verdict makes no sense.
    pub fn compare(&mut self, line: &Line, new: &Result<Verdict, Fault>) -> Result<Option<Change>, String> {
        let old = line.verdict.read()?;
        self.asked += 1;
        let Some(difference) = difference(&old, new) else { return Ok(None) };
        self.changed += 1;
        *self.differences.entry(difference).or_default() += 1;
        let Line { trace_id, phase, policy, .. } = line.clone();
        Ok(Some(Change { trace_id, phase, policy, difference, old: line.verdict.clone(), new: new.into() }))
    }
}
