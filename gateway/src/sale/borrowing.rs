//! Borrowing: a shard that has too little gets units of another one before anybody is told "sold out".
//!
//! Units leave the donor in one step and arrive in another, both under one id, so each may be repeated; what is lost between
//! the two is under way until the books are compared. What never happens here: deciding about an attempt. One transfer per
//! shard is under way on a node; whoever needs units meanwhile waits for it. Called by `buying`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use gateway_core::ports::{Admission, PortError};
use gateway_core::sale::{SaleState, Shard, StockVersion};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::health;
use crate::sale::flags::Flags;

/// Attempts to land units that have left their donor, and the pause between two: a blink of the store is bridged.
const LANDINGS_MAX: u32 = 3;
const LAND_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What a shard lacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// The shard.
    pub shard: Shard,
    /// How many shards the lot has.
    pub shards: u8,
    /// Units somebody asked for.
    pub qty: u32,
    /// Units that were left.
    pub left: u32,
    /// When that was.
    pub at: StockVersion,
}

/// Moves units between the shards of a lot.
pub(crate) struct Borrowing {
    admission: Arc<dyn Admission>,
    flags: Arc<Flags>,
    /// Makes ids of this process unlike those of any other.
    prefix: String,
    count: AtomicU64,
    /// Whether units came, once that is known.
    under_way: Mutex<BTreeMap<Shard, watch::Receiver<Option<bool>>>>,
}

impl Borrowing {
    /// For the node called `name`.
    pub(crate) fn new(admission: Arc<dyn Admission>, flags: Arc<Flags>, name: &str) -> Self {
        let prefix = format!("{name}-{:016x}", rand::random::<u64>());
        Self { admission, flags, prefix, count: AtomicU64::new(0), under_way: Mutex::default() }
    }

    /// Whether units came to the shard, so that asking again makes sense.
    pub(crate) async fn borrow(self: &Arc<Self>, need: Need) -> bool {
        let mut outcome = match self.under_way.lock().unwrap_or_else(PoisonError::into_inner).entry(need.shard) {
            Entry::Occupied(running) => running.get().clone(),
            Entry::Vacant(free) => {
                let (told, outcome) = watch::channel(None);
                // A task of its own: a client that goes away must not leave units between two shards.
                let borrowing = self.clone();
                tokio::spawn(async move {
                    let came = borrowing.transfer(need).await;
                    borrowing.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&need.shard);
                    told.send_replace(Some(came));
                });
                free.insert(outcome).clone()
            }
        };
        // Ends with the transfer, whose calls have deadlines; a sender that is gone is a transfer that failed.
        outcome.wait_for(Option::is_some).await.ok().and_then(|came| *came).unwrap_or(false)
    }

    async fn transfer(&self, need: Need) -> bool {
        match self.gather(need).await {
            Ok(None) => false,
            Ok(Some(at)) => {
                self.flags.returned(need.shard, at).await;
                true
            }
            Err(error) => {
                tracing::warn!(shard = %need.shard, error = health::chain(&error), "cannot borrow units now");
                false
            }
        }
    }

    /// Takes from the others, the richest first, until there is enough. Says as of when the shard has more.
    async fn gather(&self, need: Need) -> Result<Option<StockVersion>, PortError> {
        let others = Shard::all(need.shard.lot, need.shards).filter(|shard| *shard != need.shard);
        let stocks = join_all(others.map(async |shard| (shard, self.admission.stock(shard).await))).await;
        let mut donors = Vec::new();
        for (shard, stock) in stocks {
            // Units of another epoch are not the same units.
            if let Some(stock) = stock?
                && stock.state == SaleState::Open
                && stock.at.epoch == need.at.epoch
                && stock.left > 0
            {
                donors.push((stock.left, shard));
            }
        }
        donors.sort_unstable_by(|a, b| b.cmp(a));
        let mut lacking = need.qty.saturating_sub(need.left);
        let mut came = false;
        for (left, donor) in donors {
            // Half of what the richest has, so that both have something to sell for a while.
            let units = self.move_units(donor, need, left.div_ceil(2).max(lacking)).await?;
            came |= units > 0;
            lacking = lacking.saturating_sub(units);
            if lacking == 0 {
                break;
            }
        }
        if !came {
            return Ok(None);
        }
        Ok(self.admission.stock(need.shard).await?.map(|stock| stock.at))
    }

    /// Says how many units arrived.
    async fn move_units(&self, donor: Shard, need: Need, wanted: u32) -> Result<u32, PortError> {
        let id = format!("{}-{}", self.prefix, self.count.fetch_add(1, Ordering::Relaxed));
        let units = self.admission.send(donor, &id, need.shard.index, wanted).await?;
        if units == 0 {
            return Ok(0);
        }
        for landing in 1.. {
            match self.admission.receive(need.shard, need.at.epoch, &id, units).await {
                // Now or before: by an attempt whose answer was lost, or by whoever compares the books. Where the epoch has
                // changed nothing landed, and asking again does no harm.
                Ok(_) => return Ok(units),
                Err(error) if landing == LANDINGS_MAX => return Err(error),
                Err(_) => sleep(LAND_AGAIN_AFTER).await,
            }
        }
        Ok(0)
    }
}
