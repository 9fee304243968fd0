//! The sale ledger where callers meet: each test in a database of its own, because time and tasks are everybody's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gateway_core::id::{ActivityId, Lot, OrderNo, PayNo, SkuId};
use gateway_core::ports::{LotLease, PortErrorKind, SaleLedger};
use gateway_core::sale::{
    CancelOutcome, CreateOutcome, DecideOutcome, Decision, Invariant, LetterKind, LetterState, LotBooks, NewActivity, NewLetter,
    NewProduct, OrderEvent, OrderState, PayOutcome, Persisted, PublishOutcome, SkuUpsert, Verdict, books,
};
use gateway_core::time::UnixMillis;
use gateway_stores::MysqlStore;
use gateway_testkit::services::MariaDb;
use sqlx::MySqlPool;
use tokio::task::JoinSet;

use crate::shared::{FRESH, database_url, event, leased, mysql_at, now, raw_mysql};

/// Longer than a lot of these tests leaves an order unpaid.
const LATER: Duration = Duration::from_secs(3_600);

/// An empty database, and a raw connection to it.
async fn own() -> (Arc<MysqlStore>, MySqlPool) {
    let database = format!("ledger_{}", FRESH.number());
    sqlx::query(sqlx::AssertSqlSafe(format!("create database {database}"))).execute(&raw_mysql().await).await.expect("creates");
    let url = database_url(&database);
    (Arc::new(mysql_at(url.clone()).await), MySqlPool::connect(&url).await.expect("connects"))
}

/// Lots of `units` each in activities of their own, of one SKU that has exactly enough; all in epoch 1.
async fn lots_of_one_sku(ledger: &MysqlStore, lots: u32, units: u32) -> Vec<Lot> {
    let sku = SkuId(FRESH.number());
    ledger.upsert_sku(&SkuUpsert { sku, name: "lamp".to_owned(), price_cents: 990, add_stock: lots * units }).await.expect("a SKU");
    let mut made = Vec::new();
    for _ in 0..lots {
        let product = NewProduct { sku, price_cents: 500, stock: units, per_user: 5, shards: 1 };
        let (start, end) = (UnixMillis(now().0 - 1_000), now().plus(LATER));
        let activity = NewActivity { title: "night sale".to_owned(), start, end, pay_ttl_s: 900, products: vec![product] };
        let CreateOutcome::Created(id) = ledger.create_activity(&activity).await.expect("an activity") else { panic!("not created") };
        assert_eq!(ledger.publish(id).await.expect("publishes"), PublishOutcome::Published);
        let lot = Lot { activity: id, sku };
        assert!(ledger.raise_epoch(lot, 0).await.expect("raises").is_some());
        made.push(lot);
    }
    made
}

async fn books_of(ledger: &MysqlStore, lot: Lot) -> LotBooks {
    let books = ledger.books(lot).await.expect("reads").expect("exists");
    assert_eq!(books::in_ledger(&books), [], "the ledger agrees with itself: {books:?}");
    books
}

async fn persist(ledger: &MysqlStore, lease: &LotLease, events: &[OrderEvent]) -> Vec<Persisted> {
    ledger.persist(lease, events, now()).await.expect("persists")
}

fn money() -> PayNo {
    PayNo::parse(&format!("pay-{}", FRESH.number())).expect("valid")
}

/// The timer, each order's payment, and rivals for every unit that comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_and_the_timer_at_the_same_instant_leave_an_order_paid_or_closed() {
    const PAIRS: usize = 1_000;
    let (ledger, _) = own().await;
    let lot = lots_of_one_sku(&ledger, 1, 1_000).await[0];
    let lease = leased(&ledger, lot).await;
    let orders: Vec<_> = (0..PAIRS).map(|_| event(1, 1)).collect();
    assert_eq!(persist(&ledger, &lease, &orders).await, vec![Persisted::Stored; PAIRS]);
    let mut payments = JoinSet::new();
    for order in &orders {
        let (ledger, order_no) = (Arc::clone(&ledger), order.order_no.clone());
        payments.spawn(async move { (order_no.clone(), ledger.pay(&order_no, &money(), now()).await.expect("pays")) });
    }
    let mut others = JoinSet::new();
    for _ in 0..2 {
        let ledger = Arc::clone(&ledger);
        others.spawn(async move {
            // An order paid meanwhile is no candidate any more, so it ends.
            while !ledger.expire(now().plus(LATER), 25, now()).await.expect("expires").is_empty() {}
        });
    }
    let (rival, claim) = (Arc::clone(&ledger), lease.clone());
    others.spawn(async move {
        for _ in 0..60 {
            let outcomes = persist(&rival, &claim, &[event(1, 1), event(1, 1)]).await;
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Persisted::Stored | Persisted::SoldOut)), "{outcomes:?}");
        }
    });
    let answers = payments.join_all().await;
    others.join_all().await;
    let mut seen = BTreeSet::new();
    for (order_no, answer) in answers {
        let order = ledger.order(&order_no).await.expect("reads").expect("exists");
        let want = match answer {
            PayOutcome::Paid => (OrderState::Paid, 0),
            PayOutcome::Revived => (OrderState::Paid, 2),
            PayOutcome::Refunded => (OrderState::Closed, 1),
            PayOutcome::Conflict | PayOutcome::NotFound => panic!("{answer:?}"),
        };
        assert_eq!((order.state, order.revision), want, "{answer:?}");
        seen.insert(format!("{answer:?}"));
    }
    assert!(seen.contains("Paid"), "{seen:?}");
    let books = books_of(&ledger, lot).await;
    assert!(books.sold <= books.stock, "{books:?}");
}

/// Workers, timers, payers and cancellers on two lots whose units lie in one row: nobody fails, and whoever looks sees books
/// that agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_at_two_lots_of_one_sku_never_lock_each_other_out() {
    const ROUNDS: usize = 12;
    const BATCH: usize = 16;
    let (ledger, _) = own().await;
    let lots = lots_of_one_sku(&ledger, 2, 300).await;
    let leases = [leased(&ledger, lots[0]).await, leased(&ledger, lots[1]).await];
    let over = Arc::new(AtomicBool::new(false));
    let mut watchers = JoinSet::new();
    for lot in lots.clone() {
        let (ledger, over) = (Arc::clone(&ledger), Arc::clone(&over));
        watchers.spawn(async move {
            let mut looks = 0_u32;
            while !over.load(Ordering::Relaxed) {
                books_of(&ledger, lot).await;
                looks += 1;
            }
            looks
        });
    }
    let mut callers = JoinSet::new();
    for n in 0..4 {
        let (ledger, lease) = (Arc::clone(&ledger), leases[n % 2].clone());
        callers.spawn(async move {
            for _ in 0..ROUNDS {
                let events: Vec<_> = (0..BATCH).map(|_| event(1, 1)).collect();
                persist(&ledger, &lease, &events).await;
                let mut ends = JoinSet::new();
                for (n, OrderEvent { order_no, user, .. }) in events.into_iter().enumerate() {
                    let ledger = Arc::clone(&ledger);
                    ends.spawn(async move {
                        if n % 2 == 0 {
                            let paid = ledger.pay(&order_no, &money(), now()).await.expect("pays");
                            assert_ne!(paid, PayOutcome::Conflict);
                        }
                        if n % 3 == 0 {
                            let outcome = ledger.cancel(&order_no, &user, now()).await.expect("cancels");
                            assert!(n % 2 == 1 || outcome != CancelOutcome::Cancelled, "a paid order is not cancelled");
                        }
                    });
                }
                // Of both lots, whoever wrote them.
                ledger.expire(now().plus(LATER), 8, now()).await.expect("expires");
                ends.join_all().await;
            }
        });
    }
    callers.join_all().await;
    over.store(true, Ordering::Relaxed);
    assert!(watchers.join_all().await.iter().all(|looks| *looks > 0));
    for lot in lots {
        books_of(&ledger, lot).await;
    }
}

/// Two orders, one payment: it pays one, or goes back, and does nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_payment_number_at_two_orders_at_once_acts_once() {
    let (ledger, raw) = own().await;
    let lot = lots_of_one_sku(&ledger, 1, 100).await[0];
    let lease = leased(&ledger, lot).await;
    for round in 0..20 {
        let pair = [event(1, 1), event(1, 1)];
        assert_eq!(persist(&ledger, &lease, &pair).await, [Persisted::Stored; 2]);
        if round % 2 == 0 {
            // The first one is paid already, so this payment would be sent back for it.
            assert_eq!(ledger.pay(&pair[0].order_no, &money(), now()).await.expect("pays"), PayOutcome::Paid);
        }
        let number = money();
        let call = |order_no: OrderNo| {
            let (ledger, number) = (Arc::clone(&ledger), number.clone());
            tokio::spawn(async move { ledger.pay(&order_no, &number, now()).await.expect("pays") })
        };
        let calls = [call(pair[0].order_no.clone()), call(pair[1].order_no.clone())];
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.expect("answers"));
        }
        let (paid, owed): (i64, i64) = sqlx::query_as(
            "select (select count(*) from orders where pay_no = ?), (select count(*) from outbox where topic = 'refund' and dedupe_key = ?)",
        )
        .bind(number.as_str())
        .bind(number.as_str())
        .fetch_one(&raw)
        .await
        .expect("counts");
        assert_eq!(paid + owed, 1, "{answers:?}");
    }
}

#[tokio::test]
async fn ten_thousand_lots_are_leased_in_one_call() {
    let (ledger, _) = own().await;
    let lots: Vec<_> = (0..10_000).map(|n| Lot { activity: ActivityId(u64::MAX - n), sku: SkuId(u64::MAX) }).collect();
    let held = ledger.lease_lots("one", &lots, LATER).await.expect("answers");
    assert_eq!(held.iter().map(|lease| lease.lot).collect::<BTreeSet<_>>(), lots.iter().copied().collect::<BTreeSet<_>>());
    assert!(held.iter().all(|lease| lease.token == 1));
    assert_eq!(ledger.lease_lots("two", &lots, LATER).await.expect("answers"), []);
    assert_eq!(ledger.lease_lots("one", &lots, Duration::ZERO).await.expect("answers"), []);
    assert!(ledger.lease_lots("two", &lots, LATER).await.expect("answers").iter().all(|lease| lease.token == 2));
}

/// The server's own zone is eight hours ahead.
#[tokio::test]
async fn instants_are_the_same_whatever_zone_the_server_is_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = MariaDb::start(folder.path()).expect("starts");
    let raw = MySqlPool::connect(&server.url()).await.expect("connects");
    sqlx::query("set global time_zone = '+08:00'").execute(&raw).await.expect("sets");
    let ledger = mysql_at(server.url()).await;
    let lot = lots_of_one_sku(&ledger, 1, 5).await[0];
    let before = ledger.activity(lot.activity).await.expect("reads").expect("exists");
    assert!(before.start < now() && now() < before.end, "its window is now");
    let lease = leased(&ledger, lot).await;
    let (order, at) = (event(1, 1), now());
    assert_eq!(ledger.persist(&lease, std::slice::from_ref(&order), at).await.expect("persists"), [Persisted::Stored], "the lease holds");
    let expires = ledger.order(&order.order_no).await.expect("reads").expect("exists").expires;
    assert_eq!(expires, at.plus(Duration::from_secs(900)));
    assert_eq!(ledger.expire(UnixMillis(expires.0 - 1), 500, now()).await.expect("expires"), []);
    assert_eq!(ledger.expire(expires, 500, now()).await.expect("expires").len(), 1);
    assert_eq!(ledger.take_tasks(now(), 10).await.expect("takes").len(), 1, "due at once");
    assert_eq!(ledger.take_tasks(now(), 10).await.expect("takes"), []);
    assert_eq!(ledger.lots(now()).await.expect("lists").len(), 1);
}

/// Nothing is cut to fit: the event is an error, and leaves nothing.
#[tokio::test]
async fn an_event_that_does_not_fit_is_refused_whole() {
    let (ledger, _) = own().await;
    let lot = lots_of_one_sku(&ledger, 1, 1_000_000).await[0];
    let lease = leased(&ledger, lot).await;
    let (one, two) = (event(1, 1), event(1, 1));
    let poison = [
        OrderEvent { id: "1".repeat(41), ..one.clone() },
        OrderEvent { id: "1".repeat(70_000), ..one.clone() },
        OrderEvent { id: "茶".to_owned(), ..one.clone() },
        OrderEvent { qty: 65_536, ..one.clone() },
        OrderEvent { qty: 0, ..one.clone() },
        OrderEvent { order_no: two.order_no.clone(), ..one.clone() },
    ];
    for event in poison {
        let answer = ledger.persist(&lease, &[two.clone(), event.clone()], now()).await;
        assert_eq!(answer.map_err(|error| error.kind), Err(PortErrorKind::Broken), "{event:?}");
        assert_eq!(books_of(&ledger, lot).await.sold, 0);
    }
    assert_eq!(persist(&ledger, &lease, &[one, two]).await, [Persisted::Stored; 2]);
    assert_eq!(books_of(&ledger, lot).await.sold, 2);
}

/// Counters that somebody changed by hand; the book says when they were put right.
#[tokio::test]
async fn a_retried_invariant_is_mended_from_the_rows() {
    let (ledger, raw) = own().await;
    let lot = lots_of_one_sku(&ledger, 1, 10).await[0];
    let lease = leased(&ledger, lot).await;
    assert_eq!(persist(&ledger, &lease, &[event(1, 2), event(1, 1)]).await, [Persisted::Stored; 2]);
    let whole = books_of(&ledger, lot).await;
    let changes = [
        (Invariant::SoldIsLive, "update seckill_product set sold = 7"),
        (Invariant::SoldIsLive, "update stock_ledger set delta = -6 where delta = -2"),
        (Invariant::LockedIsPromised, "update product_sku set locked = 0"),
    ];
    for (invariant, change) in changes {
        sqlx::query(change).execute(&raw).await.expect("changes");
        let broken = ledger.books(lot).await.expect("reads").expect("exists");
        assert!(books::in_ledger(&broken).iter().any(|found| found.invariant == invariant), "{change}");
        let letter = decide(&ledger, lot, invariant, Verdict::Retry).await;
        let DecideOutcome::Decided(letter) = letter else { panic!("{letter:?}") };
        assert_eq!(letter.state, LetterState::Retried);
        assert_eq!(books_of(&ledger, lot).await, whole, "{change}");
        let lines: Vec<(String,)> =
            sqlx::query_as("select order_no from stock_ledger where reason = 5 and order_no like concat('RC', ?, '%')")
                .bind(letter.id)
                .fetch_all(&raw)
                .await
                .expect("reads");
        assert!(lines.contains(&(format!("RC{}", letter.id),)), "{lines:?}");
    }
    // More sold than there is: counting mends nothing, and the letter stays open.
    sqlx::query("update seckill_product set sold = 0, seckill_stock = 2").execute(&raw).await.expect("changes");
    assert_eq!(decide(&ledger, lot, Invariant::SoldIsLive, Verdict::Retry).await, DecideOutcome::NothingToRetry);
}

async fn decide(ledger: &MysqlStore, lot: Lot, invariant: Invariant, verdict: Verdict) -> DecideOutcome {
    let source_id = format!("{lot}:{}", invariant.as_str());
    let letter = NewLetter { kind: LetterKind::Invariant, source_id, payload: "{}".to_owned(), error: "differs".to_owned(), attempts: 1 };
    ledger.write_letter(&letter, now()).await.expect("writes");
    let open = ledger.letters(true, 0, 1_000).await.expect("reads");
    let id = open.iter().find(|open| open.what.source_id == letter.source_id).expect("is open").id;
    let decision = Decision { by: "operator".to_owned(), at: now(), note: String::new() };
    ledger.decide_letter(id, verdict, &decision).await.expect("decides")
}

/// The other lot's orders are closed all the same; its own once the counter is mended.
#[tokio::test]
async fn a_lot_whose_counter_is_wrong_stops_no_other_lots_timer() {
    let (ledger, raw) = own().await;
    let lots = lots_of_one_sku(&ledger, 2, 5).await;
    for lot in &lots {
        assert_eq!(persist(&ledger, &leased(&ledger, *lot).await, &[event(1, 2)]).await, [Persisted::Stored]);
    }
    sqlx::query("update seckill_product set sold = 1 where activity_id = ?").bind(lots[0].activity.0).execute(&raw).await.expect("changes");
    let closed = async || -> Vec<Lot> {
        let closed = ledger.expire(now().plus(LATER), 500, now()).await.expect("expires");
        closed.iter().map(|order| order.lot).collect()
    };
    assert_eq!(closed().await, [lots[1]]);
    assert_eq!(closed().await, []);
    let outcome = decide(&ledger, lots[0], Invariant::SoldIsLive, Verdict::Retry).await;
    assert!(matches!(outcome, DecideOutcome::Decided(_)), "{outcome:?}");
    assert_eq!(closed().await, [lots[0]]);
    for lot in lots {
        assert_eq!(books_of(&ledger, lot).await.sold, 0);
    }
}

/// The port's bounds can be used, and not exceeded.
#[tokio::test]
async fn a_thousand_events_fit_one_call_and_no_more() {
    let (ledger, _) = own().await;
    let lot = lots_of_one_sku(&ledger, 1, 2_000).await[0];
    let lease = leased(&ledger, lot).await;
    let events: Vec<_> = (0..1_001).map(|_| event(1, 1)).collect();
    let answer = ledger.persist(&lease, &events, now()).await;
    assert_eq!(answer.map_err(|error| error.kind), Err(PortErrorKind::Broken));
    for _ in 0..3 {
        assert_eq!(persist(&ledger, &lease, &events[..1_000]).await, vec![Persisted::Stored; 1_000]);
        assert_eq!(books_of(&ledger, lot).await.sold, 1_000);
    }
}

/// It would come again for ever.
#[tokio::test]
async fn a_task_nobody_of_ours_wrote_becomes_a_letter() {
    let (ledger, raw) = own().await;
    sqlx::query("insert into outbox (topic, dedupe_key, payload, next_at) values ('fax', '1', '{\"to\":\"x\"}', '2020-01-01')")
        .execute(&raw)
        .await
        .expect("writes");
    assert_eq!(ledger.take_tasks(now(), 10).await.expect("takes"), []);
    let letters = ledger.letters(true, 0, 10).await.expect("reads");
    assert_eq!(
        letters.iter().map(|letter| letter.what.payload.as_str()).collect::<Vec<_>>(),
        ["{\"topic\":\"fax\",\"task\":{\"to\":\"x\"}}"]
    );
    assert_eq!(ledger.take_tasks(now().plus(LATER), 10).await.expect("takes"), []);
}

/// Units of an order that is closed or paid after its activity was settled lie in the SKU, and nobody else is told.
#[tokio::test]
async fn after_settlement_units_move_between_the_order_and_its_sku() {
    let (ledger, _) = own().await;
    let lot = lots_of_one_sku(&ledger, 1, 5).await[0];
    let lease = leased(&ledger, lot).await;
    let orders = [event(1, 3), event(1, 1)];
    assert_eq!(persist(&ledger, &lease, &orders).await, [Persisted::Stored; 2]);
    ledger.close(lot.activity).await.expect("closes");
    ledger.settle(lot.activity).await.expect("settles");
    let seen = async || {
        let books = books_of(&ledger, lot).await;
        (books.sold, books.sku_stock, books.sku_locked, books.owed)
    };
    assert_eq!(seen().await, (4, 1, 0, 0));
    assert_eq!(ledger.cancel(&orders[0].order_no, &orders[0].user, now()).await.expect("cancels"), CancelOutcome::Cancelled);
    assert_eq!(seen().await, (1, 4, 0, 0));
    assert_eq!(ledger.pay(&orders[0].order_no, &money(), now()).await.expect("pays"), PayOutcome::Revived);
    assert_eq!(seen().await, (4, 1, 0, 0));
    // The timer closes the other; meanwhile the SKU is promised to a new sale.
    assert_eq!(ledger.expire(now().plus(LATER), 10, now()).await.expect("expires").len(), 1);
    let product = NewProduct { sku: lot.sku, price_cents: 1, stock: 2, per_user: 1, shards: 1 };
    let activity = NewActivity { title: "next".to_owned(), start: now(), end: now().plus(LATER), pay_ttl_s: 900, products: vec![product] };
    let CreateOutcome::Created(next) = ledger.create_activity(&activity).await.expect("creates") else { panic!("not created") };
    assert_eq!(ledger.publish(next).await.expect("publishes"), PublishOutcome::Published);
    assert_eq!(ledger.pay(&orders[1].order_no, &money(), now()).await.expect("pays"), PayOutcome::Refunded, "its unit is promised");
    assert_eq!(seen().await, (3, 2, 2, 0));
}
