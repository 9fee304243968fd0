//! Thousands of stories of one sale, and proof that a run notices what is done wrong.

use gateway_testkit::simulation::{Flaw, Model, Report, Scenario, play, seeds};

#[test]
fn whatever_fails_the_stores_agree_in_the_end() {
    let mut whole = Report::default();
    for seed in seeds(1, 1_000) {
        let report = play(&Scenario::of(seed), &Model::default()).unwrap_or_else(|why| panic!("SLUICE_SEED={seed}: {why}"));
        whole.faults += report.faults;
        whole.stops += report.stops;
        whole.disasters += report.disasters;
        whole.accepted += report.accepted;
        whole.refunds += report.refunds;
        whole.sold += report.sold;
    }
    println!("{whole:?}");
}

#[test]
fn every_flaw_is_noticed() {
    for flaw in [
        Flaw::AcknowledgesFirst,
        Flaw::RebuildsWithoutDraining,
        Flaw::ReleasesUnderAnyEpoch,
        Flaw::ForgetsLosers,
        Flaw::RelaysIntoThePast,
        Flaw::FinishesFirst,
        Flaw::TrustsTheStore,
        Flaw::SettlesUnclosed,
    ] {
        let staff = Model { flaw: Some(flaw) };
        let found = (1..2_000).find_map(|seed| play(&Scenario::of(seed), &staff).err().map(|why| (seed, why)));
        println!("{flaw:?}: {found:?}");
        assert!(found.is_some(), "{flaw:?} goes unnoticed");
    }
}
