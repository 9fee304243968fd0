//! Counting a version's calls where many threads make them: each counts in a place of its own, and a report adds them up.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use gateway_core::policy::regression::Counts;
use gateway_core::policy::{Fault, Verdict};

/// Places; threads beyond this number share them.
const SHARDS: usize = 16;

/// On a cache line of its own, so that threads do not slow each other down.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<Counts>);

/// What one version's calls came to since the tally was made.
#[derive(Default)]
pub(crate) struct Tally {
    shards: [Shard; SHARDS],
}

impl Tally {
    /// Counts one call.
    pub(crate) fn note(&self, micros: u32, outcome: &Result<Verdict, Fault>) {
        // Counting cannot panic half-way.
        self.shards[place()].0.lock().unwrap_or_else(PoisonError::into_inner).note(micros, outcome);
    }

    /// All places together. Calls that are being counted meanwhile may or may not be in it.
    pub(crate) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for shard in &self.shards {
            sum.add(&shard.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
        sum
    }
}

/// This thread's place.
fn place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
    }
    PLACE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_lost_between_threads() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for _ in 0..SHARDS + 4 {
                scope.spawn(|| (0..1_000).for_each(|_| tally.note(3, &Err(Fault::Trap))));
            }
        });
        let counts = tally.counts();
        assert_eq!((counts.calls, counts.traps, counts.p99_micros()), (20_000, 20_000, 4));
    }
}
