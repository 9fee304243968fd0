//! What cannot be done or does not add up: kept for an operator, who tries it again or dismisses it.

use anyhow::Context;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::cluster::{Cluster, shared};
use crate::edge::Edge;
use crate::operating::{self, sluice};
use crate::sale::{Lot, Terms};
use crate::tokens;
use crate::wait::{RECOVERED, until};

/// The open entry whose source is `source`, once there is one.
async fn listed(cluster: &Cluster, source: &str) -> Value {
    until(format!("{source} is on the list"), RECOVERED, async || {
        let listed = sluice(cluster, &["compensation", "list", "--json"]).await?;
        let entries = listed["compensations"].as_array().context("entries")?;
        Ok(entries.iter().find(|entry| entry["source"].as_str().is_some_and(|found| found.starts_with(source))).cloned())
    })
    .await
    .unwrap()
}

async fn product(cluster: &Cluster, lot: Lot) -> anyhow::Result<Value> {
    Ok(cluster.admin(0).get(&format!("/admin/activities/{}", lot.activity)).await?["products"][0].clone())
}

/// Waits until all four invariants hold.
async fn until_well(cluster: &Cluster, lot: Lot) -> Value {
    until("everything adds up", RECOVERED, async || {
        let product = product(cluster, lot).await?;
        let well = product["invariants"].as_object().is_some_and(|all| all.len() == 4 && all.values().all(|holds| holds == true));
        Ok(Some(product).filter(|_| well))
    })
    .await
    .unwrap()
}

async fn buy(cluster: &Cluster, lot: Lot, id: &str) -> anyhow::Result<String> {
    let (edge, token) = (Edge::new()?, tokens::user(id));
    let answer = edge.buy(cluster.edge(0), &token, lot, "k").await?;
    let order = answer.body["orderNo"].as_str().with_context(|| answer.body.to_string())?.to_owned();
    until(format!("the order of {id}"), RECOVERED, async || edge.settled(cluster.edge(0), &token, &order).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_no_order_event_is_put_aside_and_the_rest_flows() {
    let cluster = shared().await.unwrap();
    let lot = cluster.open_sale(3201, Terms::open(5)).await.unwrap();
    let stream = format!("seckill:{{{}:{}}}:events", lot.activity, lot.sku);
    let id = block_in_place(|| cluster.services.redis.command(&["XADD", &stream, "*", "note", "written by hand"])).unwrap();
    assert_eq!(buy(&cluster, lot, "next-3201").await.unwrap(), "success");
    let source = format!("{}:{}:{}", lot.activity, lot.sku, id.trim());
    let letter = listed(&cluster, &source).await;
    assert_eq!(letter["kind"], "event", "{letter}");
    assert!(letter["payload"]["raw"].to_string().contains("written by hand"), "{letter}");
    let number = letter["id"].to_string();
    let retried = operating::run(&cluster, &["compensation", "retry", &number]).await.unwrap();
    assert_eq!(retried.status.code(), Some(1), "there is nothing to try");
    sluice(&cluster, &["compensation", "discard", &number, "--json"]).await.unwrap();
    let product = until_well(&cluster, lot).await;
    assert_eq!((&product["sold"], &product["sale"]["left"], &product["sale"]["eventsWaiting"]), (&json!(1), &json!(4), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_somebody_edited_in_mysql_is_found_and_mended() {
    let cluster = shared().await.unwrap();
    let lot = cluster.open_sale(3202, Terms::open(5)).await.unwrap();
    assert_eq!(buy(&cluster, lot, "ann-3202").await.unwrap(), "success");
    until_well(&cluster, lot).await;
    cluster.ledger().await.unwrap().edit_sold(lot, 3).await.unwrap();
    let letter = listed(&cluster, &format!("{}:{}:sold_is_live", lot.activity, lot.sku)).await;
    assert_eq!((&letter["kind"], &letter["payload"]["expected"], &letter["payload"]["found"]), (&json!("invariant"), &json!(1), &json!(3)));
    let shown = product(&cluster, lot).await.unwrap();
    assert_eq!((&shown["invariants"]["sold_is_live"], &shown["sides"]["sold_is_live"]["sold"]), (&json!(false), &json!(3)), "{shown}");
    sluice(&cluster, &["compensation", "retry", &letter["id"].to_string(), "--note", "edited by hand", "--json"]).await.unwrap();
    let product = until_well(&cluster, lot).await;
    assert_eq!(product["sold"], 1, "{product}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_that_somebody_edited_in_redis_is_found_and_rebuilt() {
    let cluster = shared().await.unwrap();
    let lot = cluster.open_sale(3203, Terms::open(5)).await.unwrap();
    assert_eq!(buy(&cluster, lot, "ann-3203").await.unwrap(), "success");
    until_well(&cluster, lot).await;
    let key = format!("seckill:{{{}:{}}}:sale", lot.activity, lot.sku);
    block_in_place(|| cluster.services.redis.command(&["HINCRBY", &key, "left", "7"])).unwrap();
    let letter = listed(&cluster, &format!("{}:{}:stock_is_left_and_reserved", lot.activity, lot.sku)).await;
    assert_eq!((&letter["payload"]["expected"], &letter["payload"]["found"]), (&json!(5), &json!(12)), "{letter}");
    let checked = operating::run(&cluster, &["activity", "reconcile", &lot.activity.to_string()]).await.unwrap();
    assert_eq!(checked.status.code(), Some(1), "{}", String::from_utf8_lossy(&checked.stdout));
    sluice(&cluster, &["compensation", "retry", &letter["id"].to_string(), "--json"]).await.unwrap();
    let product = until_well(&cluster, lot).await;
    assert_eq!((&product["sale"]["left"], &product["sale"]["epoch"], &product["sold"]), (&json!(4), &json!(2), &json!(1)), "{product}");
    let status = operating::run(&cluster, &["activity", "status", &lot.activity.to_string()]).await.unwrap();
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("1 of 5 sold") && text.contains("stock_is_left_and_reserved: holds"), "{text}");
    assert_eq!(buy(&cluster, lot, "bob-3203").await.unwrap(), "success");
}
