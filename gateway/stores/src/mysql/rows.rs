//! From columns to the words of the core. What does not fit was written by nobody of ours: an error, never a guess.

use gateway_core::id::{ActivityId, Lot, OrderNo, PayNo, PrincipalId, SkuId};
use gateway_core::sale::{ActivityState, OrderState};

use super::Trouble;

pub(super) fn read_principal(text: &str) -> Result<PrincipalId, Trouble> {
    PrincipalId::parse(text).map_err(|_| Trouble::Damaged("a principal id"))
}

pub(super) fn read_order_no(text: &str) -> Result<OrderNo, Trouble> {
    OrderNo::parse(text).map_err(|_| Trouble::Damaged("an order number"))
}

pub(super) fn read_pay_no(text: &str) -> Result<PayNo, Trouble> {
    PayNo::parse(text).map_err(|_| Trouble::Damaged("a payment number"))
}

pub(super) fn read_lot(activity: u64, sku: u64) -> Lot {
    Lot { activity: ActivityId(activity), sku: SkuId(sku) }
}

/// `seckill_activity.state`.
pub(super) fn read_state(number: u8) -> Result<ActivityState, Trouble> {
    match number {
        0 => Ok(ActivityState::Draft),
        1 => Ok(ActivityState::Published),
        2 => Ok(ActivityState::Closing),
        3 => Ok(ActivityState::Settled),
        4 => Ok(ActivityState::Void),
        _ => Err(Trouble::Damaged("the state of an activity")),
    }
}

/// `seckill_activity.state`.
pub(super) fn write_state(state: ActivityState) -> u8 {
    match state {
        ActivityState::Draft => 0,
        ActivityState::Published => 1,
        ActivityState::Closing => 2,
        ActivityState::Settled => 3,
        ActivityState::Void => 4,
    }
}

/// `orders.status` and `seckill_order.status`.
pub(super) fn read_order_state(number: u8) -> Result<OrderState, Trouble> {
    match number {
        0 => Ok(OrderState::Unpaid),
        1 => Ok(OrderState::Paid),
        2 => Ok(OrderState::Closed),
        _ => Err(Trouble::Damaged("the status of an order")),
    }
}
