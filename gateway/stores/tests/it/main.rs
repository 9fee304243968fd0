//! The stores against real services: one shared set for everything that leaves them alone, an own one for each test that
//! kills. Every test uses names nobody else uses, so they run at once.

mod admission;
mod bus;
mod chats;
mod cluster;
mod conformance;
mod faults;
mod ledger;
mod notices;
mod orders;
mod sentinel;
mod shared;
mod twin;
