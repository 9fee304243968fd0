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
mod charging;
mod clock;
mod decisions;
mod health;
mod jwks;
mod node;
mod recording;
mod rollouts;
mod sale;
mod telemetry;
mod token;
mod witness;
