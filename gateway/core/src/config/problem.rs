//! What is wrong with a configuration: each finding with its place, its key and its remedy. Every reader in this room
//! adds to one [`Report`]; nothing here stops at the first finding, and no finding repeats a secret.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Nowhere: the file does not mention it.
    File(Arc<str>),
    /// A line of the file, counted from 1.
    Line(Arc<str>, usize),
    /// An environment variable.
    Variable(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) | Self::Variable(name) => f.write_str(name),
            Self::Line(name, line) => write!(f, "{name}:{line}"),
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The key's path, e.g. `edge.tls.cert` or `routes[1].upstream`; empty when the text is not TOML at all.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.key.is_empty() { "" } else { ": " };
        write!(f, "{}: {}{colon}{}; {}", self.place, self.key, self.what, self.remedy)
    }
}

/// All findings of one reading, in order of place; one line each when displayed. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// The findings.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Collects findings while sections are read; shared by all of them, hence the cell.
#[derive(Debug, Default)]
pub(super) struct Report {
    problems: RefCell<Vec<Problem>>,
    /// Every key that was asked for, list positions left out, and whether any file had it: the sample file is held to it.
    #[cfg(test)]
    pub(super) asked: RefCell<std::collections::BTreeMap<String, bool>>,
}

impl Report {
    pub(super) fn add(&self, place: Place, key: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) {
        self.problems.borrow_mut().push(Problem { place, key: key.into(), what: what.into(), remedy: remedy.into() });
    }

    /// The end of a reading: `value` when nothing was found.
    pub(super) fn finish<T>(&self, value: T) -> Result<T, Problems> {
        let mut problems = self.problems.take();
        problems.sort();
        // What does not parse as TOML is read as well as it can be; what that reading finds on the same line is noise.
        let broken: Vec<Place> = problems.iter().filter(|p| p.key.is_empty()).map(|p| p.place.clone()).collect();
        problems.retain(|p| p.key.is_empty() || !broken.contains(&p.place));
        if problems.is_empty() { Ok(value) } else { Err(Problems(problems)) }
    }
}
