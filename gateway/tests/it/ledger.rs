//! What MariaDB holds, read past the product: the tests' own opinion of the tables.

use std::collections::BTreeSet;
use std::str::FromStr;

use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};

use crate::sale::{Lot, WAREHOUSE};
use crate::wait::SOON;

const ORDERS: &str = "select count(*) from orders o join seckill_order s using (order_no, user_id) \
    where s.activity_id = ? and s.sku_id = ? and o.kind = 2 and o.status <> 2";
const ITEM_UNITS: &str = "select cast(coalesce(sum(qty), 0) as signed) from order_item where activity_id = ? and sku_id = ?";
const SOLD: &str = "select cast(sold as signed) from seckill_product where activity_id = ? and sku_id = ?";
const MOVED: &str = "select cast(coalesce(sum(delta), 0) as signed) from stock_ledger where activity_id = ? and sku_id = ?";
const STOCK: &str = "select cast(k.stock as signed) from product_sku k join seckill_product p on p.sku_id = k.id \
    where p.activity_id = ? and p.sku_id = ?";

/// A connection that is made again when the server came back.
#[derive(Debug)]
pub(crate) struct Ledger {
    pool: MySqlPool,
}

/// A chat message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredMessage {
    /// Its number in the session.
    pub(crate) seq: u64,
    /// Who wrote it.
    pub(crate) sender: String,
    /// The text.
    pub(crate) content: String,
}

impl Ledger {
    /// Connects.
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        let pool =
            MySqlPoolOptions::new().max_connections(2).acquire_timeout(SOON).connect_with(MySqlConnectOptions::from_str(url)?).await?;
        Ok(Self { pool })
    }

    /// Checks that exactly `units` of `lot` are sold, each to another user, in every table alike, and says who has them.
    pub(crate) async fn assert_sold(&self, lot: Lot, units: u32) -> anyhow::Result<BTreeSet<String>> {
        let users: Vec<String> =
            sqlx::query_scalar("select user_id from seckill_order where activity_id = ? and sku_id = ? and status <> 2")
                .bind(lot.activity)
                .bind(lot.sku)
                .fetch_all(&self.pool)
                .await?;
        let rows = users.len();
        let users: BTreeSet<String> = users.into_iter().collect();
        let units = i64::from(units);
        assert_eq!((rows as i64, users.len() as i64), (units, units), "rows in seckill_order, and users in them");
        for (what, found, wanted) in [
            ("orders", self.number(lot, ORDERS).await?, units),
            ("rows in order_item", self.number(lot, "select count(*) from order_item where activity_id = ? and sku_id = ?").await?, units),
            ("units in order_item", self.number(lot, ITEM_UNITS).await?, units),
            ("seckill_product.sold", self.number(lot, SOLD).await?, units),
            ("sum of stock_ledger", self.number(lot, MOVED).await?, -units),
            ("product_sku.stock", self.number(lot, STOCK).await?, i64::from(WAREHOUSE) - units),
        ] {
            assert_eq!(found, wanted, "{what}");
        }
        Ok(users)
    }

    /// Who has a live order of `lot`, and which of that user's orders it is.
    pub(crate) async fn live(&self, lot: Lot) -> anyhow::Result<Vec<(String, u16)>> {
        let query = "select user_id, gen from seckill_order where activity_id = ? and sku_id = ? and status <> 2 order by user_id";
        Ok(sqlx::query_as(query).bind(lot.activity).bind(lot.sku).fetch_all(&self.pool).await?)
    }

    async fn number(&self, lot: Lot, query: &'static str) -> anyhow::Result<i64> {
        Ok(sqlx::query_scalar(query).bind(lot.activity).bind(lot.sku).fetch_one(&self.pool).await?)
    }

    /// Sets the counter of sold units, as somebody would who knows better.
    pub(crate) async fn edit_sold(&self, lot: Lot, sold: u32) -> anyhow::Result<()> {
        let edit = sqlx::query("update seckill_product set sold = ? where activity_id = ? and sku_id = ?");
        edit.bind(sold).bind(lot.activity).bind(lot.sku).execute(&self.pool).await?;
        Ok(())
    }

    /// Tasks of the outbox of this kind that are not done.
    pub(crate) async fn owed(&self, topic: &str) -> anyhow::Result<i64> {
        Ok(sqlx::query_scalar("select count(*) from outbox where topic = ?").bind(topic).fetch_one(&self.pool).await?)
    }

    /// Every message of a session, in order.
    pub(crate) async fn messages(&self, session: &str) -> anyhow::Result<Vec<StoredMessage>> {
        let rows: Vec<(u64, String, String)> =
            sqlx::query_as("select seq, sender_id, content from chat_message where session_id = ? order by seq")
                .bind(session)
                .fetch_all(&self.pool)
                .await?;
        Ok(rows.into_iter().map(|(seq, sender, content)| StoredMessage { seq, sender, content }).collect())
    }

    /// What a replica has of a session that hears of nothing from now on.
    pub(crate) async fn replica_lags(&self, session: &str) -> anyhow::Result<()> {
        sqlx::query("create table lagging_session as select * from chat_session where id = ?").bind(session).execute(&self.pool).await?;
        Ok(())
    }

    /// That replica takes over; says how many messages are gone.
    pub(crate) async fn replica_takes_over(&self, session: &str) -> anyhow::Result<u64> {
        let mut tx = self.pool.begin().await?;
        let lost = sqlx::query("delete from chat_message where session_id = ? and seq > (select max_seq from lagging_session)")
            .bind(session)
            .execute(&mut *tx)
            .await?
            .rows_affected();
        sqlx::query("replace into chat_session select * from lagging_session").execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(lost)
    }

    /// Makes the tables refuse messages of this content, as a column too short or a damaged page would; or take them again.
    pub(crate) async fn refuse_messages(&self, refused: bool) -> anyhow::Result<()> {
        let edit = if refused {
            "alter table chat_message add constraint ck_refused check (content <> 'poison')"
        } else {
            "alter table chat_message drop constraint ck_refused"
        };
        sqlx::query(edit).execute(&self.pool).await?;
        Ok(())
    }
}
