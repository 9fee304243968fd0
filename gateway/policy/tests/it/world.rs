//! The world as guests compile against it.

use std::fs;
use std::path::{Path, PathBuf};

use gateway_policy::inspect;

use crate::support::{Rig, component, conformance, effects, on_one_thread, word};

/// What the compiler of a guest sees: comments and blank lines may change freely.
fn statements(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).collect()
}

#[test]
fn the_published_world_never_changes_under_its_version() {
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let read = |name: &str| fs::read_to_string(wit.join(name)).unwrap();
    let (policy, world, golden) = (read("policy.wit"), read("world.wit"), read("golden/0.1.1.wit"));
    assert!(policy.contains("package sluice:policy@0.1.1;"), "a new version needs a golden file of its own");
    assert_eq!([statements(&policy), statements(&world)].concat(), statements(&golden));
}

fn wit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit")
}

#[test]
fn a_guest_of_the_first_world_still_loads_and_answers() {
    let frozen = fs::read(wit().join("golden/0.1.0-guest.wasm")).unwrap();
    let imports = inspect(&frozen).unwrap().imports;
    assert!(imports.iter().all(|name| name.ends_with("@0.1.0")) && imports.len() >= 3, "{imports:?}");
    assert!(inspect(&component("conformance")).unwrap().imports.iter().all(|name| name.ends_with("@0.1.1")));

    let rig = Rig::new(vec![conformance("p")]);
    on_one_thread(async {
        rig.install("conformance", &frozen).await.unwrap();
        assert_eq!(rig.status("p").error, None);
        assert_eq!(word(&rig.behave("p", "refuse").await.outcome), "NO");
        assert_eq!(effects(rig.behave("p", "list").await).tags, ["listed:false"]);
        assert_eq!(effects(rig.behave("p", "verify").await).tags, ["malformed"]);
    });
}
