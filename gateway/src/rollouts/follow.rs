//! From a plugin's record to what its policies run.
//!
//! One task per plugin, so that a slow fetch for one does not hold up a rollback of another. Of several records that arrive
//! meanwhile only the latest is followed.

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::policy::Digest;
use gateway_core::policy::rollout::{BundleRef, Candidate};
use gateway_core::ports::{Artefact, Record, Table, Versions};
use tokio::time::sleep;

use super::keys::Proved;
use super::record::PluginRecord;
use super::{FOLLOW, Rollouts, Trial, Wanted};
use crate::health::chain;

impl Rollouts {
    /// Follows the records of `plugin` as they come, and again those that could not be followed.
    pub(super) async fn follow_plugin(self: Arc<Self>, plugin: String) {
        let Some(sender) = self.records.get(&plugin) else { return };
        let mut records = sender.subscribe();
        let mut failures = 0;
        loop {
            let record = records.borrow_and_update().clone();
            let outcome = match &record {
                Some(record) => self.follow(&plugin, record).await,
                None => Ok(()),
            };
            let changed = if outcome.is_ok() {
                records.changed().await
            } else {
                // Cancel safe: a change that is not waited for any longer is still marked as one.
                tokio::select! {
                    changed = records.changed() => changed,
                    () = sleep(FOLLOW.delay(failures, rand::random())) => {
                        failures = failures.saturating_add(1);
                        continue;
                    }
                }
            };
            failures = 0;
            if changed.is_err() {
                return;
            }
        }
    }

    /// Makes the policies of `plugin` run what `record` says. `Err` when that, or a part of it, did not work; why is in the
    /// plugin's state.
    pub(super) async fn follow(&self, plugin: &str, record: &Record) -> Result<(), ()> {
        let outcome = self.try_follow(plugin, record).await;
        let before = {
            let mut state = self.state();
            let state = state.plugins.entry(plugin.to_owned()).or_default();
            std::mem::replace(&mut state.error, outcome.clone().err())
        };
        match &outcome {
            Ok(()) => tracing::info!(plugin, revision = record.revision, "rollouts: followed"),
            Err(error) if before.as_ref() != Some(error) => {
                tracing::error!(plugin, revision = record.revision, error, "rollouts: not followed")
            }
            Err(_) => {}
        }
        self.news.notify_one();
        outcome.map_err(|_| ())
    }

    async fn try_follow(&self, plugin: &str, record: &Record) -> Result<(), String> {
        let parsed: PluginRecord =
            serde_json::from_slice(&record.value).map_err(|error| format!("the registry's record makes no sense: {error}"))?;
        let ended = {
            let mut state = self.state();
            let state = state.plugins.entry(plugin.to_owned()).or_default();
            state.tried = Some((record.revision, parsed.clone()));
            // A trial that the record does not know any more is over for everybody.
            let current = parsed.rollout.candidate.as_ref().map(trial);
            if state.ended.as_ref().is_some_and(|ended| Some(&ended.trial) != current.as_ref()) {
                state.ended = None;
            }
            state.ended.is_some()
        };
        let rollout = &parsed.rollout;
        let candidate = rollout.candidate.as_ref().filter(|_| !ended);

        let live = match rollout.live.bundle() {
            Some(bundle) => Some(self.fetch(plugin, bundle).await.map_err(|error| told("live", bundle, &error))?),
            None => None,
        };
        // What goes wrong beside the live version is told, and must not keep the live version from being what it should be.
        let mut wrong = Vec::new();
        let mut beside = async |what: &'static str, bundle: &BundleRef| match self.fetch(plugin, bundle).await {
            Ok(proved) => Some(proved),
            Err(error) => {
                wrong.push(told(what, bundle, &error));
                None
            }
        };
        let on_trial = match candidate {
            Some(candidate) => beside("candidate", &candidate.bundle).await.map(|proved| (proved, candidate.clone())),
            None => None,
        };
        let standby = match rollout.previous.as_ref().and_then(|previous| previous.bundle()) {
            Some(bundle) => beside("standby", bundle).await,
            None => None,
        };
        if let Some(newest) = parsed.versions.last() {
            // Whether the newest version can be proved here is known before it is rolled out.
            beside("newest", &newest.bundle).await;
        }

        let wanted = Wanted {
            live: rollout.live.bundle().cloned(),
            candidate: on_trial.as_ref().map(|(_, candidate)| trial(candidate)),
            standby: standby.as_ref().map(|proved| proved.names.clone()),
        };
        let applied = self.apply(plugin, &wanted, live, on_trial, standby).await;
        {
            let mut state = self.state();
            let state = state.plugins.entry(plugin.to_owned()).or_default();
            match applied {
                Ok(()) => (state.revision, state.applied) = (record.revision, Some(wanted)),
                Err(error) => {
                    state.applied = None;
                    wrong.insert(0, error);
                }
            }
        }
        self.remember(plugin, record, &parsed).await;
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// Tells the policies, unless they were told exactly this. A candidate that does not load leaves the live version as it has
    /// to be, without a trial.
    async fn apply(
        &self,
        plugin: &str,
        wanted: &Wanted,
        live: Option<Proved>,
        on_trial: Option<(Proved, Candidate)>,
        standby: Option<Proved>,
    ) -> Result<(), String> {
        let told = self.state().plugins.get(plugin).and_then(|state| state.applied.clone());
        if told.as_ref() == Some(wanted) {
            return Ok(());
        }
        let artefact = |proved: Proved| proved.artefact;
        let without: Versions = Versions { live: live.map(artefact), candidate: None, standby: standby.map(artefact) };
        let candidate: Option<(Artefact, _)> = on_trial.map(|(proved, candidate)| (proved.artefact, candidate.stage));
        let Some(candidate) = candidate else { return self.policies.apply(plugin, without).await };
        // A trial that starts again starts its counts again, so the one before has to end first.
        let begins_again = |trial: &Trial| {
            told.as_ref().and_then(|told| told.candidate.as_ref()).is_some_and(|before| before.bundle == trial.bundle && before != trial)
        };
        if wanted.candidate.as_ref().is_some_and(begins_again) {
            self.policies.apply(plugin, without.clone()).await?;
        }
        let Err(error) = self.policies.apply(plugin, Versions { candidate: Some(candidate), ..without.clone() }).await else {
            return Ok(());
        };
        self.policies.apply(plugin, without).await?;
        Err(error)
    }

    /// A bundle of `plugin` that was proved just now, with the keys that are trusted now. The error is a sentence.
    pub(crate) async fn fetch(&self, plugin: &str, bundle: &BundleRef) -> Result<Proved, String> {
        let held = self.state().plugins.get(plugin).and_then(|state| state.bundles.get(&bundle.bundle).cloned());
        let bytes = match held {
            Some(bytes) => bytes,
            None => match self.blob(&bundle.bundle).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Err("the registry does not have it".to_owned()),
                Err(error) => return Err(chain(&error)),
            },
        };
        let keys = self.keys.clone();
        let proving = bytes.clone();
        let proved = tokio::task::spawn_blocking(move || keys.prove(&proving)).await.map_err(|error| error.to_string())??;
        if proved.label.plugin != plugin || proved.names != *bundle {
            return Err(format!("the bundle is one of {:?}", proved.label.plugin));
        }
        let mut state = self.state();
        state.plugins.entry(plugin.to_owned()).or_default().bundles.insert(bundle.bundle.clone(), bytes);
        Ok(proved)
    }

    /// Lets go of bundles that the record does not name, and keeps the others on disk for a start without a registry.
    async fn remember(&self, plugin: &str, record: &Record, parsed: &PluginRecord) {
        let newest = parsed.versions.last().map(|version| &version.bundle);
        let needed: Vec<Digest> = parsed.rollout.bundles().chain(newest).map(|bundle| bundle.bundle.clone()).collect();
        let bundles: Vec<(Digest, Bytes)> = {
            let mut state = self.state();
            let state = state.plugins.entry(plugin.to_owned()).or_default();
            state.bundles.retain(|name, _| needed.contains(name));
            // Only what is followed is a good set.
            if state.revision != record.revision {
                return;
            }
            state.bundles.iter().map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
        };
        self.keep(Table::Rollouts, record.clone(), bundles).await;
    }
}

pub(super) fn trial(candidate: &Candidate) -> Trial {
    Trial { bundle: candidate.bundle.clone(), stage: candidate.stage.clone(), since: candidate.since }
}

fn told(what: &str, bundle: &BundleRef, error: &str) -> String {
    format!("{what} version {}: {error}", bundle.component.short())
}
