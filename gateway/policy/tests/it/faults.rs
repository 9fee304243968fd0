//! Guests that misbehave: each ends as the fault it is, and harms nobody else.

use std::time::{Duration, Instant};

use gateway_core::id::{ActivityId, SessionId, ShopId, SkuId};
use gateway_core::policy::{Attempt, Call, Fault, Message, Phase, ResponseHead, Verdict};
use gateway_core::ports::Side;
use gateway_policy::{Mode, PolicySettings};
use tempfile::TempDir;

use crate::support::{MODES, Rig, behave, component, conformance, effects, facts, head, on_one_thread, place, word};

const SHORT: Duration = Duration::from_millis(150);

fn short(mode: Mode) -> PolicySettings {
    PolicySettings { timeout: SHORT, mode, ..conformance("short") }
}

#[test]
fn a_guest_that_never_ends_runs_out_of_time_and_others_go_on() {
    for spin in ["spin", "copy"] {
        for mode in MODES {
            let rig = Rig::new(vec![short(mode), conformance("other")]);
            on_one_thread(async {
                let set = rig.set();
                let started = Instant::now();
                let spinning = behave(&*set, "short", spin);
                tokio::pin!(spinning);
                let mut answered = 0_u32;
                // Cancel safe: the loop only ever drops calls it does not need the answer of.
                let answer = loop {
                    tokio::select! {
                        biased;
                        answer = &mut spinning => break answer,
                        other = behave(&*set, "other", "allow") => {
                            assert_eq!(word(&other.outcome), "proceed");
                            answered += 1;
                            tokio::task::yield_now().await;
                        }
                    }
                };
                assert_eq!(answer.outcome, Err(Fault::Timeout), "{spin} {mode:?}");
                assert!(started.elapsed() >= SHORT, "it had its time");
                assert!(answered > 5, "on the same thread only {answered} other calls were answered meanwhile");
                assert!(behave(&*set, "short", "allow").await.outcome.is_ok_and(|verdict| matches!(verdict, Verdict::Proceed(_))));
            });
        }
    }
}

#[test]
fn a_fault_costs_one_call_and_no_more() {
    let faults = [
        ("trap", Fault::Trap),
        ("recurse", Fault::Trap),
        ("allocate", Fault::Trap),
        ("status", Fault::BadVerdict),
        ("spin", Fault::Timeout),
    ];
    for mode in MODES {
        let rig = Rig::new(vec![short(mode)]);
        on_one_thread(async {
            for (behaviour, fault) in faults {
                assert_eq!(rig.behave("short", behaviour).await.outcome, Err(fault), "{behaviour} {mode:?}");
                for _ in 0..20 {
                    assert_eq!(word(&rig.behave("short", "allow").await.outcome), "proceed", "after {behaviour} {mode:?}");
                }
            }
        });
    }
}

#[test]
fn a_guest_that_asks_or_talks_for_ever_runs_out_of_time() {
    for mode in MODES {
        let rig = Rig::new(vec![short(mode)]);
        on_one_thread(async {
            for behaviour in ["ask-for-ever", "talk-for-ever", "verify-for-ever"] {
                assert_eq!(rig.behave("short", behaviour).await.outcome, Err(Fault::Timeout), "{behaviour} {mode:?}");
                assert_eq!(word(&rig.behave("short", "allow").await.outcome), "proceed", "after {behaviour}");
            }
        });
        assert!(rig.counted.lock().unwrap().len() <= 16, "what it said was bounded");
    }
}

#[test]
fn what_a_guest_hands_over_is_bounded_before_it_is_taken() {
    for mode in MODES {
        let roomy = PolicySettings { mode, memory_bytes_max: 1 << 30, ..conformance("roomy") };
        let rig = Rig::new(vec![roomy]);
        on_one_thread(async {
            for behaviour in ["million-charges", "million-tags", "huge-text", "verify-huge"] {
                assert_eq!(rig.behave("roomy", behaviour).await.outcome, Err(Fault::BadVerdict), "{behaviour} {mode:?}");
                assert_eq!(word(&rig.behave("roomy", "allow").await.outcome), "proceed", "after {behaviour}");
            }
        });
    }
}

#[test]
fn an_instance_that_has_grown_to_most_of_its_memory_is_replaced() {
    let rig = Rig::new(vec![PolicySettings { memory_bytes_max: 8 << 20, ..conformance("p") }]);
    on_one_thread(async {
        let mut highest = 0;
        for _ in 0..30 {
            let tag = effects(rig.behave("p", "grow").await).tags.remove(0);
            highest = highest.max(tag.trim_start_matches("kept:").parse::<u32>().unwrap());
        }
        assert!((2..8).contains(&highest), "kept {highest} MiB");
    });
}

#[test]
fn an_answer_that_breaks_a_rule_is_no_answer() {
    let rig = Rig::new(vec![conformance("p")]);
    let nonsense = [
        "status",
        "code",
        "message",
        "retry",
        "hop-by-hop",
        "framing",
        "header-name",
        "header-value",
        "host",
        "charge-zero",
        "charge-cost",
        "charge-key",
        "charges",
        "tags",
        "tag",
        "score",
        "replace-request",
        "forge",
    ];
    on_one_thread(async {
        for behaviour in nonsense {
            assert_eq!(rig.behave("p", behaviour).await.outcome, Err(Fault::BadVerdict), "{behaviour}");
        }
    });
}

#[test]
fn a_message_and_a_response_are_held_to_the_rules_too() {
    let rig = Rig::new(vec![conformance("p")]);
    on_one_thread(async {
        let set = rig.set();
        let facts = facts();
        let text = |content: &str| Message { session: SessionId(1), shop: ShopId(2), kind: "text".into(), content: content.into() };
        let replaced = effects(set.call("p", Side::Live, Call::Message(&facts, &text("replace"))).await);
        assert_eq!(replaced.replace.as_deref(), Some("***"));
        let replied = effects(set.call("p", Side::Live, Call::Message(&facts, &text("reply"))).await);
        assert_eq!(replied.reply.as_deref(), Some("hello"));
        assert_eq!(set.call("p", Side::Live, Call::Message(&facts, &text("header"))).await.outcome, Err(Fault::BadVerdict));

        let response = ResponseHead { status: 404, headers: Vec::new() };
        let seen = effects(set.call("p", Side::Live, Call::Response(&head("/", &[]), &facts, &response)).await);
        assert_eq!(seen.set_headers, [("x-status".to_owned(), "404".to_owned())]);
        let framing = head("/", &[("x-conformance", "framing")]);
        assert_eq!(set.call("p", Side::Live, Call::Response(&framing, &facts, &response)).await.outcome, Err(Fault::BadVerdict));

        let attempt = Attempt { activity: ActivityId(u64::MAX), sku: SkuId(2), qty: 9_999, idempotency_key: None };
        let asked = effects(set.call("p", Side::Live, Call::Attempt(&head("/", &[]), &facts, &attempt)).await);
        assert_eq!(asked.tags, [format!("attempt:{}:2:9999", u64::MAX)]);
    });
}

#[test]
fn warm_and_fresh_instances_give_the_same_verdicts() {
    let policies = MODES.map(|mode| PolicySettings { mode, ..conformance(if mode == Mode::Warm { "warm" } else { "fresh" }) });
    let rig = Rig::new(policies.into());
    let vectors =
        ["allow", "refuse", "header", "charge", "facts", "headers", "verify", "list", "status", "forge", "hop-by-hop", "tags", "trap"];
    on_one_thread(async {
        for _ in 0..3 {
            for vector in vectors {
                let [warm, fresh] = [rig.behave("warm", vector).await, rig.behave("fresh", vector).await];
                assert_eq!(warm.outcome, fresh.outcome, "{vector}");
            }
        }
    });
}

#[test]
fn a_warm_instance_is_used_again_until_it_retires_and_a_fresh_one_is_not() {
    let warm = PolicySettings { retire_after_calls: 7, ..conformance("warm") };
    let fresh = PolicySettings { mode: Mode::Fresh, ..conformance("fresh") };
    let rig = Rig::new(vec![warm, fresh]);
    on_one_thread(async {
        let mut highest = 0;
        let mut seen = Vec::new();
        for _ in 0..30 {
            assert_eq!(effects(rig.behave("fresh", "count").await).tags, ["question:0"]);
            let tag = effects(rig.behave("warm", "count").await).tags.remove(0);
            let question: u32 = tag.trim_start_matches("question:").parse().unwrap();
            highest = highest.max(question);
            seen.push(question);
        }
        assert!(highest >= 1, "never used again: {seen:?}");
        assert!(highest < 7, "never retired: {seen:?}");
    });
}

#[test]
fn a_call_waits_for_a_slot_no_longer_than_its_time() {
    let dir = TempDir::new().unwrap();
    place(dir.path(), "conformance", &component("conformance"));
    let slow = PolicySettings { timeout: Duration::from_secs(2), mode: Mode::Fresh, ..conformance("slow") };
    let rig = Rig::in_folder(dir, vec![slow, short(Mode::Fresh)], 1);
    on_one_thread(async {
        let set = rig.set();
        let (spinning, waiting) = tokio::join!(behave(&*set, "slow", "spin"), behave(&*set, "short", "allow"));
        assert_eq!((spinning.outcome, waiting.outcome), (Err(Fault::Timeout), Err(Fault::Overload)));
        assert_eq!(word(&behave(&*set, "short", "allow").await.outcome), "proceed", "the slot came back");
    });
}

#[test]
fn a_call_that_is_given_up_gives_its_slot_back() {
    let dir = TempDir::new().unwrap();
    place(dir.path(), "conformance", &component("conformance"));
    let rig = Rig::in_folder(dir, vec![conformance("p")], 2);
    on_one_thread(async {
        for _ in 0..10 {
            let given_up = tokio::time::timeout(Duration::from_millis(5), rig.behave("p", "spin")).await;
            assert!(given_up.is_err());
        }
        assert_eq!(word(&rig.behave("p", "allow").await.outcome), "proceed");
    });
}

#[test]
fn a_guest_sees_only_the_headers_it_asked_for() {
    let rig = Rig::new(vec![conformance("p")]);
    let head = head("/", &[("cookie", "secret"), ("x-seen", "1"), ("x-conformance", "headers"), ("authorization", "secret")]);
    let seen = on_one_thread(async { effects(rig.set().call("p", Side::Live, Call::Request(&head, &facts())).await).tags });
    assert_eq!(seen, ["x-seen:1", "x-conformance:headers"]);
}

#[test]
fn what_a_guest_counts_is_bounded() {
    let rig = Rig::new(vec![conformance("p")]);
    on_one_thread(async { effects(rig.behave("p", "metric").await) });
    let counted = rig.counted.lock().unwrap();
    assert_eq!(counted.len(), 16);
    assert!(counted.iter().all(|line| *line == ("p".to_owned(), "conformance_total".to_owned(), 1.0)));
}

#[test]
fn an_unknown_policy_is_missing_and_takes_part_everywhere() {
    let rig = Rig::new(vec![conformance("p")]);
    let set = rig.set();
    for phase in [Phase::Request, Phase::Attempt, Phase::Message, Phase::Response] {
        assert!(set.takes_part("nobody", Side::Live, phase) && set.takes_part("p", Side::Live, phase));
    }
    assert_eq!(on_one_thread(rig.behave("nobody", "allow")).outcome, Err(Fault::Missing));
}
