//! Which lots this worker looks after: leased in the ledger, renewed at a third of the lease's time, given back at drain.
//!
//! A lot in hand has one task that keeps it and one task per shard that writes its orders. A lost lease ends them; whoever
//! acts all the same is fenced by the ledger, or repeats what is harmless to repeat.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gateway_core::id::Lot;
use gateway_core::ports::{LotLease, PortErrorKind, PortResult};
use gateway_core::sale::activity::{Due, due};
use gateway_core::sale::{ActivityState, LotRecord, SaleState, Shard};
use gateway_core::time::UnixMillis;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::sale::desk::Desk;
use crate::sale::keeper::{Keeper, Kept};
use crate::sale::{audit, ending};
use crate::worker::orders::Orders;
use crate::worker::reconcile::Reconcile;
use crate::worker::share::Share;
use crate::worker::{Pause, fail, rest};

/// How often the list of lots is read, and each lot in hand is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// A lot this worker may work on.
#[derive(Debug, Clone)]
pub(super) struct InHand {
    /// As the ledger has it.
    pub record: LotRecord,
    /// The right to it.
    pub lease: LotLease,
}

/// The step that takes and renews leases.
pub(super) struct Lots {
    desk: Desk,
    owner: String,
    lease: Duration,
    preheat_before: Duration,
    sweep_every: Duration,
    swept: Option<UnixMillis>,
    /// Settled lots of which the admission store holds something that is not over.
    leftovers: BTreeSet<Lot>,
    /// What `owner` held after the last step.
    held: Vec<Lot>,
}

impl Lots {
    /// Leases as `owner`, which nobody else is called. Settled lots are looked at every `sweep_every`.
    pub(super) fn new(desk: Desk, owner: String, lease: Duration, preheat_before: Duration, sweep_every: Duration) -> Self {
        Self { desk, owner, lease, preheat_before, sweep_every, swept: None, leftovers: BTreeSet::new(), held: Vec::new() }
    }

    /// Lists the lots, leases those that something is due for, and says which are in hand now.
    pub(super) async fn step(&mut self, now: UnixMillis) -> PortResult<Vec<InHand>> {
        let records = self.desk.ledger.lots(now).await?;
        if self.swept.is_none_or(|swept| now >= swept.plus(self.sweep_every)) {
            match self.sweep(&records).await {
                Ok(leftovers) => (self.leftovers, self.swept) = (leftovers, Some(now)),
                // Leases are the ledger's: they do not end because the admission store is away.
                Err(error) => {
                    self.desk.failed(&error);
                    tracing::debug!(error = health::chain(&error), "cannot look for what is left of settled lots now");
                }
            }
        }
        let wanted: Vec<Lot> = records.iter().filter(|record| self.wants(record, now)).map(|record| record.lot).collect();
        let leases = self.desk.ledger.lease_lots(&self.owner, &wanted, self.lease).await?;
        self.held = leases.iter().map(|lease| lease.lot).collect();
        let mut records: BTreeMap<Lot, LotRecord> = records.into_iter().map(|record| (record.lot, record)).collect();
        Ok(leases.into_iter().filter_map(|lease| Some(InHand { record: records.remove(&lease.lot)?, lease })).collect())
    }

    fn wants(&self, record: &LotRecord, now: UnixMillis) -> bool {
        match due(record.state, record.start, record.end, self.preheat_before, now) {
            Due::Sell | Due::Close | Due::Settle => true,
            Due::Wait => false,
            Due::Rest => self.leftovers.contains(&record.lot),
        }
    }

    async fn sweep(&self, records: &[LotRecord]) -> PortResult<BTreeSet<Lot>> {
        let mut leftovers = BTreeSet::new();
        for record in records.iter().filter(|record| record.state == ActivityState::Settled) {
            if self.is_left_over(record).await? {
                leftovers.insert(record.lot);
            }
        }
        Ok(leftovers)
    }

    /// A store that came back with older data may sell a settled lot again; its events have to be answered.
    async fn is_left_over(&self, record: &LotRecord) -> PortResult<bool> {
        let mut left_over = false;
        for shard in Shard::all(record.lot, record.shards) {
            if let Some(sale) = self.desk.admission.stock(shard).await? {
                left_over |= sale.state != SaleState::Closed || self.desk.admission.backlog(shard).await? > 0;
            }
        }
        if !left_over {
            // Whoever settled it may have died before this.
            ending::retire(&*self.desk.admission, record.lot, record.shards).await?;
        }
        Ok(left_over)
    }

    /// Gives back what is held, so that others need not wait for the leases to end.
    pub(super) async fn give_back(&mut self) -> PortResult<()> {
        self.desk.ledger.lease_lots(&self.owner, &std::mem::take(&mut self.held), Duration::ZERO).await.map(drop)
    }
}

/// The tasks of a lot in hand; dropping it ends them.
struct Hand {
    lease: LotLease,
    record: watch::Sender<LotRecord>,
    tasks: JoinSet<()>,
}

impl Hand {
    fn start(node: &Arc<Node>, name: &str, InHand { record, lease }: InHand) -> Self {
        let mut tasks = JoinSet::new();
        for shard in Shard::all(record.lot, record.shards) {
            let orders = Orders::new(Desk::of(node), shard, name.to_owned(), &node.config.worker);
            tasks.spawn(write_orders(node.clone(), orders, lease.clone()));
        }
        let (record, seen) = watch::channel(record);
        tasks.spawn(keep(node.clone(), seen));
        Self { lease, record, tasks }
    }

    /// Itself while every task is at work; one that ended was fenced, or has a bug.
    fn whole(mut self) -> Option<Self> {
        self.tasks.try_join_next().is_none().then_some(self)
    }
}

pub(super) async fn run(node: Arc<Node>) {
    let settings = &node.config.worker;
    let name = if settings.name.is_empty() { node.name.clone() } else { settings.name.clone() };
    // Two workers may have been given one name; a lease is held by one process.
    let owner = format!("{}#{:016x}", name.chars().take(OWNER_CHARS_MAX).collect::<String>(), rand::random::<u64>());
    let mut lots = Lots::new(Desk::of(&node), owner, settings.lease, node.config.sale.preheat_before, settings.reconcile);
    let mut hands: BTreeMap<Lot, Hand> = BTreeMap::new();
    let mut renewed = Instant::now();
    let mut ticks = interval(PERIOD.min(settings.lease / 3));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Cancel safe: a tick that is not seen now is seen next.
            _ = ticks.tick() => {}
            () = node.drain.wait() => break,
        }
        let asked = Instant::now();
        match lots.step(clock::now()).await {
            Ok(in_hand) => {
                renewed = asked;
                take(&node, &name, &mut hands, in_hand);
            }
            Err(error) => {
                node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
                tracing::warn!(error = health::chain(&error), "cannot take or renew the leases of lots now");
                if renewed.elapsed() >= settings.lease {
                    hands.clear();
                }
            }
        }
    }
    for hand in hands.values_mut() {
        while hand.tasks.join_next().await.is_some() {}
    }
    if let Err(error) = lots.give_back().await {
        tracing::debug!(error = health::chain(&error), "cannot give leases back; they end by themselves");
    }
}

/// Longest part of a name in a lease; the column holds 128 characters.
const OWNER_CHARS_MAX: usize = 100;

/// Starts, goes on with and ends tasks, so that `hands` is what is in hand.
fn take(node: &Arc<Node>, name: &str, hands: &mut BTreeMap<Lot, Hand>, in_hand: Vec<InHand>) {
    let mut known = std::mem::take(hands);
    for one in in_hand {
        let lot = one.record.lot;
        let kept = known.remove(&lot).filter(|hand| hand.lease == one.lease).and_then(Hand::whole);
        let hand = match kept {
            Some(hand) => {
                hand.record.send_replace(one.record);
                hand
            }
            None => Hand::start(node, name, one),
        };
        hands.insert(lot, hand);
    }
}

/// Writes the orders of a shard until draining starts or the lease is lost.
async fn write_orders(node: Arc<Node>, mut orders: Orders, lease: LotLease) {
    let mut pause = Pause::new();
    while !node.drain.started() {
        match orders.turn(&lease, clock::now()).await {
            Ok(count) => {
                pause.reset();
                if count == 0 {
                    rest(&node, node.config.worker.idle).await;
                }
            }
            Err(error) if error.kind == PortErrorKind::Fenced => return tracing::info!(lot = %lease.lot, "another worker has the lot"),
            // Nothing was acknowledged, so the same events come again; a service that is away costs time only.
            Err(error) => fail(&node, &mut pause, "cannot write orders now", &error).await,
        }
    }
}

/// Looks after a lot once a second, and compares its stores now and then, until draining starts.
async fn keep(node: Arc<Node>, records: watch::Receiver<LotRecord>) {
    let desk = Desk::of(&node);
    let mut keeper = Keeper::new(desk.clone(), node.config.sale.preheat_before);
    let mut reconcile = Reconcile::new(desk.clone());
    let mut lag = Share::new(desk.metrics.order_lag_events.clone());
    let mut compared = Instant::now();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Cancel safe: a tick that is not seen now is seen next.
            _ = ticks.tick() => {}
            () = node.drain.wait() => return,
        }
        let record = records.borrow().clone();
        let compare = compared.elapsed() >= node.config.worker.reconcile;
        if compare {
            compared = Instant::now();
        }
        let looked = async {
            tell(&record, keeper.tend(&record, clock::now()).await?);
            lag.set(audit::waiting(&*desk.admission, record.lot, record.shards).await?);
            if compare {
                reconcile.round(&record, clock::now()).await?;
            }
            PortResult::Ok(())
        };
        if let Err(error) = looked.await {
            desk.failed(&error);
            tracing::debug!(lot = %record.lot, error = health::chain(&error), "cannot look after the lot now");
        }
    }
}

fn tell(record: &LotRecord, kept: Kept) {
    let lot = record.lot;
    match kept {
        Kept::Installed(epoch) => tracing::info!(%lot, epoch, "sale in force"),
        Kept::Draining(events) => tracing::info!(%lot, events, "sale paused until its events are in the ledger"),
        Kept::Closing => tracing::info!(activity = %lot.activity, "the activity is over and closes"),
        Kept::Ending(ending::Ended::Waiting(events)) => tracing::info!(activity = %lot.activity, events, "closed; order events wait"),
        Kept::Ending(ending::Ended::Settled) => tracing::info!(activity = %lot.activity, "settled"),
        Kept::Ending(ending::Ended::Elsewhere) | Kept::Well | Kept::Elsewhere => {}
    }
}
