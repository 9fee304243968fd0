//! The whole system, as clients and operators meet it: real `sluice` processes, real Redis, NATS and MariaDB, loopback only.
//!
//! `cluster`, `dev` and `process` start and kill things. `edge`, `admin`, `raw`, `chat_socket` and `ledger` speak to them;
//! `operating` types what an operator types;
//! `buyer`, `chat_client`, `conversation` and `desk` behave as good clients do. `upstream` is what a gateway passes requests on to.
//! The other modules are tests, one subject each.
//! Every wait is for a state that can be seen and ends at a deadline; every port is a free one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed; the lint exempts test functions and not what they call")]

mod admin;
mod buyer;
mod chat_client;
mod chat_socket;
mod cluster;
mod conversation;
mod desk;
mod dev;
mod edge;
mod http;
mod issuer;
mod ledger;
mod operating;
mod process;
mod raw;
mod rollout_rig;
mod sale;
mod settings;
mod tokens;
mod tunnel;
mod upstream;
mod vault;
mod wait;

mod accounts;
mod backlog;
mod bad_input;
mod bench;
mod bots;
mod browser;
mod chat;
mod chat_basics;
mod chat_chaos;
mod chat_faults;
mod chat_http;
mod chat_outages;
mod chat_protocol;
mod chat_set_aside;
mod chat_witness;
mod compensating;
mod crowds;
mod evidence;
mod failover;
mod forged_tokens;
mod framing;
mod half_open;
mod handover;
mod key_sets;
mod lives;
mod losses;
mod notices;
mod outages;
mod paying;
mod people;
mod phases;
mod policies;
mod proxying;
mod purchases;
mod race;
mod race_faults;
mod returns;
mod revocation;
mod rfc6455;
mod rollout;
mod rollout_losses;
mod service_levels;
mod slow_clients;
mod start;
mod stomp;
mod storms;
mod tls;
mod transfers;
mod waiting_line;
mod websocket_framing;
mod writing_a_plugin;
