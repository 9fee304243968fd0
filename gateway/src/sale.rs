//! The gateway's side of a flash sale: which lots exist, admission in batches, what is sold out, and units on the move.
//!
//! None decides anything: lots come from the ledger, answers from the admission store.

pub(crate) mod batcher;
pub(crate) mod borrowing;
pub(crate) mod buying;
pub(crate) mod catalog;
pub(crate) mod flags;
pub(crate) mod keeper;
#[cfg(test)]
mod rig;
