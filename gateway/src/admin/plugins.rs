//! Plugins: what this node runs, and the steps of a rollout, which every node follows.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use gateway_core::policy::bundle::BUNDLE_BYTES_MAX;
use gateway_core::policy::regression::{Counts, Limits};
use gateway_core::policy::rollout::{Cohort, Rollout, Source, Stage};
use gateway_core::ports::{CandidateStatus, PolicyStatus, Table};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::{Answer, Refused, body, instants, operator};
use crate::node::Node;
use crate::rollouts::record::{PluginRecord, Version};
use crate::rollouts::steps::{Changed, StepError};

/// Largest JSON body of a step.
const STEP_BYTES_MAX: usize = 16 << 10;

/// Longest reason for a rollback, in characters.
const WHY_CHARS_MAX: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Who {
    pub(super) by: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Trial {
    #[serde(default = "latest")]
    version: String,
    mode: String,
    tail: Option<String>,
    percent: Option<u8>,
    #[serde(default)]
    limits: Limits,
    by: Option<String>,
}

fn latest() -> String {
    "latest".to_owned()
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Step {
    by: Option<String>,
    why: String,
}

/// `GET /admin/plugins`: what this node runs, and what the registry says.
pub(super) async fn list(State(node): State<Arc<Node>>) -> Answer {
    let policies: Vec<Value> = node.policies.status().iter().map(describe).collect();
    let rollouts = &node.rollouts;
    // The registry knows best; while it is away, what this node saw last.
    let (mut records, trouble) = match node.ports.registry.all(Table::Rollouts).await {
        Ok(records) => {
            let parsed =
                records.into_iter().filter_map(|record| Some((record.key, (record.revision, serde_json::from_slice(&record.value).ok()?))));
            (parsed.collect(), None)
        }
        Err(error) => {
            let seen = rollouts.plugins().filter_map(|plugin| Some((plugin.to_owned(), rollouts.seen(plugin)?)));
            (seen.collect::<std::collections::BTreeMap<String, (u64, PluginRecord)>>(), Some(error.to_string()))
        }
    };
    for plugin in rollouts.plugins() {
        records.entry(plugin.to_owned()).or_insert_with(|| (0, PluginRecord::new(plugin)));
    }
    let plugins: Vec<Value> = records
        .iter()
        .map(|(plugin, (revision, record))| {
            let mut entry = describe_record(*revision, record);
            entry["versions"] = record.versions.iter().rev().map(describe_version).collect();
            entry["used"] = rollouts.uses(plugin).into();
            entry["error"] = rollouts.error(plugin).into();
            entry
        })
        .collect();
    Ok((
        StatusCode::OK,
        axum::Json(json!({ "policies": policies, "plugins": plugins, "registry": super::nodes::registry(&node, trouble) })),
    ))
}

/// `POST /admin/plugins` with a bundle as the body.
pub(super) async fn push(State(node): State<Arc<Node>>, who: Query<Who>, bundle: Body) -> Answer {
    let by = operator(who.0.by)?;
    let bundle = body::read(bundle, BUNDLE_BYTES_MAX).await?;
    let (proved, changed) = node.rollouts.push(bundle, &by).await.map_err(|error| refused(error, "BAD_BUNDLE"))?;
    let names = &proved.names;
    tracing::info!(plugin = proved.label.plugin, version = names.component.short(), signer = proved.signer, by, "a bundle was pushed");
    Ok((
        StatusCode::OK,
        axum::Json(json!({
            "plugin": proved.label.plugin,
            "version": names.component,
            "bundle": names.bundle,
            "label": proved.label,
            "signer": proved.signer,
            "revision": changed.revision,
            "new": changed.happened,
        })),
    ))
}

/// `POST /admin/plugins/{name}/rollout`
pub(super) async fn rollout(State(node): State<Arc<Node>>, Path(plugin): Path<String>, trial: Body) -> Answer {
    let trial: Trial = json_body(trial).await?;
    let stage = stage(&trial)?;
    check(&trial.limits)?;
    let by = operator(trial.by)?;
    let changed = node.rollouts.try_out(&plugin, &trial.version, &stage, trial.limits, &by).await;
    answer(&plugin, changed)
}

/// `POST /admin/plugins/{name}/promote`
pub(super) async fn promote(State(node): State<Arc<Node>>, Path(plugin): Path<String>, step: Body) -> Answer {
    let step: Step = json_body(step).await?;
    let by = operator(step.by)?;
    answer(&plugin, node.rollouts.promote(&plugin, &by).await)
}

/// `POST /admin/plugins/{name}/rollback`
pub(super) async fn roll_back(State(node): State<Arc<Node>>, Path(plugin): Path<String>, step: Body) -> Answer {
    let step: Step = json_body(step).await?;
    let by = operator(step.by)?;
    if step.why.chars().count() > WHY_CHARS_MAX || step.why.contains(char::is_control) {
        return Err(Refused::bad(format!("why has at most {WHY_CHARS_MAX} characters and stays on one line")));
    }
    answer(&plugin, node.rollouts.roll_back(&plugin, &step.why, &by).await)
}

/// `GET /admin/plugins/{name}/component`: the live component, when it came from a bundle.
pub(super) async fn component(State(node): State<Arc<Node>>, Path(plugin): Path<String>) -> Result<Response, Refused> {
    let record = match node.ports.registry.read(Table::Rollouts, &plugin).await {
        Ok(record) => record.and_then(|record| serde_json::from_slice::<PluginRecord>(&record.value).ok()),
        Err(error) => Some(node.rollouts.seen(&plugin).ok_or(error)?.1),
    };
    let Some(live) = record.as_ref().and_then(|record| record.rollout.live.bundle()) else {
        return Err(Refused::missing(format!("no bundle of {plugin:?} is live")));
    };
    let proved = node.rollouts.fetch(&plugin, live).await.map_err(|error| refused(StepError::Refused(error), "CONFLICT"))?;
    let digest = live.component.as_str().to_owned();
    Ok(([(header::CONTENT_TYPE, "application/wasm".to_owned()), (header::ETAG, format!("\"{digest}\""))], proved.artefact.component)
        .into_response())
}

async fn json_body<T: for<'a> Deserialize<'a>>(given: Body) -> Result<T, Refused> {
    let bytes = body::read(given, STEP_BYTES_MAX).await?;
    let bytes = if bytes.is_empty() { &b"{}"[..] } else { &bytes };
    serde_json::from_slice(bytes).map_err(|error| Refused::bad(error.to_string()))
}

fn stage(trial: &Trial) -> Result<Stage, Refused> {
    let cohort = |text: String| text.parse::<Cohort>().map_err(|error| Refused::bad(error.to_string()));
    match (trial.mode.as_str(), &trial.tail, trial.percent) {
        ("shadow", None, None) => Ok(Stage::Shadow),
        ("canary", Some(tail), None) => cohort(format!("tail {tail}")).map(Stage::Canary),
        ("canary", None, Some(percent)) => cohort(format!("{percent}%")).map(Stage::Canary),
        ("shadow", _, _) => Err(Refused::bad("a shadow is asked for everybody: leave tail and percent out")),
        ("canary", _, _) => Err(Refused::bad("a canary needs one of tail (\"0-4\") and percent (10)")),
        _ => Err(Refused::bad("mode is \"shadow\" or \"canary\"")),
    }
}

fn check(limits: &Limits) -> Result<(), Refused> {
    let rates = [limits.trap_rate, limits.timeout_rate, limits.refusal_shift];
    let fits = rates.iter().all(|rate| (0.0..=1.0).contains(rate)) && limits.p99_factor >= 1.0 && limits.min_calls > 0;
    fits.then_some(()).ok_or_else(|| Refused::bad("limits: rates and shift are from 0 to 1, p99Factor is 1 or more, minCalls above 0"))
}

fn answer(plugin: &str, changed: Result<Changed<PluginRecord>, StepError>) -> Answer {
    let Changed { record, revision, .. } = changed.map_err(|error| refused(error, "BAD_REQUEST"))?;
    if let Some(step) = record.rollout.history.last() {
        tracing::info!(plugin, by = step.by, what = step.what, "a step of a rollout");
    }
    Ok((StatusCode::OK, axum::Json(describe_record(revision, &record))))
}

pub(super) fn refused(error: StepError, bad: &'static str) -> Refused {
    match error {
        StepError::Unknown(sentence) => Refused::missing(sentence),
        StepError::Refused(sentence) => Refused::new(StatusCode::CONFLICT, "CONFLICT", sentence),
        StepError::Bad(sentence) => Refused::new(StatusCode::BAD_REQUEST, bad, sentence),
        StepError::Port(error) => error.into(),
    }
}

fn describe(policy: &PolicyStatus) -> Value {
    json!({
        "name": policy.name,
        "plugin": policy.plugin,
        "version": policy.version,
        "error": policy.error,
        "generationsLive": policy.generations_live,
        "counts": counts(&policy.counts),
        "candidate": policy.candidate.as_ref().map(candidate),
        "standby": policy.standby,
    })
}

fn candidate(candidate: &CandidateStatus) -> Value {
    let comparison = &candidate.comparison;
    let differences: serde_json::Map<String, Value> =
        comparison.differences.iter().map(|(word, count)| ((*word).to_owned(), json!(count))).collect();
    let samples: Vec<Value> = comparison
        .samples
        .iter()
        .map(|sample| {
            json!({
                "traceId": sample.trace_id, "phase": sample.phase.as_str(), "reason": sample.reason,
                "live": sample.live, "shadow": sample.shadow,
            })
        })
        .collect();
    json!({
        "version": candidate.version,
        "mode": candidate.stage.as_str(),
        "cohort": cohort(&candidate.stage),
        "counts": counts(&candidate.counts),
        "comparison": {
            "compared": comparison.compared, "dropped": comparison.dropped, "differences": differences, "samples": samples,
        },
    })
}

fn cohort(stage: &Stage) -> Option<String> {
    match stage {
        Stage::Shadow => None,
        Stage::Canary(cohort) => Some(cohort.to_string()),
    }
}

fn counts(counts: &Counts) -> Value {
    json!({
        "calls": counts.calls, "refusals": counts.refusals, "traps": counts.traps, "timeouts": counts.timeouts,
        "badVerdicts": counts.bad_verdicts, "p99Micros": counts.p99_micros(),
    })
}

/// The record as operators read it: versions by digest, instants as times.
fn describe_record(revision: u64, record: &PluginRecord) -> Value {
    let Rollout { plugin, live, previous, candidate, history } = &record.rollout;
    let source = |source: &Source| match source {
        Source::Folder => json!("folder"),
        Source::Bundle(bundle) => json!(bundle.component),
    };
    json!({
        "plugin": plugin,
        "revision": revision,
        "live": source(live),
        "previous": previous.as_ref().map(source),
        "candidate": candidate.as_ref().map(|candidate| json!({
            "version": candidate.bundle.component,
            "mode": candidate.stage.as_str(),
            "cohort": cohort(&candidate.stage),
            "since": instants::write(candidate.since),
            "limits": candidate.limits,
        })),
        "history": history.iter().map(|step| json!({ "at": instants::write(step.at), "by": step.by, "what": step.what })).collect::<Vec<_>>(),
    })
}

fn describe_version(version: &Version) -> Value {
    json!({
        "version": version.bundle.component,
        "bundle": version.bundle.bundle,
        "author": version.version,
        "signer": version.signer,
        "bytes": version.bytes,
        "pushed": instants::write(version.at),
        "by": version.by,
    })
}
