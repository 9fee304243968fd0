//! Sluice, the shell around the core: command line, edge, sockets, worker and admin listener.
//!
//! Modules in reading order. Who may use whom: `cli > wiring > {edge, socket, worker, admin} > routes > core`.

pub mod cli;
mod wiring;

mod admin;
mod edge;
mod routes;
mod socket;
mod worker;

mod bearer;
mod breaker;
mod charging;
mod clock;
mod decisions;
mod fallback;
mod health;
mod jwks;
mod node;
mod reception;
mod recording;
mod rollouts;
mod sale;
mod telemetry;
mod token;
mod vault;
mod witness;
