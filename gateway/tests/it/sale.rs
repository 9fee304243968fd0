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

/// When a sale is open, relative to now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Seconds from now to its start.
    pub(crate) starts_in_s: i64,
    /// Seconds from now to its end.
    pub(crate) ends_in_s: i64,
}

/// Open now and for longer than any test.
pub(crate) const OPEN: Window = Window { starts_in_s: -5, ends_in_s: 3_600 };

/// Puts `stock` units on sale and pre-heats them. Each `sku` is for one test.
pub(crate) async fn open(admin: &Admin, sku: u64, stock: u32) -> anyhow::Result<Lot> {
    let lot = publish(admin, sku, stock, OPEN).await?;
    admin.post(&format!("/admin/activities/{}/preheat", lot.activity), &json!({})).await?;
    Ok(lot)
}

/// Publishes a sale without pre-heating it.
pub(crate) async fn publish(admin: &Admin, sku: u64, stock: u32, window: Window) -> anyhow::Result<Lot> {
    admin.post("/admin/skus", &json!({ "skuId": sku.to_string(), "name": "手冲咖啡壶", "priceCents": 29_900, "stock": WAREHOUSE })).await?;
    let wanted = json!({
        "title": "今晚八点", "payTtlSeconds": 1_800,
        "startAt": (now_s() + window.starts_in_s) * 1_000, "endAt": (now_s() + window.ends_in_s) * 1_000,
        "products": [{ "skuId": sku.to_string(), "priceCents": 9_900, "stock": stock, "perUser": 1 }],
    });
    let created = admin.post("/admin/activities", &wanted).await?;
    let activity = created["activityId"].as_str().and_then(|id| id.parse().ok()).with_context(|| format!("no activityId in {created}"))?;
    admin.post(&format!("/admin/activities/{activity}/publish"), &json!({})).await?;
    Ok(Lot { activity, sku })
}
