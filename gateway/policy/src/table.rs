//! Which generation of each policy answers. A request takes the whole table and keeps it; the loader replaces it whole.

use std::sync::Arc;

use async_trait::async_trait;
use gateway_core::policy::rollout::Stage;
use gateway_core::policy::{Call, Effects, Fault, Phase, Verdict};
use gateway_core::ports::{Answer, Canary, PolicySet, Side};
use tokio::time::Instant;

use crate::generation::Generation;
use crate::shadow::{self, Comparing};
use crate::tally::Tally;

/// One consistent choice of generations; what a request holds to its end. In order of the policies' names.
#[derive(Default, Clone)]
pub(crate) struct Table(pub(crate) Vec<Arc<Seat>>);

/// One policy's versions in one table.
pub(crate) struct Seat {
    pub(crate) policy: Arc<str>,
    pub(crate) plugin: Arc<str>,
    /// `None` until one could be loaded.
    pub(crate) live: Option<Arc<Generation>>,
    /// What the live generation did in this constellation.
    pub(crate) tally: Arc<Tally>,
    pub(crate) trial: Option<Arc<Trial>>,
}

/// A version on trial, and what it did.
pub(crate) struct Trial {
    pub(crate) generation: Arc<Generation>,
    pub(crate) stage: Stage,
    pub(crate) tally: Tally,
    pub(crate) comparing: Comparing,
}

impl Table {
    pub(crate) fn seat(&self, policy: &str) -> Option<&Arc<Seat>> {
        let found = self.0.binary_search_by(|seat| (*seat.policy).cmp(policy)).ok()?;
        self.0.get(found)
    }

    /// Puts `seat` in place of the one for the same policy.
    pub(crate) fn put(&mut self, seat: Seat) {
        let seat = Arc::new(seat);
        match self.0.binary_search_by(|other| other.policy.cmp(&seat.policy)) {
            Ok(found) => self.0[found] = seat,
            Err(place) => self.0.insert(place, seat),
        }
    }
}

impl Seat {
    /// The trial, when it is a canary.
    fn canary(&self) -> Option<(&Trial, gateway_core::policy::rollout::Cohort)> {
        let trial = self.trial.as_deref()?;
        match trial.stage {
            Stage::Canary(cohort) => Some((trial, cohort)),
            Stage::Shadow => None,
        }
    }

    /// The trial, when it is a shadow.
    fn shadow(&self) -> Option<&Arc<Trial>> {
        self.trial.as_ref().filter(|trial| trial.stage == Stage::Shadow)
    }
}

impl Trial {
    /// Asks the candidate and counts the answer.
    pub(crate) async fn ask(&self, call: Call<'_>) -> Result<Verdict, Fault> {
        ask(&self.generation, &self.tally, call).await.outcome
    }
}

#[async_trait]
impl PolicySet for Table {
    fn takes_part(&self, policy: &str, side: Side, phase: Phase) -> bool {
        let Some(seat) = self.seat(policy) else { return true };
        let Some(live) = &seat.live else { return true };
        match (side, seat.canary()) {
            (Side::Candidate, Some((trial, _))) => trial.generation.takes_part(phase),
            // A shadow may judge in phases that the live version leaves out, and that is a difference worth knowing.
            (Side::Live | Side::Candidate, _) => {
                live.takes_part(phase) || seat.shadow().is_some_and(|shadow| shadow.generation.takes_part(phase))
            }
        }
    }

    fn canary(&self, policy: &str) -> Option<Canary<'_>> {
        let seat = self.seat(policy)?;
        seat.canary().map(|(_, cohort)| Canary { plugin: &seat.plugin, cohort })
    }

    fn headers(&self, policy: &str, side: Side) -> &[String] {
        let Some(seat) = self.seat(policy) else { return &[] };
        let canary = seat.canary().filter(|_| side == Side::Candidate).map(|(trial, _)| &trial.generation);
        canary.or(seat.live.as_ref()).map_or(&[], |generation| generation.wanted())
    }

    async fn call(&self, policy: &str, side: Side, call: Call<'_>) -> Answer {
        let seat = self.seat(policy);
        if side == Side::Candidate
            && let Some((trial, _)) = seat.and_then(|seat| seat.canary())
        {
            return ask(&trial.generation, &trial.tally, call).await;
        }
        let Some((seat, live)) = seat.and_then(|seat| Some((seat, seat.live.as_ref()?))) else {
            return Answer { version: Arc::from(""), micros: 0, outcome: Err(Fault::Missing) };
        };
        let answer = ask(live, &seat.tally, call).await;
        if let Some(trial) = seat.shadow() {
            shadow::ask(trial, call, &answer.outcome);
        }
        answer
    }
}

/// One question to one generation, timed and counted. A generation that does not take part has nothing against it.
async fn ask(generation: &Generation, tally: &Tally, call: Call<'_>) -> Answer {
    let (micros, outcome) = if generation.takes_part(call.phase()) {
        let started = Instant::now();
        let outcome = generation.call(call, started).await;
        (u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX), outcome)
    } else {
        (0, Ok(Verdict::Proceed(Effects::default())))
    };
    tally.note(micros, &outcome);
    Answer { version: Arc::clone(&generation.version), micros, outcome }
}
