//! What buyers were told against what the ledger holds.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

/// How a buyer's visit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Was told of an order, and that it was a success.
    Won,
    /// Was told that everything is sold.
    SoldOut,
    /// Was refused for a reason that does not exist in an open sale.
    Refused(String),
    /// Had an order whose result was still pending.
    Pending,
    /// Had no answer, or "fail" and then no other.
    Unanswered,
}

/// One buyer.
#[derive(Debug, Clone)]
pub struct Visit {
    /// Who.
    pub user: String,
    /// From the instant the attempt was due to the first answer.
    pub latency: Option<Duration>,
    /// Attempts sent.
    pub attempts: u32,
    /// The last order number that was heard of.
    pub order_no: Option<String>,
    /// How it ended.
    pub fate: Fate,
}

impl Visit {
    /// Why, if refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match &self.fate {
            Fate::Refused(reason) => Some(reason),
            Fate::Won | Fate::SoldOut | Fate::Pending | Fate::Unanswered => None,
        }
    }
}

/// A live order in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Whose.
    pub user: String,
    /// Its number.
    pub order_no: String,
    /// Units.
    pub units: u64,
}

/// The counts, and what is wrong with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Buyers who were given an order number.
    pub admitted: u64,
    /// Buyers who were told of a success.
    pub won: u64,
    /// Buyers who were told "sold out" in the end.
    pub sold_out: u64,
    /// Units in live orders of the ledger.
    pub persisted: u64,
    /// Units in the ledger beyond the stock.
    pub oversold: u64,
    /// Successes without an order, orders whose buyer was told something else, and units that nobody has although somebody was
    /// sent home. An admission that was taken back, and its unit given to somebody else, is none of these.
    pub lost: u64,
    /// Buyers who were still pending, or without an answer, when the run's patience was over.
    pub stuck: u64,
    /// Buyers refused for a reason that does not exist in an open sale.
    pub misjudged: u64,
}

impl Tally {
    /// Of one sale of `stock` units, one for each of the visitors.
    #[must_use]
    pub fn new(visits: &[Visit], orders: &[Order], stock: u32) -> Self {
        let count = |wanted: fn(&Visit) -> bool| visits.iter().filter(|visit| wanted(visit)).count() as u64;
        let of_winner = |visit: &'_ Visit| (visit.fate == Fate::Won).then(|| Some((visit.user.clone(), visit.order_no.clone()?)))?;
        let won: BTreeSet<(String, String)> = visits.iter().filter_map(of_winner).collect();
        let written: BTreeSet<(String, String)> = orders.iter().map(|order| (order.user.clone(), order.order_no.clone())).collect();
        // Who is stuck is counted there, whatever the ledger says.
        let is_stuck = |visit: &&Visit| matches!(visit.fate, Fate::Pending | Fate::Unanswered);
        let stuck: BTreeSet<&str> = visits.iter().filter(is_stuck).map(|visit| visit.user.as_str()).collect();
        let untold = written.difference(&won).filter(|(user, _)| !stuck.contains(user.as_str())).count() as u64;
        let persisted: u64 = orders.iter().map(|order| order.units).sum();
        let wanted = u64::from(stock).min(visits.len() as u64);
        Self {
            admitted: count(|visit| visit.order_no.is_some()),
            won: count(|visit| visit.fate == Fate::Won),
            sold_out: count(|visit| visit.fate == Fate::SoldOut),
            persisted,
            oversold: persisted.saturating_sub(u64::from(stock)),
            lost: won.difference(&written).count() as u64 + untold + wanted.saturating_sub(persisted),
            stuck: stuck.len() as u64,
            misjudged: count(|visit| visit.refusal().is_some()),
        }
    }

    /// Whether everybody has what they were told, and the units are sold.
    #[must_use]
    pub fn is_well(&self) -> bool {
        (self.oversold, self.lost, self.stuck, self.misjudged) == (0, 0, 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(user: &str, order_no: Option<&str>, fate: Fate) -> Visit {
        Visit { user: user.into(), latency: None, attempts: 1, order_no: order_no.map(str::to_owned), fate }
    }

    fn order(user: &str, order_no: &str) -> Order {
        Order { user: user.into(), order_no: order_no.into(), units: 1 }
    }

    /// Oversold, lost, stuck, misjudged.
    fn wrong(visits: &[Visit], orders: &[Order], stock: u32) -> (u64, u64, u64, u64) {
        let tally = Tally::new(visits, orders, stock);
        let wrong = (tally.oversold, tally.lost, tally.stuck, tally.misjudged);
        assert_eq!(tally.is_well(), wrong == (0, 0, 0, 0));
        wrong
    }

    #[test]
    fn a_sale_in_which_everybody_has_what_they_were_told_is_well() {
        let visits = [visit("a", Some("1"), Fate::Won), visit("b", None, Fate::SoldOut)];
        let tally = Tally::new(&visits, &[order("a", "1")], 1);
        assert_eq!((tally.admitted, tally.won, tally.sold_out, tally.persisted), (1, 1, 1, 1));
        assert!(tally.is_well());
    }

    #[test]
    fn an_admission_that_went_to_somebody_else_is_not_lost() {
        let visits = [visit("a", Some("1"), Fate::SoldOut), visit("b", Some("2"), Fate::Won)];
        assert_eq!(wrong(&visits, &[order("b", "2")], 1), (0, 0, 0, 0));
    }

    #[test]
    fn one_order_more_than_there_are_units_is_oversold() {
        let visits = [visit("a", Some("1"), Fate::Won), visit("b", Some("2"), Fate::Won)];
        assert_eq!(wrong(&visits, &[order("a", "1"), order("b", "2")], 1), (1, 0, 0, 0));
    }

    #[test]
    fn a_success_without_an_order_and_an_order_without_a_success_are_lost() {
        let won = [visit("a", Some("1"), Fate::Won), visit("b", Some("2"), Fate::Won)];
        assert_eq!(wrong(&won, &[order("a", "1"), order("b", "3")], 2).1, 2, "another number is another order");
        let sent_home = [visit("a", Some("1"), Fate::Won), visit("b", None, Fate::SoldOut)];
        assert_eq!(wrong(&sent_home, &[order("a", "1"), order("b", "2")], 2).1, 1);
    }

    #[test]
    fn units_that_nobody_has_are_lost_when_somebody_wanted_them() {
        let visits = [visit("a", Some("1"), Fate::Won), visit("b", None, Fate::SoldOut)];
        assert_eq!(wrong(&visits, &[order("a", "1")], 2), (0, 1, 0, 0));
        assert_eq!(wrong(&visits[..1], &[order("a", "1")], 2), (0, 0, 0, 0), "nobody else came");
    }

    #[test]
    fn who_waits_is_stuck_whatever_the_ledger_says() {
        let visits = [visit("a", Some("1"), Fate::Pending), visit("b", None, Fate::Unanswered)];
        assert_eq!(wrong(&visits, &[order("a", "1"), order("b", "2")], 2), (0, 0, 2, 0));
    }

    #[test]
    fn a_refusal_that_does_not_exist_in_an_open_sale_is_misjudged() {
        let visits = [visit("a", None, Fate::Refused("401 UNAUTHENTICATED".into()))];
        assert_eq!(visits[0].refusal(), Some("401 UNAUTHENTICATED"));
        assert_eq!(wrong(&visits, &[], 0), (0, 0, 0, 1));
    }
}
