//! A small staff: the protocol between the two stores, written down once more and as plainly as possible.
//!
//! It has switches for doing it wrong, so that it can be shown that a run would notice.

use std::sync::atomic::{AtomicU64, Ordering};

use gateway_core::id::{Lot, OrderNo};
use gateway_core::ports::{Installed, PortResult};
use gateway_core::sale::activity::{Due, due};
use gateway_core::sale::{
    ActivityState, ClaimedEvent, Held, LotRecord, OrderEvent, OrderResult, OrderState, Persisted, Release, Reserved, SaleState, Shard,
    Task, books, order, shard,
};

use super::{Job, LEASE, PAY_GRACE, Ports, Process, Staff};

/// A way of doing it wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// An event is acknowledged before it is in the ledger.
    AcknowledgesFirst,
    /// What lost is not given back.
    ForgetsLosers,
    /// What lost is given back first and acknowledged later, or by somebody who has lost the event.
    ReleasesBesides,
    /// What could not be refused, because somebody else has it, is acknowledged.
    AcknowledgesAll,
    /// A task of the outbox is done once the store was told, whatever epoch it was in.
    RelaysIntoThePast,
    /// A task of the outbox is finished before it is done.
    FinishesFirst,
    /// Nobody looks whether the store is another one than it was.
    TrustsTheStore,
}

/// The staff.
#[derive(Debug, Clone, Copy, Default)]
pub struct Model {
    /// What it does wrong.
    pub flaw: Option<Flaw>,
}

impl Staff for Model {
    fn hire(&self, job: Job, ports: Ports) -> Process {
        let clerk = Clerk { ports, transfers: AtomicU64::new(0), flaw: self.flaw };
        Box::pin(async move {
            loop {
                clerk.ports.pause().await;
                // Whatever failed is met again at the next turn.
                let _ = match job {
                    Job::Worker => clerk.work().await,
                    Job::Keeper => clerk.keep().await,
                    Job::Relay => clerk.relay().await,
                    Job::Timer => clerk.expire().await,
                    Job::Reconciler => clerk.reconcile().await,
                };
            }
        })
    }
}

struct Clerk {
    ports: Ports,
    /// Names transfers.
    transfers: AtomicU64,
    flaw: Option<Flaw>,
}

impl Clerk {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    async fn lots(&self) -> PortResult<Vec<LotRecord>> {
        self.ports.ledger.lots(self.ports.now()).await
    }

    async fn work(&self) -> PortResult<()> {
        for record in self.lots().await? {
            let Some(lease) = self.ports.ledger.lease_lots(&self.ports.name, &[record.lot], LEASE).await?.pop() else { continue };
            for shard in Shard::all(record.lot, record.shards) {
                let claimed = self.ports.admission.claim(shard, &self.ports.name, 5).await?;
                let order = |claimed| match claimed {
                    ClaimedEvent::Order(event) => Some(event),
                    ClaimedEvent::Poison { .. } => None,
                };
                let events: Vec<OrderEvent> = claimed.into_iter().filter_map(order).collect();
                if events.is_empty() {
                    continue;
                }
                let ids: Vec<String> = events.iter().map(|event| event.id.clone()).collect();
                if self.has(Flaw::AcknowledgesFirst) {
                    self.ports.admission.acknowledge(shard, &ids).await?;
                }
                let outcomes = self.ports.ledger.persist(&lease, &events, self.ports.now()).await?;
                for (event, outcome) in events.iter().zip(&outcomes) {
                    self.conclude(shard, event, *outcome).await?;
                }
                // A refused event was acknowledged when it was refused. One that could not be refused is somebody else's.
                let is_over = |outcome| outcome == Persisted::Stored || self.has(Flaw::AcknowledgesAll) || self.has(Flaw::ReleasesBesides);
                let over = ids.into_iter().zip(outcomes).filter(|(_, outcome)| is_over(*outcome)).map(|(id, _)| id);
                self.ports.admission.acknowledge(shard, &over.collect::<Vec<_>>()).await?;
            }
        }
        Ok(())
    }

    async fn conclude(&self, shard: Shard, event: &OrderEvent, outcome: Persisted) -> PortResult<()> {
        let user = event.user.clone();
        if let Some(release) = order::release_of(event, outcome) {
            if self.has(Flaw::ReleasesBesides) {
                self.ports.admission.release(shard, &release).await?;
            } else if self.has(Flaw::ForgetsLosers) {
                self.ports.admission.acknowledge(shard, std::slice::from_ref(&event.id)).await?;
            } else {
                self.ports.admission.refuse(shard, &self.ports.name, &event.id, &release).await?;
            }
            // The number of an order that was never written is given out again when its buyer asks again.
            let held = self.ports.admission.held(shard, &user).await?;
            let again = held.as_ref().and_then(Held::reservation).is_some_and(|held| held.order_no == event.order_no);
            if again && outcome != Persisted::Closed {
                return Ok(());
            }
        }
        let result = match outcome {
            Persisted::Stored => OrderResult::Success { user },
            Persisted::Closed | Persisted::Stale | Persisted::SoldOut | Persisted::Duplicate => {
                OrderResult::Fail { user, message: format!("{outcome:?}") }
            }
        };
        self.ports.admission.put_results(&[(event.order_no.clone(), result)]).await
    }

    async fn keep(&self) -> PortResult<()> {
        for record in self.lots().await? {
            match due(record.state, record.start, record.end, LEASE, self.ports.now()) {
                Due::Wait | Due::Rest => {}
                Due::Sell => self.sell(&record).await?,
                Due::Close => drop(self.ports.ledger.close(record.lot.activity).await?),
                Due::Settle => self.settle(&record).await?,
            }
        }
        Ok(())
    }

    async fn sell(&self, record: &LotRecord) -> PortResult<()> {
        let (mut well, mut waiting) = (true, 0);
        for shard in Shard::all(record.lot, record.shards) {
            let sale = self.ports.admission.stock(shard).await?;
            let life = self.ports.admission.incarnation(shard).await?;
            well &= sale.is_some_and(|sale| {
                let same = sale.incarnation == life || self.has(Flaw::TrustsTheStore);
                sale.at.epoch >= record.epoch && sale.state == SaleState::Open && same
            });
        }
        if well {
            return Ok(());
        }
        for shard in Shard::all(record.lot, record.shards) {
            if let Some(sale) = self.ports.admission.stock(shard).await? {
                self.ports.admission.set_state(shard, sale.at.epoch, SaleState::Paused).await?;
            }
            waiting += self.ports.admission.backlog(shard).await?;
        }
        if waiting > 0 {
            return Ok(());
        }
        let Some(terms) = self.ports.ledger.raise_epoch(record.lot, record.epoch).await? else { return Ok(()) };
        for (shard, terms) in Shard::all(record.lot, record.shards).zip(shard::split(record.lot, terms, record.shards)) {
            if self.ports.admission.install(shard, &terms).await? == Installed::Stale {
                break;
            }
        }
        Ok(())
    }

    async fn settle(&self, record: &LotRecord) -> PortResult<()> {
        let mut waiting = 0;
        let mut closed = Vec::new();
        for shard in Shard::all(record.lot, record.shards) {
            if let Some(sale) = self.ports.admission.stock(shard).await? {
                self.ports.admission.set_state(shard, sale.at.epoch, SaleState::Closed).await?;
                closed.push((shard, sale.at.epoch));
            }
            waiting += self.ports.admission.backlog(shard).await?;
        }
        if waiting > 0 {
            return Ok(());
        }
        self.ports.ledger.settle(record.lot.activity).await?;
        for (shard, epoch) in closed {
            self.ports.admission.retire(shard, epoch).await?;
        }
        Ok(())
    }

    async fn relay(&self) -> PortResult<()> {
        for entry in self.ports.ledger.take_tasks(self.ports.now(), 3).await? {
            if self.has(Flaw::FinishesFirst) {
                self.ports.ledger.finish_tasks(&[entry.id]).await?;
            }
            let done = match &entry.task {
                Task::Refund { pay_no, .. } => {
                    self.ports.refunds.send(pay_no);
                    true
                }
                Task::Release { lot, release } => self.hand_over(*lot, release, None).await?,
                Task::Reserve { lot, user, reservation } => {
                    let release = Release { user: user.clone(), reservation: reservation.clone(), epoch: None, generation: 0 };
                    self.hand_over(*lot, &release, Some(())).await?
                }
            };
            if done {
                self.ports.ledger.finish_tasks(&[entry.id]).await?;
            } else {
                // Every fifth attempt is the last, so that operators have something to do.
                let again = (entry.attempts % 5 != 0).then(|| self.ports.now());
                self.ports.ledger.fail_task(entry.id, "not yet", again).await?;
            }
        }
        Ok(())
    }

    /// Tells the store about units of a closed or, with `revived`, a revived order; says whether it will not forget.
    ///
    /// The terms of a new epoch are counted in the ledger before they are in force. What is told to the sale that they
    /// replace is lost with it, and what they were counted before is not in them: so a task is done when the sale that
    /// was told is still the ledger's own afterwards.
    async fn hand_over(&self, lot: Lot, release: &Release, revived: Option<()>) -> PortResult<bool> {
        let Some(record) = self.record(lot).await? else { return Ok(true) };
        let shard = Shard::of(lot, &release.user, record.shards);
        let told = self.ports.admission.stock(shard).await?.map_or(0, |sale| sale.at.epoch);
        let mut fits = true;
        if revived.is_some() {
            let reserved = self.ports.admission.reserve(shard, &release.user, &release.reservation).await?;
            fits = matches!(reserved, Reserved::Held | Reserved::NoSale);
            if reserved == Reserved::NoUnits {
                // They may lie in other shards; the next attempt finds them here.
                self.gather(shard, record.shards, told, release.reservation.qty).await?;
            }
        } else {
            self.ports.admission.release(shard, release).await?;
        }
        self.tell(&release.reservation.order_no).await?;
        let Some(record) = self.record(lot).await? else { return Ok(true) };
        let over = matches!(record.state, ActivityState::Settled | ActivityState::Void);
        Ok(over || (fits && (told == record.epoch || self.has(Flaw::RelaysIntoThePast))))
    }

    /// Brings units of the other shards to where a revived order needs them.
    async fn gather(&self, to: Shard, shards: u8, epoch: u32, wanted: u32) -> PortResult<()> {
        for from in Shard::all(to.lot, shards).filter(|from| *from != to) {
            let id = format!("{}-{}", self.ports.name, self.transfers.fetch_add(1, Ordering::Relaxed));
            let units = self.ports.admission.send(from, &id, to.index, wanted).await?;
            if units > 0 {
                self.ports.admission.receive(to, epoch, &id, units).await?;
            }
        }
        Ok(())
    }

    async fn record(&self, lot: Lot) -> PortResult<Option<LotRecord>> {
        let activity = self.ports.ledger.activity(lot.activity).await?;
        Ok(activity.into_iter().flat_map(|activity| activity.products).find(|record| record.lot == lot))
    }

    /// Writes the result of an order as the ledger has it.
    async fn tell(&self, order_no: &OrderNo) -> PortResult<()> {
        let Some(order) = self.ports.ledger.order(order_no).await? else { return Ok(()) };
        let user = order.user;
        let result = match order.state {
            OrderState::Unpaid | OrderState::Paid => OrderResult::Success { user },
            OrderState::Closed => OrderResult::Fail { user, message: "closed".to_owned() },
        };
        self.ports.admission.put_results(&[(order_no.clone(), result)]).await
    }

    async fn expire(&self) -> PortResult<()> {
        let now = self.ports.now();
        let deadline = gateway_core::time::UnixMillis(now.0.saturating_sub(PAY_GRACE.as_millis() as u64));
        self.ports.ledger.expire(deadline, 3, now).await?;
        Ok(())
    }

    async fn reconcile(&self) -> PortResult<()> {
        for record in self.lots().await? {
            let mut surveys = Vec::new();
            for shard in Shard::all(record.lot, record.shards) {
                surveys.extend(self.ports.admission.survey(shard).await?);
            }
            let one_epoch = surveys.iter().all(|survey| survey.stock.at.epoch == record.epoch);
            if surveys.len() != usize::from(record.shards) || !one_epoch {
                continue;
            }
            for transfer in books::in_transit(&surveys) {
                let to = Shard { lot: record.lot, index: transfer.to };
                self.ports.admission.receive(to, record.epoch, &transfer.id, transfer.units).await?;
            }
        }
        Ok(())
    }
}
