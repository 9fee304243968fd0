//! What the sockets of a node share, and the one task that looks after it.
//!
//! What never happens here: anything for a single socket. Made by `wiring`, part of the node.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::Chat;
use gateway_core::ports::{Bus, Vault};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::breaker::Breaker;
use crate::node::Node;
use crate::socket::backlog::Backlog;
use crate::socket::gate::Gate;
use crate::socket::hub::Hub;
use crate::socket::nonces::Used;
use crate::socket::reads::Positions;

/// How often the list of revoked tokens is compared with the version that was applied: a socket ends well within a second.
const REVOKED_EVERY: Duration = Duration::from_millis(200);

/// How often the queues of shops are looked after.
const QUEUES_EVERY: Duration = Duration::from_secs(1);

/// What the sockets of a node share.
pub(crate) struct Switchboard {
    /// Who hears whom.
    pub(crate) hub: Arc<Hub>,
    /// How fast sockets are opened.
    pub(crate) gate: Gate,
    /// Whether the queue is away.
    pub(crate) queue: Breaker,
    /// Whether the store of roaming lists and nonces is away.
    pub(crate) roaming: Breaker,
    /// Questions for positions.
    pub(crate) positions: Positions,
    /// Nonces used here.
    pub(crate) nonces: Used,
    /// How long queues are.
    pub(crate) backlog: Backlog,
}

impl Switchboard {
    /// Nobody is connected yet.
    pub(crate) fn new(chat: &Chat, bus: Arc<dyn Bus>, vault: Arc<dyn Vault>) -> Self {
        Self {
            hub: Hub::new(bus, vault),
            gate: Gate::new(chat.connects_per_second, chat.connect_wait),
            queue: Breaker::default(),
            roaming: Breaker::default(),
            positions: Positions::default(),
            nonces: Used::default(),
            backlog: Backlog::default(),
        }
    }
}

/// Ends sockets whose tokens are revoked, tells all when the node drains, and lets bots catch up. Runs until it is aborted.
pub(crate) async fn tend(node: Arc<Node>) {
    // Side by side, because a look at a queue may take as long as its store's deadline.
    tokio::join!(watch(&node), sweep(&node));
}

async fn watch(node: &Node) {
    let list = &node.config.tokens.revoked_list;
    let mut looks = ticks(REVOKED_EVERY);
    let (mut applied, mut draining) = (0, false);
    loop {
        // Both branches are cancel safe.
        tokio::select! {
            _ = looks.tick() => {}
            () = node.drain.wait(), if !draining => {
                draining = true;
                node.switchboard.hub.drain();
            }
        }
        let version = node.lists.version(list);
        if version != applied {
            applied = version;
            node.switchboard.hub.revoke(|name| node.lists.contains(list, name));
        }
    }
}

async fn sweep(node: &Node) {
    let mut looks = ticks(QUEUES_EVERY);
    loop {
        looks.tick().await;
        node.switchboard.backlog.sweep(node).await;
    }
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
