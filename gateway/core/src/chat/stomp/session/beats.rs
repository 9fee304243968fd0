//! Heart-beats: what each side promised to let hear, and whether it did.
//!
//! What never happens here: measuring time, or the WebSocket's own pings, which the connection sees to.

use std::time::Duration;

use crate::time::UnixMillis;

/// What this side promises and wants, in milliseconds.
const PROMISE_MS: u64 = 10_000;

/// Promises of a client that is silent for so many of its intervals are broken: one may be late.
const SILENCE_MAX: u32 = 2;

/// Who must be heard when.
#[derive(Debug)]
pub(super) struct Beats {
    /// This side says something within each of these.
    speaks_every: Option<Duration>,
    /// The client does.
    hears_every: Option<Duration>,
    spoke_at: UnixMillis,
    heard_at: UnixMillis,
}

impl Beats {
    /// The header `heart-beat` of CONNECTED.
    pub(super) const PROMISE: &str = "10000,10000";

    /// Nothing is promised yet.
    pub(super) fn silent(now: UnixMillis) -> Self {
        Self { speaks_every: None, hears_every: None, spoke_at: now, heard_at: now }
    }

    /// Settles both directions from the client's header: what it can guarantee, then what it wants; 0 for nothing.
    pub(super) fn negotiate(&mut self, header: Option<&str>, now: UnixMillis) -> Result<(), &'static str> {
        let Some(header) = header else { return Ok(()) };
        let wrong = "heart-beat is no pair of milliseconds";
        let (guarantees, wants) = header.split_once(',').ok_or(wrong)?;
        let millis = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong);
        let agreed = |theirs: u32| (theirs > 0).then(|| Duration::from_millis(u64::from(theirs).max(PROMISE_MS)));
        (self.hears_every, self.speaks_every) = (agreed(millis(guarantees)?), agreed(millis(wants)?));
        (self.heard_at, self.spoke_at) = (now, now);
        Ok(())
    }

    pub(super) fn heard(&mut self, now: UnixMillis) {
        self.heard_at = self.heard_at.max(now);
    }

    pub(super) fn spoke(&mut self, now: UnixMillis) {
        self.spoke_at = self.spoke_at.max(now);
    }

    /// Whether a heart-beat is due: early enough that it arrives within the promise.
    pub(super) fn must_speak(&self, now: UnixMillis) -> bool {
        self.speaks_at().is_some_and(|at| now >= at)
    }

    /// Whether the client broke its promise. While nothing is read from it (`deaf`) nothing can be held against it.
    pub(super) fn is_silent_too_long(&self, now: UnixMillis, deaf: bool) -> bool {
        !deaf && self.gone_at().is_some_and(|at| now >= at)
    }

    pub(super) fn next_due(&self, deaf: bool) -> Option<UnixMillis> {
        [self.speaks_at(), self.gone_at().filter(|_| !deaf)].into_iter().flatten().min()
    }

    fn speaks_at(&self) -> Option<UnixMillis> {
        self.speaks_every.map(|every| self.spoke_at.plus(every * 4 / 5))
    }

    fn gone_at(&self) -> Option<UnixMillis> {
        self.hears_every.map(|every| self.heard_at.plus(every * SILENCE_MAX))
    }
}
