//! Admission: the flash-sale stock that decides who may try.

use async_trait::async_trait;

use crate::id::{OrderNo, PrincipalId};
use crate::ports::PortResult;
use crate::sale::{
    Admit, ClaimedEvent, Held, OrderResult, Release, Reservation, Reserved, SaleAttempt, SaleState, SaleStock, SaleTerms, Shard,
    StockVersion, Survey,
};

/// What became of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installed {
    /// The terms are in force.
    Yes,
    /// A sale of the same or a higher epoch is there already; nothing changed.
    Stale,
}

/// The stock of every shard, its buyers, and the log of order events.
///
/// Promise: per shard every call is one atomic step, and steps of one shard are totally ordered; [`Admission::survey`] reads
/// in several. The decision, the reservation and the order event of an attempt happen together or not at all. Time is the
/// store's own clock. Losing this store may lose admissions but never contradicts itself: stock, buyers and events of a
/// shard roll back together.
#[async_trait]
pub trait Admission: Send + Sync {
    /// Judges `attempts` (at most 64) in order, by the rules of [`crate::sale::admit`]. One answer per attempt.
    async fn admit(&self, shard: Shard, attempts: &[SaleAttempt]) -> PortResult<Vec<Admit>>;

    /// What `shard` knows of `user`.
    async fn held(&self, shard: Shard, user: &PrincipalId) -> PortResult<Option<Held>>;

    /// Puts `terms` in force when their epoch is higher than the one in force: stock, buyers, transfers and state are
    /// replaced. Events already logged stay. The current [`Admission::incarnation`] is remembered with the sale.
    async fn install(&self, shard: Shard, terms: &SaleTerms) -> PortResult<Installed>;

    /// Sets the state of the sale when it is in force with exactly `epoch`; says whether it was.
    async fn set_state(&self, shard: Shard, epoch: u32, state: SaleState) -> PortResult<bool>;

    /// The sale in force, if any.
    async fn stock(&self, shard: Shard) -> PortResult<Option<SaleStock>>;

    /// Gives a reservation back, as [`crate::sale::Sale::release`] says; `None`: there was nothing to give back.
    async fn release(&self, shard: Shard, release: &Release) -> PortResult<Option<StockVersion>>;

    /// Gives back what event `id` reserved, which did not become an order, and acknowledges the event, in one step; says when
    /// units came back. Nothing happens, and the event is not the caller's to acknowledge, when `consumer` has not claimed the event any more: an event that was given back
    /// and judged again, or judged by somebody else meanwhile, could become an order without units.
    async fn refuse(&self, shard: Shard, consumer: &str, id: &str, release: &Release) -> PortResult<Option<StockVersion>>;

    /// Gives a revived order its units again, as [`crate::sale::Sale::reserve`] says.
    async fn reserve(&self, shard: Shard, user: &PrincipalId, reservation: &Reservation) -> PortResult<Reserved>;

    /// Sends units to another shard of the lot, as [`crate::sale::Sale::send`] says; 0 without a sale in force.
    async fn send(&self, from: Shard, id: &str, to: u8, wanted: u32) -> PortResult<u32>;

    /// Takes the units of a transfer in, under exactly `epoch`, as [`crate::sale::Sale::receive`] says.
    async fn receive(&self, to: Shard, epoch: u32, id: &str, units: u32) -> PortResult<bool>;

    /// Everything in the shard, as it was at one instant. `None`: no sale is in force, or it did not stand still while it
    /// was read.
    async fn survey(&self, shard: Shard) -> PortResult<Option<Survey>>;

    /// Lets the store forget the shard in seven days, when its sale is in force with exactly `epoch` and closed; says
    /// whether it was.
    async fn retire(&self, shard: Shard, epoch: u32) -> PortResult<bool>;

    /// Order events for `consumer`, oldest first, at most `max`: those it claimed before and did not acknowledge, then
    /// those another consumer left unacknowledged for longer than the configured idle time, then new ones. Does not wait.
    /// A shard without a sale yields none.
    async fn claim(&self, shard: Shard, consumer: &str, max: usize) -> PortResult<Vec<ClaimedEvent>>;

    /// Acknowledges events by id; unknown ids are ignored.
    async fn acknowledge(&self, shard: Shard, ids: &[String]) -> PortResult<()>;

    /// Events logged and not yet acknowledged, claimed or not.
    async fn backlog(&self, shard: Shard) -> PortResult<u64>;

    /// Stores final results for seven days.
    async fn put_results(&self, results: &[(OrderNo, OrderResult)]) -> PortResult<()>;

    /// A stored final result.
    async fn result(&self, order_no: &OrderNo) -> PortResult<Option<OrderResult>>;

    /// Names the life of the store that holds `shard`: a value that changes whenever it may have come back with older data.
    async fn incarnation(&self, shard: Shard) -> PortResult<String>;
}
