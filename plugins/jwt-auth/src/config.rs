//! The configuration document, and what is wrong with it.

use serde::Deserialize;

use crate::JwtAuth;
use crate::rule::{Pattern, Rule, Shop, role};
use crate::token::Sources;

/// Fields removed from what clients send; the host lends a policy at most 32 fields.
const STRIP_MAX: usize = 24;

/// The configuration document; schema.json says the same for machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Paths on which no token is read. One that ends in `/` covers everything below it, any other covers itself.
    exempt: Vec<String>,
    /// Paths on which a request may come without a token; a bad one is refused all the same.
    optional: Vec<String>,
    /// Prefixes after which the rest of the path is the token.
    token_in_path: Vec<String>,
    /// Paths on which the WebSocket subprotocol `bearer.<token>` is read.
    token_in_subprotocol: Vec<String>,
    /// Paths on which the query parameter `token` is read.
    token_in_query: Vec<String>,
    /// Who may enter where. The first rule that covers a request decides; without one, every proved principal may.
    rules: Vec<RuleConfig>,
    /// Whether an agent's token that names no shop is refused everywhere.
    agents_need_shop: bool,
    /// Fields that only the gateway may send to services: removed when a client sends them.
    strip: Vec<String>,
    /// Fields by which services are told who is asking; a field that is not named here is not sent.
    identity_headers: IdentityHeaders,
    /// The realm named in `WWW-Authenticate` on answers 401 and 403 without that field. Asks for the response phase.
    challenge: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RuleConfig {
    path: Option<String>,
    routes: Vec<String>,
    methods: Vec<String>,
    roles: Vec<String>,
    scopes_all: Vec<String>,
    scopes_any: Vec<String>,
    shop: ShopConfig,
}

impl Default for RuleConfig {
    fn default() -> Self {
        let none = Vec::new;
        Self { path: None, routes: none(), methods: none(), roles: none(), scopes_all: none(), scopes_any: none(), shop: ShopConfig::Any }
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ShopConfig {
    Any,
    Required,
    Own,
}

/// Names of fields for services.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IdentityHeaders {
    pub(crate) user: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) shop: Option<String>,
    pub(crate) scopes: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            exempt: Vec::new(),
            optional: Vec::new(),
            token_in_path: owned(&["/im/"]),
            token_in_subprotocol: owned(&["/ws/"]),
            token_in_query: owned(&["/ws/", "/api/seckill/result/", "/api/chat/events"]),
            rules: Vec::new(),
            agents_need_shop: true,
            strip: owned(&["x-user-id", "x-user-role", "x-shop-id", "x-user-scopes"]),
            identity_headers: IdentityHeaders::default(),
            challenge: None,
        }
    }
}

impl Config {
    /// The policy this document describes.
    pub(crate) fn build(self) -> Result<JwtAuth, String> {
        let Self { exempt, optional, token_in_path, token_in_subprotocol, token_in_query, rules, mut strip, identity_headers, .. } = self;
        for (member, paths) in [
            ("exempt", &exempt),
            ("optional", &optional),
            ("token_in_subprotocol", &token_in_subprotocol),
            ("token_in_query", &token_in_query),
        ] {
            if let Some(path) = paths.iter().find(|path| !path.starts_with('/')) {
                return Err(format!("{member}: {path:?} does not begin with /"));
            }
        }
        if let Some(path) = token_in_path.iter().find(|path| !path.starts_with('/') || !path.ends_with('/')) {
            return Err(format!("token_in_path: {path:?} does not begin and end with /"));
        }
        let IdentityHeaders { user, role, shop, scopes } = &identity_headers;
        for name in [user, role, shop, scopes].into_iter().flatten() {
            // A client that sends the field itself would be believed wherever the gateway has nothing to say.
            if !strip.contains(name) {
                strip.push(name.clone());
            }
        }
        if let Some(name) = strip.iter().find(|name| !is_ours(name)) {
            return Err(format!("{name:?} is no field that is passed to services: its name is x-…, in lower case, not x-forwarded-…"));
        }
        if strip.len() > STRIP_MAX {
            return Err(format!("strip: {} fields are more than {STRIP_MAX}", strip.len()));
        }
        if let Some(realm) = &self.challenge
            && (realm.len() > 100 || !realm.bytes().all(|byte| (byte == b' ' || byte.is_ascii_graphic()) && byte != b'"' && byte != b'\\'))
        {
            return Err("challenge: a realm is at most 100 visible characters without quotes".into());
        }
        let rules = rules.into_iter().enumerate().map(|(index, rule)| rule.build().map_err(|problem| format!("rules[{index}]: {problem}")));
        Ok(JwtAuth {
            rules: rules.collect::<Result<_, _>>()?,
            exempt,
            optional,
            sources: Sources { path: token_in_path, subprotocol: token_in_subprotocol, query: token_in_query },
            agents_need_shop: self.agents_need_shop,
            strip,
            identity: identity_headers,
            challenge: self.challenge,
        })
    }
}

impl RuleConfig {
    fn build(self) -> Result<Rule, String> {
        let Self { path, routes, methods, roles, scopes_all, scopes_any, shop } = self;
        if path.is_none() && routes.is_empty() {
            return Err("it names neither a path nor a route".into());
        }
        let path = match path {
            None => None,
            Some(path) => {
                Some(Pattern::parse(&path).ok_or_else(|| format!("{path:?} is no path with at most one whole segment {{shop}}"))?)
            }
        };
        let shop = match shop {
            ShopConfig::Any => Shop::Any,
            ShopConfig::Required => Shop::Required,
            ShopConfig::Own => Shop::Own,
        };
        let names_shop = path.as_ref().is_some_and(Pattern::names_shop);
        if names_shop != (shop == Shop::Own) {
            return Err("a path with {shop} and `shop` = \"own\" need each other".into());
        }
        let roles = roles.iter().map(|word| role(word).ok_or_else(|| format!("{word:?} is none of user, agent, admin")));
        Ok(Rule { path, routes, methods, roles: roles.collect::<Result<_, _>>()?, scopes_all, scopes_any, shop })
    }
}

/// Fields the host lets a policy set, narrowed to those that tell services about clients.
fn is_ours(name: &str) -> bool {
    let token = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte));
    name.starts_with("x-") && (3..=64).contains(&name.len()) && token && !name.starts_with("x-forwarded-") && name != "x-trace-id"
}
