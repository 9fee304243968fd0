//! [`Notices`] in memory: the latest notices of each party.
//!
//! Bounds: [`NOTICES_MAX`] notices a party; parties that heard nothing for seven days are forgotten when the table has doubled
//! since the last sweep; more than [`NOTIFIED_MAX`] parties are refused. Called through the port only.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use gateway_core::chat::Party;
use gateway_core::ports::{NOTICES_MAX, Notices, PortResult, Store};
use gateway_core::time::UnixMillis;

use crate::{Clock, full, lock};

/// Parties remembered at most.
pub const NOTIFIED_MAX: usize = 1_000_000;

/// Parties below this number are not worth a sweep.
const SWEEP_MIN: usize = 1_024;

/// How long a party is remembered after its latest notice: the port's promise.
const REMEMBERED_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Notices in memory.
pub struct EmbeddedNotices {
    clock: Clock,
    table: Mutex<Table>,
}

struct Table {
    parties: HashMap<Party, Kept>,
    /// Parties at which the next sweep is due.
    sweep_at: usize,
}

#[derive(Default)]
struct Kept {
    last: u64,
    forget_at: UnixMillis,
    /// Number, key and words, oldest first.
    notices: VecDeque<(u64, String, Bytes)>,
}

impl EmbeddedNotices {
    /// Nobody was told anything; parties are forgotten by `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, table: Mutex::new(Table { parties: HashMap::new(), sweep_at: SWEEP_MIN }) }
    }
}

#[async_trait]
impl Notices for EmbeddedNotices {
    async fn append(&self, to: &Party, key: &str, notice: Bytes) -> PortResult<u64> {
        let now = (self.clock)();
        let mut table = lock(&self.table);
        table.sweep(now);
        if table.parties.len() >= NOTIFIED_MAX && !table.parties.contains_key(to) {
            return Err(full(Store::Redis, "append a notice"));
        }
        let kept = table.parties.entry(to.clone()).or_default();
        if kept.forget_at <= now {
            *kept = Kept::default();
        }
        if let Some((number, _, _)) = kept.notices.iter().find(|(_, known, _)| known == key) {
            return Ok(*number);
        }
        kept.last += 1;
        kept.forget_at = now.plus(REMEMBERED_FOR);
        kept.notices.push_back((kept.last, key.to_owned(), notice));
        if kept.notices.len() > NOTICES_MAX {
            kept.notices.pop_front();
        }
        Ok(kept.last)
    }

    async fn since(&self, party: &Party, after: u64) -> PortResult<Vec<(u64, Bytes)>> {
        let now = (self.clock)();
        let table = lock(&self.table);
        let kept = table.parties.get(party).filter(|kept| kept.forget_at > now);
        let newer = kept.into_iter().flat_map(|kept| &kept.notices).filter(|(number, _, _)| *number > after);
        Ok(newer.map(|(number, _, notice)| (*number, notice.clone())).collect())
    }
}

impl Table {
    fn sweep(&mut self, now: UnixMillis) {
        if self.parties.len() >= self.sweep_at {
            self.parties.retain(|_, kept| kept.forget_at > now);
            self.sweep_at = (self.parties.len() * 2).max(SWEEP_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use gateway_core::id::PrincipalId;

    use super::*;

    fn party(n: u64) -> Party {
        Party::user(PrincipalId::parse(&format!("u{n}")).expect("valid"))
    }

    #[tokio::test]
    async fn a_party_is_forgotten_seven_days_after_its_latest_notice() {
        let now = Arc::new(AtomicU64::new(1));
        let hand = Arc::clone(&now);
        let notices = EmbeddedNotices::new(Arc::new(move || UnixMillis(hand.load(Ordering::Relaxed))));
        for n in 1..=SWEEP_MIN as u64 {
            assert_eq!(notices.append(&party(n), "k", Bytes::new()).await.expect("append"), 1);
        }
        now.store(UnixMillis(1).plus(REMEMBERED_FOR).0, Ordering::Relaxed);
        assert_eq!(notices.since(&party(1), 0).await.expect("since"), []);
        assert_eq!(notices.append(&party(1), "other", Bytes::new()).await.expect("append"), 1, "numbers begin again");
        assert_eq!(lock(&notices.table).parties.len(), 1, "the others are gone");
    }
}
