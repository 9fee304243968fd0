//! The generated side of `wit/`: the only place with code that `bindgen!` wrote. Everything else goes through
//! [`crate::convert`].

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "policy",
        // Arguments are lowered from borrowed data; answers are lifted into owned data.
        ownership: Borrowing { duplicate_if_necessary: true },
        exports: { default: async },
    });
}

pub(crate) use generated::sluice::policy::types as wit;
pub(crate) use generated::sluice::policy::{identity, lists, telemetry};
pub(crate) use generated::{Policy, PolicyPre};
