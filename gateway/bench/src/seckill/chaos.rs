//! What is killed when, and for how long.

use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::rig::{Part, Rig};
use crate::say;

/// A part stays away at least and at most so long, and as long again as it takes to start.
const AWAY_MIN: Duration = Duration::from_millis(100);
const AWAY_MAX: Duration = Duration::from_millis(1_500);
/// Redis flushes its log once a second: what a machine that dies takes with it.
const UNFLUSHED_MAX: Duration = Duration::from_secs(1);

/// One part goes and comes back.
#[derive(Debug, Clone, PartialEq)]
struct Fault {
    part: Part,
    /// After the start of the sale.
    at: Duration,
    /// Until it is started again.
    away: Duration,
    /// Redis only: how much of its latest past is gone.
    loses: Duration,
}

/// The faults of one run, in order.
#[derive(Debug, Default)]
pub(super) struct Plan(Vec<Fault>);

impl Plan {
    /// A worker, a node, Redis, NATS and MariaDB, once each, in any order, at any time in `over`. Most of them come early, where
    /// the units are sold; several may be away at a time. The same seed makes the same plan.
    pub(super) fn new(seed: u64, over: Duration, nodes: usize, workers: usize) -> Self {
        // Not the stream that decides when buyers come.
        let mut random = StdRng::seed_from_u64(seed.rotate_left(32) ^ 0x5eed);
        let (worker, node) = (random.random_range(0..workers), random.random_range(0..nodes));
        let mut parts = [Part::Worker(worker), Part::Node(node), Part::Redis, Part::Nats, Part::MariaDb];
        parts.shuffle(&mut random);
        let mut faults: Vec<Fault> = parts
            .into_iter()
            .map(|part| Fault {
                part,
                at: over.mul_f64(random.random::<f64>().powi(3)),
                away: random.random_range(AWAY_MIN..AWAY_MAX),
                loses: if part == Part::Redis { random.random_range(Duration::ZERO..UNFLUSHED_MAX) } else { Duration::ZERO },
            })
            .collect();
        faults.sort_by_key(|fault| fault.at);
        Self(faults)
    }

    /// Carries all of it out; says what was done when, in the plan's order.
    pub(super) async fn carry_out(self, rig: &Arc<Rig>, started: Instant, progress: &ProgressBar) -> anyhow::Result<Vec<String>> {
        let mut faults = JoinSet::new();
        for (index, fault) in self.0.into_iter().enumerate() {
            let (rig, progress) = (rig.clone(), progress.clone());
            faults.spawn(async move {
                let done = fault.carry_out(&rig, started).await?;
                progress.suspend(|| say(&done));
                anyhow::Ok((index, done))
            });
        }
        let mut done: Vec<(usize, String)> = faults.join_all().await.into_iter().collect::<anyhow::Result<_>>()?;
        done.sort();
        Ok(done.into_iter().map(|(_, done)| done).collect())
    }
}

impl Fault {
    async fn carry_out(&self, rig: &Rig, started: Instant) -> anyhow::Result<String> {
        let log = if self.part == Part::Redis {
            sleep_until(started + self.at.saturating_sub(self.loses)).await;
            Some(rig.redis_log()?)
        } else {
            None
        };
        sleep_until(started + self.at).await;
        rig.kill(self.part);
        let gone = Instant::now();
        let lost = log.map(|log| rig.redis_loses(&log)).transpose()?;
        sleep(self.away).await;
        rig.restart(self.part).await?;
        let lost = lost.map(|bytes| format!(", {bytes} bytes of its log lost")).unwrap_or_default();
        Ok(format!("{:.2} s: {} killed{lost}, back after {:.2} s", self.at.as_secs_f64(), self.part, gone.elapsed().as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_goes_once_and_in_time() {
        let over = Duration::from_secs(10);
        for seed in 0..200 {
            let Plan(faults) = Plan::new(seed, over, 2, 3);
            assert!(faults.is_sorted_by_key(|fault| fault.at), "seed {seed}");
            assert!(faults.iter().all(|fault| fault.at < over && (AWAY_MIN..AWAY_MAX).contains(&fault.away)), "seed {seed}");
            let mut parts: Vec<Part> = faults.iter().map(|fault| fault.part).collect();
            parts.sort();
            let (Part::Worker(worker), Part::Node(node)) = (parts[0], parts[1]) else { panic!("seed {seed}: {parts:?}") };
            assert!(worker < 3 && node < 2, "seed {seed}");
            assert_eq!(parts[2..], [Part::Redis, Part::Nats, Part::MariaDb], "seed {seed}");
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        let plan = |seed| Plan::new(seed, Duration::from_secs(10), 2, 1).0;
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn many_faults_fall_where_units_are_sold() {
        let over = Duration::from_secs(10);
        let early = (0..100).flat_map(|seed| Plan::new(seed, over, 2, 1).0).filter(|fault| fault.at < over / 10).count();
        assert!(early > 150, "{early} of 500 in the first tenth");
    }
}
