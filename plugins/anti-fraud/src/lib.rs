//! Slows down people, devices and networks that buy faster than people do, and keeps out whom the operator has listed.
//!
//! Looks at parsed purchase attempts only. Counting is the host's work; lists are the operator's. Configured as
//! [`config::Config`]; README.md says why it is the way it is.

mod config;
mod listed;
mod risk;

use sluice_sdk::types::{Attempt, Charge, Effects, Facts, Manifest, Phases, Refusal, Request, Scope, Verdict};
use sluice_sdk::{Host, Policy, configuration, network};

use crate::config::Config;
use crate::risk::Risk;

/// Longest device name and idempotency key that are believed; both are the client's to invent.
const CLIENT_VALUE_BYTES_MAX: usize = 64;

/// The configured policy.
#[derive(Debug)]
pub struct AntiFraud(Config);

impl Policy for AntiFraud {
    fn configure(config: &str) -> Result<Self, String> {
        let config: Config = configuration(config)?;
        config.check()?;
        Ok(Self(config))
    }

    fn manifest(&self) -> Manifest {
        Manifest {
            name: "anti-fraud".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            phases: Phases::ATTEMPT,
            headers: vec![risk::USER_AGENT.into()],
        }
    }

    fn on_attempt(&self, host: &dyn Host, request: &Request, facts: &Facts, attempt: &Attempt) -> Verdict {
        let config = &self.0;
        let Some(principal) = &facts.principal else {
            return Verdict::Refuse(Refusal::new(401, "UNAUTHENTICATED", "请先登录"));
        };
        let user = principal.id.as_str();
        let device = facts.device.as_deref().filter(|device| believable(device));
        if config.block.lists(host, user, device) || config.block.lists_network(host, request.client, &config.lengths) {
            return Verdict::Refuse(refusal(config.blocked_retry_ms));
        }

        let trusted = config.allow.lists(host, user, device);
        let risk = if trusted { Risk::default() } else { Risk::of(config, request, facts, device.is_some()) };
        if config.refuse_at.is_some_and(|threshold| risk.score >= threshold) {
            host.metric("refused_by_score", 1.0);
            return Verdict::Refuse(refusal(config.blocked_retry_ms));
        }

        let replay = replay_token(user, attempt);
        let mut charges = Vec::with_capacity(4);
        charges.push(self.once("attempt-user", user.to_owned(), replay.clone()));
        if !trusted && !config.allow.lists_network(host, request.client, &config.lengths) {
            charges.push(self.of_network(network(request.client, config.ipv4_prefix, config.ipv6_prefix)));
        }
        if let Some(device) = device {
            charges.push(self.once("attempt-device", device.to_owned(), replay));
            if config.devices_limit > 0 && !trusted {
                charges.push(self.of_devices(user.to_owned(), device.to_owned()));
            }
        }
        Verdict::Proceed(Effects { charges, tags: risk.tags, score: risk.score, ..Effects::default() })
    }
}

impl AntiFraud {
    /// One attempt per window for this account.
    fn once(&self, budget: &str, key: String, replay_token: Option<String>) -> Charge {
        charge(budget, key, (1, self.0.window_ms), replay_token)
    }

    /// Never free for a replay, or a script could repeat one request for nothing.
    fn of_network(&self, key: String) -> Charge {
        charge("attempt-network", key, (self.0.network_limit, self.0.network_window_ms), None)
    }

    /// The token is the device: who stays on one pays nothing, who changes devices pays for each change.
    fn of_devices(&self, user: String, device: String) -> Charge {
        charge("attempt-devices", user, (self.0.devices_limit, self.0.devices_window_ms), Some(device))
    }
}

/// One unit of `limit` per `window_ms`; a refusal says when one is back.
fn charge(budget: &str, key: String, (limit, window_ms): (u32, u32), replay_token: Option<String>) -> Charge {
    let refusal = refusal(u64::from(window_ms.div_ceil(limit)));
    Charge { budget: budget.to_owned(), key, limit, window_ms, cost: 1, scope: Scope::Cluster, replay_token, refusal }
}

/// What makes a repeated attempt the same attempt: the client's key together with who wants what, so that one key
/// cannot make a second purchase, or somebody else's, free of charge.
fn replay_token(user: &str, attempt: &Attempt) -> Option<String> {
    let key = attempt.idempotency_key.as_deref().filter(|key| believable(key))?;
    Some(format!("{user}/{}/{}/{}/{key}", attempt.activity, attempt.sku, attempt.qty))
}

fn believable(value: &str) -> bool {
    (1..=CLIENT_VALUE_BYTES_MAX).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic())
}

fn refusal(retry_after_ms: u64) -> Refusal {
    Refusal::new(429, "RISK_REFUSED", "操作过于频繁,请稍后再试").retry_after_ms(retry_after_ms)
}

#[cfg(target_family = "wasm")]
sluice_sdk::export!(AntiFraud);

#[cfg(test)]
mod tests;
