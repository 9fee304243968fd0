//! What the host lends a policy, as a trait so that rules can be tested without a host.

use crate::bindings::sluice::policy::{identity, lists, telemetry};
use crate::types::Principal;

pub use telemetry::Level;

/// The host's imports. None of them waits.
pub trait Host {
    /// Who is behind `token`; the error is one word for logs.
    fn verify(&self, token: &str) -> Result<Principal, String>;

    /// Whether `key` is on `list`.
    fn contains(&self, list: &str, key: &str) -> bool;

    /// A number that is another one whenever `list` has changed; 0 while nobody has filled it.
    fn version(&self, list: &str) -> u64;

    /// The entries of `list` in ascending order of their bytes: the first 65,536, and no more than 1 MiB.
    fn entries(&self, list: &str) -> Vec<String>;

    /// Writes a line to the host's log.
    fn log(&self, level: Level, text: &str);

    /// Adds `value` to the counter `name`.
    fn metric(&self, name: &str, value: f64);
}

/// The real host, reached through the world's imports.
pub struct LentHost;

impl Host for LentHost {
    fn verify(&self, token: &str) -> Result<Principal, String> {
        identity::verify(token)
    }

    fn contains(&self, list: &str, key: &str) -> bool {
        lists::contains(list, key)
    }

    fn version(&self, list: &str) -> u64 {
        lists::version(list)
    }

    fn entries(&self, list: &str) -> Vec<String> {
        lists::entries(list)
    }

    fn log(&self, level: Level, text: &str) {
        telemetry::log(level, text);
    }

    fn metric(&self, name: &str, value: f64) {
        telemetry::metric(name, value);
    }
}
