//! [`Registry`] in memory: blobs and three tables, with watchers that are told what they have not seen yet.
//!
//! Bounds: [`BLOBS_BYTES_MAX`] bytes of blobs and [`RECORDS_MAX`] records a table; what comes on top is refused. A watcher
//! keeps one number a record and nothing else, however far behind it is. Called through the port only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use gateway_core::policy::Digest;
use gateway_core::ports::{
    BLOB_BYTES_MAX, Change, Changes, PortError, PortErrorKind, PortResult, RECORD_BYTES_MAX, Record, Registry, Store, Table, Written,
};
use tokio::sync::watch;

use crate::{full, lock};

/// Bytes of all blobs together: a few of the largest, or thousands of ordinary ones.
pub const BLOBS_BYTES_MAX: usize = 512 << 20;

/// Records of one table.
pub const RECORDS_MAX: usize = 10_000;

/// What a process knows about its policies; it ends with the process.
#[derive(Default)]
pub struct EmbeddedRegistry(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Tells watchers to look; it carries nothing.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    blobs: BTreeMap<String, Bytes>,
    tables: BTreeMap<Table, BTreeMap<String, Entry>>,
    /// The revision of the latest write of any record.
    revision: u64,
}

struct Entry {
    value: Bytes,
    revision: u64,
}

impl EmbeddedRegistry {
    /// A registry that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn change<T>(&self, step: impl FnOnce(&mut State) -> PortResult<T>) -> PortResult<T> {
        let done = step(&mut lock(&self.0.state));
        self.0.changed.send_replace(());
        done
    }
}

impl State {
    fn write(&mut self, table: Table, key: &str, value: Bytes, expected: Option<Option<u64>>) -> PortResult<Written> {
        let doing = "write a record";
        check(key, &value)?;
        let records = self.tables.entry(table).or_default();
        let present = records.get(key).map(|entry| entry.revision);
        if expected.is_some_and(|expected| expected != present) {
            return Ok(Written::Conflict);
        }
        if present.is_none() && records.len() >= RECORDS_MAX {
            return Err(full(Store::Nats, doing));
        }
        self.revision += 1;
        records.insert(key.to_owned(), Entry { value, revision: self.revision });
        Ok(Written::Done(self.revision))
    }
}

fn check(key: &str, value: &Bytes) -> PortResult<()> {
    let is_key = (1..=64).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if is_key && value.len() <= RECORD_BYTES_MAX { Ok(()) } else { Err(broken("write a record", "the key or the value is not one")) }
}

fn broken(doing: &'static str, why: &'static str) -> PortError {
    PortError { kind: PortErrorKind::Broken, store: Store::Nats, doing, source: Some(why.into()) }
}

#[async_trait]
impl Registry for EmbeddedRegistry {
    async fn put_blob(&self, name: &str, bytes: Bytes) -> PortResult<()> {
        let doing = "store a blob";
        if bytes.len() > BLOB_BYTES_MAX || Digest::of(&bytes).as_str() != name {
            return Err(broken(doing, "the blob is too large or has another name"));
        }
        let mut state = lock(&self.0.state);
        let held: usize = state.blobs.values().map(Bytes::len).sum();
        if !state.blobs.contains_key(name) && held + bytes.len() > BLOBS_BYTES_MAX {
            return Err(full(Store::Nats, doing));
        }
        state.blobs.insert(name.to_owned(), bytes);
        Ok(())
    }

    async fn blob(&self, name: &str) -> PortResult<Option<Bytes>> {
        Ok(lock(&self.0.state).blobs.get(name).cloned())
    }

    async fn remove_blob(&self, name: &str) -> PortResult<()> {
        lock(&self.0.state).blobs.remove(name);
        Ok(())
    }

    async fn read(&self, table: Table, key: &str) -> PortResult<Option<Record>> {
        let state = lock(&self.0.state);
        Ok(state.tables.get(&table).and_then(|records| records.get_key_value(key)).map(record))
    }

    async fn all(&self, table: Table) -> PortResult<Vec<Record>> {
        Ok(lock(&self.0.state).tables.get(&table).into_iter().flatten().map(record).collect())
    }

    async fn write(&self, table: Table, key: &str, value: Bytes, expected: Option<u64>) -> PortResult<Written> {
        self.change(|state| state.write(table, key, value, Some(expected)))
    }

    async fn put(&self, table: Table, key: &str, value: Bytes) -> PortResult<()> {
        self.change(|state| state.write(table, key, value, None)).map(drop)
    }

    async fn remove(&self, table: Table, key: &str) -> PortResult<()> {
        self.change(|state| {
            state.tables.entry(table).or_default().remove(key);
            Ok(())
        })
    }

    async fn watch(&self, table: Table) -> PortResult<Box<dyn Changes>> {
        let mut changed = self.0.changed.subscribe();
        // The first look is due at once.
        changed.mark_changed();
        Ok(Box::new(Watcher { shared: Arc::downgrade(&self.0), table, changed, seen: BTreeMap::new() }))
    }
}

fn record((key, entry): (&String, &Entry)) -> Record {
    Record { key: key.clone(), value: entry.value.clone(), revision: entry.revision }
}

/// It does not keep the registry alive: when that goes, `next` says so.
struct Watcher {
    shared: Weak<Shared>,
    table: Table,
    changed: watch::Receiver<()>,
    /// The revisions its owner was told of.
    seen: BTreeMap<String, u64>,
}

impl Watcher {
    /// A difference between what its owner was told and what is so.
    fn look(&mut self) -> Option<Change> {
        let shared = self.shared.upgrade()?;
        let state = lock(&shared.state);
        let records = state.tables.get(&self.table);
        let news = records.into_iter().flatten().find(|(key, entry)| self.seen.get(*key) != Some(&entry.revision));
        if let Some((key, entry)) = news {
            self.seen.insert(key.clone(), entry.revision);
            return Some(Change::Put(record((key, entry))));
        }
        let gone = self.seen.keys().find(|key| !records.is_some_and(|records| records.contains_key(*key))).cloned()?;
        self.seen.remove(&gone);
        Some(Change::Deleted(gone))
    }
}

#[async_trait]
impl Changes for Watcher {
    async fn next(&mut self) -> Option<Change> {
        // Cancel safe: what is told is marked as told in the step that returns it.
        loop {
            if let Some(change) = self.look() {
                return Some(change);
            }
            self.changed.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watcher_far_behind_is_told_the_present_state_once() {
        let registry = EmbeddedRegistry::new();
        let mut watcher = registry.watch(Table::Rollouts).await.expect("watches");
        for n in 0..1_000 {
            registry.put(Table::Rollouts, "k", Bytes::from(n.to_string())).await.expect("puts");
        }
        let Some(Change::Put(record)) = watcher.next().await else { panic!("no record") };
        assert_eq!(record.value, Bytes::from_static(b"999"));
        drop(registry);
        assert_eq!(watcher.next().await, None, "the registry is gone");
    }

    #[tokio::test]
    async fn what_it_cannot_hold_is_refused() {
        let registry = EmbeddedRegistry::new();
        for n in 0..RECORDS_MAX {
            registry.put(Table::Nodes, &n.to_string(), Bytes::new()).await.expect("puts");
        }
        assert!(registry.put(Table::Nodes, "one-more", Bytes::new()).await.is_err());
        registry.put(Table::Nodes, "0", Bytes::from_static(b"x")).await.expect("a record it has may change");
    }
}
