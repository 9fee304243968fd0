//! A sale on in-memory ports and a clock that is turned by hand, for the tests of the worker's steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_core::chat::event::Event;
use gateway_core::chat::{Party, Side};
use gateway_core::config;
use gateway_core::id::{ActivityId, Lot, OrderNo, PrincipalId, SkuId};
use gateway_core::ports::{Admission as _, LotLease, SaleLedger as _};
use gateway_core::sale::{
    Admit, CreateOutcome, LotRecord, NewActivity, NewProduct, OrderKey, OrderResult, PublishOutcome, SaleAttempt, SaleStock, Shard,
    SkuUpsert, order_no,
};
use gateway_core::time::UnixMillis;
use gateway_embedded::{EmbeddedAdmission, EmbeddedBus, EmbeddedNotices, EmbeddedSaleLedger};

use crate::sale::desk::Desk;
use crate::sale::keeper::{Keeper, Kept};
use crate::telemetry::Metrics;
use crate::worker::orders::Orders;
use crate::worker::relay::{Relay, Turn};

/// When the window opens and ends.
pub(super) const START: UnixMillis = UnixMillis(1_000_000);
pub(super) const END: UnixMillis = UnixMillis(2_000_000);
/// How long before the window sales are pre-heated, and how long an order may stay unpaid.
pub(super) const PREHEAT: Duration = Duration::from_secs(300);
pub(super) const PAY_TTL_S: u16 = 60;
/// Units of the SKU.
pub(super) const WAREHOUSE: u32 = 1_000;

pub(super) struct Rig {
    now: Arc<AtomicU64>,
    pub(super) admission: Arc<EmbeddedAdmission>,
    pub(super) ledger: Arc<EmbeddedSaleLedger>,
    pub(super) desk: Desk,
    pub(super) lot: Lot,
    shards: u8,
    key: OrderKey,
}

pub(super) fn user(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

pub(super) fn settings() -> config::Worker {
    config::Worker {
        name: String::new(),
        batch_max: 200,
        idle: Duration::from_millis(1),
        reclaim_idle: Duration::from_secs(5),
        lease: Duration::from_secs(3),
        relay: Duration::from_millis(1),
        reconcile: Duration::from_secs(10),
        attempts_max: 3,
    }
}

impl Rig {
    /// A published activity with one lot of `stock` units; its window has just opened and nothing is in force.
    pub(super) async fn published(stock: u32, shards: u8) -> Self {
        let now = Arc::new(AtomicU64::new(START.0));
        let clock = now.clone();
        let clock: gateway_embedded::Clock = Arc::new(move || UnixMillis(clock.load(Ordering::SeqCst)));
        let admission = Arc::new(EmbeddedAdmission::new(clock.clone()));
        let ledger = Arc::new(EmbeddedSaleLedger::new(clock.clone()));
        let desk = Desk {
            admission: admission.clone(),
            ledger: ledger.clone(),
            bus: Arc::new(EmbeddedBus::new()),
            notices: Arc::new(EmbeddedNotices::new(clock)),
            metrics: Arc::new(Metrics::new().unwrap()),
        };
        let sku = SkuId(9);
        ledger.upsert_sku(&SkuUpsert { sku, name: "thing".into(), price_cents: 100, add_stock: WAREHOUSE }).await.unwrap();
        let product = NewProduct { sku, price_cents: 100, stock, per_user: 5, shards };
        let wanted = NewActivity { title: "sale".into(), start: START, end: END, pay_ttl_s: PAY_TTL_S, products: vec![product] };
        let CreateOutcome::Created(activity) = ledger.create_activity(&wanted).await.unwrap() else { panic!("the SKU exists") };
        assert_eq!(ledger.publish(activity).await.unwrap(), PublishOutcome::Published);
        let key = OrderKey::new(b"a key of the tests").unwrap();
        Self { now, admission, ledger, desk, lot: Lot { activity, sku }, shards, key }
    }

    /// The same, pre-heated.
    pub(super) async fn open(stock: u32, shards: u8) -> Self {
        let rig = Self::published(stock, shards).await;
        assert_eq!(rig.keep(&mut rig.keeper()).await, Kept::Installed(1));
        rig
    }

    pub(super) fn now(&self) -> UnixMillis {
        UnixMillis(self.now.load(Ordering::SeqCst))
    }

    pub(super) fn turn_clock_to(&self, now: UnixMillis) {
        self.now.store(now.0, Ordering::SeqCst);
    }

    pub(super) fn pass(&self, time: Duration) {
        self.turn_clock_to(self.now().plus(time));
    }

    pub(super) fn activity(&self) -> ActivityId {
        self.lot.activity
    }

    pub(super) async fn record(&self) -> LotRecord {
        self.ledger.activity(self.lot.activity).await.unwrap().unwrap().products.remove(0)
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = Shard> {
        Shard::all(self.lot, self.shards)
    }

    pub(super) fn shard_of(&self, user: &PrincipalId) -> Shard {
        Shard::of(self.lot, user, self.shards)
    }

    pub(super) fn keeper(&self) -> Keeper {
        Keeper::new(self.desk.clone(), PREHEAT)
    }

    pub(super) async fn keep(&self, keeper: &mut Keeper) -> Kept {
        keeper.tend(&self.record().await, self.now()).await.unwrap()
    }

    pub(super) fn number(&self, name: &str, generation: u16) -> OrderNo {
        order_no(&self.key, self.lot, &user(name), generation)
    }

    /// An attempt at one unit, past the edge.
    pub(super) async fn buy(&self, name: &str, generation: u16) -> Admit {
        let (user, order_no) = (user(name), self.number(name, generation));
        let attempt = SaleAttempt { user: user.clone(), qty: 1, order_no, generation };
        self.admission.admit(self.shard_of(&user), &[attempt]).await.unwrap().remove(0)
    }

    pub(super) async fn lease(&self) -> LotLease {
        self.ledger.lease_lots("worker", &[self.lot], Duration::from_secs(3_600)).await.unwrap().remove(0)
    }

    pub(super) fn orders(&self, shard: Shard) -> Orders {
        Orders::new(self.desk.clone(), shard, "worker".into(), &settings())
    }

    /// Writes what waits in every shard; says how much that was.
    pub(super) async fn write(&self) -> usize {
        let (lease, mut written) = (self.lease().await, 0);
        for shard in self.shards() {
            written += self.orders(shard).turn(&lease, self.now()).await.unwrap();
        }
        written
    }

    /// Does what the outbox owes.
    pub(super) async fn relay(&self) -> Turn {
        Relay::new(self.desk.clone()).turn(self.now()).await.unwrap()
    }

    pub(super) async fn stock(&self, shard: Shard) -> SaleStock {
        self.admission.stock(shard).await.unwrap().unwrap()
    }

    /// Units left over all shards in force.
    pub(super) async fn left(&self) -> u32 {
        let mut left = 0;
        for shard in self.shards() {
            left += self.admission.stock(shard).await.unwrap().map_or(0, |sale| sale.left);
        }
        left
    }

    /// `success`, the message of a failure, or nothing.
    pub(super) async fn result(&self, name: &str, generation: u16) -> Option<String> {
        match self.admission.result(&self.number(name, generation)).await.unwrap()? {
            OrderResult::Success { user: whose } => {
                assert_eq!(whose, user(name));
                Some("success".into())
            }
            OrderResult::Fail { user: whose, message } => {
                assert_eq!(whose, user(name));
                Some(message)
            }
        }
    }

    /// What a buyer was told, in order: whether it is good news.
    pub(super) async fn told(&self, name: &str) -> Vec<bool> {
        let party = Party { side: Side::User, id: user(name), shop: None };
        let notices = self.desk.notices.since(&party, 0).await.unwrap();
        let good = |notice: &bytes::Bytes| matches!(Event::decode(notice), Ok(Event::SaleResult { success: true, .. }));
        notices.iter().map(|(_, notice)| good(notice)).collect()
    }
}
