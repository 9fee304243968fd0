//! Reconciliation: what a lot's stores say of it, side by side, and where they contradict each other.
//!
//! What lives here: the four invariants. What never happens here: mending; a difference becomes a compensation entry,
//! and an operator decides. Called every few seconds by the worker that holds the lot, and by the admin API.

use crate::sale::{ActivityState, Held, SaleState, Survey, shard};

/// What the ledger says of a lot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LotBooks {
    /// Its activity's state.
    pub state: ActivityState,
    /// The current epoch.
    pub epoch: u32,
    /// Units of the lot.
    pub stock: u32,
    /// Units in live orders, as the lot's own counter has it.
    pub sold: u32,
    /// Units in live orders, summed from the orders.
    pub live: u64,
    /// Units out, summed from the stock ledger: the negative of its deltas.
    pub moved: i64,
    /// Releases and reservations that the admission store has not heard of yet.
    pub owed: u64,
    /// The SKU's units, sold ones gone.
    pub sku_stock: u32,
    /// The SKU's units promised to unsettled activities, as its counter has it.
    pub sku_locked: u32,
    /// The same, summed from the lots of the unsettled activities.
    pub sku_promised: u64,
}

/// What always holds when nothing is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// What is left, what buyers hold and what is on its way between shards make the lot's stock.
    StockIsLeftAndReserved,
    /// What buyers hold is what live orders have.
    ReservedIsLive,
    /// The lot's counter is the sum of its live orders, and of the stock ledger.
    SoldIsLive,
    /// The SKU's lock is what unsettled activities have not sold.
    LockedIsPromised,
}

impl Invariant {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::StockIsLeftAndReserved, Self::ReservedIsLive, Self::SoldIsLive, Self::LockedIsPromised];

    /// The name in metrics, answers and compensation entries.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StockIsLeftAndReserved => "stock_is_left_and_reserved",
            Self::ReservedIsLive => "reserved_is_live",
            Self::SoldIsLive => "sold_is_live",
            Self::LockedIsPromised => "locked_is_promised",
        }
    }

    /// The invariant of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|invariant| invariant.as_str() == name)
    }
}

/// A contradiction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// What does not hold.
    pub invariant: Invariant,
    /// What one side says.
    pub expected: i64,
    /// What the other side says.
    pub found: i64,
}

/// What contradicts in the ledger alone. It is written in one transaction, so this holds at every instant.
#[must_use]
pub fn in_ledger(books: &LotBooks) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut check = |invariant, expected: i64, found: i64| {
        if expected != found {
            differences.push(Difference { invariant, expected, found });
        }
    };
    check(Invariant::SoldIsLive, signed(books.live), i64::from(books.sold));
    if signed(books.live) == i64::from(books.sold) {
        check(Invariant::SoldIsLive, signed(books.live), books.moved);
    }
    check(Invariant::LockedIsPromised, signed(books.sku_promised), i64::from(books.sku_locked));
    differences
}

/// What contradicts between the ledger and the shards of a lot, counted while no event waited. `None`: something is under
/// way, so there is nothing to compare: another epoch, a rebuild, a task in the outbox, a transfer.
#[must_use]
pub fn in_shards(books: &LotBooks, shards: &[Survey]) -> Option<Vec<Difference>> {
    let steady = books.owed == 0
        && !shards.is_empty()
        && shards.iter().all(|survey| survey.stock.at.epoch == books.epoch && survey.stock.state != SaleState::Paused);
    if !steady || !in_transit(shards).is_empty() {
        return None;
    }
    let left: u64 = shards.iter().map(|survey| u64::from(survey.stock.left)).sum();
    let reserved: u64 = shards.iter().map(|survey| shard::units(&survey.buyers)).sum();
    let mut differences = Vec::new();
    if left + reserved != u64::from(books.stock) {
        let (invariant, expected) = (Invariant::StockIsLeftAndReserved, i64::from(books.stock));
        differences.push(Difference { invariant, expected, found: signed(left + reserved) });
    }
    if reserved != books.live {
        differences.push(Difference { invariant: Invariant::ReservedIsLive, expected: signed(books.live), found: signed(reserved) });
    }
    Some(differences)
}

/// Transfers that left one shard and have not arrived in the other: (receiver, transfer). Whoever carried them may have
/// died; landing one twice changes nothing.
#[must_use]
pub fn in_transit(shards: &[Survey]) -> Vec<crate::sale::Transfer> {
    let arrived = |id: &str, to: u8| shards.get(usize::from(to)).is_some_and(|survey| survey.received.iter().any(|known| known == id));
    shards.iter().flat_map(|survey| &survey.sent).filter(|transfer| !arrived(&transfer.id, transfer.to)).cloned().collect()
}

/// How many users of a survey hold units.
#[must_use]
pub fn holders(survey: &Survey) -> usize {
    survey.buyers.iter().filter(|(_, held)| matches!(held, Held::Reserved(_))).count()
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{OrderNo, PrincipalId};
    use crate::sale::{Reservation, SaleStock, StockVersion, Transfer};

    fn books() -> LotBooks {
        LotBooks {
            state: ActivityState::Published,
            epoch: 2,
            stock: 100,
            sold: 30,
            live: 30,
            moved: 30,
            owed: 0,
            sku_stock: 970,
            sku_locked: 70,
            sku_promised: 70,
        }
    }

    fn survey(left: u32, reserved: u32) -> Survey {
        let reservation = Reservation { qty: reserved, order_no: OrderNo::from_bits([1; 10]), revision: 0 };
        Survey {
            stock: SaleStock { state: SaleState::Open, left, at: StockVersion { epoch: 2, returns: 0 }, incarnation: String::new() },
            buyers: vec![
                (PrincipalId::parse("a").expect("valid"), Held::Reserved(reservation)),
                (PrincipalId::parse("b").expect("valid"), Held::Released { generation: 1 }),
            ],
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    fn found(differences: &[Difference]) -> Vec<(Invariant, i64, i64)> {
        differences.iter().map(|difference| (difference.invariant, difference.expected, difference.found)).collect()
    }

    #[test]
    fn books_that_agree_have_no_difference() {
        assert_eq!(in_ledger(&books()), []);
        assert_eq!(in_shards(&books(), &[survey(70, 30)]), Some(vec![]));
        assert_eq!(in_shards(&books(), &[survey(50, 10), survey(20, 20)]), Some(vec![]));
        assert_eq!(holders(&survey(70, 30)), 1);
    }

    #[test]
    fn each_contradiction_is_named_with_both_sides() {
        let counter = LotBooks { sold: 31, ..books() };
        assert_eq!(found(&in_ledger(&counter)), [(Invariant::SoldIsLive, 30, 31)]);
        let ledger = LotBooks { moved: 29, ..books() };
        assert_eq!(found(&in_ledger(&ledger)), [(Invariant::SoldIsLive, 30, 29)]);
        let locks = LotBooks { sku_locked: 71, ..books() };
        assert_eq!(found(&in_ledger(&locks)), [(Invariant::LockedIsPromised, 70, 71)]);
        assert_eq!(
            in_shards(&books(), &[survey(71, 30)]).map(|all| found(&all)),
            Some(vec![(Invariant::StockIsLeftAndReserved, 100, 101)])
        );
        assert_eq!(in_shards(&books(), &[survey(69, 31)]).map(|all| found(&all)), Some(vec![(Invariant::ReservedIsLive, 30, 31)]));
    }

    #[test]
    fn nothing_is_compared_while_something_is_under_way() {
        assert_eq!(in_shards(&LotBooks { owed: 1, ..books() }, &[survey(0, 0)]), None);
        assert_eq!(in_shards(&LotBooks { epoch: 3, ..books() }, &[survey(0, 0)]), None);
        assert_eq!(in_shards(&books(), &[]), None);
        let mut paused = survey(0, 0);
        paused.stock.state = SaleState::Paused;
        assert_eq!(in_shards(&books(), &[paused]), None);
    }

    #[test]
    fn units_between_shards_are_in_transit_until_they_arrive() {
        let transfer = Transfer { id: "n1-7".to_owned(), to: 1, units: 5 };
        let mut shards = [survey(45, 10), survey(20, 20)];
        shards[0].sent.push(transfer.clone());
        assert_eq!(in_transit(&shards), [transfer]);
        assert_eq!(in_shards(&books(), &shards), None);
        shards[1].received.push("n1-7".to_owned());
        shards[1].stock.left = 25;
        assert_eq!(in_transit(&shards), []);
        assert_eq!(in_shards(&books(), &shards), Some(vec![]));
    }

    #[test]
    fn names_read_back() {
        for invariant in Invariant::ALL {
            assert_eq!(Invariant::parse(invariant.as_str()), Some(invariant));
        }
        assert_eq!(Invariant::parse("other"), None);
    }
}
