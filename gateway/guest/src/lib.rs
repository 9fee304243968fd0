//! From a guest's source to a component.
//!
//! What lives here: finding a compiler for `wasm32-unknown-unknown`, which a plain toolchain lacks ([`Compiler`]); wrapping a
//! core module as it is, so that a component imports our world and nothing else ([`component`]); and the build of one
//! plugin's folder, whatever its language ([`build`]).
//! What never happens here: WASI, and running a guest.
//! Who calls it: `cargo xtask plugins` and `sluice plugin build`. It stays small because the former is compiled first.

mod compiler;
mod component;
mod folder;

pub use compiler::Compiler;
pub use component::{SCHEMA_SECTION, WIT, component, write_whole};
pub use folder::{Built, Language, build, name, target_dir};
