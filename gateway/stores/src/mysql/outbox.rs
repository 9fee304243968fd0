//! The outbox: tasks from the transaction that owes them until they are done.
//!
//! A finished task is forgotten: each follows a change of an order or a payment that happens once, so no transaction writes
//! it again, and the table stays as small as what is owed. What never happens here: doing a task.

use gateway_core::sale::outbox::HIDDEN_FOR;
use gateway_core::sale::{LetterKind, NewLetter, OutboxEntry, Task};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, Transaction};

use super::json::Rows;
use super::letters::{kept, put_letter};
use super::time::datetime;
use super::{MysqlStore, Trouble};

/// Tasks taken at once (the port's word).
const TAKEN_MAX: u32 = 200;

/// Task ids as rows.
macro_rules! ids_table {
    () => {
        "json_table(?, '$[*]' columns (id bigint unsigned path '$[0]')) j"
    };
}

/// Owes `tasks` from `now` on.
pub(super) async fn owe(tx: &mut Transaction<'_, MySql>, tasks: &[Task], now: UnixMillis) -> Result<(), Trouble> {
    if tasks.is_empty() {
        return Ok(());
    }
    let tasks = Rows::of(tasks, |row, task| row.text(task.topic()).text(&task.dedupe_key()).text(&task.encode()));
    sqlx::query(
        "insert into outbox (topic, dedupe_key, payload, next_at) select j.topic, j.dedupe_key, j.payload, ? from \
         json_table(?, '$[*]' columns (topic varchar(32) character set ascii collate ascii_bin path '$[0]', \
         dedupe_key varchar(96) character set ascii collate ascii_bin path '$[1]', payload text path '$[2]')) j",
    )
    .bind(datetime(now))
    .bind(tasks)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl MysqlStore {
    pub(super) async fn hand_out_tasks(&self, now: UnixMillis, max: u32) -> Result<Vec<OutboxEntry>, Trouble> {
        let mut tx = self.pool.begin().await?;
        let rows: Vec<(u64, String, String, u16)> = sqlx::query_as(
            "select id, topic, cast(payload as char), attempts from outbox where state = 0 and next_at <= ? \
             order by next_at, id limit ? for update skip locked",
        )
        .bind(datetime(now))
        .bind(max.min(TAKEN_MAX))
        .fetch_all(&mut *tx)
        .await?;
        if rows.is_empty() {
            // Now, not whenever the connection is used again: what this transaction has looked at, others skip.
            tx.rollback().await?;
            return Ok(Vec::new());
        }
        const HIDE: &str =
            concat!("update ", ids_table!(), " straight_join outbox t on t.id = j.id set t.attempts = t.attempts + 1, t.next_at = ?");
        let ids = Rows::of(&rows, |row, (id, ..)| row.number(*id));
        sqlx::query(HIDE).bind(ids).bind(datetime(now.plus(HIDDEN_FOR))).execute(&mut *tx).await?;
        let mut tasks = Vec::with_capacity(rows.len());
        for (id, topic, payload, attempts) in rows {
            match Task::decode(&topic, &payload) {
                Ok(task) => tasks.push(OutboxEntry { id, attempts: attempts.saturating_add(1), task }),
                // It would come again for ever.
                Err(unknown) => give_up(&mut tx, id, &unknown.to_string(), now).await?,
            }
        }
        tx.commit().await?;
        Ok(tasks)
    }

    pub(super) async fn forget_tasks(&self, ids: &[u64]) -> Result<(), Trouble> {
        if ids.is_empty() {
            return Ok(());
        }
        const FORGET: &str = concat!("delete t from ", ids_table!(), " straight_join outbox t on t.id = j.id");
        sqlx::query(FORGET).bind(Rows::of(ids, |row, id| row.number(*id))).execute(&self.pool).await?;
        Ok(())
    }

    pub(super) async fn put_task_off(&self, id: u64, error: &str, again: Option<UnixMillis>) -> Result<(), Trouble> {
        let mut tx = self.pool.begin().await?;
        match again {
            Some(again) => {
                sqlx::query("update outbox set next_at = ?, last_error = ? where id = ? and state = 0")
                    .bind(datetime(again))
                    .bind(kept(error))
                    .bind(id)
                    .execute(&mut *tx)
                    .await?;
            }
            None => {
                let (now,): (u64,) = sqlx::query_as(NOW).fetch_one(&mut *tx).await?;
                give_up(&mut tx, id, error, UnixMillis(now)).await?;
            }
        }
        tx.commit().await?;
        Ok(())
    }
}

/// The port gives no instant to whoever gives up: the database's clock.
const NOW: &str = concat!("select ", super::time::millis!("utc_timestamp(3)"));

/// Keeps a task that is there and due, but for an operator.
async fn give_up(tx: &mut Transaction<'_, MySql>, id: u64, error: &str, now: UnixMillis) -> Result<(), Trouble> {
    let task: Option<(String, String, u16)> =
        sqlx::query_as("select topic, cast(payload as char), attempts from outbox where id = ? and state = 0 for update")
            .bind(id)
            .fetch_optional(&mut **tx)
            .await?;
    let Some((topic, payload, attempts)) = task else { return Ok(()) };
    sqlx::query("update outbox set state = 2, last_error = ? where id = ?").bind(kept(error)).bind(id).execute(&mut **tx).await?;
    let payload = format!("{{\"topic\":\"{topic}\",\"task\":{payload}}}");
    let letter = NewLetter { kind: LetterKind::Outbox, source_id: id.to_string(), payload, error: error.to_owned(), attempts };
    put_letter(tx, &letter, now).await
}

/// Makes a task that was given up due at `now`, with all its attempts before it; says whether there was one.
pub(super) async fn retry_task(tx: &mut Transaction<'_, MySql>, id: u64, now: UnixMillis) -> Result<bool, Trouble> {
    let retried = sqlx::query("update outbox set state = 0, attempts = 0, next_at = ? where id = ? and state = 2")
        .bind(datetime(now))
        .bind(id)
        .execute(&mut **tx)
        .await?;
    Ok(retried.rows_affected() == 1)
}

/// Forgets a task that was given up.
pub(super) async fn drop_task(tx: &mut Transaction<'_, MySql>, id: u64) -> Result<(), Trouble> {
    sqlx::query("delete from outbox where id = ? and state = 2").bind(id).execute(&mut **tx).await?;
    Ok(())
}
