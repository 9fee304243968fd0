//! Flash sales for tests: an SKU, an activity that is open now, pre-heated.

use anyhow::Context;
use serde_json::json;

use crate::admin::Admin;
use crate::tokens::now_s;

/// Units in the warehouse before the sale; far more than any sale of the tests, so that what is taken can be told.
pub(crate) const WAREHOUSE: u32 = 10_000;

/// What is on sale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lot {
    /// The activity.
    pub(crate) activity: u64,
    /// The SKU in it.
    pub(crate) sku: u64,
}

/// What a sale is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// Units on sale.
    pub(crate) stock: u32,
    /// Units one user may have.
    pub(crate) per_user: u32,
    /// Seconds from now to its start.
    pub(crate) starts_in_s: i64,
    /// Seconds from now to its end.
    pub(crate) ends_in_s: i64,
    /// Parts the stock is split into.
    pub(crate) shards: u8,
}

impl Terms {
    /// One unit for each user, open now and for longer than any test.
    pub(crate) fn open(stock: u32) -> Self {
        Self { stock, per_user: 1, starts_in_s: -5, ends_in_s: 3_600, shards: 1 }
    }
}

/// Creates the SKU, or adds to it.
pub(crate) async fn stock_up(admin: &Admin, sku: u64) -> anyhow::Result<()> {
    let body = json!({ "skuId": sku.to_string(), "name": "手冲咖啡壶", "priceCents": 29_900, "stock": WAREHOUSE });
    admin.post("/admin/skus", &body).await.map(drop)
}

/// Publishes a sale and leaves the rest to the workers. Each `sku` is for one test.
pub(crate) async fn publish(admin: &Admin, sku: u64, terms: Terms, pay_ttl_s: u32) -> anyhow::Result<Lot> {
    stock_up(admin, sku).await?;
    let Terms { stock, per_user, starts_in_s, ends_in_s, shards } = terms;
    let wanted = json!({
        "title": "今晚八点", "payTtlSeconds": pay_ttl_s,
        "startAt": (now_s() + starts_in_s) * 1_000, "endAt": (now_s() + ends_in_s) * 1_000,
        "products": [{ "skuId": sku.to_string(), "priceCents": 9_900, "stock": stock, "perUser": per_user, "shards": shards }],
    });
    let created = admin.post("/admin/activities", &wanted).await?;
    let activity = created["activityId"].as_str().and_then(|id| id.parse().ok()).with_context(|| format!("no activityId in {created}"))?;
    admin.post(&format!("/admin/activities/{activity}/publish"), &json!({})).await?;
    Ok(Lot { activity, sku })
}

/// Publishes and pre-heats a sale. Each `sku` is for one test.
pub(crate) async fn open(admin: &Admin, sku: u64, terms: Terms) -> anyhow::Result<Lot> {
    let lot = publish(admin, sku, terms, 1_800).await?;
    admin.post(&format!("/admin/activities/{}/preheat", lot.activity), &json!({})).await?;
    Ok(lot)
}
