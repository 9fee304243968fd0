//! The one thread that loads generations. Compiling takes tens of milliseconds of CPU, so it happens away from requests;
//! and because nobody else publishes, two loads never race.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use gateway_core::policy::Digest;
use gateway_core::policy::bundle::COMPONENT_BYTES_MAX;
use gateway_core::ports::{Artefact, Versions};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::code_cache::CodeCache;
use crate::compiled::Compiled;
use crate::engine::EngineRoom;
use crate::generation::Generation;
use crate::settings::HostError;
use crate::shelf::{Shelf, Slots};

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

/// What loading has cost since the start.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    /// Components that were compiled, not taken from the cache.
    pub(crate) compiled: AtomicU64,
    /// Generations that were configured and tried.
    pub(crate) configured: AtomicU64,
}

/// State of the loader's thread.
pub(crate) struct Loader {
    room: Arc<EngineRoom>,
    shelf: Arc<Shelf>,
    dir: PathBuf,
    cache: Option<CodeCache>,
    toll: Arc<Toll>,
    plugins: Vec<Plugin>,
    /// The latest components that compiled, so that going back to one costs no compiling.
    recent: VecDeque<Arc<Compiled>>,
    runtime: Runtime,
}

/// A plugin and the policies it serves.
struct Plugin {
    name: String,
    /// Indices of its policies.
    entries: Vec<usize>,
    /// Digest of the file it was last loaded from, well or not.
    seen: Option<Digest>,
}

/// What became of loading one component for each policy of a plugin, in their order.
type Loaded = Vec<(usize, Result<Arc<Generation>, String>)>;

impl Loader {
    pub(crate) fn new(
        room: Arc<EngineRoom>,
        shelf: Arc<Shelf>,
        dir: PathBuf,
        cache: Option<CodeCache>,
        toll: Arc<Toll>,
    ) -> Result<Self, HostError> {
        // Guests yield to an executor and waiting for a slot needs a timer; nothing else runs on this one.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|source| HostError::Thread { thread: "loader", source })?;
        let mut plugins: Vec<Plugin> = Vec::new();
        for (index, entry) in shelf.entries.iter().enumerate() {
            let name = &entry.settings.plugin;
            match plugins.iter_mut().find(|plugin| plugin.name == *name) {
                Some(plugin) => plugin.entries.push(index),
                None => plugins.push(Plugin { name: name.clone(), entries: vec![index], seen: None }),
            }
        }
        Ok(Self { room, shelf, dir, cache, toll, plugins, recent: VecDeque::new(), runtime })
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

    /// Loads everything that `versions` names and is not kept already, and puts all of it up, or nothing.
    fn apply(&mut self, plugin: &str, versions: &Versions) -> Result<(), String> {
        let Some(found) = self.plugins.iter().find(|known| known.name == plugin) else {
            return Err(format!("no policy of this node is served by the plugin {plugin:?}"));
        };
        let entries = found.entries.clone();
        let loaded = self.load_versions(&entries, versions);
        match loaded {
            Ok(changes) => {
                self.shelf.put_up(changes);
                for index in entries {
                    self.shelf.note_apply(index, None);
                }
                let (live, candidate) = (versions.live.as_ref(), versions.candidate.as_ref());
                let [live, candidate] =
                    [live, candidate.map(|(candidate, _)| candidate)].map(|version| version.map(|version| version.digest.short()));
                tracing::info!(plugin, live, candidate, "versions of a plugin changed");
                Ok(())
            }
            Err((index, problem)) => {
                tracing::error!(plugin, problem, "versions of a plugin not changed");
                self.shelf.note_apply(index, Some(problem.clone()));
                Err(problem)
            }
        }
    }

    /// The slots of `entries` under `versions`. An error says at which policy it was.
    fn load_versions(&mut self, entries: &[usize], versions: &Versions) -> Result<Vec<(usize, Slots)>, (usize, String)> {
        let first = entries.first().copied().unwrap_or(0);
        let mut changes = Vec::new();
        for &index in entries {
            let before = self.shelf.slots(index);
            let mut bring = |artefact: &Artefact| match before.find(&artefact.digest) {
                Some(kept) => Ok(kept),
                None => {
                    let compiled = self.compile(&artefact.digest, &artefact.component).map_err(|problem| (first, problem))?;
                    self.load(index, &compiled).map_err(|problem| (index, problem))
                }
            };
            let live = versions.live.as_ref().map(&mut bring).transpose()?;
            let candidate = match &versions.candidate {
                Some((artefact, stage)) => Some((bring(artefact)?, stage.clone())),
                None => None,
            };
            let standby = versions.standby.as_ref().map(&mut bring).transpose()?;
            let folder = before.folder.clone();
            let pinned = live.is_some();
            changes.push((index, Slots { pinned, live: live.or_else(|| folder.clone()), candidate, standby, folder }));
        }
        Ok(changes)
    }

    /// Loads every file that differs from the last one seen under its name. What cannot be loaded for one policy may be fine
    /// for another with other settings.
    fn look(&mut self) {
        for number in 0..self.plugins.len() {
            let Plugin { name, entries, seen } = &self.plugins[number];
            let (entries, component) = (entries.clone(), self.read(name));
            // A file that is gone or unreadable is news each time it is found so: its error is shown until it is back.
            let digest = component.as_ref().ok().map(|component| Digest::of(component));
            if digest.is_some() && digest == *seen {
                continue;
            }
            let loaded = match (&component, &digest) {
                (Ok(component), Some(digest)) => self.load_everywhere(&entries, digest, component),
                (Ok(_), None) => continue,
                (Err(problem), _) => entries.into_iter().map(|index| (index, Err(problem.clone()))).collect(),
            };
            self.put_up_folder(loaded);
            self.plugins[number].seen = digest;
        }
    }

    fn load_everywhere(&mut self, entries: &[usize], digest: &Digest, component: &[u8]) -> Loaded {
        let mut compiled = None;
        let mut load = |index: usize| {
            if let Some(kept) = self.shelf.slots(index).find(digest) {
                return Ok(kept);
            }
            let compiled = match &compiled {
                Some(compiled) => Result::clone(compiled),
                None => compiled.insert(self.compile(digest, component)).clone(),
            };
            self.load(index, &*compiled?)
        };
        entries.iter().map(|&index| (index, load(index))).collect()
    }

    /// Makes what was loaded the folder's generations: live where the folder is followed, at hand elsewhere.
    fn put_up_folder(&self, loaded: Loaded) {
        let mut changes = Vec::new();
        let mut errors = Vec::new();
        for (index, loaded) in loaded {
            match loaded {
                Ok(generation) => {
                    let before = self.shelf.slots(index);
                    let folder = Some(generation);
                    let live = if before.pinned { before.live } else { folder.clone() };
                    changes.push((index, Slots { live, folder, ..before }));
                    errors.push((index, None));
                }
                Err(problem) => errors.push((index, Some(problem))),
            }
        }
        self.shelf.put_up(changes);
        for (index, problem) in errors {
            let (policy, version) = (&*self.shelf.entries[index].settings.name, self.shelf.version(index));
            match &problem {
                None => tracing::info!(policy, live = version.as_deref(), "policy loaded"),
                Some(problem) => tracing::error!(policy, problem, stays = version.as_deref(), "policy not loaded"),
            }
            self.shelf.note_folder(index, problem);
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

    fn compile(&mut self, digest: &Digest, component: &[u8]) -> Result<Arc<Compiled>, String> {
        if let Some(known) = self.recent.iter().find(|compiled| compiled.digest == *digest) {
            return Ok(Arc::clone(known));
        }
        // Whoever brought it has checked it, but here it gets the name under which its code is kept on disk.
        if component.len() <= COMPONENT_BYTES_MAX && Digest::of(component) != *digest {
            return Err(format!("the component is not the one called {}", digest.short()));
        }
        let compiled = Arc::new(Compiled::new(&self.room, self.cache.as_ref(), digest.clone(), component)?);
        self.toll.compiled.fetch_add(u64::from(compiled.is_new_code), Ordering::Relaxed);
        self.recent.truncate(RECENT_MAX - 1);
        self.recent.push_front(Arc::clone(&compiled));
        Ok(compiled)
    }

    fn load(&self, index: usize, compiled: &Compiled) -> Result<Arc<Generation>, String> {
        let entry = &self.shelf.entries[index];
        let (room, lent, settings) = (Arc::clone(&self.room), Arc::clone(&entry.lent), entry.settings.clone());
        self.toll.configured.fetch_add(1, Ordering::Relaxed);
        self.runtime.block_on(Generation::load(room, lent, compiled, settings)).map(Arc::new)
    }
}
