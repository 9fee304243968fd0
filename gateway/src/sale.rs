//! A flash sale's shells: which lots exist, admission in batches, what is sold out, units on the move, and the steps that keep
//! store and ledger together.
//!
//! None decides anything: lots come from the ledger, answers from the admission store, rules from core.

pub(crate) mod audit;
pub(crate) mod batcher;
pub(crate) mod borrowing;
pub(crate) mod buying;
pub(crate) mod catalog;
pub(crate) mod desk;
pub(crate) mod ending;
pub(crate) mod flags;
pub(crate) mod keeper;
#[cfg(test)]
mod rig;
