//! What every [`Notices`] promises.

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::chat::{Party, Side};
use gateway_core::ports::{NOTICES_MAX, Notices};

use super::Fresh;

/// Every check.
pub async fn all(store: &Arc<dyn Notices>, fresh: &Fresh) {
    notices_are_numbered_from_one_and_read_back(&**store, fresh).await;
    a_notice_is_appended_once_per_key(&**store, fresh).await;
    parties_are_told_apart(&**store, fresh).await;
    the_latest_are_kept_and_the_numbers_go_on(&**store, fresh).await;
    racing_notices_get_a_number_each(store, fresh).await;
}

fn buyer(fresh: &Fresh) -> Party {
    Party { side: Side::User, id: fresh.principal(), shop: None }
}

fn text(number: usize) -> Bytes {
    Bytes::from(format!("{{\"text\":\"通知 {number} 😂\"}}"))
}

async fn append(store: &dyn Notices, to: &Party, key: &str, notice: Bytes) -> u64 {
    store.append(to, key, notice).await.expect("append")
}

async fn since(store: &dyn Notices, party: &Party, after: u64) -> Vec<(u64, Bytes)> {
    store.since(party, after).await.expect("since")
}

/// In order, byte for byte, after the number one has.
pub async fn notices_are_numbered_from_one_and_read_back(store: &dyn Notices, fresh: &Fresh) {
    let party = buyer(fresh);
    assert_eq!(since(store, &party, 0).await, [], "nobody was told anything yet");
    let odd = Bytes::from_static(b"\x00\xff\r\n");
    assert_eq!(append(store, &party, "one", text(1)).await, 1);
    assert_eq!(append(store, &party, "two", odd.clone()).await, 2);
    assert_eq!(append(store, &party, &"k".repeat(64), Bytes::new()).await, 3);
    let all = [(1, text(1)), (2, odd), (3, Bytes::new())];
    for after in 0..=4_usize {
        assert_eq!(since(store, &party, after as u64).await, all[after.min(3)..], "after {after}");
    }
    assert_eq!(since(store, &party, u64::MAX >> 2).await, []);
}

/// The first words stay.
pub async fn a_notice_is_appended_once_per_key(store: &dyn Notices, fresh: &Fresh) {
    let party = buyer(fresh);
    assert_eq!(append(store, &party, "a:1", text(1)).await, 1);
    assert_eq!(append(store, &party, "b:1", text(2)).await, 2);
    for _ in 0..2 {
        assert_eq!(append(store, &party, "a:1", text(3)).await, 1);
    }
    assert_eq!(append(store, &party, "A:1", text(4)).await, 3, "keys differ by case");
    assert_eq!(since(store, &party, 0).await, [(1, text(1)), (2, text(2)), (3, text(4))]);
}

/// Also a user and an agent of the same name, and agents of two shops.
pub async fn parties_are_told_apart(store: &dyn Notices, fresh: &Fresh) {
    let user = buyer(fresh);
    let agent = Party { side: Side::Agent, shop: Some(fresh.shop()), ..user.clone() };
    let next_door = Party { shop: Some(fresh.shop()), ..agent.clone() };
    let other = buyer(fresh);
    for (n, party) in [&user, &agent, &next_door, &other].into_iter().enumerate() {
        assert_eq!(append(store, party, "k", text(n)).await, 1);
    }
    for (n, party) in [&user, &agent, &next_door, &other].into_iter().enumerate() {
        assert_eq!(since(store, party, 0).await, [(1, text(n))]);
    }
}

/// A key is forgotten with its notice.
pub async fn the_latest_are_kept_and_the_numbers_go_on(store: &dyn Notices, fresh: &Fresh) {
    let party = buyer(fresh);
    for n in 1..=NOTICES_MAX + 5 {
        assert_eq!(append(store, &party, &format!("k{n}"), text(n)).await, n as u64);
    }
    let kept = since(store, &party, 0).await;
    let want: Vec<_> = (6..=NOTICES_MAX + 5).map(|n| (n as u64, text(n))).collect();
    assert_eq!(kept, want);
    assert_eq!(since(store, &party, 3).await, want, "whoever has less gets what is kept");
    assert_eq!(append(store, &party, "k6", text(0)).await, 6, "kept");
    assert_eq!(append(store, &party, "k5", text(0)).await, NOTICES_MAX as u64 + 6, "gone");
}

/// Without a gap and without a repeat.
pub async fn racing_notices_get_a_number_each(store: &Arc<dyn Notices>, fresh: &Fresh) {
    let party = buyer(fresh);
    let race = |n| {
        let (store, party) = (Arc::clone(store), party.clone());
        // Each key comes from two racers.
        tokio::spawn(async move { append(&*store, &party, &format!("k{}", n % 40), text(n)).await })
    };
    let racers: Vec<_> = (0..80).map(race).collect();
    let mut numbers = Vec::new();
    for racer in racers {
        numbers.push(racer.await.expect("racer"));
    }
    assert_eq!(numbers[..40], numbers[40..], "the same key, the same number");
    numbers.truncate(40);
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=40).collect::<Vec<_>>());
}
