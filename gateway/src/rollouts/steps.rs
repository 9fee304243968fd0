//! The steps operators take: push a bundle, try it, promote it, go back, replace a list.
//!
//! Each reads the record, changes it by a rule of `gateway_core::policy::rollout`, and writes it back under the condition that
//! nobody else did meanwhile; if somebody did, it reads again and decides again.

use bytes::Bytes;
use gateway_core::policy::Digest;
use gateway_core::policy::regression::Limits;
use gateway_core::policy::rollout::{Candidate, RolloutError, Stage};
use gateway_core::ports::{PortError, Table, Written};

use super::Rollouts;
use super::keys::Proved;
use super::lists::{self, parse};
use super::record::{Found, ListRecord, PluginRecord, Version};
use crate::clock;
use crate::health::chain;

/// How often a step is decided again because somebody else wrote. Two operators at once are rare, sixteen unheard of.
const ATTEMPTS_MAX: usize = 16;

/// Longest author's version that is kept, in characters.
const VERSION_CHARS_MAX: usize = 64;

/// Blobs of before that a list keeps: some node may be fetching one.
const EARLIER_LISTS_MAX: usize = 3;

/// Why a step was not taken.
#[derive(Debug)]
pub(crate) enum StepError {
    /// What it is about does not exist; the sentence says what does.
    Unknown(String),
    /// It does not fit what is.
    Refused(String),
    /// The bundle or the list is not one.
    Bad(String),
    /// The registry failed.
    Port(PortError),
}

impl StepError {
    /// One sentence.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Unknown(text) | Self::Refused(text) | Self::Bad(text) => text.clone(),
            Self::Port(error) => chain(error),
        }
    }
}

impl From<PortError> for StepError {
    fn from(error: PortError) -> Self {
        Self::Port(error)
    }
}

impl From<RolloutError> for StepError {
    fn from(error: RolloutError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A record after a step.
#[derive(Debug, Clone)]
pub(crate) struct Changed<T> {
    /// What it says.
    pub(crate) record: T,
    /// Its revision.
    pub(crate) revision: u64,
    /// Whether the step changed it.
    pub(crate) happened: bool,
}

impl Rollouts {
    /// Proves a bundle and makes it the newest version of its plugin.
    pub(crate) async fn push(&self, bundle: Bytes, by: &str) -> Result<(Proved, Changed<PluginRecord>), StepError> {
        let (keys, proving) = (self.keys.clone(), bundle.clone());
        let proved = tokio::task::spawn_blocking(move || keys.prove(&proving)).await;
        let proved = proved.map_err(|error| StepError::Bad(error.to_string()))?.map_err(StepError::Bad)?;
        let plugin = &proved.label.plugin;
        self.check_used(plugin)?;
        self.registry.put_blob(proved.names.bundle.as_str(), bundle.clone()).await?;
        let version = Version {
            bundle: proved.names.clone(),
            version: proved.label.version.chars().take(VERSION_CHARS_MAX).collect(),
            signer: proved.signer.clone(),
            bytes: bundle.len(),
            at: clock::now(),
            by: by.to_owned(),
        };
        let mut before = Default::default();
        let changed = self
            .change(plugin, |record| {
                before = record.blobs();
                Ok(record.add(version.clone()))
            })
            .await?;
        for blob in before.difference(&changed.record.blobs()) {
            // Left behind it only takes room.
            if let Err(error) = self.registry.remove_blob(blob.as_str()).await {
                tracing::warn!(error = chain(&error), blob = blob.as_str(), "cannot remove a bundle nobody needs");
            }
        }
        Ok((proved, changed))
    }

    /// Puts a version on trial.
    pub(crate) async fn try_out(
        &self,
        plugin: &str,
        wanted: &str,
        stage: &Stage,
        limits: Limits,
        by: &str,
    ) -> Result<Changed<PluginRecord>, StepError> {
        self.check_used(plugin)?;
        self.change(plugin, |record| {
            let version = match record.find(wanted) {
                Found::One(version) => version.bundle.clone(),
                Found::None if record.versions.is_empty() => {
                    return Err(StepError::Unknown(format!("no version of {plugin} was pushed; `sluice plugin push` does that")));
                }
                Found::None => {
                    let known: Vec<&str> = record.versions.iter().map(|version| version.bundle.component.short()).collect();
                    return Err(StepError::Unknown(format!(
                        "{plugin} has no version {wanted}; it has {} (name at least 8 digits)",
                        known.join(", ")
                    )));
                }
                Found::Several => return Err(StepError::Refused(format!("more than one version begins with {wanted}; name more digits"))),
            };
            if record.rollout.live.bundle().is_some_and(|live| live.component == version.component) {
                return Err(RolloutError::AlreadyLive.into());
            }
            let now = clock::now();
            record.rollout.start(Candidate { bundle: version, stage: stage.clone(), since: now, limits }, by, now)?;
            Ok(true)
        })
        .await
    }

    /// Makes the candidate the live version.
    pub(crate) async fn promote(&self, plugin: &str, by: &str) -> Result<Changed<PluginRecord>, StepError> {
        self.check_used(plugin)?;
        self.change(plugin, |record| {
            record.rollout.promote(by, clock::now())?;
            Ok(true)
        })
        .await
    }

    /// Ends the trial, or goes back to the version before.
    pub(crate) async fn roll_back(&self, plugin: &str, why: &str, by: &str) -> Result<Changed<PluginRecord>, StepError> {
        self.check_used(plugin)?;
        self.change(plugin, |record| {
            record.rollout.rollback(why, by, clock::now())?;
            Ok(true)
        })
        .await
    }

    /// Replaces a list on every node.
    pub(crate) async fn push_list(&self, name: &str, text: Bytes, by: &str) -> Result<Changed<ListRecord>, StepError> {
        let parsed = tokio::task::spawn_blocking(move || {
            let entries = parse(&text)?;
            let written = lists::write(&entries);
            Ok::<_, String>((Digest::of(&written), entries.len(), written))
        });
        let (digest, entries, blob) = parsed.await.map_err(|error| StepError::Bad(error.to_string()))?.map_err(StepError::Bad)?;
        for _ in 0..ATTEMPTS_MAX {
            let before = self.registry.read(Table::Lists, name).await?;
            let known = before.as_ref().and_then(|record| serde_json::from_slice::<ListRecord>(&record.value).ok());
            if let (Some(before), Some(known)) = (&before, &known)
                && known.digest == digest
            {
                return Ok(Changed { record: known.clone(), revision: before.revision, happened: false });
            }
            self.registry.put_blob(digest.as_str(), blob.clone()).await?;
            let mut earlier = known.map(|known| [known.earlier, vec![known.digest]].concat()).unwrap_or_default();
            earlier.retain(|earlier| *earlier != digest);
            let surplus = earlier.len().saturating_sub(EARLIER_LISTS_MAX);
            let unneeded: Vec<Digest> = earlier.drain(..surplus).collect();
            let record = ListRecord { digest: digest.clone(), entries, at: clock::now(), by: by.to_owned(), earlier };
            let value = serde_json::to_vec(&record).map_err(|error| StepError::Bad(error.to_string()))?;
            let expected = before.map(|record| record.revision);
            if let Written::Done(revision) = self.registry.write(Table::Lists, name, value.into(), expected).await? {
                for blob in unneeded {
                    // Left behind it only takes room.
                    let _ = self.registry.remove_blob(blob.as_str()).await;
                }
                return Ok(Changed { record, revision, happened: true });
            }
        }
        Err(busy())
    }

    /// Changes the record of `plugin` by `step`, which says whether there is anything to write.
    pub(super) async fn change(
        &self,
        plugin: &str,
        mut step: impl FnMut(&mut PluginRecord) -> Result<bool, StepError>,
    ) -> Result<Changed<PluginRecord>, StepError> {
        for _ in 0..ATTEMPTS_MAX {
            let before = self.registry.read(Table::Rollouts, plugin).await?;
            let mut record = match &before {
                Some(before) => serde_json::from_slice(&before.value)
                    .map_err(|error| StepError::Refused(format!("the registry's record of {plugin} makes no sense: {error}")))?,
                None => PluginRecord::new(plugin),
            };
            if !step(&mut record)? {
                return Ok(Changed { record, revision: before.map_or(0, |before| before.revision), happened: false });
            }
            let value = serde_json::to_vec(&record).map_err(|error| StepError::Refused(error.to_string()))?;
            let expected = before.map(|before| before.revision);
            if let Written::Done(revision) = self.registry.write(Table::Rollouts, plugin, value.into(), expected).await? {
                return Ok(Changed { record, revision, happened: true });
            }
        }
        Err(busy())
    }

    fn check_used(&self, plugin: &str) -> Result<(), StepError> {
        if self.uses(plugin) {
            return Ok(());
        }
        let known: Vec<&str> = self.plugins().collect();
        Err(StepError::Unknown(format!(
            "no policy of this node's configuration uses the plugin {plugin:?}; they use {}",
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        )))
    }
}

fn busy() -> StepError {
    StepError::Refused("others change this record all the time; try again".to_owned())
}
