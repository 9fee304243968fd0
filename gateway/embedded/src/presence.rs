//! [`Presence`] in memory: the expiry of each connection's last heartbeat.
//!
//! Bounds: connections that expired are forgotten when the table has doubled since the last sweep, so it stays within
//! twice what was online at once. Called through the port only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use async_trait::async_trait;
use gateway_core::chat::Party;
use gateway_core::ports::{PortResult, Presence};
use gateway_core::time::UnixMillis;

use crate::{Clock, lock};

/// Parties below this number are not worth a sweep.
const SWEEP_MIN: usize = 1_024;

/// Open connections in memory.
pub struct EmbeddedPresence {
    clock: Clock,
    table: Mutex<Table>,
}

struct Table {
    connections: HashMap<Party, BTreeMap<String, UnixMillis>>,
    /// Parties at which the next sweep is due.
    sweep_at: usize,
}

impl EmbeddedPresence {
    /// Nobody is online. `clock` only decides what may be forgotten.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, table: Mutex::new(Table { connections: HashMap::new(), sweep_at: SWEEP_MIN }) }
    }
}

#[async_trait]
impl Presence for EmbeddedPresence {
    async fn beat(&self, who: &Party, connection: &str, until: UnixMillis) -> PortResult<()> {
        let now = (self.clock)();
        let mut table = lock(&self.table);
        let connections = table.connections.entry(who.clone()).or_default();
        connections.retain(|_, until| *until > now);
        connections.insert(connection.to_owned(), until);
        table.sweep(now);
        Ok(())
    }

    async fn leave(&self, who: &Party, connection: &str) -> PortResult<()> {
        let mut table = lock(&self.table);
        if let Some(connections) = table.connections.get_mut(who) {
            connections.remove(connection);
            if connections.is_empty() {
                table.connections.remove(who);
            }
        }
        Ok(())
    }

    async fn online(&self, who: &[Party], now: UnixMillis) -> PortResult<Vec<bool>> {
        let table = lock(&self.table);
        let online = |who| table.connections.get(who).is_some_and(|connections| connections.values().any(|until| *until > now));
        Ok(who.iter().map(online).collect())
    }
}

impl Table {
    fn sweep(&mut self, now: UnixMillis) {
        if self.connections.len() < self.sweep_at {
            return;
        }
        self.connections.retain(|_, connections| {
            connections.retain(|_, until| *until > now);
            !connections.is_empty()
        });
        self.sweep_at = (self.connections.len() * 2).max(SWEEP_MIN);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use gateway_core::id::PrincipalId;

    use super::*;

    #[tokio::test]
    async fn expired_parties_are_forgotten() {
        let now = Arc::new(AtomicU64::new(0));
        let hand = Arc::clone(&now);
        let presence = EmbeddedPresence::new(Arc::new(move || UnixMillis(hand.load(Ordering::Relaxed))));
        for n in 0..10 * SWEEP_MIN as u64 {
            now.store(n, Ordering::Relaxed);
            let who = Party::user(PrincipalId::parse(&format!("u{n}")).expect("valid"));
            presence.beat(&who, "c", UnixMillis(n + 10)).await.expect("beat");
        }
        assert!(lock(&presence.table).connections.len() <= SWEEP_MIN);
    }
}
