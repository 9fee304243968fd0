//! SKUs and activities: create, take through their life, show.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use gateway_core::id::{ActivityId, SkuId};
use gateway_core::ports::PortError;
use gateway_core::sale::activity::phase;
use gateway_core::sale::shard::SHARDS_MAX;
use gateway_core::sale::{
    ActivityRecord, ActivityState, CreateOutcome, Difference, LotRecord, NewActivity, NewProduct, PublishOutcome, SaleState, SaleStock,
    Shard, SkuUpsert, StepOutcome,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::plugins::Who;
use crate::admin::{Answer, Refused, instants, operator};
use crate::clock;
use crate::node::Node;
use crate::sale::desk::Desk;
use crate::sale::keeper::{self, Kept};
use crate::sale::{audit, ending};

/// Products of one activity; each is a script call at pre-heat.
const PRODUCTS_MAX: usize = 1_000;
/// Activities of one list, the latest ones.
const LIST_MAX: usize = 200;
/// Longest title or name; the columns hold 128 characters.
const NAME_CHARS_MAX: usize = 128;
/// Units of one SKU or lot: far above any sale, far below what a counter column holds.
const STOCK_MAX: u32 = 1_000_000_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SkuBody {
    sku_id: Value,
    name: String,
    price_cents: u64,
    stock: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ActivityBody {
    title: String,
    start_at: Value,
    end_at: Value,
    #[serde(default = "half_an_hour")]
    pay_ttl_seconds: u16,
    products: Vec<ProductBody>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProductBody {
    sku_id: Value,
    price_cents: u64,
    stock: u32,
    #[serde(default = "one")]
    per_user: u16,
    #[serde(default = "one_shard")]
    shards: u8,
}

/// Half an hour, unless an activity says otherwise.
fn half_an_hour() -> u16 {
    1_800
}

fn one() -> u16 {
    1
}

fn one_shard() -> u8 {
    1
}

fn body<'a, T: Deserialize<'a>>(bytes: &'a Bytes) -> Result<T, Refused> {
    serde_json::from_slice(bytes).map_err(|error| Refused::bad(error.to_string()))
}

fn sku_id(value: &Value) -> Result<SkuId, Refused> {
    let parsed = match value {
        Value::Number(number) => number.as_u64().map(SkuId),
        Value::String(text) => SkuId::parse(text).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    parsed.filter(|sku| sku.0 > 0).ok_or_else(|| Refused::bad("skuId must be a positive integer, or one in a string"))
}

fn name(field: &str, text: String) -> Result<String, Refused> {
    if text.trim().is_empty() || text.chars().count() > NAME_CHARS_MAX {
        return Err(Refused::bad(format!("{field} must have 1 to {NAME_CHARS_MAX} characters")));
    }
    Ok(text)
}

fn stock(value: u32, least: u32) -> Result<u32, Refused> {
    if (least..=STOCK_MAX).contains(&value) { Ok(value) } else { Err(Refused::bad(format!("stock must be {least} to {STOCK_MAX}"))) }
}

fn activity_id(text: &str) -> Result<ActivityId, Refused> {
    ActivityId::parse(text).map_err(|_| Refused::missing("there is no such activity"))
}

pub(super) async fn put_sku(State(node): State<Arc<Node>>, bytes: Bytes) -> Answer {
    let sku: SkuBody = body(&bytes)?;
    let sku = SkuUpsert {
        sku: sku_id(&sku.sku_id)?,
        name: name("name", sku.name)?,
        price_cents: sku.price_cents,
        add_stock: stock(sku.stock, 0)?,
    };
    node.ports.sales.upsert_sku(&sku).await?;
    Ok((StatusCode::OK, axum::Json(json!({ "skuId": sku.sku.to_string() }))))
}

pub(super) async fn create(State(node): State<Arc<Node>>, bytes: Bytes) -> Answer {
    let wanted: ActivityBody = body(&bytes)?;
    let start = instants::read("startAt", &wanted.start_at).map_err(Refused::bad)?;
    let end = instants::read("endAt", &wanted.end_at).map_err(Refused::bad)?;
    if end <= start {
        return Err(Refused::bad("endAt must be after startAt"));
    }
    if !(1..=PRODUCTS_MAX).contains(&wanted.products.len()) {
        return Err(Refused::bad(format!("products must have 1 to {PRODUCTS_MAX} entries")));
    }
    let mut products: Vec<NewProduct> = Vec::new();
    for product in wanted.products {
        let sku = sku_id(&product.sku_id)?;
        if products.iter().any(|known| known.sku == sku) {
            return Err(Refused::bad(format!("skuId {sku} is listed twice")));
        }
        if !(1..=9_999).contains(&product.per_user) {
            return Err(Refused::bad("perUser must be 1 to 9999"));
        }
        if !(1..=SHARDS_MAX).contains(&product.shards) {
            return Err(Refused::bad(format!("shards must be 1 to {SHARDS_MAX}")));
        }
        let ProductBody { price_cents, per_user, shards, .. } = product;
        products.push(NewProduct { sku, price_cents, stock: stock(product.stock, 1)?, per_user, shards });
    }
    let activity = NewActivity { title: name("title", wanted.title)?, start, end, pay_ttl_s: wanted.pay_ttl_seconds, products };
    match node.ports.sales.create_activity(&activity).await? {
        CreateOutcome::Created(id) => Ok((StatusCode::CREATED, axum::Json(json!({ "activityId": id.to_string() })))),
        CreateOutcome::UnknownSku(sku) => {
            Err(Refused::new(StatusCode::CONFLICT, "UNKNOWN_SKU", format!("there is no SKU {sku}; create it first")))
        }
    }
}

pub(super) async fn publish(State(node): State<Arc<Node>>, Path(id): Path<String>) -> Answer {
    match node.ports.sales.publish(activity_id(&id)?).await? {
        PublishOutcome::Published => {}
        PublishOutcome::NotFound => return Err(Refused::missing("there is no such activity")),
        PublishOutcome::WrongState(state) => return Err(wrong_state(state)),
        PublishOutcome::NotEnough(sku) => {
            return Err(Refused::new(StatusCode::CONFLICT, "NOT_ENOUGH_STOCK", format!("SKU {sku} has fewer free units; top it up first")));
        }
    }
    node.catalog.refresh().await?;
    Ok((StatusCode::OK, axum::Json(json!({ "activityId": id, "state": "published" }))))
}

/// Puts its sales in force before a worker does; there is no need to.
pub(super) async fn preheat(State(node): State<Arc<Node>>, Path(id): Path<String>) -> Answer {
    let record = find(&node, &id).await?;
    if record.state != ActivityState::Published {
        return Err(Refused::new(
            StatusCode::CONFLICT,
            "WRONG_STATE",
            format!("the activity is {}; publish it first", record.state.as_str()),
        ));
    }
    let desk = Desk::of(&node);
    let mut lots = Vec::new();
    for lot in &record.products {
        let word = match keeper::preheat(&desk, lot).await? {
            Kept::Installed(_) => "installed",
            Kept::Well => "already in force",
            Kept::Draining(_) | Kept::Elsewhere | Kept::Closing | Kept::Ending(_) => "another node is at it",
        };
        lots.push(json!({ "skuId": lot.lot.sku.to_string(), "result": word }));
    }
    node.catalog.refresh().await?;
    Ok((StatusCode::OK, axum::Json(json!({ "activityId": id, "lots": lots }))))
}

/// Ends it before its time. A worker settles it once its order events are in the ledger.
pub(super) async fn close(State(node): State<Arc<Node>>, Path(id): Path<String>, who: Query<Who>) -> Answer {
    let by = operator(who.0.by)?;
    let activity = activity_id(&id)?;
    taken(node.ports.sales.close(activity).await?)?;
    tracing::info!(target: "audit", %activity, by, "an activity was closed");
    let record = find(&node, &id).await?;
    if record.state == ActivityState::Closing {
        shut(&node, &record).await?;
    }
    Ok((StatusCode::OK, axum::Json(json!({ "activityId": id, "state": record.state.as_str() }))))
}

/// Calls it off before it began.
pub(super) async fn void(State(node): State<Arc<Node>>, Path(id): Path<String>, who: Query<Who>) -> Answer {
    let by = operator(who.0.by)?;
    let activity = activity_id(&id)?;
    taken(node.ports.sales.void(activity, clock::now()).await?)?;
    tracing::info!(target: "audit", %activity, by, "an activity was called off");
    let record = find(&node, &id).await?;
    shut(&node, &record).await?;
    for product in &record.products {
        ending::retire(&*node.ports.admission, product.lot, product.shards).await?;
    }
    node.catalog.refresh().await?;
    Ok((StatusCode::OK, axum::Json(json!({ "activityId": id, "state": record.state.as_str() }))))
}

fn taken(step: StepOutcome) -> Result<(), Refused> {
    match step {
        StepOutcome::Done => Ok(()),
        StepOutcome::NotFound => Err(Refused::missing("there is no such activity")),
        StepOutcome::WrongState(state) => Err(wrong_state(state)),
        StepOutcome::Started => Err(Refused::new(StatusCode::CONFLICT, "STARTED", "its window has begun: close it instead")),
    }
}

fn wrong_state(state: ActivityState) -> Refused {
    Refused::new(StatusCode::CONFLICT, "WRONG_STATE", format!("the activity is {}", state.as_str()))
}

/// From now on nobody is admitted, before a worker sees to it.
async fn shut(node: &Node, record: &ActivityRecord) -> Result<(), PortError> {
    for product in &record.products {
        ending::shut(&*node.ports.admission, product.lot, product.shards).await?;
    }
    Ok(())
}

/// Looks twice at every lot now, and puts what contradicts both times on the compensation list.
pub(super) async fn reconcile(State(node): State<Arc<Node>>, Path(id): Path<String>) -> Answer {
    let record = find(&node, &id).await?;
    let (admission, ledger) = (&*node.ports.admission, &*node.ports.sales);
    let mut products = Vec::new();
    for product in &record.products {
        let (lot, shards) = (product.lot, product.shards);
        let first = audit::look(admission, ledger, lot, shards).await?;
        let second = audit::look(admission, ledger, lot, shards).await?;
        let (Some(first), Some(second)) = (first, second) else { continue };
        let broken = audit::confirmed(&first.differences, &second.differences);
        audit::report(ledger, lot, &second, &broken, clock::now()).await?;
        let differences: Vec<Value> = broken
            .iter()
            .map(|Difference { invariant, expected, found }| json!({ "invariant": invariant.as_str(), "expected": expected, "found": found }))
            .collect();
        products.push(json!({
            "skuId": lot.sku.to_string(), "differences": differences, "invariants": second.invariants(), "sides": second.sides(),
        }));
    }
    Ok((StatusCode::OK, axum::Json(json!({ "activityId": id, "products": products }))))
}

/// Those that are published or closing, or were settled in the last day; the latest first.
pub(super) async fn list(State(node): State<Arc<Node>>) -> Answer {
    let mut ids: Vec<ActivityId> = node.ports.sales.lots(clock::now()).await?.into_iter().map(|record| record.lot.activity).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut activities = Vec::new();
    for id in ids.into_iter().rev().take(LIST_MAX) {
        if let Some(record) = node.ports.sales.activity(id).await? {
            let waiting = waiting(&node, &record).await?;
            activities.push(describe(&record, waiting));
        }
    }
    Ok((StatusCode::OK, axum::Json(json!({ "activities": activities }))))
}

pub(super) async fn show(State(node): State<Arc<Node>>, Path(id): Path<String>) -> Answer {
    let record = find(&node, &id).await?;
    let mut products = Vec::new();
    for lot in &record.products {
        products.push(product(&node, lot).await?);
    }
    let waiting = waiting(&node, &record).await?;
    let mut answer = describe(&record, waiting);
    answer["payTtlSeconds"] = record.pay_ttl_s.into();
    answer["products"] = products.into();
    Ok((StatusCode::OK, axum::Json(answer)))
}

async fn find(node: &Node, id: &str) -> Result<ActivityRecord, Refused> {
    node.ports.sales.activity(activity_id(id)?).await?.ok_or_else(|| Refused::missing("there is no such activity"))
}

async fn waiting(node: &Node, record: &ActivityRecord) -> Result<u64, PortError> {
    let mut waiting = 0;
    for product in &record.products {
        waiting += audit::waiting(&*node.ports.admission, product.lot, product.shards).await?;
    }
    Ok(waiting)
}

fn describe(record: &ActivityRecord, waiting: u64) -> Value {
    let preheated = record.products.iter().all(|product| product.epoch > 0);
    let phase = phase(record.state, record.start, record.end, preheated, waiting, clock::now());
    json!({
        "activityId": record.id.to_string(), "title": record.title, "state": record.state.as_str(), "phase": phase.as_str(),
        "startAt": instants::write(record.start), "endAt": instants::write(record.end), "eventsWaiting": waiting,
        "stock": record.products.iter().map(|product| u64::from(product.stock)).sum::<u64>(),
        "sold": record.products.iter().map(|product| u64::from(product.sold)).sum::<u64>(),
    })
}

async fn product(node: &Node, lot: &LotRecord) -> Result<Value, PortError> {
    let audit = audit::look(&*node.ports.admission, &*node.ports.sales, lot.lot, lot.shards).await?;
    let books = audit.as_ref().map(|audit| audit.books);
    let seen = match audit.as_ref().and_then(|audit| audit.shards.as_ref()) {
        // Of the same instant as the invariants: a sale that is rebuilt between two looks would be told in halves.
        Some(surveys) => surveys.iter().map(|survey| (Some(survey.stock.clone()), 0)).collect(),
        None => look(node, lot).await?,
    };
    let (mut shards, mut sales, mut waiting) = (Vec::new(), Vec::new(), 0);
    for (index, (sale, events)) in seen.into_iter().enumerate() {
        waiting += events;
        let mut entry = json!({ "shard": index, "eventsWaiting": events, "state": null });
        if let Some(sale) = sale {
            entry["state"] = sale.state.as_str().into();
            entry["epoch"] = sale.at.epoch.into();
            entry["left"] = sale.left.into();
            sales.push(sale);
        }
        shards.push(entry);
    }
    Ok(json!({
        "skuId": lot.lot.sku.to_string(), "name": lot.name, "priceCents": lot.price_cents, "stock": lot.stock,
        "sold": books.map_or(lot.sold, |books| books.sold), "perUser": lot.per_user,
        "epoch": books.map_or(lot.epoch, |books| books.epoch),
        "sale": sale(&sales, waiting), "shards": shards,
        "sku": books.map(|books| json!({ "stock": books.sku_stock, "locked": books.sku_locked })),
        "owed": books.map(|books| books.owed),
        "invariants": audit.as_ref().map(audit::Audit::invariants), "sides": audit.as_ref().map(audit::Audit::sides),
    }))
}

/// Each shard as it is now, and how many of its events wait.
async fn look(node: &Node, lot: &LotRecord) -> Result<Vec<(Option<SaleStock>, u64)>, PortError> {
    let mut seen = Vec::new();
    for shard in Shard::all(lot.lot, lot.shards) {
        seen.push((node.ports.admission.stock(shard).await?, node.ports.admission.backlog(shard).await?));
    }
    Ok(seen)
}

/// The shards in force as one sale: it is open when all are, and of the lowest epoch.
fn sale(shards: &[SaleStock], waiting: u64) -> Option<Value> {
    let [first, ..] = shards else { return None };
    let state = if shards.iter().all(|sale| sale.state == first.state) { first.state } else { SaleState::Paused };
    Some(json!({
        "state": state.as_str(), "epoch": shards.iter().map(|sale| sale.at.epoch).min(),
        "left": shards.iter().map(|sale| u64::from(sale.left)).sum::<u64>(), "eventsWaiting": waiting,
    }))
}
