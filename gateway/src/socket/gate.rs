//! How fast a node opens sockets: a storm of reconnects waits in line, and whoever would wait too long is told when to come back.
//!
//! Every turn is an instant given out in advance, so the line costs nothing but the callers' own patience. What never happens
//! here: refusing somebody for good, or counting open sockets. Called before a handshake reads anything from a store.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// What an idle node lets in at once, as a share of a second's turns.
const BURST_PER_SECOND: f64 = 0.1;

/// Shortest and longest time over which clients that were sent away, or lost their node, are spread.
const SPREAD_MIN: Duration = Duration::from_secs(1);
const SPREAD_MAX: Duration = Duration::from_secs(60);

/// The line before the sockets.
#[derive(Debug)]
pub(crate) struct Gate {
    per_second: f64,
    wait_max: Duration,
    /// The first turn that nobody has.
    free_at: Mutex<Instant>,
}

/// The line is too long: come back after this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ComeBack(pub(crate) Duration);

impl Gate {
    /// `per_second` turns a second, for each of which somebody waits at most `wait_max`.
    pub(crate) fn new(per_second: u32, wait_max: Duration) -> Self {
        Self { per_second: f64::from(per_second.max(1)), wait_max, free_at: Mutex::new(Instant::now()) }
    }

    /// Waits for a turn. `open` sockets are on this node, as many as may come back at once when it dies. Whoever stops waiting
    /// leaves its turn unused. Cancel safe.
    pub(crate) async fn pass(&self, open: usize) -> Result<(), ComeBack> {
        let turn = self.turn(Instant::now()).ok_or_else(|| self.come_back(open))?;
        sleep_until(turn).await;
        Ok(())
    }

    /// The next turn, unless it is too late for somebody who comes at `now`.
    fn turn(&self, now: Instant) -> Option<Instant> {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let burst = Duration::from_secs_f64(BURST_PER_SECOND);
        // What was not used longer ago than a burst is lost.
        let turn = now.checked_sub(burst).map_or(*free_at, |earliest| free_at.max(earliest));
        if turn.saturating_duration_since(now) > self.wait_max {
            return None;
        }
        *free_at = turn + Duration::from_secs_f64(1.0 / self.per_second);
        Some(turn)
    }

    /// When somebody who is sent away should come back: at random within the time that `open` sockets would need.
    pub(crate) fn come_back(&self, open: usize) -> ComeBack {
        ComeBack(self.spread(open).mul_f64(0.2 + 0.8 * rand::random::<f64>()))
    }

    /// How long a node of this rate takes to let `open` sockets in: the time over which they should spread by themselves.
    pub(crate) fn spread(&self, open: usize) -> Duration {
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        Duration::try_from_secs_f64(f64::from(open) / self.per_second).unwrap_or(SPREAD_MAX).clamp(SPREAD_MIN, SPREAD_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_let_in_at_the_set_rate_and_the_rest_is_told_to_come_back() {
        let gate = Gate::new(10, Duration::from_secs(2));
        let now = Instant::now() + Duration::from_secs(10);
        let waits: Vec<_> = std::iter::from_fn(|| gate.turn(now)).map(|turn| turn.saturating_duration_since(now)).collect();
        // One at once for the burst, one now, and ten a second for two seconds.
        assert_eq!(waits.len(), 22, "{waits:?}");
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]) && waits[21] <= Duration::from_secs(2), "{waits:?}");
        assert_eq!(gate.turn(now), None);
        let later = now + Duration::from_secs(1);
        assert_eq!(std::iter::from_fn(|| gate.turn(later)).count(), 10, "whoever comes back finds a turn");
    }

    #[test]
    fn time_without_storms_is_not_saved_up() {
        let gate = Gate::new(100, Duration::ZERO);
        let later = Instant::now() + Duration::from_secs(3_600);
        assert_eq!(std::iter::from_fn(|| gate.turn(later)).count(), 11);
    }

    #[test]
    fn clients_are_spread_over_the_time_that_they_need() {
        let gate = Gate::new(1_000, Duration::ZERO);
        for (open, seconds) in [(0, 1), (8_000, 8), (10_000_000, 60)] {
            assert_eq!(gate.spread(open), Duration::from_secs(seconds));
            let ComeBack(after) = gate.come_back(open);
            assert!(after <= gate.spread(open) && after >= gate.spread(open) / 5, "{after:?}");
        }
    }
}
