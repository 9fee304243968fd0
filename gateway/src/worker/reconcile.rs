//! Compares what the stores say of a lot, again and again.
//!
//! The metric follows every look; the compensation list gets what two looks in a row agree on. What is mended here is one
//! thing only: units on their way between shards whose carrier died.

use std::collections::BTreeSet;

use gateway_core::ports::PortResult;
use gateway_core::sale::{Difference, Invariant, LotRecord, Shard};
use gateway_core::time::UnixMillis;

use crate::sale::audit::{self, Audit};
use crate::sale::desk::Desk;
use crate::worker::share::Share;

/// Rounds after which a difference that is still there is put on the list again, where somebody may have dismissed it.
const AGAIN_AFTER: u32 = 6;

/// The step of one lot.
pub(super) struct Reconcile {
    desk: Desk,
    /// What the last look found.
    before: Vec<Difference>,
    /// What is on the list, and for how many rounds.
    listed: (Vec<Difference>, u32),
    /// Transfers that were on their way at the last look.
    in_transit: BTreeSet<String>,
    broken: Vec<(Invariant, Share)>,
}

impl Reconcile {
    /// Nothing looked at yet.
    pub(super) fn new(desk: Desk) -> Self {
        let gauge = |invariant: Invariant| desk.metrics.invariant_broken.with_label_values(&[invariant.as_str()]);
        let broken = Invariant::ALL.into_iter().map(|invariant| (invariant, Share::new(gauge(invariant)))).collect();
        Self { desk, before: Vec::new(), listed: (Vec::new(), 0), in_transit: BTreeSet::new(), broken }
    }

    /// One look; says what does not hold.
    pub(super) async fn round(&mut self, record: &LotRecord, now: UnixMillis) -> PortResult<Vec<Difference>> {
        let Some(audit) = audit::look(&*self.desk.admission, &*self.desk.ledger, record.lot, record.shards).await? else {
            return Ok(Vec::new());
        };
        self.land(record, &audit).await?;
        let mut found = audit.differences.clone();
        let mut confirmed = audit::confirmed(&self.before, &found);
        if audit.shards.is_none() {
            // Nothing was seen of the store, so what was seen of it last stands.
            found.extend(self.before.iter().filter(|difference| is_of_store(difference.invariant)));
            confirmed.extend(self.listed.0.iter().filter(|difference| is_of_store(difference.invariant)));
        }
        for (invariant, share) in &mut self.broken {
            share.set(u64::from(found.iter().any(|difference| difference.invariant == *invariant)));
        }
        if confirmed != self.listed.0 || self.listed.1 >= AGAIN_AFTER {
            audit::report(&*self.desk.ledger, record.lot, &audit, &confirmed, now).await?;
            self.listed = (confirmed, 0);
        } else {
            self.listed.1 += 1;
        }
        self.before.clone_from(&found);
        Ok(found)
    }

    /// Lands what was on its way at the last look already.
    async fn land(&mut self, record: &LotRecord, audit: &Audit) -> PortResult<()> {
        for transfer in audit.in_transit.iter().filter(|transfer| self.in_transit.contains(&transfer.id)) {
            let to = Shard { lot: record.lot, index: transfer.to };
            if self.desk.admission.receive(to, audit.books.epoch, &transfer.id, transfer.units).await? {
                tracing::info!(shard = %to, units = transfer.units, "units that were on their way have arrived");
                if let Some(stock) = self.desk.admission.stock(to).await? {
                    self.desk.returned(to, stock.at).await;
                }
            }
        }
        self.in_transit = audit.in_transit.iter().map(|transfer| transfer.id.clone()).collect();
        Ok(())
    }
}

fn is_of_store(invariant: Invariant) -> bool {
    match invariant {
        Invariant::StockIsLeftAndReserved | Invariant::ReservedIsLive => true,
        Invariant::SoldIsLive | Invariant::LockedIsPromised => false,
    }
}
