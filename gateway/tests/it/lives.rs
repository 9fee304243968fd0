//! The life of an activity: without an operator, called off, ended before its time.

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Part, shared};
use crate::edge::Edge;
use crate::operating::{self, sluice};
use crate::sale::{self, Lot, Terms, WAREHOUSE};
use crate::tokens::{self, now_s};
use crate::wait::{RECOVERED, until};

/// What an operator is shown of a lot's activity.
async fn shown(cluster: &Cluster, lot: Lot) -> anyhow::Result<Value> {
    cluster.admin(0).get(&format!("/admin/activities/{}", lot.activity)).await
}

async fn until_state(cluster: &Cluster, lot: Lot, field: &str, word: &str) -> Value {
    let what = format!("{field} of {lot:?} is {word}");
    until(what, RECOVERED, async || Ok(Some(shown(cluster, lot).await?).filter(|activity| activity[field] == word))).await.unwrap()
}

/// Units of the SKU: in the warehouse, and promised to activities.
fn sku(activity: &Value) -> (u64, u64) {
    let sku = &activity["products"][0]["sku"];
    (sku["stock"].as_u64().unwrap(), sku["locked"].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activity_lives_its_life_without_an_operator() {
    let cluster = shared().await.unwrap();
    sale::stock_up(&cluster.admin(0), 3001).await.unwrap();
    let (start, end) = (now_s() + 3, now_s() + 8);
    let at = |s: i64| jiff::Timestamp::from_second(s).unwrap().to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(8)));
    let rfc3339 = |s| at(s).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    let created = sluice(
        &cluster,
        &[
            "activity",
            "create",
            "--title",
            "今晚八点",
            "--start",
            &rfc3339(start),
            "--end",
            &(end * 1_000).to_string(),
            "--product",
            "sku=3001,price=9900,stock=5,per-user=2",
            "--publish",
            "--json",
        ],
    )
    .await
    .unwrap();
    let id = created["activityId"].as_str().unwrap().to_owned();
    let lot = Lot { activity: id.parse().unwrap(), sku: 3001 };
    until_state(&cluster, lot, "phase", "preheated").await;
    let edge = Edge::new().unwrap();
    let buy = async |id: &str| edge.buy(cluster.edge(0), &tokens::user(id), lot, "k").await;
    let early =
        until("the node knows it", RECOVERED, async || Ok(Some(buy("early-3001").await?).filter(|answer| answer.status != 404))).await;
    early.unwrap().assert_refusal(409, "NOT_STARTED");
    let first =
        until("it opens", RECOVERED, async || Ok(Some(buy("early-3001").await?).filter(|answer| answer.code() != "NOT_STARTED"))).await;
    assert_eq!(first.unwrap().status, 202);
    assert!(now_s() >= start, "not before its time");
    assert_eq!(buy("another-3001").await.unwrap().status, 202);
    assert_eq!(shown(&cluster, lot).await.unwrap()["phase"], "open");
    let listed = sluice(&cluster, &["activity", "list", "--json"]).await.unwrap();
    assert!(listed["activities"].as_array().unwrap().iter().any(|activity| activity["activityId"] == id.as_str()), "{listed}");

    let settled = until_state(&cluster, lot, "state", "settled").await;
    assert!(now_s() >= end);
    buy("late-3001").await.unwrap().assert_refusal(409, "ENDED");
    assert_eq!(sku(&settled), (u64::from(WAREHOUSE) - 2, 0), "{settled}");
    assert_eq!(settled["sold"], 2, "{settled}");
    cluster.ledger().await.unwrap().assert_sold(lot, 2).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activity_is_called_off_before_it_begins_and_not_after() {
    let cluster = shared().await.unwrap();
    let terms = Terms { starts_in_s: 120, ..Terms::open(5) };
    let lot = sale::publish(&cluster.admin(0), 3002, terms, 1_800).await.unwrap();
    let preheated = until_state(&cluster, lot, "phase", "preheated").await;
    assert_eq!(sku(&preheated).1, 5);
    let id = lot.activity.to_string();
    for _ in 0..2 {
        let void = sluice(&cluster, &["activity", "void", &id, "--json"]).await.unwrap();
        assert_eq!(void["state"], "void");
    }
    let void = shown(&cluster, lot).await.unwrap();
    assert_eq!((sku(&void), &void["phase"]), ((u64::from(WAREHOUSE), 0), &json!("void")), "{void}");
    let edge = Edge::new().unwrap();
    until("the node has forgotten it", RECOVERED, async || {
        let answer = edge.buy(cluster.edge(0), &tokens::user("hopeful-3002"), lot, "k").await?;
        Ok((answer.verdict() == (404, "UNKNOWN_ITEM")).then_some(()))
    })
    .await
    .unwrap();

    let open = cluster.open_sale(3003, Terms::open(5)).await.unwrap();
    let refused = cluster.admin(0).ask(reqwest::Method::POST, &format!("/admin/activities/{}/void", open.activity), Vec::new()).await;
    assert_eq!(refused.unwrap().verdict(), (409, "STARTED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn settling_waits_for_orders_and_what_closes_later_goes_to_the_warehouse() {
    let cluster = Cluster::start(1, 1, "").await.unwrap();
    let lot = sale::publish(&cluster.admin(0), 3004, Terms { per_user: 2, ..Terms::open(5) }, 12).await.unwrap();
    until_state(&cluster, lot, "phase", "open").await;
    let edge = Edge::new().unwrap();
    let buy = async |id: &str| edge.buy(cluster.edge(0), &tokens::user(id), lot, "k").await;
    until("it sells", RECOVERED, async || Ok((buy("payer-3004").await?.status == 202).then_some(()))).await.unwrap();
    cluster.kill(Part::Worker(0));
    let answer = buy("forgetful-3004").await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.body);
    let forgotten = answer.body["orderNo"].as_str().unwrap().to_owned();
    let paid = buy("payer-3004").await.unwrap().body["orderNo"].as_str().unwrap().to_owned();

    sluice(&cluster, &["activity", "close", &lot.activity.to_string(), "--json"]).await.unwrap();
    let closing = shown(&cluster, lot).await.unwrap();
    assert_eq!((&closing["state"], &closing["phase"]), (&json!("closing"), &json!("closing")), "an event waits: {closing}");
    buy("late-3004").await.unwrap().assert_refusal(409, "ENDED");

    cluster.restart(Part::Worker(0)).await.unwrap();
    let settled = until_state(&cluster, lot, "state", "settled").await;
    assert_eq!((sku(&settled), &settled["sold"]), ((u64::from(WAREHOUSE) - 2, 0), &json!(2)), "{settled}");
    let token = tokens::user("forgetful-3004");
    let result = async |token: &str, order: &str| edge.settled(cluster.edge(0), token, order).await;
    assert_eq!(until("written", RECOVERED, async || result(&token, &forgotten).await).await.unwrap(), "success");
    cluster.admin(0).post(&format!("/admin/orders/{paid}/paid"), &json!({ "payNo": "p-3004" })).await.unwrap();

    until("the unpaid one is closed", RECOVERED, async || {
        let activity = shown(&cluster, lot).await?;
        ensure!(sku(&activity) == (u64::from(WAREHOUSE) - 1, 0), "{activity}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    until("its buyer hears of it", RECOVERED, async || Ok(result(&token, &forgotten).await?.filter(|word| word == "fail"))).await.unwrap();
    assert_eq!(result(&tokens::user("payer-3004"), &paid).await.unwrap().context("final").unwrap(), "success");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unpaid_order_is_closed_and_its_unit_sold_again() {
    let cluster = shared().await.unwrap();
    let lot = sale::publish(&cluster.admin(0), 3005, Terms::open(1), 2).await.unwrap();
    let edge = Edge::new().unwrap();
    let buy = async |id: &str, node| edge.buy(cluster.edge(node), &tokens::user(id), lot, "k").await;
    let bought =
        until("it sells", RECOVERED, async || Ok(Some(buy("ann-3005", 0).await?).filter(|answer| answer.status == 202))).await.unwrap();
    let order = bought.body["orderNo"].as_str().unwrap();
    for node in [0, 1] {
        buy("bob-3005", node).await.unwrap().assert_refusal(409, "SOLD_OUT");
    }
    until("her order is closed", RECOVERED, async || {
        Ok(edge.settled(cluster.edge(1), &tokens::user("ann-3005"), order).await?.filter(|word| word == "fail"))
    })
    .await
    .unwrap();
    let sold =
        until("it is sold again", RECOVERED, async || Ok(Some(buy("bob-3005", 1).await?).filter(|answer| answer.status == 202))).await;
    let order = sold.unwrap().body["orderNo"].as_str().unwrap().to_owned();
    let paid = format!("/admin/orders/{order}/paid");
    until("it is written and paid", RECOVERED, async || cluster.admin(0).post(&paid, &json!({ "payNo": "p-3005" })).await.map(Some))
        .await
        .unwrap();
    let shown = operating::ask(&cluster, &format!("/admin/orders/{order}")).await.unwrap();
    assert_eq!((&shown["state"], &shown["user"], &shown["payNo"]), (&json!("paid"), &json!("bob-3005"), &json!("p-3005")), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_that_are_killed_in_turn_lose_and_double_nothing() {
    let cluster = Cluster::start(2, 2, "").await.unwrap();
    let lot = cluster.open_sale(3006, Terms::open(60)).await.unwrap();
    let edge = Edge::new().unwrap();
    let mut orders = Vec::new();
    for round in 0..6 {
        for number in 0..10 {
            let token = tokens::user(&format!("buyer-{round}-{number}"));
            let answer = edge.buy(cluster.edge(number % 2), &token, lot, "k").await.unwrap();
            assert_eq!(answer.status, 202, "{}", answer.body);
            orders.push((token, answer.body["orderNo"].as_str().unwrap().to_owned()));
            if number == 5 {
                cluster.kill(Part::Worker(round % 2));
            }
        }
        cluster.restart(Part::Worker(round % 2)).await.unwrap();
    }
    for (token, order) in &orders {
        let settled = until("the order is settled", RECOVERED, async || edge.settled(cluster.edge(0), token, order).await).await.unwrap();
        assert_eq!(settled, "success", "{order}");
    }
    cluster.ledger().await.unwrap().assert_sold(lot, 60).await.unwrap();
    until("the books agree", RECOVERED, async || {
        let activity = shown(&cluster, lot).await?;
        let invariants = activity["products"][0]["invariants"].as_object().context("invariants")?.clone();
        ensure!(invariants.len() == 4 && invariants.values().all(|holds| holds == true), "{activity}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}
