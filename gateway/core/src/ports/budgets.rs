//! Budgets: accounts that policies charge.

use std::time::Duration;

use async_trait::async_trait;

use crate::policy::Charge;
use crate::ports::PortResult;

/// What became of a set of charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargeOutcome {
    /// Every account was charged.
    Charged,
    /// No account was charged: the one at `index` is exhausted until `retry_after` has passed.
    Exhausted {
        /// Index into the charges given; the first exhausted one in order.
        index: usize,
        /// How long until this charge would fit.
        retry_after: Duration,
    },
}

/// Rate accounts shared by the cluster.
///
/// Promise: one call is one atomic step by the rules of [`crate::policy::budget`], all or nothing, on the store's own
/// clock. Two charges to the same account in one call add up. At most 64 charges a call.
#[async_trait]
pub trait Budgets: Send + Sync {
    /// Charges all of `charges`, or none.
    async fn charge(&self, charges: &[Charge]) -> PortResult<ChargeOutcome>;
}
