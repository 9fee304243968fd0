//! `sluice bench`: load against private services, with real tokens.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use gateway_bench::{rig, seckill};
use gateway_core::config::Config;
use gateway_core::id::PrincipalId;
use gateway_core::principal::Role;
use gateway_core::time::UnixMillis;

use crate::clock;
use crate::token::{Grant, mint};

/// Longer than any run.
const TOKEN_TTL: Duration = Duration::from_secs(24 * 3_600);

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// A flash sale against private Redis, NATS, MariaDB, nodes and workers, which all end with it.
    #[command(after_help = "Examples:\n  sluice bench seckill --users 10000 --stock 100 --nodes 2\n  \
                            sluice bench seckill --users 10000 --stock 100 --nodes 2 --chaos --runs 10\n\n\
                            Exit code: 0 when nothing was oversold, lost or stuck and every invariant held, 1 otherwise.")]
    Seckill(seckill::Options),
    /// Private services, nodes and workers to point another load at. Prints where they are; they end with Ctrl-C.
    #[command(after_help = "Example:\n  sluice bench rig --nodes 1 --tokens 1000")]
    Rig(rig::Options),
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut out = std::io::stdout();
        match command {
            Command::Seckill(options) => {
                if !seckill::run(options, &sign, &mut out).await? {
                    bail!("the sale was not exact: see above");
                }
                Ok(())
            }
            Command::Rig(options) => rig::keep(options, &sign, &mut out).await,
        }
    })
}

/// Tokens of users, signed as the nodes that read `config` expect.
fn sign(config: &Path, users: &[String]) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(config).with_context(|| format!("cannot read {}", config.display()))?;
    let config = match Config::parse(&config.display().to_string(), &text, &[]) {
        Ok(config) => config,
        Err(problems) => bail!("the configuration has problems\n{problems}"),
    };
    let now = clock::now();
    users.iter().map(|user| token(&config, user, now)).collect()
}

fn token(config: &Config, user: &str, now: UnixMillis) -> anyhow::Result<String> {
    let id = PrincipalId::parse(user)?;
    let grant = Grant { id, role: Role::User, shop: None, scope: String::new(), ttl: TOKEN_TTL };
    Ok(mint(&config.tokens, &grant, now)?)
}
