//! Payments: told by HTTP and by the bus, once and again, in time and too late.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::{Cluster, shared};
use crate::edge::{Answer, Edge};
use crate::operating::{self, sluice};
use crate::sale::{self, Lot, Terms};
use crate::tokens;
use crate::wait::{RECOVERED, soon, until};

/// Buys one unit and waits until the order is written; gives its number.
async fn bought(cluster: &Cluster, lot: Lot, id: &str) -> anyhow::Result<String> {
    let (edge, token) = (Edge::new()?, tokens::user(id));
    let answer = until(format!("{id} buys"), RECOVERED, async || {
        Ok(Some(edge.buy(cluster.edge(0), &token, lot, "k").await?).filter(|answer| answer.status == 202))
    })
    .await?;
    let order = answer.body["orderNo"].as_str().context("no orderNo")?.to_owned();
    let settled = until(format!("the order of {id}"), RECOVERED, async || edge.settled(cluster.edge(0), &token, &order).await).await?;
    ensure!(settled == "success", "{settled}");
    Ok(order)
}

async fn pay(cluster: &Cluster, order: &str, pay_no: &str) -> anyhow::Result<Answer> {
    let body = json!({ "payNo": pay_no }).to_string().into();
    cluster.admin(0).ask(Method::POST, &format!("/admin/orders/{order}/paid"), body).await
}

async fn until_closed(cluster: &Cluster, order: &str) -> anyhow::Result<()> {
    until(format!("{order} is closed"), RECOVERED, async || {
        Ok((operating::ask(cluster, &format!("/admin/orders/{order}")).await?["state"] == "closed").then_some(()))
    })
    .await
}

/// Asks a served subject as any client of NATS does, and gives the answer.
async fn request(url: &str, subject: &str, text: &str) -> anyhow::Result<Value> {
    let stream = TcpStream::connect(url.trim_start_matches("nats://")).await?;
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader);
    let asked = format!("CONNECT {{\"verbose\":false}}\r\nSUB the.answer 1\r\nPUB {subject} the.answer {}\r\n{text}\r\n", text.len());
    writer.write_all(asked.as_bytes()).await?;
    let answered = async {
        loop {
            let mut line = String::new();
            ensure!(lines.read_line(&mut line).await? > 0, "the connection ended");
            if let Some(head) = line.strip_prefix("MSG ") {
                let length = head.trim().rsplit(' ').next().and_then(|length| length.parse().ok()).context("a length")?;
                let mut body = vec![0; length];
                lines.read_exact(&mut body).await?;
                return Ok(serde_json::from_slice(&body)?);
            }
        }
    };
    soon("the answer", answered).await?
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_told_by_http_and_by_the_bus() {
    let cluster = shared().await.unwrap();
    let lot = sale::publish(&cluster.admin(0), 3101, Terms::open(5), 1_800).await.unwrap();
    let ann = bought(&cluster, lot, "payer-1-3101").await.unwrap();
    for _ in 0..2 {
        let paid = pay(&cluster, &ann, "p-3101-a").await.unwrap();
        assert_eq!((paid.status, &paid.body["outcome"]), (200, &json!("paid")), "{}", paid.body);
    }
    let bob = bought(&cluster, lot, "payer-2-3101").await.unwrap();
    assert_eq!(pay(&cluster, &bob, "p-3101-a").await.unwrap().verdict(), (409, "PAY_NO_USED"));
    assert_eq!(pay(&cluster, "SKAAAAAAAAAAAAAAAA", "p-3101-x").await.unwrap().verdict(), (404, "NOT_FOUND"));
    assert_eq!(pay(&cluster, &bob, "with space").await.unwrap().verdict(), (400, "BAD_REQUEST"));

    let nats = cluster.services.nats.url();
    let told = json!({ "orderNo": bob, "payNo": "p-3101-b" }).to_string();
    for _ in 0..2 {
        let answer = request(&nats, "order.paid", &told).await.unwrap();
        assert_eq!((&answer["outcome"], &answer["orderNo"]), (&json!("paid"), &json!(bob)), "{answer}");
    }
    assert_eq!(request(&nats, "order.paid", "{}").await.unwrap()["code"], "BAD_REQUEST");
    for (order, pay_no) in [(&ann, "p-3101-a"), (&bob, "p-3101-b")] {
        let shown = operating::ask(&cluster, &format!("/admin/orders/{order}")).await.unwrap();
        assert_eq!((&shown["state"], &shown["payNo"]), (&json!("paid"), &json!(pay_no)), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_after_the_close_gets_the_unit_that_is_free() {
    let cluster = shared().await.unwrap();
    let lot = sale::publish(&cluster.admin(0), 3102, Terms::open(1), 1).await.unwrap();
    let order = bought(&cluster, lot, "late-3102").await.unwrap();
    until_closed(&cluster, &order).await.unwrap();
    for _ in 0..2 {
        let paid = pay(&cluster, &order, "p-3102").await.unwrap();
        assert_eq!((paid.status, &paid.body["outcome"]), (200, &json!("revived")), "{}", paid.body);
    }
    let edge = Edge::new().unwrap();
    until("the buyer hears of it", RECOVERED, async || {
        Ok(edge.settled(cluster.edge(0), &tokens::user("late-3102"), &order).await?.filter(|word| word == "success"))
    })
    .await
    .unwrap();
    until("the unit is taken again", RECOVERED, async || {
        Ok((edge.buy(cluster.edge(0), &tokens::user("stranger-3102"), lot, "k").await?.verdict() == (409, "SOLD_OUT")).then_some(()))
    })
    .await
    .unwrap();
}

/// The payment service of the shop: what it was asked, and how many of the first calls it fails.
#[derive(Clone, Default)]
struct Service {
    asked: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    fails: usize,
}

impl Service {
    /// Starts it and says where.
    async fn start(self) -> anyhow::Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/refunds", listener.local_addr()?);
        let take = async move |headers: HeaderMap, Json(body): Json<Value>| {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push((headers, body));
            if asked.len() <= self.fails { StatusCode::BAD_GATEWAY } else { StatusCode::ACCEPTED }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/refunds", post(take))).await });
        Ok(url)
    }

    fn asked(&self) -> Vec<(HeaderMap, Value)> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_after_the_unit_is_gone_is_sent_back_once() {
    let service = Service { fails: 2, ..Service::default() };
    let url = service.clone().start().await.unwrap();
    let extra = format!("\n[payments]\nrefund_url = \"{url}\"\ntoken = \"the shop's\"\n");
    let cluster = Cluster::start(1, 2, &extra).await.unwrap();
    let lot = sale::publish(&cluster.admin(0), 3103, Terms::open(1), 1).await.unwrap();
    let order = bought(&cluster, lot, "late-3103").await.unwrap();
    until_closed(&cluster, &order).await.unwrap();
    bought(&cluster, lot, "quick-3103").await.unwrap();
    for _ in 0..3 {
        let paid = pay(&cluster, &order, "p-3103").await.unwrap();
        assert_eq!((paid.status, &paid.body["outcome"]), (200, &json!("refunded")), "{}", paid.body);
    }
    let ledger = cluster.ledger().await.unwrap();
    until("the refund is sent", RECOVERED, async || Ok((service.asked().len() == 3 && ledger.owed("refund").await? == 0).then_some(())))
        .await
        .unwrap();
    let asked = service.asked();
    assert_eq!(asked.len(), 3, "two failed, the third was taken: {asked:?}");
    for (headers, body) in asked {
        assert_eq!(headers["idempotency-key"], "p-3103");
        assert_eq!(headers["authorization"], "Bearer the shop's");
        assert_eq!(body, json!({ "orderNo": order, "payNo": "p-3103", "amountCents": 9_900 }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_payment_service_the_refund_waits_for_an_operator() {
    let cluster = shared().await.unwrap();
    let lot = sale::publish(&cluster.admin(0), 3104, Terms::open(1), 1).await.unwrap();
    let order = bought(&cluster, lot, "late-3104").await.unwrap();
    until_closed(&cluster, &order).await.unwrap();
    bought(&cluster, lot, "quick-3104").await.unwrap();
    assert_eq!(pay(&cluster, &order, "p-3104").await.unwrap().body["outcome"], "refunded");
    let letter = until("it is on the list", RECOVERED, async || {
        let listed = sluice(&cluster, &["compensation", "list", "--json"]).await?;
        let mine = |entry: &&Value| entry["payload"].to_string().contains("p-3104");
        Ok(listed["compensations"].as_array().context("entries")?.iter().find(mine).cloned())
    })
    .await
    .unwrap();
    assert_eq!(letter["kind"], "outbox", "{letter}");
    assert!(letter["error"].as_str().unwrap().contains("payments.refund_url"), "{letter}");
    let id = letter["id"].to_string();
    let decided = sluice(&cluster, &["compensation", "discard", &id, "--by", "eve", "--note", "by hand", "--json"]).await.unwrap();
    assert_eq!(
        (&decided["state"], &decided["decision"]["by"], &decided["decision"]["note"]),
        (&json!("discarded"), &json!("eve"), &json!("by hand"))
    );
    let again = operating::run(&cluster, &["compensation", "retry", &id]).await.unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("decided before"), "{}", String::from_utf8_lossy(&again.stderr));
}
