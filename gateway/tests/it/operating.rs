//! The operator's command line against a running cluster, as an operator types it.

use std::process::Output;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::process;
use crate::settings::ADMIN_TOKEN;

/// Runs a command against node 0 and gives what it ended with.
pub(crate) async fn run(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<Output> {
    let admin = cluster.admin(0).url("");
    process::run(&[arguments, &["--admin", &admin, "--token", ADMIN_TOKEN]].concat()).await
}

/// The JSON it printed; it must have ended well.
pub(crate) async fn sluice(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<Value> {
    let output = run(cluster, arguments).await?;
    ensure!(output.status.success(), "sluice {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).with_context(|| format!("sluice {arguments:?}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// `GET` on node 0.
pub(crate) async fn ask(cluster: &Cluster, path: &str) -> anyhow::Result<Value> {
    cluster.admin(0).get(path).await
}
