//! [`Budgets`] in memory: the rule of core on one map of accounts.
//!
//! Bounds: at most [`ACCOUNTS_MAX`] accounts. Accounts that have refilled are forgotten, and if that is not enough, so
//! is the half that would refill soonest: those forgive the least by it. Called through the port only.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use gateway_core::policy::Charge;
use gateway_core::policy::budget::{Account, is_full, judge};
use gateway_core::ports::{Budgets, ChargeOutcome, PortResult, Store};

use crate::{Clock, lock, too_many};

/// Accounts kept at most; about 150 bytes each.
pub const ACCOUNTS_MAX: usize = 500_000;

/// The port's bound on one call.
const CHARGES_MAX: usize = 64;

/// Accounts below this number are not worth a sweep.
const SWEEP_MIN: usize = 1_024;

/// Rate accounts in memory.
pub struct EmbeddedBudgets {
    clock: Clock,
    accounts: Mutex<Accounts>,
}

struct Accounts {
    by_name: BTreeMap<String, Account>,
    /// Size at which the next sweep is due: twice what the last one left, so sweeping costs a constant share.
    sweep_at: usize,
}

impl EmbeddedBudgets {
    /// No account yet; time is `clock`'s, to the millisecond.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, accounts: Mutex::new(Accounts { by_name: BTreeMap::new(), sweep_at: SWEEP_MIN }) }
    }
}

#[async_trait]
impl Budgets for EmbeddedBudgets {
    async fn charge(&self, charges: &[Charge]) -> PortResult<ChargeOutcome> {
        if charges.len() > CHARGES_MAX {
            return Err(too_many(Store::Redis, "charge budgets"));
        }
        let now_us = (self.clock)().0.saturating_mul(1_000);
        let mut accounts = lock(&self.accounts);
        let outcome = judge(&mut accounts.by_name, charges, now_us);
        accounts.sweep(now_us);
        Ok(outcome)
    }
}

impl Accounts {
    fn sweep(&mut self, now_us: u64) {
        if self.by_name.len() < self.sweep_at {
            return;
        }
        self.by_name.retain(|_, account| !is_full(account, now_us));
        if self.by_name.len() > ACCOUNTS_MAX / 2 {
            let mut tats: Vec<u64> = self.by_name.values().map(|account| account.tat_us).collect();
            let middle = tats.len() / 2;
            let (_, &mut median, _) = tats.select_nth_unstable(middle);
            self.by_name.retain(|_, account| account.tat_us > median);
        }
        self.sweep_at = (self.by_name.len() * 2).clamp(SWEEP_MIN, ACCOUNTS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(tats: impl Iterator<Item = u64>) -> Accounts {
        let by_name = tats.enumerate().map(|(n, tat_us)| (n.to_string(), Account { tat_us, ..Account::default() })).collect();
        Accounts { by_name, sweep_at: SWEEP_MIN }
    }

    #[test]
    fn refilled_accounts_are_forgotten_and_others_are_not() {
        let mut accounts = accounts(0..2_000);
        accounts.sweep(1_500);
        assert_eq!(accounts.by_name.len(), 500);
        assert_eq!(accounts.sweep_at, SWEEP_MIN);
    }

    #[test]
    fn a_full_table_forgets_the_half_that_refills_soonest() {
        let mut accounts = accounts(1..=ACCOUNTS_MAX as u64);
        accounts.sweep(0);
        assert!(accounts.by_name.len() <= ACCOUNTS_MAX / 2);
        assert!(accounts.by_name.values().all(|account| account.tat_us > ACCOUNTS_MAX as u64 / 2));
    }
}
