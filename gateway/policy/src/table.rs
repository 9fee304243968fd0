//! Which generation of each policy is live. Readers take the whole table and keep it; the loader replaces it whole.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use gateway_core::policy::{Call, Fault, Phase};
use gateway_core::ports::{Answer, PolicySet, PolicyStatus};
use tokio::time::Instant;

use crate::generation::Generation;
use crate::lent::Lent;
use crate::settings::PolicySettings;

/// One consistent choice of generations; what a request holds to its end.
#[derive(Default, Clone)]
pub(crate) struct Table(HashMap<String, Arc<Generation>>);

#[async_trait]
impl PolicySet for Table {
    fn takes_part(&self, policy: &str, phase: Phase) -> bool {
        self.0.get(policy).is_none_or(|generation| generation.takes_part(phase))
    }

    async fn call(&self, policy: &str, call: Call<'_>) -> Answer {
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
    /// Why the last load failed.
    error: Mutex<Option<String>>,
    /// Every generation that somebody may still hold.
    generations: Mutex<Vec<Weak<Generation>>>,
}

/// The live table and the entries behind it, in configuration order.
pub(crate) struct Shelf {
    live: ArcSwap<Table>,
    pub(crate) entries: Vec<Entry>,
}

impl Shelf {
    pub(crate) fn new(entries: impl Iterator<Item = (PolicySettings, Arc<Lent>)>) -> Self {
        let entry = |(settings, lent)| Entry { settings, lent, error: Mutex::new(None), generations: Mutex::new(Vec::new()) };
        Self { live: ArcSwap::default(), entries: entries.map(entry).collect() }
    }

    pub(crate) fn current(&self) -> Arc<Table> {
        self.live.load_full()
    }

    pub(crate) fn entry(&self, policy: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.settings.name == policy)
    }

    pub(crate) fn status(&self) -> Vec<PolicyStatus> {
        let table = self.live.load();
        self.entries.iter().map(|entry| entry.status(&table)).collect()
    }

    pub(crate) fn status_of(&self, entry: &Entry) -> PolicyStatus {
        entry.status(&self.live.load())
    }

    /// Makes `generation` the live one. Only the loader calls this, so nothing is lost between reading and storing.
    pub(crate) fn publish(&self, entry: &Entry, generation: Generation) {
        let generation = Arc::new(generation);
        {
            let mut generations = entry.generations.lock().unwrap_or_else(PoisonError::into_inner);
            generations.retain(|generation| generation.strong_count() > 0);
            generations.push(Arc::downgrade(&generation));
        }
        let mut table = Table::clone(&self.live.load());
        let superseded = table.0.insert(entry.settings.name.clone(), generation);
        self.live.store(Arc::new(table));
        if let Some(superseded) = superseded {
            superseded.supersede();
        }
        entry.fail(None);
    }
}

impl Entry {
    /// Remembers why a load failed, or that the last one did not.
    pub(crate) fn fail(&self, error: Option<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    fn status(&self, table: &Table) -> PolicyStatus {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        PolicyStatus {
            name: self.settings.name.clone(),
            version: table.0.get(&self.settings.name).map(|generation| generation.version.to_string()),
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            generations_live: generations.iter().filter(|generation| generation.strong_count() > 0).count(),
        }
    }
}
