//! What every [`Presence`] promises.

use std::sync::Arc;

use gateway_core::chat::{Party, Side};
use gateway_core::ports::Presence;
use gateway_core::time::UnixMillis;

use super::{Fresh, now, shift};

/// Every check. Times lie ahead of the machine's clock, so that a store may forget what is long past.
pub async fn all(store: &Arc<dyn Presence>, fresh: &Fresh) {
    a_heartbeat_lasts_until_its_expiry(&**store, fresh).await;
    any_live_connection_keeps_its_party_online(&**store, fresh).await;
    leaving_ends_one_connection(&**store, fresh).await;
    answers_come_in_the_order_of_the_question(&**store, fresh).await;
}

fn party(fresh: &Fresh, side: Side) -> Party {
    let shop = (side == Side::Agent).then(|| fresh.shop());
    Party { side, id: fresh.principal(), shop }
}

async fn beat(store: &dyn Presence, who: &Party, connection: &str, until: UnixMillis) {
    store.beat(who, connection, until).await.expect("beat");
}

async fn online(store: &dyn Presence, who: &Party, at: UnixMillis) -> bool {
    store.online(std::slice::from_ref(who), at).await.expect("online") == [true]
}

/// By the time the caller names, not by when it asks; a later beat prolongs.
pub async fn a_heartbeat_lasts_until_its_expiry(store: &dyn Presence, fresh: &Fresh) {
    for side in [Side::User, Side::Agent] {
        let (who, start) = (party(fresh, side), now());
        assert!(!online(store, &who, start).await, "never seen");
        beat(store, &who, "c", shift(start, 300)).await;
        assert!(online(store, &who, start).await);
        assert!(online(store, &who, shift(start, 299)).await);
        assert!(!online(store, &who, shift(start, 301)).await, "expired at {start:?} + 301 s");
        beat(store, &who, "c", shift(start, 600)).await;
        assert!(online(store, &who, shift(start, 301)).await, "the heartbeat went on");
    }
}

/// A new socket before the old one ends, and neither the other way round.
pub async fn any_live_connection_keeps_its_party_online(store: &dyn Presence, fresh: &Fresh) {
    let (who, start) = (party(fresh, Side::User), now());
    beat(store, &who, "old", shift(start, 300)).await;
    beat(store, &who, "new", shift(start, 600)).await;
    beat(store, &who, "brief", shift(start, 60)).await;
    assert!(online(store, &who, shift(start, 599)).await);
    assert!(!online(store, &who, shift(start, 601)).await);
}

/// The other connections stay; leaving twice, or without having come, is harmless.
pub async fn leaving_ends_one_connection(store: &dyn Presence, fresh: &Fresh) {
    let (who, start) = (party(fresh, Side::Agent), now());
    store.leave(&who, "never").await.expect("leave");
    beat(store, &who, "one", shift(start, 300)).await;
    beat(store, &who, "two", shift(start, 300)).await;
    for _ in 0..2 {
        store.leave(&who, "one").await.expect("leave");
        assert!(online(store, &who, start).await, "the other connection is alive");
    }
    store.leave(&who, "two").await.expect("leave");
    assert!(!online(store, &who, start).await);
    beat(store, &who, "one", shift(start, 300)).await;
    assert!(online(store, &who, start).await, "back again");
}

/// One answer per party; a user and an agent of one name are two, and so are agents of two shops.
pub async fn answers_come_in_the_order_of_the_question(store: &dyn Presence, fresh: &Fresh) {
    let (here, away, start) = (party(fresh, Side::User), party(fresh, Side::User), now());
    let namesake = Party { side: Side::Agent, shop: Some(fresh.shop()), ..here.clone() };
    beat(store, &here, "c", shift(start, 300)).await;
    let asked = [away.clone(), here.clone(), namesake.clone(), here, away];
    assert_eq!(store.online(&asked, start).await.expect("online"), [false, true, false, true, false]);
    beat(store, &namesake, "c", shift(start, 300)).await;
    let next_door = Party { shop: Some(fresh.shop()), ..namesake.clone() };
    assert_eq!(store.online(&[next_door, namesake], start).await.expect("online"), [false, true]);
    assert_eq!(store.online(&[], start).await.expect("online"), [] as [bool; 0]);
}
