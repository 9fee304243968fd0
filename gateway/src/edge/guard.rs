//! The policy chain of one request: asked phase by phase, its budgets charged together in one call.
//!
//! What is decided where: guests decide, `core::policy::chain` folds, the budgets port counts; this file only carries.

use gateway_core::id::PrincipalId;
use gateway_core::policy::Attempt;
use gateway_core::policy::chain::{self, ChainState, Subject};
use gateway_core::ports::PolicySet;
use gateway_core::request::RequestHead;

use crate::charging::{Uncharged, charge};
use crate::edge::user_of;
use crate::node::Node;
use crate::routes::outcome::Failure;

/// The chain of one request.
pub(crate) struct Guard<'a> {
    node: &'a Node,
    set: &'a dyn PolicySet,
    state: &'a mut ChainState,
    head: &'a RequestHead,
    charged: bool,
}

impl<'a> Guard<'a> {
    /// A chain that has not been asked yet.
    pub(crate) fn new(node: &'a Node, set: &'a dyn PolicySet, state: &'a mut ChainState, head: &'a RequestHead) -> Self {
        Self { node, set, state, head, charged: false }
    }

    /// Phase request. Its charges are collected, not charged.
    pub(crate) async fn request(&mut self) -> Result<(), Failure> {
        self.ask(Subject::Request(self.head)).await
    }

    /// Phase attempt, then every budget of both phases in one call.
    pub(crate) async fn attempt(&mut self, attempt: &Attempt) -> Result<(), Failure> {
        self.ask(Subject::Attempt(self.head, attempt)).await?;
        self.charge().await
    }

    /// Charges every budget collected so far, all or none.
    pub(crate) async fn charge(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.charged, true) || self.state.charges.is_empty() {
            return Ok(());
        }
        match charge(self.node, &self.state.charges).await {
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

    /// The user this request speaks for.
    pub(crate) fn user(&self) -> Result<PrincipalId, Failure> {
        user_of(self.state)
    }

    async fn ask(&mut self, subject: Subject<'_>) -> Result<(), Failure> {
        match chain::run(self.set, &self.node.bindings, subject, self.state).await {
            None => Ok(()),
            Some(refusal) => Err(Failure::Refused(refusal)),
        }
    }
}
