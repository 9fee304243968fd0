//! [`Roaming`] in memory: the latest messages of each session, and how far each had come.
//!
//! Bounds: [`ROAMING_MAX`] messages a session; sessions that were quiet for seven days are forgotten when the table has doubled since
//! the last sweep; of more than [`ROAMED_MAX`] sessions the table knows nothing, as a cache may. Called through the port only.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::chat::{MessageRecord, Position};
use gateway_core::id::SessionId;
use gateway_core::ports::{PortResult, ROAMING_MAX, Roaming};
use gateway_core::time::UnixMillis;

use crate::{Clock, lock};

/// Sessions remembered at most.
pub const ROAMED_MAX: usize = 20_000;

/// Sessions below this number are not worth a sweep.
const SWEEP_MIN: usize = 1_024;

/// How long a session is remembered after its latest message: the port's promise.
const REMEMBERED_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Roaming lists in memory.
pub struct EmbeddedRoaming {
    clock: Clock,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    sessions: HashMap<SessionId, Kept>,
    /// Sessions at which the next sweep is due.
    sweep_at: usize,
}

struct Kept {
    top: Position,
    forget_at: UnixMillis,
    /// Of one epoch, without a gap, oldest first.
    messages: VecDeque<MessageRecord>,
}

impl EmbeddedRoaming {
    /// Knows of no session; they are forgotten by `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, table: Mutex::default() }
    }
}

#[async_trait]
impl Roaming for EmbeddedRoaming {
    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<Option<Position>>> {
        let now = (self.clock)();
        let table = lock(&self.table);
        Ok(sessions.iter().map(|session| Some(table.known(*session, now)?.top)).collect())
    }

    async fn append(&self, messages: &[MessageRecord]) -> PortResult<()> {
        let now = (self.clock)();
        let mut table = lock(&self.table);
        table.sweep(now);
        for message in messages {
            if table.known(message.session, now).is_none() {
                table.sessions.remove(&message.session);
            }
            if table.sessions.len() < ROAMED_MAX || table.sessions.contains_key(&message.session) {
                table.sessions.entry(message.session).or_insert_with(Kept::nothing).append(message, now);
            }
        }
        Ok(())
    }

    async fn after(&self, session: SessionId, seq: u64, epoch: u32, limit: u32) -> PortResult<Option<Vec<MessageRecord>>> {
        let now = (self.clock)();
        let table = lock(&self.table);
        Ok(table.known(session, now).and_then(|kept| kept.after(seq, epoch, limit)))
    }
}

impl Table {
    fn known(&self, session: SessionId, now: UnixMillis) -> Option<&Kept> {
        self.sessions.get(&session).filter(|kept| kept.forget_at > now)
    }

    fn sweep(&mut self, now: UnixMillis) {
        if self.sessions.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.sessions.retain(|_, kept| kept.forget_at > now);
            self.sweep_at = self.sessions.len() * 2;
        }
    }
}

/// Positions in the order in which they were given out.
fn order(position: Position) -> (u32, u64) {
    (position.epoch, position.seq)
}

fn position(message: &MessageRecord) -> Position {
    Position { epoch: message.epoch, seq: message.seq }
}

impl Kept {
    fn nothing() -> Self {
        Self { top: Position { epoch: 0, seq: 0 }, forget_at: UnixMillis(0), messages: VecDeque::new() }
    }

    fn append(&mut self, message: &MessageRecord, now: UnixMillis) {
        let here = position(message);
        self.forget_at = now.plus(REMEMBERED_FOR);
        if order(here) > order(self.top) {
            self.top = here;
        }
        if let Some(last) = self.messages.back().map(position) {
            if order(here) <= order(last) {
                return;
            }
            if here.epoch != last.epoch || here.seq != last.seq + 1 {
                self.messages.clear();
            }
        }
        self.messages.push_back(message.clone());
        if self.messages.len() > ROAMING_MAX {
            self.messages.pop_front();
        }
        let named = message.takes_back();
        if let Some(named) = self.messages.iter_mut().find(|kept| Some(kept.seq) == named) {
            named.content.clear();
            named.recalled = true;
        }
    }

    fn after(&self, seq: u64, epoch: u32, limit: u32) -> Option<Vec<MessageRecord>> {
        let (first, last) = (self.messages.front()?, self.messages.back()?);
        let reaches = last.epoch == epoch && first.seq <= seq + 1 && seq <= last.seq && position(last) == self.top;
        let newer = self.messages.iter().filter(|message| message.seq > seq);
        reaches.then(|| newer.take(usize::try_from(limit).unwrap_or(usize::MAX)).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use gateway_core::chat::Side;
    use gateway_core::id::{ClientMsgId, PrincipalId};

    use super::*;

    #[tokio::test]
    async fn a_session_is_forgotten_seven_days_after_its_latest_message() {
        let now = Arc::new(AtomicU64::new(1));
        let hand = Arc::clone(&now);
        let roaming = EmbeddedRoaming::new(Arc::new(move || UnixMillis(hand.load(Ordering::Relaxed))));
        let message = |session, seq| MessageRecord {
            session: SessionId(session),
            epoch: 1,
            seq,
            side: Side::User,
            sender: PrincipalId::parse("u").expect("valid"),
            client_msg_id: ClientMsgId::parse("m").expect("valid"),
            kind: "text".into(),
            content: "hello".into(),
            recalled: false,
            bot: false,
            at: UnixMillis(1),
        };
        for session in 1..=SWEEP_MIN as u64 {
            roaming.append(&[message(session, 7)]).await.expect("append");
        }
        now.store(UnixMillis(1).plus(REMEMBERED_FOR).0, Ordering::Relaxed);
        assert_eq!(roaming.tops(&[SessionId(1)]).await.expect("tops"), [None]);
        assert_eq!(roaming.after(SessionId(1), 6, 1, 10).await.expect("after"), None);
        roaming.append(&[message(1, 8)]).await.expect("append");
        assert_eq!(roaming.after(SessionId(1), 6, 1, 10).await.expect("after"), None, "the list begins anew");
        assert_eq!(lock(&roaming.table).sessions.len(), 1, "the others are gone");
    }
}
