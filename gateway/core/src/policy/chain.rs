//! Folding the verdicts of a chain into one decision, and what a host failure means to a binding.
//!
//! What lives here: which policies are asked where and in which order, and what their answers add up to. What never
//! happens here: running a guest, charging a budget, choosing a status. Called by the edge and by chat sockets.

use std::sync::Arc;

use crate::config::{FailPolicy, OnFault, Policy};
use crate::policy::{Attempt, Call, Charge, Effects, Facts, Fault, Message, Refusal, ResponseHead, Verdict};
use crate::ports::{Answer, PolicySet};
use crate::principal::Principal;
use crate::request::RequestHead;

/// How long a client should wait after a policy could not be asked.
const UNAVAILABLE_RETRY_MS: u64 = 1_000;
/// Policies asked for one request over all phases; a configuration has fewer.
const DECISIONS_MAX: usize = 64;

/// Where a policy runs, and what its failures mean there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The policy's name.
    pub policy: Arc<str>,
    /// Paths below these, each ending in `/`.
    pub prefixes: Vec<String>,
    /// These paths.
    pub exact: Vec<String>,
    /// What each failure of the host means.
    pub fail: FailPolicy,
}

impl Binding {
    /// The binding a configuration entry describes.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        Self { policy: policy.name.clone(), prefixes: policy.prefixes.clone(), exact: policy.exact.clone(), fail: policy.fail }
    }

    /// Whether the policy is asked about `path`, a normalised one.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        self.exact.iter().any(|exact| exact == path) || self.prefixes.iter().any(|prefix| path.starts_with(prefix.as_str()))
    }

    fn on(&self, fault: Fault) -> OnFault {
        match fault {
            Fault::Missing => self.fail.missing,
            Fault::Trap => self.fail.trap,
            Fault::Timeout => self.fail.timeout,
            Fault::Overload => self.fail.overload,
            Fault::BadVerdict => self.fail.bad_verdict,
        }
    }
}

/// One policy's part in a decision, for the record and the metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The policy.
    pub policy: Arc<str>,
    /// First 12 hex digits of its component's digest; empty when none was loaded.
    pub version: Arc<str>,
    /// What the call took.
    pub micros: u32,
    /// `proceed`, `refuse`, `budget`, or the fault: `missing`, `trap`, `timeout`, `overload`, `bad-verdict`.
    pub outcome: &'static str,
}

/// What the policies of one request have come to so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChainState {
    /// Whom they proved; a later policy may prove more, never somebody else.
    pub principal: Option<Principal>,
    /// Headers to set, in order; a later one of the same name holds.
    pub set_headers: Vec<(String, String)>,
    /// Headers to remove.
    pub remove_headers: Vec<String>,
    /// Budgets to charge, all together.
    pub charges: Vec<Charge>,
    /// Tags, each once.
    pub tags: Vec<String>,
    /// Highest score any of them gave.
    pub score: u8,
    /// Phase message: the text to deliver instead.
    pub replace: Option<String>,
    /// Phase message: a bot's answer to the sender.
    pub reply: Option<String>,
    /// Who said what, in order.
    pub decisions: Vec<Decision>,
}

impl ChainState {
    /// Folds one answer in. A refusal ends the chain; a fault means what the binding says.
    pub fn fold(&mut self, binding: &Binding, answer: Answer) -> Result<(), Refusal> {
        let outcome = match &answer.outcome {
            Ok(Verdict::Proceed(_)) => "proceed",
            Ok(Verdict::Refuse(_)) => "refuse",
            Err(fault) => fault.as_str(),
        };
        if self.decisions.len() < DECISIONS_MAX {
            self.decisions.push(Decision { policy: binding.policy.clone(), version: answer.version, micros: answer.micros, outcome });
        }
        match answer.outcome {
            Ok(Verdict::Refuse(refusal)) => Err(refusal),
            Ok(Verdict::Proceed(effects)) => {
                self.proceed(effects);
                Ok(())
            }
            Err(fault) => match binding.on(fault) {
                OnFault::Open => Ok(()),
                OnFault::Closed => Err(unavailable()),
            },
        }
    }

    fn proceed(&mut self, effects: Effects) {
        // The first proof stands: a policy further down must not turn one user into another.
        self.principal = self.principal.take().or(effects.principal);
        self.set_headers.extend(effects.set_headers);
        self.remove_headers.extend(effects.remove_headers);
        self.charges.extend(effects.charges);
        for tag in effects.tags {
            if !self.tags.contains(&tag) {
                self.tags.push(tag);
            }
        }
        self.score = self.score.max(effects.score);
        self.replace = effects.replace.or(self.replace.take());
        self.reply = self.reply.take().or(effects.reply);
    }

    /// Notes that a budget refused, so that the decision record shows which.
    pub fn note_budget(&mut self, budget: &str) {
        if self.decisions.len() < DECISIONS_MAX {
            self.decisions.push(Decision { policy: Arc::from(budget), version: Arc::from(""), micros: 0, outcome: "budget" });
        }
    }
}

/// What a chain is asked about.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// A request's head.
    Request(&'a RequestHead),
    /// A purchase attempt.
    Attempt(&'a RequestHead, &'a Attempt),
    /// A chat message.
    Message(&'a Message),
    /// A response's head.
    Response(&'a RequestHead, &'a ResponseHead),
}

impl Subject<'_> {
    fn about<'f>(self, facts: &'f Facts) -> Call<'f>
    where
        Self: 'f,
    {
        match self {
            Self::Request(head) => Call::Request(head, facts),
            Self::Attempt(head, attempt) => Call::Attempt(head, facts, attempt),
            Self::Message(message) => Call::Message(facts, message),
            Self::Response(head, response) => Call::Response(head, facts, response),
        }
    }
}

/// Asks every policy that is bound to `path` and takes part in the subject's phase, in order, until one refuses. Each is asked with the
/// principal and tags that earlier ones left in `state`.
pub async fn run(
    set: &dyn PolicySet,
    bindings: &[Binding],
    path: &str,
    subject: Subject<'_>,
    mut facts: Facts,
    state: &mut ChainState,
) -> Option<Refusal> {
    let phase = subject.about(&facts).phase();
    for binding in bindings.iter().filter(|binding| binding.covers(path)) {
        if !set.takes_part(&binding.policy, phase) {
            continue;
        }
        facts.principal.clone_from(&state.principal);
        facts.tags.clone_from(&state.tags);
        let answer = set.call(&binding.policy, subject.about(&facts)).await;
        if let Err(refusal) = state.fold(binding, answer) {
            return Some(refusal);
        }
    }
    None
}

/// The client learns that it should come back, not what broke; the decision record has the reason.
fn unavailable() -> Refusal {
    Refusal {
        status: 503,
        code: "POLICY_UNAVAILABLE".into(),
        message: "this request cannot be judged right now".into(),
        retry_after_ms: Some(UNAVAILABLE_RETRY_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PrincipalId;
    use crate::principal::Role;
    use crate::time::UnixMillis;

    fn binding(on: OnFault) -> Binding {
        let fail = FailPolicy { missing: on, trap: on, timeout: on, overload: on, bad_verdict: on };
        Binding { policy: Arc::from("p"), prefixes: vec!["/api/".into()], exact: vec!["/one".into()], fail }
    }

    fn answer(outcome: Result<Verdict, Fault>) -> Answer {
        Answer { version: Arc::from("abc"), micros: 3, outcome }
    }

    fn principal(id: &str) -> Principal {
        Principal { id: PrincipalId::parse(id).unwrap(), role: Role::User, shop: None, scopes: vec![], expires_at: UnixMillis(1) }
    }

    const FAULTS: [Fault; 5] = [Fault::Missing, Fault::Trap, Fault::Timeout, Fault::Overload, Fault::BadVerdict];

    #[test]
    fn every_fault_closes_or_opens_as_the_binding_says() {
        for fault in FAULTS {
            let mut state = ChainState::default();
            assert_eq!(state.fold(&binding(OnFault::Open), answer(Err(fault))), Ok(()));
            let refused = state.fold(&binding(OnFault::Closed), answer(Err(fault))).unwrap_err();
            assert_eq!((refused.status, refused.code.as_str()), (503, "POLICY_UNAVAILABLE"));
            assert_eq!(state.decisions.iter().map(|d| d.outcome).collect::<Vec<_>>(), [fault.as_str(), fault.as_str()]);
        }
    }

    #[test]
    fn each_reason_has_its_own_switch() {
        for closed in FAULTS {
            let on = |fault| if fault == closed { OnFault::Closed } else { OnFault::Open };
            let mut bound = binding(OnFault::Open);
            bound.fail = FailPolicy {
                missing: on(Fault::Missing),
                trap: on(Fault::Trap),
                timeout: on(Fault::Timeout),
                overload: on(Fault::Overload),
                bad_verdict: on(Fault::BadVerdict),
            };
            for fault in FAULTS {
                assert_eq!(ChainState::default().fold(&bound, answer(Err(fault))).is_err(), fault == closed);
            }
        }
    }

    #[test]
    fn a_later_policy_cannot_change_who_is_asking() {
        let mut state = ChainState::default();
        for id in ["alice", "mallory"] {
            let effects = Effects { principal: Some(principal(id)), ..Effects::default() };
            state.fold(&binding(OnFault::Closed), answer(Ok(Verdict::Proceed(effects)))).unwrap();
        }
        assert_eq!(state.principal, Some(principal("alice")));
    }

    #[test]
    fn effects_add_up_in_order() {
        let mut state = ChainState::default();
        for (tag, score) in [("a", 10), ("b", 40), ("a", 5)] {
            let effects = Effects { tags: vec![tag.into()], score, replace: Some(tag.into()), reply: Some(tag.into()), ..Effects::default() };
            state.fold(&binding(OnFault::Closed), answer(Ok(Verdict::Proceed(effects)))).unwrap();
        }
        assert_eq!((state.tags, state.score), (vec!["a".to_owned(), "b".to_owned()], 40));
        assert_eq!((state.replace.as_deref(), state.reply.as_deref()), (Some("a"), Some("a")));
    }

    #[test]
    fn a_binding_covers_its_paths_only() {
        let bound = binding(OnFault::Closed);
        for (path, covered) in [("/api/x", true), ("/api/", true), ("/api", false), ("/apix/", false), ("/one", true), ("/one/two", false)] {
            assert_eq!(bound.covers(path), covered, "{path}");
        }
    }
}
