//! What every [`SaleLedger`] promises.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::id::{ActivityId, Lot, PrincipalId, SkuId};
use gateway_core::ports::{LotLease, SaleLedger};
use gateway_core::sale::{
    ActivityRecord, ActivityState, CreateOutcome, Held, LotBooks, LotRecord, NewActivity, NewProduct, OrderEvent, OrderRecord, OrderState,
    Persisted, PublishOutcome, Reservation, SaleTerms, SkuUpsert,
};

use super::{Fresh, now, shift};

/// Every check.
pub async fn all(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    a_sku_is_created_and_topped_up(&**store, fresh).await;
    a_draft_keeps_what_it_was_given(&**store, fresh).await;
    an_activity_needs_known_skus(&**store, fresh).await;
    publishing_locks_units_once(&**store, fresh).await;
    publishing_locks_every_product_or_none(&**store, fresh).await;
    racing_publications_share_one_stock(store, fresh).await;
    lots_on_sale_are_listed(&**store, fresh).await;
    an_epoch_is_raised_from_exactly_the_one_named(&**store, fresh).await;
    racing_raises_have_one_winner(store, fresh).await;
    an_order_is_written_with_all_its_counters(&**store, fresh).await;
    an_event_seen_before_changes_nothing(&**store, fresh).await;
    an_event_of_a_former_epoch_is_stale(&**store, fresh).await;
    a_user_has_one_live_order_per_lot(&**store, fresh).await;
    units_sold_never_exceed_the_lot(&**store, fresh).await;
    two_hundred_events_fit_one_call(&**store, fresh).await;
    racing_workers_write_each_order_once(store, fresh).await;
    racing_workers_never_oversell(store, fresh).await;
    the_terms_of_a_new_epoch_come_from_the_orders(&**store, fresh).await;
}

/// How long checks hold a lease.
const LEASE: Duration = Duration::from_secs(60);

async fn sku(store: &dyn SaleLedger, fresh: &Fresh, stock: u32) -> SkuId {
    let sku = SkuId(fresh.number());
    store.upsert_sku(&SkuUpsert { sku, name: "茶 tea".to_owned(), price_cents: 1_990, add_stock: stock }).await.expect("upsert sku");
    sku
}

fn product(sku: SkuId, stock: u32) -> NewProduct {
    NewProduct { sku, price_cents: 990, stock, per_user: 5, shards: 1 }
}

fn activity_of(products: Vec<NewProduct>) -> NewActivity {
    NewActivity { title: "秒杀 flash".to_owned(), start: shift(now(), -3_600), end: shift(now(), 3_600), pay_ttl_s: 1_800, products }
}

async fn draft(store: &dyn SaleLedger, activity: &NewActivity) -> ActivityId {
    match store.create_activity(activity).await.expect("create activity") {
        CreateOutcome::Created(id) => id,
        CreateOutcome::UnknownSku(sku) => panic!("{sku} was created just now"),
    }
}

async fn published(store: &dyn SaleLedger, activity: &NewActivity) -> ActivityId {
    let id = draft(store, activity).await;
    assert_eq!(store.publish(id).await.expect("publish"), PublishOutcome::Published);
    id
}

/// A published lot of `stock` units in epoch 1.
async fn selling(store: &dyn SaleLedger, fresh: &Fresh, stock: u32) -> Lot {
    let sku = sku(store, fresh, stock).await;
    let lot = Lot { activity: published(store, &activity_of(vec![product(sku, stock)])).await, sku };
    assert_eq!(raise(store, lot, 0).await.map(|terms| terms.epoch), Some(1));
    lot
}

async fn raise(store: &dyn SaleLedger, lot: Lot, from: u32) -> Option<SaleTerms> {
    store.raise_epoch(lot, from).await.expect("raise epoch")
}

async fn record(store: &dyn SaleLedger, activity: ActivityId) -> ActivityRecord {
    store.activity(activity).await.expect("activity").expect("the activity exists")
}

async fn lot_record(store: &dyn SaleLedger, lot: Lot) -> LotRecord {
    let activity = record(store, lot.activity).await;
    activity.products.into_iter().find(|product| product.lot == lot).expect("the lot exists")
}

fn event(fresh: &Fresh, user: &PrincipalId, qty: u32, epoch: u32) -> OrderEvent {
    OrderEvent { id: format!("{}-0", fresh.number()), order_no: fresh.order_no(), user: user.clone(), qty, epoch, generation: 0 }
}

fn somebody(fresh: &Fresh, qty: u32) -> OrderEvent {
    event(fresh, &fresh.principal(), qty, 1)
}

async fn books(store: &dyn SaleLedger, lot: Lot) -> LotBooks {
    store.books(lot).await.expect("books").expect("the lot exists")
}

/// A lease of `lot` for `owner`, long enough for any check.
async fn lease(store: &dyn SaleLedger, owner: &str, lot: Lot) -> Option<LotLease> {
    store.lease_lots(owner, &[lot], LEASE).await.expect("lease lots").pop()
}

/// Persists as the one worker that all checks but those about leases speak for.
async fn persist(store: &dyn SaleLedger, lot: Lot, events: &[OrderEvent]) -> Vec<Persisted> {
    let lease = lease(store, "worker", lot).await.expect("nobody else leases the lot");
    store.persist(&lease, events, now()).await.expect("persist")
}

/// Asserts every number that an order moves, given the units sold.
async fn assert_sold(store: &dyn SaleLedger, lot: Lot, stock: u32, sold: u32) {
    let books = books(store, lot).await;
    let seen = (books.stock, books.sold, books.live, books.moved, books.sku_stock, books.sku_locked);
    let want = (stock, sold, u64::from(sold), i64::from(sold), stock - sold, stock - sold);
    assert_eq!(seen, want, "stock, sold, live, moved, SKU stock, SKU locked");
    assert_eq!(gateway_core::sale::books::in_ledger(&books), [], "the ledger agrees with itself");
    assert_eq!(lot_record(store, lot).await.sold, sold);
}

/// The second call renames, reprices and adds.
pub async fn a_sku_is_created_and_topped_up(store: &dyn SaleLedger, fresh: &Fresh) {
    let sku = sku(store, fresh, 5).await;
    let lot = Lot { activity: draft(store, &activity_of(vec![product(sku, 1)])).await, sku };
    assert_eq!(books(store, lot).await.sku_stock, 5);
    store.upsert_sku(&SkuUpsert { sku, name: "café 😂".to_owned(), price_cents: 1, add_stock: 7 }).await.expect("upsert sku");
    let record = lot_record(store, lot).await;
    assert_eq!((books(store, lot).await.sku_stock, record.name.as_str()), (12, "café 😂"));
    assert_eq!(record.price_cents, 990, "the product keeps its own price");
}

/// Every field comes back, to the millisecond.
pub async fn a_draft_keeps_what_it_was_given(store: &dyn SaleLedger, fresh: &Fresh) {
    let (one, two) = (sku(store, fresh, 10).await, sku(store, fresh, 20).await);
    let products = vec![
        NewProduct { sku: one, price_cents: 1, stock: 3, per_user: 1, shards: 1 },
        NewProduct { sku: two, price_cents: 99_999_999, stock: 4, per_user: 2, shards: 7 },
    ];
    let wanted = NewActivity { pay_ttl_s: 77, ..activity_of(products) };
    let id = draft(store, &wanted).await;
    let record = record(store, id).await;
    assert_eq!(
        (record.id, &record.title, record.start, record.end, record.pay_ttl_s, record.state),
        (id, &wanted.title, wanted.start, wanted.end, 77, ActivityState::Draft)
    );
    let lot = |sku, price_cents, stock, per_user, shards| LotRecord {
        lot: Lot { activity: id, sku },
        name: "茶 tea".to_owned(),
        state: ActivityState::Draft,
        start: wanted.start,
        end: wanted.end,
        price_cents,
        stock,
        sold: 0,
        per_user,
        epoch: 0,
        shards,
    };
    let mut products = record.products;
    products.sort_by_key(|product| product.lot);
    assert_eq!(products, [lot(one, 1, 3, 1, 1), lot(two, 99_999_999, 4, 2, 7)]);
    assert_eq!(store.activity(ActivityId(u64::MAX >> 2)).await.expect("activity"), None);
    assert_ne!(draft(store, &wanted).await, id, "two activities of the same words are two");
}

/// The SKU that does not exist is named.
pub async fn an_activity_needs_known_skus(store: &dyn SaleLedger, fresh: &Fresh) {
    let (known, unknown) = (sku(store, fresh, 1).await, SkuId(fresh.number()));
    let outcome = store.create_activity(&activity_of(vec![product(known, 1), product(unknown, 1)])).await.expect("create activity");
    assert_eq!(outcome, CreateOutcome::UnknownSku(unknown));
}

/// Publishing again locks nothing more.
pub async fn publishing_locks_units_once(store: &dyn SaleLedger, fresh: &Fresh) {
    let sku = sku(store, fresh, 10).await;
    let lot = Lot { activity: draft(store, &activity_of(vec![product(sku, 6)])).await, sku };
    for _ in 0..2 {
        assert_eq!(store.publish(lot.activity).await.expect("publish"), PublishOutcome::Published);
        let books = books(store, lot).await;
        assert_eq!((books.state, books.sku_stock, books.sku_locked), (ActivityState::Published, 10, 6));
    }
    assert_eq!(record(store, lot.activity).await.state, ActivityState::Published);
    assert_eq!(store.publish(ActivityId(u64::MAX >> 2)).await.expect("publish"), PublishOutcome::NotFound);
}

/// Too few units of one product leave the others unlocked; topping up helps.
pub async fn publishing_locks_every_product_or_none(store: &dyn SaleLedger, fresh: &Fresh) {
    let (plenty, scarce) = (sku(store, fresh, 10).await, sku(store, fresh, 5).await);
    published(store, &activity_of(vec![product(scarce, 2)])).await;
    let id = draft(store, &activity_of(vec![product(plenty, 10), product(scarce, 4)])).await;
    assert_eq!(store.publish(id).await.expect("publish"), PublishOutcome::NotEnough(scarce));
    let plenty_lot = Lot { activity: id, sku: plenty };
    let draft = books(store, plenty_lot).await;
    assert_eq!((draft.state, draft.sku_locked), (ActivityState::Draft, 0), "nothing was locked");
    store.upsert_sku(&SkuUpsert { sku: scarce, name: "tea".to_owned(), price_cents: 1, add_stock: 1 }).await.expect("upsert sku");
    assert_eq!(store.publish(id).await.expect("publish"), PublishOutcome::Published);
    assert_eq!(books(store, plenty_lot).await.sku_locked, 10);
    assert_eq!(books(store, Lot { activity: id, sku: scarce }).await.sku_locked, 6, "two activities share the SKU");
}

/// Ten activities after units for three.
pub async fn racing_publications_share_one_stock(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let sku = sku(&**store, fresh, 3).await;
    let mut racers = Vec::new();
    for _ in 0..10 {
        let id = draft(&**store, &activity_of(vec![product(sku, 1)])).await;
        let store = Arc::clone(store);
        racers.push((id, tokio::spawn(async move { store.publish(id).await.expect("publish") })));
    }
    let (mut won, mut any) = (0, None);
    for (id, racer) in racers {
        let outcome = racer.await.expect("racer");
        assert!([PublishOutcome::Published, PublishOutcome::NotEnough(sku)].contains(&outcome), "{outcome:?}");
        won += u32::from(outcome == PublishOutcome::Published);
        any = Some(Lot { activity: id, sku });
    }
    assert_eq!(won, 3);
    assert_eq!(books(&**store, any.expect("ten racers")).await.sku_locked, 3);
}

/// Published ones, until they are settled.
pub async fn lots_on_sale_are_listed(store: &dyn SaleLedger, fresh: &Fresh) {
    let sku = sku(store, fresh, 10).await;
    let shape = activity_of(vec![product(sku, 1)]);
    let (hidden, current) = (draft(store, &shape).await, published(store, &shape).await);
    let listed = async |at| -> Vec<LotRecord> {
        let lots = store.lots(at).await.expect("lots");
        lots.into_iter().filter(|record| record.lot.sku == sku).collect()
    };
    let lots = listed(now()).await;
    assert_eq!(lots, [lot_record(store, Lot { activity: current, sku }).await], "only the published one, and not {hidden}");
    assert_eq!(listed(shift(shape.end, 23 * 3_600)).await.len(), 1, "within a day of its end");
    assert_eq!(listed(shift(shape.end, 25 * 3_600)).await.len(), 1, "until it is settled");
    assert_eq!(listed(shift(shape.start, -3_600)).await.len(), 1, "before its window");
}

/// Compare and set; the terms are those of the activity.
pub async fn an_epoch_is_raised_from_exactly_the_one_named(store: &dyn SaleLedger, fresh: &Fresh) {
    let sku = sku(store, fresh, 9).await;
    let shape = activity_of(vec![product(sku, 9)]);
    let lot = Lot { activity: published(store, &shape).await, sku };
    let terms = SaleTerms { epoch: 1, start: shape.start, end: shape.end, per_user: 5, left: 9, buyers: Vec::new() };
    assert_eq!(raise(store, lot, 1).await, None, "the epoch is 0");
    assert_eq!(raise(store, lot, 0).await, Some(terms.clone()));
    assert_eq!(raise(store, lot, 0).await, None, "the epoch is 1");
    assert_eq!(lot_record(store, lot).await.epoch, 1);
    assert_eq!(raise(store, lot, 1).await, Some(SaleTerms { epoch: 2, ..terms }));
    assert_eq!(raise(store, fresh.lot(), 0).await, None, "an unknown lot has no epoch");
}

/// One of sixteen.
pub async fn racing_raises_have_one_winner(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let lot = selling(&**store, fresh, 1).await;
    let race = |_| {
        let store = Arc::clone(store);
        tokio::spawn(async move { raise(&*store, lot, 1).await.is_some() })
    };
    let racers: Vec<_> = (0..16).map(race).collect();
    let mut won = 0;
    for racer in racers {
        won += u32::from(racer.await.expect("racer"));
    }
    assert_eq!((won, lot_record(&**store, lot).await.epoch), (1, 2));
}

/// The order itself, units sold, live units, SKU stock and lock.
pub async fn an_order_is_written_with_all_its_counters(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 10).await;
    let (one, two) = (somebody(fresh, 2), somebody(fresh, 3));
    assert_eq!(persist(store, lot, &[one.clone(), two.clone()]).await, [Persisted::Stored; 2]);
    assert_sold(store, lot, 10, 5).await;
    for event in [one, two] {
        let found = store.order(&event.order_no).await.expect("order").expect("it was stored");
        let want = OrderRecord {
            order_no: event.order_no,
            user: event.user,
            lot,
            qty: event.qty,
            state: OrderState::Unpaid,
            generation: 0,
            revision: 0,
            expires: found.expires,
            pay_no: None,
        };
        assert_eq!(found, want);
    }
    assert_eq!(store.order(&fresh.order_no()).await.expect("order"), None);
    assert_eq!(persist(store, lot, &[]).await, []);
}

/// Redelivered once, twice, within one call, and after the epoch was raised.
pub async fn an_event_seen_before_changes_nothing(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 3).await;
    let (one, two) = (somebody(fresh, 2), somebody(fresh, 1));
    assert_eq!(persist(store, lot, &[one.clone(), one.clone()]).await, [Persisted::Stored; 2], "twice in one call");
    assert_eq!(persist(store, lot, &[two.clone(), one.clone()]).await, [Persisted::Stored; 2], "mixed with a new one");
    assert_sold(store, lot, 3, 3).await;
    let again = OrderEvent { id: format!("{}-0", fresh.number()), ..one.clone() };
    assert_eq!(persist(store, lot, &[again]).await, [Persisted::Stored], "the same order under another log id");
    assert!(raise(store, lot, 1).await.is_some());
    assert_eq!(persist(store, lot, &[one, two]).await, [Persisted::Stored; 2], "also when its epoch is over");
    assert_sold(store, lot, 3, 3).await;
}

/// It leaves no order, alone or in company, and stays stale.
pub async fn an_event_of_a_former_epoch_is_stale(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    assert!(raise(store, lot, 1).await.is_some());
    let (late, current) = (somebody(fresh, 1), event(fresh, &fresh.principal(), 1, 2));
    let outcomes = persist(store, lot, &[late.clone(), current, late.clone()]).await;
    assert_eq!(outcomes, [Persisted::Stale, Persisted::Stored, Persisted::Stale]);
    assert_eq!(persist(store, lot, std::slice::from_ref(&late)).await, [Persisted::Stale]);
    assert_eq!(store.order(&late.order_no).await.expect("order"), None);
    assert_sold(store, lot, 5, 1).await;
}

/// Another number for the same user and lot is a duplicate; another lot is another matter.
pub async fn a_user_has_one_live_order_per_lot(store: &dyn SaleLedger, fresh: &Fresh) {
    let (lot, other) = (selling(store, fresh, 9).await, selling(store, fresh, 9).await);
    let user = fresh.principal();
    let (first, second, third) = (event(fresh, &user, 1, 1), event(fresh, &user, 1, 1), event(fresh, &user, 1, 1));
    assert_eq!(persist(store, lot, &[first.clone(), second.clone()]).await, [Persisted::Stored, Persisted::Duplicate]);
    let outcomes = persist(store, lot, &[third.clone(), second, first]).await;
    assert_eq!(outcomes, [Persisted::Duplicate, Persisted::Duplicate, Persisted::Stored]);
    assert_eq!(store.order(&third.order_no).await.expect("order"), None);
    assert_sold(store, lot, 9, 1).await;
    assert_eq!(persist(store, other, &[event(fresh, &user, 1, 1)]).await, [Persisted::Stored]);
    let namesake = PrincipalId::parse(&user.as_str().to_uppercase()).expect("valid");
    assert_eq!(persist(store, lot, &[event(fresh, &namesake, 1, 1)]).await, [Persisted::Stored], "names differ by case");
}

/// The guard is per event, in order: a wish too large leaves room for a smaller one behind it.
pub async fn units_sold_never_exceed_the_lot(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 3).await;
    let events = [somebody(fresh, 2), somebody(fresh, 2), somebody(fresh, 1), somebody(fresh, 1)];
    let want = [Persisted::Stored, Persisted::SoldOut, Persisted::Stored, Persisted::SoldOut];
    for round in ["first seen", "seen before"] {
        assert_eq!(persist(store, lot, &events).await, want, "{round}");
        assert_sold(store, lot, 3, 3).await;
    }
    assert_eq!(store.order(&events[1].order_no).await.expect("order"), None);
}

/// The port's bound can be used.
pub async fn two_hundred_events_fit_one_call(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 200).await;
    let events: Vec<_> = (0..200).map(|_| somebody(fresh, 1)).collect();
    assert_eq!(persist(store, lot, &events).await, vec![Persisted::Stored; 200]);
    assert_sold(store, lot, 200, 200).await;
}

/// Eight workers with the same events, each in another order.
pub async fn racing_workers_write_each_order_once(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let lot = selling(&**store, fresh, 100).await;
    let events: Vec<_> = (0..20).map(|_| somebody(fresh, 1)).collect();
    let race = |n| {
        let (store, mut events) = (Arc::clone(store), events.clone());
        events.rotate_left(n);
        tokio::spawn(async move { persist(&*store, lot, &events).await })
    };
    let racers: Vec<_> = (0..8).map(race).collect();
    for racer in racers {
        assert_eq!(racer.await.expect("racer"), vec![Persisted::Stored; 20]);
    }
    assert_sold(&**store, lot, 100, 20).await;
}

/// Eighty different events after thirty units.
pub async fn racing_workers_never_oversell(store: &Arc<dyn SaleLedger>, fresh: &Fresh) {
    let lot = selling(&**store, fresh, 30).await;
    let race = |_| {
        let (store, events) = (Arc::clone(store), (0..10).map(|_| somebody(fresh, 1)).collect::<Vec<_>>());
        tokio::spawn(async move { persist(&*store, lot, &events).await })
    };
    let racers: Vec<_> = (0..8).map(race).collect();
    let mut outcomes = Vec::new();
    for racer in racers {
        outcomes.extend(racer.await.expect("racer"));
    }
    let count = |want| outcomes.iter().filter(|outcome| **outcome == want).count();
    assert_eq!((count(Persisted::Stored), count(Persisted::SoldOut)), (30, 50));
    assert_sold(&**store, lot, 30, 30).await;
}

/// What is left and who holds an order, so that a rebuilt store sells exactly the rest.
pub async fn the_terms_of_a_new_epoch_come_from_the_orders(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 10).await;
    let (one, two) = (somebody(fresh, 1), somebody(fresh, 4));
    persist(store, lot, &[one.clone(), two.clone()]).await;
    let terms = raise(store, lot, 1).await.expect("the epoch is 1");
    assert_eq!((terms.epoch, terms.left, terms.per_user), (2, 5, 5));
    let mut buyers = terms.buyers;
    buyers.sort_by_key(|(_, held)| held.units());
    let held = |event: OrderEvent| (event.user, Held::Reserved(Reservation { qty: event.qty, order_no: event.order_no, revision: 0 }));
    assert_eq!(buyers, [held(one), held(two)]);
    assert_sold(store, lot, 10, 5).await;
}
