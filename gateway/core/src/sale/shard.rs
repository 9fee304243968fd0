//! Shards: the parts a lot's stock may be split into when one core of the admission store is not enough for it.
//!
//! What lives here: which shard is whose, and how terms are split. What never happens here: moving units; that is borrowing,
//! a step of the admission store. One shard is the rule, and its keys are the lot's own.

use std::fmt;

use crate::id::{Lot, PrincipalId};
use crate::sale::{Held, SaleTerms};

/// Most shards of a lot: each is a stream of its own, and a borrower asks all the others.
pub const SHARDS_MAX: u8 = 16;

/// One part of a lot's stock, with the buyers that belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// The lot.
    pub lot: Lot,
    /// 0 to the lot's number of shards, exclusive.
    pub index: u8,
}

impl Shard {
    /// The only shard of a lot that is not split, and the first of one that is.
    #[must_use]
    pub fn first(lot: Lot) -> Self {
        Self { lot, index: 0 }
    }

    /// The shard `user` buys from; always the same one, so that one shard knows all that a user holds. `shards` is the
    /// lot's number of them; 0 counts as 1.
    #[must_use]
    pub fn of(lot: Lot, user: &PrincipalId, shards: u8) -> Self {
        if shards <= 1 {
            return Self::first(lot);
        }
        // FNV-1a, 64 bits: what every node and every release of the product must agree on for as long as a sale runs.
        let hash = user
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        // The low bits of FNV depend on few bits of the last byte; folding the high half in makes the shards even.
        let index = ((hash >> 32) ^ hash) % u64::from(shards);
        Self { lot, index: u8::try_from(index).unwrap_or(0) }
    }

    /// Every shard of a lot with `shards` of them; 0 counts as 1.
    pub fn all(lot: Lot, shards: u8) -> impl Iterator<Item = Self> {
        (0..shards.max(1)).map(move |index| Self { lot, index })
    }
}

/// `activity:sku` for the first shard, `activity:sku:index` for the others.
impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            0 => write!(f, "{}", self.lot),
            index => write!(f, "{}:{index}", self.lot),
        }
    }
}

/// The terms of each shard, in order: buyers where they belong, units as evenly as they go.
///
/// No shard gets fewer units than it needs for what its buyers hold, because those are not part of what is left.
#[must_use]
pub fn split(lot: Lot, terms: SaleTerms, shards: u8) -> Vec<SaleTerms> {
    let count = u32::from(shards.max(1));
    let (each, rest) = (terms.left / count, terms.left % count);
    let mut parts: Vec<SaleTerms> =
        (0..count).map(|index| SaleTerms { left: each + u32::from(index < rest), buyers: Vec::new(), ..terms }).collect();
    for (user, held) in terms.buyers {
        let index = usize::from(Shard::of(lot, &user, shards).index);
        parts[index].buyers.push((user, held));
    }
    parts
}

/// The sum of the units that `buyers` hold.
#[must_use]
pub fn units(buyers: &[(PrincipalId, Held)]) -> u64 {
    buyers.iter().map(|(_, held)| held.units()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::{ActivityId, OrderNo, SkuId};
    use crate::sale::Reservation;
    use crate::time::UnixMillis;

    const LOT: Lot = Lot { activity: ActivityId(7), sku: SkuId(9) };

    fn user(number: usize) -> PrincipalId {
        PrincipalId::parse(&format!("user-{number}")).expect("valid")
    }

    #[test]
    fn names_the_first_shard_like_its_lot() {
        assert_eq!(Shard::first(LOT).to_string(), "7:9");
        assert_eq!(Shard { lot: LOT, index: 3 }.to_string(), "7:9:3");
        assert_eq!(Shard::of(LOT, &user(1), 0), Shard::first(LOT));
    }

    #[test]
    fn spreads_users_evenly() {
        let mut counts = [0_usize; 8];
        for number in 0..8_000 {
            counts[usize::from(Shard::of(LOT, &user(number), 8).index)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    /// A release of the product that hashed differently would let a buyer buy twice.
    #[test]
    fn a_user_stays_in_the_shard_it_has_always_had() {
        assert_eq!([1, 2, 3, 4].map(|number| Shard::of(LOT, &user(number), 16).index), [14, 7, 0, 1]);
    }

    proptest! {
        #[test]
        fn splitting_loses_and_makes_nothing(left in 0_u32..10_000, shards in 1_u8..=SHARDS_MAX, buyers in 0_usize..50) {
            let held = |number: usize| Held::Reserved(Reservation { qty: 2, order_no: OrderNo::from_bits([number as u8; 10]), revision: 0 });
            let terms = SaleTerms {
                epoch: 3, start: UnixMillis(1), end: UnixMillis(2), per_user: 2, left,
                buyers: (0..buyers).map(|number| (user(number), held(number))).collect(),
            };
            let parts = split(LOT, terms.clone(), shards);
            prop_assert_eq!(parts.len(), usize::from(shards));
            prop_assert_eq!(parts.iter().map(|part| part.left).sum::<u32>(), left);
            let spread = parts.iter().map(|part| part.left).max().zip(parts.iter().map(|part| part.left).min());
            prop_assert!(spread.is_some_and(|(most, least)| most - least <= 1));
            for (index, part) in parts.iter().enumerate() {
                prop_assert!(part.buyers.iter().all(|(user, _)| usize::from(Shard::of(LOT, user, shards).index) == index));
            }
            prop_assert_eq!(parts.iter().map(|part| units(&part.buyers)).sum::<u64>(), units(&terms.buyers));
        }
    }
}
