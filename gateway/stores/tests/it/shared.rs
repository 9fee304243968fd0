//! The services all tests share, and names that are theirs alone.

use std::sync::LazyLock;
use std::time::Duration;

use gateway_core::id::{Lot, OrderNo, PrincipalId};
use gateway_core::ports::{LotLease, PortErrorKind, PortResult, SaleLedger};
use gateway_core::sale::{CreateOutcome, NewActivity, NewProduct, OrderEvent, PublishOutcome, SaleAttempt, SaleTerms, Shard, SkuUpsert};
use gateway_core::time::UnixMillis;
use gateway_stores::{MysqlSettings, MysqlStore, NatsBus, NatsSettings, RedisSettings, RedisStore};
use gateway_testkit::conformance::Fresh;
use gateway_testkit::services::Services;

/// How soon an order event may be taken over in tests.
pub(crate) const RECLAIM_IDLE: Duration = Duration::from_millis(300);

/// Above any healthy answer on a busy machine; what is slower is a fault.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

static SERVICES: LazyLock<Services> = LazyLock::new(|| Services::start().expect("the services start"));

pub(crate) static FRESH: LazyLock<Fresh> = LazyLock::new(Fresh::from_clock);

/// A store, and a raw connection beside it to see what it did.
pub(crate) fn redis() -> RedisStore {
    redis_at(&SERVICES.redis.url())
}

pub(crate) fn redis_at(url: &str) -> RedisStore {
    let settings = RedisSettings { reclaim_idle: RECLAIM_IDLE, timeout: Duration::from_secs(10), ..RedisSettings::new(url) };
    RedisStore::connect(&settings).expect("a valid URL")
}

pub(crate) async fn raw_redis() -> redis::aio::MultiplexedConnection {
    raw_redis_at(&SERVICES.redis.url()).await
}

pub(crate) async fn raw_redis_at(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).expect("a valid URL");
    client.get_multiplexed_async_connection().await.expect("connects")
}

/// A shard nobody sells.
pub(crate) fn shard() -> Shard {
    Shard::first(FRESH.lot())
}

pub(crate) async fn nats() -> NatsBus {
    nats_at(&SERVICES.nats.url()).await
}

pub(crate) async fn nats_at(url: &str) -> NatsBus {
    let bus = NatsBus::connect(NatsSettings { timeout: Duration::from_secs(10), ..NatsSettings::new(url) }).await.expect("a valid URL");
    eventually("NATS answers", || async { bus.ping().await.is_ok() }).await;
    bus
}

/// A store whose tables exist.
pub(crate) async fn mysql() -> MysqlStore {
    mysql_at(SERVICES.mariadb.url()).await
}

/// Another database on the same server.
pub(crate) fn database_url(database: &str) -> String {
    let url = SERVICES.mariadb.url();
    let (server, _) = url.rsplit_once('/').expect("a URL with a database");
    format!("{server}/{database}")
}

pub(crate) async fn mysql_at(url: String) -> MysqlStore {
    let settings = MysqlSettings { timeout: Duration::from_secs(120), connections_max: 8, ..MysqlSettings::new(url) };
    let store = MysqlStore::connect(&settings).expect("a valid URL");
    store.migrate().await.expect("migrates");
    store
}

/// A raw connection beside the store, to see what it did.
pub(crate) async fn raw_mysql() -> sqlx::MySqlPool {
    sqlx::MySqlPool::connect(&SERVICES.mariadb.url()).await.expect("connects")
}

/// Looks at a state again and again until it holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, look: impl Fn() -> F) {
    let looking = async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, looking).await.is_ok(), "not within {PATIENCE:?}: {what}");
}

/// The answer; nothing while the service is away, which is the only excuse.
pub(crate) fn unless_away<T>(answer: PortResult<T>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) if error.kind == PortErrorKind::Unavailable => None,
        Err(error) => panic!("{error:?}"),
    }
}

pub(crate) fn now() -> UnixMillis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    UnixMillis(u64::try_from(since.as_millis()).expect("before the year 500,000,000"))
}

pub(crate) fn attempt(qty: u32) -> SaleAttempt {
    SaleAttempt { user: FRESH.principal(), qty, order_no: FRESH.order_no(), generation: 0 }
}

pub(crate) fn terms(epoch: u32, left: u32) -> SaleTerms {
    let now = now();
    let hour = Duration::from_secs(3_600);
    SaleTerms { epoch, start: UnixMillis(now.0 - 3_600_000), end: now.plus(hour), per_user: 5, left, buyers: Vec::new() }
}

/// A published lot of `units` units in epoch 1.
pub(crate) async fn published_lot(ledger: &MysqlStore, units: u32) -> Lot {
    let sku = FRESH.lot().sku;
    ledger.upsert_sku(&SkuUpsert { sku, name: "lamp".to_owned(), price_cents: 990, add_stock: units }).await.expect("a SKU");
    let product = NewProduct { sku, price_cents: 500, stock: units, per_user: 5, shards: 1 };
    let start = UnixMillis(now().0 - 1_000);
    let end = now().plus(Duration::from_secs(3_600));
    let activity = NewActivity { title: "night sale".to_owned(), start, end, pay_ttl_s: 900, products: vec![product] };
    let CreateOutcome::Created(id) = ledger.create_activity(&activity).await.expect("an activity") else { panic!("not created") };
    assert_eq!(ledger.publish(id).await.expect("publishes"), PublishOutcome::Published);
    let lot = Lot { activity: id, sku };
    assert!(ledger.raise_epoch(lot, 0).await.expect("raises").is_some());
    lot
}

/// The lot in the hands of one worker.
pub(crate) async fn leased(ledger: &MysqlStore, lot: Lot) -> LotLease {
    let held = ledger.lease_lots("w", &[lot], Duration::from_secs(60)).await.expect("answers");
    held.into_iter().next().expect("free")
}

pub(crate) fn event(epoch: u32, qty: u32) -> OrderEvent {
    event_of(FRESH.principal(), FRESH.order_no(), epoch, qty)
}

pub(crate) fn event_of(user: PrincipalId, order_no: OrderNo, epoch: u32, qty: u32) -> OrderEvent {
    OrderEvent { id: format!("{}-0", FRESH.number()), order_no, user, qty, epoch, generation: 0 }
}
