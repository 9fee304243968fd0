//! Keeps a lot in the admission store in step with the ledger: pre-heats it before its window, rebuilds it under a new epoch
//! when the store came back with older data or with none, ends it when its window is over.
//!
//! Safe beside others who do the same: the ledger's epoch is raised by compare-and-set, and the admission store takes only
//! higher epochs. Called once a second by the worker that holds the lot; pre-heating also by the admin API.

use std::time::Duration;

use gateway_core::ports::{Installed, PortResult};
use gateway_core::sale::activity::{Due, due};
use gateway_core::sale::{LotRecord, SaleState, SaleStock, Shard, StockVersion, shard};
use gateway_core::time::UnixMillis;

use crate::sale::desk::Desk;
use crate::sale::ending::{self, Ended};

/// What a look at a lot led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Store and ledger agree, or it is too early or too late to matter.
    Well,
    /// A sale was put in force under this epoch.
    Installed(u32),
    /// The sale is paused until its logged events are in the ledger; so many wait.
    Draining(u64),
    /// Somebody else is at it, or the list of lots is older than the store; the next look knows more.
    Elsewhere,
    /// The activity began to close.
    Closing,
    /// It ends.
    Ending(Ended),
}

/// Looks at one lot and mends what differs.
pub(crate) struct Keeper {
    desk: Desk,
    preheat_before: Duration,
    /// The ledger's epoch when shards were behind it at the last look: whoever raised it may have been about to install.
    behind: Option<u32>,
}

impl Keeper {
    /// `preheat_before` is how long before its start a lot is pre-heated.
    pub(crate) fn new(desk: Desk, preheat_before: Duration) -> Self {
        Self { desk, preheat_before, behind: None }
    }

    /// One look.
    pub(crate) async fn tend(&mut self, record: &LotRecord, now: UnixMillis) -> PortResult<Kept> {
        match due(record.state, record.start, record.end, self.preheat_before, now) {
            Due::Wait => Ok(Kept::Well),
            Due::Sell => self.sell(record).await,
            Due::Close => {
                self.desk.ledger.close(record.lot.activity).await?;
                Ok(Kept::Closing)
            }
            Due::Settle => ending::step(&self.desk, record, now).await.map(Kept::Ending),
            // Settled, and the store woke up with an older sale: nothing is sold from it any more.
            Due::Rest => {
                ending::shut(&*self.desk.admission, record.lot, record.shards).await?;
                Ok(Kept::Well)
            }
        }
    }

    async fn sell(&mut self, record: &LotRecord) -> PortResult<Kept> {
        let shards = read(&self.desk, record).await?;
        match judge(record, &shards) {
            Standing::Well => {
                self.behind = None;
                Ok(Kept::Well)
            }
            Standing::Ahead => Ok(Kept::Elsewhere),
            Standing::Absent => raise(&self.desk, record).await,
            Standing::Behind if self.behind.replace(record.epoch) != Some(record.epoch) => Ok(Kept::Elsewhere),
            Standing::Behind | Standing::Doubtful => self.rebuild(record, &shards).await,
        }
    }

    /// The store may have lost admissions. Nobody is admitted until what it still has is in the ledger, so that the new
    /// epoch's stock counts every order.
    async fn rebuild(&mut self, record: &LotRecord, shards: &[Seen]) -> PortResult<Kept> {
        let mut waiting = 0;
        for Seen { shard, sale, .. } in shards {
            if let Some(sale) = sale {
                self.desk.admission.set_state(*shard, sale.at.epoch, SaleState::Paused).await?;
            }
        }
        for Seen { shard, .. } in shards {
            waiting += self.desk.admission.backlog(*shard).await?;
        }
        if waiting > 0 {
            return Ok(Kept::Draining(waiting));
        }
        raise(&self.desk, record).await
    }
}

/// A shard as the admission store has it.
struct Seen {
    shard: Shard,
    sale: Option<SaleStock>,
    /// The life of the store that holds it.
    incarnation: String,
}

async fn read(desk: &Desk, record: &LotRecord) -> PortResult<Vec<Seen>> {
    let mut shards = Vec::new();
    for shard in Shard::all(record.lot, record.shards) {
        // In this order: a store that is exchanged in between is found at the next look, not taken for a changed one.
        let sale = desk.admission.stock(shard).await?;
        let incarnation = desk.admission.incarnation(shard).await?;
        shards.push(Seen { shard, sale, incarnation });
    }
    Ok(shards)
}

/// How the shards of a lot stand to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// In force under the ledger's epoch, in the store's life they were installed in.
    Well,
    /// Some are of a higher epoch than the list of lots knows.
    Ahead,
    /// None is in force.
    Absent,
    /// Some are missing or of a lower epoch: whoever raises it is between two steps, or died there.
    Behind,
    /// The store may have come back with older data, or somebody paused the sale for a rebuild.
    Doubtful,
}

fn judge(record: &LotRecord, shards: &[Seen]) -> Standing {
    let sales = || shards.iter().filter_map(|seen| seen.sale.as_ref());
    if sales().any(|sale| sale.at.epoch > record.epoch) {
        Standing::Ahead
    } else if sales().next().is_none() {
        Standing::Absent
    } else if shards.iter().any(|seen| seen.sale.as_ref().is_none_or(|sale| sale.at.epoch < record.epoch)) {
        Standing::Behind
    } else if shards.iter().any(Seen::is_doubtful) {
        Standing::Doubtful
    } else {
        Standing::Well
    }
}

impl Seen {
    fn is_doubtful(&self) -> bool {
        self.sale.as_ref().is_some_and(|sale| sale.incarnation != self.incarnation || sale.state == SaleState::Paused)
    }
}

/// Puts the first sale of a lot in force, or one after the store lost everything. A lot with a sale in force is left
/// alone, so calling this twice changes nothing.
pub(crate) async fn preheat(desk: &Desk, record: &LotRecord) -> PortResult<Kept> {
    let shards = read(desk, record).await?;
    if shards.iter().any(|seen| seen.sale.is_some()) { Ok(Kept::Well) } else { raise(desk, record).await }
}

/// Raises the epoch and puts its terms in force, shard by shard. Dying in between leaves shards behind, which heals.
async fn raise(desk: &Desk, record: &LotRecord) -> PortResult<Kept> {
    let Some(terms) = desk.ledger.raise_epoch(record.lot, record.epoch).await? else {
        return Ok(Kept::Elsewhere);
    };
    let epoch = terms.epoch;
    for (shard, terms) in Shard::all(record.lot, record.shards).zip(shard::split(record.lot, terms, record.shards)) {
        if desk.admission.install(shard, &terms).await? == Installed::Stale {
            return Ok(Kept::Elsewhere);
        }
        desk.returned(shard, StockVersion { epoch, returns: 0 }).await;
    }
    Ok(Kept::Installed(epoch))
}
