//! A sale on in-memory ports for the tests of this folder, and a store that fails on demand.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::id::{Lot, OrderNo, PrincipalId, SkuId};
use gateway_core::ports::{Admission, Installed, PortError, PortErrorKind, PortResult, SaleLedger, Store};
use gateway_core::sale::shard::split;
use gateway_core::sale::{
    Admit, ClaimedEvent, CreateOutcome, Held, LotRecord, NewActivity, NewProduct, OrderKey, OrderResult, PublishOutcome, Release,
    Reservation, Reserved, SaleAttempt, SaleState, SaleStock, SaleTerms, Shard, SkuUpsert, StockVersion, Survey, order_no,
};
use gateway_core::time::UnixMillis;
use gateway_embedded::{EmbeddedAdmission, EmbeddedBus, EmbeddedSaleLedger};
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::sale::batcher::{Batcher, Batching};
use crate::sale::borrowing::Borrowing;
use crate::sale::buying::Buying;
use crate::sale::catalog::Catalog;
use crate::sale::flags::Flags;
use crate::telemetry::Metrics;

/// What becomes of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// Nothing happened, and nobody answers.
    Before(PortErrorKind),
    /// It happened, and the answer is lost.
    After,
}

/// An admission store whose next calls of `admit` and `receive` meet faults.
pub(super) struct Shaky {
    store: EmbeddedAdmission,
    admits: Mutex<VecDeque<Fault>>,
    receives: Mutex<VecDeque<Fault>>,
    pub(super) asked: AtomicUsize,
}

fn failed(kind: PortErrorKind) -> PortError {
    PortError { kind, store: Store::Redis, doing: "a call of a test", source: None }
}

impl Shaky {
    pub(super) fn admits_meet(&self, faults: impl IntoIterator<Item = Fault>) {
        self.admits.lock().unwrap().extend(faults);
    }

    /// No more faults.
    pub(super) fn back(&self) {
        self.admits.lock().unwrap().clear();
    }

    pub(super) fn receives_meet(&self, faults: impl IntoIterator<Item = Fault>) {
        self.receives.lock().unwrap().extend(faults);
    }
}

#[async_trait]
impl Admission for Shaky {
    async fn admit(&self, shard: Shard, attempts: &[SaleAttempt]) -> PortResult<Vec<Admit>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let fault = self.admits.lock().unwrap().pop_front();
        match fault {
            Some(Fault::Before(kind)) => Err(failed(kind)),
            Some(Fault::After) => {
                self.store.admit(shard, attempts).await?;
                Err(failed(PortErrorKind::Unavailable))
            }
            None => self.store.admit(shard, attempts).await,
        }
    }

    async fn receive(&self, to: Shard, epoch: u32, id: &str, units: u32) -> PortResult<bool> {
        let fault = self.receives.lock().unwrap().pop_front();
        match fault {
            Some(Fault::Before(kind)) => Err(failed(kind)),
            Some(Fault::After) => {
                self.store.receive(to, epoch, id, units).await?;
                Err(failed(PortErrorKind::Unavailable))
            }
            None => self.store.receive(to, epoch, id, units).await,
        }
    }

    async fn held(&self, shard: Shard, user: &PrincipalId) -> PortResult<Option<Held>> {
        self.store.held(shard, user).await
    }

    async fn install(&self, shard: Shard, terms: &SaleTerms) -> PortResult<Installed> {
        self.store.install(shard, terms).await
    }

    async fn set_state(&self, shard: Shard, epoch: u32, state: SaleState) -> PortResult<bool> {
        self.store.set_state(shard, epoch, state).await
    }

    async fn stock(&self, shard: Shard) -> PortResult<Option<SaleStock>> {
        self.store.stock(shard).await
    }

    async fn release(&self, shard: Shard, release: &Release) -> PortResult<Option<StockVersion>> {
        self.store.release(shard, release).await
    }

    async fn refuse(&self, shard: Shard, consumer: &str, id: &str, release: &Release) -> PortResult<Option<StockVersion>> {
        self.store.refuse(shard, consumer, id, release).await
    }

    async fn reserve(&self, shard: Shard, user: &PrincipalId, reservation: &Reservation) -> PortResult<Reserved> {
        self.store.reserve(shard, user, reservation).await
    }

    async fn send(&self, from: Shard, id: &str, to: u8, wanted: u32) -> PortResult<u32> {
        self.store.send(from, id, to, wanted).await
    }

    async fn survey(&self, shard: Shard) -> PortResult<Option<Survey>> {
        self.store.survey(shard).await
    }

    async fn retire(&self, shard: Shard, epoch: u32) -> PortResult<bool> {
        self.store.retire(shard, epoch).await
    }

    async fn claim(&self, shard: Shard, consumer: &str, max: usize) -> PortResult<Vec<ClaimedEvent>> {
        self.store.claim(shard, consumer, max).await
    }

    async fn acknowledge(&self, shard: Shard, ids: &[String]) -> PortResult<()> {
        self.store.acknowledge(shard, ids).await
    }

    async fn backlog(&self, shard: Shard) -> PortResult<u64> {
        self.store.backlog(shard).await
    }

    async fn put_results(&self, results: &[(OrderNo, OrderResult)]) -> PortResult<()> {
        self.store.put_results(results).await
    }

    async fn result(&self, order_no: &OrderNo) -> PortResult<Option<OrderResult>> {
        self.store.result(order_no).await
    }

    async fn incarnation(&self, shard: Shard) -> PortResult<String> {
        self.store.incarnation(shard).await
    }
}

/// A sale that is open, and what several nodes share.
pub(super) struct Rig {
    pub(super) store: Arc<Shaky>,
    pub(super) bus: Arc<EmbeddedBus>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) record: LotRecord,
    pub(super) key: OrderKey,
}

pub(super) fn user(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

/// The first `count` users of a shard.
pub(super) fn users_of(shard: Shard, shards: u8, count: usize) -> Vec<PrincipalId> {
    let users = (0..).map(|number| user(&format!("user-{number}")));
    users.filter(|user| Shard::of(shard.lot, user, shards) == shard).take(count).collect()
}

/// Looks until it is so; a state that does not come ends the test.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(10), "{what}");
        sleep(Duration::from_millis(2)).await;
    }
}

impl Rig {
    /// `stock` units in `shards` parts, five for a user.
    pub(super) async fn open(stock: u32, shards: u8) -> Self {
        let ledger = Arc::new(EmbeddedSaleLedger::new(Arc::new(clock::now)));
        let (sku, now) = (SkuId(9), clock::now());
        ledger.upsert_sku(&SkuUpsert { sku, name: "thing".into(), price_cents: 1, add_stock: stock }).await.unwrap();
        let product = NewProduct { sku, price_cents: 1, stock, per_user: 5, shards };
        let activity = NewActivity {
            title: "sale".into(),
            start: UnixMillis(now.0 - 1_000),
            end: now.plus(Duration::from_secs(3_600)),
            pay_ttl_s: 1_800,
            products: vec![product],
        };
        let CreateOutcome::Created(id) = ledger.create_activity(&activity).await.unwrap() else { panic!("the SKU exists") };
        assert_eq!(ledger.publish(id).await.unwrap(), PublishOutcome::Published);
        let lot = Lot { activity: id, sku };
        let terms = ledger.raise_epoch(lot, 0).await.unwrap().unwrap();
        let store = EmbeddedAdmission::new(Arc::new(clock::now));
        for (shard, terms) in Shard::all(lot, shards).zip(split(lot, terms, shards)) {
            assert_eq!(store.install(shard, &terms).await.unwrap(), Installed::Yes);
        }
        let catalog = Arc::new(Catalog::new(ledger));
        catalog.refresh().await.unwrap();
        let record = catalog.find(lot).await.unwrap().unwrap();
        let store = Shaky { store, admits: Mutex::default(), receives: Mutex::default(), asked: AtomicUsize::new(0) };
        let key = OrderKey::new(b"a key of the tests").unwrap();
        Self { store: Arc::new(store), bus: Arc::new(EmbeddedBus::new()), catalog, record, key }
    }

    pub(super) fn lot(&self) -> Lot {
        self.record.lot
    }

    pub(super) fn batcher(&self, patience: Duration) -> Batcher {
        let batching = Batching { batch_max: 64, wait: Duration::ZERO, patience };
        Batcher::new(self.store.clone(), Arc::new(Metrics::new().unwrap()), batching)
    }

    /// The flags of one node, which hears the others.
    pub(super) fn flags(&self) -> Arc<Flags> {
        let flags = Arc::new(Flags::new(self.store.clone(), self.bus.clone(), self.catalog.clone()));
        tokio::spawn(flags.clone().follow());
        flags
    }

    /// One node.
    pub(super) fn node(&self, name: &str) -> Buying {
        let flags = self.flags();
        Buying {
            order_key: self.key.clone(),
            batcher: self.batcher(Duration::from_secs(5)),
            borrowing: Arc::new(Borrowing::new(self.store.clone(), flags.clone(), name)),
            flags,
            patience: Duration::from_secs(5),
        }
    }

    pub(super) fn attempt(&self, user: &PrincipalId, qty: u32) -> SaleAttempt {
        SaleAttempt { user: user.clone(), qty, order_no: order_no(&self.key, self.lot(), user, 0), generation: 0 }
    }

    /// Takes units for a user, past everything.
    pub(super) async fn take(&self, user: &PrincipalId, qty: u32) {
        let shard = Shard::of(self.lot(), user, self.record.shards);
        let attempt = SaleAttempt { qty, ..self.attempt(user, qty) };
        assert_eq!(self.store.store.admit(shard, &[attempt]).await.unwrap(), [Admit::Admitted]);
    }

    /// Gives them back as a closed order does.
    pub(super) async fn give_back(&self, user: &PrincipalId, qty: u32) -> StockVersion {
        let shard = Shard::of(self.lot(), user, self.record.shards);
        let order_no = order_no(&self.key, self.lot(), user, 0);
        let release = Release { user: user.clone(), reservation: Reservation { qty, order_no, revision: 0 }, epoch: None, generation: 1 };
        self.store.release(shard, &release).await.unwrap().unwrap()
    }

    /// What is left, shard by shard.
    pub(super) async fn left(&self) -> Vec<u32> {
        let mut left = Vec::new();
        for shard in Shard::all(self.lot(), self.record.shards) {
            left.push(self.store.stock(shard).await.unwrap().unwrap().left);
        }
        left
    }
}
