//! One live guest: a store, its exports, its slot in the engine, and what stops it.
//!
//! What never happens here: deciding whether an instance lives on; that is [`crate::generation`]'s.

use std::time::Duration;

use gateway_core::policy::{Call, Fault};
use gateway_core::principal::Principal;
use gateway_core::time::UnixMillis;
use tokio::time::Instant;
use wasmtime::component::HasSelf;
use wasmtime::{ResourceLimiter, Store, Trap, UpdateDeadline};

use crate::bindings::{Policy, PolicyPre, wit};
use crate::convert::{FactsView, fill_header_block, lower_head};
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

/// Most a guest may hand to the host at once, in its answer or in an argument of an import, counted in bytes of the host's
/// memory. The largest answer that keeps every rule has less than a quarter of it; lifting more is not even begun.
const HANDED_OVER_BYTES_MAX: usize = 1 << 20;

/// Handles of resources; our world has none.
const HANDLES_MAX: usize = 64;

/// An instance that has grown beyond this part of its memory, in quarters, is replaced before it fails.
const RETIRE_AT_QUARTERS: usize = 3;

/// Room for header fields that an idle instance keeps.
const BLOCK_BYTES_KEPT: usize = 16 << 10;

/// How much longer than its limit a call may take by the clock, with all the waiting for a processor.
const PATIENCE: u32 = 50;

impl Time {
    /// For a call that started at `now` and may run for `limit`.
    pub(crate) fn of(now: Instant, limit: Duration) -> Self {
        // The first tick comes at once as often as not, so it is free.
        let ticks = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).saturating_add(1);
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
    /// Header fields of the call at hand; kept for the room they have.
    blocks: Blocks,
    /// Declared last: the slot may only be free once the store is gone.
    _slot: Slot,
}

#[derive(Default)]
struct Blocks {
    request: String,
    response: String,
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
        let memory = MemoryCap { bytes_max: memory_bytes_max, bytes: 0, bytes_at_start: 0, refused: false };
        let mut store = Store::new(room.engine(), GuestState { loan, time, memory });
        store.limiter(|state| &mut state.memory);
        store.set_hostcall_fuel(HANDED_OVER_BYTES_MAX);
        store.set_max_component_handles(HANDLES_MAX);
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
        let memory = &mut store.data_mut().memory;
        memory.bytes_at_start = memory.bytes;
        Ok((Self { store, exports, calls: 0, blocks: Blocks::default(), _slot: slot }, manifest))
    }

    /// Puts one question to the guest. After a fault the instance must be dropped: its memory is in an unknown state.
    pub(crate) async fn ask(&mut self, call: Call<'_>, wanted: &[String], time: Time) -> Result<wit::Verdict, Fault> {
        self.calls = self.calls.saturating_add(1);
        let facts = FactsView::new(match call {
            Call::Request(_, facts) | Call::Attempt(_, facts, _) | Call::Message(facts, _) | Call::Response(_, facts, _) => facts,
        });
        self.begin(facts.now(), time);
        let (store, exports, blocks) = (&mut self.store, &self.exports, &mut self.blocks);
        let answered = match call {
            Call::Request(head, _) => {
                fill_header_block(&mut blocks.request, &head.headers, wanted);
                exports.call_on_request(store, lower_head(head, &blocks.request), facts.lower()).await
            }
            Call::Attempt(head, _, attempt) => {
                fill_header_block(&mut blocks.request, &head.headers, wanted);
                let attempt = wit::Attempt {
                    activity: attempt.activity.0,
                    sku: attempt.sku.0,
                    qty: attempt.qty,
                    idempotency_key: attempt.idempotency_key.as_deref(),
                };
                exports.call_on_attempt(store, lower_head(head, &blocks.request), facts.lower(), attempt).await
            }
            Call::Message(_, message) => {
                let message =
                    wit::Message { session: message.session.0, shop: message.shop.0, kind: &message.kind, content: &message.content };
                exports.call_on_message(store, facts.lower(), message).await
            }
            Call::Response(head, _, response) => {
                fill_header_block(&mut blocks.request, &head.headers, wanted);
                fill_header_block(&mut blocks.response, &response.headers, wanted);
                let response = wit::Response { status: response.status, headers: &blocks.response };
                exports.call_on_response(store, lower_head(head, &blocks.request), facts.lower(), response).await
            }
        };
        for block in [&mut blocks.request, &mut blocks.response] {
            block.clear();
            block.shrink_to(BLOCK_BYTES_KEPT);
        }
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

    /// Whether the guest has asked for more memory than it may have, or will soon: it has grown since it was made, to most of
    /// what it may have.
    pub(crate) fn holds_too_much(&self) -> bool {
        let MemoryCap { bytes_max, bytes, bytes_at_start, refused } = self.store.data().memory;
        refused || (bytes > bytes_at_start && bytes > bytes_max / 4 * RETIRE_AT_QUARTERS)
    }
}

/// What a failed call was. Imports never fail, so what is left is the guest's doing.
fn fault(error: &wasmtime::Error) -> Fault {
    if error.is::<OutOfTime>() {
        Fault::Timeout
    } else if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        Fault::Overload
    } else if error.is::<Trap>() {
        tracing::debug!(%error, "a guest trapped");
        Fault::Trap
    } else {
        // The guest's code ran well; what it handed over could not be read, or was too much.
        tracing::debug!(%error, "what a guest hands over is unusable");
        Fault::BadVerdict
    }
}

/// Linear memory of one instance. A guest that is refused usually traps; one that copes is still replaced.
#[derive(Clone, Copy)]
struct MemoryCap {
    bytes_max: usize,
    /// What it has.
    bytes: usize,
    /// What it had once it was configured.
    bytes_at_start: usize,
    refused: bool,
}

impl ResourceLimiter for MemoryCap {
    fn memory_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let granted = desired <= self.bytes_max;
        self.refused |= !granted;
        if granted {
            self.bytes = desired;
        }
        Ok(granted)
    }

    fn table_growing(&mut self, _current: usize, _desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // The allocator's own bound applies; ours have tables of fixed size.
        Ok(maximum.is_some())
    }
}
