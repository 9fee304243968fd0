//! The sold-out flag of a node: who can be refused without asking the admission store, and until when.
//!
//! The flag may only refuse, never admit. It is exact while it is true: with nothing left nobody can become a buyer until
//! units come back, and that raises the stock's version. News of that can be lost, so once per [`PROBE_EVERY`] an attempt goes
//! through all the same: a wrong refusal lives no longer than that.
//!
//! What never happens here: reading a clock or a bus; both are arguments.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{ActivityId, Lot, PrincipalId, SkuId};
use crate::sale::{Shard, StockVersion};
use crate::time::UnixMillis;

/// The bus subject that carries [`News`].
pub const SUBJECT: &str = "sale.soldout";

/// How often one attempt is let through while the flag is up.
pub const PROBE_EVERY: Duration = Duration::from_secs(1);

/// What nodes tell each other of a shard's stock. It may be lost, late, repeated or out of order: the version says what it
/// is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct News {
    /// The shard.
    pub shard: Shard,
    /// When it was so.
    pub at: StockVersion,
    /// Nothing was left; otherwise units had just come back.
    pub sold_out: bool,
}

/// A message that carries no news: nobody of ours sent it, or another release of the product did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not news of a shard's stock")]
pub struct NoNews;

impl News {
    /// The message, JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { shard: Shard { lot, index }, at: StockVersion { epoch, returns }, sold_out } = *self;
        let wire = Wire { lot: (lot.activity.0, lot.sku.0), shard: index, epoch, returns, sold_out };
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    /// Reads what [`News::encode`] wrote; other members are passed over.
    pub fn decode(message: &[u8]) -> Result<Self, NoNews> {
        let Wire { lot: (activity, sku), shard, epoch, returns, sold_out } = serde_json::from_slice(message).map_err(|_| NoNews)?;
        let lot = Lot { activity: ActivityId(activity), sku: SkuId(sku) };
        Ok(Self { shard: Shard { lot, index: shard }, at: StockVersion { epoch, returns }, sold_out })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    lot: (u64, u64),
    shard: u8,
    epoch: u32,
    returns: u64,
    sold_out: bool,
}

/// What a node does with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Ask the admission store.
    Ask,
    /// Sold out, and the user holds nothing.
    Refuse,
}

/// What a node knows of one shard's stock.
#[derive(Debug, Clone, Default)]
pub struct Flag {
    /// The latest version heard of: older news is no news.
    seen: Option<StockVersion>,
    up: Option<Up>,
}

#[derive(Debug, Clone)]
struct Up {
    /// Everybody who holds units; they are told so by the store.
    buyers: BTreeSet<PrincipalId>,
    probed: UnixMillis,
}

impl Flag {
    /// Whether `user` may be refused at `now`. At most one caller per [`PROBE_EVERY`] is sent to ask.
    pub fn gate(&mut self, user: &PrincipalId, now: UnixMillis) -> Gate {
        let Some(up) = &mut self.up else { return Gate::Ask };
        if up.buyers.contains(user) {
            return Gate::Ask;
        }
        if now >= up.probed.plus(PROBE_EVERY) {
            up.probed = now;
            return Gate::Ask;
        }
        Gate::Refuse
    }

    /// Somebody was told that nothing is left at version `at`; says whether the list of buyers is wanted for it.
    #[must_use]
    pub fn wants_buyers(&self, at: StockVersion) -> bool {
        self.up.is_none() && self.seen.is_none_or(|seen| at >= seen)
    }

    /// Raises the flag: at version `at` nothing was left, and `buyers` were all who held units.
    pub fn raise(&mut self, at: StockVersion, buyers: BTreeSet<PrincipalId>, now: UnixMillis) {
        if self.seen.is_none_or(|seen| at >= seen) {
            self.seen = Some(at);
            self.up = Some(Up { buyers, probed: now });
        }
    }

    /// Units came back, or the store answered a probe with anything but "nothing left": at version `at` there was
    /// something to ask for. Older news changes nothing.
    pub fn lower(&mut self, at: StockVersion) {
        if self.seen.is_none_or(|seen| at > seen) {
            self.seen = Some(at);
            self.up = None;
        }
    }

    /// The store answered an attempt otherwise than with "nothing left" while the flag was up: whatever is true, the flag
    /// is not to be trusted.
    pub fn doubt(&mut self) {
        self.up = None;
    }

    /// The attempt that was let through was refused before it could ask: the next one goes in its place.
    pub fn unprobed(&mut self) {
        if let Some(up) = &mut self.up {
            up.probed = UnixMillis(0);
        }
    }

    /// Whether it is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(name: &str) -> PrincipalId {
        PrincipalId::parse(name).expect("valid")
    }

    fn version(epoch: u32, returns: u64) -> StockVersion {
        StockVersion { epoch, returns }
    }

    fn raised(at: StockVersion) -> Flag {
        let mut flag = Flag::default();
        flag.raise(at, BTreeSet::from([user("winner")]), UnixMillis(0));
        flag
    }

    #[test]
    fn refuses_strangers_and_lets_buyers_ask() {
        let mut flag = raised(version(1, 0));
        assert_eq!(flag.gate(&user("stranger"), UnixMillis(999)), Gate::Refuse);
        assert_eq!(flag.gate(&user("winner"), UnixMillis(999)), Gate::Ask);
    }

    #[test]
    fn one_attempt_a_second_goes_through() {
        let mut flag = raised(version(1, 0));
        let asked = (0..10_000).filter(|now| flag.gate(&user("stranger"), UnixMillis(*now)) == Gate::Ask).count();
        assert_eq!(asked, 9, "at 1 s, 2 s … 9 s");
    }

    #[test]
    fn an_attempt_that_could_not_ask_makes_room_for_the_next() {
        let mut flag = raised(version(1, 0));
        let now = UnixMillis(1_000_000);
        assert_eq!([(); 2].map(|()| flag.gate(&user("stranger"), now)), [Gate::Ask, Gate::Refuse]);
        flag.unprobed();
        assert_eq!([(); 2].map(|()| flag.gate(&user("stranger"), now)), [Gate::Ask, Gate::Refuse]);
    }

    #[test]
    fn news_is_judged_by_version_not_by_when_it_comes() {
        let mut flag = raised(version(1, 3));
        flag.lower(version(1, 3));
        flag.lower(version(1, 2));
        assert!(flag.is_up(), "units came back before it was sold out");
        flag.lower(version(1, 4));
        assert!(!flag.is_up());
        flag.raise(version(1, 3), BTreeSet::new(), UnixMillis(0));
        assert!(!flag.is_up(), "it was sold out before units came back");
        assert!(!flag.wants_buyers(version(1, 3)) && flag.wants_buyers(version(1, 4)));
        flag.raise(version(1, 4), BTreeSet::new(), UnixMillis(0));
        assert!(flag.is_up(), "and then those were sold too");
        flag.lower(version(2, 0));
        assert!(!flag.is_up(), "a new epoch counts anew");
    }

    #[test]
    fn a_probe_that_hears_otherwise_lowers_the_flag_and_the_next_sold_out_raises_it() {
        let mut flag = raised(version(1, 0));
        flag.doubt();
        assert_eq!(flag.gate(&user("stranger"), UnixMillis(1)), Gate::Ask);
        assert!(flag.wants_buyers(version(1, 0)));
    }

    #[test]
    fn news_reads_back() {
        let shard = Shard { lot: Lot { activity: ActivityId(u64::MAX), sku: SkuId(2) }, index: 15 };
        for sold_out in [true, false] {
            let news = News { shard, at: version(u32::MAX, u64::MAX), sold_out };
            assert_eq!(News::decode(&news.encode()), Ok(news));
        }
        let shown =
            News { shard: Shard { lot: Lot { activity: ActivityId(7), sku: SkuId(9) }, index: 0 }, at: version(3, 4), sold_out: true };
        let text = r#"{"lot":[7,9],"shard":0,"epoch":3,"returns":4,"soldOut":true}"#;
        assert_eq!(shown.encode(), text.as_bytes());
        assert_eq!(News::decode(text.replace('{', r#"{"more":1,"#).as_bytes()), Ok(shown));
    }

    #[test]
    fn what_carries_no_news_is_told_apart() {
        for message in ["", "{}", "null", r#"{"lot":[7,9],"shard":256,"epoch":3,"returns":4,"soldOut":true}"#, r#"{"lot":[7,-9]}"#] {
            assert_eq!(News::decode(message.as_bytes()), Err(NoNews), "{message}");
        }
    }

    proptest! {
        /// Whatever news comes in whatever order: a flag that is up was raised by the newest version heard of.
        #[test]
        fn the_newest_version_wins(news in prop::collection::vec((0_u32..3, 0_u64..4, any::<bool>()), 0..40)) {
            let mut flag = Flag::default();
            let (mut newest, mut up): (Option<StockVersion>, bool) = (None, false);
            for (epoch, returns, sold_out) in news {
                let at = version(epoch, returns);
                if sold_out {
                    flag.raise(at, BTreeSet::new(), UnixMillis(0));
                    if newest.is_none_or(|newest| at >= newest) { (newest, up) = (Some(at), true); }
                } else {
                    flag.lower(at);
                    if newest.is_none_or(|newest| at > newest) { (newest, up) = (Some(at), false); }
                }
                prop_assert_eq!(flag.is_up(), up);
            }
        }
    }
}
