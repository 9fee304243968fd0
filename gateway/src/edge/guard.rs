//! The policy chain of one request: asked phase by phase, its budgets charged together in one call.
//!
//! What is decided where: guests decide, `core::policy::chain` folds, the budgets port counts; this file only carries.

use std::collections::BTreeMap;
use std::time::Duration;

use gateway_core::id::PrincipalId;
use gateway_core::policy::chain::{self, ChainState, Subject};
use gateway_core::policy::{Attempt, Facts, Phase, ResponseHead};
use gateway_core::ports::{PolicySet, Side};
use gateway_core::principal::Principal;
use gateway_core::request::RequestHead;

use crate::charging::{Uncharged, charge};
use crate::edge::user_of;
use crate::node::Node;
use crate::routes::outcome::Failure;
use crate::witness::Witness;
use crate::{bearer, clock};

/// Edits of a response's head by name: the value to set, or `None` to remove the field.
pub(crate) type Edits = BTreeMap<String, Option<String>>;

/// What the chain of one request has come to, over all its phases.
pub(crate) struct Course {
    /// What the policies agreed on.
    pub state: ChainState,
    /// The budgets that were charged, for the decision record.
    pub budgets: Vec<String>,
    /// Whether the response phase refused: what is answered then is the refusal, and nobody is asked about that.
    response_refused: bool,
}

impl Course {
    /// The course before the first phase.
    pub(crate) fn new(facts: Facts) -> Self {
        Self { state: ChainState::new(facts), budgets: Vec::new(), response_refused: false }
    }
}

/// The chain of one request.
pub(crate) struct Guard<'a> {
    node: &'a Node,
    set: &'a dyn PolicySet,
    course: &'a mut Course,
    head: &'a RequestHead,
}

impl<'a> Guard<'a> {
    /// The chain where `course` has brought it.
    pub(crate) fn new(node: &'a Node, set: &'a dyn PolicySet, course: &'a mut Course, head: &'a RequestHead) -> Self {
        Self { node, set, course, head }
    }

    /// Phase request. Its charges are collected, not charged.
    pub(crate) async fn request(&mut self) -> Result<(), Failure> {
        if let Some(jwks) = &self.node.jwks {
            // A guest cannot wait for a key, so the key has to be there before it asks.
            jwks.look_for_keys(&bearer::tokens(self.head)).await;
        }
        self.ask(Subject::Request(self.head)).await
    }

    /// Phase attempt, then every budget of both phases in one call.
    pub(crate) async fn attempt(&mut self, attempt: &Attempt) -> Result<(), Failure> {
        self.ask(Subject::Attempt(self.head, attempt)).await?;
        // A failover should cost a buyer time and nothing else.
        self.charge_within(self.node.config.sale.patience).await
    }

    /// Charges every budget collected and not charged so far, all or none.
    pub(crate) async fn charge(&mut self) -> Result<(), Failure> {
        self.charge_within(Duration::ZERO).await
    }

    async fn charge_within(&mut self, patience: Duration) -> Result<(), Failure> {
        match charge(self.node, &mut self.course.state, &mut self.course.budgets, patience).await {
            Ok(()) => Ok(()),
            Err(Uncharged::Exhausted { budget, refusal }) => {
                tracing::debug!(trace_id = self.head.trace_id, budget, "a budget is exhausted");
                Err(Failure::Refused(refusal))
            }
            Err(Uncharged::Away(error)) => Err(Failure::Unavailable(error)),
        }
    }

    /// The failure to answer with after charging: a bad request costs what a good one does, and when the budget is
    /// exhausted, that is the answer.
    pub(crate) async fn charged(&mut self, failure: Failure) -> Failure {
        match self.charge().await {
            Ok(()) => failure,
            Err(refused) => refused,
        }
    }

    /// Whether somebody has to be asked about the response. Costs no call and no copy of its head.
    pub(crate) fn judges_responses(&self) -> bool {
        let takes_part = |policy: &str| {
            self.set.takes_part(policy, Side::Live, Phase::Response)
                || (self.set.canary(policy).is_some() && self.set.takes_part(policy, Side::Candidate, Phase::Response))
        };
        let mut bindings = self.node.bindings.iter().filter(|binding| binding.covers(&self.head.path));
        !self.course.response_refused && bindings.any(|binding| takes_part(&binding.policy))
    }

    /// Phase response, and what it charges. The edits are for the response's head.
    pub(crate) async fn response(&mut self, response: &ResponseHead) -> Result<Edits, Failure> {
        // The edits of the request phase were for the upstream.
        self.course.state.headers.clear();
        let asked = async {
            self.ask(Subject::Response(self.head, response)).await?;
            self.charge().await
        };
        let outcome = asked.await;
        self.course.response_refused = outcome.is_err();
        outcome.map(|()| std::mem::take(&mut self.course.state.headers))
    }

    /// Whom the policies proved.
    pub(crate) fn principal(&self) -> Result<Principal, Failure> {
        self.course.state.facts.principal.clone().ok_or(Failure::Unauthenticated)
    }

    /// The user this request speaks for.
    pub(crate) fn user(&self) -> Result<PrincipalId, Failure> {
        user_of(&self.course.state)
    }

    async fn ask(&mut self, subject: Subject<'_>) -> Result<(), Failure> {
        // A body or an upstream may have taken its time since the phase before.
        self.course.state.facts.now = clock::now();
        let witness = Witness::of(self.node, self.set, &self.head.trace_id);
        let set = witness.as_ref().map_or(self.set, |witness| witness as &dyn PolicySet);
        match chain::run(set, &self.node.bindings, subject, &mut self.course.state).await {
            None => Ok(()),
            Some(refusal) => Err(Failure::Refused(refusal)),
        }
    }
}
