//! Sluice's ports in process memory: what `sluice dev` runs on, and a second opinion on what the ports promise.
//!
//! What lives here: one adapter per port, each a `std` mutex around plain maps, never held over an await. What never
//! happens here: a socket, a file, a rule (those are in `gateway-core`). The data ends with the process. Every adapter
//! names its bounds; one that is full answers `Unavailable`, as a full service would.

mod admission;
mod budgets;
mod bus;
mod chat_ledger;
mod nonces;
mod notices;
mod presence;
mod registry;
mod roaming;
mod sale_ledger;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub use admission::{CLAIM_IDLE, EmbeddedAdmission, RESULTS_MAX, Snapshot};
pub use budgets::{ACCOUNTS_MAX, EmbeddedBudgets};
pub use bus::{EmbeddedBus, QUEUE_BYTES_MAX, QUEUE_MESSAGES_MAX, SUBSCRIBER_BACKLOG_MAX};
pub use chat_ledger::{AGENTS_MAX, EmbeddedChatLedger, HANDOVERS_MAX, MESSAGES_MAX, SESSIONS_MAX};
use gateway_core::ports::{PortError, PortErrorKind, Store};
use gateway_core::time::UnixMillis;
pub use nonces::{EmbeddedNonces, USERS_OF_NONCES_MAX};
pub use notices::{EmbeddedNotices, NOTIFIED_MAX};
pub use presence::EmbeddedPresence;
pub use registry::{BLOBS_BYTES_MAX, EmbeddedRegistry, RECORDS_MAX};
pub use roaming::{EmbeddedRoaming, ROAMED_MAX};
pub use sale_ledger::{ACTIVITIES_MAX, EmbeddedSaleLedger, LEASES_MAX, LETTERS_MAX, ORDERS_MAX};

/// Where an adapter reads the time: the machine's clock in the product, a hand-turned one in tests.
pub type Clock = Arc<dyn Fn() -> UnixMillis + Send + Sync>;

/// The machine's wall clock.
#[must_use]
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    })
}

/// Takes the lock. A poisoned one is taken all the same: a step changes its maps only after everything that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bound of this process is reached.
fn full(store: Store, doing: &'static str) -> PortError {
    PortError { kind: PortErrorKind::Unavailable, store, doing, source: Some("the embedded store is full".into()) }
}

/// The caller asked for more than the port allows in one call.
fn too_many(store: Store, doing: &'static str) -> PortError {
    PortError { kind: PortErrorKind::Broken, store, doing, source: Some("more items than one call may carry".into()) }
}
