//! Order events become orders: one transaction for a batch of events of one lot, in three steps. Lock and read what the lot
//! has, ask the rule about each event, write. Redelivery is harmless: an event whose order exists is answered as before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gateway_core::id::{Lot, OrderNo, PrincipalId};
use gateway_core::ports::LotLease;
use gateway_core::sale::order::{self, Row};
use gateway_core::sale::{OrderEvent, OrderRecord, Persisted};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, Transaction};

use super::json::Rows;
use super::lots::{Ground, lock_ground};
use super::rows::{read_lot, read_order_no, read_order_state, read_pay_no, read_principal};
use super::stock::{Line, Reason, move_units};
use super::time::{datetime, millis};
use super::{MysqlStore, Trouble};

/// Events in one transaction (the port's word).
const EVENTS_MAX: usize = 1_000;

/// An order with its one item, from a table `o` of orders.
macro_rules! select_orders {
    ($from:literal, $rest:literal) => {
        concat!(
            "select o.order_no, o.user_id, i.activity_id, i.sku_id, i.qty, o.status, o.gen, o.revision, ",
            millis!("o.expire_at"),
            ", o.pay_no from ",
            $from,
            " straight_join order_item i on i.order_no = o.order_no where o.kind = 2",
            $rest
        )
    };
}
pub(super) use select_orders;

pub(super) type OrderRow = (String, String, u64, u64, u16, u8, u16, u16, u64, Option<String>);

/// What the ledger knows of a batch of events.
#[derive(Default)]
struct Known {
    /// Those of the orders that exist, and whether each is live.
    orders: BTreeMap<OrderNo, bool>,
    /// The rows of the users in the lot.
    rows: BTreeMap<PrincipalId, Row>,
}

impl MysqlStore {
    pub(super) async fn write_orders(&self, lease: &LotLease, events: &[OrderEvent], now: UnixMillis) -> Result<Vec<Persisted>, Trouble> {
        if events.len() > EVENTS_MAX {
            return Err(Trouble::TooMany(EVENTS_MAX));
        }
        let lot = lease.lot;
        let mut tx = self.pool.begin().await?;
        let ground = lock_ground(&mut tx, &[lot], Some(lease)).await?;
        // No such lot: whoever logged these events did so in another life of the ledger.
        let Some(here) = ground.get(&lot) else { return Ok(vec![Persisted::Stale; events.len()]) };
        let known = known(&mut tx, lot, events).await?;
        let judged = order::judge_events(here.room(), &known.orders, &known.rows, events);
        let mut new: Vec<_> = events.iter().zip(&judged).filter(|(_, (_, write))| *write).map(|(event, _)| event).collect();
        if !new.is_empty() {
            // In the order of their rows.
            new.sort_by(|a, b| a.user.cmp(&b.user));
            if new.iter().map(|event| &event.order_no).collect::<BTreeSet<_>>().len() < new.len() {
                return Err(Trouble::Damaged("two buyers with one order number"));
            }
            let expires = now.plus(Duration::from_secs(u64::from(here.activity.pay_ttl_s)));
            insert_orders(&mut tx, lot, here, &new, &datetime(now), &datetime(expires)).await?;
            let lines: Vec<_> =
                new.iter().map(|event| Line { order_no: event.order_no.as_str(), lot, delta: -i64::from(event.qty) }).collect();
            move_units(&mut tx, &ground, Reason::Sale, &lines, &datetime(now)).await?;
            tx.commit().await?;
        }
        Ok(judged.into_iter().map(|(outcome, _)| outcome).collect())
    }

    pub(super) async fn read_order(&self, order_no: &OrderNo) -> Result<Option<OrderRecord>, Trouble> {
        let row: Option<OrderRow> =
            sqlx::query_as(select_orders!("orders o", " and o.order_no = ?")).bind(order_no.as_str()).fetch_optional(&self.pool).await?;
        row.map(read_order).transpose()
    }
}

pub(super) fn read_order(row: OrderRow) -> Result<OrderRecord, Trouble> {
    let (order_no, user, activity, sku, qty, status, generation, revision, expires, pay_no) = row;
    Ok(OrderRecord {
        order_no: read_order_no(&order_no)?,
        user: read_principal(&user)?,
        lot: read_lot(activity, sku),
        qty: u32::from(qty),
        state: read_order_state(status)?,
        generation,
        revision,
        expires: UnixMillis(expires),
        pay_no: pay_no.as_deref().map(read_pay_no).transpose()?,
    })
}

/// What is known of the events. Orders are asked of `orders`, which keeps every one; a row of `seckill_order` is used again.
/// Nothing is locked: whoever closes or revives an order of this lot holds the lot's row.
async fn known(tx: &mut Transaction<'_, MySql>, lot: Lot, events: &[OrderEvent]) -> Result<Known, Trouble> {
    type KnownRow = (String, String, Option<u8>, Option<u8>, Option<u16>);
    let rows: Vec<KnownRow> = sqlx::query_as(
        "select j.order_no, j.user_id, o.status, s.status, s.gen from json_table(?, '$[*]' columns ( \
         order_no varchar(32) character set ascii collate ascii_bin path '$[0]', \
         user_id varchar(64) character set ascii collate ascii_bin path '$[1]')) j \
         left join orders o on o.order_no = j.order_no \
         left join seckill_order s on s.activity_id = ? and s.sku_id = ? and s.user_id = j.user_id",
    )
    .bind(Rows::of(events, |row, event| row.text(event.order_no.as_str()).text(event.user.as_str())))
    .bind(lot.activity.0)
    .bind(lot.sku.0)
    .fetch_all(&mut **tx)
    .await?;
    let mut known = Known::default();
    for (order_no, user, order, row, generation) in rows {
        if let Some(status) = order {
            known.orders.insert(read_order_no(&order_no)?, status != 2);
        }
        if let (Some(status), Some(generation)) = (row, generation) {
            known.rows.insert(read_principal(&user)?, Row { live: status != 2, generation });
        }
    }
    Ok(known)
}

/// The rows of new orders as one parameter, shared by the statements that write them. Wider than the columns they go to:
/// `json_table` cuts to fit, an insert refuses.
macro_rules! new_orders {
    () => {
        "json_table(?, '$[*]' columns (order_no varchar(32) character set ascii collate ascii_bin path '$[0]', \
         user_id varchar(64) character set ascii collate ascii_bin path '$[1]', qty bigint unsigned path '$[2]', \
         gen bigint unsigned path '$[3]', epoch bigint unsigned path '$[4]', \
         stream_id varchar(255) character set utf8mb4 path '$[5]', amount_cents bigint unsigned path '$[6]')) j"
    };
}

async fn insert_orders(
    tx: &mut Transaction<'_, MySql>,
    lot: Lot,
    ground: &Ground,
    orders: &[&OrderEvent],
    now: &str,
    expires: &str,
) -> Result<(), Trouble> {
    let (shop, price_cents) = (ground.activity.shop, ground.lot.price_cents);
    let parameter = |orders: &[&OrderEvent]| {
        Rows::of(orders, |row, event| {
            let row = row.text(event.order_no.as_str()).text(event.user.as_str()).number(event.qty).number(event.generation);
            row.number(event.epoch).text(&event.id).number(price_cents.saturating_mul(u64::from(event.qty)))
        })
    };
    let (first, again): (Vec<_>, Vec<_>) = orders.iter().partition(|event| event.generation == 0);
    if !first.is_empty() {
        const FIRST: &str = concat!(
            "insert into seckill_order \
             (shop_id, order_no, user_id, activity_id, sku_id, qty, epoch, stream_id, expire_at, created_at) \
             select ?, j.order_no, j.user_id, ?, ?, j.qty, j.epoch, j.stream_id, ?, ? from ",
            new_orders!()
        );
        let insert = sqlx::query(FIRST).bind(shop).bind(lot.activity.0).bind(lot.sku.0).bind(expires).bind(now);
        insert.bind(parameter(&first)).execute(&mut **tx).await?;
    }
    if !again.is_empty() {
        const AGAIN: &str = concat!(
            "update ",
            new_orders!(),
            " straight_join seckill_order s on s.activity_id = ? and s.sku_id = ? and s.user_id = j.user_id \
             set s.order_no = j.order_no, s.qty = j.qty, s.gen = j.gen, s.epoch = j.epoch, s.status = 0, s.revision = 0, \
             s.stream_id = j.stream_id, s.expire_at = ?, s.created_at = ? where s.status = 2 and s.gen + 1 = j.gen"
        );
        let update = sqlx::query(AGAIN).bind(parameter(&again)).bind(lot.activity.0).bind(lot.sku.0).bind(expires).bind(now);
        if update.execute(&mut **tx).await?.rows_affected() != again.len() as u64 {
            return Err(Trouble::Damaged("a buyer's row that changed under its lock"));
        }
    }
    let all = parameter(orders);
    const ORDERS: &str = concat!(
        "insert into orders (shop_id, order_no, user_id, kind, amount_cents, gen, expire_at, created_at) \
         select ?, j.order_no, j.user_id, 2, j.amount_cents, j.gen, ?, ? from ",
        new_orders!()
    );
    sqlx::query(ORDERS).bind(shop).bind(expires).bind(now).bind(&all).execute(&mut **tx).await?;
    const ITEMS: &str = concat!(
        "insert into order_item (shop_id, order_no, activity_id, sku_id, qty, price_cents) \
         select ?, j.order_no, ?, ?, j.qty, ? from ",
        new_orders!()
    );
    sqlx::query(ITEMS).bind(shop).bind(lot.activity.0).bind(lot.sku.0).bind(price_cents).bind(&all).execute(&mut **tx).await?;
    Ok(())
}
