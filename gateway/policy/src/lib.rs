//! The wasmtime host of Sluice's policies: the one implementation of the port `Policies`.
//!
//! What lives here: compiling, limiting, calling and hot-swapping guests, judging tokens, and the lists guests may ask.
//! What never happens here: deciding what a verdict means for a request. That is `gateway_core::policy::chain`; counting
//! charges and applying header edits is the caller's.
//! Who calls it: the gateway's wiring starts a [`Host`] and hands it on as `Arc<dyn Policies>`; [`Verifier`] is also used
//! natively where a socket renews its token.
//!
//! From the outside in: [`Host`] owns a table of generations ([`table`]), which one thread alone may change ([`loader`],
//! woken by [`watch`]). A [`generation`] is one component with one configuration; it lends itself out as [`instance`]s,
//! which run on the one [`engine`]. [`convert`] and [`verdict`] stand between our types and a guest's.

mod bindings;
mod convert;
mod engine;
mod generation;
mod host;
mod identity;
mod instance;
mod lent;
mod lists;
mod loader;
mod settings;
mod table;
pub mod trial;
mod verdict;
mod watch;

pub use host::Host;
pub use identity::{Keys, KeysError, Verifier, VerifierSettings, VerifyError};
pub use lent::MetricSink;
pub use lists::{Lists, TooLarge};
pub use settings::{HostError, Mode, PolicySettings, Settings};
