//! The load: `wrk` with a script that lets each attempt be another user's.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::LOAD_CORE;

/// Longest run; it ends when every user had a turn.
const SECONDS_MAX: u32 = 120;

/// Who tries: `count` users from line `first` of `tokens`.
pub(super) struct Attempts<'a> {
    pub(super) tokens: &'a Path,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) connections: u32,
}

/// What they were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// Attempts answered.
    pub(super) answered: u64,
    /// Those with another status than 2xx.
    pub(super) refused: u64,
}

impl Attempts<'_> {
    /// Sends all of them to `server` with `body`.
    pub(super) fn run(&self, root: &Path, server: SocketAddr, body: &str) -> Result<Run> {
        let output = Command::new("taskset")
            .args(["-c", &LOAD_CORE.to_string(), "wrk", "-t", "1", "-c", &self.connections.to_string()])
            .args(["-d", &format!("{SECONDS_MAX}s"), "-s"])
            .arg(root.join("xtask/bench/attempts.lua"))
            .arg(format!("http://{server}/api/seckill/buy"))
            .arg("--")
            .arg(self.tokens)
            .args([&self.first.to_string(), &self.count.to_string(), body])
            .output()
            .context("start wrk")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success() && !text.contains("Socket errors"), "wrk: {text}{}", String::from_utf8_lossy(&output.stderr));
        let run = Run::parse(&text).with_context(|| format!("wrk counted nothing: {text}"))?;
        // Those under way at the end are not counted.
        ensure!(run.answered + u64::from(2 * self.connections) >= self.count.into(), "wrk ended early: {text}");
        Ok(run)
    }
}

impl Run {
    fn parse(text: &str) -> Option<Self> {
        let answered = text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok())?;
        let refused = text.lines().find_map(|line| line.trim().strip_prefix("Non-2xx or 3xx responses: ")?.trim().parse().ok());
        Some(Self { answered, refused: refused.unwrap_or(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_where_there_are_any() {
        let quiet = "  20000 requests in 4.01s, 6.02MB read\nRequests/sec:   4987.53\n";
        assert_eq!(Run::parse(quiet), Some(Run { answered: 20_000, refused: 0 }));
        let refused = "  20000 requests in 4.01s, 6.02MB read\n  Non-2xx or 3xx responses: 19999\nRequests/sec:   4987.53\n";
        assert_eq!(Run::parse(refused), Some(Run { answered: 20_000, refused: 19_999 }));
        assert_eq!(Run::parse("unable to connect"), None);
    }
}
