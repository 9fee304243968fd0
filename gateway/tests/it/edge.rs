//! A client of the edge over HTTP, and what it is answered.

use std::net::SocketAddr;

use anyhow::ensure;
use reqwest::header::HeaderMap;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::http;
use crate::sale::Lot;

/// A client with a connection pool. Where it asks is said with each call, because nodes come and go.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    /// For requests that have no method here.
    pub(crate) http: Client,
}

/// A complete answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The header fields.
    pub(crate) headers: HeaderMap,
    /// The body; null when it is no JSON.
    pub(crate) body: Value,
}

impl Answer {
    /// Waits for the whole answer.
    pub(crate) async fn of(request: RequestBuilder) -> anyhow::Result<Self> {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?;
        Ok(Self { status, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
    }

    /// The `code` of the body; empty when there is none.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// Status and code, for comparing.
    pub(crate) fn verdict(&self) -> (u16, &str) {
        (self.status, self.code())
    }

    /// Checks the shape that every refusal of the gateway has: code, message and the trace id that is in the header too.
    pub(crate) fn assert_refusal(&self, status: u16, code: &str) {
        assert_eq!(self.verdict(), (status, code), "{}", self.body);
        assert!(self.body["message"].as_str().is_some_and(|message| !message.is_empty()), "{}", self.body);
        let trace = self.body["traceId"].as_str().unwrap_or_default();
        assert_eq!(trace.len(), 32, "{}", self.body);
        assert_eq!(self.headers.get("x-trace-id").and_then(|id| id.to_str().ok()), Some(trace));
        let retry = self.body["retryAfterMs"].as_u64().map(|ms| ms.div_ceil(1_000).to_string());
        assert_eq!(self.headers.get("retry-after").and_then(|after| after.to_str().ok()), retry.as_deref(), "both or none");
    }
}

impl Edge {
    /// A new client.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self { http: http::client()? })
    }

    /// `POST /api/seckill/buy` for one unit. `key` says which attempts are one and the same.
    pub(crate) async fn buy(&self, edge: SocketAddr, token: &str, lot: Lot, key: &str) -> anyhow::Result<Answer> {
        self.buy_units(edge, token, lot, key, 1).await
    }

    /// The same for any number of units.
    pub(crate) async fn buy_units(&self, edge: SocketAddr, token: &str, lot: Lot, key: &str, qty: u32) -> anyhow::Result<Answer> {
        let body = json!({ "activityId": lot.activity.to_string(), "skuId": lot.sku, "qty": qty });
        let request = self.http.post(format!("http://{edge}/api/seckill/buy")).bearer_auth(token).header("idempotency-key", key);
        Answer::of(request.json(&body)).await
    }

    /// `GET /api/seckill/result/{orderNo}`.
    pub(crate) async fn result(&self, edge: SocketAddr, token: &str, order_no: &str) -> anyhow::Result<Answer> {
        Answer::of(self.http.get(format!("http://{edge}/api/seckill/result/{order_no}")).bearer_auth(token)).await
    }

    /// `POST /api/seckill/orders/{orderNo}/cancel`.
    pub(crate) async fn cancel(&self, edge: SocketAddr, token: &str, order_no: &str) -> anyhow::Result<Answer> {
        Answer::of(self.http.post(format!("http://{edge}/api/seckill/orders/{order_no}/cancel")).bearer_auth(token)).await
    }

    /// What became of an order once that is settled: `success` or `fail`; `None` while it is pending.
    pub(crate) async fn settled(&self, edge: SocketAddr, token: &str, order_no: &str) -> anyhow::Result<Option<String>> {
        let answer = self.result(edge, token, order_no).await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
        ensure!(answer.body["orderNo"] == order_no, "{}", answer.body);
        match answer.body["status"].as_str() {
            Some("pending") => Ok(None),
            Some(status @ ("success" | "fail")) => Ok(Some(status.to_owned())),
            _ => anyhow::bail!("{}", answer.body),
        }
    }
}
