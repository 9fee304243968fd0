//! What this node keeps on its disk for a start without a registry: the records it followed last, and their blobs.
//!
//! ```text
//! <plugins.cache_dir>/registry/rollouts/<plugin>.json   revision and value of the record
//!                             /lists/<name>.json
//!                             /blobs/<sha256>
//! ```
//!
//! A blob is compared with its name before it is used, and a bundle is proved like one that was just fetched; but a record
//! says which of the proved ones is live, so the folder has to be its owner's alone. Blocking: called from threads that may
//! wait. A failure to keep is told in the log and otherwise changes nothing.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::policy::Digest;
use gateway_core::ports::{BLOB_BYTES_MAX, RECORD_BYTES_MAX, Record, Table};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Another process that shares the folder writes a blob first and the record that names it a moment later.
const UNNAMED_KEPT: Duration = Duration::from_secs(600);

/// The folder, or nothing where nothing is kept.
#[derive(Debug)]
pub(crate) struct Kept(Option<PathBuf>);

#[derive(Serialize, Deserialize)]
struct Stored {
    revision: u64,
    value: Value,
}

impl Kept {
    /// Keeps nothing.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// Keeps below `dir`, which is made for its owner alone. Where others may write nothing is kept.
    pub(crate) fn below(dir: &Path) -> Self {
        let folder = dir.join("registry");
        let made = [Table::Rollouts.as_str(), Table::Lists.as_str(), "blobs"]
            .iter()
            .try_for_each(|part| DirBuilder::new().recursive(true).mode(0o700).create(folder.join(part)))
            .and_then(|()| [dir, &folder].into_iter().try_for_each(own));
        match made {
            Ok(()) => Self(Some(folder)),
            Err(error) => {
                tracing::error!(dir = %dir.display(), %error, "plugins.cache_dir is not usable; nothing is kept for a start without a registry");
                Self(None)
            }
        }
    }

    /// The record kept under `key`.
    pub(crate) fn record(&self, table: Table, key: &str) -> Option<Record> {
        let file = self.0.as_ref()?.join(table.as_str()).join(key).with_extension("json");
        let bytes = read(&file, RECORD_BYTES_MAX + 100)?;
        let stored: Stored = serde_json::from_slice(&bytes).ok()?;
        Some(Record { key: key.to_owned(), value: stored.value.to_string().into(), revision: stored.revision })
    }

    /// The keys of the records kept of `table`.
    pub(crate) fn keys(&self, table: Table) -> Vec<String> {
        let Some(folder) = &self.0 else { return Vec::new() };
        let entries = fs::read_dir(folder.join(table.as_str())).into_iter().flatten().filter_map(Result::ok);
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json").map(str::to_owned)).collect()
    }

    /// The blob called `name`, if it is kept and whole.
    pub(crate) fn blob(&self, name: &Digest) -> Option<Bytes> {
        let bytes = read(&self.0.as_ref()?.join("blobs").join(name.as_str()), BLOB_BYTES_MAX)?;
        (Digest::of(&bytes) == *name).then(|| bytes.into())
    }

    /// Keeps `record` and the blobs it needs, in this order: blobs, record, and then away with blobs no record names.
    pub(crate) fn keep(&self, table: Table, record: &Record, blobs: &[(Digest, Bytes)]) {
        let Some(folder) = &self.0 else { return };
        if let Err(error) = self.try_keep(folder, table, record, blobs) {
            tracing::warn!(table = table.as_str(), key = record.key, %error, "cannot keep what a start without a registry would need");
        }
    }

    fn try_keep(&self, folder: &Path, table: Table, record: &Record, blobs: &[(Digest, Bytes)]) -> io::Result<()> {
        for (name, bytes) in blobs {
            if self.blob(name).is_none() {
                write(&folder.join("blobs").join(name.as_str()), bytes)?;
            }
        }
        let value = serde_json::from_slice(&record.value)?;
        let text = serde_json::to_vec(&Stored { revision: record.revision, value })?;
        write(&folder.join(table.as_str()).join(&record.key).with_extension("json"), &text)?;
        self.sweep(folder)
    }

    fn sweep(&self, folder: &Path) -> io::Result<()> {
        let mut needed = BTreeSet::new();
        for table in [Table::Rollouts, Table::Lists] {
            for key in self.keys(table) {
                let Some(record) = self.record(table, &key) else { continue };
                // Whatever looks like a digest may be the name of a blob.
                let text = String::from_utf8_lossy(&record.value).into_owned();
                needed.extend(text.split('"').filter_map(Digest::parse));
            }
        }
        for entry in fs::read_dir(folder.join("blobs"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
            let unnamed = Digest::parse(&name).is_none_or(|digest| !needed.contains(&digest));
            if unnamed && age > UNNAMED_KEPT {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Checks that `dir` is a folder of ours that nobody else can write to.
fn own(dir: &Path) -> io::Result<()> {
    let refuse = |why: &str| Err(io::Error::other(format!("{} {why}", dir.display())));
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() {
        return refuse("is not a folder");
    }
    if found.uid() != fs::metadata("/proc/self")?.uid() {
        return refuse("belongs to another user");
    }
    if found.mode() & 0o022 != 0 {
        return refuse("can be written to by others; chmod 700 it");
    }
    Ok(())
}

fn read(file: &Path, bytes_max: usize) -> Option<Vec<u8>> {
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    File::open(file).and_then(|file| file.take(limit).read_to_end(&mut bytes)).ok()?;
    (bytes.len() <= bytes_max).then_some(bytes)
}

/// All of it or nothing: written beside the file, then moved over it.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let beside = file.with_extension(format!("{}-{}.part", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut part| part.write_all(bytes).and_then(|()| part.sync_all()))
        .and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn record(value: &str) -> Record {
        Record { key: "demo".into(), value: value.to_owned().into(), revision: 7 }
    }

    #[test]
    fn what_was_kept_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let (bytes, kept) = (Bytes::from_static(b"a bundle"), Kept::below(folder.path()));
        let name = Digest::of(&bytes);
        let value = format!(r#"{{"bundle":"{name}"}}"#);
        kept.keep(Table::Rollouts, &record(&value), &[(name.clone(), bytes.clone())]);
        let again = Kept::below(folder.path());
        assert_eq!(again.record(Table::Rollouts, "demo"), Some(record(&value)));
        assert_eq!(again.keys(Table::Rollouts), ["demo"]);
        assert_eq!(again.blob(&name), Some(bytes));
        assert_eq!(again.record(Table::Lists, "demo"), None);
        let mode = fs::metadata(folder.path().join("registry")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_blob_that_was_changed_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::below(folder.path());
        let name = Digest::of(b"good");
        kept.keep(Table::Lists, &record("{}"), &[(name.clone(), Bytes::from_static(b"good"))]);
        fs::write(folder.path().join("registry/blobs").join(name.as_str()), b"evil").unwrap();
        assert_eq!(kept.blob(&name), None);
        kept.keep(Table::Lists, &record("{}"), &[(name.clone(), Bytes::from_static(b"good"))]);
        assert!(kept.blob(&name).is_some(), "keeping it again heals it");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let kept = Kept::below(folder.path());
        kept.keep(Table::Lists, &record("{}"), &[]);
        assert_eq!(kept.record(Table::Lists, "demo"), None);
    }
}
