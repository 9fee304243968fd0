//! What a component asks for, and what that changes against the version that is live.

use anyhow::Result;
use gateway_core::policy::{Digest, Phase};
use gateway_policy::Mode;
use gateway_policy::trial::{Lending, Trial};
use serde::Serialize;

use crate::plugin::{Plugin, runtime, trial};

/// What there is to know of a component before it is signed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The plugin.
    pub plugin: String,
    /// What it says of itself; absent when it could not be configured.
    pub asks: Option<Asks>,
    /// The SHA-256 of the component.
    pub digest: Digest,
    /// Its size.
    pub bytes: usize,
    /// Whether a schema of its configuration is inside.
    pub has_schema: bool,
    /// The host's functions it uses.
    pub capabilities: Vec<String>,
    /// What keeps it from being used: its configuration, its name.
    pub problems: Vec<String>,
    /// Against the live version, where one was given.
    pub against_live: Option<Difference>,
}

/// What a policy asks the host for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Asks {
    /// The author's version.
    pub version: String,
    /// When it wants to be asked.
    pub phases: Vec<&'static str>,
    /// The header fields it wants to see.
    pub headers: Vec<String>,
}

/// What another version asks for more, or no longer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The live component.
    pub live: Digest,
    /// The live component's own version, when it takes this configuration.
    pub live_version: Option<String>,
    /// Each as `phase request`, `header cookie`, `capability identity.verify`.
    pub added: Vec<String>,
    /// The same for what is gone.
    pub removed: Vec<String>,
}

/// Looks at `plugin`, and at the component of the live version.
///
/// # Errors
/// When either is no policy component at all.
pub fn run(plugin: &Plugin, live: Option<&[u8]>) -> Result<Report> {
    let config = plugin.config()?;
    let compiled = trial(&plugin.component, Lending::default())?;
    let mut problems = Vec::new();
    if let Err(problem) = compiled.check_configuration(&config) {
        problems.push(format!("config.json: {problem}"));
    }
    let asks = match asks(&compiled, &config) {
        Ok((name, asks)) => {
            if name != plugin.name {
                problems.push(format!("the policy calls itself {name:?} and its folder is {:?}: change either", plugin.name));
            }
            Some(asks)
        }
        Err(problem) => {
            problems.push(format!("config.json: {problem}"));
            None
        }
    };
    let capabilities = compiled.capabilities();
    let against_live = live.map(|live| difference(live, &config, asks.as_ref(), &capabilities)).transpose()?;
    Ok(Report {
        plugin: plugin.name.clone(),
        asks,
        digest: Digest::of(&plugin.component),
        bytes: plugin.component.len(),
        has_schema: compiled.has_schema(),
        capabilities,
        problems,
        against_live,
    })
}

fn asks(trial: &Trial, config: &str) -> Result<(String, Asks)> {
    let runtime = runtime()?;
    let subject = runtime.block_on(trial.configure(config, Mode::Warm))?;
    let manifest = subject.manifest().clone();
    let phases = manifest.phases.into_iter().map(Phase::as_str).collect();
    Ok((manifest.name, Asks { version: manifest.version, phases, headers: manifest.headers }))
}

fn difference(live: &[u8], config: &str, asks_now: Option<&Asks>, capabilities: &[String]) -> Result<Difference> {
    let compiled = trial(live, Lending::default())?;
    // An older version need not know today's configuration; its imports still tell what it could do.
    let asks = asks(&compiled, config).ok().map(|(_, asks)| asks);
    let live_wants = wants(asks.as_ref(), &compiled.capabilities());
    let wants = wants(asks_now.filter(|_| asks.is_some()), capabilities);
    let beyond = |these: &[String], those: &[String]| these.iter().filter(|one| !those.contains(one)).cloned().collect();
    Ok(Difference {
        live: Digest::of(live),
        added: beyond(&wants, &live_wants),
        removed: beyond(&live_wants, &wants),
        live_version: asks.map(|asks| asks.version),
    })
}

fn wants(asks: Option<&Asks>, capabilities: &[String]) -> Vec<String> {
    let phases = asks.iter().flat_map(|asks| &asks.phases).map(|phase| format!("phase {phase}"));
    let headers = asks.iter().flat_map(|asks| &asks.headers).map(|header| format!("header {header}"));
    phases.chain(headers).chain(capabilities.iter().map(|capability| format!("capability {capability}"))).collect()
}
