//! Noticing that the plugin folder has changed. What changed is not asked: the loader looks at every file it serves.

use std::path::Path;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::settings::HostError;

/// Calls `changed` after each change in `dir` until the returned guard is dropped. Reading a file is no change, though the
/// system reports it: a loader that woke itself by reading would never sleep.
pub(crate) fn watch(dir: &Path, changed: impl Fn() + Send + 'static) -> Result<RecommendedWatcher, HostError> {
    let failed = |source: notify::Error| HostError::Watch { dir: dir.to_owned(), source: source.into() };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| match event {
        Ok(event) if !is_change(event.kind) => {}
        // An error may stand for events that were lost.
        Ok(_) | Err(_) => changed(),
    })
    .map_err(failed)?;
    watcher.watch(dir, RecursiveMode::NonRecursive).map_err(failed)?;
    Ok(watcher)
}

fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) | EventKind::Any | EventKind::Other => true,
    }
}
