//! Refuses clients that are on a list of the operator's.
//!
//! The client names itself in a header; which header and which list is configuration. A request without the header goes on
//! and is tagged, so that later policies and the decision record can tell.

use serde::Deserialize;
use sluice_sdk::types::{Effects, Facts, Manifest, Phases, Refusal, Request, Verdict};
use sluice_sdk::{HeaderBlock, Host, Policy, configuration};

/// The configuration document; schema.json says the same to operators.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The header a client names itself in.
    header: String,
    /// The list of those who are refused.
    list: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { header: "x-client-id".into(), list: "block-clients".into() }
    }
}

/// The configured policy.
#[derive(Debug)]
pub struct Rule(Config);

impl Policy for Rule {
    fn configure(config: &str) -> Result<Self, String> {
        let config: Config = configuration(config)?;
        if !is_name(&config.header) {
            return Err("header: not a header name in lower case".into());
        }
        if !is_name(&config.list) {
            return Err("list: not a list's name".into());
        }
        Ok(Self(config))
    }

    fn manifest(&self) -> Manifest {
        Manifest {
            name: env!("CARGO_PKG_NAME").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            phases: Phases::REQUEST,
            headers: vec![self.0.header.clone()],
        }
    }

    fn on_request(&self, host: &dyn Host, request: &Request, _facts: &Facts) -> Verdict {
        match request.header(&self.0.header) {
            Some(client) if host.contains(&self.0.list, client) => Verdict::Refuse(Refusal::new(403, "BLOCKED", "this client is blocked")),
            Some(_) => Verdict::proceed(),
            None => Verdict::Proceed(Effects { tags: vec!["no-client".into()], ..Effects::default() }),
        }
    }
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(target_family = "wasm")]
sluice_sdk::export!(Rule);
