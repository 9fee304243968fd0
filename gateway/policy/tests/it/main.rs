//! The host against real components: those that `cargo xtask plugins` builds into `target/plugins`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod faults;
mod imports;
mod loading;
mod policies;
mod reload;
mod rollouts;
mod support;
mod tokens;
mod world;
