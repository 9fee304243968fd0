//! Ends a trial that goes badly, and counts what trials show.
//!
//! Once a second each node compares what the candidate of each of its policies did with what the live version did. A breach
//! ends the trial on this node at once and then, by writing the rollback, on every node. A registry that is away delays the
//! second and not the first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::policy::regression;
use gateway_core::ports::{CandidateStatus, PolicyStatus};
use tokio::time::{MissedTickBehavior, interval};

use super::follow::trial;
use super::steps::StepError;
use super::{Ended, Rollouts};
use crate::clock;

/// How often trials are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// What was counted of a shadow when it was last looked at: its version, and by word how many.
type Counted = BTreeMap<String, (String, BTreeMap<&'static str, u64>)>;

/// The word for a comparison that showed no difference.
const SAME: &str = "none";

impl Rollouts {
    /// Looks at every trial again and again.
    pub(super) async fn judge(self: Arc<Self>) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut counted = Counted::new();
        loop {
            ticks.tick().await;
            for policy in self.policies.status() {
                self.count(&policy, &mut counted);
                self.look_at(&policy);
            }
            let ended: Vec<(String, Ended)> = {
                let state = self.state();
                state.plugins.iter().filter_map(|(plugin, state)| Some((plugin.clone(), state.ended.clone()?))).collect()
            };
            for (plugin, ended) in ended {
                self.write_end(&plugin, &ended).await;
            }
        }
    }

    /// Ends the trial here when it breaches its limits.
    fn look_at(&self, policy: &PolicyStatus) {
        let Some(candidate) = &policy.candidate else { return };
        let ended = {
            let mut state = self.state();
            let Some(plugin) = state.plugins.get_mut(&policy.plugin) else { return };
            let Some(record) = plugin.tried.as_ref().and_then(|(_, record)| record.rollout.candidate.as_ref()) else { return };
            // Counts of another trial say nothing about this one.
            let is_it = record.bundle.component.short() == candidate.version && record.stage == candidate.stage;
            let is_applied = plugin.applied.as_ref().and_then(|applied| applied.candidate.as_ref()) == Some(&trial(record));
            if plugin.ended.is_some() || !is_it || !is_applied {
                return;
            }
            let Some(breach) = regression::judge(&candidate.counts, &policy.counts, &record.limits) else { return };
            let ended = Ended { trial: trial(record), policy: policy.name.clone(), reason: breach.as_str(), why: breach.to_string() };
            plugin.ended = Some(ended.clone());
            ended
        };
        tracing::error!(policy = policy.name, version = candidate.version, reason = ended.reason, why = ended.why, "the trial is ended");
        // Whoever follows the plugin looks at its record again, and finds the trial ended.
        if let Some(sender) = self.records.get(&policy.plugin) {
            sender.send_modify(|_| ());
        }
    }

    /// Writes the end of a trial, unless somebody else has ended or replaced it.
    async fn write_end(&self, plugin: &str, ended: &Ended) {
        let by = format!("node {}", self.node);
        let step = self.change(plugin, |record| {
            if record.rollout.candidate.as_ref().map(trial).as_ref() != Some(&ended.trial) {
                return Ok(false);
            }
            record.rollout.rollback(&ended.why, &by, clock::now()).map_err(|error| StepError::Refused(error.to_string()))?;
            Ok(true)
        });
        match step.await {
            Ok(changed) if changed.happened => {
                tracing::warn!(plugin, policy = ended.policy, why = ended.why, "rolled back on every node");
                self.metrics.policy_rollbacks.with_label_values(&[ended.policy.as_str(), ended.reason]).inc();
            }
            // Somebody was faster; the record that says so is on its way here.
            Ok(_) => {}
            Err(error) => tracing::warn!(plugin, error = error.sentence(), "the end of the trial cannot be written yet"),
        }
    }

    /// Adds to the metrics what a shadow has shown since the last look.
    fn count(&self, policy: &PolicyStatus, counted: &mut Counted) {
        let Some(CandidateStatus { version, comparison, .. }) = &policy.candidate else {
            counted.remove(&policy.name);
            return;
        };
        let mut now: BTreeMap<&'static str, u64> = comparison.differences.iter().copied().collect();
        now.insert(SAME, comparison.compared.saturating_sub(now.values().sum()));
        let known = counted.get(&policy.name).filter(|(before, _)| before == version).map(|(_, words)| words);
        // Fewer than before means that the same version is on trial again.
        let began_again = known.is_some_and(|known| known.iter().any(|(word, count)| now.get(word).is_none_or(|now| now < count)));
        for (word, count) in &now {
            let before = known.filter(|_| !began_again).and_then(|known| known.get(word)).copied().unwrap_or(0);
            if *count > before {
                self.metrics.policy_shadow.with_label_values(&[policy.name.as_str(), word]).inc_by(count - before);
            }
        }
        counted.insert(policy.name.clone(), (version.clone(), now));
    }
}
