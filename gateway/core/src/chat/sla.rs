//! Service levels: three clocks of a session, what starts and stops them, and when one is overdue.
//!
//! First response: from the user's first unanswered message to the first answer of a person. Next response: the same for
//! every later question. Resolution: from opening to closing. A bot answers nobody. What never happens here: reading a clock or
//! telling anybody. Called by the ledgers, when a message is stored, and by the worker's reception.

use std::time::Duration;

use super::{Clocks, Side};
use crate::time::UnixMillis;

/// A clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Clock {
    /// Until a person answers for the first time.
    FirstResponse,
    /// Until a person answers again.
    NextResponse,
    /// Until the session is closed.
    Resolution,
}

impl Clock {
    /// Every clock.
    pub const ALL: [Self; 3] = [Self::FirstResponse, Self::NextResponse, Self::Resolution];

    /// The word in metrics and frames.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstResponse => "first_response",
            Self::NextResponse => "next_response",
            Self::Resolution => "resolution",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|clock| clock.as_str() == text)
    }
}

/// How long each clock may run; `None`: as long as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Targets {
    /// [`Clock::FirstResponse`].
    pub first_response: Option<Duration>,
    /// [`Clock::NextResponse`].
    pub next_response: Option<Duration>,
    /// [`Clock::Resolution`].
    pub resolution: Option<Duration>,
}

impl Targets {
    /// The target of one clock.
    #[must_use]
    pub fn of(&self, clock: Clock) -> Option<Duration> {
        match clock {
            Clock::FirstResponse => self.first_response,
            Clock::NextResponse => self.next_response,
            Clock::Resolution => self.resolution,
        }
    }
}

impl Clocks {
    /// A message was stored: a user's starts the response clock unless it runs, a person's answer stops it. Says which one
    /// stopped, and what it showed.
    pub fn on_message(&mut self, side: Side, bot: bool, at: UnixMillis) -> Option<(Clock, Duration)> {
        match side {
            Side::User => {
                self.asked_at.get_or_insert(at);
                None
            }
            Side::Agent if bot => None,
            Side::Agent => {
                let asked_at = self.asked_at.take()?;
                let clock = if self.answered_at.is_none() { Clock::FirstResponse } else { Clock::NextResponse };
                self.answered_at.get_or_insert(at);
                Some((clock, at.since(asked_at)))
            }
        }
    }

    /// The clocks that run at `now` and what they show.
    #[must_use]
    pub fn running(&self, now: UnixMillis) -> Vec<(Clock, Duration)> {
        if self.closed_at.is_some() {
            return Vec::new();
        }
        let response = if self.answered_at.is_none() { Clock::FirstResponse } else { Clock::NextResponse };
        let asked = self.asked_at.map(|at| (response, now.since(at)));
        asked.into_iter().chain([(Clock::Resolution, now.since(self.opened_at))]).collect()
    }

    /// The clocks that run longer than their targets.
    #[must_use]
    pub fn overdue(&self, targets: &Targets, now: UnixMillis) -> Vec<(Clock, Duration)> {
        self.running(now).into_iter().filter(|(clock, shows)| targets.of(*clock).is_some_and(|target| *shows > target)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> UnixMillis {
        UnixMillis(ms)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_first_answer_of_a_person_stops_the_first_clock_and_later_ones_the_next() {
        let mut clocks = Clocks { opened_at: at(0), ..Clocks::default() };
        assert_eq!(clocks.on_message(Side::Agent, false, at(1)), None, "nothing was asked");
        for (side, bot, now, stopped) in [
            (Side::User, false, 10, None),
            (Side::User, false, 20, None),
            (Side::Agent, true, 25, None),
            (Side::Agent, false, 40, Some((Clock::FirstResponse, ms(30)))),
            (Side::Agent, false, 41, None),
            (Side::User, false, 50, None),
            (Side::Agent, false, 70, Some((Clock::NextResponse, ms(20)))),
        ] {
            assert_eq!(clocks.on_message(side, bot, at(now)), stopped, "at {now}");
        }
    }

    #[test]
    fn a_clock_is_overdue_beyond_its_target_and_never_once_closed() {
        let targets = Targets { first_response: Some(ms(100)), resolution: Some(ms(1_000)), ..Targets::default() };
        let mut clocks = Clocks { opened_at: at(0), asked_at: Some(at(50)), ..Clocks::default() };
        assert_eq!(clocks.overdue(&targets, at(150)), []);
        assert_eq!(clocks.overdue(&targets, at(151)), [(Clock::FirstResponse, ms(101))]);
        assert_eq!(clocks.overdue(&targets, at(1_001)).len(), 2);
        clocks.closed_at = Some(at(1_002));
        assert_eq!(clocks.overdue(&targets, at(9_000)), []);
    }
}
