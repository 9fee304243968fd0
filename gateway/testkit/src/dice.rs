//! Chance that can be repeated: a seed, and the same throws again.

use std::sync::atomic::{AtomicU64, Ordering};

/// Seeded dice (splitmix64), shared by everybody of one run.
#[derive(Debug)]
pub struct Dice(AtomicU64);

impl Dice {
    /// Dice whose throws follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Any number.
    pub fn throw(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&self, end: usize) -> usize {
        // The remainder is skewed by less than end / 2^64.
        usize::try_from(self.throw() % end.max(1) as u64).unwrap_or(0)
    }

    /// True `per_mille` times in a thousand.
    pub fn chance(&self, per_mille: u32) -> bool {
        self.throw() % 1_000 < u64::from(per_mille)
    }

    /// One of `all`; `None` when there is none.
    pub fn pick<'a, T>(&self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
}
