//! Final results of orders, each for seven days.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use gateway_core::id::OrderNo;
use gateway_core::sale::OrderResult;
use gateway_core::time::UnixMillis;

/// Results kept at most; the oldest go first. About 200 bytes each.
pub const RESULTS_MAX: usize = 1_000_000;

/// The port's promise.
const RESULT_TTL: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Final results, each for seven days.
#[derive(Clone, Default)]
pub(super) struct Results {
    by_order: HashMap<OrderNo, (OrderResult, UnixMillis)>,
    /// Expiry of each write; all live equally long, so the front expires first.
    expiries: VecDeque<(UnixMillis, OrderNo)>,
}

impl Results {
    pub(super) fn put(&mut self, order_no: &OrderNo, result: &OrderResult, now: UnixMillis) {
        let expiry = now.plus(RESULT_TTL);
        self.by_order.insert(order_no.clone(), (result.clone(), expiry));
        self.expiries.push_back((expiry, order_no.clone()));
        while self.expiries.len() > RESULTS_MAX || self.expiries.front().is_some_and(|(expiry, _)| *expiry <= now) {
            let Some((expiry, oldest)) = self.expiries.pop_front() else { break };
            // A result written again has a later expiry and stays.
            if self.by_order.get(&oldest).is_some_and(|(_, kept)| *kept == expiry) {
                self.by_order.remove(&oldest);
            }
        }
    }

    pub(super) fn get(&self, order_no: &OrderNo, now: UnixMillis) -> Option<OrderResult> {
        self.by_order.get(order_no).filter(|(_, expiry)| *expiry > now).map(|(result, _)| result.clone())
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::id::PrincipalId;

    use super::*;

    fn order_no(letter: char) -> OrderNo {
        OrderNo::parse(&format!("SK{}", letter.to_string().repeat(16))).expect("valid")
    }

    fn success() -> OrderResult {
        OrderResult::Success { user: PrincipalId::parse("u").expect("valid") }
    }

    #[test]
    fn a_result_lives_for_seven_days_after_its_last_writing() {
        let mut results = Results::default();
        results.put(&order_no('A'), &success(), UnixMillis(0));
        results.put(&order_no('B'), &success(), UnixMillis(0));
        results.put(&order_no('A'), &success(), UnixMillis(1_000));
        let first_end = UnixMillis(0).plus(RESULT_TTL);
        assert_eq!(results.get(&order_no('B'), UnixMillis(first_end.0 - 1)), Some(success()));
        assert_eq!(results.get(&order_no('B'), first_end), None);
        results.put(&order_no('C'), &success(), first_end);
        assert_eq!(results.get(&order_no('A'), first_end), Some(success()), "written again later");
        assert_eq!((results.by_order.len(), results.expiries.len()), (2, 2), "what expired is forgotten");
    }
}
