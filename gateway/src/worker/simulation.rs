//! The worker's own code against ports that lose calls, lose answers and kill their caller, and a store that fails over.
//!
//! Each run follows from a seed, which a failure names; `SLUICE_SEED` runs one alone. Two workers take their steps side by
//! side, each step interleaved with the other's at every call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gateway_core::id::{OrderNo, PayNo, PrincipalId};
use gateway_core::ports::{Admission as _, LotLease, PortResult, SaleLedger as _};
use gateway_core::sale::{ActivityState, Admit, Held, LetterKind, OrderResult, OrderState, PayOutcome, Shard};
use gateway_core::time::UnixMillis;
use gateway_embedded::Snapshot;
use gateway_testkit::dice::Dice;
use gateway_testkit::faults::{Faults, Odds};

use super::lots::{InHand, Lots};
use super::orders::Orders;
use super::reconcile::Reconcile;
use super::relay::Relay;
use super::rig::{END, PREHEAT, Rig, WAREHOUSE, settings, user};
use super::timer::Timer;
use crate::sale::audit;
use crate::sale::desk::Desk;
use crate::sale::keeper::Keeper;

const SEEDS: u64 = 150;
const BUYERS: usize = 8;
const STOCK: u32 = 5;
const LEASE: Duration = Duration::from_secs(3);
/// Rounds in which things fail, before and after the sale closes.
const ROUNDS: usize = 60;
/// Rounds after which a world without faults must be quiet.
const QUIET_AFTER: usize = 80;

/// A worker's process: what it has in memory is gone when a call kills it.
struct Process {
    faults: Arc<Faults>,
    desk: Desk,
    lots: Lots,
    hand: Option<Hand>,
    timer: Timer,
    relay: Relay,
}

struct Hand {
    lease: LotLease,
    record: gateway_core::sale::LotRecord,
    keeper: Keeper,
    reconcile: Reconcile,
    orders: Vec<Orders>,
}

impl Process {
    fn start(rig: &Rig, name: &str, dice: &Arc<Dice>, odds: Odds) -> Self {
        let faults = Faults::new(dice.clone(), odds);
        let desk = Desk {
            admission: faults.admission(rig.desk.admission.clone()),
            ledger: faults.ledger(rig.desk.ledger.clone()),
            bus: faults.bus(rig.desk.bus.clone()),
            ..rig.desk.clone()
        };
        // As in production: the name comes again with the next process, the owner of leases does not.
        let owner = format!("{name}#{}", dice.throw());
        Self {
            lots: Lots::new(desk.clone(), owner, LEASE, PREHEAT, Duration::from_secs(10)),
            hand: None,
            timer: Timer::new(desk.clone(), Duration::ZERO),
            relay: Relay::new(desk.clone()),
            faults,
            desk,
        }
    }

    /// One of each step; every failure is left for the next time.
    async fn turn(&mut self, rig: &Rig, name: &str) {
        let now = rig.now();
        if let Ok(in_hand) = self.lots.step(now).await {
            self.take(in_hand.into_iter().next(), name);
        }
        if let Some(hand) = &mut self.hand {
            let _ = hand.keeper.tend(&hand.record, now).await;
            for orders in &mut hand.orders {
                let _ = orders.turn(&hand.lease, now).await;
            }
            let _ = hand.reconcile.round(&hand.record, now).await;
        }
        let _ = self.timer.turn(now).await;
        let _: PortResult<_> = self.relay.turn(now).await;
    }

    fn take(&mut self, in_hand: Option<InHand>, name: &str) {
        let Some(InHand { record, lease }) = in_hand else {
            self.hand = None;
            return;
        };
        match &mut self.hand {
            Some(hand) if hand.lease == lease => hand.record = record,
            Some(_) | None => {
                let orders = |shard| Orders::new(self.desk.clone(), shard, name.to_owned(), &settings());
                self.hand = Some(Hand {
                    keeper: Keeper::new(self.desk.clone(), PREHEAT),
                    reconcile: Reconcile::new(self.desk.clone()),
                    orders: Shard::all(record.lot, record.shards).map(orders).collect(),
                    lease,
                    record,
                });
            }
        }
    }
}

struct World {
    rig: Rig,
    dice: Arc<Dice>,
    odds: Odds,
    workers: [Option<Process>; 2],
    /// Numbers that buyers were given.
    accepted: BTreeMap<OrderNo, PrincipalId>,
    paid: BTreeMap<PayNo, (OrderNo, PayOutcome)>,
    replica: Snapshot,
    failovers: u32,
}

const NAMES: [&str; 2] = ["one", "two"];

impl World {
    async fn new(seed: u64) -> Self {
        let dice = Arc::new(Dice::new(seed));
        let shards = if dice.chance(300) { 2 } else { 1 };
        let rig = Rig::published(STOCK, shards).await;
        let odds = Odds { lost_calls: 30, lost_answers: 30, stops: 15 };
        Self {
            rig,
            odds,
            workers: [None, None],
            accepted: BTreeMap::new(),
            paid: BTreeMap::new(),
            replica: Snapshot::default(),
            failovers: 0,
            dice,
        }
    }

    /// Both workers take a turn side by side; who is killed starts again.
    async fn work(&mut self) {
        let Self { rig, dice, odds, workers, .. } = self;
        let rig = &*rig;
        let [one, two] = workers;
        let run = async |slot: &mut Option<Process>, name: &str| {
            let process = slot.get_or_insert_with(|| Process::start(rig, name, dice, *odds));
            let faults = process.faults.clone();
            if faults.run(process.turn(rig, name)).await.is_none() {
                *slot = None;
            }
        };
        tokio::join!(run(one, NAMES[0]), run(two, NAMES[1]));
    }

    async fn buyers(&mut self) {
        let number = self.dice.below(BUYERS);
        let name = format!("buyer-{number}");
        match self.dice.below(6) {
            0..=2 => self.attempt(&name).await,
            3 => {
                if let Some((order_no, user)) = self.pick() {
                    self.rig.desk.cancel(&order_no, &user, self.rig.now()).await.unwrap();
                }
            }
            4 => {
                if let Some((order_no, _)) = self.pick() {
                    let pay_no = PayNo::parse(&format!("p{}", self.dice.below(20))).unwrap();
                    let outcome = self.rig.desk.pay(&order_no, &pay_no, self.rig.now()).await.unwrap();
                    if matches!(outcome, PayOutcome::Paid | PayOutcome::Revived | PayOutcome::Refunded) {
                        let before = self.paid.insert(pay_no.clone(), (order_no.clone(), outcome));
                        let refunded = |outcome| outcome == PayOutcome::Refunded;
                        let changed = before.filter(|(number, before)| *number == order_no && refunded(*before) != refunded(outcome));
                        assert_eq!(changed, None, "{pay_no} was answered otherwise before");
                    }
                }
            }
            _ => self.rig.pass(Duration::from_millis(self.dice.below(20_000) as u64)),
        }
    }

    async fn attempt(&mut self, name: &str) {
        let mut generation = 0;
        if let Admit::Again { generation: next } = self.rig.buy(name, generation).await {
            generation = next;
            self.rig.buy(name, generation).await;
        }
        let held = self.rig.admission.held(self.rig.shard_of(&user(name)), &user(name)).await.unwrap();
        if let Some(Held::Reserved(held)) = held {
            self.accepted.insert(held.order_no, user(name));
        }
    }

    fn pick(&self) -> Option<(OrderNo, PrincipalId)> {
        let all: Vec<_> = self.accepted.iter().collect();
        self.dice.pick(&all).map(|(order_no, user)| ((*order_no).clone(), (*user).clone()))
    }

    /// What happens to the store, once in a while.
    fn disaster(&mut self) {
        match self.dice.below(60) {
            0..=5 => self.replica = self.rig.admission.snapshot(),
            6 => {
                self.rig.admission.restore(self.replica.clone());
                self.failovers += 1;
            }
            7 => {
                self.rig.admission.flush();
                self.failovers += 1;
            }
            _ => {}
        }
    }

    async fn chaos(&mut self) {
        for _ in 0..ROUNDS {
            for _ in 0..self.dice.below(4) {
                self.buyers().await;
            }
            self.disaster();
            self.rig.pass(Duration::from_millis(self.dice.below(1_500) as u64));
            self.work().await;
            let record = self.rig.record().await;
            assert!(record.sold <= record.stock, "oversold");
        }
    }

    fn heal(&mut self) {
        self.odds = Odds::NONE;
        for worker in self.workers.iter().flatten() {
            worker.faults.heal();
        }
    }

    /// Lets time pass until nothing is under way.
    async fn until_quiet(&mut self, state: ActivityState) {
        for _ in 0..QUIET_AFTER {
            self.rig.pass(Duration::from_secs(2));
            self.work().await;
            let record = self.rig.record().await;
            let books = self.rig.ledger.books(self.rig.lot).await.unwrap().unwrap();
            let waiting = audit::waiting(&*self.rig.admission, record.lot, record.shards).await.unwrap();
            if record.state == state && waiting == 0 && books.owed == 0 && (state != ActivityState::Published || self.in_force().await) {
                return;
            }
        }
        let books = self.rig.ledger.books(self.rig.lot).await.unwrap();
        let mut stocks = Vec::new();
        for shard in self.rig.shards() {
            stocks.push((self.rig.admission.stock(shard).await.unwrap(), self.rig.admission.backlog(shard).await.unwrap()));
        }
        let owed = self.rig.ledger.take_tasks(UnixMillis(u64::MAX / 2), 10).await.unwrap();
        panic!("something is still under way: {:?} {books:?} {stocks:?} {owed:?}", self.rig.record().await);
    }

    async fn in_force(&self) -> bool {
        let record = self.rig.record().await;
        for shard in self.rig.shards() {
            let sale = self.rig.admission.stock(shard).await.unwrap();
            let incarnation = self.rig.admission.incarnation(shard).await.unwrap();
            if !sale.is_some_and(|sale| {
                sale.at.epoch == record.epoch && sale.incarnation == incarnation && sale.state == gateway_core::sale::SaleState::Open
            }) {
                return false;
            }
        }
        true
    }

    async fn check(&self) {
        let record = self.rig.record().await;
        let look = audit::look(&*self.rig.admission, &*self.rig.ledger, record.lot, record.shards).await.unwrap().unwrap();
        assert_eq!(look.differences, [], "{look:?}");
        if record.state == ActivityState::Published {
            assert!(look.shards.is_some(), "something is under way: {look:?}");
        } else {
            let left = u64::from(WAREHOUSE) - look.books.live;
            assert_eq!((look.books.sku_locked, u64::from(look.books.sku_stock)), (0, left));
        }
        for letter in self.rig.ledger.letters(false, 0, 1_000).await.unwrap() {
            assert_ne!(letter.what.kind, LetterKind::Event, "nothing was poison: {letter:?}");
        }
        let mut live = BTreeSet::new();
        for (order_no, user) in &self.accepted {
            self.check_number(order_no, user, &mut live).await;
        }
        assert_eq!(live.len() as u64, look.books.live, "an order that nobody was told of");
    }

    /// What its buyer is told of a number: never that it is pending, and never what is not so.
    async fn check_number(&self, order_no: &OrderNo, user: &PrincipalId, live: &mut BTreeSet<OrderNo>) {
        let result = self.rig.admission.result(order_no).await.unwrap();
        let order = self.rig.ledger.order(order_no).await.unwrap();
        let is_live = order.as_ref().is_some_and(|order| order.state != OrderState::Closed);
        if is_live {
            live.insert(order_no.clone());
        }
        // A store that came back with older data came back with older results.
        if self.failovers == 0 {
            let told = result.map(|result| matches!(result, OrderResult::Success { .. }));
            // A worker that died after it refused an event has stored nothing, and that no order exists says the same.
            let told = told.or(order.is_none().then_some(false));
            assert_eq!(told, Some(is_live), "{order_no} of {user}: {order:?}");
        }
        if order.is_none() {
            let held = self.rig.admission.held(self.rig.shard_of(user), user).await.unwrap();
            let pending = held.as_ref().and_then(Held::reservation).is_some_and(|held| held.order_no == *order_no);
            assert!(!pending, "{order_no} of {user} is pending for ever");
        }
    }
}

async fn run(seed: u64) {
    let mut world = World::new(seed).await;
    let odds = world.odds;
    world.chaos().await;
    world.heal();
    world.until_quiet(ActivityState::Published).await;
    world.check().await;

    world.odds = odds;
    world.workers = [None, None];
    if world.dice.chance(500) {
        world.rig.ledger.close(world.rig.activity()).await.unwrap();
    } else {
        world.rig.turn_clock_to(END);
    }
    world.chaos().await;
    world.heal();
    if world.rig.now() < END {
        world.rig.turn_clock_to(END);
    }
    world.until_quiet(ActivityState::Settled).await;
    // Settled lots are looked at every ten seconds.
    for _ in 0..20 {
        world.rig.pass(Duration::from_secs(2));
        world.work().await;
    }
    world.check().await;
}

#[tokio::test]
async fn whatever_fails_nothing_is_oversold_lost_or_forgotten() {
    let seeds = match std::env::var("SLUICE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..SEEDS).collect(),
    };
    for seed in seeds {
        eprintln!("SLUICE_SEED={seed}");
        run(seed).await;
    }
}
