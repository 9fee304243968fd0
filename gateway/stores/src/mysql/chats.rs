//! The chat ledger: the port, and beside this file one room for each thing it speaks of.
//!
//! Locks are taken in one order everywhere: a partition's lease, sessions by id, an agent, messages and devices of a locked
//! session. What never happens here: a sequence number given out, or a cursor or a counter moved, without the session's row
//! locked.

mod agents;
mod clocks;
mod handovers;
mod leases;
mod marks;
mod messages;
mod sessions;

use std::time::Duration;

use async_trait::async_trait;
use gateway_core::chat::sla::{Clock, Targets};
use gateway_core::chat::{
    AgentLoad, AgentState, Committed, DeviceCursor, Handover, HandoverOutcome, HandoverRecord, Lease, Mark, MarkOutcome, MessageRecord,
    Page, Party, Position, Send as ChatSend, Serving, SessionRecord, Side,
};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use gateway_core::ports::{ChatLedger, PortResult};
use gateway_core::time::UnixMillis;

use super::{MysqlStore, Trouble};

#[async_trait]
impl ChatLedger for MysqlStore {
    async fn open_session(&self, shop: ShopId, user: &PrincipalId, subject: &str, now: UnixMillis) -> PortResult<SessionRecord> {
        self.transact("open a session", || self.find_or_create(shop, user, subject, now)).await
    }

    async fn close_session(&self, party: &Party, session: SessionId, now: UnixMillis) -> PortResult<Option<(SessionRecord, bool)>> {
        self.transact("close a session", || self.write_closed(party, session, now)).await
    }

    async fn upsert_agent(&self, shop: ShopId, agent: &PrincipalId, now: UnixMillis) -> PortResult<()> {
        self.transact("register an agent", || self.write_agent(shop, agent, now)).await
    }

    async fn set_agent(&self, shop: ShopId, agent: &PrincipalId, state: AgentState, open_max: Option<u32>) -> PortResult<()> {
        self.transact("set an agent's state", || self.write_state(shop, agent, state, open_max)).await
    }

    async fn see_agents(&self, agents: &[(ShopId, PrincipalId)], now: UnixMillis) -> PortResult<()> {
        self.transact("note living agents", || self.write_seen(agents, now)).await
    }

    async fn agents(&self, shop: ShopId) -> PortResult<Vec<AgentLoad>> {
        self.transact("list the agents", || self.read_agents(shop)).await
    }

    async fn agent(&self, shop: ShopId, agent: &PrincipalId) -> PortResult<Option<AgentLoad>> {
        self.transact("read an agent", || self.read_agent(shop, agent)).await
    }

    async fn serving(&self, after: Option<(ShopId, &PrincipalId)>, max: u32) -> PortResult<Vec<Serving>> {
        self.transact("list who serves", || self.read_serving(after, max)).await
    }

    async fn shops_waiting(&self) -> PortResult<Vec<ShopId>> {
        self.transact("list shops with a waiting line", || self.read_shops_waiting()).await
    }

    async fn waiting(&self, shop: ShopId) -> PortResult<Vec<SessionRecord>> {
        self.transact("list waiting sessions", || self.read_waiting(shop)).await
    }

    async fn waiting_count(&self, shop: ShopId) -> PortResult<u64> {
        self.transact("count waiting sessions", || self.count_waiting(shop)).await
    }

    async fn hand_over(&self, handover: &Handover, now: UnixMillis) -> PortResult<HandoverOutcome> {
        self.transact("hand a session over", || self.write_handover(handover, now)).await
    }

    async fn handovers(&self, session: SessionId) -> PortResult<Vec<HandoverRecord>> {
        self.transact("list handovers", || self.read_handovers(session)).await
    }

    async fn session(&self, party: &Party, session: SessionId) -> PortResult<Option<SessionRecord>> {
        self.transact("read a session", || self.read_session(party, session)).await
    }

    async fn sessions(&self, party: &Party, limit: u32) -> PortResult<Vec<SessionRecord>> {
        self.transact("list sessions", || self.read_sessions(party, limit)).await
    }

    async fn lease(&self, partition: u16, owner: &str, ttl: Duration) -> PortResult<Option<Lease>> {
        self.transact("lease a partition", || self.take_lease(partition, owner, ttl)).await
    }

    async fn commit(
        &self,
        lease: Option<&Lease>,
        sends: &[ChatSend],
        announced: &[(SessionId, Position)],
        now: UnixMillis,
    ) -> PortResult<Vec<Committed>> {
        self.transact("commit messages", || self.write_messages(lease, sends, announced, now)).await
    }

    async fn messages(&self, session: SessionId, page: Page) -> PortResult<Vec<MessageRecord>> {
        self.transact("read messages", || self.read_messages(session, page)).await
    }

    async fn mark(&self, mark: &Mark, now: UnixMillis) -> PortResult<MarkOutcome> {
        self.transact("mark messages", || self.move_cursor(mark, now)).await
    }

    async fn devices(&self, session: SessionId) -> PortResult<Vec<DeviceCursor>> {
        self.transact("list devices", || self.read_devices(session)).await
    }

    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<(SessionId, Position)>> {
        self.transact("read the tops of sessions", || self.read_tops(sessions)).await
    }

    async fn take_overdue(&self, targets: &Targets, now: UnixMillis, max: u32) -> PortResult<Vec<(SessionRecord, Clock)>> {
        self.transact("take overdue clocks", || self.mark_overdue(targets, now, max)).await
    }
}

/// Whether a party takes part in a session: its user, or the agent who serves it, of its shop.
fn belongs(party: &Party, shop: ShopId, user: &PrincipalId, agent: Option<&PrincipalId>) -> bool {
    match party.side {
        Side::User => party.id == *user,
        Side::Agent => party.shop == Some(shop) && agent == Some(&party.id),
    }
}

/// `chat_message.side` and `chat_device.side`.
fn side_number(side: Side) -> u8 {
    match side {
        Side::User => 0,
        Side::Agent => 1,
    }
}

fn read_side(number: u8) -> Result<Side, Trouble> {
    match number {
        0 => Ok(Side::User),
        1 => Ok(Side::Agent),
        _ => Err(Trouble::Damaged("a side of a session")),
    }
}
