//! Admission: the flash-sale stock that decides who may try.

use async_trait::async_trait;

use crate::id::{Lot, OrderNo, PrincipalId};
use crate::ports::PortResult;
use crate::sale::{Admit, ClaimedEvent, OrderResult, Reservation, SaleAttempt, SaleState, SaleStock, SaleTerms};

/// What became of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installed {
    /// The terms are in force.
    Yes,
    /// A sale of the same or a higher epoch is there already; nothing changed.
    Stale,
}

/// The stock of every lot, its buyers, and the log of order events.
///
/// Promise: per lot every call is one atomic step; steps of one lot are totally ordered. The decision, the reservation
/// and the order event of an attempt happen together or not at all. Time is the store's own clock. Losing this store
/// may lose admissions but never contradicts itself: stock, buyers and events of a lot roll back together.
#[async_trait]
pub trait Admission: Send + Sync {
    /// Judges `attempts` (at most 64) in order, by the rules of [`crate::sale::admit`]. One answer per attempt.
    async fn admit(&self, lot: Lot, attempts: &[SaleAttempt]) -> PortResult<Vec<Admit>>;

    /// The reservation `user` holds in `lot`.
    async fn reservation(&self, lot: Lot, user: &PrincipalId) -> PortResult<Option<Reservation>>;

    /// Puts `terms` in force for `lot` when their epoch is higher than the one in force: stock, buyers and state are
    /// replaced. Events already logged stay. The current [`Admission::incarnation`] is remembered with the sale.
    async fn install(&self, lot: Lot, terms: &SaleTerms) -> PortResult<Installed>;

    /// Sets the state of the sale when it is in force with exactly `epoch`; says whether it was.
    async fn set_state(&self, lot: Lot, epoch: u32, state: SaleState) -> PortResult<bool>;

    /// The sale in force, if any.
    async fn stock(&self, lot: Lot) -> PortResult<Option<SaleStock>>;

    /// Gives a reservation back: only when exactly `reservation` is held by `user` under `epoch`. Says whether it was;
    /// a second call is a no-op.
    async fn release(&self, lot: Lot, epoch: u32, user: &PrincipalId, reservation: &Reservation) -> PortResult<bool>;

    /// Order events for `consumer`, oldest first, at most `max`: those it claimed before and did not acknowledge, then
    /// those another consumer left unacknowledged for longer than the configured idle time, then new ones. Does not wait.
    /// A lot without a sale yields none.
    async fn claim(&self, lot: Lot, consumer: &str, max: usize) -> PortResult<Vec<ClaimedEvent>>;

    /// Acknowledges events by id; unknown ids are ignored.
    async fn acknowledge(&self, lot: Lot, ids: &[String]) -> PortResult<()>;

    /// Events logged and not yet acknowledged, claimed or not.
    async fn backlog(&self, lot: Lot) -> PortResult<u64>;

    /// Stores final results for seven days.
    async fn put_results(&self, results: &[(OrderNo, OrderResult)]) -> PortResult<()>;

    /// A stored final result.
    async fn result(&self, order_no: &OrderNo) -> PortResult<Option<OrderResult>>;

    /// Names the store's life: a value that changes whenever the store may have come back with older data.
    async fn incarnation(&self) -> PortResult<String>;
}
