//! Generations come and go while calls are made; a bad file changes nothing.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gateway_core::policy::{Fault, Phase};
use gateway_core::ports::Side;
use tempfile::TempDir;

use crate::support::{Rig, behave, component, conformance, effects, eventually, place, policy, variant, word};

#[tokio::test]
async fn a_file_that_is_renamed_into_place_becomes_the_live_generation() {
    let rig = Rig::new(vec![conformance("a"), conformance("b")]);
    let before = rig.status("a").version;
    let held = rig.set();
    place(rig.dir.path(), "conformance", &variant(&component("conformance"), 1));
    eventually("both policies of the plugin move on", || ["a", "b"].iter().all(|policy| rig.status(policy).version != before)).await;

    assert_eq!(behave(&*held, "a", "allow").await.version.to_string(), before.unwrap(), "a request keeps the generation it began on");
    assert_eq!(rig.status("a").generations_live, 2);
    assert_eq!(Some(rig.behave("a", "allow").await.version.to_string()), rig.status("a").version);
    drop(held);
    // The loader may be taking the old one apart at this moment.
    eventually("the old generation is let go", || rig.status("a").generations_live == 1).await;
}

#[tokio::test]
async fn a_file_that_is_overwritten_in_pieces_is_loaded_when_it_is_whole() {
    let rig = Rig::new(vec![conformance("p")]);
    let before = rig.status("p").version;
    let next = variant(&component("conformance"), 1);
    let path = rig.dir.path().join("conformance.wasm");
    fs::write(&path, &next[..next.len() / 2]).unwrap();
    eventually("the half file is found to be broken", || rig.status("p").error.is_some()).await;
    assert_eq!(rig.status("p").version, before, "the last good generation stays");
    assert_eq!(word(&rig.behave("p", "allow").await.outcome), "proceed");
    fs::write(&path, &next).unwrap();
    eventually("the whole file is loaded", || rig.status("p").version != before).await;
    assert_eq!(rig.status("p").error, None);
}

#[tokio::test]
async fn a_policy_without_a_file_is_missing_until_the_file_comes() {
    let rig = Rig::in_folder(TempDir::new().unwrap(), vec![conformance("p")], 8);
    let status = rig.status("p");
    assert_eq!((status.version, status.generations_live), (None, 0));
    assert!(status.error.unwrap().contains("conformance.wasm is not there"));
    assert_eq!(rig.behave("p", "allow").await.outcome, Err(Fault::Missing));
    place(rig.dir.path(), "conformance", &component("conformance"));
    eventually("the file is loaded", || rig.status("p").version.is_some()).await;
    assert_eq!(word(&rig.behave("p", "allow").await.outcome), "proceed");
}

#[tokio::test]
async fn a_file_that_goes_away_leaves_its_generation_and_a_word() {
    let rig = Rig::new(vec![conformance("p")]);
    let before = rig.status("p").version;
    fs::remove_file(rig.dir.path().join("conformance.wasm")).unwrap();
    eventually("it is noticed", || rig.status("p").error.is_some()).await;
    assert_eq!(rig.status("p").version, before);
    assert_eq!(word(&rig.behave("p", "allow").await.outcome), "proceed");
}

#[tokio::test]
async fn hundreds_of_swaps_fail_no_call_and_leave_one_generation() {
    const SWAPS: u8 = 250;
    let rig = Arc::new(Rig::new(vec![conformance("p")]));
    let variants = [1, 2].map(|number| variant(&component("conformance"), number));
    let (done, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));

    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (rig, done, calls) = (Arc::clone(&rig), Arc::clone(&done), Arc::clone(&calls));
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    let set = rig.set();
                    let [first, second] = [behave(&*set, "p", "allow").await, behave(&*set, "p", "allow").await];
                    assert_eq!((word(&first.outcome), word(&second.outcome)), ("proceed".into(), "proceed".into()));
                    assert_eq!(first.version, second.version, "one request sees one version");
                    calls.fetch_add(2, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();

    for swap in 0..SWAPS {
        rig.install("conformance", &variants[usize::from(swap % 2)]).await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(calls.load(Ordering::Relaxed) > u32::from(SWAPS), "too few calls to show anything");
    eventually("old generations are let go", || rig.status("p").generations_live == 1).await;
}

#[tokio::test]
async fn a_component_that_cannot_be_loaded_changes_nothing() {
    let rig = Rig::new(vec![conformance("p"), policy("trap", "rate-limit", r#"{"budgets": []}"#)]);
    let before = rig.status("p").version;
    let good = component("conformance");
    let truncated = good[..good.len() - 100].to_vec();
    let cases = [
        ("garbage", b"not wasm at all".to_vec(), "not a component"),
        ("empty", Vec::new(), "not a component"),
        ("truncated", truncated, "not a component"),
        ("a core module", b"\0asm\x01\0\0\0".to_vec(), "not a component"),
        ("a component of another world", b"\0asm\x0d\0\x01\0".to_vec(), "not a policy of this world"),
    ];
    for (what, bytes, sentence) in cases {
        let refused = rig.install("conformance", &bytes).await.unwrap_err();
        assert_eq!(refused.lines().count(), 1, "{refused}");
        assert!(refused.contains(sentence), "{what}: {refused}");
        let status = rig.status("p");
        assert_eq!((status.version, status.error), (before.clone(), Some(refused)), "{what}");
        assert_eq!(word(&rig.behave("p", "allow").await.outcome), "proceed", "{what}");
    }
    assert!(rig.install("nobody", &good).await.unwrap_err().contains("no policy of this node"));
    rig.install("conformance", &good).await.unwrap();
    assert_eq!(rig.status("p").error, None, "the next good one clears the error");
}

#[tokio::test]
async fn a_guest_that_fails_while_loading_is_not_published() {
    for (config, sentence) in [
        ("\"refuse\"", "refuses its configuration: told to refuse"),
        ("\"trap\"", "its configure ended in a trap"),
        ("\"spin\"", "its configure ended in a timeout"),
        ("\"bad-name\"", "its name"),
    ] {
        let rig = Rig::new(vec![policy("p", "conformance", config)]);
        let status = rig.status("p");
        assert_eq!(status.version, None);
        assert!(status.error.as_ref().is_some_and(|error| error.contains(sentence)), "{config}: {status:?}");
        assert_eq!(rig.behave("p", "allow").await.outcome, Err(Fault::Missing));
    }
}

#[tokio::test]
async fn one_file_serves_policies_of_different_configuration() {
    let strict = r#"{"budgets": [{"name": "strict", "key": "ip", "limit": 1, "window_ms": 1000}]}"#;
    let lax = r#"{"budgets": [{"name": "lax", "key": "ip", "limit": 9, "window_ms": 1000}]}"#;
    let rig = Rig::new(vec![policy("strict", "rate-limit", strict), policy("lax", "rate-limit", lax)]);
    let set = rig.set();
    for (name, limit) in [("strict", 1), ("lax", 9)] {
        let charges = effects(behave(&*set, name, "-").await).charges;
        assert_eq!((charges[0].budget.as_str(), charges[0].limit), (name, limit));
    }
    assert!(set.takes_part("lax", Side::Live, Phase::Request) && !set.takes_part("lax", Side::Live, Phase::Message));
}
