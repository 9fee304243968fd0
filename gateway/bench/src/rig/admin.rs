//! An operator's calls to one node.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::load::{Client, Request};
use crate::rig::{ADMIN_TOKEN, operators_client};

/// Asks the admin listener at one address.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    client: Client,
}

impl Admin {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, client: operators_client() }
    }

    /// `GET`; anything but 200 is an error.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, "").await
    }

    /// `POST`; anything but 2xx is an error.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask("POST", path, &body.to_string()).await
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> anyhow::Result<Value> {
        let token = format!("Bearer {ADMIN_TOKEN}");
        let request = Request::new(method, path, &[("authorization", &token)], body);
        let answer = self.client.ask(self.address, &request).await.with_context(|| format!("{method} {path}"))?;
        ensure!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.body);
        Ok(answer.body)
    }
}
