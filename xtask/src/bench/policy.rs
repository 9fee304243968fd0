//! What one policy call costs: runs the criterion bench of `gateway-policy` and tabulates its medians.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::bench::{machine, report};
use crate::cargo::cargo;

pub(super) fn run(root: &Path) -> Result<()> {
    let target = root.join("target");
    let status = cargo(root)
        .args(["bench", "--locked", "--package", "gateway-policy", "--bench", "calls"])
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .context("start cargo")?;
    ensure!(status.success(), "the bench failed");
    let mut rows = medians(&target.join("criterion"))?;
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    ensure!(!rows.is_empty(), "the bench left no result");
    let mut text = format!("{}, {}.\n\n| Call | Median |\n|---|---|\n", machine::describe(), machine::version("rustc", &["--version"]));
    for (name, nanos) in rows {
        text.push_str(&format!("| {name} | {:.2} µs |\n", nanos / 1_000.0));
    }
    report::publish(root, "policy", &text)
}

/// Every `<group>/<function>/new/estimates.json` below `dir`, in nanoseconds.
fn medians(dir: &Path) -> Result<Vec<(String, f64)>> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry.context("read a folder")?.path();
            if path.is_dir() && !path.ends_with("base") && !path.ends_with("report") {
                if path.ends_with("new") {
                    found.push(median(&path, dir)?);
                } else {
                    folders.push(path);
                }
            }
        }
    }
    Ok(found)
}

fn median(new: &Path, dir: &Path) -> Result<(String, f64)> {
    let text = fs::read_to_string(new.join("estimates.json")).context("read estimates.json")?;
    let estimates: serde_json::Value = serde_json::from_str(&text).context("parse estimates.json")?;
    let nanos = estimates["median"]["point_estimate"].as_f64().context("estimates.json has no median")?;
    let name = new.parent().and_then(|parent| parent.strip_prefix(dir).ok()).map(|name| name.display().to_string()).unwrap_or_default();
    Ok((name, nanos))
}
