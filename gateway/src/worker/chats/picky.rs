//! A chat ledger that cannot take some messages, is away for some calls, or commits and loses the answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::chat::sla::{Clock, Targets};
use gateway_core::chat::{
    AgentLoad, AgentState, Committed, DeviceCursor, Handover, HandoverOutcome, HandoverRecord, Lease, Mark, MarkOutcome, MessageRecord,
    Page, Party, Position, Send, Serving, SessionRecord,
};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use gateway_core::ports::{ChatLedger, PortError, PortErrorKind, PortResult, Store};
use gateway_core::time::UnixMillis;

/// What a call of `commit` meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meets {
    /// Nothing happens.
    Away,
    /// It makes no sense of the batch.
    Broken,
    /// It is done, and nobody hears of it.
    LostAnswer,
}

/// Passes everything on but some commits.
pub(super) struct Picky {
    pub(super) ledger: Arc<dyn ChatLedger>,
    /// Batches that hold a message with one of these contents are refused.
    pub(super) refuses: Mutex<Vec<&'static str>>,
    /// What the next commits meet.
    pub(super) next: Mutex<VecDeque<Meets>>,
    /// Contents of the commits that were passed on, in order.
    pub(super) committed: Mutex<Vec<Vec<String>>>,
    /// Commits asked for.
    pub(super) calls: Mutex<usize>,
}

impl Picky {
    pub(super) fn new(ledger: Arc<dyn ChatLedger>) -> Self {
        Self { ledger, refuses: Mutex::default(), next: Mutex::default(), committed: Mutex::default(), calls: Mutex::default() }
    }
}

fn failed(kind: PortErrorKind) -> PortError {
    PortError { kind, store: Store::Mysql, doing: "commit messages", source: None }
}

#[async_trait]
impl ChatLedger for Picky {
    async fn commit(
        &self,
        lease: Option<&Lease>,
        sends: &[Send],
        announced: &[(SessionId, Position)],
        now: UnixMillis,
    ) -> PortResult<Vec<Committed>> {
        *self.calls.lock().unwrap() += 1;
        let meets = self.next.lock().unwrap().pop_front();
        match meets {
            Some(Meets::Away) => return Err(failed(PortErrorKind::Unavailable)),
            Some(Meets::Broken) => return Err(failed(PortErrorKind::Broken)),
            Some(Meets::LostAnswer) | None => {}
        }
        if sends.iter().any(|send| self.refuses.lock().unwrap().contains(&send.content.as_str())) {
            return Err(failed(PortErrorKind::Broken));
        }
        let outcomes = self.ledger.commit(lease, sends, announced, now).await?;
        self.committed.lock().unwrap().push(sends.iter().map(|send| send.content.clone()).collect());
        if meets == Some(Meets::LostAnswer) { Err(failed(PortErrorKind::Unavailable)) } else { Ok(outcomes) }
    }

    async fn open_session(&self, shop: ShopId, user: &PrincipalId, subject: &str, now: UnixMillis) -> PortResult<SessionRecord> {
        self.ledger.open_session(shop, user, subject, now).await
    }

    async fn close_session(&self, party: &Party, session: SessionId, now: UnixMillis) -> PortResult<Option<(SessionRecord, bool)>> {
        self.ledger.close_session(party, session, now).await
    }

    async fn upsert_agent(&self, shop: ShopId, agent: &PrincipalId, now: UnixMillis) -> PortResult<()> {
        self.ledger.upsert_agent(shop, agent, now).await
    }

    async fn set_agent(&self, shop: ShopId, agent: &PrincipalId, state: AgentState, open_max: Option<u32>) -> PortResult<()> {
        self.ledger.set_agent(shop, agent, state, open_max).await
    }

    async fn see_agents(&self, agents: &[(ShopId, PrincipalId)], now: UnixMillis) -> PortResult<()> {
        self.ledger.see_agents(agents, now).await
    }

    async fn agents(&self, shop: ShopId) -> PortResult<Vec<AgentLoad>> {
        self.ledger.agents(shop).await
    }

    async fn serving(&self, after: Option<(ShopId, &PrincipalId)>, max: u32) -> PortResult<Vec<Serving>> {
        self.ledger.serving(after, max).await
    }

    async fn shops_waiting(&self) -> PortResult<Vec<ShopId>> {
        self.ledger.shops_waiting().await
    }

    async fn waiting(&self, shop: ShopId) -> PortResult<Vec<SessionRecord>> {
        self.ledger.waiting(shop).await
    }

    async fn waiting_count(&self, shop: ShopId) -> PortResult<u64> {
        self.ledger.waiting_count(shop).await
    }

    async fn hand_over(&self, handover: &Handover, now: UnixMillis) -> PortResult<HandoverOutcome> {
        self.ledger.hand_over(handover, now).await
    }

    async fn session(&self, party: &Party, session: SessionId) -> PortResult<Option<SessionRecord>> {
        self.ledger.session(party, session).await
    }

    async fn sessions(&self, party: &Party, limit: u32) -> PortResult<Vec<SessionRecord>> {
        self.ledger.sessions(party, limit).await
    }

    async fn lease(&self, partition: u16, owner: &str, ttl: Duration) -> PortResult<Option<Lease>> {
        self.ledger.lease(partition, owner, ttl).await
    }

    async fn messages(&self, session: SessionId, page: Page) -> PortResult<Vec<MessageRecord>> {
        self.ledger.messages(session, page).await
    }

    async fn mark(&self, mark: &Mark, now: UnixMillis) -> PortResult<MarkOutcome> {
        self.ledger.mark(mark, now).await
    }

    async fn devices(&self, session: SessionId) -> PortResult<Vec<DeviceCursor>> {
        self.ledger.devices(session).await
    }

    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<(SessionId, Position)>> {
        self.ledger.tops(sessions).await
    }

    async fn take_overdue(&self, targets: &Targets, now: UnixMillis, max: u32) -> PortResult<Vec<(SessionRecord, Clock)>> {
        self.ledger.take_overdue(targets, now, max).await
    }

    async fn handovers(&self, session: SessionId) -> PortResult<Vec<HandoverRecord>> {
        self.ledger.handovers(session).await
    }
}
