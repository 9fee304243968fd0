//! What every [`Registry`] promises.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::policy::Digest;
use gateway_core::ports::{Change, Changes, PortErrorKind, RECORD_BYTES_MAX, Record, Registry, Table, Written};
use tokio::time::timeout;

use super::{Fresh, PATIENCE};

/// Every check.
pub async fn all(registry: &Arc<dyn Registry>, fresh: &Fresh) {
    a_blob_is_kept_whole(&**registry, fresh).await;
    a_blob_has_the_name_of_its_bytes(&**registry, fresh).await;
    a_removed_blob_can_be_stored_again(&**registry, fresh).await;
    a_record_is_written_only_over_the_revision_it_names(&**registry, fresh).await;
    of_many_writers_at_once_one_succeeds(registry, fresh).await;
    an_unconditional_write_needs_no_revision(&**registry, fresh).await;
    a_removed_record_is_gone_and_can_be_made_again(&**registry, fresh).await;
    tables_know_nothing_of_each_other(&**registry, fresh).await;
    all_records_come_in_order_of_key(&**registry, fresh).await;
    a_watch_tells_what_is_there_and_then_what_changes(&**registry, fresh).await;
    a_watch_ends_with_the_present_state(&**registry, fresh).await;
    a_cancelled_wait_loses_no_change(&**registry, fresh).await;
    what_is_no_record_is_refused(&**registry, fresh).await;
}

fn text(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

async fn put_blob(registry: &dyn Registry, bytes: &Bytes) -> String {
    let name = Digest::of(bytes).to_string();
    registry.put_blob(&name, bytes.clone()).await.expect("store a blob");
    name
}

async fn write(registry: &dyn Registry, key: &str, value: &str, expected: Option<u64>) -> Written {
    registry.write(Table::Rollouts, key, text(value), expected).await.expect("write")
}

async fn created(registry: &dyn Registry, key: &str, value: &str) -> u64 {
    let Written::Done(revision) = write(registry, key, value, None).await else { panic!("{key} is not new") };
    revision
}

async fn read(registry: &dyn Registry, table: Table, key: &str) -> Option<Record> {
    registry.read(table, key).await.expect("read")
}

/// The next change of `key`; others belong to other checks.
async fn change(changes: &mut Box<dyn Changes>, key: &str) -> Change {
    let wait = async {
        loop {
            match changes.next().await.expect("the registry is there") {
                Change::Put(record) if record.key == key => return Change::Put(record),
                Change::Deleted(gone) if gone == key => return Change::Deleted(gone),
                Change::Put(_) | Change::Deleted(_) => {}
            }
        }
    };
    timeout(PATIENCE, wait).await.expect("a change in time")
}

/// Byte for byte, whatever its size, and as often as it is stored.
pub async fn a_blob_is_kept_whole(registry: &dyn Registry, fresh: &Fresh) {
    let mark = fresh.number().to_le_bytes();
    for length in [0, 1, 1_000, 131_072, 131_073, 5_000_000] {
        let bytes: Bytes = mark.into_iter().cycle().zip(0_u32..).map(|(byte, n)| byte ^ n.to_le_bytes()[1]).take(length).collect();
        for _ in 0..2 {
            let name = put_blob(registry, &bytes).await;
            let back = registry.blob(&name).await.expect("fetch").expect("it is there");
            assert!(back == bytes, "{length} bytes come back as they were");
        }
    }
    let unknown = Digest::of(&[&mark[..], b"unknown"].concat());
    assert_eq!(registry.blob(unknown.as_str()).await.expect("fetch"), None);
}

/// A name under which other bytes could hide is refused.
pub async fn a_blob_has_the_name_of_its_bytes(registry: &dyn Registry, fresh: &Fresh) {
    let other = Digest::of(fresh.word("other").as_bytes());
    let error = registry.put_blob(other.as_str(), text("these")).await.expect_err("refused");
    assert_eq!(error.kind, PortErrorKind::Broken);
    assert_eq!(registry.blob(other.as_str()).await.expect("fetch"), None);
}

/// Removing is final until the next storing; removing nothing is no failure.
pub async fn a_removed_blob_can_be_stored_again(registry: &dyn Registry, fresh: &Fresh) {
    let bytes = text(&fresh.word("blob"));
    let name = Digest::of(&bytes).to_string();
    registry.remove_blob(&name).await.expect("nothing to remove");
    put_blob(registry, &bytes).await;
    registry.remove_blob(&name).await.expect("remove");
    assert_eq!(registry.blob(&name).await.expect("fetch"), None);
    put_blob(registry, &bytes).await;
    assert_eq!(registry.blob(&name).await.expect("fetch"), Some(bytes));
}

/// Nothing happens on a conflict, and a revision names one write.
pub async fn a_record_is_written_only_over_the_revision_it_names(registry: &dyn Registry, fresh: &Fresh) {
    let key = fresh.word("r");
    assert_eq!(read(registry, Table::Rollouts, &key).await, None);
    assert_eq!(write(registry, &key, "early", Some(1)).await, Written::Conflict, "there is no such revision yet");
    let first = created(registry, &key, "a").await;
    assert_eq!(write(registry, &key, "b", None).await, Written::Conflict, "it exists");
    let Written::Done(second) = write(registry, &key, "b", Some(first)).await else { panic!("nobody wrote in between") };
    assert!(second > first, "a revision grows");
    assert_eq!(write(registry, &key, "c", Some(first)).await, Written::Conflict, "somebody wrote in between");
    assert_eq!(read(registry, Table::Rollouts, &key).await, Some(Record { key, value: text("b"), revision: second }));
}

/// However many read the same revision.
pub async fn of_many_writers_at_once_one_succeeds(registry: &Arc<dyn Registry>, fresh: &Fresh) {
    let key = fresh.word("r");
    let mut expected = None;
    for round in 0..5 {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (registry, key) = (registry.clone(), key.clone());
                tokio::spawn(async move { write(&*registry, &key, &format!("{round}-{writer}"), expected).await })
            })
            .collect();
        let mut done = Vec::new();
        for writer in writers {
            if let Written::Done(revision) = writer.await.expect("a writer") {
                done.push(revision);
            }
        }
        assert_eq!(done.len(), 1, "round {round}");
        let record = read(&**registry, Table::Rollouts, &key).await.expect("written");
        assert_eq!(record.revision, done[0]);
        expected = Some(record.revision);
    }
}

/// It is told apart from what was there by its revision.
pub async fn an_unconditional_write_needs_no_revision(registry: &dyn Registry, fresh: &Fresh) {
    let key = fresh.word("n");
    let mut last = 0;
    for value in ["a", "b", "b"] {
        registry.put(Table::Nodes, &key, text(value)).await.expect("put");
        let record = read(registry, Table::Nodes, &key).await.expect("written");
        assert_eq!(record.value, text(value));
        assert!(record.revision > last);
        last = record.revision;
    }
}

/// A revision from before the removal is worth nothing afterwards.
pub async fn a_removed_record_is_gone_and_can_be_made_again(registry: &dyn Registry, fresh: &Fresh) {
    let key = fresh.word("r");
    registry.remove(Table::Rollouts, &key).await.expect("nothing to remove");
    let first = created(registry, &key, "a").await;
    registry.remove(Table::Rollouts, &key).await.expect("remove");
    assert_eq!(read(registry, Table::Rollouts, &key).await, None);
    assert_eq!(write(registry, &key, "b", Some(first)).await, Written::Conflict);
    assert!(registry.all(Table::Rollouts).await.expect("all").iter().all(|record| record.key != key));
    assert!(created(registry, &key, "b").await > first);
}

/// One key may be in each.
pub async fn tables_know_nothing_of_each_other(registry: &dyn Registry, fresh: &Fresh) {
    let key = fresh.word("k");
    for table in [Table::Rollouts, Table::Lists, Table::Nodes] {
        assert_eq!(read(registry, table, &key).await, None);
        registry.put(table, &key, text(table.as_str())).await.expect("put");
    }
    registry.remove(Table::Lists, &key).await.expect("remove");
    assert_eq!(read(registry, Table::Rollouts, &key).await.map(|record| record.value), Some(text("rollouts")));
    assert_eq!(read(registry, Table::Nodes, &key).await.map(|record| record.value), Some(text("nodes")));
}

/// Each once, with its latest value.
pub async fn all_records_come_in_order_of_key(registry: &dyn Registry, fresh: &Fresh) {
    let prefix = fresh.word("all");
    for suffix in ["c", "a", "b", "a"] {
        registry.put(Table::Lists, &format!("{prefix}-{suffix}"), text(suffix)).await.expect("put");
    }
    let records = registry.all(Table::Lists).await.expect("all");
    assert!(records.is_sorted_by(|one, other| one.key < other.key));
    let ours: Vec<Bytes> = records.into_iter().filter(|record| record.key.starts_with(&prefix)).map(|record| record.value).collect();
    assert_eq!(ours, [text("a"), text("b"), text("c")]);
}

/// Present records first, without anybody writing; then each change, a removal too.
pub async fn a_watch_tells_what_is_there_and_then_what_changes(registry: &dyn Registry, fresh: &Fresh) {
    let key = fresh.word("w");
    let first = created(registry, &key, "a").await;
    let mut changes = registry.watch(Table::Rollouts).await.expect("watch");
    let record = |value: &str, revision| Change::Put(Record { key: key.clone(), value: text(value), revision });
    assert_eq!(change(&mut changes, &key).await, record("a", first));
    let Written::Done(second) = write(registry, &key, "b", Some(first)).await else { panic!("nobody else writes") };
    assert_eq!(change(&mut changes, &key).await, record("b", second));
    registry.remove(Table::Rollouts, &key).await.expect("remove");
    assert_eq!(change(&mut changes, &key).await, Change::Deleted(key.clone()));
    let third = created(registry, &key, "c").await;
    assert_eq!(change(&mut changes, &key).await, record("c", third));
}

/// States in between may be skipped, the last one may not.
pub async fn a_watch_ends_with_the_present_state(registry: &dyn Registry, fresh: &Fresh) {
    let key = fresh.word("w");
    let mut changes = registry.watch(Table::Lists).await.expect("watch");
    for n in 0..200 {
        registry.put(Table::Lists, &key, text(&n.to_string())).await.expect("put");
    }
    let mut last = 0;
    loop {
        let Change::Put(record) = change(&mut changes, &key).await else { panic!("nobody removes") };
        assert!(record.revision > last, "in order");
        last = record.revision;
        if record.value == text("199") {
            return;
        }
    }
}

/// Giving up on `next` and asking again skips nothing.
pub async fn a_cancelled_wait_loses_no_change(registry: &dyn Registry, fresh: &Fresh) {
    let key = fresh.word("w");
    let mut changes = registry.watch(Table::Rollouts).await.expect("watch");
    for n in 0..20 {
        // What is told meanwhile belongs to other checks.
        let _ = timeout(Duration::ZERO, changes.next()).await;
        registry.put(Table::Rollouts, &key, text(&n.to_string())).await.expect("put");
        let Change::Put(record) = change(&mut changes, &key).await else { panic!("nobody removes") };
        assert_eq!(record.value, text(&n.to_string()));
    }
}

/// Keys that no service takes, and values beyond the bound.
pub async fn what_is_no_record_is_refused(registry: &dyn Registry, fresh: &Fresh) {
    let long = "k".repeat(65);
    for key in ["", "a.b", "a b", "é", "*", ">", "../x", long.as_str()] {
        let error = registry.put(Table::Nodes, key, text("x")).await.expect_err(key);
        assert_eq!(error.kind, PortErrorKind::Broken, "{key}");
    }
    let key = fresh.word("k");
    let largest = Bytes::from(vec![b'x'; RECORD_BYTES_MAX]);
    registry.put(Table::Nodes, &key, largest.clone()).await.expect("the largest");
    let error = registry.put(Table::Nodes, &key, [&largest[..], b"x"].concat().into()).await.expect_err("too large");
    assert_eq!(error.kind, PortErrorKind::Broken);
    assert_eq!(read(registry, Table::Nodes, &key).await.map(|record| record.value), Some(largest));
    registry.remove(Table::Nodes, &key).await.expect("remove");
}
