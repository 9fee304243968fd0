//! Says which budgets a request is charged to.
//!
//! Counting is the host's work: this policy only names accounts, so it holds no state and every node agrees with every
//! other. Configured as [`Config`]; README.md says why it is the way it is.

use serde::Deserialize;
use sluice_sdk::types::{Charge, Facts, Manifest, Phases, Refusal, Request, Scope, Verdict};
use sluice_sdk::{Host, Policy, configuration, network};

/// The host takes at most this many charges from one policy.
const BUDGETS_MAX: usize = 16;

/// Longest device name that is believed; the field is the client's to invent.
const DEVICE_BYTES_MAX: usize = 64;

/// The configuration document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Every budget that covers a request is charged for it.
    budgets: Vec<Budget>,
    /// Bits of an IPv4 address that make an account.
    #[serde(default = "all_v4_bits")]
    ipv4_prefix: u8,
    /// Bits of an IPv6 address that make an account: one home has a whole /64.
    #[serde(default = "one_home_v6_bits")]
    ipv6_prefix: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    name: String,
    key: Key,
    /// What counts when a request has no such key.
    #[serde(default)]
    fallback: Fallback,
    limit: u32,
    window_ms: u32,
    #[serde(default)]
    scope: Counted,
    /// Like `/api/` for everything below, or one exact path; none means every path.
    #[serde(default)]
    paths: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Key {
    User,
    Ip,
    Device,
    Route,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Fallback {
    #[default]
    Ip,
    /// Such requests are not charged to this budget.
    None,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Counted {
    Node,
    #[default]
    Cluster,
}

fn all_v4_bits() -> u8 {
    32
}

fn one_home_v6_bits() -> u8 {
    64
}

/// The configured policy.
#[derive(Debug)]
pub struct RateLimit(Config);

impl Policy for RateLimit {
    fn configure(config: &str) -> Result<Self, String> {
        let config: Config = configuration(config)?;
        if config.budgets.len() > BUDGETS_MAX {
            return Err(format!("budgets: {} are more than {BUDGETS_MAX}", config.budgets.len()));
        }
        if config.ipv4_prefix > 32 || config.ipv6_prefix > 128 {
            return Err("an address has at most 32 (ipv4_prefix) or 128 (ipv6_prefix) bits".into());
        }
        config.budgets.iter().try_for_each(check)?;
        Ok(Self(config))
    }

    fn manifest(&self) -> Manifest {
        Manifest { name: "rate-limit".into(), version: env!("CARGO_PKG_VERSION").into(), phases: Phases::REQUEST, headers: Vec::new() }
    }

    fn on_request(&self, _host: &dyn Host, request: &Request, facts: &Facts) -> Verdict {
        let covering = self.0.budgets.iter().filter(|budget| budget.covers(&request.path));
        Verdict::charge(covering.filter_map(|budget| self.charge(budget, request, facts)).collect())
    }
}

impl RateLimit {
    fn charge(&self, budget: &Budget, request: &Request, facts: &Facts) -> Option<Charge> {
        let key = self.account(budget.key, request, facts).or_else(|| match budget.fallback {
            Fallback::Ip => self.account(Key::Ip, request, facts),
            Fallback::None => None,
        })?;
        Some(Charge {
            budget: budget.name.clone(),
            key,
            limit: budget.limit,
            window_ms: budget.window_ms,
            cost: 1,
            scope: match budget.scope {
                Counted::Node => Scope::Node,
                Counted::Cluster => Scope::Cluster,
            },
            replay_token: None,
            // One unit of an exhausted budget comes back after this long.
            refusal: Refusal::new(429, "RATE_LIMITED", "请求过于频繁,请稍后再试")
                .retry_after_ms(u64::from(budget.window_ms.div_ceil(budget.limit))),
        })
    }

    /// The account's name; its first letters keep accounts of different kinds apart.
    fn account(&self, key: Key, request: &Request, facts: &Facts) -> Option<String> {
        match key {
            Key::User => facts.principal.as_ref().map(|principal| format!("user:{}", principal.id)),
            Key::Device => facts.device.as_deref().filter(|device| believable(device)).map(|device| format!("device:{device}")),
            Key::Ip => Some(format!("ip:{}", network(request.client, self.0.ipv4_prefix, self.0.ipv6_prefix))),
            Key::Route => Some(format!("route:{}", request.route)),
        }
    }
}

impl Budget {
    fn covers(&self, path: &str) -> bool {
        let covers = |pattern: &String| if pattern.ends_with('/') { path.starts_with(pattern) } else { path == pattern };
        self.paths.is_empty() || self.paths.iter().any(covers)
    }
}

fn believable(device: &str) -> bool {
    (1..=DEVICE_BYTES_MAX).contains(&device.len()) && device.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The host's rules for a charge, told to the operator at load instead of to a client later.
fn check(budget: &Budget) -> Result<(), String> {
    let named =
        (1..=40).contains(&budget.name.len()) && budget.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !named {
        return Err(format!("budgets: the name {:?} is not [a-z0-9-]{{1,40}}", budget.name));
    }
    if !(1..=1_000_000).contains(&budget.limit) || !(1..=86_400_000).contains(&budget.window_ms) {
        return Err(format!("budget {}: limit is 1 to 1,000,000 and window_ms is 1 to 86,400,000", budget.name));
    }
    Ok(())
}

#[cfg(target_family = "wasm")]
sluice_sdk::export!(RateLimit);

#[cfg(test)]
mod tests {
    use sluice_sdk::testing::{FakeHost, facts, principal, request};
    use sluice_sdk::types::{Address, Role};

    use super::*;

    fn charges(config: &str, request: &Request, facts: &Facts) -> Vec<Charge> {
        match RateLimit::configure(config).expect("valid").on_request(&FakeHost::default(), request, facts) {
            Verdict::Proceed(effects) => effects.charges,
            Verdict::Refuse(refusal) => panic!("{refusal:?}"),
        }
    }

    fn one_budget(extra: &str) -> String {
        format!(r#"{{"budgets": [{{"name": "b", "limit": 10, "window_ms": 1000, {extra}}}]}}"#)
    }

    #[test]
    fn names_the_account_of_each_kind_of_key() {
        let known = Facts { principal: Some(principal("u1", Role::User)), device: Some("d1".into()), ..facts() };
        let long = Facts { device: Some("d".repeat(65)), ..facts() };
        for (extra, facts, keys) in [
            (r#""key": "user""#, &known, vec!["user:u1"]),
            (r#""key": "user""#, &facts(), vec!["ip:192.0.2.1/32"]),
            (r#""key": "user", "fallback": "none""#, &facts(), vec![]),
            (r#""key": "device""#, &known, vec!["device:d1"]),
            (r#""key": "device""#, &long, vec!["ip:192.0.2.1/32"]),
            (r#""key": "ip""#, &known, vec!["ip:192.0.2.1/32"]),
            (r#""key": "route""#, &known, vec!["route:api"]),
        ] {
            let named: Vec<_> = charges(&one_budget(extra), &request("/"), facts).into_iter().map(|charge| charge.key).collect();
            assert_eq!(named, keys, "{extra}");
        }
    }

    #[test]
    fn a_thousand_addresses_of_one_home_share_one_account() {
        let mut keys: Vec<_> = (0..1_000)
            .flat_map(|host| {
                let request = Request { client: Address::V6((0x2001_0db8_0000_0001, host)), ..request("/") };
                charges(&one_budget(r#""key": "ip""#), &request, &facts())
            })
            .map(|charge| charge.key)
            .collect();
        keys.dedup();
        assert_eq!(keys, ["ip:2001:db8:0:1::/64"]);
    }

    #[test]
    fn charges_every_budget_that_covers_the_path() {
        let config = r#"{"budgets": [
            {"name": "all", "key": "ip", "limit": 10, "window_ms": 1000},
            {"name": "below", "key": "ip", "limit": 10, "window_ms": 1000, "paths": ["/api/"]},
            {"name": "exact", "key": "ip", "limit": 10, "window_ms": 1000, "paths": ["/api/x"]}]}"#;
        for (path, names) in
            [("/", vec!["all"]), ("/api/y", vec!["all", "below"]), ("/api/x", vec!["all", "below", "exact"]), ("/api", vec!["all"])]
        {
            let charged: Vec<_> = charges(config, &request(path), &facts()).into_iter().map(|charge| charge.budget).collect();
            assert_eq!(charged, names, "{path}");
        }
    }

    #[test]
    fn says_when_one_unit_comes_back() {
        let charge = charges(&one_budget(r#""key": "ip""#), &request("/"), &facts()).remove(0);
        assert_eq!(charge.refusal.retry_after_ms, Some(100));
        assert_eq!((charge.refusal.status, charge.refusal.code.as_str()), (429, "RATE_LIMITED"));
    }

    #[test]
    fn refuses_configuration_the_host_would_choke_on() {
        let budget = |name: &str, limit: u32, window: u32| {
            format!(r#"{{"budgets": [{{"name": "{name}", "key": "ip", "limit": {limit}, "window_ms": {window}}}]}}"#)
        };
        for bad in [
            budget("", 1, 1),
            budget("Upper", 1, 1),
            budget("b", 0, 1),
            budget("b", 1_000_001, 1),
            budget("b", 1, 0),
            budget("b", 1, 86_400_001),
            "{}".into(),
            r#"{"budgets": [], "ipv6_prefix": 129}"#.into(),
            r#"{"budgets": [], "ipv4": 24}"#.into(),
        ] {
            assert!(RateLimit::configure(&bad).is_err(), "{bad}");
        }
        let many = vec![r#"{"name": "b", "key": "ip", "limit": 1, "window_ms": 1}"#; 17].join(",");
        assert!(RateLimit::configure(&format!(r#"{{"budgets": [{many}]}}"#)).is_err());
    }
}
