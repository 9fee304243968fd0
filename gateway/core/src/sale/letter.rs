//! Dead letters: what could not be done, kept until an operator has decided. The compensation list is the open ones.
//!
//! Words only. What was given up is written once per source, however often it is given up again.

use crate::time::UnixMillis;

/// Where a letter comes from, which decides what trying again means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LetterKind {
    /// An entry of an event log that is no order event, or one the ledger could not take. Its units are back in the sale:
    /// nothing is left to try.
    Event,
    /// A task of the outbox that was given up. Trying again puts it back.
    Outbox,
    /// A chat message that the ledger could not take. Trying again queues it again.
    ChatMessage,
    /// A broken invariant. Trying again mends it: the ledger's counters from its rows, the admission store from the ledger.
    Invariant,
}

impl LetterKind {
    /// The word in the ledger and in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Outbox => "outbox",
            Self::ChatMessage => "chat-message",
            Self::Invariant => "invariant",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Event, Self::Outbox, Self::ChatMessage, Self::Invariant].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Where a letter is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LetterState {
    /// Waits for an operator.
    Open,
    /// Tried again; if it fails again it is open again.
    Retried,
    /// Dismissed.
    Discarded,
}

impl LetterState {
    /// The word in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Retried => "retried",
            Self::Discarded => "discarded",
        }
    }
}

/// Something given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLetter {
    /// What it is.
    pub kind: LetterKind,
    /// What makes it one of its kind, at most 96 ASCII characters: `activity:sku:event id`, the outbox task's id,
    /// `session:digest of sender and client message id`, `activity:sku:invariant`.
    pub source_id: String,
    /// Everything an operator needs, as a JSON object.
    pub payload: String,
    /// Why, at most 512 characters are kept.
    pub error: String,
    /// How often it was tried.
    pub attempts: u16,
}

/// A letter as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Its id.
    pub id: u64,
    /// What was given up.
    pub what: NewLetter,
    /// Where it is in its life.
    pub state: LetterState,
    /// When it was written first.
    pub created: UnixMillis,
    /// Who decided last, when, and why.
    pub decision: Option<Decision>,
}

/// An operator's decision: the audit line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Who.
    pub by: String,
    /// When.
    pub at: UnixMillis,
    /// Why, in the operator's words; may be empty.
    pub note: String,
}

/// What becomes of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is tried again.
    Retry,
    /// It is dismissed.
    Discard,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecideOutcome {
    /// It stands; this is the letter now.
    Decided(Letter),
    /// No such letter.
    NotFound,
    /// Somebody decided before.
    NotOpen(LetterState),
    /// There is nothing to try again.
    NothingToRetry,
}
