//! Fuzzing on a stable toolchain: a committed corpus, and a bounded number of seeded mutations of it.
//!
//! What never happens here: knowing what an input means. A target is a function that returns, or panics when it has found
//! something; its corpus is a folder of small files. Called by the tests of fuzz targets.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::dice::Dice;

/// Longest input made up, in bytes: beyond the largest frame.
const INPUT_BYTES_MAX: usize = 70_000;

/// What parsers stumble over: put in now and then.
const SPICE: [&[u8]; 28] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\r",
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"-1",
    b"1.5",
    b"1e999",
    b"9007199254740992",
    b"18446744073709551616",
    b"\\u0000",
    b"\\ud800",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    "\u{200b}".as_bytes(),
    "\u{feff}".as_bytes(),
    "👨\u{200d}👩\u{200d}👧".as_bytes(),
    b"content-length:4294967296",
    b"{\"type\":\"signed\",\"body\":",
];

/// Runs `target` over every file of `corpus` and over `rounds` mutations of them. What makes it panic is shown, with the seed.
///
/// # Panics
///
/// When `target` does, and when the corpus is empty or cannot be read.
pub fn run(corpus: &Path, seed: u64, rounds: usize, target: impl Fn(&[u8])) {
    let inputs = read(corpus);
    assert!(!inputs.is_empty(), "no corpus in {}", corpus.display());
    let attempt = |input: &[u8], what: &str| {
        let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
        assert!(outcome.is_ok(), "seed {seed}, {what}, found something with \"{}\"", input.escape_ascii());
    };
    for (name, input) in &inputs {
        attempt(input, name);
    }
    let dice = Dice::new(seed);
    for round in 0..rounds {
        let mut input = dice.pick(&inputs).map(|(_, input)| input.clone()).unwrap_or_default();
        for _ in 0..=dice.below(6) {
            mutate(&mut input, &inputs, &dice);
        }
        input.truncate(INPUT_BYTES_MAX);
        attempt(&input, &format!("round {round}"));
    }
}

/// Names and contents, by name, so that a seed always means the same.
fn read(corpus: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut inputs: Vec<_> = files
        .map(|file| {
            let file = file.expect("an entry of the corpus");
            (file.file_name().to_string_lossy().into_owned(), fs::read(file.path()).expect("a file of the corpus"))
        })
        .collect();
    inputs.sort();
    inputs
}

fn mutate(input: &mut Vec<u8>, others: &[(String, Vec<u8>)], dice: &Dice) {
    let at = dice.below(input.len() + 1);
    let end = (at + 1 + dice.below(16)).min(input.len());
    match dice.below(9) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = u8::try_from(dice.below(256)).unwrap_or(0),
        2 if at < end => drop(input.drain(at..end)),
        3 if at < end => {
            let again = input[at..end].to_vec();
            input.splice(at..at, again);
        }
        4 if at < end => {
            let long = input[at..end].repeat(dice.below(300));
            input.splice(at..end, long);
        }
        5 => input.truncate(at),
        6 | 7 => {
            let spice = dice.pick(&SPICE).copied().unwrap_or_default();
            let end = if dice.chance(500) { at } else { end.max(at) };
            input.splice(at..end, spice.iter().copied());
        }
        _ => {
            let (_, other) = &others[dice.below(others.len())];
            let from = dice.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}
