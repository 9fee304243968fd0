//! The one engine all guests run on, with what bounds them: slots for instances, and a tick that interrupts.
//!
//! What never happens here: running a guest. [`crate::instance`] does, and holds a slot while it lives.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::Instant;
use wasmtime::{Config, Engine, PoolingAllocationConfig};

use crate::settings::HostError;

/// How often a running guest is interrupted so that others get their thread's time. It is also the unit a call's time is
/// counted in.
const TICK: Duration = Duration::from_millis(1);

/// A component of ours is one module plus the small shims that join it to its imports.
const MODULES_PER_COMPONENT_MAX: u32 = 8;

/// The module's own table and the shims' indirection.
const TABLES_PER_COMPONENT_MAX: u32 = 4;

/// Linear memory kept after an instance ends and cleared by hand, instead of being given back page by page through the
/// kernel. Holds all a small guest touches.
const KEEP_RESIDENT_BYTES: usize = 256 * 1024;

/// The engine, its slots and its ticking. Generations share it, so it ticks for as long as any of them can be called.
pub(crate) struct EngineRoom {
    engine: Engine,
    slots: Arc<Semaphore>,
    /// Stops with the last user of the room.
    _ticker: Ticker,
}

/// The right to one live instance. The allocator has exactly as many slots, so holding this means it cannot be full.
pub(crate) type Slot = OwnedSemaphorePermit;

impl EngineRoom {
    /// Reserves address space for `instances_max` instances of at most `memory_bytes_max` each.
    pub(crate) fn new(instances_max: u32, memory_bytes_max: usize) -> Result<Self, HostError> {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(instances_max)
            .total_core_instances(instances_max.saturating_mul(MODULES_PER_COMPONENT_MAX))
            .max_core_instances_per_component(MODULES_PER_COMPONENT_MAX)
            .total_memories(instances_max)
            .max_memories_per_component(1)
            .total_tables(instances_max.saturating_mul(TABLES_PER_COMPONENT_MAX))
            .max_tables_per_component(TABLES_PER_COMPONENT_MAX)
            .total_stacks(instances_max)
            .max_memory_size(memory_bytes_max)
            .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
            .table_keep_resident(KEEP_RESIDENT_BYTES);

        let mut config = Config::new();
        config.allocation_strategy(pool).epoch_interruption(true).concurrency_support(false);
        // A guest that fails is replaced, not debugged here: the trap's code is enough, its frames cost time to collect.
        config.wasm_backtrace_max_frames(None);

        let engine = Engine::new(&config).map_err(|error| HostError::Engine(error.into()))?;
        let ticker = Ticker::start(engine.clone())?;
        let slots = Arc::new(Semaphore::new(usize::try_from(instances_max).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS)));
        Ok(Self { engine, slots, _ticker: ticker })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Waits for a slot until `deadline`; `None` means none came free.
    pub(crate) async fn slot(&self, deadline: Instant) -> Option<Slot> {
        match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => return Some(slot),
            // Nobody closes the semaphore.
            Err(TryAcquireError::Closed) => return None,
            Err(TryAcquireError::NoPermits) => {}
        }
        tokio::time::timeout_at(deadline, Arc::clone(&self.slots).acquire_owned()).await.ok()?.ok()
    }
}

/// The thread that advances the engine's epoch.
struct Ticker {
    thread: Option<thread::JoinHandle<()>>,
    /// Dropped to stop the thread.
    alive: Option<std::sync::mpsc::Sender<()>>,
}

impl Ticker {
    fn start(engine: Engine) -> Result<Self, HostError> {
        let (alive, stopped) = std::sync::mpsc::channel::<()>();
        let tick = move || {
            while stopped.recv_timeout(TICK) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                engine.increment_epoch();
            }
        };
        let thread = thread::Builder::new()
            .name("policy-tick".to_owned())
            .spawn(tick)
            .map_err(|source| HostError::Thread { thread: "tick", source })?;
        Ok(Self { thread: Some(thread), alive: Some(alive) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // It ends within a tick and cannot panic.
            let _ = thread.join();
        }
    }
}
