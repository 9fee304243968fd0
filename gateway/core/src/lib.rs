//! The rules of Sluice.
//!
//! What lives here: every decision the product makes, as functions from values to values, and the ports
//! through which the shells reach the world.
//! What never happens here: I/O, reading a clock, drawing randomness, naming a product (pingora, wasmtime,
//! Redis, NATS, MySQL). `now`, seeds and answers of the world are arguments.

pub mod backoff;
pub mod chat;
pub mod client_addr;
pub mod config;
pub mod id;
pub mod origin;
pub mod path;
pub mod policy;
pub mod ports;
pub mod principal;
pub mod request;
pub mod route;
pub mod sale;
pub mod time;
pub mod trace;
