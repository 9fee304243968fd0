//! Every suite on the real thing.

use std::sync::Arc;

use gateway_core::ports::{Admission, Budgets, Bus, ChatLedger, Nonces, Notices, Presence, Registry, Roaming, SaleLedger};
use gateway_testkit::conformance;

use crate::shared::{FRESH, RECLAIM_IDLE, mysql, nats, redis};

#[tokio::test]
async fn redis_keeps_the_promises_of_admission() {
    let store: Arc<dyn Admission> = Arc::new(redis());
    conformance::admission::all(&store, &FRESH, RECLAIM_IDLE).await;
}

#[tokio::test]
async fn redis_keeps_the_promises_of_budgets() {
    let store: Arc<dyn Budgets> = Arc::new(redis());
    conformance::budgets::all(&store, &FRESH).await;
}

#[tokio::test]
async fn redis_keeps_the_promises_of_presence() {
    let store: Arc<dyn Presence> = Arc::new(redis());
    conformance::presence::all(&store, &FRESH).await;
}

#[tokio::test]
async fn redis_keeps_the_promises_of_notices() {
    let store: Arc<dyn Notices> = Arc::new(redis());
    conformance::notices::all(&store, &FRESH).await;
}

#[tokio::test]
async fn redis_keeps_the_promises_of_roaming() {
    let store: Arc<dyn Roaming> = Arc::new(redis());
    conformance::roaming::all(&store, &FRESH).await;
}

#[tokio::test]
async fn redis_keeps_the_promises_of_nonces() {
    let store: Arc<dyn Nonces> = Arc::new(redis());
    conformance::nonces::all(&store, &FRESH).await;
}

#[tokio::test]
async fn nats_keeps_the_promises_of_the_bus() {
    let bus: Arc<dyn Bus> = Arc::new(nats().await);
    conformance::bus::all(&bus, &FRESH).await;
}

#[tokio::test]
async fn nats_keeps_the_promises_of_the_registry() {
    let registry: Arc<dyn Registry> = Arc::new(nats().await);
    for _ in 0..2 {
        conformance::registry::all(&registry, &FRESH).await;
    }
}

#[tokio::test]
async fn mariadb_keeps_the_promises_of_the_sale_ledger() {
    let store: Arc<dyn SaleLedger> = Arc::new(mysql().await);
    conformance::sale_ledger::all(&store, &FRESH).await;
}

#[tokio::test]
async fn mariadb_keeps_the_promises_of_the_chat_ledger() {
    let store: Arc<dyn ChatLedger> = Arc::new(mysql().await);
    conformance::chat_ledger::all(&store, &FRESH).await;
}
