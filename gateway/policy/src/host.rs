//! The host as its users see it: started once, asked for the live set, told which versions to have.

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::ports::{Policies, PolicySet, PolicyStatus, Versions};
use notify::RecommendedWatcher;
use tokio::sync::oneshot;

use crate::code_cache::CodeCache;
use crate::engine::EngineRoom;
use crate::identity::Verifier;
use crate::lent::{Lent, MetricSink};
use crate::lists::Lists;
use crate::loader::{self, Loader, ORDERS_MAX, Order, Toll};
use crate::settings::{HostError, PolicySettings, Settings};
use crate::shelf::{Entry, Shelf};
use crate::watch::watch;

/// Loading a component of the largest size takes seconds; after this the operator is told to look at the log.
const APPLY_PATIENCE: Duration = Duration::from_secs(60);

/// The policies of a node. Dropping it ends watching and loading; sets that were taken from it stay usable.
pub struct Host {
    shelf: Arc<Shelf>,
    toll: Arc<Toll>,
    orders: SyncSender<Order>,
    _watcher: RecommendedWatcher,
}

impl Host {
    /// Loads every policy of `settings`, then follows changes of its folder. Blocks until each plugin is loaded or found to
    /// be unusable; call it before serving, from a thread that may wait.
    ///
    /// # Errors
    /// When the host itself cannot run. A plugin that is missing or broken is no error: see [`HostError`].
    pub fn start(settings: Settings, verifier: Arc<Verifier>, lists: Arc<Lists>, sink: MetricSink) -> Result<Arc<Self>, HostError> {
        settings.check()?;
        let Settings { dir, policies, instances_max, cache_dir } = settings;
        fs::create_dir_all(&dir).map_err(|source| HostError::Folder { dir: dir.clone(), source })?;

        let memory_bytes_max = policies.iter().map(|policy| policy.memory_bytes_max).max().unwrap_or(1);
        let room = Arc::new(EngineRoom::new(instances_max, memory_bytes_max)?);
        let cache = match cache_dir {
            Some(dir) => Some(CodeCache::open(&dir).map_err(|source| HostError::Cache { dir, source })?),
            None => None,
        };
        let entry = |settings: PolicySettings| {
            let lent = Lent {
                policy: settings.name.as_str().into(),
                verifier: verifier.clone(),
                lists: Arc::clone(&lists),
                sink: Arc::clone(&sink),
                counters: Mutex::default(),
            };
            Entry { settings, lent: Arc::new(lent) }
        };
        let shelf = Arc::new(Shelf::new(policies.into_iter().map(entry).collect(), instances_max));
        let toll = Arc::new(Toll::default());

        let (orders, inbox) = mpsc::sync_channel(ORDERS_MAX);
        // Watching begins before the first look, so that no change falls between the two.
        let watcher = {
            let orders = orders.clone();
            watch(&dir, move || loader::wake(&orders))?
        };
        let (ready, loaded) = mpsc::sync_channel(1);
        Loader::new(room, Arc::clone(&shelf), dir, cache, Arc::clone(&toll))?.start(inbox, ready)?;
        // Each step of loading has its deadline, so this wait has an end; an error would mean that the thread is gone.
        let _ = loaded.recv();
        Ok(Arc::new(Self { shelf, toll, orders, _watcher: watcher }))
    }

    /// How many components had to be compiled since the start, and how many generations configured. Neither grows when a
    /// node goes back to a version it has kept.
    #[must_use]
    pub fn loads(&self) -> Loads {
        Loads { compiled: self.toll.compiled.load(Ordering::Relaxed), configured: self.toll.configured.load(Ordering::Relaxed) }
    }
}

/// What loading has cost a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loads {
    /// Components that were compiled; those whose code was in the cache are not counted.
    pub compiled: u64,
    /// Generations that were configured and tried, well or not.
    pub configured: u64,
}

#[async_trait]
impl Policies for Host {
    fn current(&self) -> Arc<dyn PolicySet> {
        self.shelf.current()
    }

    fn status(&self) -> Vec<PolicyStatus> {
        self.shelf.status()
    }

    async fn apply(&self, plugin: &str, versions: Versions) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let order = Order::Apply { plugin: plugin.to_owned(), versions, reply };
        self.orders.try_send(order).map_err(|_| "too many changes are waiting; try again".to_owned())?;
        match tokio::time::timeout(APPLY_PATIENCE, answer).await {
            Ok(Ok(installed)) => installed,
            Ok(Err(_)) => Err("the loader has ended".to_owned()),
            Err(_) => Err(format!("still loading after {} s; its outcome will be in the log and the status", APPLY_PATIENCE.as_secs())),
        }
    }
}
