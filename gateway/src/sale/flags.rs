//! The node's sold-out flags: who is told "sold out" without a call to any service, and how that stays true.
//!
//! A flag goes up when the store said that nothing is left, and then said who holds units; it comes down by news on the bus,
//! or when an attempt that was let through hears otherwise. When is decided in `core::sale::soldout`; here are the look at
//! the store, the messages and the bounds. What never happens here: admitting anybody. Called by the purchase route.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::id::{Lot, PrincipalId};
use gateway_core::ports::{Admission, Bus, PortError};
use gateway_core::sale::soldout::{self, Flag, Gate, News};
use gateway_core::sale::{ActivityState, Admit, LotRecord, SaleState, Shard, StockVersion};
use gateway_core::time::UnixMillis;
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::health;
use crate::sale::catalog::Catalog;

/// Buyers over all flags of this node, about 100 bytes each. A lot that may have more is sold without a flag.
const BUYERS_MAX: usize = 1_000_000;
/// A shard whose buyers were listed rests for this many times as long as that took, so that a sale whose units come back one
/// by one does not spend the store on lists.
const REST_FACTOR: u32 = 10;
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(10);
/// Pause before news is listened for again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The flags of every shard this node has heard of.
pub(crate) struct Flags {
    admission: Arc<dyn Admission>,
    bus: Arc<dyn Bus>,
    catalog: Arc<Catalog>,
    state: Mutex<State>,
}

/// Bounded by the catalog.
#[derive(Default)]
struct State {
    shards: BTreeMap<Shard, Known>,
    /// Shards whose buyers are being listed, or were just now.
    looking: BTreeSet<Shard>,
}

#[derive(Default)]
struct Known {
    flag: Flag,
    /// Buyers in the list of a flag that is up.
    listed: usize,
}

impl State {
    fn known(&mut self, shard: Shard, lots: &BTreeMap<Lot, LotRecord>) -> &mut Flag {
        if !self.shards.contains_key(&shard) {
            self.shards.retain(|known, _| lots.contains_key(&known.lot));
        }
        &mut self.shards.entry(shard).or_default().flag
    }

    /// Buyers in the lists of all flags that are up.
    fn listed(&self) -> usize {
        self.shards.values().filter(|known| known.flag.is_up()).map(|known| known.listed).sum()
    }
}

impl Flags {
    /// No flag is up.
    pub(crate) fn new(admission: Arc<dyn Admission>, bus: Arc<dyn Bus>, catalog: Arc<Catalog>) -> Self {
        Self { admission, bus, catalog, state: Mutex::default() }
    }

    /// Whether `user` may be told at `now` that nothing is left. Window and state are the store's to judge: outside of what
    /// the catalog knows of them everybody asks.
    pub(crate) fn gate(&self, record: &LotRecord, user: &PrincipalId, now: UnixMillis) -> Gate {
        if record.state != ActivityState::Published || now < record.start || now >= record.end {
            return Gate::Ask;
        }
        let own = Shard::of(record.lot, user, record.shards);
        let mut state = self.state();
        // Units of any shard can be borrowed, so all of them have to be gone.
        let up = |shard| state.shards.get(&shard).is_some_and(|known| known.flag.is_up());
        if !Shard::all(record.lot, record.shards).all(up) {
            return Gate::Ask;
        }
        state.shards.get_mut(&own).map_or(Gate::Ask, |known| known.flag.gate(user, now))
    }

    /// What the store answered an attempt at `shard`.
    pub(crate) fn answered(self: &Arc<Self>, shard: Shard, record: &LotRecord, admit: &Admit) {
        match admit {
            Admit::SoldOut { left: 0, at } => self.sold_out(shard, *at, record, true),
            Admit::SoldOut { .. } | Admit::Admitted | Admit::Again { .. } | Admit::NotStarted | Admit::Ended | Admit::NotReady => {
                if let Some(known) = self.state().shards.get_mut(&shard) {
                    known.flag.doubt();
                }
            }
            Admit::Replayed(_) | Admit::LimitExceeded => {}
        }
    }

    /// An attempt that was let through did not reach the store.
    pub(crate) fn not_asked(&self, shard: Shard) {
        if let Some(known) = self.state().shards.get_mut(&shard) {
            known.flag.unprobed();
        }
    }

    /// Units came back to `shard`: takes its flag down here and tells the other nodes.
    pub(crate) async fn returned(&self, shard: Shard, at: StockVersion) {
        self.state().known(shard, &self.catalog.all()).lower(at);
        self.tell(News { shard, at, sold_out: false }).await;
    }

    /// Listens to the other nodes for as long as the process runs.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            match self.bus.subscribe(soldout::SUBJECT).await {
                Ok(mut news) => {
                    while let Some(message) = news.next().await {
                        self.heard(&message);
                    }
                }
                Err(error) => tracing::debug!(error = health::chain(&error), "cannot hear what is sold out; attempts find out"),
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    fn heard(self: &Arc<Self>, message: &[u8]) {
        let Ok(News { shard, at, sold_out }) = News::decode(message) else {
            tracing::debug!("a message about sold-out lots is none");
            return;
        };
        let lots = self.catalog.all();
        // A lot that this node does not know yet is not asked for here either.
        let Some(record) = lots.get(&shard.lot).filter(|record| shard.index < record.shards.max(1)) else { return };
        if sold_out {
            self.sold_out(shard, at, record, false);
        } else {
            self.state().known(shard, &lots).lower(at);
        }
    }

    /// Nothing was left at `at`. One task per shard finds out who holds units and raises the flag; `first_hand` says whether
    /// the other nodes are told.
    fn sold_out(self: &Arc<Self>, shard: Shard, at: StockVersion, record: &LotRecord, first_hand: bool) {
        {
            let lots = self.catalog.all();
            let mut state = self.state();
            let flag = state.known(shard, &lots);
            // Units came back since it went up, and are gone again: its list lacks whoever has them.
            flag.lower(at);
            // Every buyer has at least one unit.
            let too_many = usize::try_from(record.stock).map_or(true, |stock| stock > BUYERS_MAX);
            if too_many || !flag.wants_buyers(at) || !state.looking.insert(shard) {
                return;
            }
        }
        let flags = self.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            match flags.look(shard, at).await {
                Ok(Some(at)) if first_hand => flags.tell(News { shard, at, sold_out: true }).await,
                Ok(_) => {}
                Err(error) => tracing::debug!(%shard, error = health::chain(&error), "cannot list the buyers now"),
            }
            sleep((began.elapsed() * REST_FACTOR).clamp(REST_MIN, REST_MAX)).await;
            flags.state().looking.remove(&shard);
        });
    }

    /// Raises the flag when the store agrees, and says as of when.
    async fn look(&self, shard: Shard, at: StockVersion) -> Result<Option<StockVersion>, PortError> {
        let Some(survey) = self.admission.survey(shard).await? else { return Ok(None) };
        let seen = survey.stock.at;
        if survey.stock.left > 0 || survey.stock.state != SaleState::Open || seen < at {
            return Ok(None);
        }
        let buyers: BTreeSet<_> =
            survey.buyers.into_iter().filter(|(_, held)| held.reservation().is_some()).map(|(user, _)| user).collect();
        let mut state = self.state();
        let listed = buyers.len();
        if state.listed() + listed > BUYERS_MAX {
            return Ok(None);
        }
        let Some(known) = state.shards.get_mut(&shard) else { return Ok(None) };
        known.flag.raise(seen, buyers, clock::now());
        known.listed = listed;
        Ok(known.flag.is_up().then_some(seen))
    }

    async fn tell(&self, news: News) {
        // Nobody depends on it: the attempts that are let through find out by themselves.
        if let Err(error) = self.bus.publish(soldout::SUBJECT, news.encode().into()).await {
            tracing::debug!(error = health::chain(&error), "cannot tell what is sold out");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::rig::{Rig, until, user, users_of};

    /// A moment at which no attempt is let through to look.
    fn gate(flags: &Flags, record: &LotRecord, name: &PrincipalId) -> Gate {
        flags.gate(record, name, UnixMillis(record.start.0 + 1))
    }

    fn refuses(flags: &Flags, record: &LotRecord, name: &str) -> bool {
        gate(flags, record, &user(name)) == Gate::Refuse
    }

    /// A stranger asks past the flags, and the node hears the answer.
    async fn ask(rig: &Rig, flags: &Arc<Flags>, name: &str) -> Admit {
        let shard = Shard::of(rig.lot(), &user(name), rig.record.shards);
        let admit = rig.store.admit(shard, &[rig.attempt(&user(name), 1)]).await.unwrap().remove(0);
        flags.answered(shard, &rig.record, &admit);
        admit
    }

    #[tokio::test]
    async fn strangers_are_refused_on_every_node_until_units_come_back() {
        let rig = Rig::open(1, 1).await;
        let (here, there) = (rig.flags(), rig.flags());
        rig.take(&user("winner"), 1).await;
        assert!(!refuses(&here, &rig.record, "stranger"), "nobody was told yet");
        ask(&rig, &here, "first").await;
        until("both nodes know", async || refuses(&here, &rig.record, "stranger") && refuses(&there, &rig.record, "stranger")).await;
        assert_eq!(gate(&there, &rig.record, &user("winner")), Gate::Ask, "who holds units gets the number again");
        let at = rig.give_back(&user("winner"), 1).await;
        here.returned(Shard::first(rig.lot()), at).await;
        assert!(!refuses(&here, &rig.record, "stranger"));
        until("the other node hears of it", async || !refuses(&there, &rig.record, "stranger")).await;
    }

    #[tokio::test]
    async fn lost_news_is_found_out_by_an_attempt_a_second() {
        let rig = Rig::open(1, 1).await;
        let flags = rig.flags();
        rig.take(&user("winner"), 1).await;
        ask(&rig, &flags, "first").await;
        until("the flag is up", async || refuses(&flags, &rig.record, "stranger")).await;
        rig.give_back(&user("winner"), 1).await;
        let later = clock::now().plus(Duration::from_secs(2));
        assert_eq!(flags.gate(&rig.record, &user("a"), later), Gate::Ask);
        assert_eq!(flags.gate(&rig.record, &user("b"), later), Gate::Refuse, "one is enough");
        flags.not_asked(Shard::first(rig.lot()));
        assert_eq!(flags.gate(&rig.record, &user("b"), later), Gate::Ask, "the first was held up");
        assert_eq!(ask(&rig, &flags, "b").await, Admit::Admitted);
        assert!(!refuses(&flags, &rig.record, "stranger"));
    }

    #[tokio::test]
    async fn who_bought_what_came_back_unheard_is_not_refused() {
        let rig = Rig::open(1, 1).await;
        let flags = rig.flags();
        rig.take(&user("winner"), 1).await;
        ask(&rig, &flags, "first").await;
        until("the flag is up", async || refuses(&flags, &rig.record, "stranger")).await;
        rig.give_back(&user("winner"), 1).await;
        rig.take(&user("second"), 1).await;
        assert!(refuses(&flags, &rig.record, "second"), "nothing was heard of it");
        ask(&rig, &flags, "probe").await;
        assert!(!refuses(&flags, &rig.record, "second"), "the version says that units came back");
        until("it is listed anew, once the list before has been rested from", async || {
            ask(&rig, &flags, "stranger").await;
            refuses(&flags, &rig.record, "winner")
        })
        .await;
        assert!(!refuses(&flags, &rig.record, "second"));
    }

    #[tokio::test]
    async fn a_lot_is_sold_out_when_every_shard_is() {
        let rig = Rig::open(2, 2).await;
        let flags = rig.flags();
        let [first, second] = [0, 1].map(|index| users_of(Shard { lot: rig.lot(), index }, 2, 3));
        rig.take(&first[0], 1).await;
        ask(&rig, &flags, first[1].as_str()).await;
        until("the first shard's buyers are listed", async || {
            flags.state().shards.get(&Shard::first(rig.lot())).is_some_and(|known| known.flag.is_up())
        })
        .await;
        assert!(!refuses(&flags, &rig.record, first[2].as_str()), "the other shard has units to lend");
        rig.take(&second[0], 1).await;
        ask(&rig, &flags, second[1].as_str()).await;
        until("all is sold out", async || refuses(&flags, &rig.record, first[2].as_str())).await;
        assert!(refuses(&flags, &rig.record, second[2].as_str()));
        assert!(!refuses(&flags, &rig.record, second[0].as_str()) && !refuses(&flags, &rig.record, first[0].as_str()));
    }

    #[tokio::test]
    async fn outside_of_the_window_the_store_has_the_word() {
        let rig = Rig::open(1, 1).await;
        let flags = rig.flags();
        rig.take(&user("winner"), 1).await;
        ask(&rig, &flags, "first").await;
        until("the flag is up", async || refuses(&flags, &rig.record, "stranger")).await;
        let stranger = user("stranger");
        for at in [UnixMillis(rig.record.start.0 - 1), rig.record.end] {
            assert_eq!(flags.gate(&rig.record, &stranger, at), Gate::Ask, "{at:?}");
        }
        let closing = LotRecord { state: ActivityState::Closing, ..rig.record.clone() };
        assert_eq!(gate(&flags, &closing, &stranger), Gate::Ask);
        flags.answered(Shard::first(rig.lot()), &rig.record, &Admit::Ended);
        assert!(!refuses(&flags, &rig.record, "stranger"), "a flag that was contradicted is down");
    }

    #[tokio::test]
    async fn more_buyers_than_a_node_keeps_means_no_flag() {
        let rig = Rig::open(1, 1).await;
        let flags = rig.flags();
        rig.take(&user("winner"), 1).await;
        let huge = LotRecord { stock: 1_000_001, ..rig.record.clone() };
        let at = StockVersion { epoch: 1, returns: 0 };
        flags.answered(Shard::first(rig.lot()), &huge, &Admit::SoldOut { left: 0, at });
        assert!(flags.state().looking.is_empty(), "nobody looks");
    }

    #[tokio::test]
    async fn news_of_what_nobody_sells_costs_nothing() {
        let rig = Rig::open(1, 1).await;
        let flags = rig.flags();
        let other = Lot { activity: gateway_core::id::ActivityId(77), ..rig.lot() };
        for shard in [Shard::first(other), Shard { lot: rig.lot(), index: 1 }] {
            for sold_out in [true, false] {
                flags.heard(&News { shard, at: StockVersion { epoch: 9, returns: 9 }, sold_out }.encode());
            }
        }
        flags.heard(b"nonsense");
        assert!(flags.state().shards.is_empty());
    }
}
