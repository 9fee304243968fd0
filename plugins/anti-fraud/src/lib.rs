//! Slows down people, devices and networks that buy faster than people do.
//!
//! Looks at parsed purchase attempts only. Counting is the host's work; block lists are the operator's. Configured as
//! [`Config`]; README.md says why it is the way it is.

use serde::Deserialize;
use sluice_sdk::types::{Attempt, Charge, Effects, Facts, Manifest, Phases, Refusal, Request, Scope, Verdict};
use sluice_sdk::{Host, Policy, configuration, network};

/// Longest device name and idempotency key that are believed; both are the client's to invent.
const CLIENT_VALUE_BYTES_MAX: usize = 64;

/// Added to the risk score of an attempt that names no device: every app and page of ours sends one.
const NO_DEVICE_SCORE: u8 = 30;

/// The configuration document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// A user, and a device, may try once in this time.
    window_ms: u32,
    /// Attempts one network may make per `network_window_ms`.
    network_limit: u32,
    network_window_ms: u32,
    /// Bits of an IPv4 address that make a network.
    ipv4_prefix: u8,
    /// Bits of an IPv6 address that make a network.
    ipv6_prefix: u8,
    /// When a blocked client is told to come back.
    blocked_retry_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { window_ms: 5_000, network_limit: 200, network_window_ms: 1_000, ipv4_prefix: 24, ipv6_prefix: 48, blocked_retry_ms: 60_000 }
    }
}

/// The configured policy.
#[derive(Debug)]
pub struct AntiFraud(Config);

impl Policy for AntiFraud {
    fn configure(config: &str) -> Result<Self, String> {
        let config: Config = configuration(config)?;
        let window = 1..=86_400_000;
        if !window.contains(&config.window_ms) || !window.contains(&config.network_window_ms) {
            return Err("window_ms and network_window_ms are 1 to 86,400,000".into());
        }
        if !(1..=1_000_000).contains(&config.network_limit) {
            return Err("network_limit is 1 to 1,000,000".into());
        }
        if config.ipv4_prefix > 32 || config.ipv6_prefix > 128 {
            return Err("an address has at most 32 (ipv4_prefix) or 128 (ipv6_prefix) bits".into());
        }
        if config.blocked_retry_ms > 86_400_000 {
            return Err("blocked_retry_ms is at most 86,400,000".into());
        }
        Ok(Self(config))
    }

    fn manifest(&self) -> Manifest {
        Manifest { name: "anti-fraud".into(), version: env!("CARGO_PKG_VERSION").into(), phases: Phases::ATTEMPT, headers: Vec::new() }
    }

    fn on_attempt(&self, host: &dyn Host, request: &Request, facts: &Facts, attempt: &Attempt) -> Verdict {
        let Some(principal) = &facts.principal else {
            return Verdict::Refuse(Refusal::new(401, "UNAUTHENTICATED", "请先登录"));
        };
        let device = facts.device.as_deref().filter(|device| believable(device));
        let network = network(request.client, self.0.ipv4_prefix, self.0.ipv6_prefix);
        let blocked = host.contains("block-users", &principal.id)
            || device.is_some_and(|device| host.contains("block-devices", device))
            || host.contains("block-networks", &network);
        if blocked {
            return Verdict::Refuse(refusal(self.0.blocked_retry_ms));
        }

        let replay = replay_token(&principal.id, attempt);
        let mut charges = vec![
            self.once("attempt-user", principal.id.clone(), replay.clone()),
            Charge {
                limit: self.0.network_limit,
                window_ms: self.0.network_window_ms,
                refusal: refusal(u64::from(self.0.network_window_ms.div_ceil(self.0.network_limit))),
                ..self.once("attempt-network", network, None)
            },
        ];
        match device {
            Some(device) => charges.push(self.once("attempt-device", device.to_owned(), replay)),
            None => {
                let tags = vec!["no-device".to_owned()];
                return Verdict::Proceed(Effects { charges, tags, score: NO_DEVICE_SCORE, ..Effects::default() });
            }
        }
        Verdict::charge(charges)
    }
}

impl AntiFraud {
    /// One attempt per window for this account.
    fn once(&self, budget: &str, key: String, replay_token: Option<String>) -> Charge {
        Charge {
            budget: budget.to_owned(),
            key,
            limit: 1,
            window_ms: self.0.window_ms,
            cost: 1,
            scope: Scope::Cluster,
            replay_token,
            refusal: refusal(u64::from(self.0.window_ms)),
        }
    }
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
mod tests {
    use sluice_sdk::testing::{FakeHost, attempt, facts, principal, request};
    use sluice_sdk::types::Role;

    use super::*;

    fn buyer(device: Option<&str>) -> Facts {
        Facts { principal: Some(principal("u1", Role::User)), device: device.map(Into::into), ..facts() }
    }

    fn ask(host: &FakeHost, facts: &Facts, attempt: &Attempt) -> Verdict {
        AntiFraud::configure("{}").expect("valid").on_attempt(host, &request("/api/seckill/buy"), facts, attempt)
    }

    fn effects(facts: &Facts, attempt: &Attempt) -> Effects {
        match ask(&FakeHost::default(), facts, attempt) {
            Verdict::Proceed(effects) => effects,
            Verdict::Refuse(refusal) => panic!("{refusal:?}"),
        }
    }

    #[test]
    fn charges_user_network_and_device() {
        let charges = effects(&buyer(Some("d1")), &attempt()).charges;
        let accounts: Vec<_> = charges.iter().map(|c| (c.budget.as_str(), c.key.as_str(), c.limit, c.window_ms)).collect();
        assert_eq!(
            accounts,
            [("attempt-user", "u1", 1, 5_000), ("attempt-network", "192.0.2.0/24", 200, 1_000), ("attempt-device", "d1", 1, 5_000)]
        );
        assert!(charges.iter().all(|charge| charge.refusal.code == "RISK_REFUSED" && charge.refusal.retry_after_ms.is_some()));
    }

    #[test]
    fn an_attempt_without_a_device_is_riskier() {
        for device in [None, Some(""), Some("has space"), Some("d".repeat(65).as_str())] {
            let effects = effects(&buyer(device), &attempt());
            assert_eq!((effects.charges.len(), effects.score), (2, NO_DEVICE_SCORE), "{device:?}");
            assert_eq!(effects.tags, ["no-device"]);
        }
    }

    #[test]
    fn a_replay_is_the_same_key_for_the_same_purchase() {
        let with_key = |key: &str, sku| Attempt { idempotency_key: Some(key.into()), sku, ..attempt() };
        let token = |attempt: &Attempt| effects(&buyer(Some("d1")), attempt).charges[0].replay_token.clone();
        assert_eq!(token(&with_key("k", 2)), token(&with_key("k", 2)));
        assert_ne!(token(&with_key("k", 2)), token(&with_key("k", 3)));
        assert_ne!(token(&with_key("k", 2)), token(&with_key("l", 2)));
        assert_eq!(token(&attempt()), None);
        assert_eq!(token(&with_key(&"k".repeat(65), 2)), None);
    }

    #[test]
    fn a_network_is_never_charged_less_for_a_replay() {
        let attempt = Attempt { idempotency_key: Some("k".into()), ..attempt() };
        assert_eq!(effects(&buyer(Some("d1")), &attempt).charges[1].replay_token, None);
    }

    #[test]
    fn refuses_the_blocked() {
        for (list, key) in [("block-users", "u1"), ("block-devices", "d1"), ("block-networks", "192.0.2.0/24")] {
            match ask(&FakeHost::default().with_entry(list, key), &buyer(Some("d1")), &attempt()) {
                Verdict::Refuse(refusal) => {
                    assert_eq!((refusal.status, refusal.code.as_str(), refusal.retry_after_ms), (429, "RISK_REFUSED", Some(60_000)));
                }
                Verdict::Proceed(effects) => panic!("{list}: {effects:?}"),
            }
        }
    }

    #[test]
    fn refuses_an_attempt_of_nobody() {
        assert!(matches!(ask(&FakeHost::default(), &facts(), &attempt()), Verdict::Refuse(refusal) if refusal.status == 401));
    }

    #[test]
    fn refuses_configuration_out_of_range() {
        for bad in [r#"{"window_ms": 0}"#, r#"{"network_limit": 0}"#, r#"{"ipv4_prefix": 33}"#, r#"{"windows_ms": 1}"#] {
            assert!(AntiFraud::configure(bad).is_err(), "{bad}");
        }
    }
}
