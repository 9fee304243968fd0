//! What the vectors do not show: combinations by table.

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
    let agent = Facts { principal: Some(principal("a1", Role::Agent)), ..facts() };
    let nobody = facts();
    let long = Facts { device: Some("d".repeat(65)), ..facts() };
    for (extra, facts, keys) in [
        (r#""key": "user", "fallback": "ip""#, &known, vec!["user:u1"]),
        (r#""key": "user", "fallback": "ip""#, &nobody, vec!["ip:192.0.2.1/32"]),
        (r#""key": "user", "fallback": ["device", "ip"]"#, &long, vec!["ip:192.0.2.1/32"]),
        (r#""key": "shop", "fallback": ["user", "device"], "missing": "skip""#, &known, vec!["user:u1"]),
        (r#""key": "shop", "fallback": ["user", "device"], "missing": "skip""#, &nobody, vec![]),
        (r#""key": "shop", "missing": "shared""#, &nobody, vec!["nobody"]),
        (r#""key": "shop", "missing": "shared""#, &agent, vec!["shop:7"]),
        (r#""key": "role", "missing": "skip""#, &agent, vec!["role:agent"]),
        (r#""key": "device", "missing": "skip""#, &known, vec!["device:d1"]),
        (r#""key": "device", "missing": "skip""#, &long, vec![]),
        (r#""key": "ip""#, &known, vec!["ip:192.0.2.1/32"]),
        (r#""key": "network:16/48""#, &known, vec!["network:192.0.0.0/16"]),
        (r#""key": "route""#, &known, vec!["route:api"]),
        (r#""key": "constant""#, &known, vec!["constant"]),
        (r#""key": "header:x-api-key", "missing": "skip""#, &known, vec!["header:x-api-key:k1"]),
        (r#""key": "header:x-blank", "missing": "skip""#, &known, vec![]),
        (r#""key": "user+route", "fallback": "ip+route""#, &known, vec!["user:u1 route:api"]),
        (r#""key": "user+route", "fallback": "ip+route""#, &nobody, vec!["ip:192.0.2.1/32 route:api"]),
        (r#""key": "route+user", "fallback": "constant""#, &nobody, vec!["constant"]),
    ] {
        let request = Request { headers: "x-api-key: k1\nx-blank: a b\n".into(), ..request("/") };
        let named: Vec<_> = charges(&one_budget(extra), &request, facts).into_iter().map(|charge| charge.key).collect();
        assert_eq!(named, keys, "{extra}");
    }
}

#[test]
fn a_request_without_any_key_may_be_refused() {
    let policy = RateLimit::configure(&one_budget(r#""key": "header:x-api-key", "missing": "refuse""#)).expect("valid");
    assert_eq!(policy.manifest().headers, ["x-api-key"]);
    match policy.on_request(&FakeHost::default(), &request("/"), &facts()) {
        Verdict::Refuse(refusal) => assert_eq!((refusal.status, refusal.code.as_str()), (400, "KEY_MISSING")),
        Verdict::Proceed(effects) => panic!("{effects:?}"),
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
fn an_ipv4_host_behind_nat64_has_its_own_account() {
    let request = Request { client: Address::V6((0x0064_ff9b_0000_0000, 0xc000_0201)), ..request("/") };
    assert_eq!(charges(&one_budget(r#""key": "ip""#), &request, &facts())[0].key, "ip:192.0.2.1/32");
}

#[test]
fn charges_every_budget_that_covers_the_request() {
    let config = r#"{"budgets": [
        {"name": "all", "key": "ip", "limit": 10, "window_ms": 1000},
        {"name": "below", "key": "ip", "limit": 10, "window_ms": 1000, "paths": ["/api/"], "except": ["/api/time"]},
        {"name": "exact", "key": "ip", "limit": 10, "window_ms": 1000, "paths": ["/api/x"]},
        {"name": "post", "key": "ip", "limit": 10, "window_ms": 1000, "methods": ["POST", "PUT"]},
        {"name": "route", "key": "ip", "limit": 10, "window_ms": 1000, "routes": ["shop"]}]}"#;
    for (method, path, route, names) in [
        ("GET", "/", "api", vec!["all"]),
        ("GET", "/api/y", "api", vec!["all", "below"]),
        ("GET", "/api/time", "api", vec!["all"]),
        ("PUT", "/api/x", "api", vec!["all", "below", "exact", "post"]),
        ("GET", "/api", "shop", vec!["all", "route"]),
    ] {
        let request = Request { method: method.into(), route: route.into(), ..request(path) };
        let charged: Vec<_> = charges(config, &request, &facts()).into_iter().map(|charge| charge.budget).collect();
        assert_eq!(charged, names, "{method} {path} {route}");
    }
}

#[test]
fn says_when_the_request_fits_again() {
    let charge = charges(&one_budget(r#""key": "ip""#), &request("/"), &facts()).remove(0);
    assert_eq!((charge.cost, charge.refusal.retry_after_ms), (1, Some(100)));
    assert_eq!((charge.refusal.status, charge.refusal.code.as_str()), (429, "RATE_LIMITED"));
    let config = one_budget(r#""key": "ip", "cost": 3, "scope": "node", "code": "SLOW_DOWN", "message": "慢一点""#);
    let charge = charges(&config, &request("/"), &facts()).remove(0);
    assert_eq!((charge.cost, charge.scope, charge.refusal.retry_after_ms), (3, Scope::Node, Some(300)));
    assert_eq!((charge.refusal.code.as_str(), charge.refusal.message.as_str()), ("SLOW_DOWN", "慢一点"));
}

#[test]
fn says_what_is_wrong_with_its_configuration() {
    let budget = |name: &str, limit: u32, window: u32| {
        format!(r#"{{"budgets": [{{"name": "{name}", "key": "ip", "limit": {limit}, "window_ms": {window}}}]}}"#)
    };
    let many = vec![r#"{"name": "b", "key": "ip", "limit": 1, "window_ms": 1}"#; 17].join(",");
    for (bad, sentence) in [
        (budget("", 1, 1), "name"),
        (budget("Upper", 1, 1), "name"),
        (budget("b", 0, 1), "limit"),
        (budget("b", 1_000_001, 1), "limit"),
        (budget("b", 1, 0), "window_ms"),
        (budget("b", 1, 86_400_001), "window_ms"),
        ("{}".into(), "budgets"),
        (r#"{"budgets": [], "ipv6_prefix": 129}"#.into(), "ipv6_prefix"),
        (r#"{"budgets": [], "ipv4": 24}"#.into(), "ipv4"),
        (format!(r#"{{"budgets": [{many}]}}"#), "17 are more than 16"),
        (one_budget(r#""key": "user""#), "say what counts then"),
        (one_budget(r#""key": "user", "fallback": ["device"]"#), "say what counts then"),
        (one_budget(r#""key": "ip", "missing": "skip""#), "says nothing"),
        (one_budget(r#""key": "ip", "fallback": ["user"]"#), "never reached"),
        (one_budget(r#""key": "cookie", "missing": "skip""#), "is no key"),
        (one_budget(r#""key": "header:X-Key", "missing": "skip""#), "field's name"),
        (one_budget(r#""key": "network:33/48""#), "network:24/48"),
        (one_budget(r#""key": "network""#), "is no key"),
        (one_budget(r#""key": "header:a+header:b+header:c", "missing": "skip""#), "bytes"),
        (one_budget(r#""key": "ip", "cost": 11"#), "cost"),
        (one_budget(r#""key": "ip", "paths": ["api"]"#), "begin with /"),
        (one_budget(r#""key": "ip", "code": "no""#), "code"),
    ] {
        let problem = RateLimit::configure(&bad).expect_err(&bad);
        assert!(problem.contains(sentence), "{bad}: {problem}");
    }
}
