//! `sluice token`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::principal::Role;

use crate::cli::load;
use crate::clock;
use crate::token::{Grant, mint};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The configuration file whose tokens.secret signs.
    #[arg(long, value_name = "FILE", default_value = "config/gateway.toml")]
    config: PathBuf,
    /// Whom the token speaks for: 1 to 64 of [A-Za-z0-9_.:-].
    #[arg(long, value_parser = principal)]
    sub: PrincipalId,
    /// user, agent or admin.
    #[arg(long, value_parser = role)]
    role: Role,
    /// The shop; required for an agent.
    #[arg(long, value_parser = shop, required_if_eq("role", "agent"))]
    shop: Option<ShopId>,
    /// Space separated scopes.
    #[arg(long, default_value = "")]
    scope: String,
    /// How long it lasts, such as 90s, 15m, 1h or 7d.
    #[arg(long, default_value = "1h", value_parser = ttl)]
    ttl: Duration,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let config = load::config(&options.config, &[])?;
    let grant = Grant { id: options.sub.clone(), role: options.role, shop: options.shop, scope: options.scope.clone(), ttl: options.ttl };
    let token = mint(&config.tokens, &grant, clock::now())?;
    let line = if options.json { serde_json::json!({ "token": token }).to_string() } else { token };
    writeln!(std::io::stdout(), "{line}").context("cannot print")
}

fn principal(text: &str) -> Result<PrincipalId, String> {
    PrincipalId::parse(text).map_err(|error| error.to_string())
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| "must be user, agent or admin".into())
}

fn shop(text: &str) -> Result<ShopId, String> {
    ShopId::parse(text).map_err(|error| error.to_string())
}

fn ttl(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a number and s, m, h or d, such as 1h, at most 365d".to_owned();
    let unit = text.chars().last().filter(char::is_ascii).ok_or_else(wrong)?;
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let total = number.checked_mul(seconds).filter(|total| (1..=365 * 86_400).contains(total)).ok_or_else(wrong)?;
    Ok(Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_a_number_and_a_unit() {
        assert_eq!(ttl("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(ttl("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "h", "1", "1w", "-1h", "0s", "1.5h", "999999d", "1時"] {
            assert!(ttl(bad).is_err(), "{bad}");
        }
    }
}
