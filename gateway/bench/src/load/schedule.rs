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

/// `rate` instants a second in `[0, over)`, in order: one in each stretch of `1 / rate`, anywhere in it. The same seed makes the
/// same instants.
#[must_use]
pub fn steady(rate: u32, over: Duration, seed: u64) -> Vec<Duration> {
    let mut random = StdRng::seed_from_u64(seed);
    let stretch = Duration::from_secs(1).div_f64(rate.max(1).into());
    (0..)
        .map(|number: u32| stretch * number)
        .take_while(|start| *start + stretch <= over)
        .map(|start| start + stretch.mul_f64(random.random::<f64>()))
        .collect()
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

    #[test]
    fn a_steady_load_has_one_in_each_stretch() {
        let over = Duration::from_secs(3);
        let due = steady(50, over, 7);
        assert_eq!(due.len(), 150);
        assert!(due.is_sorted() && due.iter().all(|due| *due < over));
        for (number, due) in due.iter().enumerate() {
            assert_eq!(due.as_millis() / 20, number as u128, "{due:?}");
        }
        assert_eq!(due, steady(50, over, 7));
        assert_ne!(due, steady(50, over, 8));
    }
}
