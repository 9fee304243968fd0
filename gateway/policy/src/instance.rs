//! One live guest: a store, its exports, its slot in the engine, and what stops it.
//!
//! What never happens here: deciding whether an instance lives on; that is [`crate::generation`]'s.

use std::time::Duration;

use gateway_core::policy::{Call, Fault};
use gateway_core::principal::Principal;
use gateway_core::time::UnixMillis;
use tokio::time::Instant;
use wasmtime::component::HasSelf;
use wasmtime::{ResourceLimiter, Store, UpdateDeadline};

use crate::bindings::{Policy, PolicyPre, wit};
use crate::convert::{FactsView, HeadView, header_block};
use crate::engine::{EngineRoom, Slot};
use crate::lent::Loan;

/// The linker's view of a store's data.
pub(crate) type Lender = HasSelf<Loan>;

/// What a store carries besides the guest.
pub(crate) struct GuestState {
    pub(crate) loan: Loan,
    time: Time,
    memory: MemoryCap,
}

/// What a call may use up.
///
/// A guest pays for the ticks it runs through, not for the time its thread waits for a processor: on a busy machine a call of
/// a microsecond can easily take longer than the limit by the clock, and that is no fault of the guest's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    /// Ticks of 1 ms left; each one the guest was running at costs one.
    ticks: u32,
    /// When the call stops waiting for an instance: that wait is for other calls, not for a processor.
    slot_by: Instant,
    /// When the call ends in any case.
    last: Instant,
}

/// How much longer than its limit a call may take by the clock, with all the waiting for a processor.
const PATIENCE: u32 = 50;

impl Time {
    /// For a call that starts now and may run for `limit`.
    pub(crate) fn of(limit: Duration) -> Self {
        // The first tick comes at once as often as not, so it is free.
        let ticks = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).saturating_add(1);
        let now = Instant::now();
        Self { ticks, slot_by: now + limit, last: now + limit * PATIENCE }
    }

    /// When waiting for an instance ends.
    pub(crate) fn slot_by(self) -> Instant {
        self.slot_by
    }

    fn spend(&mut self) -> bool {
        self.ticks = self.ticks.saturating_sub(1);
        self.ticks > 0 && Instant::now() < self.last
    }
}

/// A guest that is ready for a call. Dropping it gives everything back at once.
pub(crate) struct Instance {
    store: Store<GuestState>,
    exports: Policy,
    /// Calls answered so far.
    pub(crate) calls: u32,
    /// Declared last: the slot may only be free once the store is gone.
    _slot: Slot,
}

/// The call's time is over.
#[derive(Debug, thiserror::Error)]
#[error("the call's time is over")]
struct OutOfTime;

impl Instance {
    /// Instantiates and configures. The time of it is part of the call that needed it.
    pub(crate) async fn new(
        room: &EngineRoom,
        slot: Slot,
        pre: &PolicyPre<GuestState>,
        loan: Loan,
        memory_bytes_max: usize,
        config: &str,
        time: Time,
    ) -> Result<(Self, Result<wit::Manifest, String>), Fault> {
        let memory = MemoryCap { bytes_max: memory_bytes_max, refused: false };
        let mut store = Store::new(room.engine(), GuestState { loan, time, memory });
        store.limiter(|state| &mut state.memory);
        // At each tick the guest gives its thread to others, and pays. It cannot run past its time by more than one tick, or
        // the one bulk instruction, at most as long as its memory, that it is in the middle of.
        store.epoch_deadline_callback(
            |mut store| {
                if store.data_mut().time.spend() { Ok(UpdateDeadline::Yield(1)) } else { Err(OutOfTime.into()) }
            },
        );
        store.set_epoch_deadline(1);
        let exports = pre.instantiate_async(&mut store).await.map_err(|error| fault(&error))?;
        let manifest = exports.call_configure(&mut store, config).await.map_err(|error| fault(&error))?;
        Ok((Self { store, exports, calls: 0, _slot: slot }, manifest))
    }

    /// Puts one question to the guest. After a fault the instance must be dropped: its memory is in an unknown state.
    pub(crate) async fn ask(&mut self, call: Call<'_>, wanted: &[String], time: Time) -> Result<wit::Verdict, Fault> {
        self.calls = self.calls.saturating_add(1);
        let facts = FactsView::new(match call {
            Call::Request(_, facts) | Call::Attempt(_, facts, _) | Call::Message(facts, _) | Call::Response(_, facts, _) => facts,
        });
        self.begin(facts.now(), time);
        let (store, exports) = (&mut self.store, &self.exports);
        let answered = match call {
            Call::Request(head, _) => {
                let head = HeadView::new(head, wanted);
                exports.call_on_request(store, head.lower(), facts.lower()).await
            }
            Call::Attempt(head, _, attempt) => {
                let head = HeadView::new(head, wanted);
                let attempt = wit::Attempt {
                    activity: attempt.activity.0,
                    sku: attempt.sku.0,
                    qty: attempt.qty,
                    idempotency_key: attempt.idempotency_key.as_deref(),
                };
                exports.call_on_attempt(store, head.lower(), facts.lower(), attempt).await
            }
            Call::Message(_, message) => {
                let message =
                    wit::Message { session: message.session.0, shop: message.shop.0, kind: &message.kind, content: &message.content };
                exports.call_on_message(store, facts.lower(), message).await
            }
            Call::Response(head, _, response) => {
                let head = HeadView::new(head, wanted);
                let headers = header_block(&response.headers, wanted);
                let response = wit::Response { status: response.status, headers: &headers };
                exports.call_on_response(store, head.lower(), facts.lower(), response).await
            }
        };
        answered.map_err(|error| fault(&error))
    }

    fn begin(&mut self, now: UnixMillis, time: Time) {
        self.store.set_epoch_deadline(1);
        let state = self.store.data_mut();
        state.time = time;
        state.loan.renew(now);
    }

    /// The identities the host proved to the guest during the last call.
    pub(crate) fn proved(&self) -> &[Principal] {
        self.store.data().loan.proved()
    }

    /// Whether the guest has asked for more memory than it may have.
    pub(crate) fn was_refused_memory(&self) -> bool {
        self.store.data().memory.refused
    }
}

/// What a failed call was. Imports never fail and instances never exceed the pool, so what is left is the guest's doing.
fn fault(error: &wasmtime::Error) -> Fault {
    if error.is::<OutOfTime>() {
        Fault::Timeout
    } else if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        Fault::Overload
    } else {
        tracing::debug!(%error, "a guest trapped");
        Fault::Trap
    }
}

/// Linear memory of one instance. A guest that is refused usually traps; one that copes is still replaced.
struct MemoryCap {
    bytes_max: usize,
    refused: bool,
}

impl ResourceLimiter for MemoryCap {
    fn memory_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let granted = desired <= self.bytes_max;
        self.refused |= !granted;
        Ok(granted)
    }

    fn table_growing(&mut self, _current: usize, _desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // The allocator's own bound applies; ours have tables of fixed size.
        Ok(maximum.is_some())
    }
}
