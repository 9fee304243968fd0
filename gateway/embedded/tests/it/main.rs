//! The embedded adapters keep every promise of their ports.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::ports::{Admission, Budgets, Bus, ChatLedger, Presence, SaleLedger};
use gateway_embedded::{
    EmbeddedAdmission, EmbeddedBudgets, EmbeddedBus, EmbeddedChatLedger, EmbeddedPresence, EmbeddedSaleLedger, system_clock,
};
use gateway_testkit::conformance::{self, Fresh};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn admission_conforms() {
    let claim_idle = Duration::from_millis(200);
    let store: Arc<dyn Admission> = Arc::new(EmbeddedAdmission::new(system_clock()).with_claim_idle(claim_idle));
    conformance::admission::all(&store, &Fresh::new(1), claim_idle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn budgets_conform() {
    let store: Arc<dyn Budgets> = Arc::new(EmbeddedBudgets::new(system_clock()));
    conformance::budgets::all(&store, &Fresh::new(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bus_conforms() {
    let bus: Arc<dyn Bus> = Arc::new(EmbeddedBus::new());
    conformance::bus::all(&bus, &Fresh::new(1)).await;
}

#[tokio::test]
async fn presence_conforms() {
    let store: Arc<dyn Presence> = Arc::new(EmbeddedPresence::new(system_clock()));
    conformance::presence::all(&store, &Fresh::new(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sale_ledger_conforms() {
    let store: Arc<dyn SaleLedger> = Arc::new(EmbeddedSaleLedger::new());
    conformance::sale_ledger::all(&store, &Fresh::new(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn chat_ledger_conforms() {
    let store: Arc<dyn ChatLedger> = Arc::new(EmbeddedChatLedger::new(system_clock()));
    conformance::chat_ledger::all(&store, &Fresh::new(1)).await;
}
