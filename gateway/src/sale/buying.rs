//! What the store makes of one wish to buy: the right order number, units of another shard when its own has too few, and
//! what the answer says about the flags.
//!
//! What never happens here: HTTP, or a decision about the wish. Called by the purchase route.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::backoff::Backoff;
use gateway_core::id::{OrderNo, PrincipalId};
use gateway_core::sale::{ActivityState, Admit, LotRecord, OrderKey, SaleAttempt, Shard, order_no};
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::sale::batcher::{BatchError, Batcher};
use crate::sale::borrowing::{Borrowing, Need};
use crate::sale::flags::Flags;

/// Pauses of an attempt while its sale is rebuilt, which takes a second or two.
const READY_YET: Backoff = Backoff { min: Duration::from_millis(50), max: Duration::from_millis(300) };

/// Asks the admission store for buyers.
pub(crate) struct Buying {
    /// Makes order numbers.
    pub order_key: OrderKey,
    /// Asks in batches.
    pub batcher: Batcher,
    /// Knows what is sold out.
    pub flags: Arc<Flags>,
    /// Moves units to where they are asked for.
    pub borrowing: Arc<Borrowing>,
    /// How long an attempt waits for a sale that is open by the clock and not ready in the store.
    pub patience: Duration,
}

impl Buying {
    /// Tries to get `qty` units of `record` for `user`; with the answer comes the number an admitted order has.
    pub(crate) async fn attempt(&self, record: &LotRecord, user: &PrincipalId, qty: u32) -> Result<(OrderNo, Admit), BatchError> {
        let (number, admit) = self.numbered(record, user, qty, 0).await?;
        // Known only to the store, and met only by who bought before: once more, under the number of that generation.
        if let Admit::Again { generation } = admit {
            return self.numbered(record, user, qty, generation).await;
        }
        Ok((number, admit))
    }

    async fn numbered(&self, record: &LotRecord, user: &PrincipalId, qty: u32, generation: u16) -> Result<(OrderNo, Admit), BatchError> {
        let shard = Shard::of(record.lot, user, record.shards);
        let number = order_no(&self.order_key, record.lot, user, generation);
        let attempt = SaleAttempt { user: user.clone(), qty, order_no: number.clone(), generation };
        let mut admit = self.ready(record, shard, &attempt).await?;
        if let Admit::SoldOut { left, at } = admit
            && record.shards > 1
            && self.borrowing.borrow(Need { shard, shards: record.shards, qty, left, at }).await
        {
            admit = self.ask(record, shard, attempt).await?;
        }
        Ok((number, admit))
    }

    /// Asks, and asks again while the store is being rebuilt: after a failover that is what buyers would meet.
    async fn ready(&self, record: &LotRecord, shard: Shard, attempt: &SaleAttempt) -> Result<Admit, BatchError> {
        let began = Instant::now();
        let mut looks = 0;
        loop {
            let admit = self.ask(record, shard, attempt.clone()).await?;
            let now = clock::now();
            let open = record.state == ActivityState::Published && now >= record.start && now < record.end;
            if admit != Admit::NotReady || !open || began.elapsed() >= self.patience {
                return Ok(admit);
            }
            sleep(READY_YET.delay(looks, rand::random())).await;
            looks += 1;
        }
    }

    async fn ask(&self, record: &LotRecord, shard: Shard, attempt: SaleAttempt) -> Result<Admit, BatchError> {
        let answer = self.batcher.admit(shard, attempt).await;
        match &answer {
            Ok(admit) => self.flags.answered(shard, record, admit),
            Err(_) => self.flags.not_asked(shard),
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use futures::future::join_all;
    use gateway_core::ports::Admission as _;
    use gateway_core::ports::PortErrorKind::Unavailable;
    use gateway_core::sale::SaleState;

    use super::*;
    use crate::sale::rig::{Fault, Rig, until, user, users_of};

    async fn buy(node: &Buying, rig: &Rig, who: &PrincipalId, qty: u32) -> Admit {
        node.attempt(&rig.record, who, qty).await.unwrap().1
    }

    #[tokio::test]
    async fn who_had_an_order_closed_gets_the_next_number() {
        let rig = Rig::open(1, 1).await;
        let node = rig.node("n");
        let alice = user("alice");
        let (first, _) = node.attempt(&rig.record, &alice, 1).await.unwrap();
        rig.give_back(&alice, 1).await;
        let (second, admit) = node.attempt(&rig.record, &alice, 1).await.unwrap();
        assert_eq!((admit, &second), (Admit::Admitted, &order_no(&rig.key, rig.lot(), &alice, 1)));
        assert_ne!(first, second);
        let (_, again) = node.attempt(&rig.record, &alice, 1).await.unwrap();
        assert!(matches!(again, Admit::Replayed(held) if held.order_no == second));
    }

    #[tokio::test]
    async fn a_sale_that_is_rebuilt_is_waited_for_inside_its_window() {
        let rig = Rig::open(5, 1).await;
        let shard = Shard::first(rig.lot());
        assert!(rig.store.set_state(shard, 1, SaleState::Paused).await.unwrap());
        let node = rig.node("n");
        let (alice, bob) = (user("alice"), user("bob"));
        let (admit, ()) = tokio::join!(buy(&node, &rig, &alice, 1), async {
            until("it was asked twice", async || rig.store.asked.load(Ordering::Relaxed) > 1).await;
            assert!(rig.store.set_state(shard, 1, SaleState::Open).await.unwrap());
        });
        assert_eq!(admit, Admit::Admitted);
        assert!(rig.store.set_state(shard, 1, SaleState::Paused).await.unwrap());
        let early = LotRecord { start: clock::now().plus(Duration::from_secs(600)), ..rig.record.clone() };
        let asked = rig.store.asked.load(Ordering::Relaxed);
        assert_eq!(node.attempt(&early, &bob, 1).await.unwrap().1, Admit::NotReady);
        assert_eq!(rig.store.asked.load(Ordering::Relaxed), asked + 1, "before its window nobody waits");
        let hasty = Buying { patience: Duration::from_millis(100), ..node };
        assert_eq!(buy(&hasty, &rig, &bob, 1).await, Admit::NotReady, "patience has an end");
    }

    #[tokio::test]
    async fn every_unit_of_every_shard_is_sold_to_whoever_comes() {
        let rig = Rig::open(60, 4).await;
        let (one, two) = (rig.node("one"), rig.node("two"));
        // All of them belong to one shard, which has a quarter of the units.
        let crowd = users_of(rig_shard(&rig, 2), 4, 80);
        let answers = join_all(crowd.iter().enumerate().map(|(number, who)| buy(if number % 2 == 0 { &one } else { &two }, &rig, who, 1)));
        let mut admitted = answers.await.iter().filter(|admit| **admit == Admit::Admitted).count();
        // An attempt asks once more and then takes no for an answer; the next ones get what is left.
        for who in &users_of(rig_shard(&rig, 2), 4, 200)[80..] {
            admitted += usize::from(buy(&one, &rig, who, 1).await == Admit::Admitted);
        }
        assert_eq!((admitted, rig.left().await), (60, vec![0; 4]));
    }

    #[tokio::test]
    async fn a_large_wish_is_gathered_from_several_shards() {
        let rig = Rig::open(8, 4).await;
        let node = rig.node("n");
        let who = users_of(rig_shard(&rig, 0), 4, 2);
        assert_eq!(buy(&node, &rig, &who[0], 5).await, Admit::Admitted);
        assert_eq!(rig.left().await.iter().sum::<u32>(), 3);
        assert!(matches!(buy(&node, &rig, &who[1], 4).await, Admit::SoldOut { .. }));
        assert_eq!(rig.left().await.iter().sum::<u32>(), 3, "nothing was lost in moving");
    }

    #[tokio::test]
    async fn units_land_once_also_when_the_store_blinks() {
        let rig = Rig::open(4, 2).await;
        let node = rig.node("n");
        let who = users_of(rig_shard(&rig, 1), 2, 3);
        rig.take(&who[0], 2).await;
        rig.store.receives_meet([Fault::Before(Unavailable), Fault::After]);
        assert_eq!(buy(&node, &rig, &who[1], 1).await, Admit::Admitted, "they landed, and who landed them did not hear it");
        assert_eq!(rig.left().await.iter().sum::<u32>(), 1);
    }

    fn rig_shard(rig: &Rig, index: u8) -> Shard {
        Shard { lot: rig.lot(), index }
    }
}
