//! What every [`Nonces`] promises.

use std::sync::Arc;

use gateway_core::chat::Party;
use gateway_core::ports::{NONCES_MAX, Nonces};
use gateway_core::time::UnixMillis;

use super::{Fresh, now, shift};

/// Every check.
pub async fn all(store: &Arc<dyn Nonces>, fresh: &Fresh) {
    a_nonce_is_used_once_until_it_is_forgotten(&**store, fresh).await;
    parties_use_nonces_apart(&**store, fresh).await;
    beyond_the_bound_those_go_that_would_be_forgotten_first(&**store, fresh).await;
    of_racing_uses_one_is_the_first(store, fresh).await;
}

async fn first_use(store: &dyn Nonces, party: &Party, nonce: &str, now: UnixMillis, until: UnixMillis) -> bool {
    store.first_use(party, nonce, now, until).await.expect("first_use")
}

/// Until the instant its first use named, whatever later uses name.
pub async fn a_nonce_is_used_once_until_it_is_forgotten(store: &dyn Nonces, fresh: &Fresh) {
    let (party, start) = (Party::user(fresh.principal()), now());
    for nonce in ["x", "X", "通知", &"n".repeat(64)] {
        assert!(first_use(store, &party, nonce, start, shift(start, 300)).await, "{nonce}");
        assert!(!first_use(store, &party, nonce, start, shift(start, 900)).await, "{nonce}");
        assert!(!first_use(store, &party, nonce, shift(start, 299), shift(start, 900)).await, "{nonce}");
    }
    assert!(first_use(store, &party, "longer", start, shift(start, 600)).await);
    assert!(first_use(store, &party, "x", shift(start, 301), shift(start, 900)).await, "it was forgotten");
    assert!(!first_use(store, &party, "longer", shift(start, 301), shift(start, 900)).await);
}

/// Also a user and an agent of one name, and agents of one name in two shops.
pub async fn parties_use_nonces_apart(store: &dyn Nonces, fresh: &Fresh) {
    let (id, start) = (fresh.principal(), now());
    let here = Party::agent(fresh.shop(), id.clone());
    for party in [Party::user(id.clone()), here.clone(), Party::agent(fresh.shop(), id), Party::user(fresh.principal())] {
        assert!(first_use(store, &party, "n", start, shift(start, 300)).await, "{party:?}");
    }
    assert!(!first_use(store, &here, "n", start, shift(start, 300)).await);
}

/// A party that uses many costs no more than the bound.
pub async fn beyond_the_bound_those_go_that_would_be_forgotten_first(store: &dyn Nonces, fresh: &Fresh) {
    let (party, start) = (Party::user(fresh.principal()), now());
    let until = |n: usize| shift(start, 60).plus(std::time::Duration::from_millis(n as u64));
    for n in 0..NONCES_MAX + 2 {
        assert!(first_use(store, &party, &n.to_string(), start, until(n)).await, "{n}");
    }
    for n in [2, 3, NONCES_MAX + 1] {
        assert!(!first_use(store, &party, &n.to_string(), start, until(n)).await, "{n} is kept");
    }
    assert!(first_use(store, &party, "1", start, until(NONCES_MAX * 2)).await, "it made room");
}

/// However many ask at once.
pub async fn of_racing_uses_one_is_the_first(store: &Arc<dyn Nonces>, fresh: &Fresh) {
    let (party, start) = (Party::agent(fresh.shop(), fresh.principal()), now());
    let race = |_| {
        let (store, party) = (Arc::clone(store), party.clone());
        tokio::spawn(async move { first_use(&*store, &party, "n", start, shift(start, 300)).await })
    };
    let racers: Vec<_> = (0..40).map(race).collect();
    let mut first = 0;
    for racer in racers {
        first += usize::from(racer.await.expect("racer"));
    }
    assert_eq!(first, 1);
}
