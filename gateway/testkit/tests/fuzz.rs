//! The fuzz targets of gateway-core on a stable toolchain: over their corpora, and over seeded mutations of them.
//!
//! `SLUICE_FUZZ_SEED` and `SLUICE_FUZZ_ROUNDS` choose others.

#[path = "../../core/fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "it is the library of a crate of its own")]
mod targets;

use std::path::Path;

use gateway_testkit::fuzz;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn run(corpus: &str, target: impl Fn(&[u8])) {
    let seed = number("SLUICE_FUZZ_SEED", 5);
    let rounds = usize::try_from(number("SLUICE_FUZZ_ROUNDS", 5_000)).expect("a count");
    eprintln!("{corpus}: seed {seed}, {rounds} rounds");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/fuzz/corpus").join(corpus);
    fuzz::run(&folder, seed, rounds, target);
}

#[test]
fn no_bytes_break_the_reading_of_frames() {
    run("frame", targets::frame);
}

#[test]
fn no_bytes_break_the_reading_of_stomp() {
    run("stomp", targets::stomp);
}

#[test]
fn no_bytes_break_the_handshake() {
    run("handshake", targets::handshake);
}
