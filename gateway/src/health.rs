//! What `/readyz` says: every dependency and every required policy by name, with how it is right now.
//!
//! A background task asks each dependency once a second, so a probe costs nothing and is never late.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::config::OnFault;
use gateway_core::ports::PortError;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::node::Node;

/// How often dependencies are asked.
const PERIOD: Duration = Duration::from_secs(1);

/// Something this process cannot do its work without.
#[async_trait]
pub(crate) trait Dependency: Send + Sync {
    /// Its name: `redis`, `nats`, `mysql`.
    fn name(&self) -> &'static str;
    /// Asks it; has its own deadline.
    async fn ping(&self) -> Result<(), PortError>;
}

/// The last known state of each dependency.
#[derive(Default)]
pub(crate) struct Health {
    states: Mutex<BTreeMap<&'static str, Option<String>>>,
}

impl Health {
    /// Starts asking. A dependency counts as away until its first answer.
    pub(crate) fn start(dependencies: Vec<Arc<dyn Dependency>>) -> Arc<Self> {
        let health = Arc::new(Self::default());
        for dependency in dependencies {
            health.note(dependency.name(), Some("not asked yet".into()));
            let health = Arc::downgrade(&health);
            tokio::spawn(async move {
                let mut ticks = interval(PERIOD);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    let state = dependency.ping().await.err();
                    let Some(health) = health.upgrade() else { return };
                    health.note(dependency.name(), state.map(|error| chain(&error)));
                }
            });
        }
        health
    }

    fn note(&self, name: &'static str, error: Option<String>) {
        let before = self.states.lock().unwrap_or_else(PoisonError::into_inner).insert(name, error.clone());
        match (before, error) {
            (Some(Some(_)), None) => tracing::info!(dependency = name, "dependency is there"),
            (Some(None), Some(error)) => tracing::warn!(dependency = name, error, "dependency is away"),
            (None, _) | (Some(None), None) | (Some(Some(_)), Some(_)) => {}
        }
    }

    /// Whether everything is there that has to be, and the report. A policy has to be there unless its requests pass without it.
    pub(crate) fn report(&self, node: &Node) -> (bool, Value) {
        let draining = node.drain.started();
        let mut ready = !draining;
        let mut dependencies = serde_json::Map::new();
        for (name, error) in self.states.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            ready &= error.is_none();
            dependencies.insert((*name).into(), state(error.as_deref()));
        }
        let mut loaded = serde_json::Map::new();
        for policy in node.policies.status() {
            let configured = node.config.policies.iter().find(|configured| *configured.name == *policy.name);
            let required = configured.is_none_or(|configured| configured.fail.missing == OnFault::Closed);
            ready &= policy.version.is_some() || !required;
            // What is wrong with the rollout explains more than what is wrong with what runs meanwhile.
            let error = node.rollouts.error(&policy.plugin).or(policy.error);
            let mut entry = state(error.as_deref());
            entry["plugin"] = json!(policy.plugin);
            entry["version"] = json!(policy.version);
            entry["required"] = json!(required);
            loaded.insert(policy.name, entry);
        }
        let registry = state(node.rollouts.trouble().as_deref());
        let report = json!({
            "ready": ready, "draining": draining, "dependencies": dependencies, "policies": loaded, "registry": registry,
        });
        (ready, report)
    }
}

fn state(error: Option<&str>) -> Value {
    match error {
        None => json!({ "ok": true }),
        Some(error) => json!({ "ok": false, "error": error }),
    }
}

/// An error and everything behind it, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
