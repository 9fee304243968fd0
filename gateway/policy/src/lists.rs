//! Block and allow lists, kept in memory and replaced whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Most lists a node keeps.
const LISTS_MAX: usize = 64;

/// Most entries of one list; at 64 bytes each this is about 100 MB with its index.
const ENTRIES_MAX: usize = 1_000_000;

/// Entries of one list, each once, in order.
pub type Entries = Arc<[Arc<str>]>;

/// One list, as it was made at once.
struct List {
    version: u64,
    index: Arc<HashSet<Arc<str>>>,
    entries: Entries,
}

/// Named sets of strings. Reading never waits for a writer.
#[derive(Default)]
pub struct Lists(ArcSwap<HashMap<String, Arc<List>>>);

/// A list was not replaced because it, or the number of lists, is beyond the bound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("list {name}: at most {ENTRIES_MAX} entries in at most {LISTS_MAX} lists")]
pub struct TooLarge {
    /// The list.
    pub name: String,
}

impl Lists {
    /// Replaces the list `name` and raises its version; a call that asks afterwards sees all of the new entries and none of
    /// the old.
    ///
    /// # Errors
    /// [`TooLarge`]; the old list stays.
    pub fn replace(&self, name: &str, entries: impl IntoIterator<Item = String>) -> Result<(), TooLarge> {
        let index: HashSet<Arc<str>> = entries.into_iter().take(ENTRIES_MAX + 1).map(Arc::from).collect();
        if index.len() > ENTRIES_MAX || (self.0.load().len() >= LISTS_MAX && !self.0.load().contains_key(name)) {
            return Err(TooLarge { name: name.to_owned() });
        }
        let mut entries: Vec<Arc<str>> = index.iter().cloned().collect();
        entries.sort_unstable();
        let (index, entries) = (Arc::new(index), Entries::from(entries));
        self.0.rcu(|lists| {
            let version = lists.get(name).map_or(0, |list| list.version) + 1;
            let list = List { version, index: Arc::clone(&index), entries: Arc::clone(&entries) };
            let mut lists = HashMap::clone(lists);
            lists.insert(name.to_owned(), Arc::new(list));
            lists
        });
        Ok(())
    }

    /// Whether `key` is on the list `name`. A list nobody has filled is empty.
    #[must_use]
    pub fn contains(&self, name: &str, key: &str) -> bool {
        self.0.load().get(name).is_some_and(|list| list.index.contains(key))
    }

    /// How often the list `name` was replaced; 0 when nobody has filled it. Whoever made something of its entries makes it
    /// again when this has changed.
    #[must_use]
    pub fn version(&self, name: &str) -> u64 {
        self.0.load().get(name).map_or(0, |list| list.version)
    }

    /// The entries of the list `name`.
    #[must_use]
    pub fn entries(&self, name: &str) -> Entries {
        self.0.load().get(name).map_or_else(|| Entries::from([]), |list| Arc::clone(&list.entries))
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
    fn each_replacement_has_a_version_of_its_own() {
        let lists = Lists::default();
        assert_eq!((lists.version("a"), lists.entries("a").len()), (0, 0));
        for (version, entries) in [(1, ["y", "x", "y"]), (2, ["z", "x", "z"])] {
            lists.replace("a", entries.map(str::to_owned)).unwrap();
            let mut sorted = entries.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(lists.version("a"), version);
            assert_eq!(lists.entries("a").iter().map(|entry| &**entry).collect::<Vec<_>>(), sorted);
        }
        lists.replace("b", []).unwrap();
        assert_eq!((lists.version("a"), lists.version("b")), (2, 1), "a version is the list's own");
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
