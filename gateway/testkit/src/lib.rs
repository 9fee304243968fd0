//! What tests of several crates share: one conformance suite per port, ports that fail, fuzzing over a corpus, and private
//! copies of the services.

pub mod conformance;
pub mod dice;
pub mod faults;
pub mod fuzz;
pub mod services;
pub mod simulation;
