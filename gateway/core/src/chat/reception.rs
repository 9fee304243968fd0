//! When an agent counts as there, and when its sessions go to somebody else: pure rules over what presence and ledger say.
//!
//! Presence says whether a connection beat lately, the ledger when that was last seen to be so. An agent who reloads a page
//! is without a connection for a moment, so nothing moves before `gone_after`; a node that was killed says nothing, so its
//! agents are gone counted from their last heartbeat. What never happens here: choosing who comes next (`assign`), asking
//! anybody, reading a clock. Called by the sockets and the worker's reception.

use std::time::Duration;

use super::{Reason, Serving};
use crate::time::UnixMillis;

/// How patient a deployment is with agents who are silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How often a living connection beats.
    pub heartbeat: Duration,
    /// How long presence outlives a beat; at least two heartbeats.
    pub presence_ttl: Duration,
    /// How long an agent may be without a living connection.
    pub gone_after: Duration,
}

/// What becomes of the sessions of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They stay.
    Keep,
    /// They go to somebody else, or wait.
    Leave(Reason),
}

impl Patience {
    /// How long after its last beat a connection counts as alive: one beat may be late or lost. Shorter than presence keeps
    /// it, because nobody is served by a node that was killed half a minute ago.
    #[must_use]
    pub fn fresh(&self) -> Duration {
        (2 * self.heartbeat).min(self.presence_ttl)
    }

    /// The instant at which presence is asked: a connection that is online then has beaten within [`Self::fresh`] of `now`.
    #[must_use]
    pub fn asked_at(&self, now: UnixMillis) -> UnixMillis {
        now.plus(self.presence_ttl.saturating_sub(self.fresh()))
    }

    /// When an agent that is alive at `now` was alive for certain. It never is later than its last beat, so that a silent
    /// agent's time is counted from that, not from when its silence was noticed.
    #[must_use]
    pub fn seen_at(&self, now: UnixMillis) -> UnixMillis {
        UnixMillis(now.0.saturating_sub(u64::try_from(self.fresh().as_millis()).unwrap_or(u64::MAX)))
    }

    /// Judges an agent. `alive`: whether a connection of it beats at `now`. `watched_since`: since when presence has been
    /// known without a pause; while nobody could look nobody can be blamed for not having been seen.
    #[must_use]
    pub fn judge(&self, serving: &Serving, alive: bool, watched_since: UnixMillis, now: UnixMillis) -> Verdict {
        let silent_since = serving.seen_at.max(watched_since);
        if !serving.state.keeps() {
            Verdict::Leave(Reason::AgentAway)
        } else if !alive && now.since(silent_since) >= self.gone_after {
            Verdict::Leave(Reason::AgentGone)
        } else {
            Verdict::Keep
        }
    }

    /// How often to look: often enough to be exact to a tenth, never so often that looking is the work.
    #[must_use]
    pub fn period(&self) -> Duration {
        (self.gone_after / 10).clamp(Duration::from_millis(200), Duration::from_secs(2))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chat::AgentState;
    use crate::id::{PrincipalId, ShopId};

    const PATIENCE: Patience =
        Patience { heartbeat: Duration::from_secs(10), presence_ttl: Duration::from_secs(30), gone_after: Duration::from_secs(30) };

    fn serving(state: AgentState, seen_at: u64) -> Serving {
        Serving { shop: ShopId(1), agent: PrincipalId::parse("7").unwrap(), state, seen_at: UnixMillis(seen_at), open_sessions: 1 }
    }

    fn judge(state: AgentState, seen_at: u64, alive: bool, watched_since: u64, now: u64) -> Verdict {
        PATIENCE.judge(&serving(state, seen_at), alive, UnixMillis(watched_since), UnixMillis(now))
    }

    #[test]
    fn whoever_left_the_desk_serves_nobody() {
        for alive in [true, false] {
            assert_eq!(judge(AgentState::Away, 100_000, alive, 0, 100_000), Verdict::Leave(Reason::AgentAway));
            assert_eq!(judge(AgentState::Offline, 100_000, alive, 0, 100_000), Verdict::Leave(Reason::AgentAway));
        }
    }

    #[test]
    fn a_short_silence_moves_nothing_and_a_long_one_does() {
        for state in [AgentState::Online, AgentState::Busy] {
            assert_eq!(judge(state, 100_000, false, 0, 105_000), Verdict::Keep, "a page was loaded again");
            assert_eq!(judge(state, 100_000, false, 0, 129_999), Verdict::Keep);
            assert_eq!(judge(state, 100_000, false, 0, 130_000), Verdict::Leave(Reason::AgentGone));
            assert_eq!(judge(state, 100_000, true, 0, 900_000), Verdict::Keep, "it is there");
        }
    }

    #[test]
    fn nobody_is_blamed_for_the_time_when_nobody_looked() {
        assert_eq!(judge(AgentState::Online, 0, false, 90_000, 100_000), Verdict::Keep);
        assert_eq!(judge(AgentState::Online, 0, false, 90_000, 120_000), Verdict::Leave(Reason::AgentGone));
    }

    #[test]
    fn a_killed_node_is_noticed_as_fast_as_it_may_be() {
        // The last beat at 100 s, looked at every second: gone 30 s after it and not 30 s after presence has forgotten it.
        let (beat, mut seen_at) = (100_000, 0);
        for now in (100_000..).step_by(1_000) {
            let alive = beat + 30_000 > PATIENCE.asked_at(UnixMillis(now)).0;
            if alive {
                seen_at = PATIENCE.seen_at(UnixMillis(now)).0;
            }
            if judge(AgentState::Online, seen_at, alive, 0, now) != Verdict::Keep {
                assert!((129_000..=131_000).contains(&now), "{now}");
                break;
            }
        }
    }

    proptest! {
        /// Looking at any rhythm at beats that never pause for longer than two heartbeats moves nothing; and once they stop
        /// the agent is gone within `gone_after` and one look, but not before the time is over.
        #[test]
        fn only_silence_moves_sessions(
            heartbeat in 1_u64..20_000, ttl_beats in 2_u64..5, gone_after in 1_u64..90_000, pauses in prop::collection::vec(1_u64..100, 1..20),
            look_every in 1_u64..3_000, born in 0_u64..1_000_000,
        ) {
            let millis = Duration::from_millis;
            let patience = Patience { heartbeat: millis(heartbeat), presence_ttl: millis(heartbeat * ttl_beats), gone_after: millis(gone_after) };
            let mut beats = vec![born];
            for percent in &pauses {
                // A beat may be late by nearly as long as it takes until the next one.
                let pause = heartbeat + heartbeat * percent / 101;
                beats.push(beats[beats.len() - 1] + pause);
            }
            let last = beats[beats.len() - 1];
            let (mut now, mut seen_at) = (born, born);
            loop {
                let beat = beats.iter().copied().filter(|beat| *beat <= now).max().unwrap_or(born);
                let alive = UnixMillis(beat).plus(patience.presence_ttl) > patience.asked_at(UnixMillis(now));
                if alive {
                    seen_at = seen_at.max(patience.seen_at(UnixMillis(now)).0);
                }
                match patience.judge(&serving(AgentState::Online, seen_at), alive, UnixMillis(born), UnixMillis(now)) {
                    Verdict::Keep => prop_assert!(now < last + (2 * heartbeat).max(gone_after) + look_every, "never noticed by {now}"),
                    verdict @ Verdict::Leave(_) => {
                        prop_assert_eq!(verdict, Verdict::Leave(Reason::AgentGone));
                        prop_assert!(now >= last + 2 * heartbeat, "too early at {now}");
                        break;
                    }
                }
                now += look_every;
            }
        }
    }
}
