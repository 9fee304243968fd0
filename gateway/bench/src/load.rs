//! The load generator: when each request is due, how it is asked, how long it took from the instant it was due.
//!
//! The load is open: a request is due whether or not the ones before it were answered, and its latency counts from then, so a
//! server that stalls is charged for everybody who came meanwhile.

mod client;
mod latency;
mod schedule;
mod socket;

pub use client::{Answer, Client, Request};
pub use latency::{Latencies, Summary};
pub use schedule::{arrivals, steady};
pub use socket::{Asked, Heard, Refusal, Socket};
