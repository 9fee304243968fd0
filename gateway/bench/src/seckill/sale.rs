//! One sale, from the operator's side: opened, looked at, closed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::load::{Client, Request};
use crate::rig::Rig;
use crate::{Holder, Sign};

/// Units in the warehouse beyond those of the sale, so that what is taken can be told.
const WAREHOUSE: u32 = 10_000;
/// Opened this long ago, so that clocks do not matter, and open for longer than any run.
const SINCE: Duration = Duration::from_secs(5);
const FOR: Duration = Duration::from_secs(3_600);
/// A node reads the list of lots five times a second.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// More than anybody may have: an answer that says so comes from a node that sells, and changes nothing.
const TOO_MANY: u32 = 9_999;

/// What is on sale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lot {
    pub(super) activity: u64,
    pub(super) sku: u64,
}

#[derive(Debug)]
pub(super) struct Sale {
    lot: Lot,
}

impl Sale {
    /// Publishes and pre-heats a sale of `stock` units, one for each user, and waits until every node sells.
    pub(super) async fn open(rig: &Rig, sku: u64, stock: u32, sign: Sign<'_>) -> anyhow::Result<Self> {
        let admin = rig.admin(0);
        let body =
            json!({ "skuId": sku.to_string(), "name": "手冲咖啡壶", "priceCents": 29_900, "stock": stock.saturating_add(WAREHOUSE) });
        admin.post("/admin/skus", &body).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let wanted = json!({
            "title": "今晚八点", "payTtlSeconds": 3_600,
            "startAt": millis(now.saturating_sub(SINCE)), "endAt": millis(now + FOR),
            "products": [{ "skuId": sku.to_string(), "priceCents": 9_900, "stock": stock, "perUser": 1 }],
        });
        let created = admin.post("/admin/activities", &wanted).await?;
        let activity =
            created["activityId"].as_str().and_then(|id| id.parse().ok()).with_context(|| format!("no activityId in {created}"))?;
        for step in ["publish", "preheat"] {
            admin.post(&format!("/admin/activities/{activity}/{step}"), &json!({})).await?;
        }
        let sale = Self { lot: Lot { activity, sku } };
        sale.known(rig, sign).await?;
        Ok(sale)
    }

    pub(super) fn lot(&self) -> Lot {
        self.lot
    }

    /// The body of an attempt at `units`.
    pub(super) fn order(&self, units: u32) -> String {
        json!({ "activityId": self.lot.activity.to_string(), "skuId": self.lot.sku.to_string(), "qty": units }).to_string()
    }

    /// The invariants that do not hold. Those that cannot be compared while something is under way are waited for until
    /// `deadline`.
    pub(super) async fn invariants(&self, rig: &Rig, deadline: Instant) -> anyhow::Result<Vec<String>> {
        loop {
            let looked = self.show(rig).await.and_then(|activity| invariants(&activity));
            match looked {
                Ok(broken) if broken.is_empty() => return Ok(broken),
                Ok(broken) if Instant::now() >= deadline => return Ok(broken),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Ok(_) | Err(_) => sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Closes the sale and waits until it is settled. A store that came back a moment ago may fail the first call.
    pub(super) async fn settle(&self, rig: &Rig, deadline: Instant) -> anyhow::Result<()> {
        loop {
            let settled = self.close(rig).await;
            match settled {
                Ok(true) => return Ok(()),
                Ok(false) if Instant::now() >= deadline => bail!("it is still closing"),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Ok(false) | Err(_) => sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Asks for the sale to be closed, which changes nothing when it is; whether it is settled.
    async fn close(&self, rig: &Rig) -> anyhow::Result<bool> {
        rig.admin(0).post(&format!("/admin/activities/{}/close", self.lot.activity), &json!({})).await?;
        Ok(self.show(rig).await?["state"] == "settled")
    }

    async fn show(&self, rig: &Rig) -> anyhow::Result<Value> {
        rig.admin(0).get(&format!("/admin/activities/{}", self.lot.activity)).await
    }

    /// Waits until every node sells; one that was asked too early calls a lot unknown for a moment.
    async fn known(&self, rig: &Rig, sign: Sign<'_>) -> anyhow::Result<()> {
        let client = Client::new(1, KNOWN_WITHIN);
        let deadline = Instant::now() + KNOWN_WITHIN;
        for node in 0..rig.nodes() {
            // An asker of its own for each node and sale: who asks twice too soon is a risk.
            let asker = format!("asker-{}-{node}", self.lot.sku);
            let token = sign(rig.config(), &[Holder::user(&asker)])?.pop().context("no token")?;
            let bearer = format!("Bearer {token}");
            let fields = [("authorization", bearer.as_str()), ("idempotency-key", &asker), ("x-device-id", &asker)];
            let request = Request::new("POST", "/api/seckill/buy", &fields, &self.order(TOO_MANY));
            loop {
                let answer = client.ask(rig.edge(node), &request).await?;
                if answer.code() == "LIMIT_EXCEEDED" {
                    break;
                }
                if Instant::now() >= deadline {
                    bail!("node {node} does not sell: {} {}", answer.status, answer.body);
                }
                sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Sentences about invariants that do not hold, or cannot be compared yet, in what an operator is shown of an activity.
fn invariants(activity: &Value) -> anyhow::Result<Vec<String>> {
    let products = activity["products"].as_array().context("an activity has products")?;
    let mut broken = Vec::new();
    for product in products {
        let invariants = product["invariants"].as_object().context("a product has invariants")?;
        ensure!(!invariants.is_empty(), "a product has invariants");
        for (name, holds) in invariants.iter().filter(|(_, holds)| **holds != Value::Bool(true)) {
            broken.push(format!("SKU {}: {name} is {holds}", product["skuId"].as_str().unwrap_or("?")));
        }
    }
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariants_that_do_not_hold_are_named() {
        let activity = |invariants: Value| json!({ "products": [{ "skuId": "7", "invariants": invariants }] });
        assert_eq!(invariants(&activity(json!({ "a": true, "b": true }))).unwrap(), Vec::<String>::new());
        assert_eq!(invariants(&activity(json!({ "a": true, "b": false, "c": null }))).unwrap(), ["SKU 7: b is false", "SKU 7: c is null"]);
        invariants(&activity(json!({}))).unwrap_err();
        invariants(&json!({})).unwrap_err();
    }
}
