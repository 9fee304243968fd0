//! Who serves whom: sessions get an agent, wait for one, change hands and end; agents come, go and say how they are.
//!
//! What lives here: the steps, over ports. `staff` is the view a choice is made from, `line` serves those who wait, `handing`
//! lets sessions change hands, `attendance` is about coming and going, `telling` about who hears of it. The functions of this
//! file are what sockets call; the worker's loop calls the steps themselves. What never happens here: a rule (core's `assign`
//! and `reception`), or settling a race: that is the ledger's compare-and-set, so any number of nodes and workers may do all of
//! this at once.

mod attendance;
mod handing;
mod line;
mod rounds;
mod staff;
mod telling;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use gateway_core::chat::connection::Transferred;
use gateway_core::chat::reception::Patience;
use gateway_core::chat::{AgentState, Party, SessionRecord};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use gateway_core::ports::{Bus, ChatLedger, PortError, PortResult, Presence};

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::telemetry::Metrics;

pub(crate) use self::rounds::Rounds;

/// What the steps act through, and the settings they follow.
#[derive(Clone)]
pub(crate) struct Reception {
    /// Who serves whom.
    pub chats: Arc<dyn ChatLedger>,
    /// Who has a living connection.
    pub presence: Arc<dyn Presence>,
    /// What devices hear.
    pub bus: Arc<dyn Bus>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Open sessions at which an agent gets no more, unless it wants fewer.
    pub open_max: u32,
    /// How long silence is borne.
    pub patience: Patience,
}

impl Reception {
    /// The reception of a process.
    pub(crate) fn of(node: &Node) -> Self {
        let chat = &node.config.chat;
        Self {
            chats: node.ports.chats.clone(),
            presence: node.ports.presence.clone(),
            bus: node.ports.bus.clone(),
            metrics: node.metrics.clone(),
            open_max: chat.agents.open_max,
            patience: Patience { heartbeat: chat.heartbeat, presence_ttl: chat.presence_ttl, gone_after: chat.agents.gone_after },
        }
    }

    /// Counts and notes what failed behind an answer that stands; the worker's rounds make it good.
    fn note<T>(&self, doing: &'static str, outcome: PortResult<T>) {
        if let Err(error) = outcome {
            self.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
            tracing::debug!(error = health::chain(&error), "{doing}");
        }
    }
}

/// Opens a session for `user`, or finds the open one, and gives it to an agent who is there. Without one it waits.
pub(crate) async fn open(node: &Node, user: &PrincipalId, shop: ShopId, subject: &str) -> Result<SessionRecord, PortError> {
    Reception::of(node).open(user, shop, subject, clock::now()).await
}

/// Closes a session that `party` belongs to: the session as it is afterwards, and whether it was open. Both sides hear of it,
/// and somebody who waits may get the place.
pub(crate) async fn close(node: &Node, party: &Party, session: SessionId) -> Result<Option<(SessionRecord, bool)>, PortError> {
    Reception::of(node).close(party, session, clock::now()).await
}

/// Hands a session over by hand. The agent who serves it may give it to an agent of its shop who is there and neither away nor
/// offline, however much that one has to do, or back to the waiting line (`None`); any agent of the shop may take one that
/// waits (`to` is the agent itself).
pub(crate) async fn transfer(node: &Node, party: &Party, session: SessionId, to: Option<PrincipalId>) -> Result<Transferred, PortError> {
    Reception::of(node).transfer(party, session, to.as_ref(), clock::now()).await
}

/// An agent's word on itself, and how many open sessions it wants at most (`None`: as before). Its devices and its users hear
/// of it. Away and offline give its sessions to others at once; online serves the waiting line.
pub(crate) async fn set_state(node: &Node, party: &Party, state: AgentState, open_max: Option<u32>) -> Result<(), PortError> {
    Reception::of(node).set_state(party, state, open_max, clock::now()).await
}

/// A connection of `party` is there: called once it hears its events and before its sessions are read. Says what an agent says
/// of itself. Fails only when an agent cannot be registered; what presence cannot be told now, the next heartbeat tells.
pub(crate) async fn arrive(node: &Node, party: &Party, connection: &str) -> Result<Option<AgentState>, PortError> {
    Reception::of(node).arrive(party, connection, clock::now()).await
}

/// A connection of `party` has ended. Nothing is lost when this is not called.
pub(crate) async fn leave(node: &Node, party: &Party, connection: &str) {
    Reception::of(node).leave(party, connection, clock::now()).await;
}
