//! The host as its users see it: started once, asked for the live set, told to install.

use std::fs;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::ports::{Policies, PolicySet, PolicyStatus, Versions};
use notify::RecommendedWatcher;
use tokio::sync::oneshot;

use crate::engine::EngineRoom;
use crate::identity::Verifier;
use crate::lent::{Lent, MetricSink};
use crate::lists::Lists;
use crate::loader::{self, Loader, ORDERS_MAX, Order};
use crate::settings::{HostError, PolicySettings, Settings};
use crate::table::Shelf;
use crate::watch::watch;

/// Loading a component of the largest size takes seconds; after this the operator is told to look at the log.
const INSTALL_PATIENCE: Duration = Duration::from_secs(60);

/// Warm instances one policy keeps at most. Calls run to their end on their thread, so as many as threads are ever useful.
const IDLE_PER_POLICY_MAX: usize = 32;

/// The policies of a node. Dropping it ends watching and loading; sets that were taken from it stay usable.
pub struct Host {
    shelf: Arc<Shelf>,
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
        let Settings { dir, policies, instances_max } = settings;
        fs::create_dir_all(&dir).map_err(|source| HostError::Folder { dir: dir.clone(), source })?;

        let memory_bytes_max = policies.iter().map(|policy| policy.memory_bytes_max).max().unwrap_or(1);
        let room = Arc::new(EngineRoom::new(instances_max, memory_bytes_max)?);
        // Idle instances hold slots: at least half of them must stay free for calls, whatever is kept warm.
        let share = usize::try_from(instances_max).unwrap_or(usize::MAX) / 2 / policies.len().max(1);
        let shelf = Arc::new(Shelf::new(policies.into_iter().map(|policy: PolicySettings| {
            let lent = Lent {
                policy: policy.name.as_str().into(),
                verifier: verifier.clone(),
                lists: Arc::clone(&lists),
                sink: Arc::clone(&sink),
                counters: Mutex::default(),
            };
            (policy, Arc::new(lent))
        })));

        let (orders, inbox) = mpsc::sync_channel(ORDERS_MAX);
        // Watching begins before the first look, so that no change falls between the two.
        let watcher = {
            let orders = orders.clone();
            watch(&dir, move || loader::wake(&orders))?
        };
        let (ready, loaded) = mpsc::sync_channel(1);
        Loader::new(room, Arc::clone(&shelf), dir, share.min(IDLE_PER_POLICY_MAX))?.start(inbox, ready)?;
        // Each step of loading has its deadline, so this wait has an end; an error would mean that the thread is gone.
        let _ = loaded.recv();
        Ok(Arc::new(Self { shelf, orders, _watcher: watcher }))
    }
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
        self.orders.try_send(order).map_err(|_| "too many installations are waiting; try again".to_owned())?;
        match tokio::time::timeout(INSTALL_PATIENCE, answer).await {
            Ok(Ok(installed)) => installed,
            Ok(Err(_)) => Err("the loader has ended".to_owned()),
            Err(_) => Err(format!("still loading after {} s; its outcome will be in the log and the status", INSTALL_PATIENCE.as_secs())),
        }
    }
}
