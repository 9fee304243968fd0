//! The rule of a rate account: GCRA with a full burst.
//!
//! What lives here: what one account remembers, and how a set of charges is judged all or nothing. What never happens
//! here: reading a clock, or choosing where accounts are kept. Called by the embedded store; the Redis script is its twin.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::policy::Charge;
use crate::ports::ChargeOutcome;

/// What is remembered of one account.
///
/// The theoretical arrival time is the instant at which everything charged so far will have been paid off at the steady
/// rate; before any charge it lies in the past.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    /// Theoretical arrival time in microseconds since the Unix epoch, rounded down.
    pub tat_us: u64,
    /// What was rounded off, in parts of `limit`. Kept so that `limit` charges of 1 fill a window exactly, whatever the limit;
    /// when a policy changes its limit, at most one microsecond is misread.
    pub rest: u32,
    /// Token of the last charge that cost something, if it had one.
    pub replay: Option<String>,
}

/// The name of the account a charge goes to. A budget's name contains no colon, so two names never run together.
#[must_use]
pub fn account_of(charge: &Charge) -> String {
    format!("{}:{}", charge.budget, charge.key)
}

/// Judges `charges` in order at `now_us`: either all of them are booked, or none and the first that does not fit is named.
///
/// Charges to one account add up. A charge that repeats the token its account remembers from an earlier call is free.
/// An unknown account is one that was never charged.
pub fn judge(accounts: &mut BTreeMap<String, Account>, charges: &[Charge], now_us: u64) -> ChargeOutcome {
    let mut booked: BTreeMap<String, Account> = BTreeMap::new();
    for (index, charge) in charges.iter().enumerate() {
        let name = account_of(charge);
        let before = accounts.get(&name);
        if charge.replay_token.is_some() && before.is_some_and(|account| account.replay == charge.replay_token) {
            continue;
        }
        let account = booked.entry(name).or_insert_with(|| before.cloned().unwrap_or_default());
        match book(account, charge, now_us) {
            Ok(after) => *account = after,
            Err(retry_after) => return ChargeOutcome::Exhausted { index, retry_after },
        }
    }
    accounts.append(&mut booked);
    ChargeOutcome::Charged
}

/// Whether an account is the same as one never charged, apart from its replay token.
#[must_use]
pub fn is_full(account: &Account, now_us: u64) -> bool {
    account.tat_us < now_us
}

/// The account after `charge`, or how long until it would fit: it fits while the new arrival time is at most one window ahead.
fn book(account: &Account, charge: &Charge, now_us: u64) -> Result<Account, Duration> {
    let limit = u64::from(charge.limit.max(1));
    let window_us = u64::from(charge.window_ms) * 1_000;
    // Within u64: cost and window are at most 10^6 and 8.64 * 10^10.
    let (from_us, rest) = if account.tat_us < now_us { (now_us, 0) } else { (account.tat_us, u64::from(account.rest).min(limit - 1)) };
    let owed = rest + u64::from(charge.cost) * window_us;
    let tat_us = from_us.saturating_add(owed / limit);
    let rest = owed % limit;
    let ahead_us = (tat_us - now_us).saturating_add(u64::from(rest > 0));
    match ahead_us.saturating_sub(window_us) {
        0 => Ok(Account { tat_us, rest: u32::try_from(rest).unwrap_or(u32::MAX), replay: charge.replay_token.clone() }),
        late_us => Err(Duration::from_micros(late_us)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Refusal, Scope};

    const NOW: u64 = 1_780_000_000_000_000;

    fn charge(key: &str, limit: u32, window_ms: u32, cost: u32) -> Charge {
        Charge {
            budget: "test".to_owned(),
            key: key.to_owned(),
            limit,
            window_ms,
            cost,
            scope: Scope::Cluster,
            replay_token: None,
            refusal: Refusal { status: 429, code: "RATE_LIMITED".to_owned(), message: String::new(), retry_after_ms: None },
        }
    }

    fn replay(token: &str, charge: Charge) -> Charge {
        Charge { replay_token: Some(token.to_owned()), ..charge }
    }

    #[test]
    fn a_full_burst_fits_exactly_whatever_the_limit() {
        for limit in [1, 2, 3, 7, 11, 999] {
            let mut accounts = BTreeMap::new();
            for n in 0..limit {
                assert_eq!(judge(&mut accounts, &[charge("k", limit, 1_000, 1)], NOW), ChargeOutcome::Charged, "charge {n} of {limit}");
            }
            let ChargeOutcome::Exhausted { index: 0, retry_after } = judge(&mut accounts, &[charge("k", limit, 1_000, 1)], NOW) else {
                panic!("one more than {limit} fitted")
            };
            let wait_us = u64::try_from(retry_after.as_micros()).expect("short");
            let early = NOW + wait_us - 1;
            assert!(matches!(judge(&mut accounts, &[charge("k", limit, 1_000, 1)], early), ChargeOutcome::Exhausted { .. }), "{limit}");
            assert_eq!(judge(&mut accounts, &[charge("k", limit, 1_000, 1)], NOW + wait_us), ChargeOutcome::Charged, "{limit}");
        }
    }

    #[test]
    fn charges_to_one_account_in_one_call_add_up() {
        let mut accounts = BTreeMap::new();
        let three = charge("k", 5, 1_000, 3);
        let ChargeOutcome::Exhausted { index, .. } = judge(&mut accounts, &[three.clone(), three.clone()], NOW) else {
            panic!("six fitted into five")
        };
        assert_eq!(index, 1);
        assert!(accounts.is_empty(), "nothing is booked");
        assert_eq!(judge(&mut accounts, &[three, charge("k", 5, 1_000, 2)], NOW), ChargeOutcome::Charged);
    }

    #[test]
    fn the_first_exhausted_charge_is_named_and_nothing_is_booked() {
        let mut accounts = BTreeMap::new();
        assert_eq!(judge(&mut accounts, &[charge("b", 1, 1_000, 1), charge("c", 1, 9_000, 1)], NOW), ChargeOutcome::Charged);
        let before = accounts.clone();
        let all = [charge("a", 1, 1_000, 1), charge("b", 1, 1_000, 1), charge("c", 1, 9_000, 1)];
        let outcome = judge(&mut accounts, &all, NOW);
        assert_eq!(outcome, ChargeOutcome::Exhausted { index: 1, retry_after: Duration::from_secs(1) });
        assert_eq!(accounts, before);
    }

    #[test]
    fn a_repeated_token_is_free_until_another_charge_takes_its_place() {
        let mut accounts = BTreeMap::new();
        let mut ask = |charge: Charge| judge(&mut accounts, &[charge], NOW) == ChargeOutcome::Charged;
        let two = || charge("k", 2, 1_000, 1);
        assert!(ask(replay("t1", two())));
        assert!(ask(replay("t1", two())), "free");
        assert!(ask(replay("t1", two())), "free again");
        assert!(ask(two()), "the second unit");
        assert!(!ask(replay("t1", two())), "t1 is no longer the last one charged");
    }

    #[test]
    fn a_refused_charge_leaves_no_token() {
        let mut accounts = BTreeMap::new();
        assert_eq!(judge(&mut accounts, &[replay("old", charge("k", 1, 1_000, 1))], NOW), ChargeOutcome::Charged);
        for _ in 0..2 {
            assert_ne!(judge(&mut accounts, &[replay("new", charge("k", 1, 1_000, 1))], NOW), ChargeOutcome::Charged);
        }
        assert_eq!(judge(&mut accounts, &[replay("old", charge("k", 1, 1_000, 1))], NOW), ChargeOutcome::Charged);
    }

    #[test]
    fn one_token_twice_in_one_call_is_charged_twice() {
        let mut accounts = BTreeMap::new();
        let both = [replay("t", charge("k", 2, 1_000, 1)), replay("t", charge("k", 2, 1_000, 1))];
        assert_eq!(judge(&mut accounts, &both, NOW), ChargeOutcome::Charged);
        assert_ne!(judge(&mut accounts, &[charge("k", 2, 1_000, 1)], NOW), ChargeOutcome::Charged);
        assert_eq!(judge(&mut accounts, &both, NOW), ChargeOutcome::Charged, "the same request again");
    }

    #[test]
    fn the_largest_charge_stays_within_the_numbers() {
        let mut accounts = BTreeMap::new();
        let largest = charge("k", 1_000_000, 86_400_000, 1_000_000);
        assert_eq!(judge(&mut accounts, std::slice::from_ref(&largest), NOW), ChargeOutcome::Charged);
        let outcome = judge(&mut accounts, &[largest], NOW);
        assert_eq!(outcome, ChargeOutcome::Exhausted { index: 0, retry_after: Duration::from_millis(86_400_000) });
    }

    proptest! {
        /// Over any stretch of time `t`, at most `limit + limit * t / window` is admitted, to the unit.
        #[test]
        fn no_schedule_beats_the_rate(limit in 1_u32..50, window_ms in 1_u32..2_000, steps in prop::collection::vec((0_u64..400_000, 1_u32..50), 1..200)) {
            let (mut accounts, mut now_us, mut admitted) = (BTreeMap::new(), NOW, 0_u64);
            for (pause_us, cost) in steps {
                now_us += pause_us;
                let cost = cost.min(limit);
                if judge(&mut accounts, &[charge("k", limit, window_ms, cost)], now_us) == ChargeOutcome::Charged {
                    admitted += u64::from(cost);
                }
                let window_us = u64::from(window_ms) * 1_000;
                prop_assert!(admitted * window_us <= u64::from(limit) * (window_us + now_us - NOW), "{admitted} by {now_us}");
            }
        }

        /// Whoever was quiet for a window may spend the whole limit at once.
        #[test]
        fn a_window_of_silence_refills_the_account(limit in 1_u32..50, window_ms in 1_u32..2_000, costs in prop::collection::vec(1_u32..50, 0..50)) {
            let mut accounts = BTreeMap::new();
            for cost in costs {
                judge(&mut accounts, &[charge("k", limit, window_ms, cost.min(limit))], NOW);
            }
            let later = NOW + u64::from(window_ms) * 1_000;
            prop_assert_eq!(judge(&mut accounts, &[charge("k", limit, window_ms, limit)], later), ChargeOutcome::Charged);
        }
    }
}
