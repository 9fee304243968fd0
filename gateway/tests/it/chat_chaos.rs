//! `sluice bench chat` in small: conversations go on while every part is killed, and everybody's log is what the ledger holds.

use std::process::Output;

use anyhow::Context;
use serde_json::Value;
use tokio::time::timeout;

use crate::process::command;
use crate::settings::plugins;
use crate::wait::RECOVERED;

/// Runs `sluice bench chat`, which starts services, nodes and workers of its own.
async fn chat(arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = tokio::process::Command::from(command());
    command.args(["bench", "chat", "--json", "--plugins"]).arg(plugins()?).args(arguments).kill_on_drop(true);
    timeout(4 * RECOVERED, command.output()).await.context("the run did not end")?.context("sluice bench chat")
}

/// The report of a run in which everybody saw what is stored.
fn well(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert!(output.status.success(), "{report} {said}");
    for name in ["lost", "duplicates", "reordered", "gaps", "altered", "unsent"] {
        assert_eq!(report[name], 0, "{name}: {report} {said}");
    }
    report
}

#[tokio::test]
async fn conversations_survive_every_part_being_killed_in_turn() {
    let output = chat(&["--sessions", "20", "--rate", "20", "--seconds", "25", "--chaos", "--kills", "1"]).await.unwrap();
    let report = well(&output);
    let run = &report["runs"][0];
    // Two nodes, two workers, three services.
    assert_eq!(run["faults"].as_array().unwrap().len(), 7, "{report}");
    assert_eq!((&run["messages"], &run["accepted"], &run["delivered"]), (&500.into(), &500.into(), &500.into()), "{report}");
    assert!(run["reconnects"].as_u64().unwrap() > 0, "a node that dies cuts its clients off: {report}");
    assert_eq!(run["refused"], serde_json::json!({}), "{report}");
}

#[tokio::test]
async fn a_quiet_run_measures_latency_and_cost() {
    let output = chat(&["--sessions", "4", "--rate", "40", "--seconds", "3", "--nodes", "1", "--workers", "1"]).await.unwrap();
    let report = well(&output);
    let run = &report["runs"][0];
    assert_eq!((&run["accepted"], &run["delivered"], &run["reconnects"]), (&120.into(), &120.into(), &0.into()), "{report}");
    for latency in ["acceptMs", "deliverMs"] {
        assert!(run[latency]["p50"].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(run["cpuUsPerMessage"]["gateway"].as_f64().unwrap() > 0.0, "{report}");
}
