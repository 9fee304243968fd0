//! Gives the reception's rounds their time: one worker at a time, by a lease of its own.

use std::sync::Arc;

use gateway_core::ports::PortResult;

use crate::clock;
use crate::node::Node;
use crate::reception::{Reception, Rounds};
use crate::worker::{Pause, fail, rest};

/// The lease: a partition that no configuration has, for sessions there are 1,024 at most.
const LEASE: u16 = u16::MAX;

pub(super) async fn run(node: Arc<Node>) {
    let reception = Reception::of(&node);
    let period = reception.patience.period();
    // A holder that is late for two rounds still holds it.
    let ttl = node.config.worker.lease.max(3 * period);
    let mut rounds = Rounds::new(reception, node.config.chat.targets);
    let mut pause = Pause::new();
    while !node.drain.started() {
        let turned: PortResult<bool> = async {
            let held = node.ports.chats.lease(LEASE, &node.name, ttl).await?.is_some();
            if held {
                rounds.turn(clock::now()).await?;
            } else {
                rounds.look_away();
            }
            Ok(held)
        }
        .await;
        match turned {
            Ok(held) => {
                pause.reset();
                rest(&node, if held { period } else { ttl / 3 }).await;
            }
            Err(error) => {
                fail(&node, &mut pause, "cannot look after agents and waiting users now", &error).await;
            }
        }
    }
}
