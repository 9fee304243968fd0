//! Which agent gets a waiting session: a pure choice among loads, with the reason in words.
//!
//! What never happens here: reading loads, asking who is online, writing the assignment. Called by the worker, which does.

use crate::chat::AgentLoad;

/// The word in the `assigned` frame for a choice made by [`choose`].
pub const REASON_LEAST_UNREAD: &str = "least_unread";

/// The online agent with the fewest unread messages; among equals the one with fewer open sessions; among equals the
/// smallest id, so that two workers with the same view choose the same agent. `online[i]` speaks for `loads[i]`; an agent
/// about whom nothing is known counts as offline. `None` when nobody is online.
#[must_use]
pub fn choose<'a>(loads: &'a [AgentLoad], online: &[bool]) -> Option<&'a AgentLoad> {
    loads
        .iter()
        .zip(online)
        .filter_map(|(load, online)| online.then_some(load))
        .min_by(|a, b| (a.unread, a.open_sessions, &a.agent).cmp(&(b.unread, b.open_sessions, &b.agent)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PrincipalId;

    fn load(agent: &str, unread: u64, open_sessions: u64) -> AgentLoad {
        AgentLoad { agent: PrincipalId::parse(agent).unwrap(), unread, open_sessions }
    }

    fn chosen<'a>(loads: &'a [AgentLoad], online: &[bool]) -> Option<&'a str> {
        choose(loads, online).map(|load| load.agent.as_str())
    }

    #[test]
    fn prefers_fewest_unread_then_fewest_sessions_then_id() {
        assert_eq!(chosen(&[load("a", 5, 0), load("b", 2, 9)], &[true, true]), Some("b"));
        assert_eq!(chosen(&[load("a", 2, 3), load("b", 2, 1)], &[true, true]), Some("b"));
        assert_eq!(chosen(&[load("b", 2, 1), load("a", 2, 1)], &[true, true]), Some("a"));
    }

    #[test]
    fn never_chooses_an_agent_who_is_away() {
        assert_eq!(chosen(&[load("a", 0, 0), load("b", 9, 9)], &[false, true]), Some("b"));
        assert_eq!(chosen(&[load("a", 0, 0)], &[false]), None);
        assert_eq!(chosen(&[load("a", 0, 0)], &[]), None);
        assert_eq!(chosen(&[], &[]), None);
    }
}
