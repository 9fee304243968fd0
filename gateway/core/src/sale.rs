//! The flash sale: what an attempt, a reservation and an order are, and the rules between them.
//!
//! `admission` and `admit` are the store that decides who may try, `shard` its parts and `soldout` what a node remembers of
//! it; `activity`, `order`, `outbox` and `letter` are the ledger that decides who wins; `books` compares the two.

pub mod activity;
pub mod admission;
pub mod admit;
pub mod books;
pub mod letter;
pub mod order;
pub mod order_no;
pub mod outbox;
pub mod purchase;
pub mod shard;
pub mod soldout;

pub use activity::{
    ActivityRecord, ActivityState, CreateOutcome, LotRecord, NewActivity, NewProduct, Phase, PublishOutcome, SkuUpsert, StepOutcome,
};
pub use admission::{
    Admit, ClaimedEvent, Held, OrderEvent, Release, Reservation, Reserved, SaleAttempt, SaleState, SaleStock, SaleTerms, StockVersion,
    Survey, Transfer,
};
pub use admit::Sale;
pub use books::{Difference, Invariant, LotBooks};
pub use letter::{DecideOutcome, Decision, Letter, LetterKind, LetterState, NewLetter, Verdict};
pub use order::{CancelOutcome, CloseReason, OrderRecord, OrderResult, OrderState, PayOutcome, Persisted};
pub use order_no::{OrderKey, order_no};
pub use outbox::{OutboxEntry, Task};
pub use purchase::Purchase;
pub use shard::Shard;
