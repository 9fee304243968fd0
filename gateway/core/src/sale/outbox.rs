//! The outbox: what a transaction owes to the world outside the ledger, written in that transaction and done afterwards.
//!
//! Every task may be done twice; each is made so that the second time changes nothing. What never happens here: doing one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{ActivityId, Lot, OrderNo, PayNo, PrincipalId, SkuId};
use crate::sale::{Release, Reservation};

/// Attempts at a task before it is given up and an operator is asked: with [`retry_after`] about two hours.
pub const ATTEMPTS_MAX: u16 = 20;

/// How long a task that somebody took is hidden from others: longer than the longest attempt.
pub const HIDDEN_FOR: Duration = Duration::from_secs(30);

/// What is owed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Give a closed order's units back to the admission store.
    Release {
        /// The lot.
        lot: Lot,
        /// What is held.
        release: Release,
    },
    /// Let the admission store know that a revived order holds units again.
    Reserve {
        /// The lot.
        lot: Lot,
        /// Its buyer.
        user: PrincipalId,
        /// What it holds.
        reservation: Reservation,
    },
    /// Send a payment back.
    Refund {
        /// The order it was meant for.
        order_no: OrderNo,
        /// The payment.
        pay_no: PayNo,
        /// How much, in cents.
        amount_cents: u64,
    },
}

/// A task with what the ledger knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// The ledger's id for it.
    pub id: u64,
    /// Attempts begun, this one included.
    pub attempts: u16,
    /// What is owed.
    pub task: Task,
}

/// The pause after attempt number `attempts`: doubling from a second to ten minutes.
#[must_use]
pub fn retry_after(attempts: u16) -> Duration {
    Duration::from_secs((1_u64 << attempts.saturating_sub(1).min(10)).min(600))
}

/// A task's payload cannot be read: nobody of ours wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a task of the outbox")]
pub struct UnknownTask;

impl Task {
    /// The kind, as the ledger's column has it.
    #[must_use]
    pub fn topic(&self) -> &'static str {
        match self {
            Self::Release { .. } => "release",
            Self::Reserve { .. } => "reserve",
            Self::Refund { .. } => "refund",
        }
    }

    /// What makes it one of a kind: written twice, it is written once. Tasks of a lot begin with `activity:sku:`.
    #[must_use]
    pub fn dedupe_key(&self) -> String {
        match self {
            Self::Release { lot, release: Release { reservation, .. } } | Self::Reserve { lot, reservation, .. } => {
                format!("{lot}:{}:{}", reservation.order_no, reservation.revision)
            }
            Self::Refund { pay_no, .. } => pay_no.to_string(),
        }
    }

    /// The payload, JSON.
    #[must_use]
    pub fn encode(&self) -> String {
        let wire = match self {
            Self::Release { lot, release: Release { user, reservation, epoch, generation } } => Wire {
                lot: Some((lot.activity.0, lot.sku.0)),
                user: Some(user.to_string()),
                qty: Some(reservation.qty),
                revision: Some(reservation.revision),
                epoch: *epoch,
                generation: Some(*generation),
                ..Wire::of(&reservation.order_no)
            },
            Self::Reserve { lot, user, reservation } => Wire {
                lot: Some((lot.activity.0, lot.sku.0)),
                user: Some(user.to_string()),
                qty: Some(reservation.qty),
                revision: Some(reservation.revision),
                ..Wire::of(&reservation.order_no)
            },
            Self::Refund { order_no, pay_no, amount_cents } => {
                Wire { pay_no: Some(pay_no.to_string()), amount_cents: Some(*amount_cents), ..Wire::of(order_no) }
            }
        };
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// Reads what [`Task::topic`] and [`Task::encode`] wrote.
    pub fn decode(topic: &str, payload: &str) -> Result<Self, UnknownTask> {
        let wire: Wire = serde_json::from_str(payload).map_err(|_| UnknownTask)?;
        let order_no = OrderNo::parse(&wire.order_no).map_err(|_| UnknownTask)?;
        if topic == "refund" {
            let pay_no = PayNo::parse(wire.pay_no.as_deref().unwrap_or_default()).map_err(|_| UnknownTask)?;
            return Ok(Self::Refund { order_no, pay_no, amount_cents: wire.amount_cents.ok_or(UnknownTask)? });
        }
        let (activity, sku) = wire.lot.ok_or(UnknownTask)?;
        let lot = Lot { activity: ActivityId(activity), sku: SkuId(sku) };
        let user = PrincipalId::parse(wire.user.as_deref().unwrap_or_default()).map_err(|_| UnknownTask)?;
        let reservation = Reservation { qty: wire.qty.ok_or(UnknownTask)?, order_no, revision: wire.revision.ok_or(UnknownTask)? };
        match topic {
            "release" => {
                let release = Release { user, reservation, epoch: wire.epoch, generation: wire.generation.ok_or(UnknownTask)? };
                Ok(Self::Release { lot, release })
            }
            "reserve" => Ok(Self::Reserve { lot, user, reservation }),
            _ => Err(UnknownTask),
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wire {
    order_no: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lot: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qty: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pay_no: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount_cents: Option<u64>,
}

impl Wire {
    fn of(order_no: &OrderNo) -> Self {
        Self { order_no: order_no.to_string(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_reads_back_and_has_a_key_of_its_own() {
        let lot = Lot { activity: ActivityId(u64::MAX), sku: SkuId(2) };
        let user = PrincipalId::parse("a").expect("valid");
        let reservation = Reservation { qty: 3, order_no: OrderNo::from_bits([7; 10]), revision: 2 };
        let release = Release { user: user.clone(), reservation: reservation.clone(), epoch: None, generation: 1 };
        let refund =
            Task::Refund { order_no: OrderNo::from_bits([7; 10]), pay_no: PayNo::parse("p\"1").expect("valid"), amount_cents: u64::MAX };
        let tasks = [
            Task::Release { lot, release: release.clone() },
            Task::Release { lot, release: Release { epoch: Some(4), ..release } },
            Task::Reserve { lot, user, reservation },
            refund,
        ];
        for task in tasks {
            assert_eq!(Task::decode(task.topic(), &task.encode()), Ok(task.clone()));
            let of_lot = task.dedupe_key().starts_with("18446744073709551615:2:");
            assert_eq!(of_lot, task.topic() != "refund");
        }
    }

    #[test]
    fn what_nobody_of_ours_wrote_is_told_apart() {
        for (topic, payload) in
            [("release", "{}"), ("refund", "[]"), ("reserve", "nonsense"), ("other", "{\"orderNo\":\"SKAAAAAAAAAAAAAAAA\"}")]
        {
            assert_eq!(Task::decode(topic, payload), Err(UnknownTask), "{topic} {payload}");
        }
    }

    #[test]
    fn pauses_double_up_to_ten_minutes() {
        assert_eq!([1, 2, 3, 10, 11, 20].map(|attempts| retry_after(attempts).as_secs()), [1, 2, 4, 512, 600, 600]);
        let whole: Duration = (1..ATTEMPTS_MAX).map(retry_after).sum();
        assert!((100..120).contains(&(whole.as_secs() / 60)), "{whole:?}");
    }
}
