//! Block and allow lists, kept in memory and replaced whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Most lists a node keeps.
const LISTS_MAX: usize = 64;

/// Most entries of one list; at 64 bytes each this is about 100 MB with its index.
const ENTRIES_MAX: usize = 1_000_000;

type Entries = Arc<HashSet<String>>;

/// Named sets of strings. Reading never waits for a writer.
#[derive(Default)]
pub struct Lists(ArcSwap<HashMap<String, Entries>>);

/// A list was not replaced because it, or the number of lists, is beyond the bound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("list {name}: at most {ENTRIES_MAX} entries in at most {LISTS_MAX} lists")]
pub struct TooLarge {
    /// The list.
    pub name: String,
}

impl Lists {
    /// Replaces the list `name`; a call that asks afterwards sees all of the new entries and none of the old.
    ///
    /// # Errors
    /// [`TooLarge`]; the old list stays.
    pub fn replace(&self, name: &str, entries: impl IntoIterator<Item = String>) -> Result<(), TooLarge> {
        let too_large = || TooLarge { name: name.to_owned() };
        let entries: HashSet<String> = entries.into_iter().take(ENTRIES_MAX + 1).collect();
        if entries.len() > ENTRIES_MAX || (self.0.load().len() >= LISTS_MAX && !self.0.load().contains_key(name)) {
            return Err(too_large());
        }
        let entries = Arc::new(entries);
        self.0.rcu(|lists| {
            let mut lists = HashMap::clone(lists);
            lists.insert(name.to_owned(), Arc::clone(&entries));
            lists
        });
        Ok(())
    }

    /// Whether `key` is on the list `name`. A list nobody has filled is empty.
    #[must_use]
    pub fn contains(&self, name: &str, key: &str) -> bool {
        self.0.load().get(name).is_some_and(|entries| entries.contains(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_replaced_whole() {
        let lists = Lists::default();
        assert!(!lists.contains("block-users", "u1"));
        lists.replace("block-users", ["u1".to_owned(), "u2".to_owned()]).unwrap();
        assert!(lists.contains("block-users", "u1") && !lists.contains("block-devices", "u1"));
        lists.replace("block-users", ["u3".to_owned()]).unwrap();
        assert!(!lists.contains("block-users", "u1") && lists.contains("block-users", "u3"));
    }

    #[test]
    fn the_number_of_lists_is_bounded() {
        let lists = Lists::default();
        for number in 0..LISTS_MAX {
            lists.replace(&number.to_string(), []).unwrap();
        }
        assert!(lists.replace("one-more", []).is_err());
        assert!(lists.replace("0", ["k".to_owned()]).is_ok(), "an existing list can still be replaced");
    }
}
