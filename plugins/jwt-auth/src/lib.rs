//! Proves who is asking, and says who may ask for what.
//!
//! The token itself is judged by the host (`identity.verify`); here lives only where a token may stand, which paths need one
//! and what a rule demands of whom. Configured as [`config::Config`]; README.md says why it is the way it is.

mod config;
mod rule;
mod token;

use sluice_sdk::types::{Effects, Facts, Manifest, Phases, Principal, Refusal, Request, Response, Role, Verdict};
use sluice_sdk::{HeaderBlock, Host, Policy, configuration, covers};

use crate::config::{Config, IdentityHeaders};
use crate::rule::Rule;
use crate::token::{Sources, Token};

/// The host takes at most this many bytes as a field's value.
const VALUE_BYTES_MAX: usize = 4_096;

/// The configured policy.
#[derive(Debug)]
pub struct JwtAuth {
    exempt: Vec<String>,
    optional: Vec<String>,
    sources: Sources,
    rules: Vec<Rule>,
    agents_need_shop: bool,
    strip: Vec<String>,
    identity: IdentityHeaders,
    challenge: Option<String>,
}

impl Policy for JwtAuth {
    fn configure(config: &str) -> Result<Self, String> {
        configuration::<Config>(config)?.build()
    }

    fn manifest(&self) -> Manifest {
        let mut headers: Vec<String> = vec![token::AUTHORIZATION.into(), token::SUBPROTOCOL.into()];
        headers.extend(self.strip.iter().cloned());
        let mut phases = Phases::REQUEST;
        if self.challenge.is_some() {
            phases |= Phases::RESPONSE;
            headers.push("www-authenticate".into());
        }
        Manifest { name: "jwt-auth".into(), version: env!("CARGO_PKG_VERSION").into(), phases, headers }
    }

    fn on_request(&self, host: &dyn Host, request: &Request, _facts: &Facts) -> Verdict {
        if self.exempt.iter().any(|pattern| covers(pattern, &request.path)) {
            return self.admit(request, None);
        }
        let token = match self.sources.find(request) {
            Token::One(token) => token,
            Token::None if self.optional.iter().any(|pattern| covers(pattern, &request.path)) => return self.admit(request, None),
            Token::None => return unauthenticated("请先登录"),
            Token::Unclear => return unauthenticated("登录信息不明确"),
        };
        match host.verify(token) {
            Ok(principal) if self.allows(request, &principal) => self.admit(request, Some(principal)),
            Ok(_) => Verdict::Refuse(Refusal::new(403, "FORBIDDEN", "没有权限")),
            Err(_) => unauthenticated("登录已失效,请重新登录"),
        }
    }

    /// RFC 6750, 3: an answer that asks for a better token says so in a field. Only asked for with `challenge`.
    fn on_response(&self, _host: &dyn Host, request: &Request, _facts: &Facts, response: &Response) -> Verdict {
        let Some(realm) = &self.challenge else { return Verdict::proceed() };
        let reason = match response.status {
            _ if response.header("www-authenticate").is_some() => return Verdict::proceed(),
            401 if self.sources.find(request) == Token::None => "",
            401 => ", error=\"invalid_token\"",
            403 => ", error=\"insufficient_scope\"",
            _ => return Verdict::proceed(),
        };
        let value = format!("Bearer realm=\"{realm}\"{reason}");
        Verdict::Proceed(Effects { set_headers: vec![("www-authenticate".into(), value)], ..Effects::default() })
    }
}

impl JwtAuth {
    fn allows(&self, request: &Request, principal: &Principal) -> bool {
        if self.agents_need_shop && principal.role == Role::Agent && principal.shop.is_none() {
            return false;
        }
        self.rules.iter().find_map(|rule| rule.judge(request, principal)).unwrap_or(true)
    }

    /// Lets the request in as `principal`. What the client itself sent in the name of the gateway is removed.
    fn admit(&self, request: &Request, principal: Option<Principal>) -> Verdict {
        let mut effects = Effects::default();
        for (name, _) in request.fields() {
            if self.strip.iter().any(|strip| strip == name) && !effects.remove_headers.iter().any(|removed| removed == name) {
                effects.remove_headers.push(name.to_owned());
            }
        }
        if let Some(principal) = &principal {
            self.identity.name(principal, &mut effects.set_headers);
            if !effects.remove_headers.is_empty() {
                // The host sets a field in place of all the client sent; removing it as well says the same twice.
                effects.remove_headers.retain(|name| !effects.set_headers.iter().any(|(set, _)| set == name));
            }
        }
        effects.principal = principal;
        Verdict::Proceed(effects)
    }
}

impl IdentityHeaders {
    /// Adds the configured fields that tell the service behind who is asking.
    fn name(&self, principal: &Principal, fields: &mut Vec<(String, String)>) {
        let mut add = |name: &Option<String>, value: Option<String>| {
            if let (Some(name), Some(value)) = (name, value) {
                fields.push((name.clone(), value));
            }
        };
        add(&self.user, self.user.as_ref().map(|_| principal.id.clone()));
        add(&self.role, self.role.as_ref().map(|_| rule::word(principal.role).to_owned()));
        add(&self.shop, self.shop.as_ref().and(principal.shop).map(|shop| shop.to_string()));
        add(&self.scopes, self.scopes.as_ref().map(|_| joined(&principal.scopes)).filter(|scopes| !scopes.is_empty()));
    }
}

/// Scopes as a field's value. One that a field cannot carry is left out: fewer rights are never too many.
fn joined(scopes: &[String]) -> String {
    let mut value = String::new();
    for scope in scopes {
        if !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic()) && value.len() + 1 + scope.len() <= VALUE_BYTES_MAX {
            if !value.is_empty() {
                value.push(' ');
            }
            value.push_str(scope);
        }
    }
    value
}

fn unauthenticated(message: &str) -> Verdict {
    Verdict::Refuse(Refusal::new(401, "UNAUTHENTICATED", message))
}

#[cfg(target_family = "wasm")]
sluice_sdk::export!(JwtAuth);

#[cfg(test)]
mod tests;
