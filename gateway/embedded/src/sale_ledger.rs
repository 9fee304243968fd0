//! [`SaleLedger`] in memory: SKUs, activities and orders under one lock, so that each call is one transaction.
//!
//! Bounds: at most [`ORDERS_MAX`] orders and [`ACTIVITIES_MAX`] activities; SKUs are as many as operators created. An
//! order's payment deadline is not kept: nothing here closes orders. Called through the port only.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::id::{ActivityId, Lot, OrderNo, PrincipalId, SkuId};
use gateway_core::ports::{PortResult, SaleLedger, Store};
use gateway_core::sale::{
    ActivityRecord, ActivityState, CreateOutcome, LotRecord, NewActivity, NewProduct, OrderEvent, OrderRecord, OrderState, Persisted,
    PublishOutcome, Reservation, SaleTerms, SkuUpsert,
};
use gateway_core::time::UnixMillis;

use crate::{full, lock, too_many};

/// Orders kept at most; about 300 bytes each.
pub const ORDERS_MAX: usize = 1_000_000;

/// Activities kept at most, the port's bound on listed lots.
pub const ACTIVITIES_MAX: usize = 10_000;

/// The port's bounds.
const EVENTS_MAX: usize = 200;
const LOTS_MAX: usize = 10_000;

/// How long a lot stays listed after its end.
const LISTED_AFTER_END: Duration = Duration::from_secs(24 * 3_600);

/// Sales and orders in memory.
#[derive(Default)]
pub struct EmbeddedSaleLedger {
    books: Mutex<Books>,
}

impl EmbeddedSaleLedger {
    /// Empty books.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl SaleLedger for EmbeddedSaleLedger {
    async fn upsert_sku(&self, sku: &SkuUpsert) -> PortResult<()> {
        let mut books = lock(&self.books);
        let known = books.skus.entry(sku.sku).or_default();
        let Some(stock) = known.stock.checked_add(sku.add_stock) else { return Err(full(Store::Mysql, "top a sku up")) };
        *known = Sku { name: sku.name.clone(), stock, ..*known };
        Ok(())
    }

    async fn create_activity(&self, activity: &NewActivity) -> PortResult<CreateOutcome> {
        let mut books = lock(&self.books);
        if let Some(product) = activity.products.iter().find(|product| !books.skus.contains_key(&product.sku)) {
            return Ok(CreateOutcome::UnknownSku(product.sku));
        }
        if books.activities.len() >= ACTIVITIES_MAX {
            return Err(full(Store::Mysql, "create an activity"));
        }
        let id = ActivityId(books.activities.len() as u64 + 1);
        let products = activity.products.iter().map(|terms| Product { terms: terms.clone(), sold: 0, epoch: 0 }).collect();
        books.activities.insert(id, Activity { terms: activity.clone(), state: ActivityState::Draft, products });
        Ok(CreateOutcome::Created(id))
    }

    async fn publish(&self, activity: ActivityId) -> PortResult<PublishOutcome> {
        let Books { skus, activities, .. } = &mut *lock(&self.books);
        let Some(activity) = activities.get_mut(&activity) else { return Ok(PublishOutcome::NotFound) };
        match activity.state {
            ActivityState::Draft => {}
            ActivityState::Published => return Ok(PublishOutcome::Published),
            state @ (ActivityState::Closing | ActivityState::Settled) => return Ok(PublishOutcome::WrongState(state)),
        }
        let mut locked = skus.clone();
        for NewProduct { sku, stock, .. } in &activity.terms.products {
            match locked.get_mut(sku) {
                Some(known) if known.stock - known.locked >= *stock => known.locked += stock,
                Some(_) | None => return Ok(PublishOutcome::NotEnough(*sku)),
            }
        }
        *skus = locked;
        activity.state = ActivityState::Published;
        Ok(PublishOutcome::Published)
    }

    async fn activity(&self, activity: ActivityId) -> PortResult<Option<ActivityRecord>> {
        let books = lock(&self.books);
        Ok(books.activities.get(&activity).map(|known| ActivityRecord {
            id: activity,
            title: known.terms.title.clone(),
            start: known.terms.start,
            end: known.terms.end,
            pay_ttl_s: known.terms.pay_ttl_s,
            state: known.state,
            products: known.products.iter().map(|product| books.lot_record(activity, known, product)).collect(),
        }))
    }

    async fn lots(&self, now: UnixMillis) -> PortResult<Vec<LotRecord>> {
        let books = lock(&self.books);
        let listed = |activity: &Activity| activity.state == ActivityState::Published && activity.terms.end.plus(LISTED_AFTER_END) >= now;
        let lots = books.activities.iter().filter(|(_, activity)| listed(activity)).flat_map(|(id, activity)| {
            let books = &books;
            activity.products.iter().map(move |product| books.lot_record(*id, activity, product))
        });
        Ok(lots.take(LOTS_MAX).collect())
    }

    async fn raise_epoch(&self, lot: Lot, from: u32) -> PortResult<Option<SaleTerms>> {
        let mut books = lock(&self.books);
        let buyers = books.live_orders(lot).map(|order| (order.user.clone(), reservation(order))).collect();
        let Some((activity, product)) = books.on_sale(lot) else { return Ok(None) };
        if product.epoch != from {
            return Ok(None);
        }
        product.epoch += 1;
        Ok(Some(SaleTerms {
            epoch: product.epoch,
            start: activity.start,
            end: activity.end,
            per_user: u32::from(product.terms.per_user),
            left: product.terms.stock - product.sold,
            buyers,
        }))
    }

    async fn persist(&self, lot: Lot, events: &[OrderEvent], _now: UnixMillis) -> PortResult<Vec<Persisted>> {
        if events.len() > EVENTS_MAX {
            return Err(too_many(Store::Mysql, "persist orders"));
        }
        let mut books = lock(&self.books);
        if books.orders.len() + events.len() > ORDERS_MAX {
            return Err(full(Store::Mysql, "persist orders"));
        }
        Ok(events.iter().map(|event| books.persist(lot, event)).collect())
    }

    async fn order(&self, order_no: &OrderNo) -> PortResult<Option<OrderRecord>> {
        Ok(lock(&self.books).orders.get(order_no).cloned())
    }
}

#[derive(Default)]
struct Books {
    skus: BTreeMap<SkuId, Sku>,
    activities: BTreeMap<ActivityId, Activity>,
    orders: BTreeMap<OrderNo, OrderRecord>,
    /// The live order of each buyer of each lot.
    live: BTreeMap<Lot, BTreeMap<PrincipalId, OrderNo>>,
}

#[derive(Clone, Default)]
struct Sku {
    name: String,
    stock: u32,
    /// Promised to unsettled activities, at most `stock`.
    locked: u32,
}

struct Activity {
    terms: NewActivity,
    state: ActivityState,
    products: Vec<Product>,
}

struct Product {
    terms: NewProduct,
    sold: u32,
    epoch: u32,
}

fn reservation(order: &OrderRecord) -> Reservation {
    Reservation { qty: order.qty, order_no: order.order_no.clone() }
}

impl Books {
    /// The lot's activity and product, when the activity is published.
    fn on_sale(&mut self, lot: Lot) -> Option<(&NewActivity, &mut Product)> {
        let activity = self.activities.get_mut(&lot.activity).filter(|activity| activity.state == ActivityState::Published)?;
        let product = activity.products.iter_mut().find(|product| product.terms.sku == lot.sku)?;
        Some((&activity.terms, product))
    }

    fn live_orders(&self, lot: Lot) -> impl Iterator<Item = &OrderRecord> {
        self.live.get(&lot).into_iter().flatten().filter_map(|(_, order_no)| self.orders.get(order_no))
    }

    fn lot_record(&self, id: ActivityId, activity: &Activity, product: &Product) -> LotRecord {
        let lot = Lot { activity: id, sku: product.terms.sku };
        let sku = self.skus.get(&lot.sku).cloned().unwrap_or_default();
        LotRecord {
            lot,
            name: sku.name,
            state: activity.state,
            start: activity.terms.start,
            end: activity.terms.end,
            price_cents: product.terms.price_cents,
            stock: product.terms.stock,
            sold: product.sold,
            per_user: product.terms.per_user,
            epoch: product.epoch,
            live: self.live_orders(lot).map(|order| u64::from(order.qty)).sum(),
            sku_stock: sku.stock,
            sku_locked: sku.locked,
        }
    }

    /// What is known already comes first, so that a redelivered event finds its own order whatever has happened since.
    fn persist(&mut self, lot: Lot, event: &OrderEvent) -> Persisted {
        if self.orders.contains_key(&event.order_no) {
            return Persisted::Stored;
        }
        let held = self.live.get(&lot).is_some_and(|buyers| buyers.contains_key(&event.user));
        let Some((_, product)) = self.on_sale(lot).filter(|(_, product)| product.epoch == event.epoch) else { return Persisted::Stale };
        if held {
            return Persisted::Duplicate;
        }
        if event.qty > product.terms.stock - product.sold {
            return Persisted::SoldOut;
        }
        product.sold += event.qty;
        if let Some(sku) = self.skus.get_mut(&lot.sku) {
            sku.stock -= event.qty;
            sku.locked -= event.qty;
        }
        let OrderEvent { order_no, user, qty, .. } = event.clone();
        self.live.entry(lot).or_default().insert(user.clone(), order_no.clone());
        self.orders.insert(order_no.clone(), OrderRecord { order_no, user, lot, qty, state: OrderState::Unpaid });
        Persisted::Stored
    }
}
