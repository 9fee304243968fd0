//! Sessions: opening, closing, finding them.
//!
//! What never happens here: an answer that tells somebody else's session from one that does not exist; both are read by the
//! same statement and judged afterwards.

use gateway_core::chat::{Clocks, Party, Position, SessionRecord, Side};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, Transaction};

use super::super::json::Rows;
use super::super::rows::read_principal;
use super::super::time::{datetime, day};
use super::super::{MysqlStore, Trouble};
use super::belongs;

/// Sessions in one list of those that wait (the port's word).
const WAITING_MAX: u32 = 100;

/// Shops in one list of those with a waiting line (the port's word).
const SHOPS_MAX: u32 = 1_000;

macro_rules! select_sessions {
    ($rest:literal) => {
        concat!(
            "select id, session_no, shop_id, user_id, admin_id, subject, status, epoch, max_seq, user_seq, admin_seq, user_received, \
             admin_received, cum_admin - user_seen - user_recalled as user_unread, cum_user - admin_seen - admin_recalled as admin_unread, ",
            $crate::mysql::time::millis!("created_at"),
            " as opened, ",
            $crate::mysql::time::millis!("waiting_since"),
            " as waiting, ",
            $crate::mysql::time::millis!("asked_at"),
            " as asked, ",
            $crate::mysql::time::millis!("answered_at"),
            " as answered, ",
            $crate::mysql::time::millis!("closed_at"),
            " as closed from chat_session ",
            $rest
        )
    };
}
pub(super) use select_sessions;

#[derive(sqlx::FromRow)]
pub(super) struct SessionRow {
    id: u64,
    session_no: String,
    shop_id: u64,
    user_id: String,
    admin_id: Option<String>,
    subject: String,
    status: u8,
    epoch: u32,
    max_seq: u64,
    user_seq: u64,
    admin_seq: u64,
    user_received: u64,
    admin_received: u64,
    user_unread: u64,
    admin_unread: u64,
    opened: u64,
    waiting: Option<u64>,
    asked: Option<u64>,
    answered: Option<u64>,
    closed: Option<u64>,
}

impl MysqlStore {
    pub(super) async fn find_or_create(
        &self,
        shop: ShopId,
        user: &PrincipalId,
        subject: &str,
        now: UnixMillis,
    ) -> Result<SessionRecord, Trouble> {
        const FIND: &str = select_sessions!("where shop_id = ? and user_id = ? and subject = ? and open_slot = 1");
        let mut tx = self.pool.begin().await?;
        let find = || sqlx::query_as::<_, SessionRow>(FIND).bind(shop.0).bind(user.as_str()).bind(subject);
        if let Some(row) = find().fetch_optional(&mut *tx).await? {
            return read_session(row);
        }
        // The counter's row is locked until the session exists, so numbers of a day have no gap. Two nodes that create the
        // same session meet at the unique key; the second tries again and finds it.
        let (day, at) = (day(now), datetime(now));
        sqlx::query("insert into chat_day (day, sessions) values (?, 1) on duplicate key update sessions = sessions + 1")
            .bind(&day)
            .execute(&mut *tx)
            .await?;
        let (number,): (u32,) = sqlx::query_as("select sessions from chat_day where day = ?").bind(&day).fetch_one(&mut *tx).await?;
        sqlx::query(
            "insert into chat_session (session_no, epoch, shop_id, user_id, subject, last_at, created_at, waiting_since) \
             values (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(format!("CS{day}{number:03}"))
        .bind(first_epoch(now))
        .bind(shop.0)
        .bind(user.as_str())
        .bind(subject)
        .bind(&at)
        .bind(&at)
        .bind(&at)
        .execute(&mut *tx)
        .await?;
        let row = find().fetch_one(&mut *tx).await?;
        tx.commit().await?;
        read_session(row)
    }

    pub(super) async fn write_closed(
        &self,
        party: &Party,
        session: SessionId,
        now: UnixMillis,
    ) -> Result<Option<(SessionRecord, bool)>, Trouble> {
        let mut tx = self.pool.begin().await?;
        let record = lock_session(&mut tx, session).await?;
        let own = |session: &SessionRecord| belongs(party, session.shop, &session.user, session.agent.as_ref());
        let Some(mut record) = record.filter(own) else { return Ok(None) };
        if !record.open {
            return Ok(Some((record, false)));
        }
        sqlx::query("update chat_session set status = 1, open_slot = null, closed_at = ?, waiting_since = null where id = ?")
            .bind(datetime(now))
            .bind(session.0)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        record.open = false;
        record.clocks = Clocks { waiting_since: None, closed_at: Some(now), ..record.clocks };
        Ok(Some((record, true)))
    }

    pub(super) async fn read_session(&self, party: &Party, session: SessionId) -> Result<Option<SessionRecord>, Trouble> {
        let row: Option<SessionRow> = sqlx::query_as(select_sessions!("where id = ?")).bind(session.0).fetch_optional(&self.pool).await?;
        let session = row.map(read_session).transpose()?;
        Ok(session.filter(|session| {
            let waits = session.open && session.agent.is_none() && party.side == Side::Agent && party.shop == Some(session.shop);
            waits || belongs(party, session.shop, &session.user, session.agent.as_ref())
        }))
    }

    pub(super) async fn read_sessions(&self, party: &Party, limit: u32) -> Result<Vec<SessionRecord>, Trouble> {
        let rows: Vec<SessionRow> = match (party.side, party.shop) {
            (Side::User, _) => {
                sqlx::query_as(select_sessions!("where user_id = ? and status = 0 order by last_at desc, id desc limit ?"))
                    .bind(party.id.as_str())
                    .bind(limit)
                    .fetch_all(&self.pool)
                    .await?
            }
            (Side::Agent, Some(shop)) => {
                sqlx::query_as(select_sessions!("where shop_id = ? and admin_id = ? and status = 0 order by last_at desc, id desc limit ?"))
                    .bind(shop.0)
                    .bind(party.id.as_str())
                    .bind(limit)
                    .fetch_all(&self.pool)
                    .await?
            }
            (Side::Agent, None) => Vec::new(),
        };
        rows.into_iter().map(read_session).collect()
    }

    pub(super) async fn read_waiting(&self, shop: ShopId) -> Result<Vec<SessionRecord>, Trouble> {
        let rows: Vec<SessionRow> =
            sqlx::query_as(select_sessions!("where shop_id = ? and waiting_since is not null order by waiting_since, id limit ?"))
                .bind(shop.0)
                .bind(WAITING_MAX)
                .fetch_all(&self.pool)
                .await?;
        rows.into_iter().map(read_session).collect()
    }

    pub(super) async fn count_waiting(&self, shop: ShopId) -> Result<u64, Trouble> {
        let (count,): (i64,) = sqlx::query_as("select count(*) from chat_session where shop_id = ? and waiting_since is not null")
            .bind(shop.0)
            .fetch_one(&self.pool)
            .await?;
        Ok(count.unsigned_abs())
    }

    pub(super) async fn read_shops_waiting(&self) -> Result<Vec<ShopId>, Trouble> {
        let rows: Vec<(u64,)> = sqlx::query_as("select distinct shop_id from chat_session where waiting_since is not null limit ?")
            .bind(SHOPS_MAX)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(|(shop,)| ShopId(shop)).collect())
    }

    pub(super) async fn read_tops(&self, sessions: &[SessionId]) -> Result<Vec<(SessionId, Position)>, Trouble> {
        let rows: Vec<(u64, u32, u64)> = sqlx::query_as(
            "select s.id, s.epoch, s.max_seq from json_table(?, '$[*]' columns (id bigint unsigned path '$[0]')) n \
             straight_join chat_session s force index (primary) on s.id = n.id",
        )
        .bind(Rows::of(sessions, |row, session| row.number(session.0)))
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|(id, epoch, seq)| (SessionId(id), Position { epoch, seq })).collect())
    }
}

/// The session, locked until the transaction ends.
pub(super) async fn lock_session(tx: &mut Transaction<'_, MySql>, session: SessionId) -> Result<Option<SessionRecord>, Trouble> {
    let row: Option<SessionRow> =
        sqlx::query_as(select_sessions!("where id = ? for update")).bind(session.0).fetch_optional(&mut **tx).await?;
    row.map(read_session).transpose()
}

pub(super) fn read_session(row: SessionRow) -> Result<SessionRecord, Trouble> {
    Ok(SessionRecord {
        id: SessionId(row.id),
        no: row.session_no,
        shop: ShopId(row.shop_id),
        user: read_principal(&row.user_id)?,
        agent: row.admin_id.as_deref().map(read_principal).transpose()?,
        subject: row.subject,
        open: row.status == 0,
        top: Position { epoch: row.epoch, seq: row.max_seq },
        user_seq: row.user_seq,
        agent_seq: row.admin_seq,
        user_received: row.user_received,
        agent_received: row.admin_received,
        user_unread: row.user_unread,
        agent_unread: row.admin_unread,
        clocks: Clocks {
            opened_at: UnixMillis(row.opened),
            waiting_since: row.waiting.map(UnixMillis),
            asked_at: row.asked.map(UnixMillis),
            answered_at: row.answered.map(UnixMillis),
            closed_at: row.closed.map(UnixMillis),
        },
    })
}

/// The first epoch of a session: the second in which it was opened. A database that lost the latest sessions gives their ids out
/// again, and what is remembered elsewhere of the former one is then of an earlier epoch, which is nobody's.
fn first_epoch(now: UnixMillis) -> u32 {
    u32::try_from(now.0 / 1_000).unwrap_or(u32::MAX / 2).max(1)
}
