//! Charging what a chain asked for: the accounts of this process first, then those of the cluster in one call.
//!
//! The cluster's accounts are charged all or none. A local account that was charged before the cluster refused keeps its
//! charge: it protects this process from work, and the work of asking was done.

use gateway_core::policy::{Charge, Refusal, Scope};
use gateway_core::ports::{ChargeOutcome, PortError};

use crate::node::Node;

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
    /// The accounts cannot be reached.
    Away(PortError),
}

/// Charges all of `charges`.
pub(crate) async fn charge(node: &Node, charges: &[Charge]) -> Result<(), Uncharged> {
    let (cluster, local): (Vec<Charge>, Vec<Charge>) = charges.iter().cloned().partition(|charge| charge.scope == Scope::Cluster);
    for (charges, budgets) in [(local, &node.local_budgets), (cluster, &node.ports.budgets)] {
        if charges.is_empty() {
            continue;
        }
        match budgets.charge(&charges).await.map_err(Uncharged::Away)? {
            ChargeOutcome::Charged => {}
            ChargeOutcome::Exhausted { index, retry_after } => {
                let mut refusal = charges[index].refusal.clone();
                // Rounded up: a client that waits exactly this long must fit.
                let millis = u64::try_from(retry_after.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
                refusal.retry_after_ms = Some(millis.max(1));
                return Err(Uncharged::Exhausted { budget: charges[index].budget.clone(), refusal });
            }
        }
    }
    Ok(())
}
