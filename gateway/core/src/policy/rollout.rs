//! Which version of a plugin judges whom: live, candidate, and the way back.
//!
//! What lives here: the record that the cluster shares about one plugin, the steps it can take, and who belongs to a canary.
//! What never happens here: fetching a bundle, writing the record, loading a component. The admin API applies a step and
//! stores the record under the condition that nobody else did; every node follows the record.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::policy::Digest;
use crate::policy::condition::Asker;
use crate::policy::regression::Limits;
use crate::time::UnixMillis;

/// Steps kept in a record.
pub const HISTORY_MAX: usize = 50;

/// What the cluster knows about one plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollout {
    /// The plugin.
    pub plugin: String,
    /// The version that judges.
    pub live: Source,
    /// The version before it, kept warm.
    #[serde(default)]
    pub previous: Option<Source>,
    /// A version on trial.
    #[serde(default)]
    pub candidate: Option<Candidate>,
    /// The latest [`HISTORY_MAX`] steps, oldest first.
    #[serde(default)]
    pub history: Vec<Step>,
}

/// Where a version comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The file in each node's plugin folder.
    Folder,
    /// A bundle of the registry.
    Bundle(BundleRef),
}

/// A signed bundle in the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundleRef {
    /// The SHA-256 of its component: the version.
    pub component: Digest,
    /// The SHA-256 of the whole bundle: the blob's name.
    pub bundle: Digest,
}

/// A version on trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Candidate {
    /// The version.
    pub bundle: BundleRef,
    /// How it is tried.
    pub stage: Stage,
    /// Since when, in this stage.
    pub since: UnixMillis,
    /// What ends the trial by itself.
    pub limits: Limits,
}

/// How a candidate is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It is asked beside the live version; its verdict is compared and has no effect.
    Shadow,
    /// It judges the requests of these principals.
    Canary(Cohort),
}

impl Stage {
    /// The word used in commands and reports.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Canary(_) => "canary",
        }
    }
}

/// One step of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// When.
    pub at: UnixMillis,
    /// Who: an operator's name, or `node <name>` for a step a node took by itself.
    pub by: String,
    /// What, in a sentence.
    pub what: String,
}

/// Why a step cannot be taken. The sentence is for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RolloutError {
    /// The version is already the live one.
    #[error("that version is already live")]
    AlreadyLive,
    /// There is no candidate to promote.
    #[error("no version is on trial; start with `rollout`")]
    NoCandidate,
    /// There is nothing to go back to.
    #[error("there is no version to go back to")]
    NothingBefore,
}

impl Rollout {
    /// A plugin of which only the file in the folder is known.
    #[must_use]
    pub fn new(plugin: &str) -> Self {
        Self { plugin: plugin.to_owned(), live: Source::Folder, previous: None, candidate: None, history: Vec::new() }
    }

    /// Puts `candidate` on trial, in place of one that may be already.
    ///
    /// # Errors
    /// [`RolloutError::AlreadyLive`].
    pub fn start(&mut self, candidate: Candidate, by: &str, now: UnixMillis) -> Result<(), RolloutError> {
        if self.live == Source::Bundle(candidate.bundle.clone()) {
            return Err(RolloutError::AlreadyLive);
        }
        let version = candidate.bundle.component.short().to_owned();
        let what = match &candidate.stage {
            Stage::Shadow => format!("{version} in shadow"),
            Stage::Canary(cohort) => format!("{version} as canary for {cohort}"),
        };
        self.candidate = Some(candidate);
        self.note(what, by, now);
        Ok(())
    }

    /// Makes the candidate the live version and keeps the one before.
    ///
    /// # Errors
    /// [`RolloutError::NoCandidate`].
    pub fn promote(&mut self, by: &str, now: UnixMillis) -> Result<(), RolloutError> {
        let candidate = self.candidate.take().ok_or(RolloutError::NoCandidate)?;
        self.note(format!("{} promoted", candidate.bundle.component.short()), by, now);
        self.previous = Some(std::mem::replace(&mut self.live, Source::Bundle(candidate.bundle)));
        Ok(())
    }

    /// Ends the trial if there is one; otherwise makes the version before the live one, and keeps the one that was live,
    /// so that a rollback can be rolled back. `why` ends the sentence in the history.
    ///
    /// # Errors
    /// [`RolloutError::NothingBefore`].
    pub fn rollback(&mut self, why: &str, by: &str, now: UnixMillis) -> Result<(), RolloutError> {
        let what = if let Some(candidate) = self.candidate.take() {
            format!("trial of {} ended", candidate.bundle.component.short())
        } else {
            let previous = self.previous.take().ok_or(RolloutError::NothingBefore)?;
            let what = format!("back to {}", previous.describe());
            self.previous = Some(std::mem::replace(&mut self.live, previous));
            what
        };
        self.note(if why.is_empty() { what } else { format!("{what}: {why}") }, by, now);
        Ok(())
    }

    fn note(&mut self, what: String, by: &str, at: UnixMillis) {
        self.history.push(Step { at, by: by.to_owned(), what });
        let surplus = self.history.len().saturating_sub(HISTORY_MAX);
        self.history.drain(..surplus);
    }

    /// Every bundle that a node must have to follow this record.
    pub fn bundles(&self) -> impl Iterator<Item = &BundleRef> {
        let sources = std::iter::once(&self.live).chain(&self.previous).filter_map(Source::bundle);
        sources.chain(self.candidate.iter().map(|candidate| &candidate.bundle))
    }
}

impl Source {
    /// The bundle, when it is one.
    #[must_use]
    pub fn bundle(&self) -> Option<&BundleRef> {
        match self {
            Self::Folder => None,
            Self::Bundle(bundle) => Some(bundle),
        }
    }

    /// The version in a report.
    #[must_use]
    pub fn describe(&self) -> &str {
        match self {
            Self::Folder => "the file in the plugin folder",
            Self::Bundle(bundle) => bundle.component.short(),
        }
    }
}

/// Whom a canary judges. Who belongs does so on every node and for every request, and stays when a percentage grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Cohort {
    /// Principals whose id ends in one of these digits; bit `d` stands for digit `d`. Ids that end in no digit, and requests
    /// of nobody, do not belong.
    Tail(u16),
    /// This many of a hundred, 1 to 100, by a hash of the plugin's name and the principal's id, or, where nobody has proved
    /// who he is, of the device or the client's address.
    Percent(u8),
}

impl Cohort {
    /// Whether `asker` belongs. `salt` is the name of what is divided, a plugin or a policy.
    #[must_use]
    pub fn has(self, salt: &str, asker: &Asker<'_>) -> bool {
        match self {
            Self::Tail(digits) => {
                let last = asker.id.and_then(|id| id.chars().next_back()).and_then(|last| last.to_digit(10));
                last.is_some_and(|digit| digits & (1 << digit) != 0)
            }
            Self::Percent(percent) => {
                let bucket = match (asker.id.or(asker.device), asker.client) {
                    (Some(name), _) => bucket(salt, name),
                    (None, Some(client)) => bucket(salt, &client.to_string()),
                    (None, None) => bucket(salt, ""),
                };
                bucket < u16::from(percent) * 100
            }
        }
    }
}

/// 0 to 9,999, evenly spread, the same in every release. The salt is part of it so that the same few users are not the first
/// for everything.
fn bucket(salt: &str, key: &str) -> u16 {
    let hash = Sha256::new().chain_update(salt).chain_update([0]).chain_update(key).finalize();
    let head = hash.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    u16::try_from(head % 10_000).unwrap_or(0)
}

impl fmt::Display for Cohort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Tail(digits) => {
                f.write_str("tail ")?;
                let mut first = true;
                for digit in (0..10).filter(|digit| digits & (1 << digit) != 0) {
                    write!(f, "{}{digit}", if first { "" } else { "," })?;
                    first = false;
                }
                Ok(())
            }
        }
    }
}

/// What is wrong with a written cohort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither tail digits such as \"tail 0-4\" nor a percentage of 1% to 100%")]
pub struct InvalidCohort(String);

impl FromStr for Cohort {
    type Err = InvalidCohort;

    /// `tail 0-4`, `tail 0,3,7-9`, or `25%`.
    fn from_str(text: &str) -> Result<Self, InvalidCohort> {
        let parsed = match (text.strip_prefix("tail "), text.strip_suffix('%')) {
            (Some(digits), _) => tail(digits).map(Self::Tail),
            (None, Some(percent)) => percent.parse().ok().filter(|percent| (1..=100).contains(percent)).map(Self::Percent),
            (None, None) => None,
        };
        parsed.ok_or_else(|| InvalidCohort(text.to_owned()))
    }
}

fn tail(text: &str) -> Option<u16> {
    let digit = |text: &str| text.trim().parse::<u16>().ok().filter(|digit| *digit <= 9);
    let mut digits = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (digit(first)?, digit(last)?);
        if first > last {
            return None;
        }
        digits |= (first..=last).fold(0, |digits, digit| digits | (1 << digit));
    }
    Some(digits)
}

impl TryFrom<String> for Cohort {
    type Error = InvalidCohort;

    fn try_from(text: String) -> Result<Self, InvalidCohort> {
        text.parse()
    }
}

impl From<Cohort> for String {
    fn from(cohort: Cohort) -> Self {
        cohort.to_string()
    }
}

#[cfg(test)]
mod tests;
