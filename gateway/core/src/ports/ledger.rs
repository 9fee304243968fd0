//! Ledger: the relational store that decides who wins, and where a message's sequence number is born.

use std::time::Duration;

use async_trait::async_trait;

use crate::chat::sla::{Clock, Targets};
use crate::chat::{
    AgentLoad, AgentState, Committed, DeviceCursor, Handover, HandoverOutcome, HandoverRecord, Lease, Mark, MarkOutcome, MessageRecord,
    Page, Party, Position, Send as ChatSend, Serving, SessionRecord,
};
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

    /// Decides an open letter. A retried task is due at once; a retried message was queued again by the caller; a retried invariant of the ledger ([`crate::sale::Invariant::SoldIsLive`],
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
/// Promise: per session and epoch, sequence numbers rise by one without a gap, each born in the transaction that stores its
/// message, and begin with 1; a (session, sender, client message id) is stored at most once. Every call that takes a shop or a
/// party finds only what belongs to it: somebody else's session and one that does not exist are the same, on the same road.
#[async_trait]
pub trait ChatLedger: Send + Sync {
    /// The user's open session of this shop and subject, created when there is none.
    async fn open_session(&self, shop: ShopId, user: &PrincipalId, subject: &str, now: UnixMillis) -> PortResult<SessionRecord>;

    /// Closes a session that `party` belongs to; says the session as it is afterwards and whether it was open.
    async fn close_session(&self, party: &Party, session: SessionId, now: UnixMillis) -> PortResult<Option<(SessionRecord, bool)>>;

    /// Registers an agent of a shop; of a known one only `seen_at` changes.
    async fn upsert_agent(&self, shop: ShopId, agent: &PrincipalId, now: UnixMillis) -> PortResult<()>;

    /// What a registered agent says of itself, and how many open sessions it wants at most (`None`: as before).
    async fn set_agent(&self, shop: ShopId, agent: &PrincipalId, state: AgentState, open_max: Option<u32>) -> PortResult<()>;

    /// Connections of these agents are alive at `now`.
    async fn see_agents(&self, agents: &[(ShopId, PrincipalId)], now: UnixMillis) -> PortResult<()>;

    /// Every agent of a shop with its open sessions, at most 1,000.
    async fn agents(&self, shop: ShopId) -> PortResult<Vec<AgentLoad>>;

    /// One agent of a shop with its open sessions.
    async fn agent(&self, shop: ShopId, agent: &PrincipalId) -> PortResult<Option<AgentLoad>> {
        Ok(self.agents(shop).await?.into_iter().find(|load| load.agent == *agent))
    }

    /// Agents of all shops who have open sessions, by shop and id, those after `after`, at most `max` (1,000).
    async fn serving(&self, after: Option<(ShopId, &PrincipalId)>, max: u32) -> PortResult<Vec<Serving>>;

    /// Shops that have waiting sessions, at most 1,000.
    async fn shops_waiting(&self) -> PortResult<Vec<ShopId>>;

    /// Open sessions of a shop that nobody serves, those that wait longest first, at most 100.
    async fn waiting(&self, shop: ShopId) -> PortResult<Vec<SessionRecord>>;

    /// How many sessions of a shop wait.
    async fn waiting_count(&self, shop: ShopId) -> PortResult<u64>;

    /// Lets a session change hands if it is open and `from` serves it, and writes down why. Neither the limit of an agent's
    /// open sessions nor the shop's border is crossed, however many ask at once.
    async fn hand_over(&self, handover: &Handover, now: UnixMillis) -> PortResult<HandoverOutcome>;

    /// How a session has changed hands, oldest first: the latest 100.
    async fn handovers(&self, session: SessionId) -> PortResult<Vec<HandoverRecord>>;

    /// A session that `party` belongs to, open or closed. An agent also finds the waiting sessions of its shop.
    async fn session(&self, party: &Party, session: SessionId) -> PortResult<Option<SessionRecord>>;

    /// The party's open sessions, latest activity first, at most `limit`.
    async fn sessions(&self, party: &Party, limit: u32) -> PortResult<Vec<SessionRecord>>;

    /// Takes or prolongs the lease of a chat partition for `ttl`. A new holder gets a higher token. `None` while somebody
    /// else holds it.
    async fn lease(&self, partition: u16, owner: &str, ttl: Duration) -> PortResult<Option<Lease>>;

    /// Stores messages in the order given, at most 256. One outcome per message. With a `lease` it fails with
    /// [`crate::ports::PortErrorKind::Fenced`] and stores nothing when that is no longer held; without one the caller answers
    /// for the order of its own sender's messages. `announced` are positions that a second witness has seen: numbering goes
    /// on from there by [`crate::chat::witness::continue_from`]. Recalls are judged by [`crate::chat::recall`].
    async fn commit(
        &self,
        lease: Option<&Lease>,
        sends: &[ChatSend],
        announced: &[(SessionId, Position)],
        now: UnixMillis,
    ) -> PortResult<Vec<Committed>>;

    /// Messages of a session in ascending order of seq. One that was taken back comes without content.
    async fn messages(&self, session: SessionId, page: Page) -> PortResult<Vec<MessageRecord>>;

    /// Moves a cursor of the reader's side, and of its device, forward; neither ever moves back.
    async fn mark(&self, mark: &Mark, now: UnixMillis) -> PortResult<MarkOutcome>;

    /// The devices of a session's parties and how far each has come, at most 100.
    async fn devices(&self, session: SessionId) -> PortResult<Vec<DeviceCursor>>;

    /// Epoch and highest seq of each session that exists.
    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<(SessionId, Position)>>;

    /// Open sessions with a clock that runs longer than its target, each (session, clock) once per time it was started, at
    /// most `max` (100).
    async fn take_overdue(&self, targets: &Targets, now: UnixMillis, max: u32) -> PortResult<Vec<(SessionRecord, Clock)>>;
}
