//! The one thread that loads generations. Compiling takes tens of milliseconds of CPU, so it happens away from requests;
//! and because nobody else publishes, two loads never race.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use gateway_core::ports::Versions;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::engine::EngineRoom;
use crate::generation::{COMPONENT_BYTES_MAX, Compiled, Generation, version_of};
use crate::settings::HostError;
use crate::table::{Entry, Shelf};

/// The folder is looked at when nothing has changed in it for this long: a file is rarely written in one piece.
const QUIET: Duration = Duration::from_millis(100);

/// A folder that never comes to rest is looked at this often.
const PATIENCE: Duration = Duration::from_secs(1);

/// Orders waiting; a change that finds the queue full is covered by one that is already in it.
pub(crate) const ORDERS_MAX: usize = 64;

/// Compiled components kept at hand: for each of a few plugins the live one and the one before.
const RECENT_MAX: usize = 8;

/// What the loader can be asked for. It ends when nobody can ask any more.
pub(crate) enum Order {
    /// Something in the folder changed.
    Look,
    /// Make these the versions of this plugin.
    Apply { plugin: String, versions: Versions, reply: oneshot::Sender<Result<(), String>> },
}

/// Tells the loader that the folder has changed, without waiting.
pub(crate) fn wake(orders: &SyncSender<Order>) {
    match orders.try_send(Order::Look) {
        // Whoever filled the queue keeps the loader awake, and it looks at the folder after any order.
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}

/// State of the loader's thread.
pub(crate) struct Loader {
    room: Arc<EngineRoom>,
    shelf: Arc<Shelf>,
    dir: PathBuf,
    /// Warm instances one policy may keep.
    idle_max: usize,
    /// Digest of the file each plugin was last loaded from, well or not, by plugin.
    seen: Vec<(String, Option<String>)>,
    /// The latest components that compiled, so that going back to one costs no compiling.
    recent: VecDeque<Arc<Compiled>>,
    runtime: Runtime,
}

impl Loader {
    pub(crate) fn new(room: Arc<EngineRoom>, shelf: Arc<Shelf>, dir: PathBuf, idle_max: usize) -> Result<Self, HostError> {
        // Guests yield to an executor and waiting for a slot needs a timer; nothing else runs on this one.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|source| HostError::Thread { thread: "loader", source })?;
        let mut plugins: Vec<String> = shelf.entries.iter().map(|entry| entry.settings.plugin.clone()).collect();
        plugins.sort();
        plugins.dedup();
        let seen = plugins.into_iter().map(|plugin| (plugin, None)).collect();
        Ok(Self { room, shelf, dir, idle_max, seen, recent: VecDeque::new(), runtime })
    }

    /// Loads what lies in the folder, then starts the thread that follows `orders`.
    pub(crate) fn start(mut self, orders: Receiver<Order>, ready: SyncSender<()>) -> Result<(), HostError> {
        thread::Builder::new()
            .name("policy-loader".to_owned())
            .spawn(move || {
                self.look();
                // The host may have been dropped meanwhile.
                let _ = ready.send(());
                self.follow(&orders);
            })
            .map(drop)
            .map_err(|source| HostError::Thread { thread: "loader", source })
    }

    fn follow(&mut self, orders: &Receiver<Order>) {
        let mut restless_since: Option<Instant> = None;
        loop {
            let order = match restless_since {
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(since) if since.elapsed() >= PATIENCE => Err(RecvTimeoutError::Timeout),
                Some(_) => orders.recv_timeout(QUIET),
            };
            match order {
                Ok(order) => {
                    restless_since.get_or_insert_with(Instant::now);
                    if let Order::Apply { plugin, versions, reply } = order {
                        // Nobody may be waiting any more; the generation is live all the same.
                        let _ = reply.send(self.apply(&plugin, &versions));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    restless_since = None;
                    self.look();
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn apply(&mut self, plugin: &str, versions: &Versions) -> Result<(), String> {
        let shelf = Arc::clone(&self.shelf);
        let Some(live) = &versions.live else { return Ok(()) };
        for entry in shelf.entries.iter().filter(|entry| entry.settings.plugin == plugin) {
            let loaded = self.compile(&live.component).and_then(|compiled| self.load(entry, &compiled));
            self.report(entry, &loaded);
            loaded?;
        }
        Ok(())
    }

    /// Loads every file that differs from the last one seen under its name.
    fn look(&mut self) {
        for index in 0..self.seen.len() {
            let (plugin, seen) = self.seen[index].clone();
            let component = self.read(&plugin);
            // A file that is gone or unreadable is news each time it is found so: its error is shown until it is back.
            let digest = component.as_ref().ok().map(|component| version_of(component));
            if digest.is_some() && digest == seen {
                continue;
            }
            let compiled = component.and_then(|component| self.compile(&component));
            for entry in self.shelf.entries.iter().filter(|entry| entry.settings.plugin == plugin) {
                let loaded = match &compiled {
                    Ok(compiled) => self.load(entry, compiled),
                    Err(problem) => Err(problem.clone()),
                };
                self.report(entry, &loaded);
            }
            self.seen[index].1 = digest;
        }
    }

    fn read(&self, plugin: &str) -> Result<Vec<u8>, String> {
        let path = self.dir.join(plugin).with_extension("wasm");
        let mut component = Vec::new();
        // One byte more than allowed shows that there are too many.
        let limit = u64::try_from(COMPONENT_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
        match File::open(&path).and_then(|file| file.take(limit).read_to_end(&mut component)) {
            Ok(_) => Ok(component),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("{} is not there", path.display())),
            Err(error) => Err(format!("read {}: {error}", path.display())),
        }
    }

    fn compile(&mut self, component: &[u8]) -> Result<Arc<Compiled>, String> {
        let version = version_of(component);
        if let Some(known) = self.recent.iter().find(|compiled| *compiled.version == *version) {
            return Ok(Arc::clone(known));
        }
        let compiled = Arc::new(Compiled::new(&self.room, version.into(), component)?);
        self.recent.truncate(RECENT_MAX - 1);
        self.recent.push_front(Arc::clone(&compiled));
        Ok(compiled)
    }

    fn load(&self, entry: &Entry, compiled: &Compiled) -> Result<(), String> {
        let (room, lent, settings) = (Arc::clone(&self.room), Arc::clone(&entry.lent), entry.settings.clone());
        let generation = self.runtime.block_on(Generation::load(room, lent, compiled, settings, self.idle_max))?;
        self.shelf.publish(entry, generation);
        Ok(())
    }

    fn report(&self, entry: &Entry, loaded: &Result<(), String>) {
        let policy = &entry.settings.name;
        let version = self.shelf.status_of(entry).version;
        match loaded {
            Ok(()) => tracing::info!(policy, version, "policy loaded"),
            Err(problem) => {
                tracing::error!(policy, problem, stays = version, "policy not loaded");
                entry.fail(problem.clone());
            }
        }
    }
}
