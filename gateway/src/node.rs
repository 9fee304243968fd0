//! What every shell of this process shares: the ports, the rules' settings, metrics and the state of shutting down.
//!
//! Made once by `wiring`; handed around as `Arc<Node>`.

use std::sync::{Arc, OnceLock};

use gateway_core::config::Config;
use gateway_core::id::{Lot, ShopId};
use gateway_core::policy::chain::Binding;
use gateway_core::ports::{Admission, Budgets, Bus, ChatLedger, Nonces, Notices, Policies, Presence, Registry, Roaming, SaleLedger, Vault};
use gateway_core::sale::order_no::OrderKey;
use gateway_policy::{Lists, Verifier};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::decisions::Decisions;
use crate::health::Health;
use crate::jwks::Jwks;
use crate::recording::Recorder;
use crate::rollouts::Rollouts;
use crate::sale::buying::Buying;
use crate::sale::catalog::Catalog;
use crate::socket::switchboard::Switchboard;
use crate::telemetry::Metrics;

/// The ports of this process. Which adapters stand behind them is known to `wiring` alone.
#[derive(Clone)]
pub(crate) struct Ports {
    /// Who may try.
    pub admission: Arc<dyn Admission>,
    /// Rate accounts.
    pub budgets: Arc<dyn Budgets>,
    /// Fan-out and ingest queue.
    pub bus: Arc<dyn Bus>,
    /// Who is online.
    pub presence: Arc<dyn Presence>,
    /// What users are told outside of conversations.
    pub notices: Arc<dyn Notices>,
    /// The latest messages of each session.
    pub roaming: Arc<dyn Roaming>,
    /// What may be used once.
    pub nonces: Arc<dyn Nonces>,
    /// Keys for what only the parties of a session may read.
    pub vault: Arc<dyn Vault>,
    /// Who wins.
    pub sales: Arc<dyn SaleLedger>,
    /// Where messages get their number.
    pub chats: Arc<dyn ChatLedger>,
    /// What nodes share about policies.
    pub registry: Arc<dyn Registry>,
}

/// One running process.
pub(crate) struct Node {
    /// Its name in logs, leases and consumer groups.
    pub name: String,
    /// Its settings.
    pub config: Config,
    /// Its ports.
    pub ports: Ports,
    /// Its policies.
    pub policies: Arc<dyn Policies>,
    /// Which versions of them, as the cluster wants it.
    pub rollouts: Arc<Rollouts>,
    /// Accounts counted in this process only.
    pub local_budgets: Arc<dyn Budgets>,
    /// Which policies run where, in order.
    pub bindings: Vec<Binding>,
    /// Tokens, for what happens after the handshake.
    pub verifier: Arc<Verifier>,
    /// Fetches the keys that tokens are verified with, when they are behind a URL.
    pub jwks: Option<Arc<Jwks>>,
    /// The recording, when there is one.
    pub recorder: Option<Arc<Recorder>>,
    /// Makes order numbers.
    pub order_key: OrderKey,
    /// The lots it knows.
    pub catalog: Arc<Catalog>,
    /// Asks for buyers.
    pub buying: Buying,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// Its dependencies.
    pub health: Arc<Health>,
    /// Why requests were answered the way they were.
    pub decisions: Decisions,
    /// Draining or not.
    pub drain: Drain,
    /// Open chat sockets.
    pub sockets: Sockets,
    /// What they share.
    pub switchboard: Switchboard,
    /// Lists as the registry has them.
    pub lists: Arc<Lists>,
    /// Demo data, set in `sluice dev` only.
    pub demo: OnceLock<Demo>,
}

/// The running sale of the demo.
#[derive(Debug, Clone)]
pub(crate) struct Demo {
    /// What is sold.
    pub lot: Lot,
    /// The shop that sells it.
    pub shop: ShopId,
    /// What it cost before, in cents.
    pub original_price_cents: u64,
    /// The activity's title.
    pub title: String,
}

/// Whether the process is going away.
#[derive(Debug)]
pub(crate) struct Drain {
    sender: watch::Sender<bool>,
}

impl Default for Drain {
    fn default() -> Self {
        Self { sender: watch::channel(false).0 }
    }
}

impl Drain {
    /// Starts draining; there is no way back.
    pub(crate) fn start(&self) {
        self.sender.send_replace(true);
    }

    /// Whether draining has started.
    pub(crate) fn started(&self) -> bool {
        *self.sender.borrow()
    }

    /// Turns true once draining starts.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.sender.subscribe()
    }

    /// Returns once draining has started. Cancel safe.
    pub(crate) async fn wait(&self) {
        // The sender lives as long as self, so an error cannot happen; treating it as "draining" is the safe side.
        let _ = self.watch().wait_for(|draining| *draining).await;
    }
}

/// Counts open chat sockets and bounds them.
#[derive(Debug)]
pub(crate) struct Sockets {
    max: u32,
    permits: Arc<Semaphore>,
}

impl Sockets {
    /// At most `max` at once.
    pub(crate) fn new(max: usize) -> Self {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        Self { max, permits: Arc::new(Semaphore::new(max as usize)) }
    }

    /// A place for one more socket, held until it is dropped.
    pub(crate) fn admit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.max as usize - self.permits.available_permits()
    }

    /// Returns once none is open. Cancel safe.
    pub(crate) async fn drained(&self) {
        let _ = self.permits.acquire_many(self.max).await;
    }
}
