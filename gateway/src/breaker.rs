//! Remembers for a moment that a store is away, so that not every call waits for its whole deadline to find out.
//!
//! While a store counts as away one caller at a time tries it, so it comes back into use by itself. What never happens here:
//! calling a store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_core::time::UnixMillis;

/// How long a failure is believed. A store that was restarted is used again within this.
const BELIEVED: Duration = Duration::from_secs(1);

/// What is known of one store.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// Until when it counts as away, in Unix milliseconds; 0: it works.
    away_until: AtomicU64,
}

impl Breaker {
    /// Whether to call the store at `now`. Whoever is told so says how it went.
    pub(crate) fn lets_try(&self, now: UnixMillis) -> bool {
        let until = self.away_until.load(Ordering::Relaxed);
        if until == 0 {
            return true;
        }
        // Of all who find the time over one goes ahead; if it never reports, another does a moment later.
        now.0 >= until && self.away_until.compare_exchange(until, now.plus(BELIEVED).0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// It answered.
    pub(crate) fn worked(&self) {
        self.away_until.store(0, Ordering::Relaxed);
    }

    /// It did not answer, as of `now`.
    pub(crate) fn failed(&self, now: UnixMillis) {
        self.away_until.store(now.plus(BELIEVED).0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_at_a_time_tries_a_store_that_is_away() {
        let breaker = Breaker::default();
        let at = |ms: u64| UnixMillis(1_000_000 + ms);
        assert!(breaker.lets_try(at(0)) && breaker.lets_try(at(0)));
        breaker.failed(at(0));
        assert!(!breaker.lets_try(at(999)));
        assert!(breaker.lets_try(at(1_000)), "the first one goes ahead");
        assert!(!breaker.lets_try(at(1_000)), "the others go on without");
        assert!(breaker.lets_try(at(2_000)), "a caller that never reports is not waited for");
        breaker.worked();
        assert!(breaker.lets_try(at(2_000)) && breaker.lets_try(at(2_000)));
    }
}
