//! The embedded adapters keep every promise of their ports. Each suite runs twice on one store, because suites must be
//! able to run again and again on a live one.

mod interleavings;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::ports::{Admission, Budgets, Bus, ChatLedger, Nonces, Notices, Presence, Registry, Roaming, SaleLedger};
use gateway_embedded::{
    EmbeddedAdmission, EmbeddedBudgets, EmbeddedBus, EmbeddedChatLedger, EmbeddedNonces, EmbeddedNotices, EmbeddedPresence,
    EmbeddedRegistry, EmbeddedRoaming, EmbeddedSaleLedger, system_clock,
};
use gateway_testkit::conformance::{self, Fresh};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn admission_conforms() {
    let claim_idle = Duration::from_millis(200);
    let store: Arc<dyn Admission> = Arc::new(EmbeddedAdmission::new(system_clock()).with_claim_idle(claim_idle));
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::admission::all(&store, &fresh, claim_idle).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn budgets_conform() {
    let store: Arc<dyn Budgets> = Arc::new(EmbeddedBudgets::new(system_clock()));
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::budgets::all(&store, &fresh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bus_conforms() {
    let bus: Arc<dyn Bus> = Arc::new(EmbeddedBus::new());
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::bus::all(&bus, &fresh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn notices_conform() {
    let store: Arc<dyn Notices> = Arc::new(EmbeddedNotices::new(system_clock()));
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::notices::all(&store, &fresh).await;
    }
}

#[tokio::test]
async fn presence_conforms() {
    let store: Arc<dyn Presence> = Arc::new(EmbeddedPresence::new(system_clock()));
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::presence::all(&store, &fresh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn registry_conforms() {
    let registry: Arc<dyn Registry> = Arc::new(EmbeddedRegistry::new());
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::registry::all(&registry, &fresh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sale_ledger_conforms() {
    let store: Arc<dyn SaleLedger> = Arc::new(EmbeddedSaleLedger::new(system_clock()));
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::sale_ledger::all(&store, &fresh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn chat_ledger_conforms() {
    let store: Arc<dyn ChatLedger> = Arc::new(EmbeddedChatLedger::new(system_clock()));
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::chat_ledger::all(&store, &fresh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nonces_conform() {
    let store: Arc<dyn Nonces> = Arc::new(EmbeddedNonces::new());
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::nonces::all(&store, &fresh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn roaming_conforms() {
    let store: Arc<dyn Roaming> = Arc::new(EmbeddedRoaming::new(system_clock()));
    let fresh = Fresh::new(1);
    for _ in 0..2 {
        conformance::roaming::all(&store, &fresh).await;
    }
}
