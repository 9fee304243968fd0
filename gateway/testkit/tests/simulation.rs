//! Thousands of stories of one sale, and proof that a run notices what is done wrong.
//!
//! `SLUICE_SEED=n` plays one story again, `SLUICE_SEEDS=n` plays that many.

use gateway_testkit::simulation::{Flaw, Model, Report, Scenario, Staff, play, seeds};

fn play_all(stories: impl Iterator<Item = Scenario>, staff: &dyn Staff) -> Report {
    let mut whole = Report::default();
    for story in stories {
        let Report { faults, stops, disasters, accepted, sold, refunds, epoch } =
            play(&story, staff).unwrap_or_else(|why| panic!("SLUICE_SEED={}: {why}: {story:?}", story.seed));
        whole.faults += faults;
        whole.stops += stops;
        whole.disasters += disasters;
        whole.accepted += accepted;
        whole.sold += sold;
        whole.refunds += refunds;
        whole.epoch = whole.epoch.max(epoch);
    }
    whole
}

#[test]
fn whatever_fails_the_stores_agree_in_the_end() {
    let seeds = seeds(1, 700);
    let whole = play_all(seeds.iter().copied().map(Scenario::of), &Model::default());
    println!("{} stories: {whole:?}", seeds.len());
    if seeds.len() > 100 {
        let dull = [whole.faults, whole.stops, whole.disasters, whole.accepted, whole.sold, whole.refunds].contains(&0);
        assert!(!dull, "something never happened: {whole:?}");
    }
}

#[test]
fn a_store_that_is_lost_again_and_again_sells_no_unit_twice() {
    let whole = play_all(seeds(10_000, 300).into_iter().map(Scenario::stormy), &Model::default());
    println!("{whole:?}");
}

/// Each with a seed near which it shows, because some show once in thousands of stories.
#[test]
fn every_flaw_is_noticed() {
    for (flaw, near) in [
        (Flaw::AcknowledgesFirst, 1),
        (Flaw::ForgetsLosers, 1),
        (Flaw::ReleasesBesides, 4_100),
        (Flaw::AcknowledgesAll, 3_750),
        (Flaw::RelaysIntoThePast, 100),
        (Flaw::FinishesFirst, 1),
        (Flaw::TrustsTheStore, 1),
    ] {
        let staff = Model { flaw: Some(flaw) };
        let mut stories = (near..near + 1_000).flat_map(|seed| [Scenario::of(seed), Scenario::stormy(seed)]);
        let found = stories.find_map(|story| play(&story, &staff).err().map(|why| (story.seed, why)));
        let (seed, why) = found.unwrap_or_else(|| panic!("{flaw:?} goes unnoticed"));
        println!("{flaw:?}: seed {seed}: {why:.120}");
    }
}
