//! The agents of a shop at one moment: what they have to do, and who of them is there. What choices are made from.

use gateway_core::chat::{AgentLoad, Party, assign};
use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::ports::PortResult;
use gateway_core::time::UnixMillis;

use super::Reception;

/// The agents of a shop.
pub(crate) struct Staff {
    shop: ShopId,
    loads: Vec<AgentLoad>,
    /// `alive[i]` speaks for `loads[i]`.
    alive: Vec<bool>,
}

impl Reception {
    /// Reads the staff of a shop. Fails when presence is away: then nobody knows who is there.
    pub(crate) async fn staff(&self, shop: ShopId, now: UnixMillis) -> PortResult<Staff> {
        let loads = self.chats.agents(shop).await?;
        let parties: Vec<Party> = loads.iter().map(|load| Party::agent(shop, load.agent.clone())).collect();
        let alive = self.presence.online(&parties, self.patience.asked_at(now)).await?;
        Ok(Staff { shop, loads, alive })
    }
}

impl Staff {
    /// Everybody who is registered, and whether they are there.
    pub(crate) fn everybody(&self) -> impl Iterator<Item = (&AgentLoad, bool)> {
        self.loads.iter().zip(self.alive.iter().copied())
    }

    /// Everybody who is there, with what they have to do.
    pub(super) fn there(&self) -> impl Iterator<Item = &AgentLoad> {
        self.everybody().filter(|(_, alive)| *alive).map(|(load, _)| load)
    }

    /// Everybody who is there, as one who hears events.
    pub(super) fn parties(&self) -> Vec<Party> {
        self.there().map(|load| Party::agent(self.shop, load.agent.clone())).collect()
    }

    /// An agent of the shop, there or not.
    pub(super) fn find(&self, agent: &PrincipalId) -> Option<&AgentLoad> {
        self.loads.iter().find(|load| load.agent == *agent)
    }

    /// Who gets the next session.
    pub(super) fn choose(&self, open_max: u32) -> Option<&AgentLoad> {
        assign::choose(&self.loads, &self.alive, open_max)
    }

    /// What that choice is made from, in words.
    pub(super) fn explain(&self, open_max: u32) -> String {
        assign::explain(&self.loads, &self.alive, open_max)
    }

    /// The same without one of them.
    pub(super) fn without(&self, agent: &PrincipalId) -> Self {
        let (loads, alive) = self.everybody().filter(|(load, _)| load.agent != *agent).map(|(load, alive)| (load.clone(), alive)).unzip();
        Self { shop: self.shop, loads, alive }
    }

    /// `agent` has a session more, with `unread` messages to read.
    pub(super) fn took(&mut self, agent: &PrincipalId, unread: u64) {
        if let Some(load) = self.loads.iter_mut().find(|load| load.agent == *agent) {
            load.open_sessions += 1;
            load.unread += unread;
        }
    }
}
