//! Order events to orders: claim, write in one transaction, release what lost, tell the buyers, acknowledge.
//!
//! Every step may be repeated: a claim that was not acknowledged comes again, and the ledger answers a repeated event with
//! the outcome it had. Nothing is acknowledged that is not in the ledger, as an order or as a dead letter.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use gateway_core::config::Worker;
use gateway_core::id::{OrderNo, PrincipalId};
use gateway_core::ports::{LotLease, PortError, PortErrorKind, PortResult};
use gateway_core::sale::order::release_of;
use gateway_core::sale::{ClaimedEvent, Held, LetterKind, NewLetter, OrderEvent, OrderResult, Persisted, Release, Shard};
use gateway_core::time::UnixMillis;
use serde_json::{Value, json};

use crate::health;
use crate::sale::desk::Desk;

/// Buyers told at once: enough to hide the way to the store.
const ABREAST: usize = 256;

/// What a buyer reads whose attempt was lost; asking again may help.
const LOST: &str = "未抢到，请重试";

/// The step of one shard.
pub(super) struct Orders {
    desk: Desk,
    shard: Shard,
    consumer: String,
    batch_max: usize,
    attempts_max: u32,
    /// How often the ledger could not take an event; the claimed ones only.
    attempts: BTreeMap<String, u32>,
    /// Events that are in the metrics and not acknowledged yet: they may come again.
    counted: BTreeSet<String>,
}

impl Orders {
    /// Writes the orders of `shard`, claiming as `consumer`.
    pub(super) fn new(desk: Desk, shard: Shard, consumer: String, settings: &Worker) -> Self {
        Self {
            desk,
            shard,
            consumer,
            batch_max: settings.batch_max,
            attempts_max: settings.attempts_max,
            attempts: BTreeMap::new(),
            counted: BTreeSet::new(),
        }
    }

    /// One batch under `lease`; says how many events it had. After an error the same events come again.
    pub(super) async fn turn(&mut self, lease: &LotLease, now: UnixMillis) -> PortResult<usize> {
        let claimed = self.desk.admission.claim(self.shard, &self.consumer, self.batch_max).await?;
        let count = claimed.len();
        let (mut events, mut poison) = (Vec::with_capacity(count), Vec::new());
        for event in claimed {
            match event {
                ClaimedEvent::Order(event) => events.push(event),
                ClaimedEvent::Poison { id, raw, names } => poison.push((id, raw, names)),
            }
        }
        let refused = self.write(lease, events, now).await?;
        // Last, so that an order which such an entry names is in the ledger if it came before it.
        for (id, raw, names) in poison {
            self.bury_poison(&id, &raw, names, now).await?;
        }
        refused.map_or(Ok(count), Err)
    }

    /// Writes `events`, halving a batch that the ledger cannot take until the event is found that it cannot take. `Some`: it is
    /// to be tried again.
    async fn write(&mut self, lease: &LotLease, events: Vec<OrderEvent>, now: UnixMillis) -> PortResult<Option<PortError>> {
        let (mut parts, mut refused) = (vec![events], None);
        while let Some(mut part) = parts.pop() {
            let [first, ..] = part.as_slice() else { continue };
            match self.desk.ledger.persist(lease, &part, now).await {
                Ok(outcomes) => self.settle(&part, &outcomes).await?,
                Err(error) if error.kind != PortErrorKind::Broken => return Err(error),
                Err(_) if part.len() > 1 => {
                    let rest = part.split_off(part.len() / 2);
                    parts.extend([rest, part]);
                }
                Err(error) => {
                    let attempts = self.attempts.get(&first.id).copied().unwrap_or(0) + 1;
                    if attempts < self.attempts_max {
                        self.attempts.insert(first.id.clone(), attempts);
                        refused = Some(error);
                    } else {
                        self.bury(first, attempts, &error, now).await?;
                    }
                }
            }
        }
        Ok(refused)
    }

    async fn settle(&mut self, events: &[OrderEvent], outcomes: &[Persisted]) -> PortResult<()> {
        let mut results = Vec::with_capacity(events.len());
        for (event, outcome) in events.iter().zip(outcomes) {
            self.count(event, *outcome);
            if let Some(result) = self.conclude(event, *outcome).await? {
                results.push((event.id.as_str(), event.order_no.clone(), result));
            }
        }
        self.tell(&results).await?;
        // A loser is acknowledged already, or is somebody else's by now.
        let (won, lost): (Vec<_>, Vec<_>) = events.iter().zip(outcomes).partition(|(_, outcome)| **outcome == Persisted::Stored);
        self.forget(lost.into_iter().map(|(event, _)| event.id.as_str()));
        self.acknowledge(won.into_iter().map(|(event, _)| event.id.clone()).collect()).await
    }

    fn count(&mut self, event: &OrderEvent, outcome: Persisted) {
        let counter = match outcome {
            Persisted::Stored => &self.desk.metrics.orders_persisted,
            Persisted::SoldOut => &self.desk.metrics.orders_oversold,
            Persisted::Closed | Persisted::Stale | Persisted::Duplicate => return,
        };
        if self.counted.insert(event.id.clone()) {
            counter.inc();
        }
    }

    /// The result of an event, once what it lost is given back and, in the same step, the event acknowledged. `None`: there is
    /// one, or the same number is under way again, maybe by another worker that claimed the event.
    async fn conclude(&self, event: &OrderEvent, outcome: Persisted) -> PortResult<Option<OrderResult>> {
        let user = event.user.clone();
        if let Some(release) = release_of(event, outcome)
            && let Some(at) = self.desk.admission.refuse(self.shard, &self.consumer, &event.id, &release).await?
        {
            self.desk.returned(self.shard, at).await;
        }
        let message = match outcome {
            Persisted::Stored => return Ok(Some(OrderResult::Success { user })),
            Persisted::Closed => {
                // It may have been revived since, and its buyer told so.
                self.desk.conclude(&event.order_no).await?;
                return Ok(None);
            }
            Persisted::Stale => LOST,
            Persisted::SoldOut => "已抢完",
            Persisted::Duplicate => "已有订单",
        };
        // Such a number is given out again when its buyer asks again.
        if self.is_held(&event.user, &event.order_no).await?.is_some() {
            return Ok(None);
        }
        Ok(Some(OrderResult::Fail { user, message: message.to_owned() }))
    }

    async fn release(&self, release: &Release) -> PortResult<()> {
        if let Some(at) = self.desk.admission.release(self.shard, release).await? {
            self.desk.returned(self.shard, at).await;
        }
        Ok(())
    }

    /// What `user` holds, if it is the order of this number.
    async fn is_held(&self, user: &PrincipalId, order_no: &OrderNo) -> PortResult<Option<gateway_core::sale::Reservation>> {
        let held = self.desk.admission.held(self.shard, user).await?;
        Ok(held.as_ref().and_then(Held::reservation).filter(|held| held.order_no == *order_no).cloned())
    }

    /// Stores and tells results; each comes with the id of its event.
    async fn tell(&self, results: &[(&str, OrderNo, OrderResult)]) -> PortResult<()> {
        let stored: Vec<_> = results.iter().map(|(_, order_no, result)| (order_no.clone(), result.clone())).collect();
        self.desk.admission.put_results(&stored).await?;
        // Made beforehand: a closure that borrows is not general enough for a task that moves between threads.
        let keyed = results.iter().map(|(event, order_no, result)| (format!("{order_no}:{event}"), order_no, result));
        let told: Vec<_> = keyed.map(|(key, order_no, result)| self.announce(key, order_no, result)).collect();
        stream::iter(told).buffer_unordered(ABREAST).try_collect().await
    }

    async fn announce(&self, key: String, order_no: &OrderNo, result: &OrderResult) -> PortResult<()> {
        self.desk.announce(&key, order_no, result).await
    }

    async fn acknowledge(&mut self, ids: Vec<String>) -> PortResult<()> {
        self.desk.admission.acknowledge(self.shard, &ids).await?;
        self.forget(ids.iter().map(String::as_str));
        Ok(())
    }

    fn forget<'a>(&mut self, ids: impl Iterator<Item = &'a str>) {
        for id in ids {
            self.counted.remove(id);
            self.attempts.remove(id);
        }
    }

    /// An event that the ledger cannot take.
    async fn bury(&mut self, event: &OrderEvent, attempts: u32, error: &PortError, now: UnixMillis) -> PortResult<()> {
        let OrderEvent { id, order_no, user, qty, epoch, generation } = event;
        let payload = json!({
            "id": id, "orderNo": order_no.as_str(), "user": user.as_str(), "qty": qty, "epoch": epoch, "generation": generation,
        });
        self.write_letter(id, payload, &health::chain(error), attempts, now).await?;
        if let Some(result) = self.conclude(event, Persisted::Stale).await? {
            self.tell(&[(id, order_no.clone(), result)]).await?;
        }
        self.forget(std::iter::once(id.as_str()));
        Ok(())
    }

    /// An entry that is no event. Whoever it names hears that nothing came of it, unless the ledger knows better.
    async fn bury_poison(&mut self, id: &str, raw: &str, names: Option<(PrincipalId, OrderNo)>, now: UnixMillis) -> PortResult<()> {
        let mut payload = json!({ "id": id, "raw": raw });
        if let Some((user, order_no)) = &names {
            payload["user"] = user.as_str().into();
            payload["orderNo"] = order_no.as_str().into();
        }
        self.write_letter(id, payload, "an entry of the event log that is no order event", 1, now).await?;
        if let Some((user, order_no)) = names
            && self.desk.ledger.order(&order_no).await?.is_none()
        {
            if let Some(reservation) = self.is_held(&user, &order_no).await? {
                // Which of the buyer's orders it was is not known; the ledger tells the buyer's next event if it was not the first.
                self.release(&Release { user: user.clone(), reservation, epoch: None, generation: 0 }).await?;
            }
            self.tell(&[(id, order_no, OrderResult::Fail { user, message: LOST.to_owned() })]).await?;
        }
        self.acknowledge(vec![id.to_owned()]).await
    }

    async fn write_letter(&self, id: &str, mut payload: Value, error: &str, attempts: u32, now: UnixMillis) -> PortResult<()> {
        payload["activityId"] = self.shard.lot.activity.to_string().into();
        payload["skuId"] = self.shard.lot.sku.to_string().into();
        payload["shard"] = self.shard.index.into();
        tracing::error!(shard = %self.shard, id, error, "an order event was given up; the compensation list has it");
        let letter = NewLetter {
            kind: LetterKind::Event,
            source_id: format!("{}:{id}", self.shard),
            payload: payload.to_string(),
            error: error.to_owned(),
            attempts: u16::try_from(attempts).unwrap_or(u16::MAX),
        };
        self.desk.ledger.write_letter(&letter, now).await
    }
}
