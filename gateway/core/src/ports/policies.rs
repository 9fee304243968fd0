//! Policies: asking guests.

use std::sync::Arc;

use async_trait::async_trait;

use crate::policy::{Call, Fault, Phase, Verdict};

/// The loaded policies of this node.
///
/// Promise: [`Policies::current`] is cheap and never fails; a set once taken keeps its generations alive and unchanged
/// until it is dropped, whatever is installed meanwhile. A failed install changes nothing.
#[async_trait]
pub trait Policies: Send + Sync {
    /// The generations a request starts on and keeps to its end.
    fn current(&self) -> Arc<dyn PolicySet>;

    /// State of every configured policy, in configuration order.
    fn status(&self) -> Vec<PolicyStatus>;

    /// Loads `component` as the new generation of `policy` (its whole load path: imports, compile, configure, smoke
    /// call) and publishes it. The error is a sentence for the operator; the last good generation stays.
    async fn install(&self, policy: &str, component: Vec<u8>) -> Result<PolicyStatus, String>;
}

/// One consistent choice of generations.
#[async_trait]
pub trait PolicySet: Send + Sync {
    /// Whether the live generation of `policy` takes part in `phase`. A missing policy takes part in every phase, so that
    /// its fail policy is applied instead of its rule being forgotten.
    fn takes_part(&self, policy: &str, phase: Phase) -> bool;

    /// Asks `policy`. Never panics; waits for an instance no longer than the policy's time, and the guest runs no longer than
    /// that time plus one epoch tick. Waiting for a processor is not counted, up to a bound.
    async fn call(&self, policy: &str, call: Call<'_>) -> Answer;
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyStatus {
    /// The policy's name.
    pub name: String,
    /// First 12 hex digits of the live component's SHA-256.
    pub version: Option<String>,
    /// Why the last load failed, when it did.
    pub error: Option<String>,
    /// Generations still held by requests or sockets, the live one included.
    pub generations_live: usize,
}
