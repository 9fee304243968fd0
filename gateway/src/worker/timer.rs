//! Closes orders that were not paid in time.
//!
//! What it closes is decided by the ledger's guarded update, so any number of workers may run it. Units go back to the sale by
//! the outbox, which the same transaction wrote.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use gateway_core::ports::PortResult;
use gateway_core::time::UnixMillis;

use crate::sale::desk::Desk;

/// Orders closed in one transaction.
pub(super) const CLOSED_MAX: usize = 500;

/// Buyers told at once.
const ABREAST: usize = 16;

/// The timer's step.
pub(super) struct Timer {
    desk: Desk,
    grace: Duration,
}

impl Timer {
    /// Orders are left alone for `grace` after their time is over: a payment may be on its way.
    pub(super) fn new(desk: Desk, grace: Duration) -> Self {
        Self { desk, grace }
    }

    /// Closes at most [`CLOSED_MAX`] orders that expired a grace ago, and says how many it closed.
    pub(super) async fn turn(&self, now: UnixMillis) -> PortResult<usize> {
        let grace = u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX);
        let deadline = UnixMillis(now.0.saturating_sub(grace));
        let closed = self.desk.ledger.expire(deadline, CLOSED_MAX as u32, now).await?;
        self.desk.metrics.orders_closed.with_label_values(&["expired"]).inc_by(closed.len() as u64);
        // While the sale lasts the outbox tells the buyers too; once it is settled nobody else does. Made beforehand: a closure
        // that borrows is not general enough for a task that moves between threads.
        let told: Vec<_> = closed.iter().map(|order| self.desk.conclude_or_log(&order.order_no)).collect();
        stream::iter(told).buffer_unordered(ABREAST).collect::<()>().await;
        let open = self.desk.ledger.letters_open().await?;
        self.desk.metrics.compensations_open.set(i64::try_from(open).unwrap_or(i64::MAX));
        Ok(closed.len())
    }
}
