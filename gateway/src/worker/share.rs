//! A part of a gauge that many tasks add up in: gone with its owner, so that a lot another worker took leaves nothing behind.

use prometheus::IntGauge;

/// What one owner contributes to a gauge.
pub(super) struct Share {
    gauge: IntGauge,
    value: i64,
}

impl Share {
    /// Nothing yet.
    pub(super) fn new(gauge: IntGauge) -> Self {
        Self { gauge, value: 0 }
    }

    /// This much, from now on.
    pub(super) fn set(&mut self, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.gauge.add(value.saturating_sub(self.value));
        self.value = value;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.gauge.sub(self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_leaves_nothing_in_the_sum() {
        let gauge = IntGauge::new("g", "h").unwrap();
        let (mut one, mut two) = (Share::new(gauge.clone()), Share::new(gauge.clone()));
        one.set(3);
        two.set(4);
        one.set(1);
        assert_eq!(gauge.get(), 5);
        drop(two);
        assert_eq!(gauge.get(), 1);
    }
}
