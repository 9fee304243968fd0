//! Lots: the rows that are locked before any order of theirs is written, closed or revived, and what they say.
//!
//! The order of locks is the same for everybody: activity, lots by (activity, SKU), the lot's lease, SKUs by id, orders. Whoever
//! changes what a lot has sold or what a SKU has locked holds both rows, so that either of them is enough to see both stand still.

use std::collections::BTreeMap;

use gateway_core::id::{Lot, PrincipalId, SkuId};
use gateway_core::ports::LotLease;
use gateway_core::sale::order::Room;
use gateway_core::sale::{ActivityState, Held, LotBooks, Reservation, SaleTerms};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, Transaction};

use super::json::Rows;
use super::leases::{fence, lots_parameter, lots_table};
use super::rows::{read_lot, read_order_no, read_principal, read_state};
use super::time::millis;
use super::{MysqlStore, Trouble};

/// A lot whose row is locked.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockedLot {
    pub(super) epoch: u32,
    pub(super) stock: u32,
    pub(super) sold: u32,
    pub(super) price_cents: u64,
}

/// A SKU whose row is locked.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockedSku {
    pub(super) stock: u32,
    pub(super) locked: u32,
}

/// What never changes of an activity, and where it is in its life.
#[derive(Debug, Clone, Copy)]
pub(super) struct Activity {
    pub(super) shop: u64,
    pub(super) pay_ttl_s: u16,
    pub(super) state: ActivityState,
}

/// A lot with everything that its orders move, locked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground {
    pub(super) lot: LockedLot,
    pub(super) sku: LockedSku,
    pub(super) activity: Activity,
}

impl Ground {
    /// Whether what is not sold is locked in the SKU: between publication and settlement.
    pub(super) fn locks(&self) -> bool {
        matches!(self.activity.state, ActivityState::Published | ActivityState::Closing)
    }

    /// What may be sold.
    pub(super) fn room(&self) -> Room {
        let of_sku = if self.locks() { self.sku.locked.min(self.sku.stock) } else { self.sku.stock.saturating_sub(self.sku.locked) };
        Room { selling: self.locks(), epoch: self.lot.epoch, free: self.lot.stock.saturating_sub(self.lot.sold).min(of_sku) }
    }
}

/// Locks `lots` and their SKUs, and between them the lease, if there is one to hold; lots that do not exist are missing in the
/// answer.
pub(super) async fn lock_ground(
    tx: &mut Transaction<'_, MySql>,
    lots: &[Lot],
    lease: Option<&LotLease>,
) -> Result<BTreeMap<Lot, Ground>, Trouble> {
    let locked = lock_lots(tx, lots).await?;
    if let Some(lease) = lease {
        fence(tx, lease).await?;
    }
    let skus = lock_skus(tx, locked.keys().map(|lot| lot.sku)).await?;
    let activities = read_activities(tx, &locked).await?;
    let ground = |(lot, locked): (Lot, LockedLot)| {
        let sku = *skus.get(&lot.sku).ok_or(Trouble::Damaged("a lot without its SKU"))?;
        let activity = *activities.get(&lot.activity.0).ok_or(Trouble::Damaged("a lot without its activity"))?;
        Ok((lot, Ground { lot: locked, sku, activity }))
    };
    locked.into_iter().map(ground).collect()
}

/// Locks the rows of lots, in their order whatever the server plans: the list comes first and is sorted.
pub(super) async fn lock_lots(tx: &mut Transaction<'_, MySql>, lots: &[Lot]) -> Result<BTreeMap<Lot, LockedLot>, Trouble> {
    const LOCK: &str = concat!(
        "select p.activity_id, p.sku_id, p.epoch, p.seckill_stock, p.sold, p.price_cents from ",
        lots_table!(),
        " straight_join seckill_product p on p.activity_id = j.activity and p.sku_id = j.sku for update"
    );
    let rows: Vec<(u64, u64, u32, u32, u32, u64)> = sqlx::query_as(LOCK).bind(lots_parameter(lots)).fetch_all(&mut **tx).await?;
    let lot = |(activity, sku, epoch, stock, sold, price_cents)| (read_lot(activity, sku), LockedLot { epoch, stock, sold, price_cents });
    Ok(rows.into_iter().map(lot).collect())
}

/// Locks the rows of SKUs, by id.
pub(super) async fn lock_skus(
    tx: &mut Transaction<'_, MySql>,
    skus: impl Iterator<Item = SkuId>,
) -> Result<BTreeMap<SkuId, LockedSku>, Trouble> {
    let mut ids: Vec<_> = skus.map(|sku| sku.0).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows: Vec<(u64, u32, u32)> = sqlx::query_as(
        "select k.id, k.stock, k.locked from json_table(?, '$[*]' columns (id bigint unsigned path '$[0]')) j \
         straight_join product_sku k on k.id = j.id for update",
    )
    .bind(Rows::of(ids, |row, id| row.number(id)))
    .fetch_all(&mut **tx)
    .await?;
    Ok(rows.into_iter().map(|(id, stock, locked)| (SkuId(id), LockedSku { stock, locked })).collect())
}

/// Not locked: whoever ends an activity locks its lots too, and these are locked.
pub(super) async fn read_activities(
    tx: &mut Transaction<'_, MySql>,
    lots: &BTreeMap<Lot, LockedLot>,
) -> Result<BTreeMap<u64, Activity>, Trouble> {
    let mut ids: Vec<_> = lots.keys().map(|lot| lot.activity.0).collect();
    ids.dedup();
    let rows: Vec<(u64, u64, u16, u8)> = sqlx::query_as(
        "select a.id, a.shop_id, a.pay_ttl_s, a.state from json_table(?, '$[*]' columns (id bigint unsigned path '$[0]')) j \
         straight_join seckill_activity a on a.id = j.id",
    )
    .bind(Rows::of(ids, |row, id| row.number(id)))
    .fetch_all(&mut **tx)
    .await?;
    rows.into_iter().map(|(id, shop, pay_ttl_s, state)| Ok((id, Activity { shop, pay_ttl_s, state: read_state(state)? }))).collect()
}

impl MysqlStore {
    pub(super) async fn next_terms(&self, lot: Lot, from: u32) -> Result<Option<SaleTerms>, Trouble> {
        let mut tx = self.pool.begin().await?;
        // The lot's row is locked first by everybody who writes, closes or revives its orders: they stand still.
        let Some(locked) = lock_lots(&mut tx, &[lot]).await?.remove(&lot) else { return Ok(None) };
        let Some(next) = from.checked_add(1).filter(|_| locked.epoch == from) else { return Ok(None) };
        const WINDOW: &str = concat!(
            "select ",
            millis!("a.start_at"),
            ", ",
            millis!("a.end_at"),
            ", p.per_user from seckill_activity a join seckill_product p on p.activity_id = a.id \
             where a.id = ? and a.state in (1, 2) and p.sku_id = ?"
        );
        let window: Option<(u64, u64, u16)> = sqlx::query_as(WINDOW).bind(lot.activity.0).bind(lot.sku.0).fetch_optional(&mut *tx).await?;
        let Some((start, end, per_user)) = window else { return Ok(None) };
        let rows: Vec<BuyerRow> = sqlx::query_as(
            "select user_id, status in (0, 1), qty, order_no, gen, revision from seckill_order \
             where activity_id = ? and sku_id = ? order by user_id",
        )
        .bind(lot.activity.0)
        .bind(lot.sku.0)
        .fetch_all(&mut *tx)
        .await?;
        let buyers = rows.into_iter().map(read_buyer).collect::<Result<Vec<_>, _>>()?;
        sqlx::query("update seckill_product set epoch = ? where activity_id = ? and sku_id = ? and epoch = ?")
            .bind(next)
            .bind(lot.activity.0)
            .bind(lot.sku.0)
            .bind(from)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        let sold: u64 = buyers.iter().map(|(_, held)| held.units()).sum();
        let left = u64::from(locked.stock).checked_sub(sold).and_then(|left| u32::try_from(left).ok());
        Ok(Some(SaleTerms {
            epoch: next,
            start: UnixMillis(start),
            end: UnixMillis(end),
            per_user: u32::from(per_user),
            left: left.ok_or(Trouble::Damaged("a lot with more live orders than units"))?,
            buyers,
        }))
    }

    /// One statement is one snapshot, also while orders are read committed. Every sum comes from an index alone.
    pub(super) async fn read_books(&self, lot: Lot) -> Result<Option<LotBooks>, Trouble> {
        type Row = (u8, u32, u32, u32, u64, i64, u64, u32, u32, u64);
        let row: Option<Row> = sqlx::query_as(
            "select a.state, p.epoch, p.seckill_stock, p.sold, \
             (select cast(coalesce(sum(o.qty), 0) as unsigned) from seckill_order o \
              where o.activity_id = p.activity_id and o.sku_id = p.sku_id and o.status in (0, 1)), \
             (select cast(coalesce(-sum(l.delta), 0) as signed) from stock_ledger l \
              where l.activity_id = p.activity_id and l.sku_id = p.sku_id), \
             (select cast(count(*) as unsigned) from outbox t where t.topic in ('release', 'reserve') and t.dedupe_key like ?), \
             k.stock, k.locked, \
             (select cast(coalesce(sum(q.seckill_stock - q.sold), 0) as unsigned) from seckill_product q \
              join seckill_activity b on b.id = q.activity_id where q.sku_id = p.sku_id and b.state in (1, 2)) \
             from seckill_product p join seckill_activity a on a.id = p.activity_id join product_sku k on k.id = p.sku_id \
             where p.activity_id = ? and p.sku_id = ?",
        )
        .bind(format!("{lot}:%"))
        .bind(lot.activity.0)
        .bind(lot.sku.0)
        .fetch_optional(&self.pool)
        .await?;
        let Some((state, epoch, stock, sold, live, moved, owed, sku_stock, sku_locked, sku_promised)) = row else { return Ok(None) };
        Ok(Some(LotBooks { state: read_state(state)?, epoch, stock, sold, live, moved, owed, sku_stock, sku_locked, sku_promised }))
    }
}

type BuyerRow = (String, i64, u16, String, u16, u16);

fn read_buyer((user, live, qty, order_no, generation, revision): BuyerRow) -> Result<(PrincipalId, Held), Trouble> {
    let held = if live == 0 {
        Held::Released { generation: generation.saturating_add(1) }
    } else {
        Held::Reserved(Reservation { qty: u32::from(qty), order_no: read_order_no(&order_no)?, revision })
    };
    Ok((read_principal(&user)?, held))
}
