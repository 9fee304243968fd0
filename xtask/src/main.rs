//! Chores of the workspace: `cargo xtask <chore>`. Here lives the command line only; each chore has its own module.

mod bench;
mod cargo;
mod check;
mod directions;
mod plugins;
mod test;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the Sluice workspace")]
struct Xtask {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Build every guest in plugins/ into target/plugins/<name>.wasm; unchanged ones are left alone.
    Plugins,
    /// Format, lints as errors, and the direction of imports.
    Check,
    /// Every test of the workspace, the guests and the browser pages, on private services.
    Test,
    /// Timings beside a peer; the tables in docs/benchmarks.md.
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let outcome = match Xtask::parse().chore {
        Chore::Plugins => plugins::build_all(),
        Chore::Check => check::run(root),
        Chore::Test => test::run(root),
        Chore::Bench { bench } => bench::run(root, &bench),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
