//! `sluice plugin`: what an author does, from an empty folder to a signed bundle, and beyond it to a running cluster.

mod bench;
mod build;
mod check;
mod new;
mod replay;
mod sign;
mod test;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::cli::cluster;

#[derive(Debug, Subcommand)]
pub(super) enum Plugin {
    /// Makes the folder NAME with a rule that works, its test vectors and everything it is built from.
    #[command(after_help = "Example:\n  sluice plugin new demo")]
    New(new::Options),
    /// Compiles a plugin's folder to FOLDER/NAME.wasm: Rust (Cargo.toml), JavaScript (package.json) or C (Makefile).
    #[command(after_help = "Example:\n  sluice plugin build demo")]
    Build(Folder),
    /// Prints what a component asks for, and what that changes against the live version.
    #[command(after_help = "Example:\n  sluice plugin check demo\n  sluice plugin check demo --live old/demo.wasm\n  \
                            sluice plugin check demo --admin http://127.0.0.1:9090 --token dev-admin")]
    Check(check::Options),
    /// Runs vectors.yaml natively and on the component, warm and fresh; all have to agree.
    #[command(after_help = "Example:\n  sluice plugin test demo")]
    Test(Subject),
    /// Measures a call, warm and fresh, over the questions of vectors.yaml.
    #[command(after_help = "Example:\n  sluice plugin bench demo")]
    Bench(Subject),
    /// Signs FOLDER/NAME.wasm: FOLDER/NAME.bundle is what nodes accept.
    #[command(after_help = "Example:\n  sluice plugin sign demo\n  sluice plugin sign demo --key team.key")]
    Sign(sign::Options),
    /// Asks a version what nodes recorded, and prints what it would answer otherwise.
    #[command(after_help = "Example:\n  sluice plugin replay demo --recording recording.jsonl\n  \
                            sluice plugin replay demo.wasm --recording recording.jsonl --config config/gateway.toml --policy demo --json\n\n\
                            Exit code: 0 when every verdict is the same, 1 when one is not, or nothing could be asked.")]
    Replay(replay::Options),
    #[command(flatten)]
    Cluster(cluster::Command),
}

#[derive(Debug, Args)]
pub(super) struct Folder {
    /// The plugin's folder, which is called as the plugin is.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Subject {
    #[command(flatten)]
    folder: Folder,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Plugin) -> anyhow::Result<()> {
    match command {
        Plugin::New(options) => new::run(options),
        Plugin::Build(folder) => build::run(&folder.folder),
        Plugin::Check(options) => check::run(options),
        Plugin::Test(subject) => test::run(&subject.folder.folder, subject.json),
        Plugin::Bench(subject) => bench::run(&subject.folder.folder, subject.json),
        Plugin::Sign(options) => sign::run(options),
        Plugin::Replay(options) => replay::run(options),
        Plugin::Cluster(command) => cluster::run(command),
    }
}

/// Prints `text` and a line's end.
fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{text}").context("cannot print")
}

/// A list for people.
fn list<T: AsRef<str>>(items: &[T]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ") }
}
