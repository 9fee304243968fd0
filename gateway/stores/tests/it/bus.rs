//! What NATS does underneath: the queue it is given, and who may read it.

use std::time::Duration;

use async_nats::jetstream;
use bytes::Bytes;
use gateway_core::id::ShopId;
use gateway_core::ports::{Bus, PortErrorKind};
use gateway_stores::{NatsBus, NatsSettings};
use gateway_testkit::services::Nats;

use crate::shared::{FRESH, eventually, nats, nats_at};

const WAIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_deleted_queue_is_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Nats::start(folder.path()).expect("starts");
    let bus = nats_at(&server.url()).await;
    bus.enqueue(1, ShopId(7), Bytes::from_static(b"a")).await.expect("queued in a stream made on demand");
    let raw = jetstream::new(async_nats::connect(server.url()).await.expect("connects"));
    raw.delete_stream("CHAT_IN").await.expect("deleted");
    bus.enqueue(1, ShopId(7), Bytes::from_static(b"b")).await.expect("queued in a stream made again");
    let mut inbox = bus.open_inbox(1, 1).await.expect("opens");
    let got = inbox.fetch(10, WAIT).await.expect("fetches");
    assert_eq!(got.iter().map(|delivery| &delivery.payload[..]).collect::<Vec<_>>(), [b"b"]);
}

#[tokio::test]
async fn a_full_queue_refuses_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Nats::start(folder.path()).expect("starts");
    let bus = NatsBus::connect(NatsSettings { queue_bytes_max: 4_096, ..NatsSettings::new(server.url()) }).await.expect("a valid URL");
    eventually("NATS answers", || async { bus.ping().await.is_ok() }).await;
    let payload = Bytes::from(vec![b'x'; 1_000]);
    let mut queued = 0;
    let error = loop {
        match bus.enqueue(1, ShopId(1), payload.clone()).await {
            Ok(()) => queued += 1,
            Err(error) => break error,
        }
        assert!(queued < 10, "the queue takes more than its bytes");
    };
    assert_eq!(error.kind, PortErrorKind::Unavailable);
    let mut inbox = bus.open_inbox(1, 1).await.expect("opens");
    let mut kept = 0;
    while kept < queued {
        let batch = inbox.fetch(10, WAIT).await.expect("fetches");
        assert!(!batch.is_empty(), "{kept} of {queued} were kept");
        kept += batch.len();
    }
    assert_eq!(kept, queued);
}

#[tokio::test]
async fn a_lower_token_cannot_take_a_partition_back() {
    let bus = nats().await;
    let partition = FRESH.partition();
    let _inbox = bus.open_inbox(partition, 8).await.expect("opens");
    let error = bus.open_inbox(partition, 7).await.err().expect("refused");
    assert_eq!(error.kind, PortErrorKind::Fenced);
}

#[tokio::test]
async fn a_superseded_inbox_says_so() {
    let bus = nats().await;
    let partition = FRESH.partition();
    bus.enqueue(partition, ShopId(1), Bytes::from_static(b"a")).await.expect("queued");
    let mut former = bus.open_inbox(partition, 1).await.expect("opens");
    let held = former.fetch(1, WAIT).await.expect("fetches");
    let _later = bus.open_inbox(partition, 2).await.expect("opens");
    assert_eq!(former.fetch(1, WAIT).await.expect_err("superseded").kind, PortErrorKind::Fenced);
    assert_eq!(former.acknowledge(&held).await.expect_err("superseded").kind, PortErrorKind::Fenced);
}

#[tokio::test]
async fn more_messages_than_one_request_carries_come_in_order() {
    let bus = nats().await;
    let partition = FRESH.partition();
    for n in 0..600_u32 {
        bus.enqueue(partition, ShopId(u64::from(n % 3)), Bytes::from(n.to_string())).await.expect("queued");
    }
    let mut inbox = bus.open_inbox(partition, 1).await.expect("opens");
    let mut got = Vec::new();
    while got.len() < 600 {
        let batch = inbox.fetch(256, WAIT).await.expect("fetches");
        assert!(!batch.is_empty(), "{} of 600 came", got.len());
        inbox.acknowledge(&batch).await.expect("acknowledges");
        got.extend(batch.iter().map(|delivery| String::from_utf8_lossy(&delivery.payload).parse::<u32>().expect("a number")));
    }
    assert_eq!(got, (0..600).collect::<Vec<_>>());
    assert!(inbox.fetch(1, Duration::ZERO).await.expect("fetches").is_empty());
}
