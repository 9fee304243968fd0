//! This node among its siblings: it follows what the registry says about plugins and lists, says what it runs, and ends trials
//! that go badly.
//!
//! ```text
//! registry ── watch ──▶ one task per plugin: fetch, prove, `Policies::apply`, keep
//!          ── watch ──▶ lists: fetch, compare with the digest, `Lists::replace`, keep
//!          ◀── nodes ── report: at each change and every few seconds
//!          ◀── compare and set ── steps of operators (`steps`), and of this node when a candidate is worse (`judge`)
//! ```
//!
//! What never happens here: a request waiting for any of it. A registry that is away leaves everything as it is; a bundle that
//! cannot be proved or loaded changes nothing and is named in `/readyz`, `/admin/plugins` and the node's report.
//! Started by `cli::run` for nodes that judge requests; the admin API asks it and takes steps through it.

mod follow;
mod judge;
mod kept;
mod keys;
pub(crate) mod lists;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod steps;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::backoff::Backoff;
use gateway_core::config::Config;
use gateway_core::policy::Digest;
use gateway_core::policy::rollout::{BundleRef, Stage};
use gateway_core::ports::{Change, Policies, PortError, Record, Registry, Table};
use gateway_core::time::UnixMillis;
use gateway_policy::Lists;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use self::kept::Kept;
use self::keys::Keyring;
use self::record::{ListRecord, PluginRecord};
use crate::admin::instants;
use crate::clock;
use crate::health::chain;
use crate::telemetry::Metrics;

/// How long a start waits for the registry before it goes on with what was kept. A registry that is there answers in
/// milliseconds.
const START_PATIENCE: Duration = Duration::from_millis(1_500);

/// How long a start waits until what is to be live is loaded: three versions of a few plugins compile within it.
const LOAD_PATIENCE: Duration = Duration::from_secs(20);

/// Between two attempts to reach a registry that is away.
const REACH: Backoff = Backoff { min: Duration::from_millis(50), max: Duration::from_millis(1_000) };

/// Between two attempts to follow a record that could not be followed.
const FOLLOW: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(30) };

/// Lists of the registry that are followed; as many as a node can hold.
const LISTS_MAX: usize = 64;

/// What a node knows about rollouts.
pub(crate) struct Rollouts {
    node: String,
    registry: Arc<dyn Registry>,
    policies: Arc<dyn Policies>,
    lists: Arc<Lists>,
    metrics: Arc<Metrics>,
    keys: Keyring,
    kept: Arc<Kept>,
    /// By plugin that some policy uses: the latest record of it.
    records: BTreeMap<String, watch::Sender<Option<Record>>>,
    /// The latest record of each list.
    list_records: watch::Sender<BTreeMap<String, Record>>,
    state: Mutex<State>,
    /// Whether this process follows. A worker judges nothing, and is not among the nodes.
    follows: AtomicBool,
    /// Whether it is on its way out and reports no more.
    leaving: AtomicBool,
    /// Something that the report tells has changed.
    news: Notify,
}

#[derive(Default)]
struct State {
    /// Since when the registry cannot be reached.
    away_since: Option<UnixMillis>,
    plugins: BTreeMap<String, PluginState>,
    lists: BTreeMap<String, ListState>,
}

/// What became of a plugin's record here.
#[derive(Default)]
struct PluginState {
    /// The record that was tried last.
    tried: Option<(u64, PluginRecord)>,
    /// The revision that is followed; 0 for none.
    revision: u64,
    /// What the policies were told last; `None` when they were told nothing, or could not do it.
    applied: Option<Wanted>,
    /// Why the record that was tried last is not, or not wholly, followed.
    error: Option<String>,
    /// Bundles that the record names, so that no step of it has to wait for a fetch.
    bundles: BTreeMap<Digest, Bytes>,
    /// A trial this node has ended for itself and whose end is not in the record yet.
    ended: Option<Ended>,
}

/// What the policies were told to run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    live: Option<BundleRef>,
    candidate: Option<Trial>,
    standby: Option<BundleRef>,
}

/// One trial: the same version may be tried again later, and differently.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trial {
    bundle: BundleRef,
    stage: Stage,
    since: UnixMillis,
}

#[derive(Debug, Clone)]
struct Ended {
    trial: Trial,
    policy: String,
    reason: &'static str,
    why: String,
}

#[derive(Default)]
struct ListState {
    /// What it has.
    digest: Option<Digest>,
    /// What it tried to get last.
    tried: Option<Digest>,
    error: Option<String>,
}

/// What the rest of the process gives.
pub(crate) struct Parts {
    /// This node's name.
    pub(crate) node: String,
    /// The registry.
    pub(crate) registry: Arc<dyn Registry>,
    /// The policies.
    pub(crate) policies: Arc<dyn Policies>,
    /// The lists.
    pub(crate) lists: Arc<Lists>,
    /// The metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// Whether the registry outlives the process, so that keeping what it said makes sense.
    pub(crate) keep: bool,
}

impl Rollouts {
    /// Follows nothing yet.
    pub(crate) fn new(config: &Config, parts: Parts) -> Arc<Self> {
        let Parts { node, registry, policies, lists, metrics, keep } = parts;
        let plugins = config.policies.iter().map(|policy| policy.plugin.clone());
        let kept = if keep { Kept::below(&config.plugins.cache_dir) } else { Kept::nothing() };
        Arc::new(Self {
            node,
            registry,
            policies,
            lists,
            metrics,
            keys: Keyring::new(config.plugins.keys_dir.clone()),
            kept: Arc::new(kept),
            records: plugins.map(|plugin| (plugin, watch::Sender::new(None))).collect(),
            list_records: watch::Sender::new(BTreeMap::new()),
            state: Mutex::default(),
            follows: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            news: Notify::new(),
        })
    }

    /// Takes over what the registry says, or what was kept of it when it cannot be reached within a moment, and then follows.
    /// Returns when this node is as it should be, or after a bounded wait; the tasks end when they are aborted.
    pub(crate) async fn start(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        self.follows.store(true, Ordering::Relaxed);
        if timeout(LOAD_PATIENCE, self.first_look()).await.is_err() {
            tracing::warn!("rollouts: still loading; going on with what is loaded");
        }
        let mut tasks: Vec<JoinHandle<()>> =
            self.records.keys().map(|plugin| tokio::spawn(self.clone().follow_plugin(plugin.clone()))).collect();
        tasks.push(tokio::spawn(self.clone().follow_lists()));
        tasks.push(tokio::spawn(self.clone().watch(Table::Rollouts)));
        tasks.push(tokio::spawn(self.clone().watch(Table::Lists)));
        tasks.push(tokio::spawn(self.clone().report()));
        tasks.push(tokio::spawn(self.clone().judge()));
        tasks
    }

    async fn first_look(&self) {
        let reached = timeout(START_PATIENCE, self.read_all()).await;
        let from_registry = reached.is_ok();
        match reached {
            Ok((rollouts, lists)) => {
                rollouts.into_iter().for_each(|record| self.offer(Table::Rollouts, record));
                lists.into_iter().for_each(|record| self.offer(Table::Lists, record));
            }
            Err(_) => self.reached(false),
        }
        for (plugin, sender) in &self.records {
            let record = sender.borrow().clone();
            let followed = match &record {
                Some(record) => self.follow(plugin, record).await.is_ok(),
                None => from_registry,
            };
            if !followed && let Some(kept) = self.kept(Table::Rollouts, plugin).await {
                tracing::warn!(plugin, revision = kept.revision, "rollouts: the last good set is taken from disk");
                // What is wrong with it is in the plugin's state.
                let _ = self.follow(plugin, &kept).await;
            }
        }
        let lists = self.list_records.borrow().clone();
        for record in lists.values() {
            // What is wrong with it is in the list's state, and it is tried again.
            let _ = self.follow_list(record).await;
        }
        for name in self.kept_keys(Table::Lists).await {
            if !from_registry && let Some(kept) = self.kept(Table::Lists, &name).await {
                let _ = self.follow_list(&kept).await;
            }
        }
    }

    /// Every record, as soon as the registry can be reached.
    async fn read_all(&self) -> (Vec<Record>, Vec<Record>) {
        loop {
            match tokio::try_join!(self.registry.all(Table::Rollouts), self.registry.all(Table::Lists)) {
                Ok(all) => return all,
                Err(error) => tracing::debug!(error = chain(&error), "the registry is not there yet"),
            }
            sleep(REACH.min).await;
        }
    }

    /// Passes on what a watch tells, and opens it again whenever it breaks.
    async fn watch(self: Arc<Self>, table: Table) {
        let mut failures = 0;
        loop {
            match self.registry.watch(table).await {
                Ok(mut changes) => {
                    self.reached(true);
                    failures = 0;
                    while let Some(change) = changes.next().await {
                        match change {
                            Change::Put(record) => self.offer(table, record),
                            // Nobody removes records; a registry that lost some is no reason to unload what they said.
                            Change::Deleted(key) => tracing::warn!(table = table.as_str(), key, "a record is gone; what runs goes on"),
                        }
                    }
                }
                Err(error) => tracing::debug!(error = chain(&error), "cannot watch the registry"),
            }
            self.reached(false);
            sleep(REACH.delay(failures, rand::random())).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Hands a record to whoever follows it. A revision that was seen is no news.
    fn offer(&self, table: Table, record: Record) {
        match table {
            Table::Rollouts => {
                let Some(sender) = self.records.get(&record.key) else { return };
                sender.send_if_modified(|known| {
                    let is_news = known.as_ref().is_none_or(|known| known.revision != record.revision);
                    if is_news {
                        *known = Some(record);
                    }
                    is_news
                });
            }
            Table::Lists => {
                self.list_records.send_if_modified(|known| {
                    let is_news = known.get(&record.key).is_none_or(|known| known.revision != record.revision);
                    let fits = known.contains_key(&record.key) || known.len() < LISTS_MAX;
                    if is_news && fits {
                        known.insert(record.key.clone(), record);
                    }
                    is_news && fits
                });
            }
            Table::Nodes => {}
        }
    }

    /// Notes whether the registry answered.
    fn reached(&self, reached: bool) {
        let change = {
            let mut state = self.state();
            let was_away = state.away_since.is_some();
            if reached {
                state.away_since = None;
            } else if !was_away {
                state.away_since = Some(clock::now());
            }
            was_away == reached
        };
        if change {
            if reached {
                tracing::info!("the registry is there");
            } else {
                tracing::warn!("the registry is away; the last good set goes on");
            }
            self.news.notify_one();
        }
    }

    /// What is wrong between this node and the registry.
    pub(crate) fn trouble(&self) -> Option<String> {
        let since = self.state().away_since?;
        Some(format!("serving the last good set; the registry cannot be reached since {}", instants::write(since)))
    }

    /// What is wrong with following the record of `plugin`.
    pub(crate) fn error(&self, plugin: &str) -> Option<String> {
        self.state().plugins.get(plugin)?.error.clone()
    }

    /// Whether some policy of this node's configuration uses `plugin`.
    pub(crate) fn uses(&self, plugin: &str) -> bool {
        self.records.contains_key(plugin)
    }

    /// The plugins that this node's policies use.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = &str> {
        self.records.keys().map(String::as_str)
    }

    /// The latest record of `plugin` that this node has seen.
    pub(crate) fn seen(&self, plugin: &str) -> Option<(u64, PluginRecord)> {
        self.state().plugins.get(plugin)?.tried.clone()
    }

    /// The latest record of the list that this node has seen.
    pub(crate) fn seen_list(&self, name: &str) -> Option<ListRecord> {
        serde_json::from_slice(&self.list_records.borrow().get(name)?.value).ok()
    }

    /// A blob, from disk if it is kept there.
    pub(crate) async fn blob(&self, name: &Digest) -> Result<Option<Bytes>, PortError> {
        let (kept, wanted) = (self.kept.clone(), name.clone());
        match tokio::task::spawn_blocking(move || kept.blob(&wanted)).await {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) | Err(_) => self.registry.blob(name.as_str()).await,
        }
    }

    async fn kept(&self, table: Table, key: &str) -> Option<Record> {
        let (kept, key) = (self.kept.clone(), key.to_owned());
        tokio::task::spawn_blocking(move || kept.record(table, &key)).await.ok().flatten()
    }

    async fn kept_keys(&self, table: Table) -> Vec<String> {
        let kept = self.kept.clone();
        tokio::task::spawn_blocking(move || kept.keys(table)).await.unwrap_or_default()
    }

    async fn keep(&self, table: Table, record: Record, blobs: Vec<(Digest, Bytes)>) {
        let kept = self.kept.clone();
        // A failure is told where it happens.
        let _ = tokio::task::spawn_blocking(move || kept.keep(table, &record, &blobs)).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each step under this lock leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
