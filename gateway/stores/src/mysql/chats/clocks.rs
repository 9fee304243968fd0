//! Clocks that run too long, each told once. `messages` starts and stops them.
//!
//! Rows that somebody is writing are skipped: they come up the next time, and nobody waits for anybody.

use gateway_core::chat::SessionRecord;
use gateway_core::chat::sla::{Clock, Targets};
use gateway_core::time::UnixMillis;

use super::super::json::Rows;
use super::super::time::datetime;
use super::super::{MysqlStore, Trouble};
use super::sessions::{SessionRow, read_session, select_sessions};

/// Clocks in one call (the port's word).
const OVERDUE_MAX: u32 = 100;

/// The bits of `overdue_told` that speak of the two response clocks: gone when one of them starts.
pub(super) const RESPONSE_BITS: u8 = told_bit(Clock::FirstResponse) | told_bit(Clock::NextResponse);

/// The bit of `overdue_told` that says a clock's overrun was told.
const fn told_bit(clock: Clock) -> u8 {
    match clock {
        Clock::FirstResponse => 1,
        Clock::NextResponse => 2,
        Clock::Resolution => 4,
    }
}

/// Open sessions with a clock started before an instant and not told. The lists are the values of `overdue_told` without the
/// clock's bit, so that an index leads to what is new.
const fn overdue(clock: Clock) -> &'static str {
    match clock {
        Clock::FirstResponse => select_sessions!(
            "force index (ix_chat_session_asked) where status = 0 and overdue_told in (0, 2, 4, 6) and asked_at < ? and answered_at is null \
             order by asked_at, id limit ? for update skip locked"
        ),
        Clock::NextResponse => select_sessions!(
            "force index (ix_chat_session_asked) where status = 0 and overdue_told in (0, 1, 4, 5) and asked_at < ? and answered_at is not null \
             order by asked_at, id limit ? for update skip locked"
        ),
        Clock::Resolution => select_sessions!(
            "force index (ix_chat_session_opened) where status = 0 and overdue_told in (0, 1, 2, 3) and created_at < ? \
             order by created_at, id limit ? for update skip locked"
        ),
    }
}

impl MysqlStore {
    pub(super) async fn mark_overdue(&self, targets: &Targets, now: UnixMillis, max: u32) -> Result<Vec<(SessionRecord, Clock)>, Trouble> {
        let max = max.min(OVERDUE_MAX);
        let mut tx = self.pool.begin().await?;
        let mut taken: Vec<(SessionRecord, Clock)> = Vec::new();
        for clock in Clock::ALL {
            let left = max.saturating_sub(u32::try_from(taken.len()).unwrap_or(max));
            let Some(target) = targets.of(clock).filter(|_| left > 0) else { continue };
            let Some(before) = now.0.checked_sub(u64::try_from(target.as_millis()).unwrap_or(u64::MAX)) else { continue };
            let rows: Vec<SessionRow> =
                sqlx::query_as(overdue(clock)).bind(datetime(UnixMillis(before))).bind(left).fetch_all(&mut *tx).await?;
            if rows.is_empty() {
                continue;
            }
            let sessions: Vec<SessionRecord> = rows.into_iter().map(read_session).collect::<Result<_, _>>()?;
            sqlx::query(
                "update json_table(?, '$[*]' columns (id bigint unsigned path '$[0]')) n \
                 straight_join chat_session s force index (primary) on s.id = n.id set s.overdue_told = s.overdue_told | ?",
            )
            .bind(Rows::of(&sessions, |row, session| row.number(session.id.0)))
            .bind(told_bit(clock))
            .execute(&mut *tx)
            .await?;
            taken.extend(sessions.into_iter().map(|session| (session, clock)));
        }
        tx.commit().await?;
        Ok(taken)
    }
}
