//! Keeps the admission store in step with the ledger: pre-heats lots before their window and rebuilds them under a new
//! epoch when the store came back with older data, or with none.
//!
//! Safe to run on any number of workers at once: the ledger's epoch is raised by compare-and-set, and the admission store
//! takes only higher epochs. Called by the worker's timer and by the admin API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::id::Lot;
use gateway_core::ports::{Admission, Installed, PortError, SaleLedger};
use gateway_core::sale::{ActivityState, LotRecord, SaleState};
use gateway_core::time::UnixMillis;

/// What a look at one lot led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The sale in force agrees with the ledger, or it is too early or too late to matter.
    Well,
    /// A sale was put in force under this epoch.
    Installed(u32),
    /// The sale is paused until its logged events are in the ledger.
    Draining(u64),
    /// Somebody else is at it, or will be.
    Elsewhere,
}

/// Looks at lots and mends what differs.
pub(crate) struct Keeper {
    admission: Arc<dyn Admission>,
    ledger: Arc<dyn SaleLedger>,
    preheat_before: Duration,
    /// Lots whose store epoch was behind the ledger's at the last look: another worker may be between its two steps.
    behind: BTreeMap<Lot, u32>,
}

impl Keeper {
    /// `preheat_before` is how long before its start a lot is pre-heated.
    pub(crate) fn new(admission: Arc<dyn Admission>, ledger: Arc<dyn SaleLedger>, preheat_before: Duration) -> Self {
        Self { admission, ledger, preheat_before, behind: BTreeMap::new() }
    }

    /// One look at every lot.
    pub(crate) async fn tend(&mut self, lots: &[LotRecord], now: UnixMillis) -> Result<Vec<(Lot, Kept)>, PortError> {
        let incarnation = self.admission.incarnation().await?;
        let mut done = Vec::new();
        for record in lots {
            let due = record.state == ActivityState::Published && now < record.end && now.plus(self.preheat_before) >= record.start;
            if due {
                let kept = self.tend_one(record, &incarnation).await?;
                if kept != Kept::Well {
                    done.push((record.lot, kept));
                }
            }
        }
        self.behind.retain(|lot, _| lots.iter().any(|record| record.lot == *lot));
        Ok(done)
    }

    async fn tend_one(&mut self, record: &LotRecord, incarnation: &str) -> Result<Kept, PortError> {
        let lot = record.lot;
        let Some(stock) = self.admission.stock(lot).await? else {
            return preheat(&*self.admission, &*self.ledger, record).await;
        };
        if stock.epoch < record.epoch {
            if self.behind.insert(lot, record.epoch) == Some(record.epoch) {
                return raise(&*self.admission, &*self.ledger, record).await;
            }
            return Ok(Kept::Elsewhere);
        }
        self.behind.remove(&lot);
        if stock.epoch > record.epoch {
            // The list of lots is older than the store; the next look has a newer one.
            return Ok(Kept::Elsewhere);
        }
        if stock.incarnation == incarnation && stock.state != SaleState::Paused {
            return Ok(Kept::Well);
        }
        // The store may have lost admissions. Nobody is admitted until what it still has is in the ledger, so that
        // the new epoch's stock counts every order.
        self.admission.set_state(lot, stock.epoch, SaleState::Paused).await?;
        match self.admission.backlog(lot).await? {
            0 => raise(&*self.admission, &*self.ledger, record).await,
            backlog => Ok(Kept::Draining(backlog)),
        }
    }
}

/// Puts the first sale of a lot in force, or one after the store lost everything. A lot with a sale in force is left
/// alone, so calling this twice changes nothing.
pub(crate) async fn preheat(admission: &dyn Admission, ledger: &dyn SaleLedger, record: &LotRecord) -> Result<Kept, PortError> {
    match admission.stock(record.lot).await? {
        Some(stock) if stock.epoch >= record.epoch => Ok(Kept::Well),
        Some(_) | None => raise(admission, ledger, record).await,
    }
}

async fn raise(admission: &dyn Admission, ledger: &dyn SaleLedger, record: &LotRecord) -> Result<Kept, PortError> {
    let Some(terms) = ledger.raise_epoch(record.lot, record.epoch).await? else {
        return Ok(Kept::Elsewhere);
    };
    Ok(match admission.install(record.lot, &terms).await? {
        Installed::Yes => Kept::Installed(terms.epoch),
        Installed::Stale => Kept::Elsewhere,
    })
}
