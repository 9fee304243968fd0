//! How long to wait before trying again. Every loop of ours that retries uses this rule; who draws the jitter and who
//! waits is the caller's business.

use std::time::Duration;

/// Bounds of a wait that doubles with each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The shortest wait.
    pub min: Duration,
    /// The longest wait; counts as `min` when it is shorter than that.
    pub max: Duration,
}

impl Backoff {
    /// The wait after failure number `attempt`, counted from 0: a point between `min` and `min` × 2^(attempt + 1), the latter
    /// at most `max`. `jitter` in `[0, 1)` chooses the point, so that clients that failed together do not come back
    /// together; other values count as the nearest end.
    #[must_use]
    pub fn delay(self, attempt: u32, jitter: f64) -> Duration {
        let factor = 2_u32.saturating_pow(attempt.saturating_add(1));
        let longest = self.min.saturating_mul(factor).min(self.max).max(self.min);
        let range = longest - self.min;
        let share = if jitter > 0.0 { jitter.min(1.0) } else { 0.0 };
        // Rounding may end a hair above the range; the promise is worth more than the hair.
        self.min + Duration::try_from_secs_f64(range.as_secs_f64() * share).map_or(range, |part| part.min(range))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::Backoff;

    const HALF: f64 = 0.5;

    fn millis(min: u64, max: u64) -> Backoff {
        Backoff { min: Duration::from_millis(min), max: Duration::from_millis(max) }
    }

    #[test]
    fn doubles_until_the_longest_wait() {
        let waits: Vec<u128> = (0..6).map(|attempt| millis(100, 1_000).delay(attempt, HALF).as_millis()).collect();
        assert_eq!(waits, [150, 250, 450, 550, 550, 550]);
    }

    #[test]
    fn jitter_covers_the_whole_range() {
        let backoff = millis(100, 10_000);
        assert_eq!(backoff.delay(3, 0.0), Duration::from_millis(100));
        assert_eq!(backoff.delay(3, 1.0), Duration::from_millis(1_600));
        for outside in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(backoff.delay(3, outside), backoff.delay(3, 0.0));
        }
        assert_eq!(backoff.delay(3, f64::INFINITY), backoff.delay(3, 1.0));
    }

    proptest! {
        #[test]
        fn stays_within_its_bounds(min in any::<u64>(), more in any::<u64>(), attempt in any::<u32>(), jitter in 0.0..1.0) {
            let (min, max) = (Duration::from_nanos(min), Duration::from_nanos(min).saturating_add(Duration::from_nanos(more)));
            let delay = Backoff { min, max }.delay(attempt, jitter);
            prop_assert!(min <= delay && delay <= max, "{:?}", delay);
        }

        #[test]
        fn survives_any_bounds(min in any::<u64>(), max in any::<u64>(), attempt in any::<u32>(), jitter in any::<f64>()) {
            let backoff = Backoff { min: Duration::from_secs(min), max: Duration::from_secs(max) };
            prop_assert!(backoff.delay(attempt, jitter) >= backoff.min);
        }

        #[test]
        fn never_gets_shorter_with_more_failures(attempt in 0_u32..40, jitter in 0.0..1.0) {
            let backoff = millis(10, 60_000);
            prop_assert!(backoff.delay(attempt, jitter) <= backoff.delay(attempt + 1, jitter));
        }
    }
}
