//! What a call costs, warm and fresh, over the vectors' questions.
//!
//! A number here is a measurement of this machine at this moment, never a test.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gateway_policy::Mode;
use gateway_policy::trial::{Subject, Trial};
use serde::Serialize;

use crate::cases::{Question, lending};
use crate::plugin::{Plugin, runtime, trial};
use crate::vectors::Vectors;

/// How long each mode is measured, and the most calls that takes.
const MEASURED_FOR: Duration = Duration::from_secs(1);
const CALLS_MAX: usize = 200_000;

/// Calls that are not counted: the first ones meet cold caches.
const WARM_UP_CALLS: usize = 100;

/// What calls cost.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The plugin.
    pub plugin: String,
    /// One instance for all calls.
    pub warm: Cost,
    /// One instance a call.
    pub fresh: Cost,
}

/// The spread of one mode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Calls measured.
    pub calls: usize,
    /// Half of the calls took no longer, in nanoseconds.
    pub median_ns: u64,
    /// 99 of 100 calls took no longer, in nanoseconds.
    pub p99_ns: u64,
}

/// Measures `plugin`, configured with its `config.json`, on the questions of its vectors that share that configuration.
///
/// # Errors
/// When there is nothing to ask, or it cannot be asked.
pub fn run(plugin: &Plugin) -> Result<Report> {
    let vectors = Vectors::read(&plugin.folder).map_err(anyhow::Error::msg)?;
    let trial = trial(&plugin.component, lending(&vectors)?)?;
    let cases = vectors.cases.iter().filter(|case| case.config.is_none());
    let questions: Vec<Question> = cases.map(|case| Question::new(&vectors, case)).collect::<Result<_>>()?;
    let config = vectors.config.as_ref().map_or_else(|| "{}".to_owned(), ToString::to_string);
    let runtime = runtime()?;
    let measure = |mode| runtime.block_on(measure(&trial, &config, mode, &questions));
    Ok(Report { plugin: plugin.name.clone(), warm: measure(Mode::Warm)?, fresh: measure(Mode::Fresh)? })
}

async fn measure(trial: &Trial, config: &str, mode: Mode, questions: &[Question]) -> Result<Cost> {
    let mut subject = trial.configure(config, mode).await?;
    let asked: Vec<&Question> = questions.iter().filter(|question| subject.manifest().phases.contains(&question.phase())).collect();
    ensure!(!asked.is_empty(), "no case of the vectors asks in a phase this policy takes part in");
    for question in asked.iter().cycle().take(WARM_UP_CALLS) {
        ask(&mut subject, question).await;
    }
    let (started, mut samples) = (Instant::now(), Vec::with_capacity(CALLS_MAX));
    for question in asked.iter().cycle().take(CALLS_MAX) {
        samples.push(ask(&mut subject, question).await);
        if started.elapsed() > MEASURED_FOR {
            break;
        }
    }
    samples.sort_unstable();
    let at = |part: usize| samples.get((samples.len() * part / 100).min(samples.len() - 1)).copied().unwrap_or_default();
    Ok(Cost { calls: samples.len(), median_ns: at(50), p99_ns: at(99) })
}

/// Nanoseconds of one call; a fault takes time too.
async fn ask(subject: &mut Subject<'_>, question: &Question) -> u64 {
    let started = Instant::now();
    let _ = std::hint::black_box(subject.ask(question.call()).await);
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
