//! The sale ledger: SKUs, activities, lots. Orders are written in `orders`.

use async_trait::async_trait;
use std::time::Duration;

use gateway_core::id::{ActivityId, Lot, OrderNo, PayNo, PrincipalId, SkuId};
use gateway_core::ports::{LotLease, PortResult, SaleLedger};
use gateway_core::sale::{
    ActivityRecord, ActivityState, CancelOutcome, CreateOutcome, DecideOutcome, Decision, Held, Letter, LotBooks, LotRecord, NewActivity,
    NewLetter, OrderEvent, OrderRecord, OrderState, OutboxEntry, PayOutcome, Persisted, PublishOutcome, Reservation, SaleTerms, SkuUpsert,
    StepOutcome, Verdict,
};
use gateway_core::time::UnixMillis;
use sqlx::QueryBuilder;

use super::time::{datetime, millis};
use super::{MysqlStore, Trouble};
use crate::error::failed;

/// How long after its end an activity is still listed.
const LISTED_AFTER_END_MS: u64 = 24 * 3_600 * 1_000;

/// A lot, its activity and its SKU. Live units are summed from an index that holds all it takes.
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

#[async_trait]
impl SaleLedger for MysqlStore {
    async fn upsert_sku(&self, sku: &SkuUpsert) -> PortResult<()> {
        self.transact("write a SKU", || self.write_sku(sku)).await
    }

    async fn create_activity(&self, activity: &NewActivity) -> PortResult<CreateOutcome> {
        self.transact("create an activity", || self.write_activity(activity)).await
    }

    async fn publish(&self, activity: ActivityId) -> PortResult<PublishOutcome> {
        self.transact("publish an activity", || self.lock_units(activity)).await
    }

    async fn activity(&self, activity: ActivityId) -> PortResult<Option<ActivityRecord>> {
        self.transact("read an activity", || self.read_activity(activity)).await
    }

    async fn lots(&self, now: UnixMillis) -> PortResult<Vec<LotRecord>> {
        self.transact("list the lots", || self.read_lots(now)).await
    }

    async fn raise_epoch(&self, lot: Lot, from: u32) -> PortResult<Option<SaleTerms>> {
        self.transact("raise an epoch", || self.next_terms(lot, from)).await
    }

    async fn close(&self, _: ActivityId) -> PortResult<StepOutcome> {
        later()
    }

    async fn settle(&self, _: ActivityId) -> PortResult<StepOutcome> {
        later()
    }

    async fn void(&self, _: ActivityId, _: UnixMillis) -> PortResult<StepOutcome> {
        later()
    }

    async fn books(&self, _: Lot) -> PortResult<Option<LotBooks>> {
        later()
    }

    async fn lease_lots(&self, _: &str, _: &[Lot], _: Duration) -> PortResult<Vec<LotLease>> {
        later()
    }

    async fn persist(&self, lease: &LotLease, events: &[OrderEvent], now: UnixMillis) -> PortResult<Vec<Persisted>> {
        self.transact("persist orders", || self.write_orders(lease.lot, events, now)).await
    }

    async fn cancel(&self, _: &OrderNo, _: &PrincipalId, _: UnixMillis) -> PortResult<CancelOutcome> {
        later()
    }

    async fn expire(&self, _: UnixMillis, _: u32, _: UnixMillis) -> PortResult<Vec<OrderRecord>> {
        later()
    }

    async fn pay(&self, _: &OrderNo, _: &PayNo, _: UnixMillis) -> PortResult<PayOutcome> {
        later()
    }

    async fn take_tasks(&self, _: UnixMillis, _: u32) -> PortResult<Vec<OutboxEntry>> {
        later()
    }

    async fn finish_tasks(&self, _: &[u64]) -> PortResult<()> {
        later()
    }

    async fn fail_task(&self, _: u64, _: &str, _: Option<UnixMillis>) -> PortResult<()> {
        later()
    }

    async fn write_letter(&self, _: &NewLetter, _: UnixMillis) -> PortResult<()> {
        later()
    }

    async fn letters(&self, _: bool, _: u64, _: u32) -> PortResult<Vec<Letter>> {
        later()
    }

    async fn letters_open(&self) -> PortResult<u64> {
        later()
    }

    async fn decide_letter(&self, _: u64, _: Verdict, _: &Decision) -> PortResult<DecideOutcome> {
        later()
    }

    async fn order(&self, order_no: &OrderNo) -> PortResult<Option<OrderRecord>> {
        self.transact("read an order", || self.read_order(order_no)).await
    }
}

fn later<T>() -> PortResult<T> {
    Err(failed("do what is not written yet", Trouble::Damaged("nothing")))
}

impl MysqlStore {
    async fn write_sku(&self, sku: &SkuUpsert) -> Result<(), Trouble> {
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

    async fn write_activity(&self, activity: &NewActivity) -> Result<CreateOutcome, Trouble> {
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
            QueryBuilder::new("insert into seckill_product (activity_id, sku_id, price_cents, seckill_stock, per_user) ")
                .push_values(&activity.products, |mut row, product| {
                    row.push_bind(id).push_bind(product.sku.0).push_bind(product.price_cents);
                    row.push_bind(product.stock).push_bind(product.per_user);
                })
                .build()
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(CreateOutcome::Created(ActivityId(id)))
    }

    async fn lock_units(&self, activity: ActivityId) -> Result<PublishOutcome, Trouble> {
        let mut tx = self.pool.begin().await?;
        let state: Option<(u8,)> =
            sqlx::query_as("select state from seckill_activity where id = ? for update").bind(activity.0).fetch_optional(&mut *tx).await?;
        match state.map(|(state,)| read_state(state)).transpose()? {
            None => return Ok(PublishOutcome::NotFound),
            Some(ActivityState::Draft) => {}
            Some(ActivityState::Published) => return Ok(PublishOutcome::Published),
            Some(state @ (ActivityState::Closing | ActivityState::Settled | ActivityState::Void)) => {
                return Ok(PublishOutcome::WrongState(state));
            }
        }
        // In the order of SKUs, as everybody who locks several.
        let products: Vec<(u64, u32)> =
            sqlx::query_as("select sku_id, seckill_stock from seckill_product where activity_id = ? order by sku_id")
                .bind(activity.0)
                .fetch_all(&mut *tx)
                .await?;
        for (sku, units) in products {
            let locked = sqlx::query("update product_sku set locked = locked + ? where id = ? and locked + ? <= stock")
                .bind(units)
                .bind(sku)
                .bind(units)
                .execute(&mut *tx)
                .await?;
            if locked.rows_affected() == 0 {
                tx.rollback().await?;
                return Ok(PublishOutcome::NotEnough(SkuId(sku)));
            }
        }
        sqlx::query("update seckill_activity set state = 1 where id = ?").bind(activity.0).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(PublishOutcome::Published)
    }

    async fn read_activity(&self, activity: ActivityId) -> Result<Option<ActivityRecord>, Trouble> {
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
            products: lots.into_iter().map(read_lot).collect::<Result<_, _>>()?,
        }))
    }

    async fn read_lots(&self, now: UnixMillis) -> Result<Vec<LotRecord>, Trouble> {
        // A closing activity was published too, and its events still drain.
        let lots: Vec<LotRow> = sqlx::query_as(select_lots!("where a.state in (1, 2) and a.end_at >= ? order by p.id limit 10000"))
            .bind(datetime(UnixMillis(now.0.saturating_sub(LISTED_AFTER_END_MS))))
            .fetch_all(&self.pool)
            .await?;
        lots.into_iter().map(read_lot).collect()
    }

    async fn next_terms(&self, lot: Lot, from: u32) -> Result<Option<SaleTerms>, Trouble> {
        let mut tx = self.pool.begin().await?;
        // The lot's row is locked first by everybody who writes its orders: what is summed below stands still.
        let row: Option<(u32, u32, u16)> =
            sqlx::query_as("select epoch, seckill_stock, per_user from seckill_product where activity_id = ? and sku_id = ? for update")
                .bind(lot.activity.0)
                .bind(lot.sku.0)
                .fetch_optional(&mut *tx)
                .await?;
        let Some((epoch, stock, per_user)) = row else { return Ok(None) };
        let Some(next) = from.checked_add(1).filter(|_| epoch == from) else { return Ok(None) };
        // Only what is published has its units locked.
        const WINDOW: &str =
            concat!("select ", millis!("start_at"), ", ", millis!("end_at"), " from seckill_activity where id = ? and state = 1");
        let window: Option<(u64, u64)> = sqlx::query_as(WINDOW).bind(lot.activity.0).fetch_optional(&mut *tx).await?;
        let Some((start, end)) = window else { return Ok(None) };
        let live: Vec<(String, u16, String, u16)> = sqlx::query_as(
            "select user_id, qty, order_no, revision from seckill_order where activity_id = ? and sku_id = ? and status in (0, 1) order by user_id",
        )
        .bind(lot.activity.0)
        .bind(lot.sku.0)
        .fetch_all(&mut *tx)
        .await?;
        sqlx::query("update seckill_product set epoch = ? where activity_id = ? and sku_id = ? and epoch = ?")
            .bind(next)
            .bind(lot.activity.0)
            .bind(lot.sku.0)
            .bind(from)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        let sold: u64 = live.iter().map(|(_, qty, _, _)| u64::from(*qty)).sum();
        let left = u64::from(stock).checked_sub(sold).and_then(|left| u32::try_from(left).ok());
        Ok(Some(SaleTerms {
            epoch: next,
            start: UnixMillis(start),
            end: UnixMillis(end),
            per_user: u32::from(per_user),
            left: left.ok_or(Trouble::Damaged("a lot with more live orders than units"))?,
            buyers: live.into_iter().map(read_buyer).collect::<Result<_, _>>()?,
        }))
    }

    async fn read_order(&self, order_no: &OrderNo) -> Result<Option<OrderRecord>, Trouble> {
        let row: Option<(String, u64, u64, u16, u8)> = sqlx::query_as(
            "select o.user_id, i.activity_id, i.sku_id, i.qty, o.status from orders o join order_item i on i.order_no = o.order_no \
             where o.order_no = ? and o.kind = 2",
        )
        .bind(order_no.as_str())
        .fetch_optional(&self.pool)
        .await?;
        row.map(|(user, activity, sku, qty, status)| {
            Ok(OrderRecord {
                order_no: order_no.clone(),
                user: read_principal(&user)?,
                lot: Lot { activity: ActivityId(activity), sku: SkuId(sku) },
                qty: u32::from(qty),
                state: read_order_state(status)?,
                generation: 0,
                revision: 0,
                expires: UnixMillis(0),
                pay_no: None,
            })
        })
        .transpose()
    }
}

fn read_lot(row: LotRow) -> Result<LotRecord, Trouble> {
    let (activity, sku, name, state, start, end, price_cents, stock, sold, per_user, epoch, shards) = row;
    Ok(LotRecord {
        lot: Lot { activity: ActivityId(activity), sku: SkuId(sku) },
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

fn read_buyer((user, qty, order_no, revision): (String, u16, String, u16)) -> Result<(PrincipalId, Held), Trouble> {
    Ok((read_principal(&user)?, Held::Reserved(Reservation { qty: u32::from(qty), order_no: read_order_no(&order_no)?, revision })))
}

pub(super) fn read_principal(text: &str) -> Result<PrincipalId, Trouble> {
    PrincipalId::parse(text).map_err(|_| Trouble::Damaged("a principal id"))
}

pub(super) fn read_order_no(text: &str) -> Result<OrderNo, Trouble> {
    OrderNo::parse(text).map_err(|_| Trouble::Damaged("an order number"))
}

fn read_state(number: u8) -> Result<ActivityState, Trouble> {
    match number {
        0 => Ok(ActivityState::Draft),
        1 => Ok(ActivityState::Published),
        2 => Ok(ActivityState::Closing),
        3 => Ok(ActivityState::Settled),
        4 => Ok(ActivityState::Void),
        _ => Err(Trouble::Damaged("the state of an activity")),
    }
}

fn read_order_state(number: u8) -> Result<OrderState, Trouble> {
    match number {
        0 => Ok(OrderState::Unpaid),
        1 => Ok(OrderState::Paid),
        2 => Ok(OrderState::Closed),
        _ => Err(Trouble::Damaged("the status of an order")),
    }
}
