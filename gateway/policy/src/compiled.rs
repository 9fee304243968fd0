//! From bytes to something that can be instantiated: look at it, compile it or take the code from the cache, link it.
//!
//! What never happens here: running a guest.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gateway_core::policy::Digest;
use wasmtime::component::{Component, Linker};

use crate::bindings::{Policy, PolicyPre};
use crate::code_cache::CodeCache;
use crate::component::{inspect, printable};
use crate::engine::EngineRoom;
use crate::instance::{GuestState, Lender};
use crate::schema::Schema;

/// A compiled component, not yet tied to a policy. Several policies may share one.
pub(crate) struct Compiled {
    pub(crate) digest: Digest,
    /// The start of the digest, for people.
    pub(crate) version: Arc<str>,
    pub(crate) schema: Option<Schema>,
    pub(crate) pre: PolicyPre<GuestState>,
    /// Whether the compiler had to work for it.
    pub(crate) is_new_code: bool,
}

impl Compiled {
    /// Checks what the component wants, compiles it unless `cache` has its code, and links it to the world.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(crate) fn new(room: &EngineRoom, cache: Option<&CodeCache>, digest: Digest, component: &[u8]) -> Result<Self, String> {
        let found = inspect(component)?;
        let schema = found.schema.map(Schema::read).transpose()?;
        let engine = room.engine();
        let (component, is_new_code) = match cache.and_then(|cache| cache.load(engine, &digest)) {
            Some(known) => (known, false),
            None => (compile(room, component)?, true),
        };
        if let Some(cache) = cache.filter(|_| is_new_code) {
            cache.store(engine, &digest, &component);
        }
        let mut linker = Linker::new(engine);
        let linked = Policy::add_to_linker::<_, Lender>(&mut linker, |state: &mut GuestState| &mut state.loan)
            .and_then(|()| linker.instantiate_pre(&component))
            .and_then(PolicyPre::new);
        let pre = linked.map_err(|error| format!("not a policy of this world: {}", printable(&format!("{error:#}"))))?;
        Ok(Self { version: digest.short().into(), digest, schema, pre, is_new_code })
    }
}

fn compile(room: &EngineRoom, component: &[u8]) -> Result<Component, String> {
    // The compiler is large and the bytes may be anybody's. A panic in it must not end the thread that loads policies; it
    // leaves nothing behind but the half-made component.
    match catch_unwind(AssertUnwindSafe(|| Component::from_binary(room.engine(), component))) {
        Ok(Ok(compiled)) => Ok(compiled),
        Ok(Err(error)) => Err(format!("not a component: {}", printable(&format!("{error:#}")))),
        Err(_) => Err("not a component: the compiler gave up on it".to_owned()),
    }
}
