//! Chores of the workspace: `cargo xtask <chore>`. Here lives the command line only; each chore has its own module.

mod plugins;

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
}

fn main() -> anyhow::Result<()> {
    match Xtask::parse().chore {
        Chore::Plugins => plugins::build_all(),
    }
}
