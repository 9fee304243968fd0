//! Which generation of each policy is live. Readers take the whole table and keep it; the loader replaces it whole.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use gateway_core::policy::regression::Counts;
use gateway_core::policy::{Call, Fault, Phase};
use gateway_core::ports::{Answer, Canary, PolicySet, PolicyStatus, Side};
use tokio::time::Instant;

use crate::generation::Generation;
use crate::lent::Lent;
use crate::settings::PolicySettings;

/// One consistent choice of generations; what a request holds to its end.
#[derive(Default, Clone)]
pub(crate) struct Table(HashMap<String, Arc<Generation>>);

#[async_trait]
impl PolicySet for Table {
    fn takes_part(&self, policy: &str, _side: Side, phase: Phase) -> bool {
        self.0.get(policy).is_none_or(|generation| generation.takes_part(phase))
    }

    fn canary(&self, _policy: &str) -> Option<Canary<'_>> {
        None
    }

    fn headers(&self, policy: &str, _side: Side) -> &[String] {
        self.0.get(policy).map_or(&[], |generation| generation.wanted())
    }

    async fn call(&self, policy: &str, _side: Side, call: Call<'_>) -> Answer {
        let Some(generation) = self.0.get(policy) else {
            return Answer { version: Arc::from(""), micros: 0, outcome: Err(Fault::Missing) };
        };
        let started = Instant::now();
        let outcome = generation.call(call).await;
        let micros = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
        Answer { version: Arc::clone(&generation.version), micros, outcome }
    }
}

/// What the host knows of one policy beyond its live generation.
pub(crate) struct Entry {
    pub(crate) settings: PolicySettings,
    pub(crate) lent: Arc<Lent>,
    history: Mutex<History>,
}

/// How loading went. Held while a generation is published, so that a status never mixes before and after.
#[derive(Default)]
struct History {
    /// Why the last load failed.
    error: Option<String>,
    /// Every generation that somebody may still hold.
    generations: Vec<Weak<Generation>>,
}

/// The live table and the entries behind it, in configuration order.
pub(crate) struct Shelf {
    live: ArcSwap<Table>,
    pub(crate) entries: Vec<Entry>,
}

impl Shelf {
    pub(crate) fn new(entries: impl Iterator<Item = (PolicySettings, Arc<Lent>)>) -> Self {
        let entry = |(settings, lent)| Entry { settings, lent, history: Mutex::default() };
        Self { live: ArcSwap::default(), entries: entries.map(entry).collect() }
    }

    pub(crate) fn current(&self) -> Arc<Table> {
        self.live.load_full()
    }

    pub(crate) fn status(&self) -> Vec<PolicyStatus> {
        self.entries.iter().map(|entry| self.status_of(entry)).collect()
    }

    pub(crate) fn status_of(&self, entry: &Entry) -> PolicyStatus {
        let history = entry.history();
        PolicyStatus {
            name: entry.settings.name.clone(),
            plugin: entry.settings.plugin.clone(),
            counts: Counts::default(),
            candidate: None,
            standby: None,
            version: self.live.load().0.get(&entry.settings.name).map(|generation| generation.version.to_string()),
            error: history.error.clone(),
            generations_live: history.generations.iter().filter(|generation| generation.strong_count() > 0).count(),
        }
    }

    /// Makes `generation` the live one. Only the loader calls this, so nothing is lost between reading and storing.
    pub(crate) fn publish(&self, entry: &Entry, generation: Generation) {
        let generation = Arc::new(generation);
        let superseded = {
            let mut history = entry.history();
            history.error = None;
            history.generations.retain(|generation| generation.strong_count() > 0);
            history.generations.push(Arc::downgrade(&generation));
            let mut table = Table::clone(&self.live.load());
            let superseded = table.0.insert(entry.settings.name.clone(), generation);
            self.live.store(Arc::new(table));
            superseded
        };
        if let Some(superseded) = superseded {
            superseded.supersede();
        }
    }
}

impl Entry {
    /// Remembers why a load failed.
    pub(crate) fn fail(&self, error: String) {
        self.history().error = Some(error);
    }

    fn history(&self) -> MutexGuard<'_, History> {
        // Whoever panicked under this lock left at worst a line too few.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
