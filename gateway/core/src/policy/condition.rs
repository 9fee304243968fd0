//! When a binding applies, beyond its paths: method, header, claim, a part of the askers. Also who the asker is, for those
//! who divide askers into groups.

use std::net::IpAddr;

use crate::id::ShopId;
use crate::policy::Facts;
use crate::policy::rollout::Cohort;
use crate::principal::Role;
use crate::request::RequestHead;

/// A condition of a binding. Each part that is not empty has to hold; of the entries of one part one is enough.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// Upper-case methods. A chat message has none, and counts as meeting this part.
    pub methods: Vec<String>,
    /// Header fields. A chat message has none, and counts as meeting this part.
    pub headers: Vec<HeaderTest>,
    /// Roles of the principal that earlier policies proved; nobody has none.
    pub roles: Vec<Role>,
    /// Scopes of the principal.
    pub scopes: Vec<String>,
    /// The principal's shop.
    pub shops: Vec<ShopId>,
    /// A part of the askers that stays the same, in percent.
    pub percent: Option<u8>,
}

/// A test of one header field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderTest {
    /// Its name in lower case.
    pub name: String,
    /// What it must be; `None` means that it is there.
    pub value: Option<String>,
}

impl HeaderTest {
    /// Reads `name` or `name=value`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value.to_owned())));
        let is_name =
            (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        is_name.then(|| Self { name: name.to_owned(), value })
    }

    fn holds(&self, head: &RequestHead) -> bool {
        let mut values = head.headers.iter().filter(|(name, _)| *name == self.name);
        values.any(|(_, value)| self.value.as_ref().is_none_or(|wanted| value == wanted))
    }
}

impl Condition {
    /// Whether `policy` is to be asked. `head` is `None` for a chat message.
    #[must_use]
    pub fn holds(&self, policy: &str, head: Option<&RequestHead>, facts: &Facts) -> bool {
        let of_head = head.is_none_or(|head| {
            (self.methods.is_empty() || self.methods.contains(&head.method))
                && (self.headers.is_empty() || self.headers.iter().any(|test| test.holds(head)))
        });
        of_head && self.holds_for(facts) && self.percent.is_none_or(|percent| Cohort::Percent(percent).has(policy, &Asker::of(facts, head)))
    }

    fn holds_for(&self, facts: &Facts) -> bool {
        let principal = facts.principal.as_ref();
        (self.roles.is_empty() || principal.is_some_and(|principal| self.roles.contains(&principal.role)))
            && (self.scopes.is_empty()
                || principal.is_some_and(|principal| self.scopes.iter().any(|scope| principal.scopes.contains(scope))))
            && (self.shops.is_empty() || principal.and_then(|principal| principal.shop).is_some_and(|shop| self.shops.contains(&shop)))
    }
}

/// Who is asking, as far as groups of askers go by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker<'a> {
    /// The proved principal's id.
    pub id: Option<&'a str>,
    /// The `X-Device-Id` header.
    pub device: Option<&'a str>,
    /// The client's address.
    pub client: Option<IpAddr>,
}

impl<'a> Asker<'a> {
    /// The asker behind `facts` and `head`.
    #[must_use]
    pub fn of(facts: &'a Facts, head: Option<&RequestHead>) -> Self {
        Self {
            id: facts.principal.as_ref().map(|principal| principal.id.as_str()),
            device: facts.device.as_deref(),
            client: head.map(|head| head.client),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::id::PrincipalId;
    use crate::principal::Principal;
    use crate::time::UnixMillis;

    fn head() -> RequestHead {
        RequestHead {
            method: "POST".into(),
            path: "/".into(),
            query: None,
            host: String::new(),
            headers: vec![("x-beta".into(), "0".into()), ("x-beta".into(), "1".into())],
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            trace_id: String::new(),
            route: "r".into(),
        }
    }

    fn facts() -> Facts {
        let principal = Principal {
            id: PrincipalId::parse("u7").unwrap(),
            role: Role::Agent,
            shop: Some(ShopId(3)),
            scopes: vec!["chat".into(), "read".into()],
            expires_at: UnixMillis(1),
            token_id: None,
        };
        Facts { now: UnixMillis(0), principal: Some(principal), device: None, tags: Vec::new() }
    }

    fn nobody() -> Facts {
        Facts { principal: None, ..facts() }
    }

    fn condition(change: impl FnOnce(&mut Condition)) -> Condition {
        let mut condition = Condition::default();
        change(&mut condition);
        condition
    }

    #[test]
    fn no_condition_always_holds() {
        assert!(Condition::default().holds("p", Some(&head()), &nobody()));
        assert!(Condition::default().holds("p", None, &facts()));
    }

    #[test]
    fn one_entry_of_a_part_is_enough_and_every_part_has_to_hold() {
        let test = |text| HeaderTest::parse(text).unwrap();
        for (holds, condition) in [
            (true, condition(|c| c.methods = vec!["GET".into(), "POST".into()])),
            (false, condition(|c| c.methods = vec!["GET".into()])),
            (true, condition(|c| c.headers = vec![test("x-beta")])),
            (true, condition(|c| c.headers = vec![test("x-beta=1")])),
            (true, condition(|c| c.headers = vec![test("x-other"), test("x-beta=0")])),
            (false, condition(|c| c.headers = vec![test("x-beta=2"), test("x-other")])),
            (true, condition(|c| c.roles = vec![Role::User, Role::Agent])),
            (false, condition(|c| c.roles = vec![Role::User])),
            (true, condition(|c| c.scopes = vec!["chat".into()])),
            (false, condition(|c| c.scopes = vec!["cha".into()])),
            (true, condition(|c| c.shops = vec![ShopId(3)])),
            (false, condition(|c| c.shops = vec![ShopId(4)])),
            (true, condition(|c| c.percent = Some(100))),
            (false, condition(|c| (c.methods, c.roles) = (vec!["POST".into()], vec![Role::User]))),
        ] {
            assert_eq!(condition.holds("p", Some(&head()), &facts()), holds, "{condition:?}");
        }
    }

    #[test]
    fn nobody_has_no_claims() {
        for condition in [
            condition(|c| c.roles = vec![Role::User, Role::Agent, Role::Admin]),
            condition(|c| c.scopes = vec!["chat".into()]),
            condition(|c| c.shops = vec![ShopId(3)]),
        ] {
            assert!(!condition.holds("p", Some(&head()), &nobody()), "{condition:?}");
        }
    }

    #[test]
    fn a_message_meets_what_only_a_head_could_fail() {
        let condition = condition(|c| (c.methods, c.headers) = (vec!["GET".into()], vec![HeaderTest::parse("x").unwrap()]));
        assert!(condition.holds("p", None, &facts()), "a rule is not forgotten because its condition cannot be checked");
    }

    #[test]
    fn header_tests_are_names_with_or_without_a_value() {
        assert_eq!(HeaderTest::parse("x-a"), Some(HeaderTest { name: "x-a".into(), value: None }));
        assert_eq!(HeaderTest::parse("x-a=b=c"), Some(HeaderTest { name: "x-a".into(), value: Some("b=c".into()) }));
        for text in ["", "=1", "X-A", "x a", "x\n"] {
            assert_eq!(HeaderTest::parse(text), None, "{text:?}");
        }
    }
}
