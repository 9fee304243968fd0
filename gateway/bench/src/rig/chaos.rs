//! What is killed when, and for how long: many parts at once in a rush, or one after another under a load that lasts.

use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Part, Rig};
use crate::say;

/// A part stays away at least and at most so long, and as long again as it takes to start.
const AWAY_MIN: Duration = Duration::from_millis(100);
const AWAY_MAX: Duration = Duration::from_millis(1_500);
/// Redis flushes its log once a second: what a machine that dies takes with it.
const UNFLUSHED_MAX: Duration = Duration::from_secs(1);

/// Of the time that belongs to one fault, the share in which it may begin; the rest is for coming back.
const BEGINS_IN: f64 = 0.4;

/// One part goes and comes back.
#[derive(Debug, Clone, PartialEq)]
struct Fault {
    part: Part,
    /// After the start of the load.
    at: Duration,
    /// Until it is started again.
    away: Duration,
    /// Redis only: how much of its latest past is gone.
    loses: Duration,
}

/// The faults of one run, in order.
#[derive(Debug, Default)]
pub struct Plan {
    faults: Vec<Fault>,
    /// Each begins only when everything has recovered from the one before.
    in_turn: bool,
}

impl Plan {
    /// A worker, a node, Redis, NATS and MariaDB, once each, in any order, at any time in `over`. Most of them come early, where
    /// the units of a sale are sold; several may be away at a time. The same seed makes the same plan.
    #[must_use]
    pub fn rush(seed: u64, over: Duration, nodes: usize, workers: usize) -> Self {
        let mut random = random(seed);
        let (worker, node) = (random.random_range(0..workers), random.random_range(0..nodes));
        let mut parts = [Part::Worker(worker), Part::Node(node), Part::Redis, Part::Nats, Part::MariaDb];
        parts.shuffle(&mut random);
        let place = |part, random: &mut StdRng| Fault::new(part, over.mul_f64(random.random::<f64>().powi(3)), random);
        let mut faults: Vec<Fault> = parts.into_iter().map(|part| place(part, &mut random)).collect();
        faults.sort_by_key(|fault| fault.at);
        Self { faults, in_turn: false }
    }

    /// Every node, every worker, Redis, NATS and MariaDB, `kills` times each, spread over `over`; none while another is away.
    /// The same seed makes the same plan.
    #[must_use]
    pub fn in_turn(seed: u64, over: Duration, nodes: usize, workers: usize, kills: u32) -> Self {
        let mut random = random(seed);
        let parts = || (0..nodes).map(Part::Node).chain((0..workers).map(Part::Worker)).chain([Part::Redis, Part::Nats, Part::MariaDb]);
        let mut order = Vec::new();
        for _ in 0..kills {
            let mut round: Vec<Part> = parts().collect();
            round.shuffle(&mut random);
            order.extend(round);
        }
        let share = over.div_f64(u32::try_from(order.len().max(1)).map_or(f64::MAX, f64::from));
        let mut begins = Duration::ZERO;
        let mut faults = Vec::new();
        for part in order {
            let at = begins + share.mul_f64(BEGINS_IN * random.random::<f64>());
            faults.push(Fault::new(part, at, &mut random));
            begins += share;
        }
        Self { faults, in_turn: true }
    }

    /// Carries all of it out; says what was done when, in the plan's order.
    pub async fn carry_out(self, rig: &Arc<Rig>, started: Instant, progress: &ProgressBar) -> anyhow::Result<Vec<String>> {
        if self.in_turn {
            let mut done = Vec::new();
            for fault in self.faults {
                done.push(fault.carry_out(rig, started).await?);
                rig.recovered().await?;
                progress.suspend(|| done.last().map(|line| say(line)));
            }
            return Ok(done);
        }
        let mut faults = JoinSet::new();
        for (index, fault) in self.faults.into_iter().enumerate() {
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

/// Not the stream that decides when a load is due.
fn random(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed.rotate_left(32) ^ 0x5eed)
}

impl Fault {
    fn new(part: Part, at: Duration, random: &mut StdRng) -> Self {
        let away = random.random_range(AWAY_MIN..AWAY_MAX);
        let loses = if part == Part::Redis { random.random_range(Duration::ZERO..UNFLUSHED_MAX) } else { Duration::ZERO };
        Self { part, at, away, loses }
    }

    async fn carry_out(&self, rig: &Rig, started: Instant) -> anyhow::Result<String> {
        let log = if self.part == Part::Redis {
            sleep_until(started + self.at.saturating_sub(self.loses)).await;
            Some(rig.redis_log()?)
        } else {
            None
        };
        sleep_until(started + self.at).await;
        rig.kill(self.part);
        let (at, gone) = (started.elapsed(), Instant::now());
        let lost = log.map(|log| rig.redis_loses(&log)).transpose()?;
        sleep(self.away).await;
        rig.restart(self.part).await?;
        let lost = lost.map(|bytes| format!(", {bytes} bytes of its log lost")).unwrap_or_default();
        Ok(format!("{:.2} s: {} killed{lost}, back after {:.2} s", at.as_secs_f64(), self.part, gone.elapsed().as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: Duration = Duration::from_secs(10);

    #[test]
    fn in_a_rush_every_part_goes_once_and_in_time() {
        for seed in 0..200 {
            let Plan { faults, .. } = Plan::rush(seed, OVER, 2, 3);
            assert!(faults.is_sorted_by_key(|fault| fault.at), "seed {seed}");
            assert!(faults.iter().all(|fault| fault.at < OVER && (AWAY_MIN..AWAY_MAX).contains(&fault.away)), "seed {seed}");
            let mut parts: Vec<Part> = faults.iter().map(|fault| fault.part).collect();
            parts.sort();
            let (Part::Worker(worker), Part::Node(node)) = (parts[0], parts[1]) else { panic!("seed {seed}: {parts:?}") };
            assert!(worker < 3 && node < 2, "seed {seed}");
            assert_eq!(parts[2..], [Part::Redis, Part::Nats, Part::MariaDb], "seed {seed}");
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        let plan = |seed| (Plan::rush(seed, OVER, 2, 1).faults, Plan::in_turn(seed, OVER, 2, 1, 2).faults);
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1).0, plan(2).0);
        assert_ne!(plan(1).1, plan(2).1);
    }

    #[test]
    fn in_a_rush_many_faults_fall_where_units_are_sold() {
        let early = (0..100).flat_map(|seed| Plan::rush(seed, OVER, 2, 1).faults).filter(|fault| fault.at < OVER / 10).count();
        assert!(early > 150, "{early} of 500 in the first tenth");
    }

    #[test]
    fn in_turn_every_single_part_goes_as_often_as_asked_with_time_between() {
        for seed in 0..100 {
            let Plan { faults, .. } = Plan::in_turn(seed, OVER, 2, 2, 3);
            assert_eq!(faults.len(), 7 * 3, "seed {seed}");
            for part in [Part::Node(0), Part::Node(1), Part::Worker(0), Part::Worker(1), Part::Redis, Part::Nats, Part::MariaDb] {
                assert_eq!(faults.iter().filter(|fault| fault.part == part).count(), 3, "seed {seed}: {part}");
            }
            let apart = OVER.div_f64(21.0).mul_f64(1.0 - BEGINS_IN - 0.001);
            assert!(faults.windows(2).all(|two| two[1].at - two[0].at >= apart), "seed {seed}");
            assert!(faults.last().is_some_and(|fault| fault.at < OVER), "seed {seed}");
        }
    }
}
