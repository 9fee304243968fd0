//! Everything that can happen to one order, in every order in which it can happen.
//!
//! A cancellation, the timer, two payments, the relay's two kinds of task and a second purchase: 5,040 permutations, on one lot
//! whose units are enough for everybody and on one where they are not. What the stores say must agree after each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_core::id::{Lot, OrderNo, PayNo, PrincipalId, SkuId};
use gateway_core::ports::{Admission, Installed, LotLease, SaleLedger};
use gateway_core::sale::{
    Admit, ClaimedEvent, CreateOutcome, NewActivity, NewProduct, OrderState, PayOutcome, Persisted, PublishOutcome, Reserved, SaleAttempt,
    Shard, SkuUpsert, Task, books, order, shard,
};
use gateway_core::time::UnixMillis;
use gateway_embedded::{EmbeddedAdmission, EmbeddedSaleLedger};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Cancel,
    Expire,
    Pay(usize),
    Release,
    Reserve,
    BuyAgain,
    /// Somebody else takes what is left.
    Rival,
}

const SKU: SkuId = SkuId(1);
const HOUR: Duration = Duration::from_secs(3_600);

struct Room {
    admission: EmbeddedAdmission,
    ledger: EmbeddedSaleLedger,
    now: Arc<AtomicU64>,
    lease: LotLease,
    shard: Shard,
    stock: u32,
    /// The buyer's numbers so far, one per generation.
    numbers: Vec<OrderNo>,
    /// What each payment was told, and how often it was sent back.
    told: [Option<PayOutcome>; 2],
    refunds: [u32; 2],
}

fn user(name: &str) -> PrincipalId {
    PrincipalId::parse(name).expect("valid")
}

fn number(letter: char, generation: u16) -> OrderNo {
    let mut text = format!("SK{}", letter.to_string().repeat(15));
    text.push(char::from(b'A' + u8::try_from(generation).expect("few")));
    OrderNo::parse(&text).expect("valid")
}

fn money(which: usize) -> PayNo {
    PayNo::parse(&format!("pay-{which}")).expect("valid")
}

impl Room {
    /// A sale of `stock` units in which the buyer has an unpaid order of one.
    async fn open(stock: u32) -> Self {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let hand = Arc::clone(&now);
        let clock: gateway_embedded::Clock = Arc::new(move || UnixMillis(hand.load(Ordering::Relaxed)));
        let (admission, ledger) = (EmbeddedAdmission::new(clock.clone()), EmbeddedSaleLedger::new(clock));
        ledger.upsert_sku(&SkuUpsert { sku: SKU, name: "tea".to_owned(), price_cents: 1, add_stock: stock }).await.expect("sku");
        let product = NewProduct { sku: SKU, price_cents: 5, stock, per_user: 5, shards: 1 };
        let (start, end) = (UnixMillis(0), UnixMillis(u64::MAX));
        let activity = NewActivity { title: "flash".to_owned(), start, end, pay_ttl_s: 10, products: vec![product] };
        let CreateOutcome::Created(activity) = ledger.create_activity(&activity).await.expect("create") else { panic!("unknown SKU") };
        assert_eq!(ledger.publish(activity).await.expect("publish"), PublishOutcome::Published);
        let lot = Lot { activity, sku: SKU };
        let terms = ledger.raise_epoch(lot, 0).await.expect("raise").expect("published");
        let shard = Shard::first(lot);
        assert_eq!(admission.install(shard, &terms).await.expect("install"), Installed::Yes);
        let lease = ledger.lease_lots("worker", &[lot], HOUR * 10_000).await.expect("lease").remove(0);
        let mut room = Self { admission, ledger, now, lease, shard, stock, numbers: Vec::new(), told: [None; 2], refunds: [0; 2] };
        room.buy("buyer", 'A', 1).await;
        assert_eq!(room.numbers.len(), 1);
        room
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(self.now.load(Ordering::Relaxed))
    }

    /// Asks, asks again under the generation that was told, and lets the worker write what was logged.
    async fn buy(&mut self, who: &str, letter: char, qty: u32) {
        let mut generation = 0;
        for _ in 0..2 {
            let attempt = SaleAttempt { user: user(who), qty, order_no: number(letter, generation), generation };
            match self.admission.admit(self.shard, std::slice::from_ref(&attempt)).await.expect("admit").remove(0) {
                Admit::Admitted => {
                    self.work().await;
                    if letter == 'A' {
                        self.numbers.push(attempt.order_no);
                    }
                    return;
                }
                Admit::Again { generation: told } => generation = told,
                Admit::Replayed(_) | Admit::SoldOut { .. } => return,
                answer @ (Admit::NotStarted | Admit::Ended | Admit::NotReady | Admit::LimitExceeded) => panic!("{answer:?}"),
            }
        }
    }

    async fn work(&self) {
        for claimed in self.admission.claim(self.shard, "worker", 10).await.expect("claim") {
            let ClaimedEvent::Order(event) = claimed else { panic!("poison") };
            let outcomes = self.ledger.persist(&self.lease, std::slice::from_ref(&event), self.now()).await.expect("persist");
            if let Some(release) = order::release_of(&event, outcomes[0]) {
                assert_ne!(outcomes[0], Persisted::Stale, "no epoch has passed");
                self.admission.release(self.shard, &release).await.expect("release");
            }
            self.admission.acknowledge(self.shard, &[event.id]).await.expect("acknowledge");
        }
    }

    /// Does what is due of a kind; says whether anything was done.
    async fn relay(&mut self, topic: Option<&str>) -> bool {
        let mut moved = false;
        for entry in self.ledger.take_tasks(self.now(), 200).await.expect("take tasks") {
            let done = topic.is_none_or(|topic| entry.task.topic() == topic)
                && match &entry.task {
                    // Each is done twice, as a relay does that died before it could say that it was done.
                    Task::Release { release, .. } => {
                        self.admission.release(self.shard, release).await.expect("release");
                        assert_eq!(self.admission.release(self.shard, release).await.expect("release"), None, "twice");
                        true
                    }
                    Task::Reserve { user, reservation, .. } => {
                        let first = self.admission.reserve(self.shard, user, reservation).await.expect("reserve");
                        assert_eq!(self.admission.reserve(self.shard, user, reservation).await.expect("reserve"), first, "twice");
                        first == Reserved::Held
                    }
                    Task::Refund { pay_no, amount_cents, .. } => {
                        assert_eq!(*amount_cents, 5);
                        self.refunds[usize::from(*pay_no == money(1))] += 1;
                        true
                    }
                };
            if done {
                self.ledger.finish_tasks(&[entry.id]).await.expect("finish tasks");
            } else {
                self.ledger.fail_task(entry.id, "not yet", Some(self.now())).await.expect("fail a task");
            }
            moved |= done;
        }
        moved
    }

    async fn step(&mut self, step: Step) {
        let order_no = self.numbers[0].clone();
        match step {
            Step::Cancel => drop(self.ledger.cancel(&order_no, &user("buyer"), self.now()).await.expect("cancel")),
            Step::Expire => drop(self.ledger.expire(self.now().plus(HOUR), 500, self.now()).await.expect("expire")),
            Step::Pay(which) => {
                let told = self.ledger.pay(&order_no, &money(which), self.now()).await.expect("pay");
                self.told[which] = Some(told);
            }
            Step::Release => drop(self.relay(Some("release")).await),
            Step::Reserve => drop(self.relay(Some("reserve")).await),
            Step::BuyAgain => self.buy("buyer", 'A', 1).await,
            Step::Rival => self.buy("rival", 'B', self.stock).await,
        }
    }

    /// Lets everything that is owed be done, then compares what the stores say.
    async fn assert_at_rest(&mut self, story: &[Step]) {
        let mut rounds = 0;
        while self.relay(None).await {
            rounds += 1;
            assert!(rounds < 10, "the outbox does not come to rest: {story:?}");
        }
        let lot = self.shard.lot;
        let survey = self.admission.survey(self.shard).await.expect("survey").expect("in force");
        let ledger = self.ledger.books(lot).await.expect("books").expect("it exists");
        assert_eq!(books::in_ledger(&ledger), [], "{story:?}: {ledger:?}");
        assert_eq!(books::in_shards(&ledger, std::slice::from_ref(&survey)), Some(vec![]), "{story:?}: {ledger:?} {survey:?}");
        assert_eq!(u64::from(survey.stock.left) + shard::units(&survey.buyers), u64::from(self.stock), "{story:?}");
        let mut live = 0;
        for order_no in &self.numbers {
            let order = self.ledger.order(order_no).await.expect("order");
            live += u32::from(order.is_some_and(|order| order.state != OrderState::Closed));
        }
        assert!(live <= 1, "one live order: {story:?}");
        let paid_by = self.ledger.order(&self.numbers[0]).await.expect("order").and_then(|order| order.pay_no);
        for which in [0, 1] {
            let (told, mine) = (self.told[which], paid_by == Some(money(which)));
            let (kept, refunded) = match told {
                Some(PayOutcome::Paid | PayOutcome::Revived) => (true, 0),
                Some(PayOutcome::Refunded) => (false, 1),
                None | Some(PayOutcome::Conflict | PayOutcome::NotFound) => panic!("{told:?}: {story:?}"),
            };
            assert_eq!((mine, self.refunds[which]), (kept, refunded), "payment {which} was told {told:?}: {story:?}");
        }
    }
}

/// Heap's algorithm, without a recursion.
fn permutations(mut steps: Vec<Step>, mut visit: impl FnMut(&[Step])) {
    let mut counters = vec![0; steps.len()];
    visit(&steps);
    let mut place = 1;
    while place < steps.len() {
        if counters[place] < place {
            let other = if place % 2 == 0 { 0 } else { counters[place] };
            steps.swap(other, place);
            visit(&steps);
            counters[place] += 1;
            place = 1;
        } else {
            counters[place] = 0;
            place += 1;
        }
    }
}

fn every_story(stock: u32, steps: &[Step]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut stories = 0;
    permutations(steps.to_vec(), |story| {
        stories += 1;
        runtime.block_on(async {
            let mut room = Room::open(stock).await;
            for step in story {
                room.step(*step).await;
            }
            room.assert_at_rest(story).await;
        });
    });
    stories
}

const STEPS: [Step; 7] = [Step::Cancel, Step::Expire, Step::Pay(0), Step::Pay(1), Step::Release, Step::Reserve, Step::BuyAgain];

#[test]
fn every_story_of_one_order_ends_with_stores_that_agree() {
    assert_eq!(every_story(5, &STEPS), 5_040);
}

#[test]
fn every_story_of_one_order_ends_well_when_somebody_else_takes_its_unit() {
    // The timer is a second cancellation here; the rival makes it seven again.
    let steps = [Step::Cancel, Step::Pay(0), Step::Pay(1), Step::Release, Step::Reserve, Step::BuyAgain, Step::Rival];
    assert_eq!(every_story(1, &steps), 5_040);
}
