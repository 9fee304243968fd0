//! What must be true: always, whenever nothing is under way, and when all is over.

use gateway_core::id::OrderNo;
use gateway_core::ports::{Admission as _, SaleLedger as _};
use gateway_core::sale::{
    ActivityState, Decision, Held, LotBooks, OrderRecord, OrderResult, OrderState, PayOutcome, SaleState, SaleStock, Survey, Verdict,
    books as rules,
};
use gateway_core::time::UnixMillis;
use gateway_embedded::EmbeddedSaleLedger;

use super::{SPARE, World, crowd, now};

pub(super) fn books(world: &World<'_>) -> LotBooks {
    now(world.ledger.books(world.lot)).ok().flatten().expect("the lot exists")
}

pub(super) fn state(world: &World<'_>) -> ActivityState {
    books(world).state
}

fn order(world: &World<'_>, order_no: &OrderNo) -> Option<OrderRecord> {
    now(world.ledger.order(order_no)).ok().flatten()
}

fn stocks(world: &World<'_>) -> Vec<Option<SaleStock>> {
    world.shards().map(|shard| now(world.admission.stock(shard)).ok().flatten()).collect()
}

fn surveys(world: &World<'_>) -> Vec<Survey> {
    world.shards().filter_map(|shard| now(world.admission.survey(shard)).ok().flatten()).collect()
}

fn waiting(world: &World<'_>) -> u64 {
    world.shards().map(|shard| now(world.admission.backlog(shard)).unwrap_or(u64::MAX)).sum()
}

/// Orders that wait for money.
pub(super) fn unpaid(world: &World<'_>) -> usize {
    let tally = crowd::lock(&world.tally);
    let orders = tally.accepted.keys().filter_map(|order_no| order(world, order_no));
    orders.filter(|order| order.state == OrderState::Unpaid).count()
}

/// Refunds that were promised and have not arrived.
fn refunds_owed(world: &World<'_>) -> usize {
    let tally = crowd::lock(&world.tally);
    let promised = tally.payments.iter().filter(|(_, (_, told))| *told == Some(PayOutcome::Refunded));
    promised.filter(|(pay_no, _)| !tally.refunds.contains_key(*pay_no)).count()
}

/// Nothing is under way: every event is in the ledger, nothing is owed, and the store is what the ledger thinks it is.
pub(super) fn is_quiet(world: &World<'_>) -> bool {
    let books = books(world);
    let in_force = |stock: &Option<SaleStock>| {
        let life = world.shards().next().map(|shard| now(world.admission.incarnation(shard)).ok());
        stock.as_ref().is_some_and(|stock| {
            stock.at.epoch == books.epoch && stock.state == SaleState::Open && life == Some(Some(stock.incarnation.clone()))
        })
    };
    let steady =
        books.state != ActivityState::Published || (stocks(world).iter().all(in_force) && rules::in_transit(&surveys(world)).is_empty());
    // A closing sale settles by itself.
    let resting = books.state != ActivityState::Closing;
    steady && resting && waiting(world) == 0 && books.owed == 0 && refunds_owed(world) == 0
}

/// For whoever reads why it failed.
pub(super) fn describe(world: &World<'_>) -> String {
    let seen = (books(world), stocks(world), waiting(world), refunds_owed(world), unpaid(world));
    format!("books {:?}, shards {:?}, {} events wait, {} refunds owed, {} unpaid", seen.0, seen.1, seen.2, seen.3, seen.4)
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// The ledger agrees with itself at every instant, and never sells more than there is.
pub(super) fn always(world: &World<'_>) -> Result<(), String> {
    let books = books(world);
    let differences = rules::in_ledger(&books);
    check(differences.is_empty() && books.sold <= books.stock, || format!("the ledger contradicts itself: {differences:?} {books:?}"))?;
    let units = u64::from(books.sku_stock) + books.live;
    check(units == u64::from(world.scenario.stock + SPARE), || format!("{units} units in all: {books:?}"))?;
    let tally = crowd::lock(&world.tally);
    check(tally.broken.is_empty(), || tally.broken.join("; "))
}

/// Nothing is under way: the four invariants, one live order per buyer, no buyer who waits for ever, and money where it
/// belongs.
pub(super) fn at_rest(world: &World<'_>) -> Result<(), String> {
    always(world)?;
    let (books, surveys) = (books(world), surveys(world));
    if books.state == ActivityState::Published {
        let differences = rules::in_shards(&books, &surveys);
        check(differences == Some(Vec::new()), || {
            format!("ledger and shards contradict each other: {differences:?} {books:?} {surveys:?}")
        })?;
        nobody_waits(world, &surveys)?;
    }
    results_are_true(world)?;
    money_is_where_it_belongs(world)
}

/// What a buyer holds is a live order, so that no result stays pending.
fn nobody_waits(world: &World<'_>, surveys: &[Survey]) -> Result<(), String> {
    for (user, held) in surveys.iter().flat_map(|survey| &survey.buyers) {
        let Held::Reserved(held) = held else { continue };
        let live = order(world, &held.order_no).is_some_and(|order| order.state != OrderState::Closed && order.reservation() == *held);
        check(live, || format!("{user} holds {held:?} and the ledger has {:?}", order(world, &held.order_no)))?;
    }
    Ok(())
}

fn results_are_true(world: &World<'_>) -> Result<(), String> {
    let tally = crowd::lock(&world.tally);
    let mut live = std::collections::BTreeMap::new();
    for (order_no, user) in &tally.accepted {
        let (order, result) = (order(world, order_no), now(world.admission.result(order_no)).ok().flatten());
        let is_live = order.as_ref().is_some_and(|order| order.state != OrderState::Closed);
        if is_live && let Some(other) = live.insert(user, order_no) {
            return Err(format!("{user} has two live orders: {other} and {order_no}"));
        }
        let told_true = match &result {
            Some(OrderResult::Success { .. }) => order.is_some(),
            // A failover brings old results back, and whoever wrote the last one may have died before it could look again: "fail"
            // is a hint to ask the ledger.
            Some(OrderResult::Fail { .. }) | None => true,
        };
        check(told_true, || format!("{order_no} is {order:?} and its buyer is told {result:?}"))?;
    }
    Ok(())
}

/// Each payment paid one order, or went back, or was told that there is nothing to pay.
fn money_is_where_it_belongs(world: &World<'_>) -> Result<(), String> {
    let payments: Vec<_> = {
        let tally = crowd::lock(&world.tally);
        tally.payments.iter().map(|(pay_no, (order_no, told))| (pay_no.clone(), order_no.clone(), *told)).collect()
    };
    for (pay_no, order_no, told) in payments {
        // Nobody heard what became of a payment whose answer was lost, or who came before its order: its provider asks again.
        let told = match told {
            None | Some(PayOutcome::NotFound) => {
                let told = now(world.ledger.pay(&order_no, &pay_no, world.now())).map_err(|error| error.to_string())?;
                crowd::lock(&world.tally).paid(&pay_no, told);
                told
            }
            Some(told) => told,
        };
        let kept = order(world, &order_no).is_some_and(|order| order.state == OrderState::Paid && order.pay_no.as_ref() == Some(&pay_no));
        let back = crowd::lock(&world.tally).refunds.contains_key(&pay_no);
        let right = match told {
            PayOutcome::Paid | PayOutcome::Revived => kept && !back,
            // It may be promised just now, by the question above.
            PayOutcome::Refunded => !kept,
            PayOutcome::Conflict | PayOutcome::NotFound => !kept && !back,
        };
        check(right, || format!("{pay_no} for {order_no} was told {told:?}; kept {kept}, sent back {back}"))?;
    }
    Ok(())
}

/// The sale is settled and no order is unpaid: nothing is locked, and every refund arrived.
pub(super) fn at_the_end(world: &World<'_>) -> Result<(), String> {
    at_rest(world)?;
    let books = books(world);
    check(books.state == ActivityState::Settled && books.sku_locked == 0, || format!("units stay locked: {books:?}"))?;
    check(refunds_owed(world) == 0, || "a refund never arrived".to_owned())
}

/// An operator tries every open letter again.
pub(super) async fn retry_letters(ledger: &EmbeddedSaleLedger, at: UnixMillis) {
    let decision = Decision { by: "operator".to_owned(), at, note: String::new() };
    for letter in ledger.letters(true, 0, 1_000).await.unwrap_or_default() {
        let _ = ledger.decide_letter(letter.id, Verdict::Retry, &decision).await;
    }
}
