//! Versions beside the live one: what is put up, what is kept, who gets the candidate, and what a shadow finds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gateway_core::policy::rollout::{Cohort, Stage};
use gateway_core::policy::{Call, Phase};
use gateway_core::ports::{Policies, PolicySet, PolicyStatus, Side, Versions};

use crate::support::{Rig, artefact, behave, component, conformance, eventually, facts, head, place, policy, variant, word};

/// The conformance guest under other digests.
fn version(number: u8) -> Vec<u8> {
    variant(&component("conformance"), number)
}

fn short(component: &[u8]) -> String {
    artefact(component).digest.short().to_owned()
}

fn live(component: &[u8]) -> Versions {
    Versions { live: Some(artefact(component)), ..Versions::default() }
}

fn trial(candidate: &[u8], stage: Stage) -> Versions {
    Versions { candidate: Some((artefact(candidate), stage)), ..Versions::default() }
}

fn canary() -> Stage {
    Stage::Canary(Cohort::Tail(0b11111))
}

async fn on_side(set: &dyn PolicySet, side: Side, word: &str) -> gateway_core::ports::Answer {
    set.call("p", side, Call::Request(&head("/", &[("x-conformance", word)]), &facts())).await
}

fn versions(status: &PolicyStatus) -> [Option<&str>; 3] {
    [status.version.as_deref(), status.candidate.as_ref().map(|candidate| candidate.version.as_str()), status.standby.as_deref()]
}

#[tokio::test]
async fn all_versions_of_all_policies_of_a_plugin_are_put_up_at_once() {
    let rig = Rig::new(vec![conformance("p"), conformance("q"), policy("other", "rate-limit", r#"{"budgets": []}"#)]);
    let [one, two, three] = [1, 2, 3].map(version);
    let other = rig.status("other").version;
    let versions_of = |name| rig.status(name);
    rig.host
        .apply("conformance", Versions { candidate: Some((artefact(&two), canary())), standby: Some(artefact(&three)), ..live(&one) })
        .await
        .unwrap();
    for name in ["p", "q"] {
        let status = versions_of(name);
        assert_eq!(versions(&status), [Some(&*short(&one)), Some(&*short(&two)), Some(&*short(&three))], "{name}");
        assert_eq!((status.generations_live, status.error), (1, None), "{name}");
    }
    assert_eq!(rig.status("other").version, other);
}

#[tokio::test]
async fn one_version_that_cannot_be_loaded_keeps_all_of_them_back() {
    let rig = Rig::new(vec![conformance("p"), conformance("q")]);
    let before = rig.status("p").version;
    let broken = Versions { candidate: Some((artefact(b"\0asm\x0d\0\x01\0"), Stage::Shadow)), ..live(&version(1)) };
    let problem = rig.host.apply("conformance", broken).await.unwrap_err();
    assert!(problem.contains("not a policy of this world"), "{problem}");
    for name in ["p", "q"] {
        let status = rig.status(name);
        assert_eq!((status.version.clone(), status.candidate.is_none(), status.generations_live), (before.clone(), true, 1), "{name}");
    }
    let lying = gateway_core::ports::Artefact { digest: artefact(b"x").digest, ..artefact(&version(2)) };
    assert!(
        rig.host.apply("conformance", Versions { live: Some(lying), ..Versions::default() }).await.unwrap_err().contains("not the one")
    );
}

#[tokio::test]
async fn going_back_and_promoting_load_nothing() {
    let rig = Rig::new(vec![conformance("p")]);
    let [one, two] = [1, 2].map(version);
    let with = |versions: Versions, standby: &[u8]| Versions { standby: Some(artefact(standby)), ..versions };
    rig.host.apply("conformance", Versions { candidate: Some((artefact(&two), canary())), ..live(&one) }).await.unwrap();
    let loads = rig.host.loads();
    // Promote, go back, go back again.
    for (versions, expected) in [(with(live(&two), &one), &two), (with(live(&one), &two), &one), (with(live(&two), &one), &two)] {
        rig.host.apply("conformance", versions).await.unwrap();
        assert_eq!(rig.behave("p", "allow").await.version.to_string(), short(expected));
        assert_eq!(rig.status("p").generations_live, 1);
    }
    // And back to the folder's file, which was kept as well.
    rig.host.apply("conformance", Versions::default()).await.unwrap();
    assert_eq!(rig.behave("p", "allow").await.version.to_string(), short(&component("conformance")));
    assert_eq!(rig.host.loads(), loads, "nothing was compiled and nothing configured");
}

#[tokio::test]
async fn the_folder_is_followed_in_silence_while_another_version_is_live() {
    let rig = Rig::new(vec![conformance("p")]);
    let [pinned, next] = [1, 2].map(version);
    rig.host.apply("conformance", live(&pinned)).await.unwrap();
    let loads = rig.host.loads().configured;
    place(rig.dir.path(), "conformance", &next);
    eventually("the new file is loaded", || rig.host.loads().configured > loads).await;
    assert_eq!(rig.status("p").version, Some(short(&pinned)));
    place(rig.dir.path(), "conformance", b"broken");
    // The loader takes orders in turn, so the folder has been looked at once an order behind it is done.
    rig.host.apply("conformance", Versions::default()).await.unwrap();
    eventually("the folder's latest good file is live", || rig.status("p").version == Some(short(&next))).await;
    eventually("and its state is the folder's", || rig.status("p").error.is_some()).await;
}

#[tokio::test]
async fn a_canary_divides_the_askers_and_a_request_keeps_its_set() {
    let rig = Rig::new(vec![conformance("p")]);
    let two = version(2);
    let before = rig.set();
    rig.host.apply("conformance", trial(&two, canary())).await.unwrap();
    assert!(before.canary("p").is_none());
    let set = rig.set();
    let found = set.canary("p").unwrap();
    assert_eq!((found.plugin, found.cohort), ("conformance", Cohort::Tail(0b11111)));
    let old = short(&component("conformance"));
    for (side, version) in [(Side::Live, &old), (Side::Candidate, &short(&two))] {
        assert!(set.takes_part("p", side, Phase::Request));
        assert_eq!(on_side(&*set, side, "allow").await.version.to_string(), *version);
    }
    // The trial ends; who holds the set still gets what it says.
    rig.host.apply("conformance", Versions::default()).await.unwrap();
    assert_eq!(on_side(&*set, Side::Candidate, "allow").await.version.to_string(), short(&two));
    assert!(rig.set().canary("p").is_none());
    assert_eq!(on_side(&*rig.set(), Side::Candidate, "allow").await.version.to_string(), old);
    drop((set, before));
    eventually("nothing is left of the trial", || rig.status("p").generations_live == 1).await;
}

#[tokio::test]
async fn both_sides_of_a_trial_are_counted_over_the_same_time() {
    let rig = Rig::new(vec![conformance("p")]);
    rig.behave("p", "allow").await;
    assert_eq!(rig.status("p").counts.calls, 1);
    rig.host.apply("conformance", trial(&version(2), canary())).await.unwrap();
    assert_eq!(rig.status("p").counts.calls, 0, "a trial begins");
    for (side, word) in [(Side::Live, "allow"), (Side::Live, "refuse"), (Side::Candidate, "trap"), (Side::Candidate, "status")] {
        on_side(&*rig.set(), side, word).await;
    }
    // The same again changes nothing.
    rig.host.apply("conformance", trial(&version(2), canary())).await.unwrap();
    let status = rig.status("p");
    assert_eq!((status.counts.calls, status.counts.refusals), (2, 1));
    let candidate = status.candidate.unwrap().counts;
    assert_eq!((candidate.calls, candidate.traps, candidate.bad_verdicts), (2, 1, 1));
    rig.host.apply("conformance", trial(&version(2), Stage::Shadow)).await.unwrap();
    assert_eq!(rig.status("p").candidate.unwrap().counts.calls, 0, "another stage");
}

#[tokio::test]
async fn a_shadow_is_compared_and_has_no_effect() {
    let rig = Rig::new(vec![conformance("p")]);
    rig.host.apply("conformance", trial(&version(2), Stage::Shadow)).await.unwrap();
    let set = rig.set();
    assert!(set.canary("p").is_none());
    for _ in 0..3 {
        assert_eq!(word(&behave(&*set, "p", "allow").await.outcome), "proceed");
    }
    let comparison = || rig.status("p").candidate.unwrap().comparison;
    eventually("all are compared", || comparison().compared == 3).await;
    assert_eq!(comparison().differences, []);
}

#[tokio::test]
async fn what_a_shadow_says_differently_is_counted_and_shown() {
    // Another plugin's guest as candidate: it refuses what the live one lets pass.
    let rig = Rig::new(vec![policy("p", "conformance", "{}")]);
    rig.host.apply("conformance", trial(&component("jwt-auth"), Stage::Shadow)).await.unwrap();
    assert_eq!(word(&rig.behave("p", "allow").await.outcome), "proceed");
    let status = || rig.status("p").candidate.unwrap();
    eventually("it is compared", || status().comparison.compared == 1).await;
    let comparison = status().comparison;
    assert_eq!(comparison.differences, [("refuses", 1)]);
    let sample = &comparison.samples[0];
    assert_eq!((sample.phase, sample.reason, sample.live.as_str()), (Phase::Request, "refuses", "proceed"));
    assert!(sample.shadow.starts_with("refuse 401 UNAUTHENTICATED"), "{}", sample.shadow);
    assert_eq!((sample.trace_id.len(), status().counts.refusals), (32, 1));
}

#[tokio::test]
async fn shadows_delay_nobody_and_too_many_are_dropped() {
    let rig = Rig::new(vec![conformance("p")]);
    rig.host.apply("conformance", trial(&version(2), Stage::Shadow)).await.unwrap();
    let set = rig.set();
    // On this one thread no shadow runs before the first wait, so what is asked meanwhile piles up.
    for _ in 0..100 {
        assert_eq!(word(&behave(&*set, "p", "allow").await.outcome), "proceed");
    }
    let comparison = || rig.status("p").candidate.unwrap().comparison;
    eventually("each was compared or dropped", || comparison().compared + comparison().dropped == 100).await;
    assert_eq!(comparison().differences, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_swaps_leave_memory_and_generations_as_they_were() {
    const SWAPS: u32 = 2_000;
    let rig = Arc::new(Rig::new(vec![conformance("p")]));
    let versions = [1, 2].map(version);
    let (done, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let caller = {
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
    };
    let mut half = 0;
    for swap in 0..SWAPS {
        if swap == SWAPS / 2 {
            half = resident_bytes();
        }
        rig.install("conformance", &versions[(swap % 2) as usize]).await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    caller.await.unwrap();
    eventually("old generations are let go", || rig.status("p").generations_live == 1).await;
    assert!(calls.load(Ordering::Relaxed) > 1_000, "too few calls to show anything");
    // A generation that leaked would be half a megabyte; a thousand of them could not hide here. Other tests share the process.
    let grown = resident_bytes().saturating_sub(half);
    assert!(grown < 200 << 20, "grew by {} MiB over a thousand swaps", grown >> 20);
}

/// The process's resident memory.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}
