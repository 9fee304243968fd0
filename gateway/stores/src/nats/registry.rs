//! [`Registry`] on JetStream: the object store `plugins` for blobs, and a key-value bucket for each table.
//!
//! A bucket is made when it is first needed, so every call begins by opening it: one more question, asked a few times a
//! minute. What never happens here: belief in a blob. What comes back is compared with its name before anybody sees it.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::jetstream::kv::{self, CreateErrorKind, Operation, Store as Bucket, UpdateErrorKind};
use async_nats::jetstream::object_store::{self, DeleteErrorKind, GetErrorKind, ObjectStore};
use async_nats::jetstream::stream::{Config, DiscardPolicy};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use gateway_core::policy::Digest;
use gateway_core::ports::{BLOB_BYTES_MAX, Change, Changes, PortResult, RECORD_BYTES_MAX, Record, Registry, Table, Written};
use tokio::io::AsyncReadExt as _;

use super::{NatsBus, Trouble};
use crate::error::{failed, within};

/// The bucket of blobs.
const BLOBS: &str = "plugins";

/// What all blobs may take together: a hundred bundles that carry an engine of their own, thousands that do not.
const BLOBS_BYTES_MAX: i64 = 2 << 30;

/// How long moving the largest blob may take: it travels in pieces of 128 KiB, each of which is acknowledged.
const BLOB_PATIENCE: Duration = Duration::from_secs(30);

/// What one table may take: a thousand nodes or plugins at a few kilobytes each need a tenth of it.
const TABLE_BYTES_MAX: i64 = 64 << 20;

/// How long a node that says nothing any more stays on record.
const NODES_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// Records read at once.
const READ_AT_ONCE: usize = 16;

/// How often a watch looks whether its connection is still the one it was opened on.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl NatsBus {
    async fn blobs(&self) -> Result<ObjectStore, Trouble> {
        if let Ok(blobs) = self.jetstream.get_object_store(BLOBS).await {
            return Ok(blobs);
        }
        let config = object_store::Config {
            bucket: BLOBS.to_owned(),
            description: Some("signed bundles of policies, and lists".to_owned()),
            max_bytes: BLOBS_BYTES_MAX,
            num_replicas: self.settings.queue_replicas,
            ..object_store::Config::default()
        };
        self.jetstream.create_object_store(config).await.map_err(Trouble::passing)
    }

    async fn bucket(&self, table: Table) -> Result<Bucket, Trouble> {
        if let Ok(bucket) = self.jetstream.get_key_value(table.as_str()).await {
            return Ok(bucket);
        }
        // What the key-value layout of NATS asks of a stream. The client's own way to make one asks the server for numbers that
        // 2.9 does not tell.
        let name = table.as_str();
        let config = Config {
            name: format!("KV_{name}"),
            description: Some("what nodes share about policies".to_owned()),
            subjects: vec![format!("$KV.{name}.>")],
            max_messages_per_subject: 1,
            max_age: if table == Table::Nodes { NODES_KEPT } else { Duration::ZERO },
            max_bytes: TABLE_BYTES_MAX,
            discard: DiscardPolicy::New,
            num_replicas: self.settings.queue_replicas,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            ..Config::default()
        };
        self.jetstream.create_stream(config).await.map_err(Trouble::passing)?;
        self.jetstream.get_key_value(name).await.map_err(Trouble::passing)
    }

    /// As [`NatsBus::run`], with time for a blob.
    async fn carry<T>(&self, doing: &'static str, call: impl Future<Output = Result<T, Trouble>>) -> PortResult<T> {
        if !self.is_connected() {
            return Err(failed(doing, Trouble::Disconnected));
        }
        within(BLOB_PATIENCE, doing, call).await
    }
}

#[async_trait]
impl Registry for NatsBus {
    async fn put_blob(&self, name: &str, bytes: Bytes) -> PortResult<()> {
        self.carry("store a blob", async {
            if bytes.len() > BLOB_BYTES_MAX || Digest::of(&bytes).as_str() != name {
                return Err(Trouble::Malformed);
            }
            let blobs = self.blobs().await?;
            // The note about an object is written after its last piece, so an object with a note is whole.
            if blobs.info(name).await.is_ok_and(|info| !info.deleted && info.size == bytes.len()) {
                return Ok(());
            }
            blobs.put(name, &mut &bytes[..]).await.map(drop).map_err(Trouble::passing)
        })
        .await
    }

    async fn blob(&self, name: &str) -> PortResult<Option<Bytes>> {
        self.carry("fetch a blob", async {
            let mut object = match self.blobs().await?.get(name).await {
                Ok(object) => object,
                Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(Trouble::passing(error)),
            };
            let size = object.info().size;
            if size > BLOB_BYTES_MAX {
                return Err(Trouble::Malformed);
            }
            let mut bytes = Vec::with_capacity(size);
            object.read_to_end(&mut bytes).await.map_err(Trouble::passing)?;
            if Digest::of(&bytes).as_str() != name {
                return Err(Trouble::Malformed);
            }
            Ok(Some(bytes.into()))
        })
        .await
    }

    async fn remove_blob(&self, name: &str) -> PortResult<()> {
        self.run("remove a blob", async {
            match self.blobs().await?.delete(name).await {
                Err(error) if error.kind() != DeleteErrorKind::NotFound => Err(Trouble::passing(error)),
                Ok(()) | Err(_) => Ok(()),
            }
        })
        .await
    }

    async fn read(&self, table: Table, key: &str) -> PortResult<Option<Record>> {
        self.run("read a record", async { read(&self.bucket(table).await?, key).await }).await
    }

    async fn all(&self, table: Table) -> PortResult<Vec<Record>> {
        self.run("read every record", async {
            let bucket = self.bucket(table).await?;
            // Asked of the stream itself: the client's list of keys makes a consumer each time, which outlives the question.
            let subjects = bucket.stream.info_with_subjects(format!("{}>", bucket.prefix)).await.map_err(Trouble::passing)?;
            let keys = subjects.map_ok(|(subject, _)| subject.strip_prefix(&bucket.prefix).map(str::to_owned));
            let keys: BTreeSet<Option<String>> = keys.try_collect().await.map_err(Trouble::passing)?;
            // A record that goes meanwhile is not there.
            let records = futures::stream::iter(keys.into_iter().flatten()).map(|key| {
                let bucket = &bucket;
                async move { read(bucket, &key).await }
            });
            let records: Vec<Option<Record>> = records.buffered(READ_AT_ONCE).try_collect().await?;
            Ok(records.into_iter().flatten().collect())
        })
        .await
    }

    async fn write(&self, table: Table, key: &str, value: Bytes, expected: Option<u64>) -> PortResult<Written> {
        self.run("write a record", async {
            check(key, &value)?;
            let bucket = self.bucket(table).await?;
            match expected {
                None => match bucket.create(key, value).await {
                    Ok(revision) => Ok(Written::Done(revision)),
                    Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(Written::Conflict),
                    Err(error) if is_conflict(&error) => Ok(Written::Conflict),
                    Err(error) => Err(Trouble::passing(error)),
                },
                Some(revision) => match bucket.update(key, value, revision).await {
                    Ok(revision) => Ok(Written::Done(revision)),
                    Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(Written::Conflict),
                    Err(error) => Err(Trouble::passing(error)),
                },
            }
        })
        .await
    }

    async fn put(&self, table: Table, key: &str, value: Bytes) -> PortResult<()> {
        self.run("write a record", async {
            check(key, &value)?;
            self.bucket(table).await?.put(key, value).await.map(drop).map_err(Trouble::passing)
        })
        .await
    }

    async fn remove(&self, table: Table, key: &str) -> PortResult<()> {
        self.run("remove a record", async { self.bucket(table).await?.delete(key).await.map_err(Trouble::passing) }).await
    }

    async fn watch(&self, table: Table) -> PortResult<Box<dyn Changes>> {
        let connects = self.connects();
        let entries = self
            .run("watch the registry", async {
                // The latest entry of every key, then every new one.
                self.bucket(table).await?.watch_with_history(">").await.map_err(Trouble::passing)
            })
            .await?;
        Ok(Box::new(NatsChanges { bus: self.clone(), connects, entries }))
    }
}

async fn read(bucket: &Bucket, key: &str) -> Result<Option<Record>, Trouble> {
    let entry = bucket.entry(key).await.map_err(Trouble::passing)?;
    Ok(entry.filter(|entry| entry.operation == Operation::Put).map(|entry| Record {
        key: entry.key,
        value: entry.value,
        revision: entry.revision,
    }))
}

/// The port's keys are fewer than the bucket's.
fn check(key: &str, value: &Bytes) -> Result<(), Trouble> {
    let is_key = (1..=64).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if is_key && value.len() <= RECORD_BYTES_MAX { Ok(()) } else { Err(Trouble::Malformed) }
}

/// Somebody created the key between the two steps of creating it again after a removal.
fn is_conflict(error: &kv::CreateError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<kv::UpdateError>());
    source.is_some_and(|source| source.kind() == UpdateErrorKind::WrongLastRevision)
}

struct NatsChanges {
    bus: NatsBus,
    /// The connection the watch was opened on. On another one changes may have been missed.
    connects: u64,
    entries: kv::Watch,
}

#[async_trait]
impl Changes for NatsChanges {
    async fn next(&mut self) -> Option<Change> {
        loop {
            if !self.bus.is_connected() || self.bus.connects() != self.connects {
                return None;
            }
            // Cancel safe: an entry that has arrived is taken out of the stream in the step that returns it.
            let Ok(entry) = tokio::time::timeout(LOOK_EVERY, self.entries.next()).await else { continue };
            let entry = entry?.ok()?;
            return Some(match entry.operation {
                Operation::Put => Change::Put(Record { key: entry.key, value: entry.value, revision: entry.revision }),
                Operation::Delete | Operation::Purge => Change::Deleted(entry.key),
            });
        }
    }
}
