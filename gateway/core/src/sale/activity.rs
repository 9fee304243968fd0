//! Activities: what is sold, when, and where each is in its life.
//!
//! What lives here: the states, what an operator may do in each, and what is due by itself. What never happens here:
//! reading a clock or a store. Called by the ledgers and by whoever looks after the sales.

use std::time::Duration;

use crate::id::{ActivityId, Lot, SkuId};
use crate::time::UnixMillis;

/// How long after its end a sale is closed in the ledger. The admission store's clock ends the window by itself; waiting
/// keeps a worker whose clock is ahead from ending it early.
pub const CLOSE_AFTER_END: Duration = Duration::from_secs(1);

/// Life of an activity, as the ledger keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActivityState {
    /// Being written; nothing is locked.
    Draft,
    /// Its units are locked; its lots are pre-heated and sold.
    Published,
    /// Its window is over or it was closed; events drain.
    Closing,
    /// Units and locks are settled.
    Settled,
    /// Called off before it began; nothing is locked.
    Void,
}

impl ActivityState {
    /// The word for it in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Published => "published",
            Self::Closing => "closing",
            Self::Settled => "settled",
            Self::Void => "void",
        }
    }
}

/// Life of an activity as operators see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Being written.
    Draft,
    /// Waits to be pre-heated.
    Published,
    /// In the admission store, before its window.
    Preheated,
    /// In its window.
    Open,
    /// No attempt is admitted; logged events are being written.
    Closing,
    /// Every event is in the ledger; locks are about to be settled.
    Drained,
    /// Units and locks are settled.
    Settled,
    /// Called off before it began.
    Void,
}

impl Phase {
    /// The word shown to operators.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Published => "published",
            Self::Preheated => "preheated",
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Drained => "drained",
            Self::Settled => "settled",
            Self::Void => "void",
        }
    }
}

/// Where an activity is: from its state, whether every lot was pre-heated, and how many order events wait.
#[must_use]
pub fn phase(state: ActivityState, start: UnixMillis, end: UnixMillis, preheated: bool, waiting: u64, now: UnixMillis) -> Phase {
    match state {
        ActivityState::Draft => Phase::Draft,
        ActivityState::Void => Phase::Void,
        ActivityState::Settled => Phase::Settled,
        ActivityState::Closing if waiting == 0 => Phase::Drained,
        ActivityState::Closing => Phase::Closing,
        ActivityState::Published if now >= end => Phase::Closing,
        ActivityState::Published if !preheated => Phase::Published,
        ActivityState::Published if now < start => Phase::Preheated,
        ActivityState::Published => Phase::Open,
    }
}

/// What an activity is due for, without anybody asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Wait,
    /// Its lots must be in force in the admission store.
    Sell,
    /// It must begin to close.
    Close,
    /// Its lots must be closed and drained, then it is settled.
    Settle,
    /// Nothing any more.
    Rest,
}

/// What is due at `now`; lots are pre-heated `preheat_before` ahead of `start`.
#[must_use]
pub fn due(state: ActivityState, start: UnixMillis, end: UnixMillis, preheat_before: Duration, now: UnixMillis) -> Due {
    match state {
        ActivityState::Draft | ActivityState::Settled | ActivityState::Void => Due::Rest,
        ActivityState::Closing => Due::Settle,
        ActivityState::Published if now >= end.plus(CLOSE_AFTER_END) => Due::Close,
        // Until the store's clock has surely ended the window, a lost sale would be rebuilt.
        ActivityState::Published if now.plus(preheat_before) >= start => Due::Sell,
        ActivityState::Published => Due::Wait,
    }
}

/// A SKU to create or top up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkuUpsert {
    /// Its id.
    pub sku: SkuId,
    /// Its name.
    pub name: String,
    /// Its price in cents.
    pub price_cents: u64,
    /// Units to add.
    pub add_stock: u32,
}

/// An activity to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewActivity {
    /// Its title.
    pub title: String,
    /// First instant of the window.
    pub start: UnixMillis,
    /// First instant after the window; later than `start`.
    pub end: UnixMillis,
    /// How long an order may stay unpaid, in seconds.
    pub pay_ttl_s: u16,
    /// At least one product, each SKU once.
    pub products: Vec<NewProduct>,
}

/// A product of a new activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProduct {
    /// Its SKU.
    pub sku: SkuId,
    /// Its price in cents.
    pub price_cents: u64,
    /// Units for sale, at least 1.
    pub stock: u32,
    /// Units one user may have, at least 1.
    pub per_user: u16,
    /// Parts its stock is split into in the admission store, 1 to [`super::shard::SHARDS_MAX`].
    pub shards: u8,
}

/// What became of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The draft's id.
    Created(ActivityId),
    /// This SKU does not exist.
    UnknownSku(SkuId),
}

/// What became of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Published, now or before.
    Published,
    /// No such activity.
    NotFound,
    /// The activity is past that.
    WrongState(ActivityState),
    /// The SKU has fewer free units than the product needs; nothing was locked.
    NotEnough(SkuId),
}

/// What became of a step to closing, settling or calling off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOutcome {
    /// The activity is there, now or before.
    Done,
    /// No such activity.
    NotFound,
    /// Not from this state.
    WrongState(ActivityState),
    /// Its window has begun: it can be closed, not called off.
    Started,
}

/// Whether an activity may begin to close. `None`: it may; it is closing, or past that, is answered without a change.
#[must_use]
pub fn may_close(state: ActivityState) -> Option<StepOutcome> {
    match state {
        ActivityState::Published => None,
        ActivityState::Closing | ActivityState::Settled => Some(StepOutcome::Done),
        ActivityState::Draft | ActivityState::Void => Some(StepOutcome::WrongState(state)),
    }
}

/// Whether an activity may be settled. `None`: it may. Whoever asks has seen its lots closed and drained.
#[must_use]
pub fn may_settle(state: ActivityState) -> Option<StepOutcome> {
    match state {
        ActivityState::Closing => None,
        ActivityState::Settled => Some(StepOutcome::Done),
        ActivityState::Draft | ActivityState::Published | ActivityState::Void => Some(StepOutcome::WrongState(state)),
    }
}

/// Whether an activity that starts at `start` may be called off at `now`. `None`: it may.
#[must_use]
pub fn may_void(state: ActivityState, start: UnixMillis, now: UnixMillis) -> Option<StepOutcome> {
    match state {
        ActivityState::Void => Some(StepOutcome::Done),
        ActivityState::Draft => None,
        ActivityState::Published if now < start => None,
        ActivityState::Published => Some(StepOutcome::Started),
        ActivityState::Closing | ActivityState::Settled => Some(StepOutcome::WrongState(state)),
    }
}

/// An activity as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityRecord {
    /// Its id.
    pub id: ActivityId,
    /// Its title.
    pub title: String,
    /// First instant of the window.
    pub start: UnixMillis,
    /// First instant after the window.
    pub end: UnixMillis,
    /// How long an order may stay unpaid, in seconds.
    pub pay_ttl_s: u16,
    /// Where it is in its life.
    pub state: ActivityState,
    /// Its products.
    pub products: Vec<LotRecord>,
}

/// A lot as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LotRecord {
    /// Which.
    pub lot: Lot,
    /// The SKU's name.
    pub name: String,
    /// Its activity's state.
    pub state: ActivityState,
    /// First instant of the window.
    pub start: UnixMillis,
    /// First instant after the window.
    pub end: UnixMillis,
    /// Price in cents.
    pub price_cents: u64,
    /// Units of the lot.
    pub stock: u32,
    /// Units in live orders.
    pub sold: u32,
    /// Units one user may have.
    pub per_user: u16,
    /// 0 before the first pre-heat.
    pub epoch: u32,
    /// Parts its stock is split into in the admission store.
    pub shards: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMillis = UnixMillis(100_000);
    const END: UnixMillis = UnixMillis(200_000);
    const STATES: [ActivityState; 5] =
        [ActivityState::Draft, ActivityState::Published, ActivityState::Closing, ActivityState::Settled, ActivityState::Void];

    #[test]
    fn a_published_sale_is_due_for_one_thing_after_another() {
        let at = |now| due(ActivityState::Published, START, END, Duration::from_secs(10), UnixMillis(now));
        for (now, want) in [
            (89_999, Due::Wait),
            (90_000, Due::Sell),
            (100_000, Due::Sell),
            (199_999, Due::Sell),
            (200_999, Due::Sell),
            (201_000, Due::Close),
            (u64::MAX, Due::Close),
        ] {
            assert_eq!(at(now), want, "at {now}");
        }
        for state in [ActivityState::Draft, ActivityState::Settled, ActivityState::Void] {
            assert_eq!(due(state, START, END, Duration::ZERO, END), Due::Rest);
        }
        assert_eq!(due(ActivityState::Closing, START, END, Duration::ZERO, UnixMillis(0)), Due::Settle, "closed before its time");
    }

    #[test]
    fn operators_see_a_phase_that_follows_the_clock_and_the_events() {
        let at = |state, preheated, waiting, now| phase(state, START, END, preheated, waiting, UnixMillis(now));
        assert_eq!(at(ActivityState::Published, false, 0, 1), Phase::Published);
        assert_eq!(at(ActivityState::Published, true, 0, 99_999), Phase::Preheated);
        assert_eq!(at(ActivityState::Published, true, 0, 100_000), Phase::Open);
        assert_eq!(at(ActivityState::Published, false, 0, 100_000), Phase::Published, "in its window and not ready");
        assert_eq!(at(ActivityState::Published, true, 3, 200_000), Phase::Closing);
        assert_eq!(at(ActivityState::Closing, true, 3, 1), Phase::Closing);
        assert_eq!(at(ActivityState::Closing, true, 0, 1), Phase::Drained);
        assert_eq!(at(ActivityState::Settled, true, 0, 1), Phase::Settled);
    }

    #[test]
    fn steps_are_taken_from_where_they_make_sense_and_repeat_without_effect() {
        use StepOutcome::{Done, Started, WrongState};
        let close = [Some(WrongState(ActivityState::Draft)), None, Some(Done), Some(Done), Some(WrongState(ActivityState::Void))];
        assert_eq!(STATES.map(may_close), close);
        let settle = [
            Some(WrongState(ActivityState::Draft)),
            Some(WrongState(ActivityState::Published)),
            None,
            Some(Done),
            Some(WrongState(ActivityState::Void)),
        ];
        assert_eq!(STATES.map(may_settle), settle);
        let void = |now| STATES.map(|state| may_void(state, START, UnixMillis(now)));
        let late = |state| Some(WrongState(state));
        assert_eq!(void(99_999), [None, None, late(ActivityState::Closing), late(ActivityState::Settled), Some(Done)]);
        assert_eq!(void(100_000)[1], Some(Started));
    }
}
