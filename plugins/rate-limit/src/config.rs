//! The configuration document, and what is wrong with it.

use serde::Deserialize;
use sluice_sdk::types::{Refusal, Scope};

use crate::key::Key;
use crate::{Budget, Missing, RateLimit};

/// The host takes at most this many charges from one policy, and lends it at most 32 fields.
const BUDGETS_MAX: usize = 16;

/// The configuration document; schema.json says the same for machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Every budget that covers a request is charged for it.
    budgets: Vec<BudgetConfig>,
    /// Bits of an IPv4 address that make the key `ip`.
    #[serde(default = "all_v4_bits")]
    ipv4_prefix: u8,
    /// Bits of an IPv6 address that make the key `ip`: one home has a whole /64.
    #[serde(default = "one_home_v6_bits")]
    ipv6_prefix: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetConfig {
    name: String,
    key: String,
    /// What counts when a request has no such key.
    #[serde(default)]
    fallback: Fallback,
    /// What happens when it has none of the fallbacks either. Has to be said where that can happen.
    missing: Option<MissingConfig>,
    limit: u32,
    window_ms: u32,
    #[serde(default = "one")]
    cost: u32,
    #[serde(default)]
    scope: Counted,
    /// Like `/api/` for everything below, or one exact path; none means every path.
    #[serde(default)]
    paths: Vec<String>,
    /// Paths it does not count, written alike.
    #[serde(default)]
    except: Vec<String>,
    #[serde(default)]
    methods: Vec<String>,
    #[serde(default)]
    routes: Vec<String>,
    code: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Fallback {
    One(String),
    Chain(Vec<String>),
}

impl Default for Fallback {
    fn default() -> Self {
        Self::Chain(Vec::new())
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MissingConfig {
    Skip,
    Refuse,
    Shared,
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

fn one() -> u32 {
    1
}

impl Config {
    /// The policy this document describes.
    pub(crate) fn build(self) -> Result<RateLimit, String> {
        let Self { budgets, ipv4_prefix, ipv6_prefix } = self;
        if budgets.len() > BUDGETS_MAX {
            return Err(format!("budgets: {} are more than {BUDGETS_MAX}", budgets.len()));
        }
        if ipv4_prefix > 32 || ipv6_prefix > 128 {
            return Err("an address has at most 32 (ipv4_prefix) or 128 (ipv6_prefix) bits".into());
        }
        let build = |budget: BudgetConfig| {
            let name = budget.name.clone();
            budget.build((ipv4_prefix, ipv6_prefix)).map_err(|problem| format!("budget {name:?}: {problem}"))
        };
        let budgets: Vec<Budget> = budgets.into_iter().map(build).collect::<Result<_, _>>()?;
        let mut headers: Vec<String> = budgets.iter().flat_map(|budget| &budget.keys).flat_map(Key::headers).cloned().collect();
        headers.sort();
        headers.dedup();
        if headers.len() > 32 {
            return Err(format!("budgets: keys are made from {} fields, more than 32", headers.len()));
        }
        Ok(RateLimit { budgets, headers })
    }
}

impl BudgetConfig {
    /// The host's rules for a charge are told to the operator here instead of to a client later.
    fn build(self, ip_bits: (u8, u8)) -> Result<Budget, String> {
        let Self { name, limit, window_ms, cost, paths, except, methods, routes, .. } = self;
        if !(1..=40).contains(&name.len()) || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
            return Err("its name is not [a-z0-9-]{1,40}".into());
        }
        if !(1..=1_000_000).contains(&limit) || !(1..=86_400_000).contains(&window_ms) || !(1..=limit).contains(&cost) {
            return Err("limit is 1 to 1,000,000, window_ms is 1 to 86,400,000, cost is 1 to limit".into());
        }
        if let Some(path) = paths.iter().chain(&except).find(|path| !path.starts_with('/')) {
            return Err(format!("{path:?} does not begin with /"));
        }
        let chain = match self.fallback {
            Fallback::One(key) => vec![key],
            Fallback::Chain(keys) => keys,
        };
        let keys: Vec<Key> = std::iter::once(&self.key).chain(&chain).map(|key| Key::parse(key, ip_bits)).collect::<Result<_, _>>()?;
        let certain = keys.iter().position(Key::is_certain);
        if certain.is_some_and(|index| index + 1 < keys.len()) {
            return Err("a fallback behind a key that every request has is never reached".into());
        }
        let missing = match (self.missing, certain.is_some()) {
            (None, false) => {
                return Err("a request may have none of its keys: say what counts then (fallback) or what happens (missing)".into());
            }
            (Some(_), true) => return Err("every request has one of its keys, so missing says nothing".into()),
            (None, true) | (Some(MissingConfig::Skip), false) => Missing::Skip,
            (Some(MissingConfig::Refuse), false) => Missing::Refuse,
            (Some(MissingConfig::Shared), false) => Missing::Shared,
        };
        let code = self.code.as_deref().unwrap_or("RATE_LIMITED");
        if !(1..=40).contains(&code.len()) || !code.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_') {
            return Err("its code is not [A-Z0-9_]{1,40}".into());
        }
        let message = self.message.as_deref().unwrap_or("请求过于频繁,请稍后再试");
        if message.len() > 200 || message.chars().any(char::is_control) {
            return Err("its message is not one line of at most 200 bytes".into());
        }
        // One request fits again after this long.
        let wait_ms = (u64::from(window_ms) * u64::from(cost)).div_ceil(u64::from(limit));
        let refusal = Refusal::new(429, code, message).retry_after_ms(wait_ms);
        let scope = match self.scope {
            Counted::Node => Scope::Node,
            Counted::Cluster => Scope::Cluster,
        };
        Ok(Budget { name, keys, missing, limit, window_ms, cost, scope, paths, except, methods, routes, refusal })
    }
}
