//! The lots this node knows: a copy of the ledger's list, refreshed on a timer and at most five times a second on a miss.
//!
//! A request never waits for the ledger when its lot is known; a lot that nobody ever published costs the ledger at most
//! one query per [`MISS_REFRESH`], however many clients ask for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use gateway_core::id::Lot;
use gateway_core::ports::{PortError, SaleLedger};
use gateway_core::sale::LotRecord;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::clock;

/// How fresh the list must be for an unknown lot to be called unknown.
const MISS_REFRESH: Duration = Duration::from_millis(200);

/// A node's copy of the ledger's lots.
pub(crate) struct Catalog {
    ledger: Arc<dyn SaleLedger>,
    lots: ArcSwapOption<BTreeMap<Lot, LotRecord>>,
    refreshed: Mutex<Option<Instant>>,
}

impl Catalog {
    /// An empty copy; the first [`Catalog::refresh`] fills it.
    pub(crate) fn new(ledger: Arc<dyn SaleLedger>) -> Self {
        Self { ledger, lots: ArcSwapOption::empty(), refreshed: Mutex::new(None) }
    }

    /// Reads the list again.
    pub(crate) async fn refresh(&self) -> Result<(), PortError> {
        self.refresh_if_older_than(Duration::ZERO).await
    }

    /// Reads the list again unless that happened within `age`. Callers queue behind a running read and use its outcome.
    async fn refresh_if_older_than(&self, age: Duration) -> Result<(), PortError> {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at.elapsed() < age) {
            return Ok(());
        }
        let lots = self.ledger.lots(clock::now()).await?;
        self.lots.store(Some(Arc::new(lots.into_iter().map(|record| (record.lot, record)).collect())));
        *refreshed = Some(Instant::now());
        Ok(())
    }

    /// The lot, if it is published. An error means the ledger is away and the copy does not have it.
    pub(crate) async fn find(&self, lot: Lot) -> Result<Option<LotRecord>, PortError> {
        if let Some(record) = self.known(lot) {
            return Ok(Some(record));
        }
        self.refresh_on_miss().await?;
        Ok(self.known(lot))
    }

    /// Reads the list again for somebody who missed something, unless that was done just now.
    pub(crate) async fn refresh_on_miss(&self) -> Result<(), PortError> {
        self.refresh_if_older_than(MISS_REFRESH).await
    }

    /// Every lot of the copy.
    pub(crate) fn all(&self) -> Arc<BTreeMap<Lot, LotRecord>> {
        self.lots.load_full().unwrap_or_default()
    }

    fn known(&self, lot: Lot) -> Option<LotRecord> {
        self.lots.load().as_ref().and_then(|lots| lots.get(&lot).cloned())
    }
}
