//! One worker writes the orders of a lot.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::id::Lot;
use gateway_core::ports::{LotLease, PortErrorKind, SaleLedger};
use gateway_core::sale::Persisted;

use super::super::eventually;
use super::*;

/// Every check.
pub async fn all(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    a_lease_excludes_others_and_is_prolonged_by_its_owner(&**store, fresh).await;
    many_lots_are_leased_at_once_as_far_as_they_are_free(&**store, fresh).await;
    a_lease_that_ended_goes_to_another_with_a_higher_token(&**store, fresh).await;
    a_lease_that_was_given_back_is_free(&**store, fresh).await;
    without_its_lease_a_worker_writes_nothing(&**store, fresh).await;
    racing_workers_share_no_lot(store, fresh).await;
}

async fn lease_for(store: &dyn SaleLedger, owner: &str, lot: Lot, ttl: Duration) -> Option<LotLease> {
    let held = store.lease_lots(owner, &[lot], ttl).await.expect("lease lots");
    assert!(held.len() <= 1 && held.iter().all(|lease| lease.lot == lot), "{held:?}");
    held.into_iter().next()
}

/// The same token again for the same owner.
pub async fn a_lease_excludes_others_and_is_prolonged_by_its_owner(store: &dyn SaleLedger, fresh: &Fresh) {
    let (lot, one, two) = (selling(store, fresh, 1).await, fresh.word("one"), fresh.word("two"));
    let lease = lease_for(store, &one, lot, LEASE).await.expect("free");
    assert_eq!(lease_for(store, &two, lot, LEASE).await, None);
    assert_eq!(lease_for(store, &one, lot, LEASE).await, Some(lease));
    assert_eq!(lease_for(store, &two, lot, Duration::ZERO).await, None, "giving back what one does not hold");
    assert_eq!(lease_for(store, &two, lot, LEASE).await, None);
    assert_eq!(store.lease_lots(&one, &[], LEASE).await.expect("lease lots"), []);
}

/// What somebody else holds is left out.
pub async fn many_lots_are_leased_at_once_as_far_as_they_are_free(store: &dyn SaleLedger, fresh: &Fresh) {
    let skus = [sku(store, fresh, 1).await, sku(store, fresh, 1).await, sku(store, fresh, 1).await];
    let activity = published(store, &activity_of(skus.map(|sku| product(sku, 1)).to_vec())).await;
    let lots = skus.map(|sku| Lot { activity, sku });
    let (one, two) = (fresh.word("one"), fresh.word("two"));
    assert!(lease_for(store, &one, lots[1], LEASE).await.is_some());
    let held = async |owner: &str| {
        let mut held: Vec<Lot> = store.lease_lots(owner, &lots, LEASE).await.expect("lease lots").iter().map(|lease| lease.lot).collect();
        held.sort_unstable();
        held
    };
    assert_eq!(held(&two).await, [lots[0], lots[2]]);
    assert_eq!(held(&one).await, [lots[1]]);
}

/// Nobody has to give it back.
pub async fn a_lease_that_ended_goes_to_another_with_a_higher_token(store: &dyn SaleLedger, fresh: &Fresh) {
    let (lot, one, two) = (selling(store, fresh, 1).await, fresh.word("one"), fresh.word("two"));
    let former = lease_for(store, &one, lot, Duration::from_millis(100)).await.expect("free");
    let heir = eventually("a lease ends by itself", || lease_for(store, &two, lot, LEASE)).await;
    assert!(heir.token > former.token, "{heir:?} after {former:?}");
    assert_eq!(lease_for(store, &one, lot, LEASE).await, None);
}

/// At once, by its owner only.
pub async fn a_lease_that_was_given_back_is_free(store: &dyn SaleLedger, fresh: &Fresh) {
    let (lot, one, two) = (selling(store, fresh, 1).await, fresh.word("one"), fresh.word("two"));
    let former = lease_for(store, &one, lot, LEASE).await.expect("free");
    assert_eq!(lease_for(store, &one, lot, Duration::ZERO).await, None, "nothing is held any more");
    let heir = lease_for(store, &two, lot, LEASE).await.expect("free again");
    assert!(heir.token > former.token, "{heir:?} after {former:?}");
}

/// Superseded, given back, never held: all are fenced.
pub async fn without_its_lease_a_worker_writes_nothing(store: &dyn SaleLedger, fresh: &Fresh) {
    let (lot, one, two) = (selling(store, fresh, 5).await, fresh.word("one"), fresh.word("two"));
    let event = somebody(fresh, 1);
    let persist = async |lease: &LotLease| store.persist(lease, std::slice::from_ref(&event), now()).await;
    let fenced = async |lease: &LotLease, why: &str| {
        let error = persist(lease).await.expect_err(why);
        assert_eq!(error.kind, PortErrorKind::Fenced, "{why}");
        assert_sold(store, lot, 5, 0).await;
        assert_eq!(store.order(&event.order_no).await.expect("order"), None, "{why}");
    };
    fenced(&LotLease { lot, token: 1 << 40 }, "never held").await;
    let former = lease_for(store, &one, lot, LEASE).await.expect("free");
    assert_eq!(lease_for(store, &one, lot, Duration::ZERO).await, None);
    fenced(&former, "given back").await;
    let heir = lease_for(store, &two, lot, LEASE).await.expect("free again");
    fenced(&former, "superseded").await;
    assert_eq!(persist(&heir).await.expect("persist"), [Persisted::Stored]);
    assert_sold(store, lot, 5, 1).await;
}

/// Sixteen after one.
pub async fn racing_workers_share_no_lot(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let lot = selling(&**store, fresh, 1).await;
    let race = |_| {
        let (store, owner) = (Arc::clone(store), fresh.word("racer"));
        tokio::spawn(async move { lease_for(&*store, &owner, lot, LEASE).await.is_some() })
    };
    let racers: Vec<_> = (0..16).map(race).collect();
    let mut won = 0;
    for racer in racers {
        won += u32::from(racer.await.expect("racer"));
    }
    assert_eq!(won, 1);
}
