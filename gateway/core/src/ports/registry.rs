//! Registry: what every node of a cluster shares about policies: bundles, rollouts, lists, and what each node runs.

use async_trait::async_trait;
use bytes::Bytes;

use crate::ports::PortResult;

/// Which part of the registry a record belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// By plugin: which versions it has and who gets which; see [`crate::policy::rollout::Rollout`].
    Rollouts,
    /// By list: the digest of its entries and how many they are.
    Lists,
    /// By node: what it runs, and when it last said so.
    Nodes,
}

impl Table {
    /// The table's name in the service.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rollouts => "rollouts",
            Self::Lists => "lists",
            Self::Nodes => "nodes",
        }
    }
}

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its key: 1 to 64 bytes of `[A-Za-z0-9_-]`.
    pub key: String,
    /// Its value, at most [`RECORD_BYTES_MAX`].
    pub value: Bytes,
    /// Grows with every write of this key; what a conditional write names.
    pub revision: u64,
}

/// What a subscriber is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The record is now this.
    Put(Record),
    /// The record is gone.
    Deleted(String),
}

/// What became of a conditional write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The record is now what was given, at this revision.
    Done(u64),
    /// Somebody else wrote in between; nothing happened. Read again and decide again.
    Conflict,
}

/// Largest value of a record: a rollout with its history is a few kilobytes.
pub const RECORD_BYTES_MAX: usize = 256 << 10;

/// Largest blob: a bundle of the largest component, or a list of a million entries.
pub const BLOB_BYTES_MAX: usize = 64 << 20;

/// The shared memory of a cluster about its policies.
///
/// Promise: a blob is stored whole under its name and never changes; a conditional write happens only if nobody wrote
/// since the revision it names; what a watch reports ends with the present state of every record, though states in
/// between may be skipped.
#[async_trait]
pub trait Registry: Send + Sync {
    /// Stores `bytes` under `name`, the SHA-256 of `bytes` in hex. Storing it again is no change.
    async fn put_blob(&self, name: &str, bytes: Bytes) -> PortResult<()>;

    /// The blob called `name`. The caller checks that it hashes to its name.
    async fn blob(&self, name: &str) -> PortResult<Option<Bytes>>;

    /// Removes the blob called `name`, which no record names any more; one that does not exist is no error.
    async fn remove_blob(&self, name: &str) -> PortResult<()>;

    /// One record.
    async fn read(&self, table: Table, key: &str) -> PortResult<Option<Record>>;

    /// Every record of `table`, in order of key.
    async fn all(&self, table: Table) -> PortResult<Vec<Record>>;

    /// Writes `key` if its revision is still `expected`; `None` means that it does not exist.
    async fn write(&self, table: Table, key: &str, value: Bytes, expected: Option<u64>) -> PortResult<Written>;

    /// Writes `key` whatever it holds; for records with one writer.
    async fn put(&self, table: Table, key: &str, value: Bytes) -> PortResult<()>;

    /// Removes `key`; a key that does not exist is no error.
    async fn remove(&self, table: Table, key: &str) -> PortResult<()>;

    /// Every record of `table`, then every change of it.
    async fn watch(&self, table: Table) -> PortResult<Box<dyn Changes>>;
}

/// A running watch; dropping it ends it.
#[async_trait]
pub trait Changes: Send {
    /// The next change; `None` when the watch is broken and has to be opened again. Cancel safe.
    async fn next(&mut self) -> Option<Change>;
}
