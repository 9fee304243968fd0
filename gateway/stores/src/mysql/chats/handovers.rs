//! Sessions changing hands: decided with the session's row and the receiving agent's row locked, and written down.
//!
//! Whoever gives an agent a session holds the agent's row, so the count of its open sessions stands still meanwhile, unless
//! one is closed. What never happens here: choosing an agent.

use gateway_core::chat::{Handover, HandoverOutcome, HandoverRecord, Reason};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, Transaction};

use super::super::rows::read_principal;
use super::super::time::{datetime, millis};
use super::super::{MysqlStore, Trouble};
use super::sessions::lock_session;

/// Letters of a handover's detail that the column holds; what is longer is cut, for a handover must not fail over its reason.
const DETAIL_LETTERS_MAX: usize = 2_000;

/// Handovers in one list (the port's word).
const LISTED_MAX: u32 = 100;

/// From, to, reason, detail, when.
type HandoverRow = (Option<String>, Option<String>, String, String, u64);

impl MysqlStore {
    pub(super) async fn write_handover(&self, handover: &Handover, now: UnixMillis) -> Result<HandoverOutcome, Trouble> {
        let mut tx = self.pool.begin().await?;
        let session = lock_session(&mut tx, handover.session).await?;
        let Some(mut session) = session.filter(|session| session.open && session.agent == handover.from) else {
            return Ok(HandoverOutcome::Changed);
        };
        if let Some(to) = &handover.to {
            let Some(wanted) = lock_agent(&mut tx, session.shop, to).await? else { return Ok(HandoverOutcome::NoSuchAgent) };
            if let Some(limit) = handover.open_max {
                let room = wanted.unwrap_or(limit).min(limit);
                if other_sessions(&mut tx, session.shop, to, session.id).await? >= u64::from(room) {
                    return Ok(HandoverOutcome::Full);
                }
            }
        }
        session.agent.clone_from(&handover.to);
        session.clocks.waiting_since = if handover.to.is_some() { None } else { session.clocks.waiting_since.or(Some(now)) };
        sqlx::query("update chat_session set admin_id = ?, waiting_since = ? where id = ?")
            .bind(handover.to.as_ref().map(PrincipalId::as_str))
            .bind(session.clocks.waiting_since.map(datetime))
            .bind(session.id.0)
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "insert into chat_handover (session_id, shop_id, from_admin, to_admin, reason, detail, created_at) values (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(session.id.0)
        .bind(session.shop.0)
        .bind(handover.from.as_ref().map(PrincipalId::as_str))
        .bind(handover.to.as_ref().map(PrincipalId::as_str))
        .bind(handover.reason.as_str())
        .bind(handover.detail.chars().take(DETAIL_LETTERS_MAX).collect::<String>())
        .bind(datetime(now))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(HandoverOutcome::Done(Box::new(session)))
    }

    pub(super) async fn read_handovers(&self, session: SessionId) -> Result<Vec<HandoverRecord>, Trouble> {
        // The shop is what the index begins with.
        let mut rows: Vec<HandoverRow> = sqlx::query_as(concat!(
            "select from_admin, to_admin, reason, detail, ",
            millis!("created_at"),
            " from chat_handover where shop_id = (select shop_id from chat_session where id = ?) and session_id = ? \
             order by id desc limit ?"
        ))
        .bind(session.0)
        .bind(session.0)
        .bind(LISTED_MAX)
        .fetch_all(&self.pool)
        .await?;
        rows.reverse();
        rows.into_iter()
            .map(|(from, to, reason, detail, at)| {
                let agent = |id: Option<String>| id.map(|id| read_principal(&id)).transpose();
                let reason = Reason::parse(&reason).ok_or(Trouble::Damaged("the reason of a handover"))?;
                Ok(HandoverRecord { from: agent(from)?, to: agent(to)?, reason, detail, at: UnixMillis(at) })
            })
            .collect()
    }
}

/// How many open sessions the agent wants, if it is one of the shop.
async fn lock_agent(tx: &mut Transaction<'_, MySql>, shop: ShopId, agent: &PrincipalId) -> Result<Option<Option<u32>>, Trouble> {
    let row: Option<(Option<u32>,)> = sqlx::query_as("select open_max from agent where shop_id = ? and admin_id = ? for update")
        .bind(shop.0)
        .bind(agent.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    Ok(row.map(|(open_max,)| open_max))
}

/// Open sessions of an agent besides this one.
async fn other_sessions(tx: &mut Transaction<'_, MySql>, shop: ShopId, agent: &PrincipalId, besides: SessionId) -> Result<u64, Trouble> {
    let (open,): (i64,) = sqlx::query_as("select count(*) from chat_session where shop_id = ? and admin_id = ? and status = 0 and id <> ?")
        .bind(shop.0)
        .bind(agent.as_str())
        .bind(besides.0)
        .fetch_one(&mut **tx)
        .await?;
    Ok(open.unsigned_abs())
}
