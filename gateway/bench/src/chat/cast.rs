//! Who plays in a run: a user per conversation, and agents with ten conversations each.
//!
//! Every agent is the only one of a shop of its own, so that a conversation has the same two sides from its start to its end: what
//! an agent did not see because it was somebody else's turn would be missing from its log without being lost.

use super::client::{Part, Role};
use super::script::{Script, Side};
use crate::rig::Rig;
use crate::{Holder, Sign};

/// Conversations of an agent.
pub(super) const PER_AGENT: usize = 10;

/// Agents first, then users.
pub(super) fn roles(rig: &Rig, sign: Sign<'_>, script: &Script, run: u32, seed: u64) -> anyhow::Result<(Vec<Role>, Vec<Role>)> {
    let conversations = script.by_conversation();
    let shop = |agent: usize| u64::from(run) * 100_000 + agent as u64 + 1;
    let part = |conversation: usize, side: Side| {
        let messages: &[u32] = &conversations[conversation];
        let own = messages.iter().copied().filter(|number| script.line(*number).side == side).collect();
        Part { conversation, subject: format!("conversation {run}-{conversation}"), own, messages: messages.len() }
    };
    let count = conversations.len();
    let agents = count.div_ceil(PER_AGENT);
    let holders: Vec<Holder> = (0..agents)
        .map(|agent| Holder::agent(format!("desk-{run}-{agent}"), shop(agent)))
        .chain((0..count).map(|user| Holder::user(format!("asker-{run}-{user}"))))
        .collect();
    let tokens = sign(rig.config(), &holders)?;
    let mut roles: Vec<Role> = holders
        .into_iter()
        .zip(tokens)
        .enumerate()
        .map(|(number, (holder, token))| {
            let (parts, agent) = match number.checked_sub(agents) {
                None => {
                    let own = number * PER_AGENT..count.min((number + 1) * PER_AGENT);
                    (own.map(|conversation| part(conversation, Side::Agent)).collect(), number)
                }
                Some(user) => (vec![part(user, Side::User)], user / PER_AGENT),
            };
            Role { holder, token, number, parts, shop: shop(agent), seed: seed.wrapping_add(number as u64) }
        })
        .collect();
    let users = roles.split_off(agents);
    Ok((roles, users))
}
