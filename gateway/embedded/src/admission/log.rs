//! The log of order events of one shard: who claimed what, and what is not acknowledged.
//!
//! What never happens here: an id used twice; ids are given by the store, which never goes back on them.

use std::collections::BTreeMap;
use std::time::Duration;

use gateway_core::sale::ClaimedEvent;
use gateway_core::time::UnixMillis;

/// Events of one shard, oldest first, until they are acknowledged.
#[derive(Clone, Default)]
pub(super) struct Log {
    entries: BTreeMap<u64, Entry>,
}

#[derive(Clone)]
struct Entry {
    event: ClaimedEvent,
    claim: Option<Claim>,
}

#[derive(Clone)]
struct Claim {
    consumer: String,
    at: UnixMillis,
}

impl Log {
    /// Appends under `id`, which is higher than every earlier one.
    pub(super) fn append(&mut self, id: u64, event: ClaimedEvent) {
        self.entries.insert(id, Entry { event, claim: None });
    }

    /// The consumer's own events, then abandoned ones, then new ones; each group oldest first.
    pub(super) fn claim(&mut self, consumer: &str, max: usize, now: UnixMillis, idle: Duration) -> Vec<ClaimedEvent> {
        let group = |claim: &Option<Claim>| match claim {
            Some(claim) if claim.consumer == consumer => Some(0),
            Some(claim) if now.since(claim.at) > idle => Some(1),
            Some(_) => None,
            None => Some(2),
        };
        let mut due: Vec<(u8, u64)> = self.entries.iter().filter_map(|(&id, entry)| group(&entry.claim).map(|group| (group, id))).collect();
        due.sort_unstable();
        due.truncate(max);
        let hand_out = |(_, id): &(u8, u64)| {
            let entry = self.entries.get_mut(id)?;
            entry.claim = Some(Claim { consumer: consumer.to_owned(), at: now });
            Some(entry.event.clone())
        };
        due.iter().filter_map(hand_out).collect()
    }

    /// Acknowledges an event that `consumer` has claimed; says whether it had.
    pub(super) fn take(&mut self, consumer: &str, id: &str) -> bool {
        let Ok(id) = id.parse() else { return false };
        let claim = self.entries.get(&id).and_then(|entry| entry.claim.as_ref());
        let claimed = claim.is_some_and(|claim| claim.consumer == consumer);
        if claimed {
            self.entries.remove(&id);
        }
        claimed
    }

    pub(super) fn acknowledge(&mut self, ids: &[String]) {
        for id in ids.iter().filter_map(|id| id.parse().ok()) {
            self.entries.remove(&id);
        }
    }

    /// Entries not acknowledged.
    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }
}
