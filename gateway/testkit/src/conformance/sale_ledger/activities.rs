//! SKUs, the life of an activity, and the epochs of its lots.

use std::sync::Arc;

use gateway_core::id::{ActivityId, Lot, SkuId};
use gateway_core::ports::SaleLedger;
use gateway_core::sale::{
    ActivityState, CancelOutcome, CreateOutcome, LotRecord, NewActivity, NewProduct, PayOutcome, Persisted, PublishOutcome, SaleTerms,
    SkuUpsert, StepOutcome, books as rules,
};

use super::*;

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
    a_sale_is_called_off_before_it_begins_and_not_after(&**store, fresh).await;
    calling_off_a_draft_unlocks_nothing(&**store, fresh).await;
    a_closing_sale_still_takes_the_orders_it_admitted(&**store, fresh).await;
    steps_are_refused_from_the_wrong_state(&**store, fresh).await;
    settling_frees_exactly_what_was_not_sold(&**store, fresh).await;
    settling_leaves_the_locks_of_other_activities(&**store, fresh).await;
    orders_that_close_after_settlement_give_their_units_to_the_sku(&**store, fresh).await;
    late_money_after_settlement_buys_what_the_sku_has_free(&**store, fresh).await;
    books_of_an_unknown_lot_do_not_exist(&**store, fresh).await;
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

async fn void(store: &dyn SaleLedger, activity: ActivityId, at: UnixMillis) -> StepOutcome {
    store.void(activity, at).await.expect("void")
}

/// The last instant before the window is in time, its first is not; what was locked is free, and nothing sells it again.
pub async fn a_sale_is_called_off_before_it_begins_and_not_after(store: &dyn SaleLedger, fresh: &Fresh) {
    let sku = sku(store, fresh, 10).await;
    let shape = activity_of(vec![product(sku, 6)]);
    let lot = Lot { activity: published(store, &shape).await, sku };
    let terms = raise(store, lot, 0).await.expect("published");
    assert_eq!(void(store, lot.activity, terms.start).await, StepOutcome::Started);
    assert_eq!(books(store, lot).await.sku_locked, 6);
    for _ in 0..2 {
        assert_eq!(void(store, lot.activity, UnixMillis(terms.start.0 - 1)).await, StepOutcome::Done);
        let after = books(store, lot).await;
        assert_eq!((after.state, after.sku_locked, after.sku_stock, after.epoch), (ActivityState::Void, 0, 10, 2), "once");
        assert_eq!(rules::in_ledger(&after), []);
    }
    assert_eq!(store.publish(lot.activity).await.expect("publish"), PublishOutcome::WrongState(ActivityState::Void));
    assert_eq!(raise(store, lot, 2).await, None);
    assert_eq!(persist(store, lot, &[event(fresh, &fresh.principal(), 1, 2)]).await, [Persisted::Stale]);
    assert!(store.lots(now()).await.expect("lots").iter().all(|record| record.lot != lot), "nothing is to be done for it");
}

/// There was no lock; the epoch rises all the same.
pub async fn calling_off_a_draft_unlocks_nothing(store: &dyn SaleLedger, fresh: &Fresh) {
    let sku = sku(store, fresh, 10).await;
    published(store, &activity_of(vec![product(sku, 4)])).await;
    let lot = Lot { activity: draft(store, &activity_of(vec![product(sku, 6)])).await, sku };
    assert_eq!(void(store, lot.activity, now()).await, StepOutcome::Done, "a draft is called off at any time");
    let after = books(store, lot).await;
    assert_eq!((after.sku_locked, after.epoch), (4, 1), "the other activity's lock");
}

/// What was admitted before the end becomes an order, until everything is settled.
pub async fn a_closing_sale_still_takes_the_orders_it_admitted(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 5).await;
    for _ in 0..2 {
        close(store, lot).await;
        assert_eq!(record(store, lot.activity).await.state, ActivityState::Closing);
    }
    assert!(store.lots(now()).await.expect("lots").iter().any(|record| record.lot == lot), "it has to be settled");
    ordered(store, fresh, lot, 2).await;
    assert_sold(store, lot, 5, 2).await;
    assert_eq!(raise(store, lot, 1).await.map(|terms| (terms.epoch, terms.left)), Some((2, 3)), "a lost store is rebuilt");
}

/// Each with the state it is in, and nothing changes.
pub async fn steps_are_refused_from_the_wrong_state(store: &dyn SaleLedger, fresh: &Fresh) {
    let sku = sku(store, fresh, 10).await;
    let shape = activity_of(vec![product(sku, 1)]);
    let id = draft(store, &shape).await;
    let wrong = StepOutcome::WrongState;
    let step = async |name: &str| match name {
        "close" => store.close(id).await.expect("close"),
        "settle" => store.settle(id).await.expect("settle"),
        _ => void(store, id, shape.start).await,
    };
    assert_eq!([step("close").await, step("settle").await], [wrong(ActivityState::Draft); 2]);
    assert_eq!(store.publish(id).await.expect("publish"), PublishOutcome::Published);
    assert_eq!([step("settle").await, step("void").await], [wrong(ActivityState::Published), StepOutcome::Started]);
    assert_eq!(step("close").await, StepOutcome::Done);
    assert_eq!(step("void").await, wrong(ActivityState::Closing));
    assert_eq!(store.publish(id).await.expect("publish"), PublishOutcome::WrongState(ActivityState::Closing));
    assert_eq!([step("settle").await, step("close").await], [StepOutcome::Done; 2], "settled is past closing");
    assert_eq!(step("void").await, wrong(ActivityState::Settled));
    let unknown = ActivityId(u64::MAX >> 2);
    assert_eq!(store.close(unknown).await.expect("close"), StepOutcome::NotFound);
    assert_eq!(store.settle(unknown).await.expect("settle"), StepOutcome::NotFound);
    assert_eq!(void(store, unknown, now()).await, StepOutcome::NotFound);
}

/// Once, and no later event becomes an order under any epoch.
pub async fn settling_frees_exactly_what_was_not_sold(store: &dyn SaleLedger, fresh: &Fresh) {
    let sku = sku(store, fresh, 15).await;
    let shape = activity_of(vec![product(sku, 10)]);
    let lot = Lot { activity: published(store, &shape).await, sku };
    assert!(raise(store, lot, 0).await.is_some());
    let paid = ordered(store, fresh, lot, 2).await;
    assert_eq!(pay(store, &paid, &pay_no(fresh)).await, PayOutcome::Paid);
    ordered(store, fresh, lot, 1).await;
    close(store, lot).await;
    for _ in 0..2 {
        settle(store, lot).await;
        let after = books(store, lot).await;
        let seen = (after.state, after.sold, after.live, after.sku_stock, after.sku_locked, after.epoch);
        assert_eq!(seen, (ActivityState::Settled, 3, 3, 12, 0, 2));
        assert_eq!(rules::in_ledger(&after), []);
    }
    for epoch in [1, 2] {
        assert_eq!(persist(store, lot, &[event(fresh, &fresh.principal(), 1, epoch)]).await, [Persisted::Stale], "epoch {epoch}");
    }
    assert_eq!(persist(store, lot, &[paid]).await, [Persisted::Stored], "an event seen before hears what it heard");
    assert_eq!(raise(store, lot, 2).await, None);
    let listed = async |at| store.lots(at).await.expect("lots").iter().any(|record| record.lot == lot);
    assert!(listed(shift(shape.end, 23 * 3_600)).await, "results are asked for");
    assert!(!listed(shift(shape.end, 25 * 3_600)).await, "more than a day after its end");
}

/// One SKU in two activities.
pub async fn settling_leaves_the_locks_of_other_activities(store: &dyn SaleLedger, fresh: &Fresh) {
    let sku = sku(store, fresh, 10).await;
    let [one, two] = [4, 6].map(|stock| activity_of(vec![product(sku, stock)]));
    let one = Lot { activity: published(store, &one).await, sku };
    let two = Lot { activity: published(store, &two).await, sku };
    assert!(raise(store, one, 0).await.is_some() && raise(store, two, 0).await.is_some());
    ordered(store, fresh, one, 1).await;
    ordered(store, fresh, two, 2).await;
    close(store, one).await;
    settle(store, one).await;
    let after = books(store, two).await;
    assert_eq!((after.sku_stock, after.sku_locked, after.sku_promised), (7, 4, 4));
    assert_eq!(rules::in_ledger(&after), []);
    let third = draft(store, &activity_of(vec![product(sku, 3)])).await;
    assert_eq!(store.publish(third).await.expect("publish"), PublishOutcome::Published, "what was settled is free again");
}

/// Not to the sale, which is over: `locked` stays 0 and nobody is told.
pub async fn orders_that_close_after_settlement_give_their_units_to_the_sku(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 10).await;
    let (one, two) = (ordered(store, fresh, lot, 2).await, ordered(store, fresh, lot, 3).await);
    close(store, lot).await;
    settle(store, lot).await;
    assert_eq!(books(store, lot).await.sku_stock, 5);
    assert_eq!(cancel(store, &one).await, CancelOutcome::Cancelled);
    let after = books(store, lot).await;
    assert_eq!((after.sold, after.live, after.moved, after.sku_stock, after.sku_locked, after.owed), (3, 3, 3, 7, 0, 0));
    assert_eq!(rules::in_ledger(&after), []);
    assert_eq!(take_tasks(store, now(), &[&one.order_no]).await, [], "no store has to hear of it");
    assert_eq!(pay(store, &two, &pay_no(fresh)).await, PayOutcome::Paid);
}

/// Free units only: what another activity has locked is not for sale.
pub async fn late_money_after_settlement_buys_what_the_sku_has_free(store: &dyn SaleLedger, fresh: &Fresh) {
    let lot = selling(store, fresh, 10).await;
    let (one, two) = (ordered(store, fresh, lot, 4).await, ordered(store, fresh, lot, 4).await);
    close(store, lot).await;
    settle(store, lot).await;
    assert_eq!([cancel(store, &one).await, cancel(store, &two).await], [CancelOutcome::Cancelled; 2]);
    published(store, &activity_of(vec![product(lot.sku, 6)])).await;
    assert_eq!(pay(store, &one, &pay_no(fresh)).await, PayOutcome::Revived, "four of ten are free");
    let after = books(store, lot).await;
    assert_eq!((after.sold, after.sku_stock, after.sku_locked, after.owed), (4, 6, 6, 0));
    assert_eq!(rules::in_ledger(&after), []);
    assert_eq!(pay(store, &two, &pay_no(fresh)).await, PayOutcome::Refunded, "the rest is promised to others");
    assert_eq!(books(store, lot).await, after);
}

/// Asking is no failure.
pub async fn books_of_an_unknown_lot_do_not_exist(store: &dyn SaleLedger, fresh: &Fresh) {
    assert_eq!(store.books(fresh.lot()).await.expect("books"), None);
}
