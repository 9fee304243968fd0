//! What notices are in Redis: how long they stay, and what a damaged entry is.

use bytes::Bytes;
use gateway_core::chat::{Party, Side};
use gateway_core::ports::{NOTICES_MAX, Notices, PortErrorKind};
use redis::AsyncCommands as _;

use crate::shared::{FRESH, raw_redis, redis};

fn party() -> Party {
    Party { side: Side::User, id: FRESH.principal(), shop: None }
}

fn key(party: &Party) -> String {
    format!("notice:{{user:{}}}", party.id)
}

#[tokio::test]
async fn a_party_is_forgotten_seven_days_after_its_latest_notice() {
    let (store, party) = (redis(), party());
    assert_eq!(store.append(&party, "k", Bytes::from_static(b"n")).await.expect("appends"), 1);
    let ttl: i64 = raw_redis().await.ttl(key(&party)).await.expect("answers");
    assert!((7 * 86_400 - 60..=7 * 86_400).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn only_the_latest_are_kept_and_numbers_go_on() {
    let (store, party) = (redis(), party());
    let most = NOTICES_MAX as u64;
    for number in 1..=most + 20 {
        let notice = Bytes::from(number.to_string());
        assert_eq!(store.append(&party, &format!("k{number}"), notice).await.expect("appends"), number);
    }
    let kept = store.since(&party, 0).await.expect("reads");
    assert_eq!(kept.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (21..=most + 20).collect::<Vec<_>>());
    assert_eq!(store.append(&party, "k30", Bytes::new()).await.expect("appends"), 30, "kept, so it has its number");
    assert_eq!(store.append(&party, "k1", Bytes::new()).await.expect("appends"), most + 21, "forgotten, so it is new");
    assert_eq!(store.since(&party, u64::MAX).await.expect("reads"), []);
}

#[tokio::test]
async fn an_entry_that_nobody_of_ours_wrote_is_damage() {
    let (store, party) = (redis(), party());
    let _: String = raw_redis().await.xadd(key(&party), "1-1", &[("x", "y")]).await.expect("added");
    assert_eq!(store.since(&party, 0).await.expect_err("damage").kind, PortErrorKind::Broken);
}
