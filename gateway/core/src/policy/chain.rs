//! Folding the verdicts of a chain into one decision, and what a host failure means to a binding.
//!
//! What never happens here: charging budgets or editing a head. The caller does both when the whole chain has agreed, so a
//! refusal by the last policy leaves no trace of the first.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::config;
use crate::config::{FailPolicy, OnFault, SocketRule};
use crate::policy::condition::{Asker, Condition};
use crate::policy::{Attempt, Call, Charge, Effects, Facts, Fault, Message, Phase, Refusal, ResponseHead, Verdict};
use crate::ports::{Answer, PolicySet, Side};
use crate::request::RequestHead;

/// Charges of a whole chain: what [`crate::ports::Budgets`] takes in one call.
pub const CHARGES_MAX: usize = 64;

/// Tags of a whole chain; later ones are dropped, for every later policy is sent all of them.
pub const TAGS_MAX: usize = 64;

/// When a client may try again after a policy failed closed: long enough for an instance to be replaced.
const UNAVAILABLE_RETRY_MS: u64 = 1_000;

/// Where one policy applies and what its failures mean. The order of bindings is the order of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The policy's name.
    pub policy: Arc<str>,
    /// Covers every path that begins so, e.g. `/api/`.
    pub prefixes: Vec<String>,
    /// Covers exactly these paths.
    pub exact: Vec<String>,
    /// When it applies on those paths.
    pub condition: Condition,
    /// Whether it has any effect. A policy that does not enforce is asked and counted; see [`DecisionOutcome::WouldRefuse`].
    pub enforce: bool,
    /// Which generation judges the messages of a socket.
    pub sockets: SocketRule,
    /// What stands in for a verdict that did not come.
    pub fail: FailPolicy,
}

impl Binding {
    /// Whether the policy applies to `path` (normalised).
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        self.prefixes.iter().any(|prefix| path.starts_with(prefix.as_str())) || self.exact.iter().any(|exact| exact == path)
    }
}

impl From<&config::Policy> for Binding {
    fn from(policy: &config::Policy) -> Self {
        let config::Policy { name, prefixes, exact, condition, enforce, sockets, fail, .. } = policy;
        Self {
            policy: Arc::clone(name),
            prefixes: prefixes.clone(),
            exact: exact.clone(),
            condition: condition.clone(),
            enforce: *enforce,
            sockets: *sockets,
            fail: *fail,
        }
    }
}

/// What a chain is asked about.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// Phase request.
    Request(&'a RequestHead),
    /// Phase attempt.
    Attempt(&'a RequestHead, &'a Attempt),
    /// Phase message.
    Message {
        /// The normalised path the message came by: a socket's, or that of the fallback transport.
        path: &'a str,
        /// The message as sent.
        message: &'a Message,
    },
    /// Phase response.
    Response(&'a RequestHead, &'a ResponseHead),
}

impl Subject<'_> {
    /// The phase of the chain.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self {
            Self::Request(_) => Phase::Request,
            Self::Attempt(..) => Phase::Attempt,
            Self::Message { .. } => Phase::Message,
            Self::Response(..) => Phase::Response,
        }
    }

    /// The head it belongs to; a message has none.
    #[must_use]
    pub fn head(&self) -> Option<&RequestHead> {
        match self {
            Self::Request(head) | Self::Attempt(head, _) | Self::Response(head, _) => Some(head),
            Self::Message { .. } => None,
        }
    }

    /// The path that decides which bindings apply.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Request(head) | Self::Attempt(head, _) | Self::Response(head, _) => &head.path,
            Self::Message { path, .. } => path,
        }
    }
}

/// What a chain has agreed on so far. One state serves the phases of one request: what the request phase proved, the
/// attempt phase knows.
#[derive(Debug, Clone)]
pub struct ChainState {
    /// What the next policy is told; the principal and the tags grow along the chain.
    pub facts: Facts,
    /// Header edits by name: the value to set, or `None` to remove the field. The later policy has the last word. Policies
    /// see the head as it came, never another's edits.
    pub headers: BTreeMap<String, Option<String>>,
    /// Budgets to charge once the whole chain has agreed.
    pub charges: Vec<Charge>,
    /// What the request comes to when those budgets cannot be reached: closed when one binding among them says so.
    pub unreachable: OnFault,
    /// Budgets of policies that do not enforce, with the policy's name. Charged apart from the others; an exhausted one
    /// changes nothing and is recorded by [`ChainState::would_refuse`].
    pub dry_charges: Vec<(Arc<str>, Charge)>,
    /// Risk, 0 to 100: the sum over the chain, capped.
    pub score: u8,
    /// Phase message: the text to deliver instead. Later policies see it in place of what was sent.
    pub replace: Option<String>,
    /// Phase message: what a bot answers; the first policy to answer has the word.
    pub reply: Option<String>,
    /// What every asked policy said, in order.
    pub decisions: Vec<Decision>,
    /// Which version judges this request, by policy, for policies of which a canary runs: decided once, so that a request
    /// sees one version in all its phases.
    sides: Vec<(Arc<str>, Side)>,
}

/// One line of a decision record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Who was asked.
    pub policy: Arc<str>,
    /// First 12 hex digits of its digest; empty when nothing is loaded.
    pub version: Arc<str>,
    /// When it was asked.
    pub phase: Phase,
    /// How long it took, in microseconds.
    pub micros: u32,
    /// What came of it.
    pub outcome: DecisionOutcome,
}

/// What came of asking one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// It lets the request go on.
    Proceed,
    /// It refused with this code.
    Refuse(String),
    /// It, or one of its budgets, would have refused with this code, but its binding does not enforce.
    WouldRefuse(String),
    /// It gave no verdict, and its binding is open for that reason.
    FailedOpen(Fault),
    /// It gave no verdict, and its binding is closed for that reason.
    FailedClosed(Fault),
}

impl DecisionOutcome {
    /// The word used in metrics and decision records; a failure is named by its reason.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Proceed => "proceed",
            Self::Refuse(_) => "refuse",
            Self::WouldRefuse(_) => "would-refuse",
            Self::FailedOpen(fault) | Self::FailedClosed(fault) => fault.as_str(),
        }
    }
}

impl ChainState {
    /// The state before the first policy is asked.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        Self {
            facts,
            headers: BTreeMap::new(),
            charges: Vec::new(),
            unreachable: OnFault::Open,
            dry_charges: Vec::new(),
            score: 0,
            replace: None,
            reply: None,
            decisions: Vec::new(),
            sides: Vec::new(),
        }
    }

    /// Records that a budget of a policy that does not enforce is exhausted.
    pub fn would_refuse(&mut self, policy: &str, code: &str) {
        if let Some(decision) = self.decisions.iter_mut().rev().find(|decision| &*decision.policy == policy) {
            decision.outcome = DecisionOutcome::WouldRefuse(code.to_owned());
        }
    }

    /// Which version of `policy` judges this request. One that was not asked yet counts as live.
    #[must_use]
    pub fn side_of(&self, policy: &str) -> Side {
        self.sides.iter().find(|(known, _)| &**known == policy).map_or(Side::Live, |(_, side)| *side)
    }

    /// Takes over what a proceeding policy asked for.
    fn apply(&mut self, effects: Effects) {
        let Effects { principal, set_headers, remove_headers, charges, tags, score, replace, reply } = effects;
        if principal.is_some() {
            self.facts.principal = principal;
        }
        self.headers.extend(remove_headers.into_iter().map(|name| (name, None)));
        self.headers.extend(set_headers.into_iter().map(|(name, value)| (name, Some(value))));
        self.charges.extend(charges);
        let room = TAGS_MAX.saturating_sub(self.facts.tags.len());
        self.facts.tags.extend(tags.into_iter().take(room));
        self.score = self.score.saturating_add(score).min(100);
        if replace.is_some() {
            self.replace = replace;
        }
        if self.reply.is_none() {
            self.reply = reply;
        }
    }
}

/// Takes one answer into `state`. `Break` is the answer for the client.
pub fn fold(state: &mut ChainState, binding: &Binding, phase: Phase, answer: Answer) -> ControlFlow<Refusal> {
    let Answer { version, micros, outcome } = answer;
    // More charges than one call can take cannot be kept all or nothing: an answer that goes beyond is not usable.
    let outcome = match outcome {
        Ok(Verdict::Proceed(effects)) if state.charges.len() + effects.charges.len() > CHARGES_MAX => Err(Fault::BadVerdict),
        other => other,
    };
    let (outcome, flow) = match outcome {
        Ok(Verdict::Proceed(effects)) if binding.enforce => {
            if !effects.charges.is_empty() && binding.fail.budgets == OnFault::Closed {
                state.unreachable = OnFault::Closed;
            }
            state.apply(effects);
            (DecisionOutcome::Proceed, ControlFlow::Continue(()))
        }
        Ok(Verdict::Proceed(effects)) => {
            let room = CHARGES_MAX.saturating_sub(state.dry_charges.len());
            state.dry_charges.extend(effects.charges.into_iter().take(room).map(|charge| (Arc::clone(&binding.policy), charge)));
            (DecisionOutcome::Proceed, ControlFlow::Continue(()))
        }
        Ok(Verdict::Refuse(refusal)) if !binding.enforce => (DecisionOutcome::WouldRefuse(refusal.code), ControlFlow::Continue(())),
        Err(fault) if !binding.enforce => (DecisionOutcome::FailedOpen(fault), ControlFlow::Continue(())),
        Ok(Verdict::Refuse(refusal)) => (DecisionOutcome::Refuse(refusal.code.clone()), ControlFlow::Break(refusal)),
        Err(fault) => match on_fault(binding.fail, fault) {
            OnFault::Open => (DecisionOutcome::FailedOpen(fault), ControlFlow::Continue(())),
            OnFault::Closed => (DecisionOutcome::FailedClosed(fault), ControlFlow::Break(unavailable())),
        },
    };
    state.decisions.push(Decision { policy: Arc::clone(&binding.policy), version, phase, micros, outcome });
    flow
}

/// Asks every policy of `bindings` that covers the subject, whose condition holds, and that takes part in the phase, in order,
/// until one refuses.
/// `Some` is the answer for the client; `None` means that all agreed, and `state` says on what.
pub async fn run(set: &dyn PolicySet, bindings: &[Binding], subject: Subject<'_>, state: &mut ChainState) -> Option<Refusal> {
    let phase = subject.phase();
    for binding in bindings.iter().filter(|binding| binding.covers(subject.path())) {
        if !binding.condition.holds(&binding.policy, subject.head(), &state.facts) {
            continue;
        }
        let side = side(set, binding, subject, state);
        if !set.takes_part(&binding.policy, side, phase) {
            continue;
        }
        let answer = ask(set, binding, side, subject, state).await;
        if let ControlFlow::Break(refusal) = fold(state, binding, phase, answer) {
            return Some(refusal);
        }
    }
    None
}

fn side(set: &dyn PolicySet, binding: &Binding, subject: Subject<'_>, state: &mut ChainState) -> Side {
    let policy = &binding.policy;
    let Some(canary) = set.canary(policy) else { return Side::Live };
    if let Some((_, side)) = state.sides.iter().find(|(known, _)| known == policy) {
        return *side;
    }
    let belongs = canary.cohort.has(canary.plugin, &Asker::of(&state.facts, subject.head()));
    let side = if belongs { Side::Candidate } else { Side::Live };
    state.sides.push((Arc::clone(policy), side));
    side
}

async fn ask(set: &dyn PolicySet, binding: &Binding, side: Side, subject: Subject<'_>, state: &ChainState) -> Answer {
    let facts = &state.facts;
    let policy = &binding.policy;
    match subject {
        Subject::Request(head) => set.call(policy, side, Call::Request(head, facts)).await,
        Subject::Attempt(head, attempt) => set.call(policy, side, Call::Attempt(head, facts, attempt)).await,
        Subject::Response(head, response) => set.call(policy, side, Call::Response(head, facts, response)).await,
        Subject::Message { message, .. } => match &state.replace {
            None => set.call(policy, side, Call::Message(facts, message)).await,
            Some(text) => {
                let replaced = Message { content: text.clone(), ..message.clone() };
                set.call(policy, side, Call::Message(facts, &replaced)).await
            }
        },
    }
}

/// What `fault` comes to under `fail`.
fn on_fault(fail: FailPolicy, fault: Fault) -> OnFault {
    match fault {
        Fault::Missing => fail.missing,
        Fault::Trap => fail.trap,
        Fault::Timeout => fail.timeout,
        Fault::Overload => fail.overload,
        Fault::BadVerdict => fail.bad_verdict,
    }
}

/// What a client is told when a policy failed closed. Which one and why is for the decision record alone.
fn unavailable() -> Refusal {
    Refusal {
        status: 503,
        code: "POLICY_UNAVAILABLE".to_owned(),
        message: "服务繁忙,请稍后再试".to_owned(),
        retry_after_ms: Some(UNAVAILABLE_RETRY_MS),
    }
}

#[cfg(test)]
mod tests;
