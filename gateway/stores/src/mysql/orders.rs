//! Order events become orders: one transaction for a batch of events of one lot, in three steps. Lock and read what
//! the lot has, decide each event, write. Redelivery is harmless: an event whose order exists is answered as before.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use gateway_core::id::{Lot, OrderNo, PrincipalId};
use gateway_core::sale::{OrderEvent, Persisted};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, QueryBuilder, Transaction};

use super::sales::{read_order_no, read_principal};
use super::time::datetime;
use super::{MysqlStore, Trouble};

/// What a lot has when its rows are locked.
struct Room {
    shop: u64,
    epoch: u32,
    /// Units that may still be sold: of the lot, and of what its SKU has locked for it.
    free: u32,
    price_cents: u64,
    pay_ttl_s: u16,
}

/// The one row a user has in a lot.
struct Held {
    live: bool,
    generation: u16,
}

/// An order to write.
#[derive(Debug, PartialEq, Eq)]
struct NewOrder<'a> {
    event: &'a OrderEvent,
    /// Above 0: the user's closed row is used again.
    generation: u16,
}

impl MysqlStore {
    pub(super) async fn write_orders(&self, lot: Lot, events: &[OrderEvent], now: UnixMillis) -> Result<Vec<Persisted>, Trouble> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.pool.begin().await?;
        let Some(room) = lock_room(&mut tx, lot).await? else {
            // No such lot: whoever logged this event did so in another life of the ledger.
            return Ok(vec![Persisted::Stale; events.len()]);
        };
        let stored = stored_numbers(&mut tx, events).await?;
        let held = held_by_users(&mut tx, lot, events).await?;
        let (outcomes, mut orders) = decide(&room, &stored, &held, events);
        if !orders.is_empty() {
            orders.sort_by(|a, b| a.event.user.cmp(&b.event.user));
            let expire = datetime(now.plus(Duration::from_secs(u64::from(room.pay_ttl_s))));
            insert_orders(&mut tx, lot, &room, &orders, &datetime(now), &expire).await?;
            take_units(&mut tx, lot, &room, &orders).await?;
            tx.commit().await?;
        }
        Ok(outcomes)
    }
}

/// One outcome per event, and what is to be written for them.
fn decide<'a>(
    room: &Room,
    stored: &HashSet<OrderNo>,
    held: &HashMap<PrincipalId, Held>,
    events: &'a [OrderEvent],
) -> (Vec<Persisted>, Vec<NewOrder<'a>>) {
    let mut free = room.free;
    let mut orders: Vec<NewOrder<'a>> = Vec::new();
    let mut written: HashMap<&PrincipalId, &OrderNo> = HashMap::new();
    let outcomes = events.iter().map(|event| {
        let before = held.get(&event.user);
        let already = written.get(&event.user);
        if stored.contains(&event.order_no) || already == Some(&&event.order_no) {
            Persisted::Stored
        } else if event.epoch != room.epoch {
            Persisted::Stale
        } else if already.is_some() || before.is_some_and(|held| held.live) {
            Persisted::Duplicate
        } else if event.qty > free {
            Persisted::SoldOut
        } else {
            free -= event.qty;
            written.insert(&event.user, &event.order_no);
            orders.push(NewOrder { event, generation: before.map_or(0, |held| held.generation.saturating_add(1)) });
            Persisted::Stored
        }
    });
    let outcomes = outcomes.collect();
    (outcomes, orders)
}

/// Locks the lot, then its SKU. Everybody takes them in this order, and everybody who writes orders of a lot takes both, so
/// what is read here stands still until the transaction ends.
async fn lock_room(tx: &mut Transaction<'_, MySql>, lot: Lot) -> Result<Option<Room>, Trouble> {
    let product: Option<(u32, u32, u32, u64)> = sqlx::query_as(
        "select epoch, seckill_stock, sold, price_cents from seckill_product where activity_id = ? and sku_id = ? for update",
    )
    .bind(lot.activity.0)
    .bind(lot.sku.0)
    .fetch_optional(&mut **tx)
    .await?;
    let Some((epoch, stock, sold, price_cents)) = product else { return Ok(None) };
    let (shop, pay_ttl_s): (u64, u16) =
        sqlx::query_as("select shop_id, pay_ttl_s from seckill_activity where id = ?").bind(lot.activity.0).fetch_one(&mut **tx).await?;
    let (sku_stock, sku_locked): (u32, u32) =
        sqlx::query_as("select stock, locked from product_sku where id = ? for update").bind(lot.sku.0).fetch_one(&mut **tx).await?;
    let free = stock.saturating_sub(sold).min(sku_stock).min(sku_locked);
    Ok(Some(Room { shop, epoch, free, price_cents, pay_ttl_s }))
}

/// Which of the events' orders exist. Asked of `orders`, which keeps every order; a row of `seckill_order` is used again.
async fn stored_numbers(tx: &mut Transaction<'_, MySql>, events: &[OrderEvent]) -> Result<HashSet<OrderNo>, Trouble> {
    let mut select = QueryBuilder::new("select order_no from orders where order_no in (");
    let mut list = select.separated(", ");
    for event in events {
        list.push_bind(event.order_no.as_str());
    }
    list.push_unseparated(")");
    let rows: Vec<(String,)> = select.build_query_as().fetch_all(&mut **tx).await?;
    rows.iter().map(|(number,)| read_order_no(number)).collect()
}

/// What the events' users hold in the lot. Locked, so that nobody closes one of these orders meanwhile.
async fn held_by_users(tx: &mut Transaction<'_, MySql>, lot: Lot, events: &[OrderEvent]) -> Result<HashMap<PrincipalId, Held>, Trouble> {
    let mut users: Vec<_> = events.iter().map(|event| event.user.as_str()).collect();
    users.sort_unstable();
    users.dedup();
    let mut select = QueryBuilder::new("select user_id, status in (0, 1), gen from seckill_order where activity_id = ");
    select.push_bind(lot.activity.0).push(" and sku_id = ").push_bind(lot.sku.0).push(" and user_id in (");
    let mut list = select.separated(", ");
    for user in users {
        list.push_bind(user);
    }
    list.push_unseparated(") for update");
    let rows: Vec<(String, i64, u16)> = select.build_query_as().fetch_all(&mut **tx).await?;
    rows.into_iter().map(|(user, live, generation)| Ok((read_principal(&user)?, Held { live: live != 0, generation }))).collect()
}

async fn insert_orders(
    tx: &mut Transaction<'_, MySql>,
    lot: Lot,
    room: &Room,
    orders: &[NewOrder<'_>],
    now: &str,
    expire: &str,
) -> Result<(), Trouble> {
    let (again, first): (Vec<_>, Vec<_>) = orders.iter().partition(|order| order.generation > 0);
    if !first.is_empty() {
        QueryBuilder::new(
            "insert into seckill_order (shop_id, order_no, user_id, activity_id, sku_id, qty, epoch, stream_id, expire_at, created_at) ",
        )
        .push_values(first, |mut row, NewOrder { event, .. }| {
            row.push_bind(room.shop).push_bind(event.order_no.as_str()).push_bind(event.user.as_str());
            row.push_bind(lot.activity.0).push_bind(lot.sku.0).push_bind(event.qty).push_bind(event.epoch);
            row.push_bind(event.id.as_str()).push_bind(expire).push_bind(now);
        })
        .build()
        .execute(&mut **tx)
        .await?;
    }
    for NewOrder { event, generation } in again {
        sqlx::query(
            "update seckill_order set order_no = ?, qty = ?, gen = ?, epoch = ?, status = 0, stream_id = ?, expire_at = ?, created_at = ? \
             where activity_id = ? and sku_id = ? and user_id = ? and status = 2",
        )
        .bind(event.order_no.as_str())
        .bind(event.qty)
        .bind(generation)
        .bind(event.epoch)
        .bind(event.id.as_str())
        .bind(expire)
        .bind(now)
        .bind(lot.activity.0)
        .bind(lot.sku.0)
        .bind(event.user.as_str())
        .execute(&mut **tx)
        .await?;
    }
    QueryBuilder::new("insert into orders (shop_id, order_no, user_id, kind, amount_cents, expire_at, created_at) ")
        .push_values(orders, |mut row, NewOrder { event, .. }| {
            row.push_bind(room.shop).push_bind(event.order_no.as_str()).push_bind(event.user.as_str()).push_bind(2_u8);
            row.push_bind(room.price_cents.saturating_mul(u64::from(event.qty))).push_bind(expire).push_bind(now);
        })
        .build()
        .execute(&mut **tx)
        .await?;
    QueryBuilder::new("insert into order_item (shop_id, order_no, activity_id, sku_id, qty, price_cents) ")
        .push_values(orders, |mut row, NewOrder { event, .. }| {
            row.push_bind(room.shop).push_bind(event.order_no.as_str()).push_bind(lot.activity.0).push_bind(lot.sku.0);
            row.push_bind(event.qty).push_bind(room.price_cents);
        })
        .build()
        .execute(&mut **tx)
        .await?;
    QueryBuilder::new("insert into stock_ledger (order_no, reason, activity_id, sku_id, delta, epoch, created_at) ")
        .push_values(orders, |mut row, NewOrder { event, .. }| {
            row.push_bind(event.order_no.as_str()).push_bind(1_u8).push_bind(lot.activity.0).push_bind(lot.sku.0);
            row.push_bind(-i64::from(event.qty)).push_bind(event.epoch).push_bind(now);
        })
        .build()
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Takes the units. The guards repeat in SQL what was decided on locked rows: whatever else goes wrong, nothing is
/// oversold; the transaction is not committed.
async fn take_units(tx: &mut Transaction<'_, MySql>, lot: Lot, room: &Room, orders: &[NewOrder<'_>]) -> Result<(), Trouble> {
    let units: u64 = orders.iter().map(|order| u64::from(order.event.qty)).sum();
    let sold = sqlx::query(
        "update seckill_product set sold = sold + ? where activity_id = ? and sku_id = ? and epoch = ? and sold + ? <= seckill_stock",
    )
    .bind(units)
    .bind(lot.activity.0)
    .bind(lot.sku.0)
    .bind(room.epoch)
    .bind(units)
    .execute(&mut **tx)
    .await?;
    let taken = sqlx::query("update product_sku set stock = stock - ?, locked = locked - ? where id = ? and locked >= ? and stock >= ?")
        .bind(units)
        .bind(units)
        .bind(lot.sku.0)
        .bind(units)
        .bind(units)
        .execute(&mut **tx)
        .await?;
    if sold.rows_affected() == 1 && taken.rows_affected() == 1 {
        Ok(())
    } else {
        Err(Trouble::Damaged("a lot that changed under its lock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_no(n: u8) -> OrderNo {
        OrderNo::parse(&format!("SKABCDEFGHIJKLMNO{}", char::from(b'A' + n))).expect("valid")
    }

    fn event(user: &str, n: u8, qty: u32, epoch: u32) -> OrderEvent {
        OrderEvent { id: format!("{n}-0"), order_no: order_no(n), user: PrincipalId::parse(user).expect("valid"), qty, epoch }
    }

    fn room(free: u32) -> Room {
        Room { shop: 0, epoch: 2, free, price_cents: 100, pay_ttl_s: 60 }
    }

    fn held(user: &str, live: bool) -> HashMap<PrincipalId, Held> {
        [(PrincipalId::parse(user).expect("valid"), Held { live, generation: 3 })].into()
    }

    #[test]
    fn events_are_judged_in_order_until_nothing_is_left() {
        let events = [event("a", 0, 2, 2), event("b", 1, 2, 2), event("c", 2, 1, 2), event("d", 3, 1, 2)];
        let (outcomes, orders) = decide(&room(3), &HashSet::new(), &HashMap::new(), &events);
        assert_eq!(outcomes, [Persisted::Stored, Persisted::SoldOut, Persisted::Stored, Persisted::SoldOut]);
        assert_eq!(orders.len(), 2);
    }

    #[test]
    fn an_order_that_exists_is_stored_whatever_its_epoch() {
        let events = [event("a", 0, 1, 1), event("b", 1, 1, 1)];
        let (outcomes, orders) = decide(&room(9), &HashSet::from([order_no(0)]), &held("a", true), &events);
        assert_eq!(outcomes, [Persisted::Stored, Persisted::Stale]);
        assert!(orders.is_empty());
    }

    #[test]
    fn one_event_twice_in_a_batch_is_written_once() {
        let events = [event("a", 0, 1, 2), event("a", 0, 1, 2), event("a", 1, 1, 2)];
        let (outcomes, orders) = decide(&room(9), &HashSet::new(), &HashMap::new(), &events);
        assert_eq!(outcomes, [Persisted::Stored, Persisted::Stored, Persisted::Duplicate]);
        assert_eq!(orders.len(), 1);
    }

    #[test]
    fn a_closed_order_leaves_room_for_another() {
        let events = [event("a", 0, 1, 2)];
        let (outcomes, orders) = decide(&room(9), &HashSet::new(), &held("a", false), &events);
        assert_eq!(outcomes, [Persisted::Stored]);
        assert_eq!(orders, [NewOrder { event: &events[0], generation: 4 }]);
        let (outcomes, _) = decide(&room(9), &HashSet::new(), &held("a", true), &events);
        assert_eq!(outcomes, [Persisted::Duplicate]);
    }
}
