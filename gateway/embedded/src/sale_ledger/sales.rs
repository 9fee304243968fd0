//! SKUs, activities and their lots: what is sold, and the units of it.
//!
//! What never happens here: a decision; those are `gateway_core::sale::activity`'s.

use std::collections::BTreeMap;
use std::time::Duration;

use gateway_core::id::{ActivityId, Lot, SkuId};
use gateway_core::ports::{PortResult, Store};
use gateway_core::sale::order::Room;
use gateway_core::sale::{
    ActivityRecord, ActivityState, CreateOutcome, LotRecord, NewActivity, NewProduct, PublishOutcome, SkuUpsert, StepOutcome, activity,
};
use gateway_core::time::UnixMillis;

use super::{ACTIVITIES_MAX, LOTS_MAX};
use crate::full;

/// How long a lot stays listed after its end, once it is settled: the port's promise.
const LISTED_AFTER_END: Duration = Duration::from_secs(24 * 3_600);

#[derive(Default)]
pub(super) struct Sales {
    skus: BTreeMap<SkuId, Sku>,
    activities: BTreeMap<ActivityId, Activity>,
}

#[derive(Clone, Default)]
pub(super) struct Sku {
    name: String,
    /// Units in the warehouse; sold ones are gone from it.
    pub(super) stock: u32,
    /// Promised to unsettled activities, at most `stock`.
    pub(super) locked: u32,
}

pub(super) struct Activity {
    pub(super) terms: NewActivity,
    pub(super) state: ActivityState,
    products: Vec<Product>,
}

pub(super) struct Product {
    pub(super) terms: NewProduct,
    /// Units in live orders.
    pub(super) sold: u32,
    /// The sum of all movements, which is what a stock ledger adds up to.
    pub(super) moved: i64,
    pub(super) epoch: u32,
}

impl Activity {
    /// Whether its unsold units are locked in their SKUs.
    pub(super) fn locks(&self) -> bool {
        matches!(self.state, ActivityState::Published | ActivityState::Closing)
    }
}

impl Product {
    /// Units not in live orders.
    fn unsold(&self) -> u32 {
        self.terms.stock - self.sold
    }
}

impl Sales {
    pub(super) fn upsert_sku(&mut self, sku: &SkuUpsert) -> PortResult<()> {
        let known = self.skus.entry(sku.sku).or_default();
        let Some(stock) = known.stock.checked_add(sku.add_stock) else { return Err(full(Store::Mysql, "top a sku up")) };
        *known = Sku { name: sku.name.clone(), stock, ..*known };
        Ok(())
    }

    pub(super) fn create(&mut self, wanted: &NewActivity) -> PortResult<CreateOutcome> {
        if let Some(product) = wanted.products.iter().find(|product| !self.skus.contains_key(&product.sku)) {
            return Ok(CreateOutcome::UnknownSku(product.sku));
        }
        if self.activities.len() >= ACTIVITIES_MAX {
            return Err(full(Store::Mysql, "create an activity"));
        }
        let id = ActivityId(self.activities.len() as u64 + 1);
        let product = |terms: &NewProduct| Product { terms: terms.clone(), sold: 0, moved: 0, epoch: 0 };
        let products = wanted.products.iter().map(product).collect();
        self.activities.insert(id, Activity { terms: wanted.clone(), state: ActivityState::Draft, products });
        Ok(CreateOutcome::Created(id))
    }

    pub(super) fn publish(&mut self, id: ActivityId) -> PublishOutcome {
        let Some(activity) = self.activities.get_mut(&id) else { return PublishOutcome::NotFound };
        match activity.state {
            ActivityState::Draft => {}
            ActivityState::Published => return PublishOutcome::Published,
            state @ (ActivityState::Closing | ActivityState::Settled | ActivityState::Void) => return PublishOutcome::WrongState(state),
        }
        let mut locked = self.skus.clone();
        for NewProduct { sku, stock, .. } in &activity.terms.products {
            match locked.get_mut(sku) {
                Some(known) if known.stock - known.locked >= *stock => known.locked += stock,
                Some(_) | None => return PublishOutcome::NotEnough(*sku),
            }
        }
        self.skus = locked;
        activity.state = ActivityState::Published;
        PublishOutcome::Published
    }

    pub(super) fn close(&mut self, id: ActivityId) -> StepOutcome {
        let Some(activity) = self.activities.get_mut(&id) else { return StepOutcome::NotFound };
        activity::may_close(activity.state).unwrap_or_else(|| {
            activity.state = ActivityState::Closing;
            StepOutcome::Done
        })
    }

    pub(super) fn settle(&mut self, id: ActivityId) -> StepOutcome {
        let Some(activity) = self.activities.get(&id) else { return StepOutcome::NotFound };
        activity::may_settle(activity.state).unwrap_or_else(|| self.end(id, ActivityState::Settled))
    }

    pub(super) fn void(&mut self, id: ActivityId, now: UnixMillis) -> StepOutcome {
        let Some(activity) = self.activities.get(&id) else { return StepOutcome::NotFound };
        activity::may_void(activity.state, activity.terms.start, now).unwrap_or_else(|| self.end(id, ActivityState::Void))
    }

    /// Unlocks what is unsold and raises every epoch, so that no later event becomes an order.
    fn end(&mut self, id: ActivityId, state: ActivityState) -> StepOutcome {
        let Some(activity) = self.activities.get_mut(&id) else { return StepOutcome::NotFound };
        for product in &mut activity.products {
            product.epoch += 1;
            if matches!(activity.state, ActivityState::Published | ActivityState::Closing)
                && let Some(sku) = self.skus.get_mut(&product.terms.sku)
            {
                sku.locked -= product.unsold();
            }
        }
        activity.state = state;
        StepOutcome::Done
    }

    pub(super) fn record(&self, id: ActivityId) -> Option<ActivityRecord> {
        self.activities.get(&id).map(|activity| ActivityRecord {
            id,
            title: activity.terms.title.clone(),
            start: activity.terms.start,
            end: activity.terms.end,
            pay_ttl_s: activity.terms.pay_ttl_s,
            state: activity.state,
            products: activity.products.iter().map(|product| self.lot_record(id, activity, product)).collect(),
        })
    }

    pub(super) fn lots(&self, now: UnixMillis) -> Vec<LotRecord> {
        let listed = |(_, activity): &(&ActivityId, &Activity)| match activity.state {
            ActivityState::Published | ActivityState::Closing => true,
            ActivityState::Settled => activity.terms.end.plus(LISTED_AFTER_END) >= now,
            ActivityState::Draft | ActivityState::Void => false,
        };
        let records = |(id, activity): (&ActivityId, &Activity)| {
            activity.products.iter().map(|product| self.lot_record(*id, activity, product)).collect::<Vec<_>>()
        };
        self.activities.iter().filter(listed).flat_map(records).take(LOTS_MAX).collect()
    }

    fn lot_record(&self, id: ActivityId, activity: &Activity, product: &Product) -> LotRecord {
        let NewProduct { sku, price_cents, stock, per_user, shards } = product.terms;
        LotRecord {
            lot: Lot { activity: id, sku },
            name: self.skus.get(&sku).map(|sku| sku.name.clone()).unwrap_or_default(),
            state: activity.state,
            start: activity.terms.start,
            end: activity.terms.end,
            price_cents,
            stock,
            sold: product.sold,
            per_user,
            epoch: product.epoch,
            shards,
        }
    }

    /// A lot with its activity and its SKU.
    pub(super) fn lot(&self, lot: Lot) -> Option<(&Activity, &Product, &Sku)> {
        let activity = self.activities.get(&lot.activity)?;
        let product = activity.products.iter().find(|product| product.terms.sku == lot.sku)?;
        Some((activity, product, self.skus.get(&lot.sku)?))
    }

    /// The same to change, with whether the activity's unsold units are locked.
    fn lot_mut(&mut self, lot: Lot) -> Option<(bool, &mut Product, &mut Sku)> {
        let activity = self.activities.get_mut(&lot.activity)?;
        let locks = activity.locks();
        let product = activity.products.iter_mut().find(|product| product.terms.sku == lot.sku)?;
        Some((locks, product, self.skus.get_mut(&lot.sku)?))
    }

    /// Raises the epoch from exactly `from`, while there is something to sell.
    pub(super) fn raise_epoch(&mut self, lot: Lot, from: u32) -> Option<(&NewActivity, &Product)> {
        let (locks, product, _) = self.lot_mut(lot)?;
        if !locks || product.epoch != from {
            return None;
        }
        product.epoch += 1;
        self.lot(lot).map(|(activity, product, _)| (&activity.terms, product))
    }

    /// What may be sold of a lot.
    pub(super) fn room(&self, lot: Lot) -> Room {
        let Some((activity, product, sku)) = self.lot(lot) else { return Room { selling: false, epoch: 0, free: 0 } };
        let of_sku = if activity.locks() { sku.locked } else { sku.stock - sku.locked };
        Room { selling: activity.locks(), epoch: product.epoch, free: product.unsold().min(of_sku) }
    }

    /// Sells `qty` units, which [`Sales::room`] has; says whether the admission store has to know.
    pub(super) fn take(&mut self, lot: Lot, qty: u32) -> bool {
        let Some((locks, product, sku)) = self.lot_mut(lot) else { return false };
        product.sold += qty;
        product.moved += i64::from(qty);
        sku.stock -= qty;
        if locks {
            sku.locked -= qty;
        }
        locks
    }

    /// Takes `qty` units back: for the lot until it is settled, then for the SKU. Says whether it was for the lot.
    pub(super) fn give_back(&mut self, lot: Lot, qty: u32) -> bool {
        let Some((locks, product, sku)) = self.lot_mut(lot) else { return false };
        product.sold -= qty;
        product.moved -= i64::from(qty);
        sku.stock += qty;
        if locks {
            sku.locked += qty;
        }
        locks
    }

    /// The sum of what unsettled activities have not sold of a SKU.
    pub(super) fn promised(&self, sku: SkuId) -> u64 {
        let unsettled = self.activities.values().filter(|activity| activity.locks());
        let products = unsettled.flat_map(|activity| &activity.products).filter(|product| product.terms.sku == sku);
        products.map(|product| u64::from(product.unsold())).sum()
    }

    /// Sets a lot's counters to what its orders say.
    pub(super) fn mend_sold(&mut self, lot: Lot, live: u64) {
        if let Some((_, product, _)) = self.lot_mut(lot) {
            product.sold = u32::try_from(live).unwrap_or(u32::MAX);
            product.moved = i64::from(product.sold);
        }
    }

    /// Sets a SKU's lock to what is promised of it.
    pub(super) fn mend_locked(&mut self, sku: SkuId) {
        let promised = self.promised(sku);
        if let Some(sku) = self.skus.get_mut(&sku) {
            sku.locked = u32::try_from(promised).unwrap_or(u32::MAX);
        }
    }
}
