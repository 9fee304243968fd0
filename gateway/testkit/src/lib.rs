//! What tests of several crates share: one conformance suite per port, and private copies of the services.

pub mod conformance;
pub mod services;
