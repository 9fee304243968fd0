//! A look at a lot in both stores at once, and what contradicts.
//!
//! The stores change while they are read, so a look counts only when nothing moved between its first and its last read.
//! What never happens here: mending. Called by the worker every few seconds, when a sale ends, and by the admin API.

use std::collections::BTreeSet;

use gateway_core::id::Lot;
use gateway_core::ports::{Admission, PortResult, SaleLedger};
use gateway_core::sale::{Difference, Invariant, LetterKind, LotBooks, NewLetter, Shard, Survey, Transfer, books, shard};
use gateway_core::time::UnixMillis;
use serde_json::{Value, json};

/// Looks at a lot in which something moves all the time, before it is left for the next round.
const LOOKS_MAX: usize = 3;

/// What was seen.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    /// The ledger's side.
    pub books: LotBooks,
    /// Every shard, when nothing was under way.
    pub shards: Option<Vec<Survey>>,
    /// What contradicts; of the admission store nothing while something is under way.
    pub differences: Vec<Difference>,
    /// Units on their way between shards, all of the ledger's epoch.
    pub in_transit: Vec<Transfer>,
}

impl Audit {
    /// Each invariant by name, and whether it holds; `null` where something is under way and there is nothing to compare.
    pub(crate) fn invariants(&self) -> Value {
        let entry = |invariant: Invariant| (invariant.as_str().to_owned(), self.holds(invariant).map_or(Value::Null, Value::Bool));
        Value::Object(Invariant::ALL.into_iter().map(entry).collect())
    }

    /// Both sides of each invariant, by name.
    pub(crate) fn sides(&self) -> Value {
        let sum = |units: fn(&Survey) -> u64| self.shards.as_ref().map(|shards| shards.iter().map(units).sum::<u64>());
        let left = sum(|survey| u64::from(survey.stock.left));
        let reserved = sum(|survey| shard::units(&survey.buyers));
        let sides = |invariant| match invariant {
            Invariant::StockIsLeftAndReserved => json!({ "stock": self.books.stock, "left": left, "reserved": reserved }),
            Invariant::ReservedIsLive => json!({ "reserved": reserved, "live": self.books.live }),
            Invariant::SoldIsLive => json!({ "sold": self.books.sold, "live": self.books.live, "moved": self.books.moved }),
            Invariant::LockedIsPromised => json!({ "locked": self.books.sku_locked, "promised": self.books.sku_promised }),
        };
        Value::Object(Invariant::ALL.into_iter().map(|invariant| (invariant.as_str().to_owned(), sides(invariant))).collect())
    }

    fn holds(&self, invariant: Invariant) -> Option<bool> {
        let seen = match invariant {
            Invariant::StockIsLeftAndReserved | Invariant::ReservedIsLive => self.shards.is_some(),
            Invariant::SoldIsLive | Invariant::LockedIsPromised => true,
        };
        seen.then(|| self.differences.iter().all(|difference| difference.invariant != invariant))
    }
}

/// Looks at `lot`, which has `shards` of them. `None`: the ledger does not know it.
pub(crate) async fn look(admission: &dyn Admission, ledger: &dyn SaleLedger, lot: Lot, shards: u8) -> PortResult<Option<Audit>> {
    let Some(mut before) = ledger.books(lot).await? else { return Ok(None) };
    for _ in 0..LOOKS_MAX {
        let counted = count(admission, lot, shards).await?;
        let Some(after) = ledger.books(lot).await? else { return Ok(None) };
        let still = after == before;
        before = after;
        // An order that the survey missed is an event that waits, or moved the ledger between its two reads.
        if let Some(surveys) = counted.filter(|_| still) {
            return Ok(Some(compare(before, surveys)));
        }
    }
    Ok(Some(Audit { differences: books::in_ledger(&before), books: before, shards: None, in_transit: Vec::new() }))
}

/// Every shard, when no event waited before and after and none was missing.
async fn count(admission: &dyn Admission, lot: Lot, shards: u8) -> PortResult<Option<Vec<Survey>>> {
    if waiting(admission, lot, shards).await? > 0 {
        return Ok(None);
    }
    let mut surveys = Vec::new();
    for shard in Shard::all(lot, shards) {
        let Some(survey) = admission.survey(shard).await? else { return Ok(None) };
        surveys.push(survey);
    }
    let quiet = waiting(admission, lot, shards).await? == 0;
    Ok(Some(surveys).filter(|surveys| quiet && is_whole(surveys)))
}

/// Events of every shard that are not acknowledged.
pub(crate) async fn waiting(admission: &dyn Admission, lot: Lot, shards: u8) -> PortResult<u64> {
    let mut waiting = 0;
    for shard in Shard::all(lot, shards) {
        waiting += admission.backlog(shard).await?;
    }
    Ok(waiting)
}

/// A transfer that arrived and was not sent was on its way while the shards were read one after the other.
fn is_whole(surveys: &[Survey]) -> bool {
    let sent: BTreeSet<&str> = surveys.iter().flat_map(|survey| &survey.sent).map(|transfer| transfer.id.as_str()).collect();
    surveys.iter().flat_map(|survey| &survey.received).all(|id| sent.contains(id.as_str()))
}

fn compare(ledger: LotBooks, surveys: Vec<Survey>) -> Audit {
    let mut differences = books::in_ledger(&ledger);
    // Ids are of one epoch: units of another one are counted in its stock already.
    let current = surveys.iter().all(|survey| survey.stock.at.epoch == ledger.epoch);
    let in_transit = if current { books::in_transit(&surveys) } else { Vec::new() };
    let in_shards = books::in_shards(&ledger, &surveys);
    let shards = in_shards.is_some().then_some(surveys);
    differences.extend(in_shards.unwrap_or_default());
    Audit { books: ledger, shards, differences, in_transit }
}

/// What two looks in a row agree on.
pub(crate) fn confirmed(first: &[Difference], second: &[Difference]) -> Vec<Difference> {
    second.iter().filter(|difference| first.contains(difference)).copied().collect()
}

/// Puts `differences` on the compensation list; what is there already is open again.
pub(crate) async fn report(
    ledger: &dyn SaleLedger,
    lot: Lot,
    audit: &Audit,
    differences: &[Difference],
    now: UnixMillis,
) -> PortResult<()> {
    for Difference { invariant, expected, found } in differences {
        let name = invariant.as_str();
        tracing::error!(%lot, invariant = name, expected, found, "an invariant of the sale does not hold");
        let payload = json!({
            "activityId": lot.activity.to_string(), "skuId": lot.sku.to_string(), "invariant": name,
            "expected": expected, "found": found, "epoch": audit.books.epoch, "sides": audit.sides(),
        });
        let letter = NewLetter {
            kind: LetterKind::Invariant,
            source_id: format!("{lot}:{name}"),
            payload: payload.to_string(),
            error: format!("{name} of {lot}: {expected} expected, {found} found"),
            attempts: 1,
        };
        ledger.write_letter(&letter, now).await?;
    }
    Ok(())
}
