//! Leases of lots: who writes their orders. Everything by the database's clock: holders' clocks differ.

use std::time::Duration;

use gateway_core::id::Lot;
use gateway_core::ports::LotLease;
use sqlx::{MySql, Transaction};

use super::json::Rows;
use super::rows::read_lot;
use super::{MysqlStore, Trouble};

/// Lots leased at once (the port's word).
const LOTS_MAX: usize = 10_000;

/// Lots as rows of (activity, sku).
macro_rules! lots_table {
    () => {
        "json_table(?, '$[*]' columns (activity bigint unsigned path '$[0]', sku bigint unsigned path '$[1]')) j"
    };
}
pub(super) use lots_table;

impl MysqlStore {
    pub(super) async fn take_lot_leases(&self, owner: &str, lots: &[Lot], ttl: Duration) -> Result<Vec<LotLease>, Trouble> {
        if lots.is_empty() {
            return Ok(Vec::new());
        }
        if lots.len() > LOTS_MAX {
            return Err(Trouble::TooMany(LOTS_MAX));
        }
        let lots = lots_parameter(lots);
        if ttl.is_zero() {
            const GIVE_BACK: &str = concat!(
                "update ",
                lots_table!(),
                " straight_join sale_lease l on l.activity_id = j.activity and l.sku_id = j.sku \
                 set l.expires_at = utc_timestamp(3) where l.owner = ? and l.expires_at > utc_timestamp(3)"
            );
            sqlx::query(GIVE_BACK).bind(lots).bind(owner).execute(&self.pool).await?;
            return Ok(Vec::new());
        }
        // Assignments are made from left to right, and each sees those before it: the token rises when the lease is free, then
        // the owner changes when it is free, then whoever is the owner now is the owner for longer.
        const TAKE: &str = concat!(
            "insert into sale_lease (activity_id, sku_id, owner, token, expires_at) \
             select j.activity, j.sku, ?, 1, timestampadd(microsecond, ?, utc_timestamp(3)) from ",
            lots_table!(),
            " on duplicate key update token = token + (expires_at <= utc_timestamp(3)), \
             owner = if(expires_at <= utc_timestamp(3), values(owner), owner), \
             expires_at = if(owner = values(owner), values(expires_at), expires_at)"
        );
        let ttl_us = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
        sqlx::query(TAKE).bind(owner).bind(ttl_us).bind(&lots).execute(&self.pool).await?;
        const HELD: &str = concat!(
            "select l.activity_id, l.sku_id, l.token from ",
            lots_table!(),
            " straight_join sale_lease l on l.activity_id = j.activity and l.sku_id = j.sku \
             where l.owner = ? and l.expires_at > utc_timestamp(3)"
        );
        let held: Vec<(u64, u64, u64)> = sqlx::query_as(HELD).bind(&lots).bind(owner).fetch_all(&self.pool).await?;
        Ok(held.into_iter().map(|(activity, sku, token)| LotLease { lot: read_lot(activity, sku), token }).collect())
    }
}

/// The parameter of [`lots_table`], in the order in which lots are locked.
pub(super) fn lots_parameter(lots: &[Lot]) -> String {
    let mut lots = lots.to_vec();
    lots.sort_unstable();
    lots.dedup();
    Rows::of(lots, |row, lot| row.number(lot.activity.0).number(lot.sku.0))
}

/// Fails unless the lease is held, and locks it: it cannot change hands before this transaction ends.
pub(super) async fn fence(tx: &mut Transaction<'_, MySql>, lease: &LotLease) -> Result<(), Trouble> {
    let held: Option<(u64,)> = sqlx::query_as(
        "select token from sale_lease where activity_id = ? and sku_id = ? and token = ? and expires_at > utc_timestamp(3) for update",
    )
    .bind(lease.lot.activity.0)
    .bind(lease.lot.sku.0)
    .bind(lease.token)
    .fetch_optional(&mut **tx)
    .await?;
    held.map(drop).ok_or(Trouble::Fenced)
}
