//! Write a Sluice policy in Rust.
//!
//! A policy is a type that implements [`Policy`] and is named in [`export!`]. Its rules are plain functions over the plain
//! types of [`types`], so `cargo test` runs them on the developer's machine; [`testing::FakeHost`] stands in for the host.
//! What never happens here: I/O, clocks, randomness. The world (`wit/world.wit`) has none to give.

/// Generated from `wit/`.
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "policy",
        pub_export_macro: true,
        export_macro_name: "export_world",
        default_bindings_module: "sluice_sdk::bindings",
        additional_derives: [PartialEq],
    });
}

mod answer;
mod host;
mod policy;
pub mod testing;
pub mod text;
mod view;

pub use host::{Host, LentHost, Level};
pub use policy::{Policy, configuration};
pub use view::{Address, HeaderBlock, RequestView, canonical, covers, network, write_network};

/// The types of the world, as the host sends them.
pub mod types {
    pub use crate::bindings::sluice::policy::types::{
        Address, Attempt, Charge, Effects, Facts, Manifest, Message, Phases, Principal, Refusal, Request, Response, Role, Scope, Verdict,
    };
}
