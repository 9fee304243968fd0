//! `sluice plugin bench`.

use std::path::Path;

use anyhow::Context;
use gateway_kit::Plugin;
use gateway_kit::bench::{self, Cost};

use super::print;

pub(super) fn run(folder: &Path, json: bool) -> anyhow::Result<()> {
    let report = bench::run(&Plugin::open(folder)?)?;
    if json {
        return print(&serde_json::to_string(&report).context("cannot print")?);
    }
    for (mode, cost) in [("warm ", &report.warm), ("fresh", &report.fresh)] {
        let Cost { calls, median_ns, p99_ns } = cost;
        print(&format!("{mode}  median {:>9}  p99 {:>9}  ({calls} calls)", micros(*median_ns), micros(*p99_ns)))?;
    }
    Ok(())
}

fn micros(nanos: u64) -> String {
    format!("{}.{:02} µs", nanos / 1_000, nanos % 1_000 / 10)
}
