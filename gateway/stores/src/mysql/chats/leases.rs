//! Leases of chat partitions. What never happens here: a time taken from anybody's clock but the database's.

use std::time::Duration;

use gateway_core::chat::Lease;
use sqlx::{MySql, Transaction};

use super::super::{MysqlStore, Trouble};

impl MysqlStore {
    pub(super) async fn take_lease(&self, partition: u16, owner: &str, ttl: Duration) -> Result<Option<Lease>, Trouble> {
        let ttl_us = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
        let mut tx = self.pool.begin().await?;
        let row: Option<(String, u64, i64)> =
            sqlx::query_as("select owner, token, expires_at > utc_timestamp(3) from chat_lease where part = ? for update")
                .bind(partition)
                .fetch_optional(&mut *tx)
                .await?;
        // Two first holders at once meet at the primary key; the second tries again and finds the row.
        const FIRST: &str =
            "insert into chat_lease (owner, token, expires_at, part) values (?, ?, timestampadd(microsecond, ?, utc_timestamp(3)), ?)";
        const NEXT: &str =
            "update chat_lease set owner = ?, token = ?, expires_at = timestampadd(microsecond, ?, utc_timestamp(3)) where part = ?";
        let (write, token) = match row {
            None => (FIRST, 1),
            Some((holder, token, alive)) if alive != 0 && holder == owner => (NEXT, token),
            Some((_, _, alive)) if alive != 0 => return Ok(None),
            Some((_, token, _)) => (NEXT, token + 1),
        };
        sqlx::query(write).bind(owner).bind(token).bind(ttl_us).bind(partition).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(Some(Lease { partition, owner: owner.to_owned(), token }))
    }
}

/// Fails unless the lease is held, and locks it: it cannot change hands before this transaction ends.
pub(super) async fn fence(tx: &mut Transaction<'_, MySql>, lease: &Lease) -> Result<(), Trouble> {
    let held: Option<(u64,)> = sqlx::query_as(
        "select token from chat_lease where part = ? and owner = ? and token = ? and expires_at > utc_timestamp(3) for update",
    )
    .bind(lease.partition)
    .bind(&lease.owner)
    .bind(lease.token)
    .fetch_optional(&mut **tx)
    .await?;
    held.map(drop).ok_or(Trouble::Fenced)
}
