//! The wasmtime host of Sluice's policies: the one implementation of the port `Policies`.
//!
//! What lives here: compiling, limiting, calling and hot-swapping guests, judging tokens, and the lists guests may ask.
//! What never happens here: deciding what a verdict means for a request. That is `gateway_core::policy::chain`; counting
//! charges and applying header edits is the caller's.
//! Who calls it: the gateway's wiring starts a [`Host`] and hands it on as `Arc<dyn Policies>`; [`Verifier`] is also used
//! natively where a socket renews its token.
//!
//! From the outside in: [`Host`] owns a [`shelf`] of generations and the [`table`] that says who answers, which one thread
//! alone may change ([`loader`], woken by [`watch`]). Bytes are looked at ([`component`]), [`compiled`] or taken from the
//! [`code_cache`], and their configuration is checked ([`schema`]); a [`generation`] is one component with one
//! configuration. It lends itself out as [`instance`]s, which run on the one [`engine`]. [`convert`] and [`verdict`] stand
//! between our types and a guest's; a [`shadow`] is asked later, and a [`tally`] counts.

mod bindings;
mod code_cache;
mod compiled;
mod component;
mod convert;
mod engine;
mod generation;
mod host;
mod identity;
mod instance;
mod lent;
mod lists;
mod loader;
mod schema;
mod settings;
mod shadow;
mod shelf;
mod table;
mod tally;
pub mod trial;
mod verdict;
mod watch;

pub use component::{Component, inspect};
pub use host::{Host, Loads};
pub use identity::{Keys, KeysError, Verifier, VerifierSettings, VerifyError};
pub use lent::MetricSink;
pub use lists::{Entries, Lists, TooLarge};
pub use settings::{HostError, Mode, PolicySettings, Settings};
