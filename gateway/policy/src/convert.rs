//! Between our types and the world's, both ways and without opinion. Whether an answer is acceptable is decided in
//! [`crate::verdict`].

use std::net::IpAddr;

use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::policy::{Charge, Effects, Facts, Refusal, Scope, Verdict};
use gateway_core::principal::{Principal, Role};
use gateway_core::request::RequestHead;
use gateway_core::time::UnixMillis;

use crate::bindings::{identity, wit};

/// Facts, laid out for lowering.
pub(crate) struct FactsView<'a> {
    facts: &'a Facts,
    scopes: Vec<&'a str>,
    tags: Vec<&'a str>,
}

impl<'a> FactsView<'a> {
    pub(crate) fn new(facts: &'a Facts) -> Self {
        let scopes = facts.principal.iter().flat_map(|principal| &principal.scopes).map(String::as_str).collect();
        Self { facts, scopes, tags: facts.tags.iter().map(String::as_str).collect() }
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.facts.now
    }

    pub(crate) fn lower(&self) -> wit::Facts<'_> {
        wit::Facts {
            now_ms: self.facts.now.0,
            principal: self.facts.principal.as_ref().map(|principal| wit::PrincipalParam {
                id: principal.id.as_str(),
                role: role_out(principal.role),
                shop: principal.shop.map(|shop| shop.0),
                scopes: &self.scopes,
                expires_ms: principal.expires_at.0,
            }),
            device: self.facts.device.as_deref(),
            tags: &self.tags,
        }
    }
}

/// A request's head with `headers`, the block of the fields the guest asked for.
pub(crate) fn lower_head<'a>(head: &'a RequestHead, headers: &'a str) -> wit::Request<'a> {
    wit::Request {
        method: &head.method,
        path: &head.path,
        query: head.query.as_deref(),
        host: &head.host,
        client: address(head.client),
        route: &head.route,
        headers,
    }
}

/// Makes `block` the wanted fields, one `name: value` a line. A field's value has no line break: framing refused it long
/// before.
pub(crate) fn fill_header_block(block: &mut String, headers: &[(String, String)], wanted: &[String]) {
    block.clear();
    for (name, value) in headers.iter().filter(|(name, value)| wanted.contains(name) && !value.contains(['\r', '\n'])) {
        block.reserve(name.len() + value.len() + 3);
        block.push_str(name);
        block.push_str(": ");
        block.push_str(value);
        block.push('\n');
    }
}

fn address(client: IpAddr) -> wit::Address {
    match client.to_canonical() {
        IpAddr::V4(v4) => wit::Address::V4(v4.to_bits()),
        IpAddr::V6(v6) => {
            let [upper, lower] = [v6.to_bits() >> 64, v6.to_bits() & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or(0));
            wit::Address::V6((upper, lower))
        }
    }
}

/// An identity as `identity.verify` returns it.
pub(crate) fn owned_principal(principal: &Principal) -> identity::Principal {
    identity::Principal {
        id: principal.id.as_str().to_owned(),
        role: role_out(principal.role),
        shop: principal.shop.map(|shop| shop.0),
        scopes: principal.scopes.clone(),
        expires_ms: principal.expires_at.0,
    }
}

fn role_out(role: Role) -> wit::Role {
    match role {
        Role::User => wit::Role::User,
        Role::Agent => wit::Role::Agent,
        Role::Admin => wit::Role::Admin,
    }
}

/// A guest's answer in our types. `None` when an identity in it has no valid name.
pub(crate) fn verdict(answer: wit::Verdict) -> Option<Verdict> {
    Some(match answer {
        wit::Verdict::Refuse(refused) => Verdict::Refuse(refusal(refused)),
        wit::Verdict::Proceed(effects) => Verdict::Proceed(Effects {
            principal: match effects.principal {
                Some(claimed) => Some(principal(claimed)?),
                None => None,
            },
            set_headers: effects.set_headers,
            remove_headers: effects.remove_headers,
            charges: effects.charges.into_iter().map(charge).collect(),
            tags: effects.tags,
            score: effects.score,
            replace: effects.replace,
            reply: effects.reply,
        }),
    })
}

fn principal(claimed: wit::PrincipalResult) -> Option<Principal> {
    Some(Principal {
        id: PrincipalId::parse(&claimed.id).ok()?,
        role: match claimed.role {
            wit::Role::User => Role::User,
            wit::Role::Agent => Role::Agent,
            wit::Role::Admin => Role::Admin,
        },
        shop: claimed.shop.map(ShopId),
        scopes: claimed.scopes,
        expires_at: UnixMillis(claimed.expires_ms),
        // Guests are not told; the host knows which token it proved.
        token_id: None,
    })
}

fn refusal(refusal: wit::Refusal) -> Refusal {
    Refusal { status: refusal.status, code: refusal.code, message: refusal.message, retry_after_ms: refusal.retry_after_ms }
}

fn charge(charge: wit::Charge) -> Charge {
    Charge {
        budget: charge.budget,
        key: charge.key,
        limit: charge.limit,
        window_ms: charge.window_ms,
        cost: charge.cost,
        scope: match charge.scope {
            wit::Scope::Node => Scope::Node,
            wit::Scope::Cluster => Scope::Cluster,
        },
        replay_token: charge.replay_token,
        refusal: refusal(charge.refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowers_only_the_wanted_fields_and_never_a_forged_line() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = [field("a", "1"), field("b", "2"), field("a", "3"), field("a", "4\nb: 5")];
        let mut block = "left over".to_owned();
        fill_header_block(&mut block, &headers, &["a".to_owned()]);
        assert_eq!(block, "a: 1\na: 3\n");
        fill_header_block(&mut block, &headers, &[]);
        assert_eq!(block, "");
    }

    #[test]
    fn a_mapped_address_is_its_ipv4_address() {
        let of = |text: &str| address(text.parse().unwrap());
        assert!(matches!(of("::ffff:192.0.2.1"), wit::Address::V4(0xc000_0201)));
        assert!(matches!(of("192.0.2.1"), wit::Address::V4(0xc000_0201)));
        assert!(matches!(of("2001:db8::1"), wit::Address::V6((0x2001_0db8_0000_0000, 1))));
    }
}
