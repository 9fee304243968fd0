//! When requests are due.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// `count` instants in `[0, over)`, in order, as independent people arrive: each anywhere in the time with the same
/// probability. The same seed makes the same instants.
#[must_use]
pub fn arrivals(count: usize, over: Duration, seed: u64) -> Vec<Duration> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut due: Vec<Duration> = (0..count).map(|_| over.mul_f64(random.random::<f64>())).collect();
    due.sort_unstable();
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_arrives_in_order_and_in_time() {
        let due = arrivals(1_000, Duration::from_secs(2), 7);
        assert_eq!(due.len(), 1_000);
        assert!(due.is_sorted());
        assert!(due.iter().all(|due| *due < Duration::from_secs(2)));
        let early = due.iter().filter(|due| **due < Duration::from_secs(1)).count();
        assert!((400..600).contains(&early), "{early} of 1000 in the first half");
    }

    #[test]
    fn the_same_seed_makes_the_same_rush() {
        let over = Duration::from_secs(1);
        assert_eq!(arrivals(50, over, 1), arrivals(50, over, 1));
        assert_ne!(arrivals(50, over, 1), arrivals(50, over, 2));
    }

    #[test]
    fn a_rush_of_no_time_is_due_at_once() {
        assert_eq!(arrivals(3, Duration::ZERO, 1), [Duration::ZERO; 3]);
        assert_eq!(arrivals(0, Duration::from_secs(1), 1), []);
    }
}
