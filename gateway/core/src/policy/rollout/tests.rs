//! Steps of a rollout, and who belongs to a canary.

use proptest::prelude::*;

use super::*;

const NOW: UnixMillis = UnixMillis(1_000);

fn user(id: &str) -> Asker<'_> {
    Asker { id: Some(id), device: None, client: None }
}

fn bundle(text: &str) -> BundleRef {
    BundleRef { component: Digest::of(text.as_bytes()), bundle: Digest::of(format!("bundle of {text}").as_bytes()) }
}

fn shadow(text: &str) -> Candidate {
    Candidate { bundle: bundle(text), stage: Stage::Shadow, since: NOW, limits: Limits::default() }
}

#[test]
fn a_version_is_tried_promoted_and_rolled_back() {
    let mut rollout = Rollout::new("demo");
    rollout.start(shadow("v1"), "ann", NOW).unwrap();
    assert_eq!(rollout.live, Source::Folder, "a trial changes nothing yet");
    rollout.promote("ann", NOW).unwrap();
    assert_eq!(rollout.live, Source::Bundle(bundle("v1")));
    assert_eq!(rollout.previous, Some(Source::Folder));

    rollout.start(shadow("v2"), "ben", NOW).unwrap();
    rollout.promote("ben", NOW).unwrap();
    rollout.rollback("", "ben", NOW).unwrap();
    assert_eq!(rollout.live, Source::Bundle(bundle("v1")));
    assert_eq!(rollout.previous, Some(Source::Bundle(bundle("v2"))), "a rollback can be rolled back");
    let steps: Vec<_> = rollout.history.iter().map(|step| (step.by.as_str(), step.what.as_str())).collect();
    let (v1, v2) = (Digest::of(b"v1"), Digest::of(b"v2"));
    assert_eq!(
        steps,
        [
            ("ann", format!("{} in shadow", v1.short()).as_str()),
            ("ann", format!("{} promoted", v1.short()).as_str()),
            ("ben", format!("{} in shadow", v2.short()).as_str()),
            ("ben", format!("{} promoted", v2.short()).as_str()),
            ("ben", format!("back to {}", v1.short()).as_str()),
        ]
    );
}

#[test]
fn a_rollback_first_ends_the_trial() {
    let mut rollout = Rollout::new("demo");
    rollout.start(shadow("v1"), "ann", NOW).unwrap();
    rollout.rollback("traps", "node a", NOW).unwrap();
    assert_eq!((&rollout.live, &rollout.candidate), (&Source::Folder, &None));
    assert!(rollout.history[1].what.ends_with("ended: traps"));
    assert_eq!(rollout.rollback("", "ann", NOW), Err(RolloutError::NothingBefore));
}

#[test]
fn steps_that_make_no_sense_are_refused() {
    let mut rollout = Rollout::new("demo");
    assert_eq!(rollout.promote("ann", NOW), Err(RolloutError::NoCandidate));
    rollout.start(shadow("v1"), "ann", NOW).unwrap();
    rollout.promote("ann", NOW).unwrap();
    assert_eq!(rollout.start(shadow("v1"), "ann", NOW), Err(RolloutError::AlreadyLive));
}

#[test]
fn history_is_bounded() {
    let mut rollout = Rollout::new("demo");
    for _ in 0..HISTORY_MAX {
        rollout.start(shadow("v1"), "ann", NOW).unwrap();
        rollout.rollback("", "ann", NOW).unwrap();
    }
    assert_eq!(rollout.history.len(), HISTORY_MAX);
}

#[test]
fn a_record_is_read_back_as_it_was_written() {
    let mut rollout = Rollout::new("demo");
    rollout.start(shadow("v1"), "ann", NOW).unwrap();
    rollout.promote("ann", NOW).unwrap();
    rollout.start(Candidate { stage: Stage::Canary("tail 0-4".parse().unwrap()), ..shadow("v2") }, "ann", NOW).unwrap();
    let text = serde_json::to_string(&rollout).unwrap();
    assert_eq!(serde_json::from_str::<Rollout>(&text).unwrap(), rollout, "{text}");
    assert_eq!(rollout.bundles().count(), 2);
}

#[test]
fn cohorts_are_read_as_people_write_them() {
    for (text, cohort) in [
        ("tail 0-4", Cohort::Tail(0b1_1111)),
        ("tail 7", Cohort::Tail(1 << 7)),
        ("tail 0,3,8-9", Cohort::Tail(0b11_0000_1001)),
        ("1%", Cohort::Percent(1)),
        ("100%", Cohort::Percent(100)),
    ] {
        assert_eq!(text.parse(), Ok(cohort), "{text}");
        assert_eq!(cohort.to_string().parse(), Ok(cohort), "{cohort}");
    }
    for text in ["", "tail", "tail ", "tail 10", "tail 4-0", "tail a", "0%", "101%", "-1%", "5", "tail 1,,2", "1.5%"] {
        assert!(text.parse::<Cohort>().is_err(), "{text}");
    }
}

#[test]
fn a_tail_is_the_last_digit_of_a_proved_id() {
    let cohort: Cohort = "tail 0-4".parse().unwrap();
    for (id, belongs) in [("u10", true), ("4", true), ("u5", false), ("alice", false), ("u٣", false)] {
        assert_eq!(cohort.has("demo", &user(id)), belongs, "{id}");
    }
    assert!(!cohort.has("demo", &Asker { id: None, device: Some("d1"), client: None }));
}

#[test]
fn a_percentage_takes_about_that_many() {
    let cohort = Cohort::Percent(20);
    let belong = (0..10_000).filter(|n| cohort.has("demo", &user(&format!("user-{n}")))).count();
    assert!((1_800..2_200).contains(&belong), "{belong}");
    // Two plugins do not try their candidates on the same users.
    let both = (0..10_000).filter(|n| cohort.has("demo", &user(&format!("user-{n}"))) && cohort.has("other", &user(&format!("user-{n}"))));
    assert!((300..500).contains(&both.count()));
}

proptest! {
    #[test]
    fn nobody_leaves_a_canary_that_grows(id in "[a-z0-9]{1,12}", small in 1_u8..=100, more in 0_u8..=99) {
        let large = small.saturating_add(more).min(100);
        if Cohort::Percent(small).has("demo", &user(&id)) {
            prop_assert!(Cohort::Percent(large).has("demo", &user(&id)));
        }
        let device = Asker { id: None, device: Some(&id), client: None };
        prop_assert_eq!(Cohort::Percent(small).has("demo", &device), Cohort::Percent(small).has("demo", &user(&id)));
        prop_assert!(Cohort::Percent(100).has("demo", &Asker { id: None, device: None, client: None }), "everybody belongs to all");
    }
}
