//! What MariaDB holds, read past the product: the bench's own opinion of the tables.

use std::str::FromStr;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use tokio::time::{Instant, sleep, timeout};

use super::sale::Lot;
use crate::report::Order;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest look; a server that was killed and comes back takes longer, and is asked again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

const LIVE: &str =
    "select user_id, order_no, cast(qty as unsigned) from seckill_order where activity_id = ? and sku_id = ? and status <> 2";
const UNITS: &str =
    "select cast(coalesce(sum(qty), 0) as unsigned) from seckill_order where activity_id = ? and sku_id = ? and status <> 2";
const SOLD: &str = "select cast(sold as unsigned) from seckill_product where activity_id = ? and sku_id = ?";
const MOVED: &str = "select cast(coalesce(-sum(delta), 0) as signed) from stock_ledger where activity_id = ? and sku_id = ?";
const LOCKED: &str = "select cast(locked as unsigned) from product_sku k where ? <> 0 and k.id = ?";

/// A pool whose connections are made again when the server came back.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    pool: MySqlPool,
}

impl Ledger {
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let options = MySqlConnectOptions::from_str(url)?;
        Ok(Self { pool: MySqlPoolOptions::new().max_connections(2).acquire_timeout(ANSWERS_WITHIN).connect_with(options).await? })
    }

    /// Every live order of the lot.
    pub(super) async fn orders(&self, lot: Lot) -> anyhow::Result<Vec<Order>> {
        let rows: Vec<(String, String, u64)> =
            timeout(ANSWERS_WITHIN, sqlx::query_as(LIVE).bind(lot.activity).bind(lot.sku).fetch_all(&self.pool)).await??;
        Ok(rows.into_iter().map(|(user, order_no, units)| Order { user, order_no, units }).collect())
    }

    /// When `wanted` units were in live orders, counted from `started`; `None` when that was not so before `deadline`.
    pub(super) async fn watch(self, lot: Lot, wanted: u64, started: Instant, deadline: Instant) -> Option<Duration> {
        while Instant::now() < deadline {
            // A server that is away says nothing; it is asked again.
            if let Ok(units) = self.number(lot, UNITS).await
                && units >= wanted
            {
                return Some(started.elapsed());
            }
            sleep(LOOK_EVERY).await;
        }
        None
    }

    /// What does not add up in the tables; `locked`: units of the SKU that must be locked, when that is known.
    pub(super) async fn contradictions(&self, lot: Lot, locked: Option<u64>) -> anyhow::Result<Vec<String>> {
        let (units, sold) = (self.number(lot, UNITS).await?, self.number(lot, SOLD).await?);
        let moved = self.signed(lot, MOVED).await?;
        let mut found = Vec::new();
        if sold != units || i64::try_from(units) != Ok(moved) {
            found.push(format!("MariaDB: live orders have {units} units, the lot's counter {sold}, the stock ledger {moved}"));
        }
        if let Some(locked) = locked {
            let found_locked = self.number(lot, LOCKED).await?;
            if found_locked != locked {
                found.push(format!("MariaDB: {found_locked} units of the SKU are locked, not {locked}"));
            }
        }
        Ok(found)
    }

    async fn number(&self, lot: Lot, query: &'static str) -> anyhow::Result<u64> {
        Ok(timeout(ANSWERS_WITHIN, sqlx::query_scalar(query).bind(lot.activity).bind(lot.sku).fetch_one(&self.pool)).await??)
    }

    async fn signed(&self, lot: Lot, query: &'static str) -> anyhow::Result<i64> {
        Ok(timeout(ANSWERS_WITHIN, sqlx::query_scalar(query).bind(lot.activity).bind(lot.sku).fetch_one(&self.pool)).await??)
    }
}
