//! Which peer of an upstream group gets the next request, and which peers may get any. Pure state: the proxy asks
//! [`Rotation`] for each connection, the prober tells [`PeerHealth`] what it saw.

/// Smooth weighted round robin: over any run of requests each peer gets its share, and a heavy peer's turns are spread
/// among the others' instead of coming in a row.
#[derive(Debug, Clone)]
pub struct Rotation {
    turns: Vec<Turn>,
}

#[derive(Debug, Clone)]
struct Turn {
    weight: i64,
    /// What the peer is owed; the debts of all peers sum to zero.
    owed: i64,
}

impl Rotation {
    /// A rotation over peers with these weights; a weight of 0 counts as 1.
    #[must_use]
    pub fn new(weights: impl IntoIterator<Item = u32>) -> Self {
        Self { turns: weights.into_iter().map(|weight| Turn { weight: i64::from(weight.max(1)), owed: 0 }).collect() }
    }

    /// The index of the next peer among those that `healthy` admits; `None` when it admits none. A peer that is passed
    /// over keeps what it is owed, and is owed no more meanwhile, so that its return is no burst.
    pub fn next(&mut self, healthy: impl Fn(usize) -> bool) -> Option<usize> {
        let mut round = 0;
        let mut next: Option<usize> = None;
        for index in 0..self.turns.len() {
            if !healthy(index) {
                continue;
            }
            let turn = &mut self.turns[index];
            turn.owed += turn.weight;
            round += turn.weight;
            if next.is_none_or(|best| self.turns[index].owed > self.turns[best].owed) {
                next = Some(index);
            }
        }
        if let Some(chosen) = next {
            self.turns[chosen].owed -= round;
        }
        debug_assert_eq!(self.turns.iter().map(|turn| turn.owed).sum::<i64>(), 0, "no turn is lost or made up");
        next
    }
}

/// A change of a peer's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthChange {
    /// It may get requests again.
    Up,
    /// It gets no more requests.
    Down,
}

/// Health of one peer: it changes only after several observations in a row say so.
#[derive(Debug, Clone)]
pub struct PeerHealth {
    healthy: bool,
    /// Observations in a row that contradict `healthy`.
    against: u32,
    healthy_after: u32,
    unhealthy_after: u32,
}

impl PeerHealth {
    /// A peer that is taken for healthy until it is seen otherwise: after a restart every peer is unknown, and refusing
    /// all requests until the first probe would be an outage of our own. Thresholds of 0 count as 1.
    #[must_use]
    pub fn new(healthy_after: u32, unhealthy_after: u32) -> Self {
        Self { healthy: true, against: 0, healthy_after: healthy_after.max(1), unhealthy_after: unhealthy_after.max(1) }
    }

    /// Whether it may get requests.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// Takes in a probe, or a connection attempt; says when it tips the balance.
    pub fn observe(&mut self, success: bool) -> Option<HealthChange> {
        if success == self.healthy {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if self.healthy { self.unhealthy_after } else { self.healthy_after };
        if self.against < needed {
            return None;
        }
        self.healthy = success;
        self.against = 0;
        Some(if success { HealthChange::Up } else { HealthChange::Down })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HealthChange, PeerHealth, Rotation};

    fn turns(rotation: &mut Rotation, count: usize, healthy: impl Fn(usize) -> bool + Copy) -> Vec<Option<usize>> {
        (0..count).map(|_| rotation.next(healthy)).collect()
    }

    #[test]
    fn spreads_the_turns_of_a_heavy_peer() {
        let order: Vec<usize> = turns(&mut Rotation::new([5, 1, 1]), 7, |_| true).into_iter().flatten().collect();
        assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn has_nobody_to_offer_when_nobody_is_healthy() {
        assert_eq!(Rotation::new([]).next(|_| true), None);
        let mut rotation = Rotation::new([1, 2]);
        assert_eq!(rotation.next(|_| false), None);
        assert_eq!(rotation.next(|index| index == 0), Some(0));
    }

    #[test]
    fn a_peer_that_returns_gets_no_burst() {
        let mut rotation = Rotation::new([1, 1]);
        turns(&mut rotation, 1001, |index| index == 0);
        let after = turns(&mut rotation, 10, |_| true);
        assert_eq!(after.iter().filter(|next| **next == Some(1)).count(), 5);
    }

    #[test]
    fn health_tips_after_enough_observations_in_a_row() {
        let mut health = PeerHealth::new(2, 3);
        let seen: Vec<Option<HealthChange>> = "--+---++-+--++".chars().map(|observation| health.observe(observation == '+')).collect();
        let changes: Vec<(usize, HealthChange)> = seen.iter().enumerate().filter_map(|(at, change)| Some((at, (*change)?))).collect();
        assert_eq!(changes, [(5, HealthChange::Down), (7, HealthChange::Up)]);
        assert!(health.is_healthy());
    }

    #[test]
    fn one_failure_is_enough_when_one_is_asked_for() {
        let mut health = PeerHealth::new(0, 0);
        assert_eq!(health.observe(true), None);
        assert_eq!(health.observe(false), Some(HealthChange::Down));
        assert_eq!(health.observe(false), None);
        assert_eq!(health.observe(true), Some(HealthChange::Up));
    }

    proptest! {
        #[test]
        fn gives_each_peer_its_exact_share_of_a_round(weights in proptest::collection::vec(1_u32..20, 1..6)) {
            let round = usize::try_from(weights.iter().sum::<u32>()).unwrap();
            let order = turns(&mut Rotation::new(weights.iter().copied()), round, |_| true);
            for (index, weight) in weights.iter().enumerate() {
                let got = order.iter().filter(|next| **next == Some(index)).count();
                prop_assert_eq!(got, usize::try_from(*weight).unwrap());
            }
        }

        #[test]
        fn offers_a_healthy_peer_whenever_there_is_one(
            weights in proptest::collection::vec(0_u32..1000, 0..6),
            rounds in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut rotation = Rotation::new(weights.iter().copied());
            for up in rounds {
                let healthy = |index: usize| up >> index & 1 == 1;
                match rotation.next(healthy) {
                    Some(index) => prop_assert!(index < weights.len() && healthy(index)),
                    None => prop_assert!(!(0..weights.len()).any(healthy)),
                }
            }
        }
    }
}
