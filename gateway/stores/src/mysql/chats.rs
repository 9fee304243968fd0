//! The chat ledger: sessions, agents, leases, reading. Messages are written in `messages`.

use std::time::Duration;

use async_trait::async_trait;
use gateway_core::chat::{
    AgentLoad, Committed, Lease, MessageRecord, Page, Party, Position, ReadMark, Send as ChatSend, SessionRecord, Side,
};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use gateway_core::ports::{ChatLedger, PortResult};
use gateway_core::time::UnixMillis;
use sqlx::QueryBuilder;

use super::rows::read_principal;
use super::time::{datetime, day};
use super::{MysqlStore, Trouble};

macro_rules! select_sessions {
    ($rest:literal) => {
        concat!(
            "select id, session_no, shop_id, user_id, admin_id, subject, status, epoch, max_seq, user_seq, admin_seq, \
             cum_admin - user_seen, cum_user - admin_seen from chat_session ",
            $rest
        )
    };
}

type SessionRow = (u64, String, u64, String, Option<String>, String, u8, u32, u64, u64, u64, u64, u64);

#[async_trait]
impl ChatLedger for MysqlStore {
    async fn open_session(&self, shop: ShopId, user: &PrincipalId, subject: &str, now: UnixMillis) -> PortResult<SessionRecord> {
        self.transact("open a session", || self.find_or_create(shop, user, subject, now)).await
    }

    async fn upsert_agent(&self, shop: ShopId, agent: &PrincipalId) -> PortResult<()> {
        self.transact("register an agent", || self.write_agent(shop, agent)).await
    }

    async fn agents(&self, shop: ShopId) -> PortResult<Vec<AgentLoad>> {
        self.transact("list the agents", || self.read_agents(shop)).await
    }

    async fn waiting(&self, shop: ShopId) -> PortResult<Vec<SessionRecord>> {
        self.transact("list waiting sessions", || self.read_waiting(shop)).await
    }

    async fn assign(&self, session: SessionId, agent: &PrincipalId) -> PortResult<bool> {
        self.transact("assign a session", || self.write_assignment(session, agent)).await
    }

    async fn session(&self, party: &Party, session: SessionId) -> PortResult<Option<SessionRecord>> {
        self.transact("read a session", || self.read_session(party, session)).await
    }

    async fn sessions(&self, party: &Party, limit: u32) -> PortResult<Vec<SessionRecord>> {
        self.transact("list sessions", || self.read_sessions(party, limit)).await
    }

    async fn lease(&self, partition: u16, owner: &str, ttl: Duration) -> PortResult<Option<Lease>> {
        self.transact("lease a partition", || self.take_lease(partition, owner, ttl)).await
    }

    async fn commit(&self, lease: &Lease, sends: &[ChatSend], now: UnixMillis) -> PortResult<Vec<Committed>> {
        self.transact("commit messages", || self.write_messages(lease, sends, now)).await
    }

    async fn messages(&self, session: SessionId, page: Page) -> PortResult<Vec<MessageRecord>> {
        self.transact("read messages", || self.read_messages(session, page)).await
    }

    async fn mark_read(&self, session: SessionId, side: Side, seq: u64) -> PortResult<ReadMark> {
        self.transact("mark messages read", || self.move_cursor(session, side, seq)).await
    }

    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<(SessionId, Position)>> {
        self.transact("read the tops of sessions", || self.read_tops(sessions)).await
    }
}

impl MysqlStore {
    async fn find_or_create(&self, shop: ShopId, user: &PrincipalId, subject: &str, now: UnixMillis) -> Result<SessionRecord, Trouble> {
        const FIND: &str = select_sessions!("where shop_id = ? and user_id = ? and subject = ? and open_slot = 1");
        let mut tx = self.pool.begin().await?;
        let find = || sqlx::query_as::<_, SessionRow>(FIND).bind(shop.0).bind(user.as_str()).bind(subject);
        if let Some(row) = find().fetch_optional(&mut *tx).await? {
            return read_session(row);
        }
        // The counter's row is locked until the session exists, so numbers of a day have no gap. Two nodes that create the
        // same session meet at the unique key; the second tries again and finds it.
        let day = day(now);
        sqlx::query("insert into chat_day (day, sessions) values (?, 1) on duplicate key update sessions = sessions + 1")
            .bind(&day)
            .execute(&mut *tx)
            .await?;
        let (number,): (u32,) = sqlx::query_as("select sessions from chat_day where day = ?").bind(&day).fetch_one(&mut *tx).await?;
        sqlx::query("insert into chat_session (session_no, shop_id, user_id, subject, last_at, created_at) values (?, ?, ?, ?, ?, ?)")
            .bind(format!("CS{day}{number:03}"))
            .bind(shop.0)
            .bind(user.as_str())
            .bind(subject)
            .bind(datetime(now))
            .bind(datetime(now))
            .execute(&mut *tx)
            .await?;
        let row = find().fetch_one(&mut *tx).await?;
        tx.commit().await?;
        read_session(row)
    }

    async fn write_agent(&self, shop: ShopId, agent: &PrincipalId) -> Result<(), Trouble> {
        sqlx::query("insert into agent (shop_id, admin_id) values (?, ?) on duplicate key update admin_id = admin_id")
            .bind(shop.0)
            .bind(agent.as_str())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn read_agents(&self, shop: ShopId) -> Result<Vec<AgentLoad>, Trouble> {
        let rows: Vec<(String, u64, i64)> = sqlx::query_as(
            "select a.admin_id, cast(coalesce(sum(s.cum_user - s.admin_seen), 0) as unsigned), count(s.id) \
             from agent a left join chat_session s on s.shop_id = a.shop_id and s.admin_id = a.admin_id and s.status = 0 \
             where a.shop_id = ? group by a.admin_id order by a.admin_id limit 1000",
        )
        .bind(shop.0)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|(agent, unread, open)| Ok(AgentLoad { agent: read_principal(&agent)?, unread, open_sessions: open.unsigned_abs() }))
            .collect()
    }

    async fn read_waiting(&self, shop: ShopId) -> Result<Vec<SessionRecord>, Trouble> {
        let rows: Vec<SessionRow> =
            sqlx::query_as(select_sessions!("where shop_id = ? and admin_id is null and status = 0 order by id limit 100"))
                .bind(shop.0)
                .fetch_all(&self.pool)
                .await?;
        rows.into_iter().map(read_session).collect()
    }

    async fn write_assignment(&self, session: SessionId, agent: &PrincipalId) -> Result<bool, Trouble> {
        let assigned = sqlx::query(
            "update chat_session s set s.admin_id = ? where s.id = ? and s.status = 0 and s.admin_id is null \
             and exists (select 1 from agent a where a.shop_id = s.shop_id and a.admin_id = ?)",
        )
        .bind(agent.as_str())
        .bind(session.0)
        .bind(agent.as_str())
        .execute(&self.pool)
        .await?;
        Ok(assigned.rows_affected() == 1)
    }

    async fn read_session(&self, party: &Party, session: SessionId) -> Result<Option<SessionRecord>, Trouble> {
        let row: Option<SessionRow> = sqlx::query_as(select_sessions!("where id = ?")).bind(session.0).fetch_optional(&self.pool).await?;
        let session = row.map(read_session).transpose()?;
        Ok(session.filter(|session| belongs(party, session.shop, &session.user, session.agent.as_ref())))
    }

    async fn read_sessions(&self, party: &Party, limit: u32) -> Result<Vec<SessionRecord>, Trouble> {
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

    async fn take_lease(&self, partition: u16, owner: &str, ttl: Duration) -> Result<Option<Lease>, Trouble> {
        let ttl_us = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
        let mut tx = self.pool.begin().await?;
        // Everything by the database's clock: holders' clocks differ.
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

    async fn move_cursor(&self, session: SessionId, side: Side, seq: u64) -> Result<ReadMark, Trouble> {
        let (read, update) = match side {
            Side::User => (
                "select max_seq, user_seq, cum_admin, user_seen from chat_session where id = ? for update",
                "update chat_session set user_seq = ?, user_seen = ? where id = ?",
            ),
            Side::Agent => (
                "select max_seq, admin_seq, cum_user, admin_seen from chat_session where id = ? for update",
                "update chat_session set admin_seq = ?, admin_seen = ? where id = ?",
            ),
        };
        let mut tx = self.pool.begin().await?;
        let row: Option<(u64, u64, u64, u64)> = sqlx::query_as(read).bind(session.0).fetch_optional(&mut *tx).await?;
        let Some((top, cursor, theirs, seen)) = row else { return Ok(ReadMark::NotFound) };
        if seq > top {
            return Ok(ReadMark::OutOfRange);
        }
        if seq <= cursor {
            return Ok(ReadMark::At { seq: cursor, unread: theirs - seen });
        }
        let at = match side {
            Side::User => "select cum_admin from chat_message where session_id = ? and seq = ?",
            Side::Agent => "select cum_user from chat_message where session_id = ? and seq = ?",
        };
        let (seen,): (u64,) = sqlx::query_as(at).bind(session.0).bind(seq).fetch_one(&mut *tx).await?;
        sqlx::query(update).bind(seq).bind(seen).bind(session.0).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(ReadMark::At { seq, unread: theirs - seen })
    }

    async fn read_tops(&self, sessions: &[SessionId]) -> Result<Vec<(SessionId, Position)>, Trouble> {
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let mut select = QueryBuilder::new("select id, epoch, max_seq from chat_session where id in (");
        let mut list = select.separated(", ");
        for session in sessions {
            list.push_bind(session.0);
        }
        list.push_unseparated(")");
        let rows: Vec<(u64, u32, u64)> = select.build_query_as().fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|(id, epoch, seq)| (SessionId(id), Position { epoch, seq })).collect())
    }
}

/// Whether a party takes part in a session: its user, or the agent who serves it, of its shop.
pub(super) fn belongs(party: &Party, shop: ShopId, user: &PrincipalId, agent: Option<&PrincipalId>) -> bool {
    match party.side {
        Side::User => party.id == *user,
        Side::Agent => party.shop == Some(shop) && agent == Some(&party.id),
    }
}

fn read_session(row: SessionRow) -> Result<SessionRecord, Trouble> {
    let (id, no, shop, user, agent, subject, status, epoch, seq, user_seq, agent_seq, user_unread, agent_unread) = row;
    Ok(SessionRecord {
        id: SessionId(id),
        no,
        shop: ShopId(shop),
        user: read_principal(&user)?,
        agent: agent.as_deref().map(read_principal).transpose()?,
        subject,
        open: status == 0,
        top: Position { epoch, seq },
        user_seq,
        agent_seq,
        user_unread,
        agent_unread,
    })
}
