//! The outbox: tasks from the transaction that owes them until they are done.
//!
//! A finished task is forgotten: the transactions that write tasks cannot write the same one twice, because each follows a
//! change of an order that happens once.

use std::collections::BTreeMap;

use gateway_core::id::Lot;
use gateway_core::sale::outbox::HIDDEN_FOR;
use gateway_core::sale::{OutboxEntry, Task};
use gateway_core::time::UnixMillis;

/// Tasks that are not done.
#[derive(Default)]
pub(super) struct Outbox {
    last_id: u64,
    tasks: BTreeMap<u64, Owed>,
}

pub(super) struct Owed {
    pub(super) task: Task,
    pub(super) attempts: u16,
    /// `None`: given up.
    due: Option<UnixMillis>,
}

impl Outbox {
    /// Owes `task` from `now` on.
    pub(super) fn owe(&mut self, task: Task, now: UnixMillis) {
        self.last_id += 1;
        self.tasks.insert(self.last_id, Owed { task, attempts: 0, due: Some(now) });
    }

    /// Hands out what is due, oldest first, and hides it for a while.
    pub(super) fn take(&mut self, now: UnixMillis, max: usize) -> Vec<OutboxEntry> {
        let due = |(&id, owed): (&u64, &Owed)| owed.due.filter(|due| *due <= now).map(|due| (due, id));
        let mut ids: Vec<_> = self.tasks.iter().filter_map(due).collect();
        ids.sort_unstable();
        ids.truncate(max);
        let hand_out = |(_, id)| {
            let owed = self.tasks.get_mut(&id)?;
            owed.attempts = owed.attempts.saturating_add(1);
            owed.due = Some(now.plus(HIDDEN_FOR));
            Some(OutboxEntry { id, attempts: owed.attempts, task: owed.task.clone() })
        };
        ids.into_iter().filter_map(hand_out).collect()
    }

    pub(super) fn finish(&mut self, ids: &[u64]) {
        for id in ids {
            self.tasks.remove(id);
        }
    }

    /// Puts a task back until `again`, or gives it up. `None`: it is not there any more.
    pub(super) fn fail(&mut self, id: u64, again: Option<UnixMillis>) -> Option<&Owed> {
        let owed = self.tasks.get_mut(&id)?;
        owed.due = again;
        Some(owed)
    }

    /// Makes a task that was given up due at `now`, with all its attempts before it; says whether there was one.
    pub(super) fn retry(&mut self, id: u64, now: UnixMillis) -> bool {
        let Some(owed) = self.tasks.get_mut(&id).filter(|owed| owed.due.is_none()) else { return false };
        (owed.attempts, owed.due) = (0, Some(now));
        true
    }

    /// What the admission store has not heard of yet, given up or not.
    pub(super) fn owed(&self, lot: Lot) -> u64 {
        let of_lot = |owed: &&Owed| match &owed.task {
            Task::Release { lot: of, .. } | Task::Reserve { lot: of, .. } => *of == lot,
            Task::Refund { .. } => false,
        };
        self.tasks.values().filter(of_lot).count() as u64
    }
}
