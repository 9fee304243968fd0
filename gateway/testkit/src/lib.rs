//! What tests of several crates share: one conformance suite per port, ports that fail, and private copies of the services.

pub mod conformance;
pub mod dice;
pub mod faults;
pub mod services;
pub mod simulation;
