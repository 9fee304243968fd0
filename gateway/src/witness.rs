//! Watching policies being asked: a span for each call, and a line of the recording where the request is in the sample.
//!
//! A [`PolicySet`] around another. It stands between a chain and its policies only where somebody looks, so that a request
//! nobody looks at pays nothing. What never happens here: changing a question or an answer.

use async_trait::async_trait;
use gateway_core::policy::{Call, Phase};
use gateway_core::ports::{Answer, Canary, PolicySet, Side};
use gateway_kit::replay::line;
use tracing::{Instrument, Level, debug_span};

use crate::node::Node;
use crate::recording::Recorder;

/// The log target of the spans.
const TARGET: &str = "sluice::policy";

/// A set of policies that is watched.
pub(crate) struct Witness<'a> {
    node: &'a Node,
    set: &'a dyn PolicySet,
    trace_id: &'a str,
    recorder: Option<&'a Recorder>,
}

impl<'a> Witness<'a> {
    /// `set`, watched, if the request `trace_id` is recorded or the log wants spans.
    pub(crate) fn of(node: &'a Node, set: &'a dyn PolicySet, trace_id: &'a str) -> Option<Self> {
        let recorder = node.recorder.as_deref().filter(|recorder| recorder.wants(trace_id));
        let watched = recorder.is_some() || tracing::enabled!(target: TARGET, Level::DEBUG);
        watched.then_some(Self { node, set, trace_id, recorder })
    }
}

#[async_trait]
impl PolicySet for Witness<'_> {
    fn takes_part(&self, policy: &str, side: Side, phase: Phase) -> bool {
        self.set.takes_part(policy, side, phase)
    }

    fn canary(&self, policy: &str) -> Option<Canary<'_>> {
        self.set.canary(policy)
    }

    fn headers(&self, policy: &str, side: Side) -> &[String] {
        self.set.headers(policy, side)
    }

    async fn call(&self, policy: &str, side: Side, call: Call<'_>) -> Answer {
        let phase = call.phase().as_str();
        let span = debug_span!(target: TARGET, "policy", trace_id = self.trace_id, policy, phase, side = line::side(side));
        let answer = self.set.call(policy, side, call).instrument(span.clone()).await;
        span.in_scope(|| {
            let outcome = match &answer.outcome {
                Ok(gateway_core::policy::Verdict::Proceed(_)) => "proceed",
                Ok(gateway_core::policy::Verdict::Refuse(refusal)) => &refusal.code,
                Err(fault) => fault.as_str(),
            };
            tracing::debug!(target: TARGET, trace_id = self.trace_id, policy, phase, version = &*answer.version, micros = answer.micros, outcome, "asked");
        });
        if let Some(recorder) = self.recorder {
            recorder.keep(self.node, self.trace_id, self.set.headers(policy, side), policy, side, call, &answer);
        }
        answer
    }
}
