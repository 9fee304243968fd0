//! The host against real components: those that `cargo xtask plugins` builds into `target/plugins`.

mod faults;
mod imports;
mod policies;
mod reload;
mod support;
mod tokens;
mod world;
