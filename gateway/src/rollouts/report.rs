//! What this node says of itself in the registry, and what the nodes together say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gateway_core::policy::Digest;
use gateway_core::ports::{PortError, Table};
use gateway_core::time::UnixMillis;
use tokio::time::{sleep, timeout};

use super::Rollouts;
use super::record::{ListReport, NodeReport, PluginReport, node_key};
use crate::clock;
use crate::health::chain;

/// How often a node reports when nothing changes.
const PERIOD: Duration = Duration::from_secs(5);

/// Shortest time between two reports: changes come in bursts.
const PAUSE: Duration = Duration::from_millis(50);

/// A node that was silent for so long counts as gone.
pub(crate) const SILENT: Duration = Duration::from_secs(30);

/// How long a node that stops waits for the registry to hear of it.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3);

impl Rollouts {
    /// Reports at each change, and every few seconds.
    pub(super) async fn report(self: Arc<Self>) {
        while !self.leaving.load(Ordering::Acquire) {
            let reported = async {
                let value = serde_json::to_vec(&self.own_report()).unwrap_or_default();
                self.registry.put(Table::Nodes, &node_key(&self.node), value.into()).await
            };
            match reported.await {
                Ok(()) => self.reached(true),
                Err(error) => {
                    tracing::debug!(error = chain(&error), "cannot report to the registry");
                    self.reached(false);
                }
            }
            if self.leaving.load(Ordering::Acquire) {
                // This report was under way when the node took itself off the list, and may have put it on again.
                return self.leave().await;
            }
            sleep(PAUSE).await;
            // Cancel safe: a notice that nobody waits for is kept for the next who does. Late is as good as notified.
            let _ = timeout(PERIOD, self.news.notified()).await;
        }
    }

    /// Takes this node off the list, when it stops as it should.
    pub(crate) async fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
        if self.state().away_since.is_none() {
            let _ = timeout(LEAVE_PATIENCE, self.registry.remove(Table::Nodes, &node_key(&self.node))).await;
        }
    }

    /// What this node runs now.
    pub(crate) fn own_report(&self) -> NodeReport {
        let mut plugins: BTreeMap<String, PluginReport> =
            self.records.keys().map(|plugin| (plugin.clone(), PluginReport::default())).collect();
        for policy in self.policies.status() {
            let Some(report) = plugins.get_mut(&policy.plugin) else { continue };
            report.live = policy.version;
            report.stage = policy.candidate.as_ref().map(|candidate| candidate.stage.as_str().to_owned());
            report.candidate = policy.candidate.map(|candidate| candidate.version);
            report.standby = policy.standby;
            report.load_error = report.load_error.take().or(policy.error);
        }
        let state = self.state();
        for (plugin, report) in &mut plugins {
            let Some(state) = state.plugins.get(plugin) else { continue };
            report.revision = state.revision;
            report.tried = state.tried.as_ref().map_or(0, |(revision, _)| *revision);
            report.error = state.error.clone();
        }
        let short = |digest: &Option<Digest>| digest.as_ref().map(|digest| digest.short().to_owned());
        let lists = state.lists.iter().map(|(name, state)| {
            (name.clone(), ListReport { digest: short(&state.digest), tried: short(&state.tried), error: state.error.clone() })
        });
        NodeReport { name: self.node.clone(), seen: clock::now(), plugins, lists: lists.collect() }
    }

    /// What every node said last, in order of name. This one's is what it runs now.
    pub(crate) async fn reports(&self) -> Result<Vec<NodeReport>, PortError> {
        let records = self.registry.all(Table::Nodes).await?;
        let mut reports: Vec<NodeReport> = records.iter().filter_map(|record| serde_json::from_slice(&record.value).ok()).collect();
        if self.follows.load(Ordering::Relaxed) {
            reports.retain(|report| report.name != self.node);
            reports.push(self.own_report());
        }
        reports.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(reports)
    }
}

/// Whether a node that reported at `seen` counts as gone.
pub(crate) fn is_gone(seen: UnixMillis, now: UnixMillis) -> bool {
    now.since(seen) > SILENT
}

/// Which version how many nodes run, a line a plugin: `demo: 7 of 9 nodes on 0123456789ab, 2 of 9 on ba9876543210`. Gone nodes
/// do not count.
pub(crate) fn summary(reports: &[NodeReport], now: UnixMillis) -> Vec<String> {
    let here: Vec<&NodeReport> = reports.iter().filter(|report| !is_gone(report.seen, now)).collect();
    let mut plugins: BTreeMap<&str, Vec<&PluginReport>> = BTreeMap::new();
    for (plugin, report) in here.iter().flat_map(|report| &report.plugins) {
        plugins.entry(plugin).or_default().push(report);
    }
    plugins.into_iter().map(|(plugin, reports)| line(plugin, &reports)).collect()
}

fn line(plugin: &str, reports: &[&PluginReport]) -> String {
    let count = |of: fn(&PluginReport) -> Option<&str>| {
        let mut counts: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for report in reports {
            *counts.entry(of(report)).or_default() += 1;
        }
        // The most common first; of equals the first by digest.
        let mut counts: Vec<(Option<&str>, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    };
    let total = reports.len();
    let mut parts: Vec<String> = Vec::new();
    for (version, count) in count(|report| report.live.as_deref()) {
        let nodes = if parts.is_empty() { if total == 1 { " node" } else { " nodes" } } else { "" };
        parts.push(format!("{count} of {total}{nodes} on {}", version.unwrap_or("nothing")));
    }
    for (version, count) in count(|report| report.candidate.as_deref()) {
        if let Some(version) = version {
            parts.push(format!("{version} on trial on {count} of {total}"));
        }
    }
    let broken = reports.iter().filter(|report| report.error.is_some()).count();
    if broken > 0 {
        parts.push(format!("{broken} of {total} with an error"));
    }
    format!("{plugin}: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, seen: u64, live: Option<&str>, candidate: Option<&str>, error: Option<&str>) -> NodeReport {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let report = PluginReport { live: own(live), candidate: own(candidate), error: own(error), ..PluginReport::default() };
        NodeReport { name: name.into(), seen: UnixMillis(seen), plugins: [("demo".to_owned(), report)].into(), lists: BTreeMap::new() }
    }

    #[test]
    fn the_summary_says_how_many_run_what() {
        let nodes = [
            node("a", 100_000, Some("aa"), Some("cc"), None),
            node("b", 100_000, Some("bb"), None, Some("no key")),
            node("c", 100_000, Some("bb"), Some("cc"), None),
            node("d", 100_000, None, None, None),
            node("gone", 1, Some("aa"), None, None),
        ];
        assert_eq!(
            summary(&nodes, UnixMillis(110_000)),
            ["demo: 2 of 4 nodes on bb, 1 of 4 on nothing, 1 of 4 on aa, cc on trial on 2 of 4, 1 of 4 with an error"]
        );
        assert_eq!(summary(&nodes[..1], UnixMillis(110_000)), ["demo: 1 of 1 node on aa, cc on trial on 1 of 1"]);
        assert!(summary(&nodes, UnixMillis(1_000_000)).is_empty());
    }
}
