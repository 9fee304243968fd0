//! Cursors: how far each side and each of its devices has come.
//!
//! Unread messages of a side are those the other side has sent, less those up to its cursor, less those above it that were
//! taken back. All three are counters of the session's row, moved with the row locked; the last is corrected here by counting
//! what the cursor passes over, which it does once. What never happens here: a cursor moving back.

use gateway_core::chat::{Cursor, DeviceCursor, Mark, MarkOutcome, Party, Side};
use gateway_core::id::{DeviceId, SessionId, ShopId};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, Transaction};

use super::super::rows::read_principal;
use super::super::time::datetime;
use super::super::{MysqlStore, Trouble};
use super::{belongs, read_side, side_number};

/// Devices kept of one session; beyond, the one that was quiet longest is forgotten (the port lists as many).
const DEVICES_MAX: u32 = 100;

/// What a side's cursors are called, and what counts the other side's messages.
struct Columns {
    /// The session, its top and the cursors: read, received, sent by the other side, seen and taken back of those.
    lock: &'static str,
    /// Moves them: read, received, seen, taken back.
    update: &'static str,
    /// What the other side had sent up to a place. The row at that very place may have been lost in a failover.
    sent: &'static str,
}

const USER: Columns = Columns {
    lock: "select shop_id, user_id, admin_id, max_seq, user_seq, user_received, cum_admin, user_seen, user_recalled \
           from chat_session where id = ? for update",
    update: "update chat_session set user_seq = ?, user_received = ?, user_seen = ?, user_recalled = ? where id = ?",
    sent: "select cum_admin from chat_message where session_id = ? and seq <= ? order by seq desc limit 1",
};

const AGENT: Columns = Columns {
    lock: "select shop_id, user_id, admin_id, max_seq, admin_seq, admin_received, cum_user, admin_seen, admin_recalled \
           from chat_session where id = ? for update",
    update: "update chat_session set admin_seq = ?, admin_received = ?, admin_seen = ?, admin_recalled = ? where id = ?",
    sent: "select cum_user from chat_message where session_id = ? and seq <= ? order by seq desc limit 1",
};

impl MysqlStore {
    pub(super) async fn move_cursor(&self, mark: &Mark, now: UnixMillis) -> Result<MarkOutcome, Trouble> {
        type Row = (u64, String, Option<String>, u64, u64, u64, u64, u64, u64);
        let side = mark.reader.side;
        let columns = match side {
            Side::User => USER,
            Side::Agent => AGENT,
        };
        let mut tx = self.pool.begin().await?;
        let row: Option<Row> = sqlx::query_as(columns.lock).bind(mark.session.0).fetch_optional(&mut *tx).await?;
        let Some((shop, user, agent, top, read, received, sent, mut seen, mut recalled)) = row else { return Ok(MarkOutcome::NotFound) };
        let agent = agent.as_deref().map(read_principal).transpose()?;
        if !belongs(&mark.reader, ShopId(shop), &read_principal(&user)?, agent.as_ref()) {
            return Ok(MarkOutcome::NotFound);
        }
        if mark.seq > top {
            return Ok(MarkOutcome::OutOfRange);
        }
        let (read_to, received_to) = match mark.cursor {
            Cursor::Read => (read.max(mark.seq), received.max(mark.seq)),
            Cursor::Received => (read, received.max(mark.seq)),
        };
        if read_to > read {
            let last: Option<(u64,)> = sqlx::query_as(columns.sent).bind(mark.session.0).bind(read_to).fetch_optional(&mut *tx).await?;
            seen = last.map_or(0, |(seen,)| seen);
            if recalled > 0 {
                recalled -= recalled_between(&mut tx, mark.session, side.other(), read, read_to).await?;
            }
        }
        if (read_to, received_to) != (read, received) {
            let update = sqlx::query(columns.update).bind(read_to).bind(received_to).bind(seen).bind(recalled);
            update.bind(mark.session.0).execute(&mut *tx).await?;
        }
        if let Some(device) = &mark.device {
            move_device(&mut tx, mark, device, &datetime(now)).await?;
        }
        tx.commit().await?;
        let seq = match mark.cursor {
            Cursor::Read => read_to,
            Cursor::Received => received_to,
        };
        Ok(MarkOutcome::At { seq, unread: sent - seen - recalled })
    }

    pub(super) async fn read_devices(&self, session: SessionId) -> Result<Vec<DeviceCursor>, Trouble> {
        let rows: Vec<(u8, String, String, u64, u64)> = sqlx::query_as(
            "select d.side, d.party_id, d.device_id, d.received_seq, d.read_seq from chat_device d \
             join chat_session s on s.id = d.session_id and d.party_id = if(d.side = 0, s.user_id, s.admin_id) \
             where d.session_id = ? order by d.side, d.party_id, d.device_id limit ?",
        )
        .bind(session.0)
        .bind(DEVICES_MAX)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|(side, party, device, received, read)| {
                let device = DeviceId::parse(&device).map_err(|_| Trouble::Damaged("a device id"))?;
                Ok(DeviceCursor { side: read_side(side)?, party: read_principal(&party)?, device, received, read })
            })
            .collect()
    }
}

/// Messages of `side` after `from`, up to `to`, that were taken back.
async fn recalled_between(tx: &mut Transaction<'_, MySql>, session: SessionId, side: Side, from: u64, to: u64) -> Result<u64, Trouble> {
    let (count,): (i64,) = sqlx::query_as(
        "select count(*) from chat_message where session_id = ? and seq > ? and seq <= ? and side = ? and recalled_by is not null",
    )
    .bind(session.0)
    .bind(from)
    .bind(to)
    .bind(side_number(side))
    .fetch_one(&mut **tx)
    .await?;
    Ok(count.unsigned_abs())
}

async fn move_device(tx: &mut Transaction<'_, MySql>, mark: &Mark, device: &DeviceId, now: &str) -> Result<(), Trouble> {
    let Party { side, id, .. } = &mark.reader;
    let (received, read) = match mark.cursor {
        Cursor::Read => (mark.seq, mark.seq),
        Cursor::Received => (mark.seq, 0),
    };
    // A device that is known, which is nearly every time. The server counts the rows it found, changed or not; one that does
    // not change costs no write.
    let known = sqlx::query(
        "update chat_device set changed_at = if(received_seq < ? or read_seq < ?, ?, changed_at), \
         received_seq = greatest(received_seq, ?), read_seq = greatest(read_seq, ?) \
         where session_id = ? and side = ? and party_id = ? and device_id = ?",
    )
    .bind(received)
    .bind(read)
    .bind(now)
    .bind(received)
    .bind(read)
    .bind(mark.session.0)
    .bind(side_number(*side))
    .bind(id.as_str())
    .bind(device.as_str())
    .execute(&mut **tx)
    .await?;
    if known.rows_affected() > 0 {
        return Ok(());
    }
    let (devices,): (i64,) =
        sqlx::query_as("select count(*) from chat_device where session_id = ?").bind(mark.session.0).fetch_one(&mut **tx).await?;
    if devices >= i64::from(DEVICES_MAX) {
        sqlx::query("delete from chat_device where session_id = ? order by changed_at limit 1")
            .bind(mark.session.0)
            .execute(&mut **tx)
            .await?;
    }
    sqlx::query(
        "insert into chat_device (session_id, side, party_id, device_id, received_seq, read_seq, changed_at) values (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(mark.session.0)
    .bind(side_number(*side))
    .bind(id.as_str())
    .bind(device.as_str())
    .bind(received)
    .bind(read)
    .bind(now)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
