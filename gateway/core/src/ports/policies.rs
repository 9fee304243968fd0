//! Policies: asking guests, and saying which versions of them there are.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::policy::regression::Counts;
use crate::policy::rollout::{Cohort, Stage};
use crate::policy::{Call, Digest, Fault, Phase, Verdict};

/// The loaded policies of this node.
///
/// Promise: [`Policies::current`] is cheap and never fails; a set once taken keeps its generations alive and unchanged
/// until it is dropped, whatever is loaded meanwhile. A failed load changes nothing.
#[async_trait]
pub trait Policies: Send + Sync {
    /// The generations a request starts on and keeps to its end.
    fn current(&self) -> Arc<dyn PolicySet>;

    /// State of every configured policy, in configuration order.
    fn status(&self) -> Vec<PolicyStatus>;

    /// Makes `versions` the versions of every policy of `plugin`: loads what is not loaded yet (imports, compile,
    /// configure, smoke calls), then publishes all of it at once. When one of them cannot be loaded nothing is published,
    /// and the error is a sentence for the operator. Going back to a version that is still kept costs no loading.
    async fn apply(&self, plugin: &str, versions: Versions) -> Result<(), String>;
}

/// Which versions of a plugin a node is to have.
#[derive(Debug, Clone, Default)]
pub struct Versions {
    /// The one that judges; `None` means the file in the plugin folder, and whatever it becomes.
    pub live: Option<Artefact>,
    /// One on trial, and how.
    pub candidate: Option<(Artefact, Stage)>,
    /// One that stays loaded although nobody asks it, so that going back to it takes no time.
    pub standby: Option<Artefact>,
}

/// A component, fetched and proved.
#[derive(Debug, Clone)]
pub struct Artefact {
    /// The SHA-256 of `component`; the caller has checked it.
    pub digest: Digest,
    /// The component's bytes.
    pub component: Bytes,
}

/// Which of two versions judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The live one.
    Live,
    /// The candidate of a canary.
    Candidate,
}

/// A running canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canary<'a> {
    /// The plugin, by whose name the askers are divided: every policy of a plugin has the same canary.
    pub plugin: &'a str,
    /// Who belongs.
    pub cohort: Cohort,
}

/// One consistent choice of generations.
#[async_trait]
pub trait PolicySet: Send + Sync {
    /// Whether `policy` takes part in `phase` on `side`. A missing policy takes part in every phase, so that its fail
    /// policy is applied instead of its rule being forgotten.
    fn takes_part(&self, policy: &str, side: Side, phase: Phase) -> bool;

    /// Who gets the candidate of `policy`; `None` while no canary runs.
    fn canary(&self, policy: &str) -> Option<Canary<'_>>;

    /// The header fields that `policy` on `side` is shown, names in lower case; none when nothing is loaded.
    fn headers(&self, _policy: &str, _side: Side) -> &[String] {
        &[]
    }

    /// Asks `policy`. Never panics; waits for an instance no longer than the policy's time, and the guest runs no longer than
    /// that time plus one epoch tick. Waiting for a processor is not counted, up to a bound. While a shadow runs, it is asked
    /// too, later and elsewhere: its verdict is compared and otherwise has no effect.
    async fn call(&self, policy: &str, side: Side, call: Call<'_>) -> Answer;
}

/// What came back from one call.
#[derive(Debug, Clone)]
pub struct Answer {
    /// First 12 hex digits of the component's SHA-256, or empty when nothing is loaded.
    pub version: Arc<str>,
    /// Time the call took, in microseconds.
    pub micros: u32,
    /// The guest's verdict, already validated by the host, or why there is none.
    pub outcome: Result<Verdict, Fault>,
}

/// State of one policy for operators.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyStatus {
    /// The policy's name.
    pub name: String,
    /// Its plugin's name.
    pub plugin: String,
    /// First 12 hex digits of the live component's SHA-256.
    pub version: Option<String>,
    /// Why the last load failed, when it did.
    pub error: Option<String>,
    /// Generations somebody still holds, the live one included; a candidate and a standby are not counted while they are
    /// nothing else.
    pub generations_live: usize,
    /// What the live version did since it became live, or since the candidate came.
    pub counts: Counts,
    /// The version on trial.
    pub candidate: Option<CandidateStatus>,
    /// First 12 hex digits of the version kept to go back to.
    pub standby: Option<String>,
}

/// State of a version on trial.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateStatus {
    /// First 12 hex digits of its SHA-256.
    pub version: String,
    /// How it is tried.
    pub stage: Stage,
    /// What it did.
    pub counts: Counts,
    /// Shadow only: how its verdicts compare.
    pub comparison: Comparison,
}

/// How a shadow's verdicts compare with the live ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// Compared.
    pub compared: u64,
    /// Not compared, because too many were waiting.
    pub dropped: u64,
    /// Differences by reason, in order of reason.
    pub differences: Vec<(&'static str, u64)>,
    /// The latest differences, newest first.
    pub samples: Vec<Sample>,
}

/// One difference between a shadow and the live version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The request; its decision record says more. Empty for a chat message.
    pub trace_id: String,
    /// When it was asked.
    pub phase: Phase,
    /// Why they differ: a word of [`crate::policy::difference`].
    pub reason: &'static str,
    /// What the live version said, in one line.
    pub live: String,
    /// What the shadow said, in one line.
    pub shadow: String,
}
