//! `sluice bench seckill` on a small sale: the command that an operator runs, and its verdict.

use std::path::Path;
use std::process::Output;

use anyhow::Context;
use serde_json::Value;
use tokio::time::timeout;

use crate::process::command;
use crate::settings::plugins;
use crate::wait::RECOVERED;

/// Runs `sluice bench seckill`, which starts services, nodes and a worker of its own.
async fn seckill(plugins: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = tokio::process::Command::from(command());
    command.args(["bench", "seckill", "--plugins"]).arg(plugins).args(arguments).kill_on_drop(true);
    timeout(4 * RECOVERED, command.output()).await.context("the sale did not end")?.context("sluice bench seckill")
}

#[tokio::test]
async fn a_sale_under_load_is_exact_and_settles() {
    let output = seckill(&plugins().unwrap(), &["--users", "200", "--stock", "20", "--nodes", "2", "--json"]).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["oversold", "lost", "stuck"] {
        assert_eq!(report[name], 0, "{name}: {report}");
    }
    let run = &report["runs"][0];
    assert_eq!((&run["persisted"], &run["won"], &run["soldOut"]), (&20.into(), &20.into(), &180.into()), "{report}");
    assert_eq!(run["broken"], Value::Array(vec![]), "{report}");
    assert!(run["attempts"].as_u64().unwrap() >= 200, "{report}");
    assert!(run["latencyMs"]["p99"].as_f64().unwrap() > 0.0, "{report}");
    assert!(run["cpuUsPerAttempt"]["gateway"].as_f64().unwrap() > 0.0, "{report}");
}

#[tokio::test]
async fn a_sale_without_the_policies_does_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    let output = seckill(folder.path(), &[]).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cargo xtask plugins"), "it says what to do");
}
