//! Says which budgets a request is charged to.
//!
//! Counting is the host's work: this policy only names accounts, so it holds no state and every node agrees with every
//! other. Configured as [`config::Config`]; README.md says why it is the way it is.

mod config;
mod key;

use sluice_sdk::types::{Charge, Effects, Facts, Manifest, Phases, Refusal, Request, Scope, Verdict};
use sluice_sdk::{Host, Policy, configuration, covers};

use crate::config::Config;
use crate::key::Key;

/// The configured policy.
#[derive(Debug)]
pub struct RateLimit {
    budgets: Vec<Budget>,
    /// Fields that keys are made from.
    headers: Vec<String>,
}

/// One budget, ready to charge.
#[derive(Debug)]
struct Budget {
    name: String,
    /// The key, then what counts in its place, in order.
    keys: Vec<Key>,
    missing: Missing,
    limit: u32,
    window_ms: u32,
    cost: u32,
    scope: Scope,
    paths: Vec<String>,
    except: Vec<String>,
    methods: Vec<String>,
    routes: Vec<String>,
    refusal: Refusal,
}

/// What happens to a request that has none of a budget's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is not charged.
    Skip,
    /// It is refused.
    Refuse,
    /// All such requests share one account.
    Shared,
}

impl Policy for RateLimit {
    fn configure(config: &str) -> Result<Self, String> {
        configuration::<Config>(config)?.build()
    }

    fn manifest(&self) -> Manifest {
        Manifest {
            name: "rate-limit".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            phases: Phases::REQUEST,
            headers: self.headers.clone(),
        }
    }

    fn on_request(&self, _host: &dyn Host, request: &Request, facts: &Facts) -> Verdict {
        let mut effects = Effects::default();
        for budget in self.budgets.iter().filter(|budget| budget.covers(request)) {
            let key = match (budget.account(request, facts), budget.missing) {
                (Some(key), _) => key,
                (None, Missing::Skip) => continue,
                (None, Missing::Shared) => "nobody".to_owned(),
                (None, Missing::Refuse) => return Verdict::Refuse(Refusal::new(400, "KEY_MISSING", "请求缺少必要的标识")),
            };
            if effects.charges.is_empty() {
                effects.charges.reserve_exact(self.budgets.len());
            }
            effects.charges.push(budget.charge(key));
        }
        Verdict::Proceed(effects)
    }
}

impl Budget {
    fn covers(&self, request: &Request) -> bool {
        let path = request.path.as_str();
        let any = |patterns: &[String]| patterns.iter().any(|pattern| covers(pattern, path));
        let named = |names: &[String], name: &str| names.is_empty() || names.iter().any(|one| one == name);
        (self.paths.is_empty() || any(&self.paths))
            && !any(&self.except)
            && named(&self.methods, &request.method)
            && named(&self.routes, &request.route)
    }

    /// The account's name. Names of different kinds of key never meet.
    fn account(&self, request: &Request, facts: &Facts) -> Option<String> {
        let mut account = String::with_capacity(64);
        self.keys.iter().any(|key| key.write(&mut account, request, facts)).then_some(account)
    }

    fn charge(&self, key: String) -> Charge {
        Charge {
            budget: self.name.clone(),
            key,
            limit: self.limit,
            window_ms: self.window_ms,
            cost: self.cost,
            scope: self.scope,
            replay_token: None,
            refusal: self.refusal.clone(),
        }
    }
}

#[cfg(target_family = "wasm")]
sluice_sdk::export!(RateLimit);

#[cfg(test)]
mod tests;
