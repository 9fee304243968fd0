//! What the vectors do not show: combinations by table.

use sluice_sdk::testing::{FakeHost, facts, principal, request};

use super::*;

const CONFIG: &str = r#"{
    "exempt": ["/api/time", "/api/public/"],
    "optional": ["/api/catalog/"],
    "rules": [
        {"path": "/api/desk/stats", "methods": ["GET"], "scopes_any": ["stats", "all"]},
        {"path": "/api/desk/", "roles": ["agent", "admin"]},
        {"path": "/api/shops/{shop}/", "shop": "own"},
        {"path": "/api/stock", "shop": "required"},
        {"routes": ["billing"], "scopes_all": ["pay", "refund"]}
    ]
}"#;

fn scoped(id: &str, scopes: &[&str]) -> Principal {
    Principal { scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(), ..principal(id, Role::User) }
}

fn host() -> FakeHost {
    FakeHost::default()
        .with_token("t.u", principal("u1", Role::User))
        .with_token("t.a", principal("a1", Role::Agent))
        .with_token("t.m", principal("m1", Role::Admin))
        .with_token("t.s", scoped("s1", &["stats", "pay"]))
        .with_token("t.p", scoped("p1", &["pay", "refund"]))
        .with_token("t.x", Principal { shop: None, ..principal("x1", Role::Agent) })
}

/// The principal's id, or the refusal's code, or `anyone`.
fn answer(verdict: Verdict) -> String {
    match verdict {
        Verdict::Proceed(effects) => effects.principal.map_or("anyone".into(), |p| p.id),
        Verdict::Refuse(refusal) => refusal.code,
    }
}

fn ask(request: &Request) -> String {
    answer(JwtAuth::configure(CONFIG).expect("valid").on_request(&host(), request, &facts()))
}

fn bearing(path: &str, token: &str) -> Request {
    Request { headers: format!("authorization: Bearer {token}\n"), ..request(path) }
}

#[test]
fn reads_a_token_where_its_path_allows_one() {
    let protocol = "sec-websocket-protocol: chat.v1.json, bearer.t.u\n";
    for (path, query, headers, expected) in [
        ("/api/x", "", "authorization: Bearer t.u\n", "u1"),
        ("/api/x", "", "authorization: bEARER  t.u\n", "u1"),
        ("/api/x", "", "", "UNAUTHENTICATED"),
        ("/api/x", "", "authorization: Bearer other\n", "UNAUTHENTICATED"),
        ("/api/x", "", "authorization: Bearer \n", "UNAUTHENTICATED"),
        ("/api/x", "", "authorization: Basic t.u\n", "UNAUTHENTICATED"),
        ("/api/x", "token=t.u", "", "UNAUTHENTICATED"),
        ("/api/x", "", protocol, "UNAUTHENTICATED"),
        ("/api/seckill/result/SK1", "token=t.u", "", "u1"),
        ("/api/chat/events", "token=t.u&lastEventId=9001.1.42", "", "u1"),
        ("/api/chat/messages", "token=t.u", "", "UNAUTHENTICATED"),
        ("/ws/chat", "token=t.u&last_ack_seq=4", "", "u1"),
        ("/ws/chat", "xtoken=t.u", "", "UNAUTHENTICATED"),
        ("/ws/chat", "", protocol, "u1"),
        ("/ws/chat", "", "sec-websocket-protocol: chat.v1.json\nsec-websocket-protocol: bearer.t.u\n", "u1"),
        ("/ws/chat", "token=t.u", "sec-websocket-protocol: chat.v1.json\n", "u1"),
        ("/ws/chat", "", "sec-websocket-protocol: chat.v1.json\n", "UNAUTHENTICATED"),
        ("/im/t.u", "", "", "u1"),
        ("/im/", "", "", "UNAUTHENTICATED"),
        ("/im/t.u/x", "", "", "UNAUTHENTICATED"),
    ] {
        let request = Request { query: (!query.is_empty()).then(|| query.into()), headers: headers.into(), ..request(path) };
        assert_eq!(ask(&request), expected, "{path} {query} {headers}");
    }
}

#[test]
fn what_two_readers_could_read_differently_is_nobody() {
    for (path, query, headers) in [
        ("/ws/chat", "token=t.u", "authorization: Bearer other\n"),
        ("/ws/chat", "token=t.u", "authorization: Basic t.u\n"),
        ("/im/t.u", "", "authorization: Bearer other\n"),
        ("/api/x", "", "authorization: Bearer t.u\nauthorization: Bearer t.a\n"),
        ("/ws/chat", "token=t.u&token=t.a", ""),
        ("/ws/chat", "", "sec-websocket-protocol: bearer.t.u, bearer.t.a\n"),
    ] {
        let request = Request { query: Some(query.into()), headers: headers.into(), ..request(path) };
        assert_eq!(ask(&request), "UNAUTHENTICATED", "{path} {query} {headers}");
    }
}

#[test]
fn some_paths_need_no_token() {
    for (path, token, expected) in [
        ("/api/time", None, "anyone"),
        ("/api/time", Some("other"), "anyone"),
        ("/api/public/a/b", None, "anyone"),
        ("/api/time/x", None, "UNAUTHENTICATED"),
        ("/api/public", None, "UNAUTHENTICATED"),
        ("/api/publicity", None, "UNAUTHENTICATED"),
        ("/api/catalog/1", None, "anyone"),
        ("/api/catalog/1", Some("t.u"), "u1"),
        ("/api/catalog/1", Some("other"), "UNAUTHENTICATED"),
    ] {
        let request = token.map_or_else(|| request(path), |token| bearing(path, token));
        assert_eq!(ask(&request), expected, "{path} {token:?}");
    }
}

#[test]
fn the_first_rule_that_covers_a_request_decides() {
    for (path, method, token, expected) in [
        ("/api/desk/queue", "GET", "t.a", "a1"),
        ("/api/desk/queue", "GET", "t.u", "FORBIDDEN"),
        ("/api/desk", "GET", "t.u", "FORBIDDEN"),
        ("/api/desktop", "GET", "t.u", "u1"),
        ("/api/desk/stats", "GET", "t.s", "s1"),
        ("/api/desk/stats", "POST", "t.s", "FORBIDDEN"),
        ("/api/desk/stats", "GET", "t.a", "FORBIDDEN"),
        ("/api/shops/7/orders", "GET", "t.a", "a1"),
        ("/api/shops/7", "GET", "t.a", "a1"),
        ("/api/shops/8", "GET", "t.a", "FORBIDDEN"),
        ("/api/shops/8/orders", "GET", "t.a", "FORBIDDEN"),
        ("/api/shops/07/orders", "GET", "t.a", "FORBIDDEN"),
        ("/api/shops/7/orders", "GET", "t.u", "FORBIDDEN"),
        ("/api/shops/8/orders", "GET", "t.m", "m1"),
        ("/api/shops/", "GET", "t.u", "u1"),
        ("/api/stock", "GET", "t.a", "a1"),
        ("/api/stock", "GET", "t.u", "FORBIDDEN"),
    ] {
        let request = Request { method: method.into(), ..bearing(path, token) };
        assert_eq!(ask(&request), expected, "{method} {path} {token}");
    }
    for (token, expected) in [("t.p", "p1"), ("t.s", "FORBIDDEN"), ("t.u", "FORBIDDEN")] {
        assert_eq!(ask(&Request { route: "billing".into(), ..bearing("/pay", token) }), expected, "{token}");
    }
}

#[test]
fn an_agent_without_a_shop_gets_in_nowhere_unless_told_so() {
    assert_eq!(ask(&bearing("/api/x", "t.x")), "FORBIDDEN");
    let lax = JwtAuth::configure(r#"{"agents_need_shop": false}"#).expect("valid");
    assert_eq!(answer(lax.on_request(&host(), &bearing("/api/x", "t.x"), &facts())), "x1");
}

#[test]
fn nobody_speaks_to_services_in_the_gateways_name() {
    let policy = JwtAuth::configure(
        r#"{"exempt": ["/open"], "identity_headers": {"user": "x-user-id", "shop": "x-tenant", "role": "x-user-role", "scopes": "x-scopes"}}"#,
    )
    .expect("valid");
    assert!(["x-user-id", "x-tenant", "x-user-scopes"].iter().all(|name| policy.manifest().headers.iter().any(|wanted| wanted == name)));
    let spoofed = "x-user-id: root\nx-user-id: admin\nx-tenant: 1\nx-user-scopes: all\n";
    let edits = |path: &str, token: &str| {
        let request = Request { headers: format!("authorization: Bearer {token}\n{spoofed}"), ..request(path) };
        match policy.on_request(&host(), &request, &facts()) {
            Verdict::Proceed(effects) => (effects.remove_headers, effects.set_headers),
            Verdict::Refuse(refusal) => panic!("{refusal:?}"),
        }
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(edits("/open", "-"), (vec!["x-user-id".into(), "x-tenant".into(), "x-user-scopes".into()], vec![]));
    let user = (vec!["x-tenant".into(), "x-user-scopes".into()], vec![pair("x-user-id", "u1"), pair("x-user-role", "user")]);
    assert_eq!(edits("/x", "t.u"), user, "what the gateway has nothing to say about is removed");
    let scopes = (user.0, vec![pair("x-user-id", "s1"), pair("x-user-role", "user"), pair("x-scopes", "stats pay")]);
    assert_eq!(edits("/x", "t.s"), scopes);
    let agent = vec![pair("x-user-id", "a1"), pair("x-user-role", "agent"), pair("x-tenant", "7")];
    assert_eq!(edits("/x", "t.a"), (vec!["x-user-scopes".into()], agent));
}

#[test]
fn scopes_that_a_field_cannot_carry_are_left_out() {
    let scopes = ["a", "", "b c", "é", "d\n", &"x".repeat(VALUE_BYTES_MAX), "e"].map(str::to_owned);
    assert_eq!(joined(&scopes), "a e");
}

#[test]
fn says_what_is_wrong_with_its_configuration() {
    for (bad, sentence) in [
        (r#"{"exemt": []}"#, "exemt"),
        (r#"{"exempt": ["api"]}"#, "begin with /"),
        (r#"{"token_in_path": ["/im"]}"#, "end with /"),
        (r#"{"rules": [{"path": "/", "roles": ["root"]}]}"#, "rules[0]: \"root\""),
        (r#"{"rules": [{"roles": ["user"]}]}"#, "neither a path nor a route"),
        (r#"{"rules": [{"path": "/s/{shop}/"}]}"#, "need each other"),
        (r#"{"rules": [{"path": "/s/", "shop": "own"}]}"#, "need each other"),
        (r#"{"rules": [{"path": "/s/a{shop}/", "shop": "own"}]}"#, "whole segment"),
        (r#"{"rules": [{"path": "/{shop}/{shop}/", "shop": "own"}]}"#, "whole segment"),
        (r#"{"strip": ["X-User"]}"#, "lower case"),
        (r#"{"identity_headers": {"user": "x-forwarded-user"}}"#, "x-forwarded-"),
        (r#"{"challenge": "a\"b"}"#, "realm"),
        ("[]", "not a JSON object"),
        ("{", "configuration"),
    ] {
        let problem = JwtAuth::configure(bad).expect_err(bad);
        assert!(problem.contains(sentence), "{bad}: {problem}");
    }
    assert!(JwtAuth::configure("").is_ok());
}

#[test]
fn a_challenge_tells_why_and_only_where_it_is_missing() {
    let policy = JwtAuth::configure(r#"{"challenge": "shop"}"#).expect("valid");
    assert!(policy.manifest().phases.contains(Phases::RESPONSE));
    let challenge = |request: &Request, status: u16, headers: &str| match policy.on_response(
        &host(),
        request,
        &facts(),
        &Response { status, headers: headers.into() },
    ) {
        Verdict::Proceed(effects) => effects.set_headers.into_iter().next().map(|(_, value)| value),
        Verdict::Refuse(refusal) => panic!("{refusal:?}"),
    };
    assert_eq!(challenge(&request("/x"), 401, "").as_deref(), Some("Bearer realm=\"shop\""));
    assert_eq!(challenge(&bearing("/x", "old"), 401, "").as_deref(), Some("Bearer realm=\"shop\", error=\"invalid_token\""));
    assert_eq!(challenge(&bearing("/x", "t.u"), 403, "").as_deref(), Some("Bearer realm=\"shop\", error=\"insufficient_scope\""));
    assert_eq!(challenge(&request("/x"), 401, "www-authenticate: Basic\n"), None);
    assert_eq!(challenge(&request("/x"), 200, ""), None);
}
