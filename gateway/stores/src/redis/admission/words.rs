//! The words in which the scripts and the stream speak of reservations, answers and order events. Whoever reaches Redis can
//! write other ones, so reading never trusts.

use gateway_core::id::{OrderNo, PrincipalId};
use gateway_core::sale::{Admit, ClaimedEvent, Held, OrderEvent, Reservation, SaleState, StockVersion};

/// Units in one attempt (the type's word); whatever else stands in an event was not written by `admit.lua`.
const UNITS: std::ops::RangeInclusive<u32> = 1..=9_999;

/// A poison entry is shown to an operator, not stored for ever.
const POISON_CHARS_MAX: usize = 1_024;

pub(super) fn read_state(word: &str) -> Option<SaleState> {
    [SaleState::Open, SaleState::Paused, SaleState::Closed].into_iter().find(|state| state.as_str() == word)
}

/// `qty:orderNo`, or `qty:orderNo:revision` for an order that was revived.
pub(super) fn write_reservation(reservation: &Reservation) -> String {
    let Reservation { qty, order_no, revision } = reservation;
    match revision {
        0 => format!("{qty}:{order_no}"),
        revision => format!("{qty}:{order_no}:{revision}"),
    }
}

pub(super) fn read_reservation(text: &str) -> Option<Reservation> {
    let (qty, rest) = text.split_once(':')?;
    let (order_no, revision) = rest.split_once(':').unwrap_or((rest, "0"));
    Some(Reservation { qty: qty.parse().ok()?, order_no: OrderNo::parse(order_no).ok()?, revision: revision.parse().ok()? })
}

/// A reservation, or `~generation` where there is none any more.
pub(super) fn write_held(held: &Held) -> String {
    match held {
        Held::Reserved(reservation) => write_reservation(reservation),
        Held::Released { generation } => format!("~{generation}"),
    }
}

pub(super) fn read_held(text: &str) -> Option<Held> {
    match text.strip_prefix('~') {
        Some(generation) => Some(Held::Released { generation: generation.parse().ok()? }),
        None => read_reservation(text).map(Held::Reserved),
    }
}

/// An answer of `admit.lua`.
pub(super) fn read_admit(answer: &str) -> Option<Admit> {
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("OK", "") => Some(Admit::Admitted),
        ("HAVE", held) => read_reservation(held).map(Admit::Replayed),
        ("AGAIN", generation) => generation.parse().ok().map(|generation| Admit::Again { generation }),
        ("NONE", "") => Some(Admit::NotReady),
        ("EARLY", "") => Some(Admit::NotStarted),
        ("LATE", "") => Some(Admit::Ended),
        ("LIMIT", "") => Some(Admit::LimitExceeded),
        ("SOLDOUT", stock) => {
            let mut numbers = stock.split(' ');
            let left = numbers.next()?.parse().ok()?;
            let at = StockVersion { epoch: numbers.next()?.parse().ok()?, returns: numbers.next()?.parse().ok()? };
            numbers.next().is_none().then_some(Admit::SoldOut { left, at })
        }
        _ => None,
    }
}

/// An order event, or poison: the stream is reachable to whoever reaches Redis, and one bad entry must not stop the rest.
pub(super) fn read_event(id: String, fields: &[Vec<u8>]) -> ClaimedEvent {
    let field = |name: &str| {
        let pair = fields.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
        std::str::from_utf8(&pair[1]).ok()
    };
    let user = field("u").and_then(|user| PrincipalId::parse(user).ok());
    let order_no = field("o").and_then(|order_no| OrderNo::parse(order_no).ok());
    let qty = field("q").and_then(|qty| qty.parse().ok()).filter(|qty| UNITS.contains(qty));
    let epoch = field("e").and_then(|epoch| epoch.parse().ok());
    // Most orders are a user's first and say nothing of it.
    let generation = field("g").map_or(Some(0), |generation| generation.parse().ok());
    match (user.zip(order_no), qty, epoch, generation) {
        (Some((user, order_no)), Some(qty), Some(epoch), Some(generation)) => {
            ClaimedEvent::Order(OrderEvent { id, order_no, user, qty, epoch, generation })
        }
        (names, ..) => {
            let raw = fields.iter().map(|field| String::from_utf8_lossy(field)).collect::<Vec<_>>().join(" ");
            ClaimedEvent::Poison { id, raw: raw.chars().take(POISON_CHARS_MAX).collect(), names }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str = "SKABCDEFGHIJ234567";

    fn event(fields: &[&str]) -> ClaimedEvent {
        read_event("1-0".to_owned(), &fields.iter().map(|field| field.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn reads_an_order_event_in_any_order_of_fields() {
        let ClaimedEvent::Order(event) = event(&["e", "3", "q", "2", "u", "anna", "o", ORDER]) else { panic!("poison") };
        assert_eq!((event.epoch, event.qty, event.user.as_str(), event.order_no.as_str()), (3, 2, "anna", ORDER));
        assert_eq!(event.generation, 0);
    }

    #[test]
    fn a_later_order_of_a_user_says_which_it_is() {
        let ClaimedEvent::Order(event) = event(&["o", ORDER, "u", "anna", "q", "2", "e", "3", "g", "7"]) else { panic!("poison") };
        assert_eq!(event.generation, 7);
    }

    #[test]
    fn whatever_is_no_order_event_is_poison() {
        for (fields, named) in [
            (&[][..], false),
            (&["o", ORDER, "u", "anna", "q", "2"], true),
            (&["o", ORDER, "u", "anna", "q", "0", "e", "1"], true),
            (&["o", ORDER, "u", "anna", "q", "-1", "e", "1"], true),
            (&["o", ORDER, "u", "anna", "q", "10000", "e", "1"], true),
            (&["o", ORDER, "u", "anna", "q", "1", "e", "1", "g", "x"], true),
            (&["o", ORDER, "u", "anna", "q", "1", "e", "1", "g", "65536"], true),
            (&["o", ORDER, "u", "a b", "q", "1", "e", "1"], false),
            (&["o", "SK1", "u", "anna", "q", "1", "e", "1"], false),
        ] {
            let ClaimedEvent::Poison { names, .. } = event(fields) else { panic!("{fields:?}") };
            assert_eq!(names.is_some(), named, "{fields:?}");
        }
    }

    #[test]
    fn reads_only_answers_the_script_gives() {
        let at = StockVersion { epoch: 3, returns: 4 };
        assert_eq!(read_admit("SOLDOUT 2 3 4"), Some(Admit::SoldOut { left: 2, at }));
        assert_eq!(read_admit("AGAIN 65535"), Some(Admit::Again { generation: u16::MAX }));
        for strange in
            ["", "OK 1", "HAVE", "HAVE 1", "HAVE ~1", "AGAIN", "AGAIN 65536", "SOLDOUT", "SOLDOUT 1 2", "SOLDOUT -1 1 1", "SOLDOUT 1 2 3 4"]
        {
            assert_eq!(read_admit(strange), None, "{strange}");
        }
    }

    #[test]
    fn what_is_held_reads_back() {
        let order_no = OrderNo::parse(ORDER).expect("valid");
        for held in [
            Held::Reserved(Reservation { qty: 1, order_no: order_no.clone(), revision: 0 }),
            Held::Reserved(Reservation { qty: 9_999, order_no, revision: u16::MAX }),
            Held::Released { generation: 1 },
        ] {
            assert_eq!(read_held(&write_held(&held)), Some(held));
        }
        for strange in ["", "~", "1", "~x", "1:SK1", "x:SKABCDEFGHIJ234567", "1:SKABCDEFGHIJ234567:", "1:SKABCDEFGHIJ234567:1:1"] {
            assert_eq!(read_held(strange), None, "{strange}");
        }
    }
}
