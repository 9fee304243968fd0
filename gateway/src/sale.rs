//! The gateway's side of a flash sale: which lots exist, and admission in batches.
//!
//! Neither decides anything: lots come from the ledger, answers from the admission store.

pub(crate) mod batcher;
pub(crate) mod catalog;
pub(crate) mod keeper;
