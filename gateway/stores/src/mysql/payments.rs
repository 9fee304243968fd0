//! What ends the waiting of an unpaid order: its buyer, its time, or a payment.
//!
//! Closing and reviving lock the lot, because units move; paying in time moves none and locks the order alone, so that it does
//! not wait for the worker that writes the lot's orders. What never happens here: a decision; those are the core's.

use std::collections::{BTreeMap, BTreeSet};

use gateway_core::id::{Lot, OrderNo, PayNo, PrincipalId};
use gateway_core::sale::order::{self, PayStep, Payment};
use gateway_core::sale::{CancelOutcome, CloseReason, OrderRecord, OrderState, PayOutcome, Task};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, Transaction};

use super::json::Rows;
use super::lots::{Ground, lock_ground};
use super::orders::{OrderRow, read_order, select_orders};
use super::outbox::owe;
use super::rows::{read_lot, read_order_no};
use super::stock::{Line, Reason, move_units};
use super::time::{datetime, millis};
use super::{MysqlStore, Trouble};

/// Orders closed in one transaction (the port's word).
const EXPIRED_MAX: u32 = 500;

/// Order numbers as rows.
macro_rules! numbers_table {
    () => {
        "json_table(?, '$[*]' columns (order_no varchar(32) character set ascii collate ascii_bin path '$[0]')) j"
    };
}

/// What a payment did: `payment.outcome`.
const PAID: u8 = 1;
const REVIVED: u8 = 2;
const REFUNDED: u8 = 3;

impl MysqlStore {
    pub(super) async fn cancel_order(&self, order_no: &OrderNo, user: &PrincipalId, now: UnixMillis) -> Result<CancelOutcome, Trouble> {
        let mut tx = self.pool.begin().await?;
        let Some(lot) = lot_of(&mut tx, order_no).await? else { return Ok(order::cancel(None, user)) };
        let ground = lock_ground(&mut tx, &[lot], None).await?;
        let order = lock_orders(&mut tx, &[order_no]).await?.pop();
        let outcome = order::cancel(order.as_ref(), user);
        if let Some(order) = order.filter(|_| outcome == CancelOutcome::Cancelled) {
            close_orders(&mut tx, &ground, &[order], CloseReason::Cancelled, now).await?;
            tx.commit().await?;
        }
        Ok(outcome)
    }

    pub(super) async fn expire_orders(&self, deadline: UnixMillis, max: u32, now: UnixMillis) -> Result<Vec<OrderRecord>, Trouble> {
        let mut tx = self.pool.begin().await?;
        // Candidates only: what is still to be closed is decided once the rows are locked.
        let due: Vec<(String, u64, u64)> = sqlx::query_as(
            "select order_no, activity_id, sku_id from seckill_order where status = 0 and expire_at <= ? order by expire_at, id limit ?",
        )
        .bind(datetime(deadline))
        .bind(max.min(EXPIRED_MAX))
        .fetch_all(&mut *tx)
        .await?;
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let lots: BTreeSet<_> = due.iter().map(|(_, activity, sku)| read_lot(*activity, *sku)).collect();
        let numbers = due.iter().map(|(order_no, ..)| read_order_no(order_no)).collect::<Result<Vec<_>, _>>()?;
        let ground = lock_ground(&mut tx, &Vec::from_iter(lots), None).await?;
        let locked = lock_orders(&mut tx, &Vec::from_iter(&numbers)).await?;
        let mut expired: Vec<_> = locked.into_iter().filter(|order| order::expired(order, deadline)).collect();
        leave_damaged_lots(&ground, &mut expired);
        if expired.is_empty() {
            return Ok(expired);
        }
        let mut closed = close_orders(&mut tx, &ground, &expired, CloseReason::Expired, now).await?;
        tx.commit().await?;
        closed.sort_by(|a, b| (a.expires, &a.order_no).cmp(&(b.expires, &b.order_no)));
        Ok(closed)
    }

    pub(super) async fn take_payment(&self, order_no: &OrderNo, pay_no: &PayNo, now: UnixMillis) -> Result<PayOutcome, Trouble> {
        if let Some(outcome) = self.try_payment(order_no, pay_no, now, false).await? {
            return Ok(outcome);
        }
        let late = self.try_payment(order_no, pay_no, now, true).await?;
        late.ok_or(Trouble::Damaged("an order that changed under its lock"))
    }

    /// `None`: the order is closed, so its units matter, and they are not locked.
    async fn try_payment(
        &self,
        order_no: &OrderNo,
        pay_no: &PayNo,
        now: UnixMillis,
        lock_lot: bool,
    ) -> Result<Option<PayOutcome>, Trouble> {
        let mut tx = self.pool.begin().await?;
        let ground = match lot_of(&mut tx, order_no).await?.filter(|_| lock_lot) {
            Some(lot) => lock_ground(&mut tx, &[lot], None).await?,
            None => BTreeMap::new(),
        };
        let order = lock_orders(&mut tx, &[order_no]).await?.pop();
        let known: Option<(String, u8)> =
            sqlx::query_as("select order_no, outcome from payment where pay_no = ?").bind(pay_no.as_str()).fetch_optional(&mut *tx).await?;
        let known = known.map(|(order_no, outcome)| Ok::<_, Trouble>((read_order_no(&order_no)?, outcome))).transpose()?;
        let closed = order.as_ref().filter(|order| order.state == OrderState::Closed);
        if closed.is_some() && known.is_none() && !lock_lot {
            return Ok(None);
        }
        let payment = Payment {
            pay_no,
            paid: known.as_ref().filter(|(_, outcome)| *outcome != REFUNDED).map(|(order_no, _)| order_no),
            refunded: known.as_ref().is_some_and(|(_, outcome)| *outcome == REFUNDED),
            superseded: match closed.filter(|_| lock_lot) {
                Some(order) => is_superseded(&mut tx, order).await?,
                None => false,
            },
            free: order.as_ref().and_then(|order| ground.get(&order.lot)).map_or(0, |ground| ground.room().free),
        };
        let step = order::pay(order.as_ref(), payment);
        let (order, outcome) = match (order, step) {
            (_, PayStep::Answer(outcome)) => return Ok(Some(outcome)),
            (None, _) => return Ok(Some(PayOutcome::NotFound)),
            (Some(order), PayStep::Pay) => (order, PAID),
            (Some(order), PayStep::Revive) => (order, REVIVED),
            (Some(order), PayStep::Refund) => (order, REFUNDED),
        };
        // Two transactions with one payment meet at its primary key; the second tries again and finds what the first did.
        sqlx::query("insert into payment (pay_no, order_no, outcome, created_at) values (?, ?, ?, ?)")
            .bind(pay_no.as_str())
            .bind(order_no.as_str())
            .bind(outcome)
            .bind(datetime(now))
            .execute(&mut *tx)
            .await?;
        let answer = match step {
            PayStep::Answer(outcome) => outcome,
            PayStep::Pay => {
                mark_paid(&mut tx, &order, 0, pay_no, now).await?;
                PayOutcome::Paid
            }
            PayStep::Revive => {
                revive(&mut tx, &ground, order, pay_no, now).await?;
                PayOutcome::Revived
            }
            PayStep::Refund => {
                let (amount_cents,): (u64,) = sqlx::query_as("select amount_cents from orders where order_no = ?")
                    .bind(order_no.as_str())
                    .fetch_one(&mut *tx)
                    .await?;
                let refund = Task::Refund { order_no: order_no.clone(), pay_no: pay_no.clone(), amount_cents };
                owe(&mut tx, &[refund], now).await?;
                PayOutcome::Refunded
            }
        };
        tx.commit().await?;
        Ok(Some(answer))
    }
}

/// Leaves out the orders of lots that have sold less than those orders: somebody changed a counter by hand. One such lot must not
/// stop the timer of all others; reconciliation reports it and an operator mends it.
fn leave_damaged_lots(ground: &BTreeMap<Lot, Ground>, orders: &mut Vec<OrderRecord>) {
    let mut units: BTreeMap<Lot, u64> = BTreeMap::new();
    for order in orders.iter() {
        *units.entry(order.lot).or_default() += u64::from(order.qty);
    }
    let whole = |lot: &Lot| ground.get(lot).is_some_and(|ground| units.get(lot) <= Some(&u64::from(ground.lot.sold)));
    orders.retain(|order| whole(&order.lot));
    for lot in units.keys().filter(|lot| !whole(lot)) {
        tracing::error!(%lot, "the lot has sold less than its unpaid orders: they are not closed until its counter is mended");
    }
}

/// The lot of an order; it never changes.
async fn lot_of(tx: &mut Transaction<'_, MySql>, order_no: &OrderNo) -> Result<Option<Lot>, Trouble> {
    let row: Option<(u64, u64)> = sqlx::query_as("select activity_id, sku_id from order_item where order_no = ?")
        .bind(order_no.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    Ok(row.map(|(activity, sku)| read_lot(activity, sku)))
}

/// Locks orders, by number.
async fn lock_orders(tx: &mut Transaction<'_, MySql>, numbers: &[&OrderNo]) -> Result<Vec<OrderRecord>, Trouble> {
    const LOCK: &str = select_orders!(
        "json_table(?, '$[*]' columns (order_no varchar(32) character set ascii collate ascii_bin path '$[0]')) j \
         straight_join orders o on o.order_no = j.order_no",
        " for update"
    );
    let rows: Vec<OrderRow> = sqlx::query_as(LOCK).bind(numbers_parameter(numbers)).fetch_all(&mut **tx).await?;
    rows.into_iter().map(read_order).collect()
}

fn numbers_parameter(numbers: &[&OrderNo]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    Rows::of(numbers, |row, order_no| row.text(order_no.as_str()))
}

/// Whether the buyer's row went on to a later order, which is the only one it can stand for.
async fn is_superseded(tx: &mut Transaction<'_, MySql>, order: &OrderRecord) -> Result<bool, Trouble> {
    let (current,): (String,) = sqlx::query_as("select order_no from seckill_order where activity_id = ? and sku_id = ? and user_id = ?")
        .bind(order.lot.activity.0)
        .bind(order.lot.sku.0)
        .bind(order.user.as_str())
        .fetch_one(&mut **tx)
        .await?;
    Ok(current != order.order_no.as_str())
}

/// Closes unpaid orders whose rows and lots are locked, and returns them as they are then.
async fn close_orders(
    tx: &mut Transaction<'_, MySql>,
    ground: &BTreeMap<Lot, Ground>,
    orders: &[OrderRecord],
    reason: CloseReason,
    now: UnixMillis,
) -> Result<Vec<OrderRecord>, Trouble> {
    const ORDERS: &str = concat!(
        "update ",
        numbers_table!(),
        " straight_join orders o on o.order_no = j.order_no set o.status = 2, o.revision = o.revision + 1, o.closed_at = ?, \
         o.close_reason = ? where o.status = 0"
    );
    const ROWS: &str = concat!(
        "update ",
        numbers_table!(),
        " straight_join seckill_order s on s.order_no = j.order_no set s.status = 2, s.revision = s.revision + 1 where s.status = 0"
    );
    let reason = match reason {
        CloseReason::Expired => 1_u8,
        CloseReason::Cancelled => 2,
    };
    let numbers = numbers_parameter(&Vec::from_iter(orders.iter().map(|order| &order.order_no)));
    let closed = sqlx::query(ORDERS).bind(&numbers).bind(datetime(now)).bind(reason).execute(&mut **tx).await?;
    let rows = sqlx::query(ROWS).bind(&numbers).execute(&mut **tx).await?;
    let all = orders.len() as u64;
    if closed.rows_affected() != all || rows.rows_affected() != all {
        return Err(Trouble::Damaged("an order that changed under its lock"));
    }
    let lines: Vec<_> = orders.iter().map(|order| line(order, 1)).collect();
    move_units(tx, ground, Reason::Close, &lines, &datetime(now)).await?;
    // After settlement the admission store has forgotten the lot: there is nobody to tell.
    let told = orders.iter().filter(|order| ground.get(&order.lot).is_some_and(Ground::locks));
    let tasks: Vec<_> = told.map(|order| Task::Release { lot: order.lot, release: order.release() }).collect();
    owe(tx, &tasks, now).await?;
    let closed =
        |order: &OrderRecord| OrderRecord { state: OrderState::Closed, revision: order.revision.saturating_add(1), ..order.clone() };
    Ok(orders.iter().map(closed).collect())
}

/// Unpaid to paid (`from` 0), or closed to paid (`from` 2), which raises the revision.
async fn mark_paid(tx: &mut Transaction<'_, MySql>, order: &OrderRecord, from: u8, pay_no: &PayNo, now: UnixMillis) -> Result<(), Trouble> {
    let raise = u8::from(from == 2);
    let paid = sqlx::query(
        "update orders set status = 1, revision = revision + ?, pay_no = ?, paid_at = ?, closed_at = null, close_reason = null \
         where order_no = ? and status = ?",
    )
    .bind(raise)
    .bind(pay_no.as_str())
    .bind(datetime(now))
    .bind(order.order_no.as_str())
    .bind(from)
    .execute(&mut **tx)
    .await?;
    let row = sqlx::query("update seckill_order set status = 1, revision = revision + ? where order_no = ? and status = ?")
        .bind(raise)
        .bind(order.order_no.as_str())
        .bind(from)
        .execute(&mut **tx)
        .await?;
    if paid.rows_affected() == 1 && row.rows_affected() == 1 {
        Ok(())
    } else {
        Err(Trouble::Damaged("an order that changed under its lock"))
    }
}

/// A closed order gets its units again and is paid.
async fn revive(
    tx: &mut Transaction<'_, MySql>,
    ground: &BTreeMap<Lot, Ground>,
    order: OrderRecord,
    pay_no: &PayNo,
    now: UnixMillis,
) -> Result<(), Trouble> {
    mark_paid(tx, &order, 2, pay_no, now).await?;
    move_units(tx, ground, Reason::Revival, &[line(&order, -1)], &datetime(now)).await?;
    if ground.get(&order.lot).is_some_and(Ground::locks) {
        let order = OrderRecord { revision: order.revision.saturating_add(1), ..order };
        let (lot, reservation) = (order.lot, order.reservation());
        owe(tx, &[Task::Reserve { lot, user: order.user, reservation }], now).await?;
    }
    Ok(())
}

fn line(order: &OrderRecord, sign: i64) -> Line<'_> {
    Line { order_no: order.order_no.as_str(), lot: order.lot, delta: sign * i64::from(order.qty) }
}
