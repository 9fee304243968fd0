//! The whole system, as clients and operators meet it: real `sluice` processes, real Redis, NATS and MariaDB, loopback only.
//!
//! `cluster`, `dev` and `process` start and kill things; `edge`, `admin`, `chat_socket`, `chat_client`, `raw` and `ledger`
//! speak to them; `upstream` is what a gateway passes requests on to. The other modules are tests, one subject each.
//! Every wait is for a state that can be seen and ends at a deadline; every port is a free one.

mod admin;
mod chat_client;
mod chat_socket;
mod cluster;
mod dev;
mod edge;
mod http;
mod ledger;
mod process;
mod raw;
mod sale;
mod settings;
mod tokens;
mod upstream;
mod wait;

mod bad_input;
mod browser;
mod chat;
mod chat_basics;
mod chat_faults;
mod framing;
mod handover;
mod losses;
mod outages;
mod policies;
mod proxying;
mod purchases;
mod race;
mod race_faults;
mod rfc6455;
mod start;
mod tls;
