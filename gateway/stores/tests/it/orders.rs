//! Orders as rows: what one transaction writes, what a second delivery leaves alone, what a guard refuses.

use gateway_core::ports::{PortErrorKind, SaleLedger};
use gateway_core::sale::{CancelOutcome, OrderEvent, OrderState, Persisted};

use crate::shared::{FRESH, database_url, event, event_of, leased, mysql, mysql_at, now, published_lot, raw_mysql};

/// Rows, units and money of a lot in every table.
async fn books(lot: gateway_core::id::Lot) -> (i64, u64, i64, i64, u32, u32, u32) {
    let pool = raw_mysql().await;
    let (rows, units): (i64, u64) =
        sqlx::query_as("select count(*), cast(coalesce(sum(qty), 0) as unsigned) from seckill_order where activity_id = ? and sku_id = ?")
            .bind(lot.activity.0)
            .bind(lot.sku.0)
            .fetch_one(&pool)
            .await
            .expect("sums");
    let (items,): (i64,) = sqlx::query_as("select count(*) from order_item i join orders o on o.order_no = i.order_no and o.amount_cents = i.qty * 500 where i.activity_id = ?")
        .bind(lot.activity.0)
        .fetch_one(&pool)
        .await
        .expect("counts");
    let (moved,): (i64,) =
        sqlx::query_as("select cast(coalesce(sum(delta), 0) as signed) from stock_ledger where activity_id = ? and sku_id = ?")
            .bind(lot.activity.0)
            .bind(lot.sku.0)
            .fetch_one(&pool)
            .await
            .expect("sums");
    let (sold, stock, locked): (u32, u32, u32) = sqlx::query_as(
        "select p.sold, k.stock, k.locked from seckill_product p join product_sku k on k.id = p.sku_id where p.activity_id = ?",
    )
    .bind(lot.activity.0)
    .fetch_one(&pool)
    .await
    .expect("reads");
    (rows, units, items, moved, sold, stock, locked)
}

#[tokio::test]
async fn one_batch_writes_every_book() {
    let ledger = mysql().await;
    let lot = published_lot(&ledger, 10).await;
    let lease = leased(&ledger, lot).await;
    let events = [event(1, 2), event(1, 3)];
    assert_eq!(ledger.persist(&lease, &events, now()).await.expect("persists"), [Persisted::Stored; 2]);
    assert_eq!(books(lot).await, (2, 5, 2, -5, 5, 5, 5));
    let order = ledger.order(&events[0].order_no).await.expect("reads").expect("exists");
    assert_eq!((order.user, order.lot, order.qty, order.state), (events[0].user.clone(), lot, 2, OrderState::Unpaid));
}

#[tokio::test]
async fn a_second_delivery_writes_nothing() {
    let ledger = mysql().await;
    let lot = published_lot(&ledger, 10).await;
    let lease = leased(&ledger, lot).await;
    let events = [event(1, 2), event(1, 3)];
    for _ in 0..3 {
        assert_eq!(ledger.persist(&lease, &events, now()).await.expect("persists"), [Persisted::Stored; 2]);
    }
    assert!(ledger.raise_epoch(lot, 1).await.expect("raises").is_some());
    assert_eq!(ledger.persist(&lease, &events, now()).await.expect("persists"), [Persisted::Stored; 2], "also in a later epoch");
    assert_eq!(books(lot).await, (2, 5, 2, -5, 5, 5, 5));
}

#[tokio::test]
async fn a_sku_sold_elsewhere_stops_the_lot() {
    let ledger = mysql().await;
    let lot = published_lot(&ledger, 5).await;
    let lease = leased(&ledger, lot).await;
    // An ordinary sale that ignored the lock.
    let pool = raw_mysql().await;
    sqlx::query("update product_sku set stock = 1, locked = 1 where id = ?").bind(lot.sku.0).execute(&pool).await.expect("writes");
    let events = [event(1, 2), event(1, 1), event(1, 1)];
    let outcomes = ledger.persist(&lease, &events, now()).await.expect("persists");
    assert_eq!(outcomes, [Persisted::SoldOut, Persisted::Stored, Persisted::SoldOut]);
}

#[tokio::test]
async fn a_closed_order_is_bought_again_in_the_same_row() {
    let ledger = mysql().await;
    let lot = published_lot(&ledger, 5).await;
    let lease = leased(&ledger, lot).await;
    let user = FRESH.principal();
    let first = event_of(user.clone(), FRESH.order_no(), 1, 1);
    assert_eq!(ledger.persist(&lease, std::slice::from_ref(&first), now()).await.expect("persists"), [Persisted::Stored]);
    assert_eq!(ledger.cancel(&first.order_no, &user, now()).await.expect("cancels"), CancelOutcome::Cancelled);
    let second = OrderEvent { generation: 1, ..event_of(user.clone(), FRESH.order_no(), 1, 2) };
    let both = [first.clone(), second.clone()];
    for _ in 0..2 {
        assert_eq!(ledger.persist(&lease, &both, now()).await.expect("persists"), [Persisted::Closed, Persisted::Stored]);
    }
    let rows: Vec<(String, u16, u16, u8)> = sqlx::query_as("select order_no, gen, revision, status from seckill_order where user_id = ?")
        .bind(user.as_str())
        .fetch_all(&raw_mysql().await)
        .await
        .expect("reads");
    assert_eq!(rows, [(second.order_no.to_string(), 1, 0, 0)]);
    let seen = async |order_no| {
        let order = ledger.order(order_no).await.expect("reads").expect("exists");
        (order.state, order.generation, order.revision, order.qty)
    };
    assert_eq!(seen(&first.order_no).await, (OrderState::Closed, 0, 1, 1), "its row went on, its history did not");
    assert_eq!(seen(&second.order_no).await, (OrderState::Unpaid, 1, 0, 2));
}

#[tokio::test]
async fn a_lot_nobody_knows_makes_events_stale() {
    let ledger = mysql().await;
    let lease = leased(&ledger, FRESH.lot()).await;
    assert_eq!(ledger.persist(&lease, &[event(1, 1)], now()).await.expect("persists"), [Persisted::Stale]);
    assert_eq!(ledger.raise_epoch(FRESH.lot(), 0).await.expect("answers"), None);
}

#[tokio::test]
async fn an_order_expires_when_its_activity_says() {
    let ledger = mysql().await;
    let lot = published_lot(&ledger, 5).await;
    let lease = leased(&ledger, lot).await;
    let order = event(1, 1);
    let at = gateway_core::time::UnixMillis(1_780_300_000_007);
    ledger.persist(&lease, std::slice::from_ref(&order), at).await.expect("persists");
    let (expire,): (String,) = sqlx::query_as("select cast(expire_at as char) from orders where order_no = ?")
        .bind(order.order_no.as_str())
        .fetch_one(&raw_mysql().await)
        .await
        .expect("reads");
    assert_eq!(expire, "2026-06-01 08:01:40.007");
}

#[tokio::test]
async fn text_that_does_not_fit_is_an_error_not_cut_short() {
    let ledger = mysql().await;
    let sku = gateway_core::sale::SkuUpsert { sku: FRESH.lot().sku, name: "x".repeat(129), price_cents: 1, add_stock: 1 };
    assert_eq!(ledger.upsert_sku(&sku).await.expect_err("too long").kind, PortErrorKind::Broken);
}

#[tokio::test]
async fn nodes_that_migrate_at_once_wait_for_each_other() {
    let database = format!("migrated_{}", FRESH.number());
    sqlx::query(sqlx::AssertSqlSafe(format!("create database {database}"))).execute(&raw_mysql().await).await.expect("creates");
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..4 {
        nodes.spawn(mysql_at(database_url(&database)));
    }
    let store = nodes.join_all().await.remove(0);
    assert_eq!(store.warnings().await.expect("answers"), Vec::<String>::new());
}

#[tokio::test]
async fn a_draft_has_no_terms() {
    let ledger = mysql().await;
    let lot = published_lot(&ledger, 5).await;
    sqlx::query("update seckill_activity set state = 0 where id = ?")
        .bind(lot.activity.0)
        .execute(&raw_mysql().await)
        .await
        .expect("writes");
    assert_eq!(ledger.raise_epoch(lot, 1).await.expect("answers"), None);
}
