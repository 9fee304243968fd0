//! The figures as text for docs/benchmarks.md.

use std::fmt::Write as _;

use serde_json::Value;

use super::peer::Peer;
use super::{CONVERSATIONS, Found, Options};
use crate::bench::machine;

/// What acceptance and delivery may take at the 99th percentile, in milliseconds.
const ACCEPT_MS_MAX: f64 = 15.0;
const DELIVER_MS_MAX: f64 = 25.0;

pub(super) fn text(options: &Options, found: &Found) -> String {
    let mut text = String::new();
    let mut line = |line: String| _ = writeln!(text, "{line}");
    line(head(options));
    line(String::new());
    line("| Due per second | Accepted per second | Accepted p50, p99 | Delivered p50, p99 | Sent again | Never accepted |\n|---|---|---|---|---|---|".into());
    for run in &found.ladder {
        let pair = |name: &str| format!("{} ms, {} ms", number(&run[name]["p50"], 1), number(&run[name]["p99"], 1));
        let (offered, accepted) = (number(&run["offeredPerSecond"], 0), number(&run["acceptedPerSecond"], 0));
        line(format!("| {offered} | {accepted} | {} | {} | {} | {} |", pair("acceptMs"), pair("deliverMs"), run["resends"], run["unsent"]));
    }
    let holds = |run: &&Value| run["acceptMs"]["p99"].as_f64().is_some_and(|found| found <= ACCEPT_MS_MAX);
    let highest = found.ladder.iter().rfind(holds).map_or_else(|| "none of them".into(), |run| number(&run["offeredPerSecond"], 0));
    line(format!(
        "\nHighest rate with 99 of 100 accepted within {ACCEPT_MS_MAX} ms: {highest} (target 5,000, with delivery within {DELIVER_MS_MAX} ms).\n"
    ));
    line("| CPU per message at | Gateway | Worker | MariaDB | NATS | Redis | Load |\n|---|---|---|---|---|---|---|".into());
    for run in [found.ladder.first(), found.ladder.last().filter(|_| found.ladder.len() > 1)].into_iter().flatten() {
        let of = |part: &str| format!("{} µs", number(&run["cpuUsPerMessage"][part], 0));
        let parts = ["gateway", "worker", "mariadb", "nats", "redis", "load"].map(of).join(" | ");
        line(format!("| {} per second | {parts} |", number(&run["offeredPerSecond"], 0)));
    }
    line(format!("\n| {} sockets that wait | Memory per socket | |\n|---|---|---|", found.waiting.ours["sockets"]));
    line(format!("| Sluice | {} (target 10 KB) | |", kilobytes(Some(&found.waiting.ours))));
    line(format!("| Sluice, each with an open session | {} | |", kilobytes(Some(&found.with_sessions))));
    for (index, peer) in Peer::ALL.into_iter().enumerate() {
        let ratio = times(found.waiting.ratio(index, "bytesPerSocket"));
        line(format!("| {} {} | {} | {ratio} |", peer.name(), peer.version(), kilobytes(found.waiting.peers[index].as_ref())));
    }
    let fan_out = &found.fan_out;
    line(format!(
        "\n| One message of {} bytes to {} sockets | CPU per frame | |\n|---|---|---|",
        fan_out.ours["frameBytes"], fan_out.ours["sockets"]
    ));
    line(format!("| Sluice | {} | |", micros(Some(&fan_out.ours))));
    for (index, peer) in Peer::ALL.into_iter().enumerate() {
        let ratio = times(fan_out.ratio(index, "cpuUsPerFrame"));
        line(format!("| {} {} | {} | {ratio} |", peer.name(), peer.version(), micros(fan_out.peers[index].as_ref())));
    }
    let storm = &found.storm;
    line(format!(
        "\n| A node is killed with {} sockets, each of which misses {} messages | |\n|---|---|\n\
         | it listens again | after {} ms |\n| caught up: half, 99 of 100, all | after {} ms, {} ms, {} ms |\n\
         | the last, after it listened again | {} ms (target 10,000) |\n| told to come back later | {} |\n| refused for good | {} |",
        storm["sockets"],
        storm["missedEach"],
        storm["listeningAgainMs"],
        number(&storm["caughtUpMs"]["p50"], 0),
        number(&storm["caughtUpMs"]["p99"], 0),
        number(&storm["caughtUpMs"]["max"], 0),
        storm["lastAfterListeningMs"],
        storm["putOff"],
        storm["refusedForGood"],
    ));
    text
}

fn head(options: &Options) -> String {
    let build = options.binary.as_ref().map_or_else(|| format!("Profile {}", options.profile), |_| "A build that was named".to_owned());
    let versions = [("redis-server", "--version"), ("nats-server", "--version"), ("mariadbd", "--version"), ("node", "--version")];
    let versions = versions.map(|(program, argument)| format!("{program} {}", machine::version(program, &[argument]))).join("; ");
    format!(
        "{}. {versions}; {}. {build}. {CONVERSATIONS} conversations, one node, one worker, {} s of each rate, services and load on the same \
         cores.",
        machine::describe(),
        machine::version("rustc", &["--version"]),
        options.seconds(),
    )
}

fn number(value: &Value, digits: usize) -> String {
    value.as_f64().map_or_else(|| "?".to_owned(), |value| format!("{value:.digits$}"))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a socket are few")]
fn kilobytes(found: Option<&Value>) -> String {
    let bytes = found.and_then(|found| found["bytesPerSocket"].as_u64());
    bytes.map_or_else(|| "not available".to_owned(), |bytes| format!("{:.2} KB", bytes as f64 / 1_000.0))
}

fn micros(found: Option<&Value>) -> String {
    found.map_or_else(|| "not available".to_owned(), |found| format!("{} µs", number(&found["cpuUsPerFrame"], 2)))
}

/// What Sluice takes, in units of what the peer takes.
fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("Sluice takes {ratio:.2} ×"))
}
