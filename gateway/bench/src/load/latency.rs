//! Latencies, kept as a histogram of three significant digits.

use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency that is told apart; no run is that long.
const LONGEST_US: u64 = 3_600_000_000;

/// Latencies of one run.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

/// What is read off them, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Half of the answers were there by then.
    pub p50: f64,
    /// 90 of 100.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1,000.
    pub p999: f64,
    /// All.
    pub max: f64,
}

impl Latencies {
    /// None yet.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, LONGEST_US, 3).context("making a histogram")?))
    }

    /// Of these.
    pub fn of(latencies: impl Iterator<Item = Duration>) -> anyhow::Result<Self> {
        let mut histogram = Self::new()?;
        latencies.for_each(|latency| histogram.record(latency));
        Ok(histogram)
    }

    /// One more.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(LONGEST_US));
    }

    /// The percentiles; zeros when nothing was recorded.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let at = |quantile| millis(self.0.value_at_quantile(quantile));
        Summary { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: millis(self.0.max()) }
    }
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let latencies = Latencies::of((1..=1_000).map(Duration::from_millis)).unwrap();
        let Summary { p50, p90, p99, p999, max } = latencies.summary();
        for (found, wanted) in [(p50, 500.0), (p90, 900.0), (p99, 990.0), (p999, 999.0), (max, 1_000.0)] {
            assert!((found - wanted).abs() <= wanted / 500.0, "{found} is not {wanted}");
        }
    }

    #[test]
    fn nothing_recorded_is_zero() {
        assert_eq!(Latencies::of(std::iter::empty()).unwrap().summary(), Summary { p50: 0.0, p90: 0.0, p99: 0.0, p999: 0.0, max: 0.0 });
    }
}
