//! Charging what a chain asked for: the accounts of this process first, then those of the cluster in one call.
//!
//! The cluster's accounts are charged all or none. A local account that was charged before the cluster refused keeps its
//! charge: it protects this process from work, and the work of asking was done. Accounts of policies that do not enforce
//! are charged after the others have agreed, and whatever comes of them changes nothing but the decision record.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use gateway_core::backoff::Backoff;
use gateway_core::config::OnFault;
use gateway_core::policy::chain::ChainState;
use gateway_core::policy::{Charge, Refusal, Scope};
use gateway_core::ports::{Budgets, ChargeOutcome, PortError, PortErrorKind};
use tokio::time::{Instant, sleep};

use crate::node::Node;

/// Pauses between calls to accounts that are away.
const RETRY: Backoff = Backoff { min: Duration::from_millis(20), max: Duration::from_millis(200) };

/// Why the charges of a chain do not stand.
#[derive(Debug)]
pub(crate) enum Uncharged {
    /// An account is exhausted; its policy's refusal, with the time after which this charge fits.
    Exhausted {
        /// Which budget.
        budget: String,
        /// The answer for the client.
        refusal: Refusal,
    },
    /// The accounts cannot be reached, and a policy that charges them is closed for that.
    Away(PortError),
}

/// Charges what `state` has collected since it was charged last, and leaves it without charges. The names of the budgets
/// are added to `budgets`, for the decision record. Accounts that are away are asked again until `patience` is over, where a
/// policy is closed for that; a charge whose answer was lost may then count twice.
pub(crate) async fn charge(node: &Node, state: &mut ChainState, budgets: &mut Vec<String>, patience: Duration) -> Result<(), Uncharged> {
    let charges = std::mem::take(&mut state.charges);
    let dry = std::mem::take(&mut state.dry_charges);
    if charges.is_empty() && dry.is_empty() {
        return Ok(());
    }
    budgets.extend(charges.iter().map(|charge| charge.budget.clone()));
    let patience = if state.unreachable == OnFault::Closed { patience } else { Duration::ZERO };
    match all(node, charges, patience).await {
        Ok(()) => {}
        Err(Uncharged::Away(error)) => {
            let outcome = if state.unreachable == OnFault::Open { "open" } else { "closed" };
            node.metrics.policy_budgets_unreachable.with_label_values(&[outcome]).inc();
            if state.unreachable == OnFault::Closed {
                return Err(Uncharged::Away(error));
            }
        }
        Err(exhausted @ Uncharged::Exhausted { .. }) => return Err(exhausted),
    }
    charge_dry(node, state, dry).await;
    Ok(())
}

/// Charges the accounts of policies that do not enforce: each policy's on their own, so that one that is exhausted hides
/// nothing of another.
async fn charge_dry(node: &Node, state: &mut ChainState, dry: Vec<(Arc<str>, Charge)>) {
    let mut by_policy: Vec<(Arc<str>, Vec<Charge>)> = Vec::new();
    for (policy, charge) in dry {
        match by_policy.iter_mut().find(|(known, _)| *known == policy) {
            Some((_, charges)) => charges.push(charge),
            None => by_policy.push((policy, vec![charge])),
        }
    }
    let charged = by_policy.into_iter().map(|(policy, charges)| async move { (policy, all(node, charges, Duration::ZERO).await) });
    for (policy, outcome) in join_all(charged).await {
        match outcome {
            Ok(()) => {}
            Err(Uncharged::Exhausted { refusal, .. }) => state.would_refuse(&policy, &refusal.code),
            Err(Uncharged::Away(_)) => node.metrics.policy_budgets_unreachable.with_label_values(&["dry"]).inc(),
        }
    }
}

async fn all(node: &Node, charges: Vec<Charge>, patience: Duration) -> Result<(), Uncharged> {
    let (cluster, local): (Vec<Charge>, Vec<Charge>) = charges.into_iter().partition(|charge| charge.scope == Scope::Cluster);
    for (mut charges, budgets) in [(local, &node.local_budgets), (cluster, &node.ports.budgets)] {
        if charges.is_empty() {
            continue;
        }
        match patiently(&**budgets, &charges, patience).await.map_err(Uncharged::Away)? {
            ChargeOutcome::Charged => {}
            ChargeOutcome::Exhausted { index, retry_after } => {
                let Charge { budget, refusal, .. } = charges.swap_remove(index);
                // Rounded up: a client that waits exactly this long must fit.
                let millis = u64::try_from(retry_after.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
                let refusal = Refusal { retry_after_ms: Some(millis.max(1)), ..refusal };
                return Err(Uncharged::Exhausted { budget, refusal });
            }
        }
    }
    Ok(())
}

async fn patiently(budgets: &dyn Budgets, charges: &[Charge], patience: Duration) -> Result<ChargeOutcome, PortError> {
    let began = Instant::now();
    let mut failures = 0;
    loop {
        match budgets.charge(charges).await {
            Err(error) if error.kind == PortErrorKind::Unavailable && began.elapsed() < patience => {
                sleep(RETRY.delay(failures, rand::random())).await;
                failures += 1;
            }
            outcome => return outcome,
        }
    }
}
