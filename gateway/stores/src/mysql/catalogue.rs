//! What is sold: SKUs, activities, and the steps of an activity's life.
//!
//! Every step locks the activity, then its lots, then their SKUs, asks the rule of [`gateway_core::sale::activity`], and moves
//! locks and epochs in the same transaction.

use std::collections::BTreeMap;

use gateway_core::id::{ActivityId, SkuId};
use gateway_core::sale::activity::{may_close, may_settle, may_void};
use gateway_core::sale::{ActivityRecord, ActivityState, CreateOutcome, LotRecord, NewActivity, PublishOutcome, SkuUpsert, StepOutcome};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, QueryBuilder, Transaction};

use super::lots::lock_skus;
use super::rows::{read_lot, read_state, write_state};
use super::time::{datetime, millis};
use super::{MysqlStore, Trouble};

/// How long after its end a settled activity is still listed.
const LISTED_AFTER_END_MS: u64 = 24 * 3_600 * 1_000;

/// A lot, its activity and the name of its SKU.
macro_rules! select_lots {
    ($rest:literal) => {
        concat!(
            "select p.activity_id, p.sku_id, k.name, a.state, ",
            millis!("a.start_at"),
            ", ",
            millis!("a.end_at"),
            ", p.price_cents, p.seckill_stock, p.sold, p.per_user, p.epoch, p.shards \
             from seckill_product p join seckill_activity a on a.id = p.activity_id join product_sku k on k.id = p.sku_id ",
            $rest
        )
    };
}

type LotRow = (u64, u64, String, u8, u64, u64, u64, u32, u32, u16, u32, u8);

impl MysqlStore {
    pub(super) async fn write_sku(&self, sku: &SkuUpsert) -> Result<(), Trouble> {
        sqlx::query(
            "insert into product_sku (id, name, price_cents, stock) values (?, ?, ?, ?) \
             on duplicate key update name = ?, price_cents = ?, stock = stock + ?",
        )
        .bind(sku.sku.0)
        .bind(&sku.name)
        .bind(sku.price_cents)
        .bind(sku.add_stock)
        .bind(&sku.name)
        .bind(sku.price_cents)
        .bind(sku.add_stock)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub(super) async fn write_activity(&self, activity: &NewActivity) -> Result<CreateOutcome, Trouble> {
        let mut tx = self.pool.begin().await?;
        for product in &activity.products {
            let known: Option<(u64,)> =
                sqlx::query_as("select id from product_sku where id = ?").bind(product.sku.0).fetch_optional(&mut *tx).await?;
            if known.is_none() {
                return Ok(CreateOutcome::UnknownSku(product.sku));
            }
        }
        let written = sqlx::query("insert into seckill_activity (title, start_at, end_at, pay_ttl_s) values (?, ?, ?, ?)")
            .bind(&activity.title)
            .bind(datetime(activity.start))
            .bind(datetime(activity.end))
            .bind(activity.pay_ttl_s)
            .execute(&mut *tx)
            .await?;
        let id = written.last_insert_id();
        if !activity.products.is_empty() {
            QueryBuilder::new("insert into seckill_product (activity_id, sku_id, price_cents, seckill_stock, per_user, shards) ")
                .push_values(&activity.products, |mut row, product| {
                    row.push_bind(id).push_bind(product.sku.0).push_bind(product.price_cents);
                    row.push_bind(product.stock).push_bind(product.per_user).push_bind(product.shards);
                })
                .build()
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(CreateOutcome::Created(ActivityId(id)))
    }

    pub(super) async fn publish_activity(&self, activity: ActivityId) -> Result<PublishOutcome, Trouble> {
        let mut tx = self.pool.begin().await?;
        let Some((state, _)) = lock_activity(&mut tx, activity).await? else { return Ok(PublishOutcome::NotFound) };
        match state {
            ActivityState::Draft => {}
            ActivityState::Published => return Ok(PublishOutcome::Published),
            ActivityState::Closing | ActivityState::Settled | ActivityState::Void => return Ok(PublishOutcome::WrongState(state)),
        }
        let lots = lock_lots_of(&mut tx, activity).await?;
        let skus = lock_skus(&mut tx, lots.keys().copied()).await?;
        for (sku, unsold) in lots {
            let has = skus.get(&sku).is_some_and(|has| u64::from(has.locked) + unsold <= u64::from(has.stock));
            if !has || !lock_units(&mut tx, sku, unsold).await? {
                return Ok(PublishOutcome::NotEnough(sku));
            }
        }
        set_state(&mut tx, activity, ActivityState::Published).await?;
        tx.commit().await?;
        Ok(PublishOutcome::Published)
    }

    pub(super) async fn close_activity(&self, activity: ActivityId) -> Result<StepOutcome, Trouble> {
        let mut tx = self.pool.begin().await?;
        let Some((state, _)) = lock_activity(&mut tx, activity).await? else { return Ok(StepOutcome::NotFound) };
        if let Some(outcome) = may_close(state) {
            return Ok(outcome);
        }
        set_state(&mut tx, activity, ActivityState::Closing).await?;
        tx.commit().await?;
        Ok(StepOutcome::Done)
    }

    pub(super) async fn settle_activity(&self, activity: ActivityId) -> Result<StepOutcome, Trouble> {
        self.end_activity(activity, ActivityState::Settled, |state, _| may_settle(state)).await
    }

    pub(super) async fn void_activity(&self, activity: ActivityId, now: UnixMillis) -> Result<StepOutcome, Trouble> {
        self.end_activity(activity, ActivityState::Void, |state, start| may_void(state, start, now)).await
    }

    /// Frees what is locked and not sold, and raises every epoch.
    async fn end_activity(
        &self,
        activity: ActivityId,
        end: ActivityState,
        may: impl Fn(ActivityState, UnixMillis) -> Option<StepOutcome>,
    ) -> Result<StepOutcome, Trouble> {
        let mut tx = self.pool.begin().await?;
        let Some((state, start)) = lock_activity(&mut tx, activity).await? else { return Ok(StepOutcome::NotFound) };
        if let Some(outcome) = may(state, start) {
            return Ok(outcome);
        }
        let lots = lock_lots_of(&mut tx, activity).await?;
        if state != ActivityState::Draft {
            lock_skus(&mut tx, lots.keys().copied()).await?;
            for (sku, unsold) in lots {
                let freed = sqlx::query("update product_sku set locked = locked - ? where id = ? and locked >= ?")
                    .bind(unsold)
                    .bind(sku.0)
                    .bind(unsold)
                    .execute(&mut *tx)
                    .await?;
                if freed.rows_affected() != 1 {
                    return Err(Trouble::Damaged("a SKU with less locked than its lots have left"));
                }
            }
        }
        sqlx::query("update seckill_product set epoch = epoch + 1 where activity_id = ?").bind(activity.0).execute(&mut *tx).await?;
        set_state(&mut tx, activity, end).await?;
        tx.commit().await?;
        Ok(StepOutcome::Done)
    }

    pub(super) async fn read_activity(&self, activity: ActivityId) -> Result<Option<ActivityRecord>, Trouble> {
        let mut tx = self.pool.begin().await?;
        const HEAD: &str = concat!(
            "select title, ",
            millis!("start_at"),
            ", ",
            millis!("end_at"),
            ", pay_ttl_s, state from seckill_activity where id = ?"
        );
        let head: Option<(String, u64, u64, u16, u8)> = sqlx::query_as(HEAD).bind(activity.0).fetch_optional(&mut *tx).await?;
        let Some((title, start, end, pay_ttl_s, state)) = head else { return Ok(None) };
        let lots: Vec<LotRow> =
            sqlx::query_as(select_lots!("where p.activity_id = ? order by p.id")).bind(activity.0).fetch_all(&mut *tx).await?;
        Ok(Some(ActivityRecord {
            id: activity,
            title,
            start: UnixMillis(start),
            end: UnixMillis(end),
            pay_ttl_s,
            state: read_state(state)?,
            products: lots.into_iter().map(read_lot_record).collect::<Result<_, _>>()?,
        }))
    }

    pub(super) async fn read_lots(&self, now: UnixMillis) -> Result<Vec<LotRecord>, Trouble> {
        // What is settled comes last: should there be too many, it is what can be missed.
        let lots: Vec<LotRow> = sqlx::query_as(select_lots!(
            "where a.state in (1, 2) or (a.state = 3 and a.end_at >= ?) order by a.state = 3, p.id limit 10000"
        ))
        .bind(datetime(UnixMillis(now.0.saturating_sub(LISTED_AFTER_END_MS))))
        .fetch_all(&self.pool)
        .await?;
        lots.into_iter().map(read_lot_record).collect()
    }
}

/// Locks an activity: its state, and the first instant of its window.
async fn lock_activity(tx: &mut Transaction<'_, MySql>, activity: ActivityId) -> Result<Option<(ActivityState, UnixMillis)>, Trouble> {
    const LOCK: &str = concat!("select state, ", millis!("start_at"), " from seckill_activity where id = ? for update");
    let row: Option<(u8, u64)> = sqlx::query_as(LOCK).bind(activity.0).fetch_optional(&mut **tx).await?;
    row.map(|(state, start)| Ok((read_state(state)?, UnixMillis(start)))).transpose()
}

/// Locks an activity's lots, by SKU: the units that each has not sold.
async fn lock_lots_of(tx: &mut Transaction<'_, MySql>, activity: ActivityId) -> Result<BTreeMap<SkuId, u64>, Trouble> {
    let rows: Vec<(u64, u32, u32)> = sqlx::query_as(
        "select sku_id, seckill_stock, sold from seckill_product force index (uk_product_lot) \
         where activity_id = ? order by sku_id for update",
    )
    .bind(activity.0)
    .fetch_all(&mut **tx)
    .await?;
    Ok(rows.into_iter().map(|(sku, stock, sold)| (SkuId(sku), u64::from(stock.saturating_sub(sold)))).collect())
}

/// Locks units in a SKU, if it has them free.
async fn lock_units(tx: &mut Transaction<'_, MySql>, sku: SkuId, units: u64) -> Result<bool, Trouble> {
    let locked = sqlx::query("update product_sku set locked = locked + ? where id = ? and locked + ? <= stock")
        .bind(units)
        .bind(sku.0)
        .bind(units)
        .execute(&mut **tx)
        .await?;
    Ok(locked.rows_affected() == 1)
}

async fn set_state(tx: &mut Transaction<'_, MySql>, activity: ActivityId, state: ActivityState) -> Result<(), Trouble> {
    sqlx::query("update seckill_activity set state = ? where id = ?").bind(write_state(state)).bind(activity.0).execute(&mut **tx).await?;
    Ok(())
}

fn read_lot_record(row: LotRow) -> Result<LotRecord, Trouble> {
    let (activity, sku, name, state, start, end, price_cents, stock, sold, per_user, epoch, shards) = row;
    Ok(LotRecord {
        lot: read_lot(activity, sku),
        name,
        state: read_state(state)?,
        start: UnixMillis(start),
        end: UnixMillis(end),
        price_cents,
        stock,
        sold,
        per_user,
        epoch,
        shards,
    })
}
