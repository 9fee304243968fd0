//! The end of an activity: every shard of every lot is closed, what they logged is in the ledger, then it is settled.
//!
//! In this order, because each makes the next one final: a closed sale admits nobody, so its events can only get fewer; and
//! settling raises the epochs, so whatever might still come is stale. A store that lost a sale has nothing to wait for.
//! Called by the keeper of the activity's first lot, and to close by the admin API.

use gateway_core::id::Lot;
use gateway_core::ports::{Admission, PortResult};
use gateway_core::sale::{LotRecord, SaleState, Shard, StepOutcome};
use gateway_core::time::UnixMillis;

use crate::sale::audit;
use crate::sale::desk::Desk;

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// So many order events of the activity are not in the ledger yet.
    Waiting(u64),
    /// Settled.
    Settled,
    /// The keeper of the activity's first lot looks after it.
    Elsewhere,
}

/// One step towards the end of `record`'s activity, which is closing.
pub(crate) async fn step(desk: &Desk, record: &LotRecord, now: UnixMillis) -> PortResult<Ended> {
    let Some(activity) = desk.ledger.activity(record.lot.activity).await? else { return Ok(Ended::Elsewhere) };
    if activity.products.iter().map(|product| product.lot).min() != Some(record.lot) {
        return Ok(Ended::Elsewhere);
    }
    let mut waiting = 0;
    for product in &activity.products {
        waiting += shut(&*desk.admission, product.lot, product.shards).await?;
    }
    if waiting > 0 {
        return Ok(Ended::Waiting(waiting));
    }
    for product in &activity.products {
        last_look(desk, product, now).await?;
    }
    if desk.ledger.settle(activity.id).await? != StepOutcome::Done {
        return Ok(Ended::Elsewhere);
    }
    for product in &activity.products {
        retire(&*desk.admission, product.lot, product.shards).await?;
    }
    Ok(Ended::Settled)
}

/// Closes every shard of `lot` that has a sale in force, and says how many events wait in them afterwards.
pub(crate) async fn shut(admission: &dyn Admission, lot: Lot, shards: u8) -> PortResult<u64> {
    let mut waiting = 0;
    for shard in Shard::all(lot, shards) {
        if let Some(sale) = admission.stock(shard).await?
            && sale.state != SaleState::Closed
            && !admission.set_state(shard, sale.at.epoch, SaleState::Closed).await?
        {
            // Another epoch was put in force since: as good as an event that waits.
            waiting += 1;
        }
        waiting += admission.backlog(shard).await?;
    }
    Ok(waiting)
}

/// Lets the store forget the closed shards of `lot`.
pub(crate) async fn retire(admission: &dyn Admission, lot: Lot, shards: u8) -> PortResult<()> {
    for shard in Shard::all(lot, shards) {
        if let Some(sale) = admission.stock(shard).await? {
            admission.retire(shard, sale.at.epoch).await?;
        }
    }
    Ok(())
}

/// Nothing moves any more but payments, so what does not fit now would never be seen again.
async fn last_look(desk: &Desk, product: &LotRecord, now: UnixMillis) -> PortResult<()> {
    let look = || audit::look(&*desk.admission, &*desk.ledger, product.lot, product.shards);
    let Some(first) = look().await? else { return Ok(()) };
    if first.differences.is_empty() {
        return Ok(());
    }
    let Some(second) = look().await? else { return Ok(()) };
    let broken = audit::confirmed(&first.differences, &second.differences);
    audit::report(&*desk.ledger, product.lot, &second, &broken, now).await
}
