//! SKUs and activities: create, publish, pre-heat, show.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use gateway_core::id::{ActivityId, SkuId};
use gateway_core::ports::PortError;
use gateway_core::sale::{
    ActivityRecord, ActivityState, CreateOutcome, LotRecord, NewActivity, NewProduct, PublishOutcome, SaleState, SkuUpsert,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::{Answer, Refused, instants};
use crate::node::Node;
use crate::sale::keeper::{self, Kept};

/// Products of one activity; each is a script call at pre-heat.
const PRODUCTS_MAX: usize = 1_000;
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
}

/// Half an hour, unless an activity says otherwise.
fn half_an_hour() -> u16 {
    1_800
}

fn one() -> u16 {
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
        products.push(NewProduct { sku, price_cents: product.price_cents, stock: stock(product.stock, 1)?, per_user: product.per_user });
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
        PublishOutcome::WrongState(state) => {
            return Err(Refused::new(StatusCode::CONFLICT, "WRONG_STATE", format!("the activity is {}", state.as_str())));
        }
        PublishOutcome::NotEnough(sku) => {
            return Err(Refused::new(StatusCode::CONFLICT, "NOT_ENOUGH_STOCK", format!("SKU {sku} has fewer free units; top it up first")));
        }
    }
    node.catalog.refresh().await?;
    Ok((StatusCode::OK, axum::Json(json!({ "activityId": id, "state": "published" }))))
}

pub(super) async fn preheat(State(node): State<Arc<Node>>, Path(id): Path<String>) -> Answer {
    let record = find(&node, &id).await?;
    if record.state != ActivityState::Published {
        return Err(Refused::new(
            StatusCode::CONFLICT,
            "WRONG_STATE",
            format!("the activity is {}; publish it first", record.state.as_str()),
        ));
    }
    let mut lots = Vec::new();
    for lot in &record.products {
        let kept = keeper::preheat(&*node.ports.admission, &*node.ports.sales, lot).await?;
        let word = match kept {
            Kept::Installed(_) => "installed",
            Kept::Well => "already in force",
            Kept::Draining(_) | Kept::Elsewhere => "another node is at it",
        };
        lots.push(json!({ "skuId": lot.lot.sku.to_string(), "result": word }));
    }
    node.catalog.refresh().await?;
    Ok((StatusCode::OK, axum::Json(json!({ "activityId": id, "lots": lots }))))
}

pub(super) async fn show(State(node): State<Arc<Node>>, Path(id): Path<String>) -> Answer {
    let record = find(&node, &id).await?;
    let mut products = Vec::new();
    for lot in &record.products {
        products.push(product(&node, lot).await?);
    }
    Ok((
        StatusCode::OK,
        axum::Json(json!({
            "activityId": record.id.to_string(), "title": record.title, "state": record.state.as_str(),
            "startAt": instants::write(record.start), "endAt": instants::write(record.end),
            "payTtlSeconds": record.pay_ttl_s, "products": products,
        })),
    ))
}

async fn find(node: &Node, id: &str) -> Result<ActivityRecord, Refused> {
    node.ports.sales.activity(activity_id(id)?).await?.ok_or_else(|| Refused::missing("there is no such activity"))
}

async fn product(node: &Node, lot: &LotRecord) -> Result<Value, PortError> {
    let stock = node.ports.admission.stock(lot.lot).await?;
    let backlog = node.ports.admission.backlog(lot.lot).await?;
    let sale = stock.map(|stock| {
        let state = match stock.state {
            SaleState::Open => "open",
            SaleState::Paused => "paused",
            SaleState::Closed => "closed",
        };
        json!({ "state": state, "epoch": stock.epoch, "left": stock.left, "eventsWaiting": backlog })
    });
    Ok(json!({
        "skuId": lot.lot.sku.to_string(), "name": lot.name, "priceCents": lot.price_cents, "stock": lot.stock,
        "sold": lot.sold, "perUser": lot.per_user, "epoch": lot.epoch, "sale": sale,
        "sku": { "stock": lot.sku_stock, "locked": lot.sku_locked },
        "invariants": { "soldIsSumOfOrders": u64::from(lot.sold) == lot.live, "soldIsWithinStock": lot.sold <= lot.stock },
    }))
}
