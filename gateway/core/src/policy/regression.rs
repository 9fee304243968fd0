//! Whether a version on trial is worse than the live one.
//!
//! What lives here: what is counted about a version's calls, and the limits beyond which a trial ends by itself. What never
//! happens here: ending it; the node that sees a breach writes the rollback.

use serde::{Deserialize, Serialize};

use crate::policy::{Fault, Verdict};

/// Buckets of the time histogram: bucket `b` holds calls of less than 2^b microseconds; the last holds the rest.
const BUCKETS: usize = 24;

/// What one version's calls came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Answered or failed.
    pub calls: u64,
    /// Answered with a refusal.
    pub refusals: u64,
    /// Ended in a trap.
    pub traps: u64,
    /// Ran out of time.
    pub timeouts: u64,
    /// Answered with what breaks a rule.
    pub bad_verdicts: u64,
    /// Times of calls by power of two.
    micros: [u64; BUCKETS],
}

impl Counts {
    /// Counts one call.
    pub fn note(&mut self, micros: u32, outcome: &Result<Verdict, Fault>) {
        self.calls += 1;
        match outcome {
            Ok(Verdict::Proceed(_)) | Err(Fault::Missing | Fault::Overload) => {}
            Ok(Verdict::Refuse(_)) => self.refusals += 1,
            Err(Fault::Trap) => self.traps += 1,
            Err(Fault::Timeout) => self.timeouts += 1,
            Err(Fault::BadVerdict) => self.bad_verdicts += 1,
        }
        let bucket = (u32::BITS - micros.leading_zeros()) as usize;
        self.micros[bucket.min(BUCKETS - 1)] += 1;
    }

    /// Takes over what was counted elsewhere at the same time.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.refusals += other.refusals;
        self.traps += other.traps;
        self.timeouts += other.timeouts;
        self.bad_verdicts += other.bad_verdicts;
        for (sum, count) in self.micros.iter_mut().zip(other.micros) {
            *sum += count;
        }
    }

    /// The time that 99 of 100 calls stay below, rounded up to a power of two, in microseconds; 0 without calls.
    #[must_use]
    pub fn p99_micros(&self) -> u64 {
        let mut left = self.calls - self.calls / 100;
        for (bucket, count) in self.micros.iter().enumerate() {
            if *count >= left && left > 0 {
                return 1 << bucket;
            }
            left = left.saturating_sub(*count);
        }
        0
    }

    fn rate(&self, count: u64) -> f64 {
        if self.calls == 0 { 0.0 } else { ratio(count, self.calls) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are out of reach")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// What a candidate may do worse than the live version.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limits {
    /// Calls of the candidate before rates are judged: one unlucky call of ten says nothing.
    pub min_calls: u64,
    /// Part of its calls that may trap or answer what breaks a rule, 0 to 1.
    pub trap_rate: f64,
    /// Part of its calls that may run out of time, 0 to 1.
    pub timeout_rate: f64,
    /// How far the part it refuses may be from the live version's, 0 to 1.
    pub refusal_shift: f64,
    /// How many times the live version's p99 its own may be.
    pub p99_factor: f64,
    /// A p99 below this is never too slow, in microseconds: at that size the machine's noise is larger.
    pub p99_floor_micros: u64,
}

impl Default for Limits {
    /// 100 calls; 1 % traps; 1 % timeouts; 10 points of refusals; 4 times the p99, above 1 ms.
    fn default() -> Self {
        Self { min_calls: 100, trap_rate: 0.01, timeout_rate: 0.01, refusal_shift: 0.10, p99_factor: 4.0, p99_floor_micros: 1_000 }
    }
}

/// Why a trial ends.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Breach {
    /// It traps, or answers what breaks a rule.
    #[error("{:.1} % of its calls trapped or broke a rule, more than {:.1} %", .rate * 100.0, .limit * 100.0)]
    Traps {
        /// Its rate.
        rate: f64,
        /// The limit.
        limit: f64,
    },
    /// It runs out of time.
    #[error("{:.1} % of its calls ran out of time, more than {:.1} %", .rate * 100.0, .limit * 100.0)]
    Timeouts {
        /// Its rate.
        rate: f64,
        /// The limit.
        limit: f64,
    },
    /// It refuses far more, or far fewer.
    #[error("it refuses {:.1} %, the live version {:.1} %", .candidate * 100.0, .live * 100.0)]
    Refusals {
        /// Its rate.
        candidate: f64,
        /// The live version's rate.
        live: f64,
    },
    /// It is slow.
    #[error("its p99 is {candidate} µs, the live version's {live} µs")]
    Slow {
        /// Its p99 in microseconds.
        candidate: u64,
        /// The live version's p99 in microseconds.
        live: u64,
    },
}

impl Breach {
    /// The word used in metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Traps { .. } => "traps",
            Self::Timeouts { .. } => "timeouts",
            Self::Refusals { .. } => "refusals",
            Self::Slow { .. } => "slow",
        }
    }
}

/// Whether `candidate` is so much worse than `live` that its trial has to end. Both are counted over the same time.
#[must_use]
pub fn judge(candidate: &Counts, live: &Counts, limits: &Limits) -> Option<Breach> {
    if candidate.calls < limits.min_calls {
        return None;
    }
    let traps = candidate.rate(candidate.traps + candidate.bad_verdicts);
    if traps > limits.trap_rate {
        return Some(Breach::Traps { rate: traps, limit: limits.trap_rate });
    }
    let timeouts = candidate.rate(candidate.timeouts);
    if timeouts > limits.timeout_rate {
        return Some(Breach::Timeouts { rate: timeouts, limit: limits.timeout_rate });
    }
    if live.calls < limits.min_calls {
        return None;
    }
    let (refuses, refused) = (candidate.rate(candidate.refusals), live.rate(live.refusals));
    if (refuses - refused).abs() > limits.refusal_shift {
        return Some(Breach::Refusals { candidate: refuses, live: refused });
    }
    let (slow, usual) = (candidate.p99_micros(), live.p99_micros());
    #[expect(clippy::cast_precision_loss, reason = "microseconds beyond 2^53 are out of reach")]
    if slow > limits.p99_floor_micros && slow as f64 > usual as f64 * limits.p99_factor {
        return Some(Breach::Slow { candidate: slow, live: usual });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Effects, Refusal};

    fn counts(calls: u64, micros: u32, odd: u64, outcome: &Result<Verdict, Fault>) -> Counts {
        let proceed = Ok(Verdict::Proceed(Effects::default()));
        let mut counts = Counts::default();
        for call in 0..calls {
            counts.note(micros, if call < odd { outcome } else { &proceed });
        }
        counts
    }

    fn refuse() -> Result<Verdict, Fault> {
        Ok(Verdict::Refuse(Refusal { status: 403, code: "NO".into(), message: String::new(), retry_after_ms: None }))
    }

    #[test]
    fn an_equal_candidate_passes() {
        let same = counts(1_000, 10, 300, &refuse());
        assert_eq!(judge(&same, &same, &Limits::default()), None);
    }

    #[test]
    fn each_kind_of_worse_ends_the_trial() {
        let live = counts(1_000, 10, 0, &refuse());
        for (candidate, word) in [
            (counts(1_000, 10, 11, &Err(Fault::Trap)), "traps"),
            (counts(1_000, 10, 11, &Err(Fault::BadVerdict)), "traps"),
            (counts(1_000, 10, 11, &Err(Fault::Timeout)), "timeouts"),
            (counts(1_000, 10, 101, &refuse()), "refusals"),
            (counts(1_000, 5_000, 0, &refuse()), "slow"),
        ] {
            assert_eq!(judge(&candidate, &live, &Limits::default()).map(|breach| breach.as_str()), Some(word));
        }
    }

    #[test]
    fn what_is_at_the_limit_passes() {
        let live = counts(1_000, 10, 0, &refuse());
        for candidate in [
            counts(1_000, 10, 10, &Err(Fault::Trap)),
            counts(1_000, 10, 10, &Err(Fault::Timeout)),
            counts(1_000, 10, 100, &refuse()),
            counts(1_000, 500, 0, &refuse()),
            counts(1_000, 10, 1_000, &Err(Fault::Overload)),
        ] {
            assert_eq!(judge(&candidate, &live, &Limits::default()), None);
        }
    }

    #[test]
    fn a_candidate_that_refuses_too_little_is_worse_too() {
        let (live, candidate) = (counts(1_000, 10, 500, &refuse()), counts(1_000, 10, 0, &refuse()));
        assert!(matches!(judge(&candidate, &live, &Limits::default()), Some(Breach::Refusals { .. })));
    }

    #[test]
    fn few_calls_are_not_judged() {
        let candidate = counts(99, 10, 99, &Err(Fault::Trap));
        assert_eq!(judge(&candidate, &Counts::default(), &Limits::default()), None);
        // Traps need no comparison, refusals do.
        assert!(judge(&counts(100, 10, 100, &Err(Fault::Trap)), &Counts::default(), &Limits::default()).is_some());
        assert_eq!(judge(&counts(100, 10, 100, &refuse()), &Counts::default(), &Limits::default()), None);
    }

    #[test]
    fn counts_of_two_places_add_up() {
        let (mut sum, refused) = (counts(10, 3, 0, &refuse()), counts(5, 900, 2, &refuse()));
        sum.add(&refused);
        sum.add(&counts(1, 3, 1, &Err(Fault::Trap)));
        let mut same = counts(10, 3, 0, &refuse());
        for call in 0..5 {
            same.note(900, &if call < 2 { refuse() } else { Ok(Verdict::Proceed(Effects::default())) });
        }
        same.note(3, &Err(Fault::Trap));
        assert_eq!(sum, same);
    }

    #[test]
    fn p99_is_the_power_of_two_above_all_but_one_of_a_hundred() {
        assert_eq!(Counts::default().p99_micros(), 0);
        let mut counts = counts(99, 3, 0, &refuse());
        assert_eq!(counts.p99_micros(), 4);
        counts.note(1_000_000, &refuse());
        assert_eq!(counts.p99_micros(), 4, "one of a hundred may be slow");
        counts.note(1_000_000, &refuse());
        assert_eq!(counts.p99_micros(), 1 << 20);
        let mut slowest = Counts::default();
        slowest.note(u32::MAX, &refuse());
        assert_eq!(slowest.p99_micros(), 1 << 23);
    }
}
