//! An operator's client of one process.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use reqwest::Method;
use serde_json::Value;

use crate::edge::Answer;
use crate::http::client;
use crate::settings::ADMIN_TOKEN;

/// Asks the admin listener at one address.
#[derive(Debug, Clone)]
pub(crate) struct Admin {
    address: SocketAddr,
}

impl Admin {
    /// Asks the listener at `address`.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// `GET /readyz`: status and report.
    pub(crate) async fn readyz(&self) -> anyhow::Result<(u16, Value)> {
        let answer = Answer::of(client()?.get(self.url("/readyz"))).await?;
        Ok((answer.status, answer.body))
    }

    /// Whether the process says that it is alive.
    pub(crate) async fn is_alive(&self) -> anyhow::Result<bool> {
        Ok(Answer::of(client()?.get(self.url("/healthz"))).await?.status == 200)
    }

    /// Any call with the admin token.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<Answer> {
        Answer::of(client()?.request(method, self.url(path)).bearer_auth(ADMIN_TOKEN).body(body)).await
    }

    /// `GET`; anything but 200 is an error.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.ask(Method::GET, path, Vec::new()).await?;
        ensure!(answer.status == 200, "GET {path}: {} {}", answer.status, answer.body);
        Ok(answer.body)
    }

    /// `POST`; anything but 2xx is an error.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let answer = self.ask(Method::POST, path, body.to_string().into_bytes()).await?;
        ensure!((200..300).contains(&answer.status), "POST {path}: {} {}", answer.status, answer.body);
        Ok(answer.body)
    }

    /// A value of `GET /metrics`, by its name with all of its labels; `None` while there is no such series.
    pub(crate) async fn metric(&self, series: &str) -> anyhow::Result<Option<f64>> {
        let text = client()?.get(self.url("/metrics")).send().await?.text().await?;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.trim().parse().context("a number")).transpose()
    }

    /// The version of a policy that answers now.
    pub(crate) async fn policy_version(&self, name: &str) -> anyhow::Result<String> {
        let policies = self.get("/admin/plugins").await?;
        let policy = policies["policies"].as_array().and_then(|all| all.iter().find(|policy| policy["name"] == name));
        policy.and_then(|policy| policy["version"].as_str()).map(str::to_owned).with_context(|| format!("no {name} in {policies}"))
    }

    /// The address of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}
