//! From a list's record to what guests look keys up in.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use gateway_core::policy::Digest;
use gateway_core::ports::{Record, Table};
use tokio::time::sleep;

use super::record::ListRecord;
use super::{FOLLOW, Rollouts};
use crate::health::chain;

/// Entries of one list: as many as a node takes.
pub(crate) const ENTRIES_MAX: usize = 1_000_000;

/// Longest entry; a word, an id, a network.
const ENTRY_BYTES_MAX: usize = 1_024;

/// Bytes of one list.
pub(crate) const LIST_BYTES_MAX: usize = 32 << 20;

/// Reads a list: one entry a line. Space around an entry and empty lines do not count, order and repetition neither.
///
/// # Errors
/// A sentence that names the line.
pub(crate) fn parse(text: &[u8]) -> Result<BTreeSet<String>, String> {
    if text.len() > LIST_BYTES_MAX {
        return Err(format!("a list has at most {LIST_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(text).map_err(|error| format!("a list is UTF-8 text: {error}"))?;
    let mut entries = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        let entry = line.trim();
        if entry.len() > ENTRY_BYTES_MAX || entry.contains(char::is_control) {
            return Err(format!("line {}: an entry has at most {ENTRY_BYTES_MAX} bytes and no control characters", number + 1));
        }
        if !entry.is_empty() {
            entries.insert(entry.to_owned());
        }
        if entries.len() > ENTRIES_MAX {
            return Err(format!("a list has at most {ENTRIES_MAX} entries"));
        }
    }
    Ok(entries)
}

/// One spelling of a list, so that equal lists have one digest.
pub(crate) fn write(entries: &BTreeSet<String>) -> Bytes {
    let mut text = String::with_capacity(entries.iter().map(|entry| entry.len() + 1).sum());
    for entry in entries {
        text.push_str(entry);
        text.push('\n');
    }
    text.into()
}

impl Rollouts {
    /// Follows the records of lists as they come, and again those that could not be followed.
    pub(super) async fn follow_lists(self: Arc<Self>) {
        let mut records = self.list_records.subscribe();
        let mut failures = 0;
        loop {
            let due = records.borrow_and_update().clone();
            let mut failed = false;
            for record in due.values() {
                failed |= self.follow_list(record).await.is_err();
            }
            if !failed {
                failures = 0;
                if records.changed().await.is_err() {
                    return;
                }
                continue;
            }
            // Cancel safe: a change that is not waited for any longer is still marked as one.
            tokio::select! {
                changed = records.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    failures = 0;
                }
                () = sleep(FOLLOW.delay(failures, rand::random())) => failures = failures.saturating_add(1),
            }
        }
    }

    /// Makes a list what `record` says. `Err` when that did not work; why is in the list's state.
    pub(super) async fn follow_list(&self, record: &Record) -> Result<(), ()> {
        let name = &record.key;
        let outcome = self.try_follow_list(record).await;
        let (before, digest) = {
            let mut state = self.state();
            let state = state.lists.entry(name.clone()).or_default();
            let before = std::mem::replace(&mut state.error, outcome.as_ref().err().cloned());
            if let Ok(Some(digest)) = &outcome {
                state.digest = Some(digest.clone());
            }
            (before, state.digest.clone())
        };
        match outcome {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => tracing::info!(list = name, digest = digest.as_ref().map(Digest::short), "a list was replaced"),
            Err(error) if before.as_ref() == Some(&error) => return Err(()),
            Err(error) => {
                tracing::error!(list = name, error, "a list was not replaced");
                self.news.notify_one();
                return Err(());
            }
        }
        self.news.notify_one();
        Ok(())
    }

    /// The digest of what the list is now, or `None` when it was so already.
    async fn try_follow_list(&self, record: &Record) -> Result<Option<Digest>, String> {
        let wanted: ListRecord =
            serde_json::from_slice(&record.value).map_err(|error| format!("the registry's record makes no sense: {error}"))?;
        {
            let mut state = self.state();
            let state = state.lists.entry(record.key.clone()).or_default();
            state.tried = Some(wanted.digest.clone());
            if state.digest.as_ref() == Some(&wanted.digest) {
                return Ok(None);
            }
        }
        let bytes = match self.blob(&wanted.digest).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err("the registry does not have its entries".to_owned()),
            Err(error) => return Err(chain(&error)),
        };
        let (text, digest) = (bytes.clone(), wanted.digest.clone());
        let parsed = tokio::task::spawn_blocking(move || {
            if Digest::of(&text) == digest { parse(&text) } else { Err("its entries are not the ones that were pushed".to_owned()) }
        });
        let entries = parsed.await.map_err(|error| error.to_string())??;
        self.lists.replace(&record.key, entries).map_err(|error| error.to_string())?;
        self.keep(Table::Lists, record.clone(), vec![(wanted.digest.clone(), bytes)]).await;
        Ok(Some(wanted.digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_one_entry_a_line() {
        let entries = parse(" b \r\na\n\n敏 感\nb\n#c".as_bytes()).unwrap();
        assert_eq!(entries.iter().map(String::as_str).collect::<Vec<_>>(), ["#c", "a", "b", "敏 感"]);
        assert_eq!(parse(&write(&entries)), Ok(entries));
        assert_eq!(parse(b""), Ok(BTreeSet::new()), "an empty list is one");
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_place() {
        assert!(parse(b"a\nb\0c").unwrap_err().starts_with("line 2"));
        assert!(parse(&vec![b'x'; ENTRY_BYTES_MAX + 1]).unwrap_err().starts_with("line 1"));
        assert!(parse(b"\xff").unwrap_err().contains("UTF-8"));
        assert!(parse(&vec![b'\n'; LIST_BYTES_MAX + 1]).is_err());
    }
}
