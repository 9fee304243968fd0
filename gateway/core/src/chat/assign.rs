//! Which agent gets a waiting session: a pure choice among loads, with the reason in words.
//!
//! What never happens here: reading loads, asking who is online, writing the assignment. Called by the gateway's reception,
//! which does.

use std::fmt::Write as _;

use crate::chat::AgentLoad;
use crate::id::PrincipalId;

/// Bytes of an explanation at most; as much as [`crate::chat::Handover::detail`] takes.
pub const DETAIL_MAX: usize = 2_000;

/// Bytes kept for the end of an explanation: how many more there are, and how many are not there.
const DETAIL_END: usize = 60;

/// Of the agents who are there, take new sessions and have room for one more, the one with the fewest unread messages; among
/// equals the one with fewer open sessions; among equals the smallest id, so that two workers with the same view choose the
/// same agent. `online[i]` speaks for `loads[i]`; an agent about whom nothing is known counts as gone. `open_max` is the limit
/// of an agent that wants no lower one. `None` when there is nobody.
#[must_use]
pub fn choose<'a>(loads: &'a [AgentLoad], online: &[bool], open_max: u32) -> Option<&'a AgentLoad> {
    there(loads, online).filter(|load| hindrance(load, open_max).is_none()).min_by(|a, b| rank(a).cmp(&rank(b)))
}

/// Why [`choose`] chooses as it does: everybody who is there, the best first and those who get nothing last, with the numbers
/// that were compared. One line of at most [`DETAIL_MAX`] bytes:
/// `7 unread 2 open 3/20, 8 unread 5 open 0/20, 9 busy unread 0 open 2/20; not there 4`.
#[must_use]
pub fn explain(loads: &[AgentLoad], online: &[bool], open_max: u32) -> String {
    let mut considered: Vec<_> = there(loads, online).map(|load| (hindrance(load, open_max), load)).collect();
    considered.sort_by(|(a, one), (b, other)| (a.is_some(), rank(one)).cmp(&(b.is_some(), rank(other))));
    let mut line = String::new();
    for (told, (hindrance, load)) in considered.iter().enumerate() {
        let mut entry = load.agent.as_str().to_owned();
        if let Some(hindrance) = hindrance {
            let _ = write!(entry, " {hindrance}");
        }
        let _ = write!(entry, " unread {} open {}/{}", load.unread, load.open_sessions, room(load, open_max));
        if line.len() + entry.len() > DETAIL_MAX - DETAIL_END {
            let _ = write!(line, " and {} more", considered.len() - told);
            break;
        }
        line += if told == 0 { "" } else { ", " };
        line += &entry;
    }
    if line.is_empty() {
        line += "nobody";
    }
    let _ = write!(line, "; not there {}", loads.len() - considered.len());
    line
}

fn there<'a>(loads: &'a [AgentLoad], online: &[bool]) -> impl Iterator<Item = &'a AgentLoad> {
    loads.iter().zip(online).filter(|(_, online)| **online).map(|(load, _)| load)
}

/// What is compared; the least comes first.
fn rank(load: &AgentLoad) -> (u64, u64, &PrincipalId) {
    (load.unread, load.open_sessions, &load.agent)
}

/// Why an agent who is there gets no new session.
fn hindrance(load: &AgentLoad, open_max: u32) -> Option<&'static str> {
    if !load.state.takes_new() {
        Some(load.state.as_str())
    } else if load.open_sessions >= u64::from(room(load, open_max)) {
        Some("full")
    } else {
        None
    }
}

/// How many open sessions an agent takes.
#[must_use]
pub fn room(load: &AgentLoad, open_max: u32) -> u32 {
    load.open_max.map_or(open_max, |wanted| wanted.min(open_max))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chat::AgentState;

    fn load(agent: &str, unread: u64, open_sessions: u64) -> AgentLoad {
        AgentLoad { agent: PrincipalId::parse(agent).unwrap(), state: AgentState::Online, unread, open_sessions, open_max: None }
    }

    fn chosen<'a>(loads: &'a [AgentLoad], online: &[bool]) -> Option<&'a str> {
        choose(loads, online, 3).map(|load| load.agent.as_str())
    }

    #[test]
    fn prefers_fewest_unread_then_fewest_sessions_then_id() {
        assert_eq!(chosen(&[load("a", 5, 0), load("b", 2, 2)], &[true, true]), Some("b"));
        assert_eq!(chosen(&[load("a", 2, 2), load("b", 2, 1)], &[true, true]), Some("b"));
        assert_eq!(chosen(&[load("b", 2, 1), load("a", 2, 1)], &[true, true]), Some("a"));
    }

    #[test]
    fn never_chooses_an_agent_who_is_away() {
        assert_eq!(chosen(&[load("a", 0, 0), load("b", 9, 2)], &[false, true]), Some("b"));
        assert_eq!(chosen(&[load("a", 0, 0)], &[false]), None);
        assert_eq!(chosen(&[load("a", 0, 0)], &[]), None);
        assert_eq!(chosen(&[], &[]), None);
    }

    #[test]
    fn never_chooses_one_who_takes_no_new_sessions_or_has_no_room() {
        for state in [AgentState::Busy, AgentState::Away, AgentState::Offline] {
            assert_eq!(chosen(&[AgentLoad { state, ..load("a", 0, 0) }, load("b", 9, 2)], &[true, true]), Some("b"), "{state:?}");
        }
        assert_eq!(chosen(&[load("a", 0, 3)], &[true]), None, "the deployment's limit");
        assert_eq!(chosen(&[AgentLoad { open_max: Some(1), ..load("a", 0, 1) }], &[true]), None, "its own");
        assert_eq!(chosen(&[AgentLoad { open_max: Some(99), ..load("a", 0, 3) }], &[true]), None, "the lower of the two");
    }

    #[test]
    fn an_explanation_names_everybody_who_was_considered_with_their_numbers() {
        let busy = AgentLoad { state: AgentState::Busy, ..load("c", 0, 1) };
        let loads = [load("full", 1, 3), load("b", 5, 0), load("gone", 0, 0), busy, AgentLoad { open_max: Some(2), ..load("a", 5, 0) }];
        assert_eq!(
            explain(&loads, &[true, true, false, true, true], 3),
            "a unread 5 open 0/2, b unread 5 open 0/3, c busy unread 0 open 1/3, full full unread 1 open 3/3; not there 1"
        );
        assert_eq!(explain(&[], &[], 3), "nobody; not there 0");
        assert_eq!(explain(&loads, &[false; 5], 3), "nobody; not there 5");
    }

    proptest! {
        #[test]
        fn an_explanation_begins_with_the_chosen_and_is_never_too_long(
            agents in prop::collection::vec(("[a-z]{1,64}", 0_u64..=u64::MAX, 0_u64..6, 0_usize..4, prop::option::of(0_u32..9), any::<bool>()), 0..200)
        ) {
            let (mut loads, mut online) = (Vec::new(), Vec::new());
            for (agent, unread, open_sessions, state, open_max, there) in agents {
                loads.push(AgentLoad { state: AgentState::ALL[state], open_max, ..load(&agent, unread, open_sessions) });
                online.push(there);
            }
            let line = explain(&loads, &online, 4);
            prop_assert!(line.len() <= DETAIL_MAX && !line.contains('\n'), "{} bytes", line.len());
            if let Some(chosen) = choose(&loads, &online, 4) {
                let begin = format!("{} unread {} open {}/", chosen.agent, chosen.unread, chosen.open_sessions);
                prop_assert!(line.starts_with(&begin), "{line}");
            }
        }
    }
}
