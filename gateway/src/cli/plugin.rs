//! `sluice plugin …`.

use clap::Subcommand;

use crate::cli::cluster;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[command(flatten)]
    Cluster(cluster::Command),
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Cluster(command) => cluster::run(command),
    }
}
