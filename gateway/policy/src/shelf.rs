//! What is loaded of every policy: the live generation, those kept at hand beside it, and the table that says who answers.
//!
//! What never happens here: loading. The loader brings generations and is the only one that puts them up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use gateway_core::policy::Digest;
use gateway_core::policy::rollout::Stage;
use gateway_core::ports::{CandidateStatus, PolicyStatus};

use crate::generation::Generation;
use crate::lent::Lent;
use crate::settings::PolicySettings;
use crate::shadow::{Comparing, IN_FLIGHT_MAX};
use crate::table::{Seat, Table, Trial};

/// A configured policy.
pub(crate) struct Entry {
    pub(crate) settings: PolicySettings,
    pub(crate) lent: Arc<Lent>,
}

/// The live table and what is behind it. Entries are in configuration order.
pub(crate) struct Shelf {
    table: ArcSwap<Table>,
    pub(crate) entries: Vec<Entry>,
    /// One for each entry. Held while a table is put up, so that a report never mixes before and after.
    books: Mutex<Vec<Book>>,
    share: Share,
    shadows_in_flight_max: usize,
}

/// What the host knows of one policy beyond the table.
#[derive(Default)]
struct Book {
    slots: Slots,
    /// Why the file in the folder could not be loaded.
    folder_error: Option<String>,
    /// Why the versions that were last asked for could not be.
    apply_error: Option<String>,
    /// Every generation that somebody may still hold.
    generations: Vec<Weak<Generation>>,
}

/// The generations of one policy that are kept loaded. One generation may be in several of them.
#[derive(Clone, Default)]
pub(crate) struct Slots {
    /// Whether another version than the folder's was asked for.
    pub(crate) pinned: bool,
    pub(crate) live: Option<Arc<Generation>>,
    pub(crate) candidate: Option<(Arc<Generation>, Stage)>,
    pub(crate) standby: Option<Arc<Generation>>,
    /// The file in the folder, live or not.
    pub(crate) folder: Option<Arc<Generation>>,
}

impl Slots {
    fn all(&self) -> impl Iterator<Item = &Arc<Generation>> {
        let candidate = self.candidate.as_ref().map(|(generation, _)| generation);
        [self.live.as_ref(), candidate, self.standby.as_ref(), self.folder.as_ref()].into_iter().flatten()
    }

    /// The kept generation of this component, if there is one.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Arc<Generation>> {
        self.all().find(|generation| generation.digest == *digest).map(Arc::clone)
    }

    fn holds(&self, generation: &Arc<Generation>) -> bool {
        self.all().any(|kept| Arc::ptr_eq(kept, generation))
    }

    fn is_live(&self, generation: &Arc<Generation>) -> bool {
        self.live.as_ref().is_some_and(|live| Arc::ptr_eq(live, generation))
    }
}

/// How many idle instances the generations of one policy may keep. Idle instances hold slots of the engine; whatever is
/// kept, half of the slots stay free for calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    live: usize,
    candidate: usize,
    /// For what nobody asks at present: one instance says that it can be asked at once.
    aside: usize,
}

/// Warm instances the live generation of one policy keeps at most. Calls run to their end on their thread, so as many as
/// threads are ever useful.
const IDLE_MAX: usize = 32;

impl Share {
    /// Divides half of `instances_max` slots among `policies`.
    pub(crate) fn of(instances_max: u32, policies: usize) -> Self {
        let share = usize::try_from(instances_max).unwrap_or(usize::MAX) / 2 / policies.max(1);
        let (candidate, aside) = ((share / 4).min(IDLE_MAX), usize::from(share >= 4));
        Self { live: (share - candidate - 2 * aside).min(IDLE_MAX), candidate, aside }
    }
}

impl Shelf {
    pub(crate) fn new(entries: Vec<Entry>, instances_max: u32) -> Self {
        let books = entries.iter().map(|_| Book::default()).collect();
        let share = Share::of(instances_max, entries.len());
        // Shadows must not use up the slots that live calls need.
        let shadows_in_flight_max = usize::try_from(instances_max / 4).unwrap_or(usize::MAX).clamp(1, IN_FLIGHT_MAX);
        Self { table: ArcSwap::default(), entries, books: Mutex::new(books), share, shadows_in_flight_max }
    }

    pub(crate) fn current(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// What is kept of the policy at `index`.
    pub(crate) fn slots(&self, index: usize) -> Slots {
        self.books().get(index).map(|book| book.slots.clone()).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> Vec<PolicyStatus> {
        let books = self.books();
        let table = self.table.load();
        self.entries.iter().zip(books.iter()).map(|(entry, book)| status(entry, book, &table)).collect()
    }

    /// The version that is live for the policy at `index`.
    pub(crate) fn version(&self, index: usize) -> Option<Arc<str>> {
        self.slots(index).live.map(|live| Arc::clone(&live.version))
    }

    /// Puts up `changes`, the new slots of some policies by index, all at once. What is no longer kept stops being warm; who
    /// still holds it can ask it to the end. Only the loader calls this, so nothing is lost between reading and storing.
    pub(crate) fn put_up(&self, changes: Vec<(usize, Slots)>) {
        let mut gone = Vec::new();
        {
            let mut books = self.books();
            let mut table = Table::clone(&self.table.load());
            for (index, slots) in changes {
                let (Some(entry), Some(book)) = (self.entries.get(index), books.get_mut(index)) else { continue };
                table.put(self.seat(entry, &slots, table.seat(&entry.settings.name)));
                book.generations.retain(|generation| generation.strong_count() > 0);
                for generation in slots.all() {
                    if !book.generations.iter().any(|known| known.as_ptr() == Arc::as_ptr(generation)) {
                        book.generations.push(Arc::downgrade(generation));
                    }
                }
                let before = std::mem::replace(&mut book.slots, slots);
                gone.extend(before.all().filter(|generation| !book.slots.holds(generation)).map(Arc::clone));
                self.allot(&book.slots);
            }
            self.table.store(Arc::new(table));
        }
        gone.iter().for_each(|generation| generation.keep(0));
    }

    /// Counts begin anew when the live version is another one, or when a trial begins: both sides of a comparison are
    /// counted over the same time.
    fn seat(&self, entry: &Entry, slots: &Slots, before: Option<&Arc<Seat>>) -> Seat {
        let same = before.filter(|before| match (&before.live, &slots.live) {
            (Some(before), Some(live)) => Arc::ptr_eq(before, live),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        });
        let same_trial =
            same.and_then(|before| before.trial.as_ref()).zip(slots.candidate.as_ref()).and_then(|(trial, (generation, stage))| {
                (Arc::ptr_eq(&trial.generation, generation) && trial.stage == *stage).then(|| Arc::clone(trial))
            });
        let new_trial = |(generation, stage): &(Arc<Generation>, Stage)| {
            let (generation, stage) = (Arc::clone(generation), stage.clone());
            Arc::new(Trial { generation, stage, tally: Default::default(), comparing: Comparing::new(self.shadows_in_flight_max) })
        };
        let begins = slots.candidate.is_some() && same_trial.is_none();
        Seat {
            policy: entry.settings.name.as_str().into(),
            plugin: entry.settings.plugin.as_str().into(),
            live: slots.live.clone(),
            tally: same.filter(|_| !begins).map(|before| Arc::clone(&before.tally)).unwrap_or_default(),
            trial: same_trial.or_else(|| slots.candidate.as_ref().map(new_trial)),
        }
    }

    fn allot(&self, slots: &Slots) {
        for generation in slots.all() {
            let candidate = slots.candidate.as_ref().is_some_and(|(candidate, _)| Arc::ptr_eq(candidate, generation));
            generation.keep(match (slots.is_live(generation), candidate) {
                (true, _) => self.share.live,
                (false, true) => self.share.candidate,
                (false, false) => self.share.aside,
            });
        }
    }

    /// Remembers how loading the folder's file for the policy at `index` went.
    pub(crate) fn note_folder(&self, index: usize, error: Option<String>) {
        if let Some(book) = self.books().get_mut(index) {
            book.folder_error = error;
        }
    }

    /// Remembers how the versions that were asked for the policy at `index` went.
    pub(crate) fn note_apply(&self, index: usize, error: Option<String>) {
        if let Some(book) = self.books().get_mut(index) {
            book.apply_error = error;
        }
    }

    fn books(&self) -> MutexGuard<'_, Vec<Book>> {
        // Whoever panicked under this lock left at worst a line too few.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn status(entry: &Entry, book: &Book, table: &Table) -> PolicyStatus {
    let Book { slots, folder_error, apply_error, generations } = book;
    let seat = table.seat(&entry.settings.name);
    let aside = |generation: &Arc<Generation>| slots.holds(generation) && !slots.is_live(generation);
    PolicyStatus {
        name: entry.settings.name.clone(),
        plugin: entry.settings.plugin.clone(),
        version: slots.live.as_ref().map(|live| live.version.to_string()),
        // While the folder is not followed, nobody needs a file in it.
        error: apply_error.clone().or_else(|| folder_error.clone().filter(|_| !slots.pinned)),
        generations_live: generations.iter().filter_map(Weak::upgrade).filter(|generation| !aside(generation)).count(),
        counts: seat.map(|seat| seat.tally.counts()).unwrap_or_default(),
        candidate: seat.and_then(|seat| seat.trial.as_ref()).map(|trial| CandidateStatus {
            version: trial.generation.version.to_string(),
            stage: trial.stage.clone(),
            counts: trial.tally.counts(),
            comparison: trial.comparing.report(),
        }),
        standby: slots.standby.as_ref().map(|standby| standby.version.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_kept_warm_leaves_half_of_the_slots_free() {
        for (instances_max, policies) in [(1, 1), (2, 1), (8, 1), (32, 2), (200, 5), (10_000, 1), (200, 100), (200, 0)] {
            let share = Share::of(instances_max, policies);
            let kept = (share.live + share.candidate + 2 * share.aside) * policies;
            assert!(kept <= usize::try_from(instances_max / 2).unwrap(), "{instances_max} {policies} {share:?}");
        }
        assert_eq!(Share::of(200, 5), Share { live: 13, candidate: 5, aside: 1 });
        assert_eq!(Share::of(2, 1), Share { live: 1, candidate: 0, aside: 0 });
    }
}
