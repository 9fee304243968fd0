//! `sluice bench`: load against private services, with real tokens.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use gateway_bench::{Holder, chat, rig, seckill, sockets};
use gateway_core::config::Config;
use gateway_core::id::{PrincipalId, ShopId};
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
    /// Conversations between users and agents on private services, nodes and workers, which all end with it.
    #[command(after_help = "Examples:\n  sluice bench chat --sessions 200 --rate 100 --seconds 120\n  \
                            sluice bench chat --sessions 200 --rate 100 --seconds 120 --chaos --kills 2\n\n\
                            Exit code: 0 when every client's log is what the ledger holds, without a gap, a message twice, one in another\n\
                            order or one missing; 1 otherwise.")]
    Chat(chat::Options),
    /// Many sockets that mostly wait: what they weigh, what one message to all of them costs, how long they take to come back.
    #[command(after_help = "Examples:\n  sluice bench sockets --count 8000\n  sluice bench sockets --count 1000 --measure fan-out\n  \
                            sluice bench sockets --count 8000 --measure storm\n  \
                            sluice bench sockets --count 8000 --server 127.0.0.1:9001 --pid 4711")]
    Sockets(sockets::Options),
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
            Command::Chat(options) => {
                if !chat::run(options, &sign, &mut out).await? {
                    bail!("not every log is what the ledger holds: see above");
                }
                Ok(())
            }
            Command::Sockets(options) => sockets::run(options, &sign, &mut out).await,
            Command::Rig(options) => rig::keep(options, &sign, &mut out).await,
        }
    })
}

/// Tokens of people, signed as the nodes that read `config` expect.
fn sign(config: &Path, holders: &[Holder]) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(config).with_context(|| format!("cannot read {}", config.display()))?;
    let config = match Config::parse(&config.display().to_string(), &text, &[]) {
        Ok(config) => config,
        Err(problems) => bail!("the configuration has problems\n{problems}"),
    };
    let now = clock::now();
    holders.iter().map(|holder| token(&config, holder, now)).collect()
}

fn token(config: &Config, holder: &Holder, now: UnixMillis) -> anyhow::Result<String> {
    let id = PrincipalId::parse(&holder.id)?;
    let role = if holder.shop.is_some() { Role::Agent } else { Role::User };
    let grant = Grant { id, role, shop: holder.shop.map(ShopId), scope: String::new(), ttl: TOKEN_TTL };
    Ok(mint(&config.tokens, &grant, now)?)
}
