//! Units: the counters of lots and SKUs, and the append-only book of what moved them.
//!
//! What never happens here: a decision. Whoever calls has locked the rows and asked the rule; the guards repeat it in SQL, as
//! additions, so that whatever else goes wrong nothing is oversold and the transaction is not committed.

use std::collections::BTreeMap;

use gateway_core::id::{Lot, SkuId};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySql, Transaction};

use super::Trouble;
use super::json::Rows;
use super::lots::Ground;

/// Why units move: `stock_ledger.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// An order was written.
    Sale,
    /// An order was closed.
    Close,
    /// A closed order was paid after all.
    Revival,
    /// A counter was set to what the rows say.
    Mending,
}

impl Reason {
    fn number(self) -> u8 {
        match self {
            Self::Sale => 1,
            Self::Close => 2,
            Self::Revival => 3,
            Self::Mending => 5,
        }
    }
}

/// A line of the stock ledger.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// The order's number.
    pub(super) order_no: &'a str,
    /// Its lot.
    pub(super) lot: Lot,
    /// Units: below zero when they leave.
    pub(super) delta: i64,
}

/// Writes `lines` and moves the counters of their lots and SKUs.
pub(super) async fn move_units(
    tx: &mut Transaction<'_, MySql>,
    ground: &BTreeMap<Lot, Ground>,
    reason: Reason,
    lines: &[Line<'_>],
    now: &str,
) -> Result<(), Trouble> {
    write_lines(tx, ground, reason, lines, now).await?;
    let mut moved: BTreeMap<Lot, i64> = BTreeMap::new();
    for line in lines {
        *moved.entry(line.lot).or_default() += line.delta;
    }
    for (lot, delta) in moved {
        let locks = ground.get(&lot).is_some_and(Ground::locks);
        let units = delta.unsigned_abs();
        let of_lot = if delta < 0 { sell(units, lot) } else { take_back(units, lot) };
        let of_sku = match (delta < 0, locks) {
            (true, true) => take_locked(units, lot.sku),
            (true, false) => take_free(units, lot.sku),
            (false, true) => lock_again(units, lot.sku),
            (false, false) => free(units, lot.sku),
        };
        let (sold, stock) = (of_lot.execute(&mut **tx).await?, of_sku.execute(&mut **tx).await?);
        if sold.rows_affected() != 1 || stock.rows_affected() != 1 {
            return Err(Trouble::Damaged("a lot that changed under its lock"));
        }
    }
    Ok(())
}

type Update = Query<'static, MySql, MySqlArguments>;

fn sell(units: u64, lot: Lot) -> Update {
    sqlx::query("update seckill_product set sold = sold + ? where activity_id = ? and sku_id = ? and sold + ? <= seckill_stock")
        .bind(units)
        .bind(lot.activity.0)
        .bind(lot.sku.0)
        .bind(units)
}

fn take_back(units: u64, lot: Lot) -> Update {
    sqlx::query("update seckill_product set sold = sold - ? where activity_id = ? and sku_id = ? and sold >= ?")
        .bind(units)
        .bind(lot.activity.0)
        .bind(lot.sku.0)
        .bind(units)
}

fn take_locked(units: u64, sku: SkuId) -> Update {
    sqlx::query("update product_sku set stock = stock - ?, locked = locked - ? where id = ? and stock >= ? and locked >= ?")
        .bind(units)
        .bind(units)
        .bind(sku.0)
        .bind(units)
        .bind(units)
}

fn take_free(units: u64, sku: SkuId) -> Update {
    sqlx::query("update product_sku set stock = stock - ? where id = ? and stock >= locked + ?").bind(units).bind(sku.0).bind(units)
}

fn lock_again(units: u64, sku: SkuId) -> Update {
    sqlx::query("update product_sku set stock = stock + ?, locked = locked + ? where id = ?").bind(units).bind(units).bind(sku.0)
}

fn free(units: u64, sku: SkuId) -> Update {
    sqlx::query("update product_sku set stock = stock + ? where id = ?").bind(units).bind(sku.0)
}

/// Writes `lines` alone: for what sets counters itself.
pub(super) async fn write_lines(
    tx: &mut Transaction<'_, MySql>,
    ground: &BTreeMap<Lot, Ground>,
    reason: Reason,
    lines: &[Line<'_>],
    now: &str,
) -> Result<(), Trouble> {
    let epoch = |lot| ground.get(&lot).map_or(0, |ground| ground.lot.epoch);
    let lines = Rows::of(lines, |row, Line { order_no, lot, delta }| {
        row.text(order_no).number(lot.activity.0).number(lot.sku.0).number(*delta).number(epoch(*lot))
    });
    sqlx::query(
        "insert into stock_ledger (order_no, reason, activity_id, sku_id, delta, epoch, created_at) \
         select j.order_no, ?, j.activity, j.sku, j.delta, j.epoch, ? from json_table(?, '$[*]' columns ( \
         order_no varchar(32) character set ascii collate ascii_bin path '$[0]', activity bigint unsigned path '$[1]', \
         sku bigint unsigned path '$[2]', delta bigint path '$[3]', epoch bigint unsigned path '$[4]')) j",
    )
    .bind(reason.number())
    .bind(now)
    .bind(lines)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
