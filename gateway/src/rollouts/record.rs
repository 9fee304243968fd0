//! What the registry holds about plugins, lists and nodes: the JSON of its records.
//!
//! What never happens here: reading or writing one. Unknown members are passed over, so that nodes of two releases can share a
//! registry.

use std::collections::{BTreeMap, BTreeSet};

use gateway_core::policy::Digest;
use gateway_core::policy::rollout::{BundleRef, Rollout};
use gateway_core::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// Versions of a plugin that can be rolled out; an older one is pushed again.
pub(crate) const VERSIONS_MAX: usize = 20;

/// Shortest prefix of a digest that names a version.
const PREFIX_DIGITS_MIN: usize = 8;

/// A plugin: its versions, and who gets which.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PluginRecord {
    /// Who gets which.
    pub(crate) rollout: Rollout,
    /// The latest [`VERSIONS_MAX`], the newest last.
    #[serde(default)]
    pub(crate) versions: Vec<Version>,
}

/// A bundle somebody pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    /// The bundle.
    pub(crate) bundle: BundleRef,
    /// What its author calls it.
    pub(crate) version: String,
    /// Whose signature it has.
    pub(crate) signer: String,
    /// Size of the bundle.
    pub(crate) bytes: usize,
    /// When it was pushed, and by whom.
    pub(crate) at: UnixMillis,
    /// By whom.
    pub(crate) by: String,
}

/// Which version is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// This one.
    One(&'a Version),
    /// None has that digest.
    None,
    /// More than one has a digest that begins so.
    Several,
}

impl PluginRecord {
    /// A plugin of which only the file in the folder is known.
    pub(crate) fn new(plugin: &str) -> Self {
        Self { rollout: Rollout::new(plugin), versions: Vec::new() }
    }

    /// Makes `version` the newest. An older entry of the same component goes, and so do the oldest that nobody needs.
    /// Says whether that changed anything.
    pub(crate) fn add(&mut self, version: Version) -> bool {
        if self.versions.last().is_some_and(|last| last.bundle == version.bundle) {
            return false;
        }
        self.versions.retain(|known| known.bundle.component != version.bundle.component);
        self.versions.push(version);
        while self.versions.len() > VERSIONS_MAX {
            let needed: BTreeSet<&Digest> = self.rollout.bundles().map(|bundle| &bundle.component).collect();
            let oldest = self.versions.iter().position(|known| !needed.contains(&known.bundle.component)).unwrap_or(0);
            self.versions.remove(oldest);
        }
        true
    }

    /// The version that `wanted` names: `latest`, or the beginning of its component's digest.
    pub(crate) fn find(&self, wanted: &str) -> Found<'_> {
        if wanted == "latest" {
            return self.versions.last().map_or(Found::None, Found::One);
        }
        if wanted.len() < PREFIX_DIGITS_MIN {
            return Found::None;
        }
        let mut fitting = self.versions.iter().filter(|version| version.bundle.component.as_str().starts_with(wanted));
        match (fitting.next(), fitting.next()) {
            (Some(one), None) => Found::One(one),
            (None, _) => Found::None,
            (Some(_), Some(_)) => Found::Several,
        }
    }

    /// The names of all blobs it needs.
    pub(crate) fn blobs(&self) -> BTreeSet<Digest> {
        self.versions.iter().map(|version| &version.bundle).chain(self.rollout.bundles()).map(|bundle| bundle.bundle.clone()).collect()
    }
}

/// A list that every node has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListRecord {
    /// The blob: one entry a line, sorted.
    pub(crate) digest: Digest,
    /// How many there are.
    pub(crate) entries: usize,
    /// When it was replaced.
    pub(crate) at: UnixMillis,
    /// By whom.
    pub(crate) by: String,
    /// Blobs of before that some node may still be fetching, the latest last.
    #[serde(default)]
    pub(crate) earlier: Vec<Digest>,
}

/// What a node runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeReport {
    /// The node.
    pub(crate) name: String,
    /// When it said so.
    pub(crate) seen: UnixMillis,
    /// By plugin that one of its policies uses.
    #[serde(default)]
    pub(crate) plugins: BTreeMap<String, PluginReport>,
    /// By list of the registry.
    #[serde(default)]
    pub(crate) lists: BTreeMap<String, ListReport>,
}

/// What a node runs of one plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginReport {
    /// First digits of the version that judges; `None` when none is loaded.
    pub(crate) live: Option<String>,
    /// First digits of the version on trial.
    pub(crate) candidate: Option<String>,
    /// `shadow` or `canary`.
    pub(crate) stage: Option<String>,
    /// First digits of the version kept to go back to.
    pub(crate) standby: Option<String>,
    /// The revision of the record that it follows; 0 for none.
    pub(crate) revision: u64,
    /// The revision of the record it has tried last.
    pub(crate) tried: u64,
    /// Why it does not, or not wholly, follow the record it has tried last.
    pub(crate) error: Option<String>,
    /// What is wrong with what its policies load themselves: the file in the plugin folder.
    #[serde(default)]
    pub(crate) load_error: Option<String>,
}

/// What a node has of one list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListReport {
    /// First digits of what it has; `None` while it has only what its configuration says.
    pub(crate) digest: Option<String>,
    /// First digits of what it tried to get last.
    pub(crate) tried: Option<String>,
    /// What is wrong.
    pub(crate) error: Option<String>,
}

/// The key of a node's record: its name where that is a key, else a readable rest of it and a digest.
pub(crate) fn node_key(name: &str) -> String {
    let fits = |b: char| b.is_ascii_alphanumeric() || b == '-' || b == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        return name.to_owned();
    }
    let readable: String = name.chars().map(|c| if fits(c) { c } else { '-' }).take(48).collect();
    format!("{readable}-{}", Digest::of(name.as_bytes()).short())
}

#[cfg(test)]
mod tests {
    use gateway_core::policy::regression::Limits;
    use gateway_core::policy::rollout::{Candidate, Stage};

    use super::*;

    fn version(number: usize) -> Version {
        let component = Digest::of(format!("component {number}").as_bytes());
        let bundle = Digest::of(format!("bundle {number}").as_bytes());
        let bundle = BundleRef { component, bundle };
        Version { bundle, version: number.to_string(), signer: "k".into(), bytes: 1, at: UnixMillis(1), by: "eve".into() }
    }

    fn numbers(record: &PluginRecord) -> Vec<&str> {
        record.versions.iter().map(|version| version.version.as_str()).collect()
    }

    #[test]
    fn a_version_pushed_again_is_the_newest_and_is_there_once() {
        let mut record = PluginRecord::new("demo");
        assert!(record.add(version(1)) && record.add(version(2)));
        assert!(!record.add(version(2)), "nothing changes");
        assert!(record.add(version(1)));
        assert_eq!(numbers(&record), ["2", "1"]);
        let mut signed_again = version(2);
        signed_again.bundle.bundle = Digest::of(b"another signature");
        assert!(record.add(signed_again.clone()));
        assert_eq!(record.find("latest"), Found::One(&signed_again));
        assert_eq!(record.versions.len(), 2);
    }

    #[test]
    fn versions_are_bounded_and_one_in_use_stays() {
        let mut record = PluginRecord::new("demo");
        record.add(version(0));
        let candidate = Candidate { bundle: version(0).bundle, stage: Stage::Shadow, since: UnixMillis(1), limits: Limits::default() };
        record.rollout.start(candidate, "eve", UnixMillis(1)).unwrap();
        for number in 1..=VERSIONS_MAX + 5 {
            record.add(version(number));
        }
        assert_eq!(record.versions.len(), VERSIONS_MAX);
        assert_eq!(numbers(&record)[..2], ["0", "7"]);
        assert_eq!(record.blobs().len(), VERSIONS_MAX);
    }

    #[test]
    fn a_version_is_named_by_enough_of_its_digest() {
        let mut record = PluginRecord::new("demo");
        assert_eq!(record.find("latest"), Found::None);
        record.add(version(1));
        let mut twin = version(1);
        let digits = format!("{}{}", &twin.bundle.component.as_str()[..20], "0".repeat(44));
        twin.bundle.component = Digest::parse(&digits).unwrap();
        let whole = version(1).bundle.component;
        assert_eq!(record.find(&whole.as_str()[..8]), Found::One(&version(1)));
        assert_eq!(record.find(&whole.as_str()[..7]), Found::None, "seven digits are a guess");
        assert_eq!(record.find(""), Found::None);
        record.add(twin);
        assert_eq!(record.find(&whole.as_str()[..20]), Found::Several);
        assert_eq!(record.find(whole.as_str()), Found::One(&version(1)));
    }

    #[test]
    fn any_name_of_a_node_makes_a_key_of_its_own() {
        assert_eq!(node_key("edge-1"), "edge-1");
        let (dotted, dashed) = (node_key("edge.1"), node_key("edge-1"));
        assert_ne!(dotted, dashed);
        for name in ["", "a.b", &"é".repeat(100), &"x".repeat(65)] {
            let key = node_key(name);
            assert!((1..=64).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{key}");
        }
    }
}
