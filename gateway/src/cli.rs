//! The command line. Exit codes: 0 done, 1 refused or failed, 2 wrong use.

mod activity;
mod bench;
mod check;
mod cluster;
mod compensation;
mod dev;
mod list;
mod load;
mod migrate;
mod operator;
mod plugin;
mod run;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::health;

/// An edge gateway on which a shop survives its flash sale and serves its customers by chat.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, about, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything in one process, in memory, with a demo shop. Its data ends with the process.
    #[command(after_help = "Example:\n  sluice dev --listen 127.0.0.1:8080 --admin 127.0.0.1:9090")]
    Dev(dev::Options),
    /// A gateway node on Redis, NATS and MySQL.
    #[command(after_help = "Example:\n  sluice serve --config config/gateway.toml")]
    Serve(ConfigFile),
    /// A worker: writes orders and chat messages to MySQL.
    #[command(after_help = "Example:\n  sluice worker --config config/gateway.toml")]
    Worker(ConfigFile),
    /// Creates or upgrades the MySQL tables.
    #[command(after_help = "Example:\n  sluice migrate --config config/gateway.toml")]
    Migrate(ConfigFile),
    /// Checks configuration and plugins without opening a port or calling a service.
    #[command(after_help = "Example:\n  sluice check --config config/gateway.toml")]
    Check(ConfigFile),
    /// Makes a token signed with tokens.secret.
    #[command(after_help = "Example:\n  sluice token --sub alice --role user --ttl 1h\n  sluice token --sub a1 --role agent --shop 1")]
    Token(token::Options),
    /// Writes, tests, measures and signs policies, and brings them onto a running cluster.
    #[command(subcommand, after_help = "Example:\n  sluice plugin new demo && sluice plugin build demo && sluice plugin test demo")]
    Plugin(plugin::Plugin),
    /// Lists that policies look keys up in, on a running cluster.
    #[command(subcommand)]
    List(list::Command),
    /// Flash sales, from the draft to the settled books, on a running cluster.
    #[command(subcommand, after_help = "Example:\n  sluice activity list\n  sluice activity status 7")]
    Activity(activity::Command),
    /// What could not be done, and what an operator decides about it, on a running cluster.
    #[command(subcommand, after_help = "Example:\n  sluice compensation list")]
    Compensation(compensation::Command),
    /// Load against private services that are started for it, with figures and a verdict.
    #[command(subcommand)]
    Bench(bench::Command),
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration file. SLUICE__SECTION__KEY variables override its keys.
    #[arg(long, value_name = "FILE", default_value = "config/gateway.toml")]
    config: PathBuf,
}

/// Runs one command to its end.
pub fn run(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Command::Dev(options) => dev::run(&options),
        Command::Serve(file) => run::serve(&file.config),
        Command::Worker(file) => run::worker(&file.config),
        Command::Migrate(file) => migrate::run(&file.config),
        Command::Check(file) => check::run(&file.config),
        Command::Token(options) => token::run(&options),
        Command::Plugin(command) => plugin::run(&command),
        Command::List(command) => list::run(&command),
        Command::Activity(command) => activity::run(&command),
        Command::Compensation(command) => compensation::run(&command),
        Command::Bench(command) => bench::run(&command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice: {}", health::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
