//! Ledger: the relational store that decides who wins, and where a message's sequence number is born.

use std::time::Duration;

use async_trait::async_trait;

use crate::chat::{AgentLoad, Committed, Lease, MessageRecord, Page, Party, Position, ReadMark, Send as ChatSend, SessionRecord, Side};
use crate::id::{ActivityId, Lot, OrderNo, PrincipalId, SessionId, ShopId};
use crate::ports::PortResult;
use crate::sale::{
    ActivityRecord, CreateOutcome, LotRecord, NewActivity, OrderEvent, OrderRecord, Persisted, PublishOutcome, SaleTerms, SkuUpsert,
};
use crate::time::UnixMillis;

/// Sales and orders.
///
/// Promise: each call is one transaction, durable when it returns `Ok`. Units sold never exceed the units of the lot,
/// and there is at most one live order per (user, activity, sku), whatever is called how often.
#[async_trait]
pub trait SaleLedger: Send + Sync {
    /// Creates a SKU, or renames and reprices it and adds to its stock.
    async fn upsert_sku(&self, sku: &SkuUpsert) -> PortResult<()>;

    /// Creates a draft activity. Every SKU must exist.
    async fn create_activity(&self, activity: &NewActivity) -> PortResult<CreateOutcome>;

    /// Draft to published: locks each product's units in its SKU, all or none. Publishing again changes nothing.
    async fn publish(&self, activity: ActivityId) -> PortResult<PublishOutcome>;

    /// One activity with its products.
    async fn activity(&self, activity: ActivityId) -> PortResult<Option<ActivityRecord>>;

    /// Every lot of an activity that is published and has not ended more than a day before `now`, at most 10,000.
    async fn lots(&self, now: UnixMillis) -> PortResult<Vec<LotRecord>>;

    /// Raises the lot's epoch from exactly `from` to `from + 1` and returns the terms of the new epoch: what is left and
    /// who holds an order, computed from this ledger. `None` when the epoch is no longer `from`.
    async fn raise_epoch(&self, lot: Lot, from: u32) -> PortResult<Option<SaleTerms>>;

    /// Writes orders for `events` (at most 200, all of `lot`), expiring at `now` plus the activity's pay time. One outcome
    /// per event, in order. An event seen before gets the outcome it got before.
    async fn persist(&self, lot: Lot, events: &[OrderEvent], now: UnixMillis) -> PortResult<Vec<Persisted>>;

    /// One order.
    async fn order(&self, order_no: &OrderNo) -> PortResult<Option<OrderRecord>>;
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
