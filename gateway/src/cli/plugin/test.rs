//! `sluice plugin test`.

use std::path::Path;

use anyhow::{Context, bail};
use gateway_kit::Plugin;
use gateway_kit::test::{self, Report};

use super::print;

pub(super) fn run(folder: &Path, json: bool) -> anyhow::Result<()> {
    let report = test::run(&Plugin::open(folder)?)?;
    if json {
        print(&serde_json::to_string(&report).context("cannot print")?)?;
    } else {
        show(&report)?;
    }
    if report.failed() > 0 {
        bail!("{} of {} cases failed", report.failed(), report.cases.len());
    }
    Ok(())
}

fn show(report: &Report) -> anyhow::Result<()> {
    print(if report.native {
        "natively and compiled, warm and fresh:"
    } else {
        "compiled, warm and fresh; only Rust policies run natively too:"
    })?;
    for case in &report.cases {
        print(&format!("  {} {}", if case.problems.is_empty() { "ok    " } else { "FAILED" }, case.name))?;
        for problem in &case.problems {
            print(&format!("           {problem}"))?;
        }
    }
    print(&format!("{} passed, {} failed", report.passed(), report.failed()))
}
