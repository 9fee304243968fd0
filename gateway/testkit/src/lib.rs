//! Port conformance suites.

pub mod conformance;
