//! Parses the command line, runs one command, and is the only place where an error ends a process.

use std::process::ExitCode;

use clap::Parser;
use gateway::cli::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gateway::cli::run(Cli::parse())
}
