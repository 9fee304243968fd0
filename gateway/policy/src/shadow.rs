//! Asking a version on trial beside the live one, and comparing what the two say.
//!
//! What never happens here: delaying or changing the live answer. A question is copied and asked later, elsewhere; when too
//! many are waiting it is not asked at all, and that is counted.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gateway_core::policy::{Attempt, Call, Effects, Facts, Fault, Message, ResponseHead, Verdict, difference};
use gateway_core::ports::{Comparison, Sample};
use gateway_core::request::RequestHead;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::table::Trial;

/// Most questions of one trial that wait for their shadow at once.
pub(crate) const IN_FLIGHT_MAX: usize = 64;

/// Differences that are kept in words; older ones are only counted.
const SAMPLES_MAX: usize = 32;

/// Longest description of a verdict in a sample, in bytes.
const WORDS_BYTES_MAX: usize = 400;

/// How the shadow of one trial compares so far.
pub(crate) struct Comparing {
    in_flight: Arc<Semaphore>,
    dropped: AtomicU64,
    findings: Mutex<Findings>,
}

#[derive(Default)]
struct Findings {
    compared: u64,
    differences: BTreeMap<&'static str, u64>,
    samples: VecDeque<Sample>,
}

impl Comparing {
    /// Lets `in_flight_max` questions wait at once.
    pub(crate) fn new(in_flight_max: usize) -> Self {
        Self { in_flight: Arc::new(Semaphore::new(in_flight_max)), dropped: AtomicU64::new(0), findings: Mutex::default() }
    }

    /// Counts so far, samples newest first.
    pub(crate) fn report(&self) -> Comparison {
        let findings = self.findings();
        Comparison {
            compared: findings.compared,
            dropped: self.dropped.load(Ordering::Relaxed),
            differences: findings.differences.iter().map(|(reason, count)| (*reason, *count)).collect(),
            samples: findings.samples.iter().cloned().collect(),
        }
    }

    fn note(&self, question: &Question, live: &Result<Verdict, Fault>, shadow: &Result<Verdict, Fault>) {
        let found = difference(live, shadow).map(|reason| Sample {
            trace_id: question.trace_id().to_owned(),
            phase: question.call().phase(),
            reason,
            live: words(live),
            shadow: words(shadow),
        });
        let mut findings = self.findings();
        findings.compared += 1;
        if let Some(sample) = found {
            *findings.differences.entry(sample.reason).or_default() += 1;
            findings.samples.truncate(SAMPLES_MAX - 1);
            findings.samples.push_front(sample);
        }
    }

    fn findings(&self) -> std::sync::MutexGuard<'_, Findings> {
        // Whoever panicked under this lock left at worst a count too few.
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the candidate of `trial` what the live version has just answered with `live`. Returns at once.
pub(crate) fn ask(trial: &Arc<Trial>, call: Call<'_>, live: &Result<Verdict, Fault>) {
    let comparing = &trial.comparing;
    let (Ok(runtime), Ok(permit)) = (Handle::try_current(), Arc::clone(&comparing.in_flight).try_acquire_owned()) else {
        comparing.dropped.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let (trial, question, live) = (Arc::clone(trial), Question::of(call), live.clone());
    // It ends by itself: a call has its time. Nobody waits for it, and a shutdown may cut it off.
    runtime.spawn(async move {
        let shadow = trial.ask(question.call()).await;
        trial.comparing.note(&question, &live, &shadow);
        drop(permit);
    });
}

/// A call with everything it borrows.
enum Question {
    Request(RequestHead, Facts),
    Attempt(RequestHead, Facts, Attempt),
    Message(Facts, Message),
    Response(RequestHead, Facts, ResponseHead),
}

impl Question {
    fn of(call: Call<'_>) -> Self {
        match call {
            Call::Request(head, facts) => Self::Request(head.clone(), facts.clone()),
            Call::Attempt(head, facts, attempt) => Self::Attempt(head.clone(), facts.clone(), attempt.clone()),
            Call::Message(facts, message) => Self::Message(facts.clone(), message.clone()),
            Call::Response(head, facts, response) => Self::Response(head.clone(), facts.clone(), response.clone()),
        }
    }

    fn call(&self) -> Call<'_> {
        match self {
            Self::Request(head, facts) => Call::Request(head, facts),
            Self::Attempt(head, facts, attempt) => Call::Attempt(head, facts, attempt),
            Self::Message(facts, message) => Call::Message(facts, message),
            Self::Response(head, facts, response) => Call::Response(head, facts, response),
        }
    }

    fn trace_id(&self) -> &str {
        match self {
            Self::Request(head, _) | Self::Attempt(head, ..) | Self::Response(head, ..) => &head.trace_id,
            Self::Message(..) => "",
        }
    }
}

/// A verdict on one line, for people.
fn words(outcome: &Result<Verdict, Fault>) -> String {
    let mut line = match outcome {
        Err(fault) => fault.as_str().to_owned(),
        Ok(Verdict::Refuse(refusal)) => {
            let retry = refusal.retry_after_ms.map(|wait| format!(", retry after {wait} ms")).unwrap_or_default();
            format!("refuse {} {} {:?}{retry}", refusal.status, refusal.code, refusal.message)
        }
        Ok(Verdict::Proceed(effects)) => effects_in_words(effects),
    };
    line.truncate(line.floor_char_boundary(WORDS_BYTES_MAX));
    line
}

fn effects_in_words(effects: &Effects) -> String {
    let mut line = "proceed".to_owned();
    // Writing to a string cannot fail. Everything quoted here has passed the rules, so it is short.
    if let Some(principal) = &effects.principal {
        let _ = write!(line, " as {} {}", principal.role.as_str(), principal.id.as_str());
    }
    for charge in &effects.charges {
        let _ = write!(line, " charge {}[{}] {} of {} in {} ms", charge.budget, charge.key, charge.cost, charge.limit, charge.window_ms);
    }
    for (name, value) in &effects.set_headers {
        let _ = write!(line, " set {name}: {value:?}");
    }
    for name in &effects.remove_headers {
        let _ = write!(line, " remove {name}");
    }
    for (what, text) in [("replace", &effects.replace), ("reply", &effects.reply)] {
        if let Some(text) = text {
            let _ = write!(line, " {what} {text:?}");
        }
    }
    if !effects.tags.is_empty() {
        let _ = write!(line, " tags {}", effects.tags.join(","));
    }
    if effects.score > 0 {
        let _ = write!(line, " score {}", effects.score);
    }
    line
}

#[cfg(test)]
mod tests {
    use gateway_core::time::UnixMillis;

    use super::*;

    fn asked(content: &str) -> Question {
        let facts = Facts { now: UnixMillis(0), principal: None, device: None, tags: Vec::new() };
        let (session, shop) = (gateway_core::id::SessionId(1), gateway_core::id::ShopId(1));
        Question::Message(facts, Message { session, shop, kind: "text".into(), content: content.into() })
    }

    #[test]
    fn the_newest_differences_are_kept_and_all_are_counted() {
        let comparing = Comparing::new(1);
        let proceed = |score| Ok(Verdict::Proceed(Effects { score, ..Effects::default() }));
        for score in 0..100 {
            comparing.note(&asked("x"), &proceed(0), &proceed(score));
        }
        comparing.note(&asked("x"), &proceed(0), &Err(Fault::Trap));
        let report = comparing.report();
        assert_eq!((report.compared, report.dropped, report.samples.len()), (101, 0, SAMPLES_MAX));
        assert_eq!(report.differences, [("tags", 99), ("trap", 1)]);
        let said: Vec<&str> = report.samples.iter().map(|sample| sample.shadow.as_str()).take(2).collect();
        assert_eq!(said, ["trap", "proceed score 99"]);
        assert_eq!((report.samples[0].phase, report.samples[0].trace_id.as_str()), (Phase::Message, ""));
    }

    #[test]
    fn a_verdict_in_words_is_one_short_line() {
        let effects = Effects { reply: Some("两\n行".repeat(1_000)), ..Effects::default() };
        let line = words(&Ok(Verdict::Proceed(effects)));
        assert!(line.starts_with("proceed reply \"两\\n行") && line.len() <= WORDS_BYTES_MAX && line.lines().count() == 1);
    }
}
