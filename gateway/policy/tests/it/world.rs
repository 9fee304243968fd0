//! The world as guests compile against it.

use std::fs;
use std::path::Path;

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
