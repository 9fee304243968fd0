//! The ports on real services: Redis for admission, budgets and presence; NATS for the bus; MySQL or MariaDB for the
//! ledgers.
//!
//! What lives here: how a promise of `gateway-core`'s ports is kept by one service, and the only code that knows the
//! three. What never happens here: a rule of the business (core decides, scripts and transactions carry it out), a wait
//! without a deadline, or a start-up that fails because a service is not there yet: each store answers
//! [`Unavailable`](gateway_core::ports::PortErrorKind::Unavailable) until its service comes, and heals by itself.
//! Called by the wiring of the `gateway` crate, which hands these types to everybody else as ports.

mod error;
pub mod mysql;
pub mod nats;
pub mod redis;

pub use crate::mysql::{MysqlSettings, MysqlStore};
pub use crate::nats::{NatsBus, NatsSettings};
pub use crate::redis::{RedisSettings, RedisStore};
