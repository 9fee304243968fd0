//! [`Nonces`] in memory: what each party used, and until when that is remembered.
//!
//! Bounds: [`NONCES_MAX`] values a party; parties all of whose values are forgotten go when the table has doubled since the last
//! sweep; more than [`USERS_OF_NONCES_MAX`] parties are refused. Called through the port only.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use async_trait::async_trait;
use gateway_core::chat::Party;
use gateway_core::ports::{NONCES_MAX, Nonces, PortResult, Store};
use gateway_core::time::UnixMillis;

use crate::{full, lock};

/// Parties remembered at most.
pub const USERS_OF_NONCES_MAX: usize = 100_000;

/// Parties below this number are not worth a sweep.
const SWEEP_MIN: usize = 1_024;

/// Used values in memory.
#[derive(Default)]
pub struct EmbeddedNonces {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    parties: HashMap<Party, Used>,
    /// Parties at which the next sweep is due.
    sweep_at: usize,
}

/// What one party used.
#[derive(Default)]
struct Used {
    until: HashMap<String, UnixMillis>,
    /// The same, by when they are forgotten.
    order: BTreeSet<(UnixMillis, String)>,
}

impl EmbeddedNonces {
    /// Nothing was used yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Nonces for EmbeddedNonces {
    async fn first_use(&self, party: &Party, nonce: &str, now: UnixMillis, until: UnixMillis) -> PortResult<bool> {
        let mut table = lock(&self.table);
        table.sweep(now);
        if table.parties.len() >= USERS_OF_NONCES_MAX && !table.parties.contains_key(party) {
            return Err(full(Store::Redis, "use a nonce up"));
        }
        let used = table.parties.entry(party.clone()).or_default();
        used.forget(now);
        if used.until.contains_key(nonce) {
            return Ok(false);
        }
        used.until.insert(nonce.to_owned(), until);
        used.order.insert((until, nonce.to_owned()));
        if used.order.len() > NONCES_MAX {
            used.forget_first();
        }
        Ok(true)
    }
}

impl Used {
    fn forget(&mut self, now: UnixMillis) {
        while self.order.first().is_some_and(|(until, _)| *until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, nonce)) = self.order.pop_first() {
            self.until.remove(&nonce);
        }
    }
}

impl Table {
    fn sweep(&mut self, now: UnixMillis) {
        if self.parties.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.parties.retain(|_, used| {
            used.forget(now);
            !used.order.is_empty()
        });
        self.sweep_at = self.parties.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::id::PrincipalId;

    use super::*;

    #[tokio::test]
    async fn parties_whose_values_are_forgotten_leave_nothing_behind() {
        let nonces = EmbeddedNonces::new();
        for n in 0..10 * SWEEP_MIN as u64 {
            let who = Party::user(PrincipalId::parse(&format!("u{n}")).expect("valid"));
            assert!(nonces.first_use(&who, "n", UnixMillis(n), UnixMillis(n + 10)).await.expect("used"));
        }
        assert!(lock(&nonces.table).parties.len() <= SWEEP_MIN);
    }
}
