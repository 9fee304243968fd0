//! Ledger: the relational store that decides who wins, and where a message's sequence number is born.

use std::time::Duration;

use async_trait::async_trait;

use crate::chat::{AgentLoad, Committed, Lease, MessageRecord, Page, Party, Position, ReadMark, Send as ChatSend, SessionRecord, Side};
use crate::id::{ActivityId, Lot, OrderNo, PayNo, PrincipalId, SessionId, ShopId};
use crate::ports::PortResult;
use crate::sale::{
    ActivityRecord, CancelOutcome, CreateOutcome, DecideOutcome, Decision, Letter, LotBooks, LotRecord, NewActivity, NewLetter, OrderEvent,
    OrderRecord, OutboxEntry, PayOutcome, Persisted, PublishOutcome, SaleTerms, SkuUpsert, StepOutcome, Verdict,
};
use crate::time::UnixMillis;

/// Sales and orders.
///
/// Promise: each call is one transaction, durable when it returns `Ok`. Units sold never exceed the units of the lot,
/// and there is at most one live order per (user, activity, sku), whatever is called how often. What an order changes is
/// decided by the rules of [`crate::sale::order`]; what is owed to the outside is in the outbox in the same transaction.
#[async_trait]
pub trait SaleLedger: Send + Sync {
    /// Creates a SKU, or renames and reprices it and adds to its stock.
    async fn upsert_sku(&self, sku: &SkuUpsert) -> PortResult<()>;

    /// Creates a draft activity. Every SKU must exist.
    async fn create_activity(&self, activity: &NewActivity) -> PortResult<CreateOutcome>;

    /// Draft to published: locks each product's units in its SKU, all or none. Publishing again changes nothing.
    async fn publish(&self, activity: ActivityId) -> PortResult<PublishOutcome>;

    /// Published to closing.
    async fn close(&self, activity: ActivityId) -> PortResult<StepOutcome>;

    /// Closing to settled: what is locked and not sold is free again, and every lot's epoch is raised, so that no later
    /// event becomes an order. Whoever asks has seen each lot closed and its events written.
    async fn settle(&self, activity: ActivityId) -> PortResult<StepOutcome>;

    /// Draft, or published and not begun at `now`, to void: what was locked is free again, and every lot's epoch is raised.
    async fn void(&self, activity: ActivityId, now: UnixMillis) -> PortResult<StepOutcome>;

    /// One activity with its products.
    async fn activity(&self, activity: ActivityId) -> PortResult<Option<ActivityRecord>>;

    /// Every lot of an activity that is published or closing, or was settled and has not ended more than a day before
    /// `now`, at most 10,000.
    async fn lots(&self, now: UnixMillis) -> PortResult<Vec<LotRecord>>;

    /// What the books say of a lot, read at one instant.
    async fn books(&self, lot: Lot) -> PortResult<Option<LotBooks>>;

    /// Raises the lot's epoch from exactly `from` to `from + 1` and returns the terms of the new epoch: what is left, who
    /// holds an order and whose order was closed, computed from this ledger. `None` when the epoch is no longer `from`, or
    /// the activity is not published or closing.
    async fn raise_epoch(&self, lot: Lot, from: u32) -> PortResult<Option<SaleTerms>>;

    /// Takes or prolongs the leases of `lots` (at most 10,000) for `ttl`, as far as nobody else holds them, and says which
    /// are held now. A new holder gets a higher token. A `ttl` of zero gives back what `owner` holds.
    async fn lease_lots(&self, owner: &str, lots: &[Lot], ttl: Duration) -> PortResult<Vec<LotLease>>;

    /// Writes orders for `events` (at most 1,000, all of the lease's lot), expiring at `now` plus the activity's pay time. One
    /// outcome per event, in order. An event seen before gets the outcome it got before, or [`Persisted::Closed`] once its
    /// order is closed. Fails with [`crate::ports::PortErrorKind::Fenced`] and writes nothing when the lease is no longer
    /// held.
    async fn persist(&self, lease: &LotLease, events: &[OrderEvent], now: UnixMillis) -> PortResult<Vec<Persisted>>;

    /// One order.
    async fn order(&self, order_no: &OrderNo) -> PortResult<Option<OrderRecord>>;

    /// Closes an unpaid order for its buyer.
    async fn cancel(&self, order_no: &OrderNo, user: &PrincipalId, now: UnixMillis) -> PortResult<CancelOutcome>;

    /// Closes unpaid orders that expired at or before `deadline`, oldest first, at most `max` (500), and says which.
    async fn expire(&self, deadline: UnixMillis, max: u32, now: UnixMillis) -> PortResult<Vec<OrderRecord>>;

    /// Pays an order.
    async fn pay(&self, order_no: &OrderNo, pay_no: &PayNo, now: UnixMillis) -> PortResult<PayOutcome>;

    /// Tasks that are due at `now`, oldest first, at most `max` (200); others do not see them for
    /// [`crate::sale::outbox::HIDDEN_FOR`].
    async fn take_tasks(&self, now: UnixMillis, max: u32) -> PortResult<Vec<OutboxEntry>>;

    /// These are done.
    async fn finish_tasks(&self, ids: &[u64]) -> PortResult<()>;

    /// This one failed with `error`: it is due again at `again`, or, with `None`, is given up and becomes a dead letter.
    async fn fail_task(&self, id: u64, error: &str, again: Option<UnixMillis>) -> PortResult<()>;

    /// Writes a dead letter, or the new error and attempts of one that is there; a letter that was decided is open again.
    async fn write_letter(&self, letter: &NewLetter, now: UnixMillis) -> PortResult<()>;

    /// Letters with an id above `after`, in order, at most `max` (1,000); only open ones, or all.
    async fn letters(&self, open_only: bool, after: u64, max: u32) -> PortResult<Vec<Letter>>;

    /// Letters that are open.
    async fn letters_open(&self) -> PortResult<u64>;

    /// Decides an open letter. A retried task is due at once; a retried invariant of the ledger ([`crate::sale::Invariant::SoldIsLive`],
    /// [`crate::sale::Invariant::LockedIsPromised`]) is mended from the rows, with an entry in the stock ledger.
    async fn decide_letter(&self, id: u64, verdict: Verdict, decision: &Decision) -> PortResult<DecideOutcome>;
}

/// A lot in the hands of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LotLease {
    /// The lot.
    pub lot: Lot,
    /// Rises with each new holder.
    pub token: u64,
}

/// Chat sessions and messages.
///
/// Promise: per session, sequence numbers are 1, 2, 3 … without a gap, each born in the transaction that stores its
/// message; a (session, sender, client message id) is stored at most once. Every call that takes a shop or a party finds only
/// what belongs to it.
#[async_trait]
pub trait ChatLedger: Send + Sync {
    /// The user's open session of this shop and subject, created when there is none.
    async fn open_session(&self, shop: ShopId, user: &PrincipalId, subject: &str, now: UnixMillis) -> PortResult<SessionRecord>;

    /// Registers an agent of a shop; known agents are left alone.
    async fn upsert_agent(&self, shop: ShopId, agent: &PrincipalId) -> PortResult<()>;

    /// Every agent of a shop with the unread messages of its open sessions, at most 1,000.
    async fn agents(&self, shop: ShopId) -> PortResult<Vec<AgentLoad>>;

    /// Open sessions of a shop that nobody serves, oldest first, at most 100.
    async fn waiting(&self, shop: ShopId) -> PortResult<Vec<SessionRecord>>;

    /// Gives a session to an agent of the same shop if nobody serves it; says whether it did.
    async fn assign(&self, session: SessionId, agent: &PrincipalId) -> PortResult<bool>;

    /// A session that `party` belongs to.
    async fn session(&self, party: &Party, session: SessionId) -> PortResult<Option<SessionRecord>>;

    /// The party's open sessions, latest activity first, at most `limit`.
    async fn sessions(&self, party: &Party, limit: u32) -> PortResult<Vec<SessionRecord>>;

    /// Takes or prolongs the lease of a chat partition for `ttl`. A new holder gets a higher token. `None` while somebody
    /// else holds it.
    async fn lease(&self, partition: u16, owner: &str, ttl: Duration) -> PortResult<Option<Lease>>;

    /// Stores messages in the order given, at most 256, under `lease`. One outcome per message. Fails with
    /// [`crate::ports::PortErrorKind::Fenced`] and stores nothing when the lease is no longer held.
    async fn commit(&self, lease: &Lease, sends: &[ChatSend], now: UnixMillis) -> PortResult<Vec<Committed>>;

    /// Messages of a session in ascending order of seq.
    async fn messages(&self, session: SessionId, page: Page) -> PortResult<Vec<MessageRecord>>;

    /// Moves a side's read cursor forward; it never moves back. Says where everything stands afterwards.
    async fn mark_read(&self, session: SessionId, side: Side, seq: u64) -> PortResult<ReadMark>;

    /// Epoch and highest seq of each session that exists.
    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<(SessionId, Position)>>;
}
