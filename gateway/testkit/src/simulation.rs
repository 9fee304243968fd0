//! A whole sale in one thread: buyers, payers, workers and keepers on stores in memory, with faults in every call, killed
//! processes, failovers to older data and emptied stores; the same seed, the same story.
//!
//! What lives here: the world, its clock, whose turn it is, what breaks, and the verdict. What never happens here: a wait, a
//! thread, a rule of the sale. Who does the work is a [`Staff`]: [`Model`] here, the gateway's own code in its tests.
//!
//! A run is chaos first. Then everything heals, nobody buys any more, and the staff works until nothing is left to do: what
//! the stores say must agree. Then time passes until the sale is settled and no order is unpaid, and they must agree again.

mod crowd;
mod model;
mod verdict;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gateway_core::id::{Lot, PrincipalId, SkuId};
use gateway_core::ports::{Admission, Bus, SaleLedger};
use gateway_core::sale::{ActivityState, CreateOutcome, NewActivity, NewProduct, PublishOutcome, Shard, SkuUpsert};
use gateway_core::time::UnixMillis;
use gateway_embedded::{Clock, EmbeddedAdmission, EmbeddedBus, EmbeddedSaleLedger, Snapshot};

use crate::dice::Dice;
use crate::faults::{Faults, Odds, step_aside};
use crowd::{Crowd, Tally};
pub use model::{Flaw, Model};

/// How long the staff may hold the lease of a lot.
pub const LEASE: Duration = Duration::from_secs(5);

/// How long an event stays with a consumer that does not acknowledge it.
pub const CLAIM_IDLE: Duration = Duration::from_secs(2);

/// How long an unpaid order is left alone after its time is over.
pub const PAY_GRACE: Duration = Duration::from_secs(1);

/// Polls after which a world that healed must be at rest; many times what it needs, and over before a long window is.
const REST_POLLS_MAX: usize = 30_000;

/// What one process can see: its own ports, the time, and its name, which no other process ever has.
#[derive(Clone)]
pub struct Ports {
    /// The admission store.
    pub admission: Arc<dyn Admission>,
    /// The ledger.
    pub ledger: Arc<dyn SaleLedger>,
    /// The bus.
    pub bus: Arc<dyn Bus>,
    /// The time.
    pub clock: Clock,
    /// The process's name, as consumer and owner of leases.
    pub name: String,
    /// Where refunds arrive.
    pub refunds: Refunds,
}

impl Ports {
    /// The time.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        (self.clock)()
    }

    /// The pause between two turns: others act.
    pub async fn pause(&self) {
        step_aside().await;
    }
}

/// The payment service.
#[derive(Clone)]
pub struct Refunds(Arc<Mutex<Tally>>);

impl Refunds {
    /// Takes a refund, as often as it is sent: the payment's number makes it one.
    pub fn send(&self, pay_no: &gateway_core::id::PayNo) {
        crowd::lock(&self.0).refunded(pay_no);
    }
}

/// What there is to do for a sale besides buying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Writes order events.
    Worker,
    /// Pre-heats, rebuilds, closes and settles.
    Keeper,
    /// Does what the outbox owes.
    Relay,
    /// Closes orders whose time is over.
    Timer,
    /// Lands transfers that were left between shards.
    Reconciler,
}

/// A process: it goes on for ever, turn by turn with a [`Ports::pause`] in between, until it is killed.
pub type Process = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who does the jobs.
pub trait Staff {
    /// Starts a process.
    fn hire(&self, job: Job, ports: Ports) -> Process;
}

/// One story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Everything follows from it.
    pub seed: u64,
    /// Polls of chaos.
    pub polls: usize,
    /// How often calls fail.
    pub odds: Odds,
    /// Shards of the lot.
    pub shards: u8,
    /// Units of the lot.
    pub stock: u32,
    /// How long the window is, in milliseconds.
    pub window_ms: u64,
    /// Failovers and emptied stores, per ten thousand polls.
    pub disasters: u32,
}

impl Scenario {
    /// The story of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let odds = match dice.below(4) {
            0 => Odds::NONE,
            1 => Odds { lost_calls: 20, lost_answers: 20, stops: 4 },
            2 => Odds { lost_calls: 60, lost_answers: 60, stops: 20 },
            _ => Odds { lost_calls: 5, lost_answers: 100, stops: 10 },
        };
        // In half of the stories the window ends in the middle of the chaos.
        let window_ms = if dice.chance(500) { 1_000 + dice.below(6_000) as u64 } else { 10_000_000 };
        let shards = if dice.chance(300) { 3 } else { 1 };
        let disasters = [0, 20, 60][dice.below(3)];
        Self { seed, polls: 1_500, odds, shards, stock: 3 + dice.below(8) as u32, window_ms, disasters }
    }
}

impl Scenario {
    /// The story of a seed in which the store is lost again and again, to data that is hardly older.
    #[must_use]
    pub fn stormy(seed: u64) -> Self {
        Self { disasters: 200, window_ms: 10_000_000, ..Self::of(seed) }
    }
}

/// What happened in a story that ended well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls that failed.
    pub faults: u64,
    /// Processes that were killed.
    pub stops: u64,
    /// Failovers and emptied stores.
    pub disasters: u64,
    /// Order numbers that buyers were given.
    pub accepted: u64,
    /// Units in paid orders when all was over.
    pub sold: u64,
    /// Payments that went back.
    pub refunds: u64,
    /// The lot's epoch at the end.
    pub epoch: u32,
}

/// The seeds a test runs: `count` from `first` on, as many as `SLUICE_SEEDS` says, or only the one in `SLUICE_SEED`.
#[must_use]
pub fn seeds(first: u64, count: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("SLUICE_SEED") {
        Some(seed) => vec![seed],
        None => (first..first.saturating_add(number("SLUICE_SEEDS").unwrap_or(count))).collect(),
    }
}

/// Plays a story with `staff`. `Err` says what went wrong.
///
/// # Errors
/// A sentence about the promise that was broken.
pub fn play(scenario: &Scenario, staff: &dyn Staff) -> Result<Report, String> {
    World::new(scenario, staff).play()
}

struct Running {
    job: Option<Job>,
    faults: Arc<Faults>,
    process: Process,
}

struct World<'a> {
    scenario: Scenario,
    staff: &'a dyn Staff,
    dice: Arc<Dice>,
    hand: Arc<AtomicU64>,
    admission: Arc<EmbeddedAdmission>,
    ledger: Arc<EmbeddedSaleLedger>,
    bus: Arc<EmbeddedBus>,
    lot: Lot,
    end: UnixMillis,
    tally: Arc<Mutex<Tally>>,
    running: Vec<Running>,
    replica: Snapshot,
    names: u64,
    report: Report,
}

/// Two of what may be twice, because leases end while their holder still thinks.
const STAFF: [Job; 8] = [Job::Worker, Job::Worker, Job::Keeper, Job::Keeper, Job::Relay, Job::Relay, Job::Timer, Job::Reconciler];

const SKU: SkuId = SkuId(1);

/// Units of the SKU beyond the lot's.
const SPARE: u32 = 5;

const START: u64 = 1_000_000;

impl<'a> World<'a> {
    fn new(scenario: &Scenario, staff: &'a dyn Staff) -> Self {
        let hand = Arc::new(AtomicU64::new(START));
        let seen = Arc::clone(&hand);
        let clock: Clock = Arc::new(move || UnixMillis(seen.load(Ordering::Relaxed)));
        let admission = Arc::new(EmbeddedAdmission::new(clock.clone()).with_claim_idle(CLAIM_IDLE));
        let ledger = Arc::new(EmbeddedSaleLedger::new(clock));
        let start = UnixMillis(START + 200);
        let end = UnixMillis(start.0 + scenario.window_ms);
        let lot = now(create(&ledger, scenario, start, end));
        Self {
            scenario: *scenario,
            staff,
            dice: Arc::new(Dice::new(scenario.seed)),
            hand,
            admission,
            ledger,
            bus: Arc::new(EmbeddedBus::new()),
            lot,
            end,
            tally: Arc::default(),
            running: Vec::new(),
            replica: Snapshot::default(),
            names: 0,
            report: Report::default(),
        }
    }

    fn play(mut self) -> Result<Report, String> {
        let crowd = Crowd::of(self.lot, self.scenario.shards);
        for job in STAFF {
            self.hire(Some(job), &crowd);
        }
        for _ in 0..crowd::PEOPLE {
            self.hire(None, &crowd);
        }
        for poll in 0..self.scenario.polls {
            self.pass_time(20);
            self.poll_somebody(&crowd);
            self.disaster();
            if poll % 8 == 0 {
                verdict::always(&self)?;
            }
        }
        self.heal();
        self.rest(&crowd, "after the chaos", verdict::is_quiet)?;
        verdict::at_rest(&self)?;
        self.set_time(self.end.plus(Duration::from_secs(5)));
        self.rest(&crowd, "after the end", |world| verdict::is_quiet(world) && verdict::state(world) == ActivityState::Settled)?;
        verdict::at_rest(&self)?;
        self.set_time(self.now().plus(Duration::from_secs(60)));
        self.rest(&crowd, "after the last deadline", |world| verdict::is_quiet(world) && verdict::unpaid(world) == 0)?;
        verdict::at_the_end(&self)?;
        self.finish()
    }

    fn finish(mut self) -> Result<Report, String> {
        let tally = crowd::lock(&self.tally);
        self.report.faults += self.running.iter().map(|running| running.faults.injected()).sum::<u64>();
        self.report.accepted = tally.accepted.len() as u64;
        self.report.refunds = tally.refunds.len() as u64;
        self.report.sold = verdict::books(&self).live;
        self.report.epoch = verdict::books(&self).epoch;
        Ok(self.report)
    }

    fn hire(&mut self, job: Option<Job>, crowd: &Crowd) {
        let faults = Faults::new(Arc::clone(&self.dice), self.scenario.odds);
        self.names += 1;
        let seen = Arc::clone(&self.hand);
        let ports = Ports {
            admission: faults.admission(self.admission.clone()),
            ledger: faults.ledger(self.ledger.clone()),
            bus: faults.bus(self.bus.clone()),
            clock: Arc::new(move || UnixMillis(seen.load(Ordering::Relaxed))),
            name: format!("p{}", self.names),
            refunds: Refunds(Arc::clone(&self.tally)),
        };
        let process = match job {
            Some(job) => self.staff.hire(job, ports),
            None => crowd.person(self.names, ports, Arc::clone(&self.dice), Arc::clone(&self.tally)),
        };
        self.running.push(Running { job, faults, process });
    }

    /// One poll of one process; a process that was stopped in it is buried, and another takes its place.
    fn poll_somebody(&mut self, crowd: &Crowd) {
        let place = self.dice.below(self.running.len());
        let running = &mut self.running[place];
        let over = running.process.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if over || running.faults.is_stopped() {
            let buried = self.running.swap_remove(place);
            self.report.stops += u64::from(!over);
            self.report.faults += buried.faults.injected();
            self.hire(buried.job, crowd);
        }
    }

    /// Redis fails over to a replica that is behind, or somebody empties it.
    fn disaster(&mut self) {
        if self.dice.chance(20) {
            self.replica = self.admission.snapshot();
        }
        if self.dice.throw() % 10_000 >= u64::from(self.scenario.disasters) {
            return;
        }
        self.report.disasters += 1;
        if self.dice.chance(200) {
            self.admission.flush();
        } else {
            self.admission.restore(self.replica.clone());
        }
    }

    /// No call fails any more, nothing breaks, and nobody buys.
    fn heal(&mut self) {
        self.running.retain(|running| running.job.is_some());
        for running in &self.running {
            running.faults.heal();
        }
    }

    /// Lets the staff work until `done`.
    fn rest(&mut self, crowd: &Crowd, when: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        for poll in 0..REST_POLLS_MAX {
            self.pass_time(20);
            self.poll_somebody(crowd);
            // An operator tries everything again that was given up, and time passes for what hides.
            if poll % 300 == 299 {
                now(verdict::retry_letters(&self.ledger, self.now()));
                self.set_time(self.now().plus(Duration::from_secs(31)));
            }
            if poll % 50 == 0 && done(self) {
                return Ok(());
            }
        }
        Err(format!("the world does not come to rest {when}: {}", verdict::describe(self)))
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(self.hand.load(Ordering::Relaxed))
    }

    fn set_time(&self, at: UnixMillis) {
        self.hand.fetch_max(at.0, Ordering::Relaxed);
    }

    fn pass_time(&self, most_ms: usize) {
        self.hand.fetch_add(self.dice.below(most_ms) as u64, Ordering::Relaxed);
    }

    fn shards(&self) -> impl Iterator<Item = Shard> {
        Shard::all(self.lot, self.scenario.shards)
    }
}

async fn create(ledger: &EmbeddedSaleLedger, scenario: &Scenario, start: UnixMillis, end: UnixMillis) -> Lot {
    let Scenario { shards, stock, .. } = *scenario;
    let sku = SkuUpsert { sku: SKU, name: "tea".to_owned(), price_cents: 9, add_stock: stock + SPARE };
    ledger.upsert_sku(&sku).await.expect("a memory that works");
    let product = NewProduct { sku: SKU, price_cents: 5, stock, per_user: 2, shards };
    let activity = NewActivity { title: "flash".to_owned(), start, end, pay_ttl_s: 2, products: vec![product] };
    let created = ledger.create_activity(&activity).await.expect("a memory that works");
    let CreateOutcome::Created(activity) = created else { panic!("the SKU is there: {created:?}") };
    let published = ledger.publish(activity).await.expect("a memory that works");
    assert_eq!(published, PublishOutcome::Published);
    Lot { activity, sku: SKU }
}

/// The answer of a store in memory, which never waits.
fn now<T>(call: impl Future<Output = T>) -> T {
    let mut call = std::pin::pin!(call);
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a store in memory waits"),
    }
}

fn user(number: usize) -> PrincipalId {
    PrincipalId::parse(&format!("u{number}")).expect("well-formed")
}
