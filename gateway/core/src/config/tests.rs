//! The reader as an operator meets it: files in, findings out; and the two files that ship with the product.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::problem::Report;
use super::{Config, FailPolicy, Mode, OnFault, TokenKey};
use crate::route::PathRule;

const SAMPLE: &str = include_str!("../../../../config/gateway.toml");
const DEV: &str = include_str!("../../../../config/dev.toml");

/// What has no default.
const SECRETS: &str = r#"
    admin.token = "operators only"
    tokens.secret = "0123456789abcdef0123456789abcdef"
    sale.order_key = "fedcba9876543210fedcba9876543210"
"#;

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec()
}

/// Reads `SECRETS` and `text`, which starts on line 5 and may open with keys of the root.
fn parse(text: &str, environment: &[(String, String)]) -> Result<Config, Vec<String>> {
    Config::parse("f.toml", &format!("{SECRETS}{text}"), environment).map_err(|problems| lines(&problems))
}

fn lines(problems: &super::Problems) -> Vec<String> {
    problems.to_string().lines().map(str::to_owned).collect()
}

fn problems(text: &str) -> Vec<String> {
    parse(text, &[]).unwrap_err()
}

#[test]
fn the_sample_file_shows_every_default() {
    let secrets = pairs([
        ("SLUICE__ADMIN__TOKEN", "operators only"),
        ("SLUICE__TOKENS__SECRET", "0123456789abcdef0123456789abcdef"),
        ("SLUICE__SALE__ORDER_KEY", "fedcba9876543210fedcba9876543210"),
    ]);
    let sample = Config::parse("config/gateway.toml", SAMPLE, &secrets).unwrap();
    let chain: Vec<&str> = sample.policies.iter().map(|policy| &*policy.name).collect();
    let promised = ["jwt-auth", "rate-limit", "anti-fraud", "sensitive-words", "faq-bot"];
    assert_eq!(chain, promised, "the file is one to start from, so it knows who is asking");
    assert_eq!(Ok(Config { policies: Vec::new(), ..sample }), Config::parse("empty.toml", "", &secrets));
}

#[test]
fn the_sample_file_knows_every_key_and_only_those() {
    let uncommented: Vec<&str> =
        SAMPLE.lines().map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line)).collect();
    let report = Report::default();
    let config = Config::read(&Arc::from("gateway.toml"), &uncommented.join("\n"), &[], &report);
    let asked: BTreeMap<String, bool> = report.asked.take();
    let missing: Vec<&String> = asked.iter().filter(|(_, shown)| !**shown).map(|(key, _)| key).collect();
    assert!(missing.is_empty(), "config/gateway.toml does not show {missing:?}");

    // The examples are whole, except that only one of four token keys may be set, and one place that keys of the vault come from.
    let found = lines(&report.finish(()).unwrap_err());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("tokens.public_key_file: is set together with `secret`; set exactly one of the four"), "{found:?}");
    assert!(found[1].contains("vault.kms_url: is set, and so is `key_file`; keep one of the two"), "{found:?}");

    // Optional parts show the defaults they have once they are there.
    let written = "[upstreams.shop]\npeers = [{ addr = \"a:1\" }]\nhealth = {}\n\
        [[policies]]\nname = \"jwt-auth\"\nprefixes = [\"/\"]\n\
        fail = { missing = \"closed\", trap = \"closed\", timeout = \"closed\", overload = \"closed\", bad_verdict = \"closed\", budgets = \"closed\" }\n";
    let plain = parse(written, &[]).unwrap();
    let mut upstream = config.upstreams[0].clone();
    upstream.peers = plain.upstreams[0].peers.clone();
    assert_eq!(upstream, plain.upstreams[0]);
    let mut policy = config.policies[0].clone();
    policy.prefixes = plain.policies[0].prefixes.clone();
    policy.condition = plain.policies[0].condition.clone();
    assert_eq!(policy, plain.policies[0]);
}

#[test]
fn the_dev_file_is_whole_and_keeps_the_promised_chain() {
    let config = Config::parse("config/dev.toml", DEV, &[]).unwrap();
    assert!(config.edge.demo);
    assert!(config.edge.listen.ip().is_loopback() && config.admin.listen.ip().is_loopback());
    assert_eq!(config.admin.token.expose(), "dev-admin");
    let chain: Vec<(&str, &[String], &[String])> = config.policies.iter().map(|p| (&*p.name, &p.prefixes[..], &p.exact[..])).collect();
    assert_eq!(
        chain,
        [
            ("jwt-auth", &["/api/".to_owned(), "/ws/".to_owned(), "/im/".to_owned()][..], &[][..]),
            ("rate-limit", &["/api/".to_owned()][..], &[][..]),
            ("anti-fraud", &[][..], &["/api/seckill/buy".to_owned()][..]),
            ("sensitive-words", &["/ws/chat".to_owned(), "/api/chat/".to_owned()][..], &[][..]),
            ("faq-bot", &["/ws/chat".to_owned(), "/api/chat/".to_owned()][..], &[][..]),
            ("demo", &["/api/".to_owned()][..], &[][..]),
        ]
    );
    use OnFault::{Closed, Open};
    let closed = FailPolicy { missing: Closed, trap: Closed, timeout: Closed, overload: Closed, bad_verdict: Closed, budgets: Closed };
    assert_eq!(config.policies[0].fail, closed, "without an identity nobody gets in");
    assert_eq!(config.policies[0].config_json, "{}", "nothing is exempt");
    assert_eq!(config.policies[3].fail, FailPolicy { budgets: Open, ..closed }, "a filter that fails open is a way around it");
    let open = FailPolicy { missing: Open, trap: Open, timeout: Open, overload: Open, bad_verdict: Open, budgets: Open };
    assert_eq!(config.policies[4].fail, open, "people answer where the bot does not");
    assert_eq!(config.policies[5].fail, open, "nothing is there, and nothing waits for it");
    assert!(!config.lists["sensitive-words"].is_empty());
}

#[test]
fn reads_upstreams_routes_and_policies() {
    let config = parse(
        r#"
        [upstreams.shop]
        peers = [{ addr = "shop-1.internal:3000" }, { addr = "[::1]:3001", weight = 3 }]
        tls = true
        sni = "shop.internal"
        health = { path = "/ready", interval_ms = 500, timeout_ms = 200 }

        [[routes]]
        name = "cart"
        host = "shop.example"
        methods = ["GET", "PUT"]
        prefix = "/cart"
        upstream = "shop"

        [[policies]]
        name = "limit-cart"
        plugin = "rate-limit"
        exact = ["/cart"]
        mode = "fresh"
        memory_mb = 2
        fail = { missing = "open", trap = "open", timeout = "open", overload = "open", bad_verdict = "closed", budgets = "closed" }
        config = { budgets = [{ name = "b", limit = 1, ratio = 0.5, since = 2026-06-01, on = true }] }

        [lists]
        block-users = ["mallory"]
        "#,
        &[],
    )
    .unwrap();
    let upstream = &config.upstreams[0];
    assert_eq!((&*upstream.name, upstream.peers[1].addr.as_str(), upstream.peers[1].weight), ("shop", "[::1]:3001", 3));
    assert_eq!(upstream.health.as_ref().unwrap().interval, Duration::from_millis(500));
    let route = &config.routes[0];
    assert_eq!((route.host.as_deref(), &route.path), (Some("shop.example"), &PathRule::Prefix("/cart".to_owned())));
    let policy = &config.policies[0];
    assert_eq!((policy.plugin.as_str(), policy.mode, policy.memory_bytes_max), ("rate-limit", Mode::Fresh, 2 * 1024 * 1024));
    let json = r#"{"budgets":[{"limit":1,"name":"b","on":true,"ratio":0.5,"since":"2026-06-01"}]}"#;
    assert_eq!(policy.config_json, json);
    assert_eq!(config.lists["block-users"], ["mallory"]);
}

#[test]
fn names_every_problem_at_once_with_place_and_remedy() {
    let text = r#"
edge.listn = "127.0.0.1:1"
edge.headers_max = 0
edge.trusted_proxies = ["10.0.0.0/8", "10.0.0.0/33", 7]
edge.tls.cert = "/cert.pem"
edge.demo = "yes"
admin.listen = "localhost:9090"
redis.url = "http://localhost"
chat.presence_ttl_ms = 5000
colour = "blue"
log.level = "loud"
[upstreams.shop]
peers = [{ addr = "nowhere" }, { addr = "a:1" }, { addr = "a:1" }]
tls = true
[[routes]]
name = "a"
prefix = "/a/../b"
upstream = "shpo"
[[routes]]
name = "b"
upstream = "shop"
[[policies]]
name = "Jwt"
fail = { trap = "ajar" }
"#;
    let found = problems(text);
    let wanted = [
        "f.toml:6: edge.listn: unknown key; did you mean `listen`?",
        "f.toml:7: edge.headers_max: 0 is out of range; write a whole number from 8 to 1000",
        "f.toml:8: edge.trusted_proxies[1]: \"10.0.0.0/33\" does not fit; write a network, e.g. \"10.0.0.0/8\"",
        "f.toml:8: edge.trusted_proxies[2]: found a whole number; write a network, e.g. \"10.0.0.0/8\"",
        "f.toml:9: edge.tls.key: is missing while `cert` is set; name the PEM file of the private key, or leave out both",
        "f.toml:10: edge.demo: found a string; write true or false",
        "f.toml:11: admin.listen: \"localhost:9090\" does not fit; write IP:PORT, e.g. \"127.0.0.1:8080\" (port 0 picks a free one)",
        "f.toml:12: redis.url: does not fit (value not shown); write redis://HOST:PORT, redis-sentinel://HOST:PORT,…/NAME or redis-cluster://HOST:PORT,…",
        "f.toml:13: chat.presence_ttl_ms: is shorter than two heartbeats; make it at least 2 × `heartbeat_ms`, so that one may be late",
        "f.toml:14: colour: unknown key; known here: admin, chat, edge, lists, log, mysql, nats, node, payments, plugins, policies, recording, redis, routes, sale, \
         tokens, upstreams, vault, worker",
        "f.toml:15: log.level: \"loud\" does not fit; write \"error\" or \"warn\" or \"info\" or \"debug\" or \"trace\"",
        "f.toml:16: upstreams.shop.sni: is missing while `tls` is true; write the name in the servers' certificate",
        "f.toml:17: upstreams.shop.peers: names a:1 twice; name each server once; a larger `weight` gives it a larger share",
        "f.toml:17: upstreams.shop.peers[0].addr: \"nowhere\" does not fit; write HOST:PORT, e.g. \"127.0.0.1:3000\"",
        "f.toml:21: routes[0].prefix: \"/a/../b\" does not fit; write an absolute path without `..`, `//` and percent signs, e.g. \"/shop\"",
        "f.toml:22: routes[0].upstream: \"shpo\" does not exist; did you mean \"shop\"?",
        "f.toml:23: routes[1].prefix: is missing, and so is `exact`; set one of the two",
        "f.toml:26: policies[0].prefixes: names no path, and neither does `exact`; say where the policy applies; \"/\" is everywhere",
        "f.toml:27: policies[0].name: \"Jwt\" does not fit; write 1 to 40 of a-z, 0-9 and -",
        "f.toml:28: policies[0].fail.bad_verdict: is missing and has no default; write \"open\" or \"closed\"",
        "f.toml:28: policies[0].fail.budgets: is missing and has no default; write \"open\" or \"closed\"",
        "f.toml:28: policies[0].fail.missing: is missing and has no default; write \"open\" or \"closed\"",
        "f.toml:28: policies[0].fail.overload: is missing and has no default; write \"open\" or \"closed\"",
        "f.toml:28: policies[0].fail.timeout: is missing and has no default; write \"open\" or \"closed\"",
        "f.toml:28: policies[0].fail.trap: \"ajar\" does not fit; write \"open\" or \"closed\"",
    ];
    assert_eq!(found, wanted, "\n{}", found.join("\n"));
}

#[test]
fn asks_for_the_three_secrets_and_says_how_to_set_them() {
    let found = lines(&Config::parse("f.toml", "", &[]).unwrap_err());
    assert_eq!(
        found,
        [
            "f.toml: admin.token: is missing and has no default; set it here or by SLUICE__ADMIN__TOKEN, for example to the output of \
             `openssl rand -hex 32`",
            "f.toml: sale.order_key: is missing and has no default; set it here or by SLUICE__SALE__ORDER_KEY, for example to the output of \
             `openssl rand -hex 32`",
            "f.toml: tokens.secret: is missing, and so are `public_key_file`, `jwks_file` and `jwks_url`; set exactly one of the four",
        ]
    );
}

#[test]
fn never_repeats_a_secret() {
    let text = r#"
        admin = { token = "hunter2" }
        tokens = { secret = "hunter2" }
        sale = { order_key = 7771777 }
        mysql = { url = "mysql://root:hunter2@/db" }
    "#;
    let found = lines(&Config::parse("f.toml", text, &[]).unwrap_err()).join("\n");
    assert_eq!(found.lines().count(), 4, "{found}");
    assert!(!found.contains("hunter2") && !found.contains("7771777"), "{found}");
    let config = parse("mysql.url = \"mysql://root:hunter2@db/shop\"", &[]).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    assert_eq!(config.mysql.url.expose(), "mysql://root:hunter2@db/shop");
}

#[test]
fn takes_exactly_one_token_key() {
    let head = "admin.token = \"operators only\"\nsale.order_key = \"fedcba9876543210fedcba9876543210\"\n";
    let read = |tokens: &str| Config::parse("f.toml", &format!("{head}{tokens}"), &[]);
    assert_eq!(read("tokens.jwks_file = \"k.json\"").unwrap().tokens.key, TokenKey::JwksFile("k.json".into()));
    let url = |url: &str| read(&format!("tokens.jwks_url = \"{url}\""));
    for good in ["https://login.example/jwks", "http://127.0.0.1:8081/jwks", "http://[::1]/jwks", "http://localhost/jwks"] {
        assert!(matches!(url(good).unwrap().tokens.key, TokenKey::JwksUrl(keys) if keys.url == good), "{good}");
    }
    for bad in ["http://login.example/jwks", "http://127.0.0.1.example/jwks", "ftp://a/b", "jwks.json"] {
        assert!(url(bad).is_err(), "{bad}");
    }
    let short = lines(&read("tokens.secret = \"short\"").unwrap_err());
    assert_eq!(short, ["f.toml:3: tokens.secret: has only 5 bytes; write a string of at least 32 bytes"]);
    let two = lines(&read("tokens.public_key_file = \"k.pem\"\ntokens.jwks_file = \"k.json\"").unwrap_err());
    assert_eq!(two, ["f.toml:4: tokens.jwks_file: is set together with `public_key_file`; set exactly one of the four"]);
}

#[test]
fn refuses_names_and_claims_that_are_taken() {
    let route = |name: &str, rest: &str| format!("[[routes]]\nname = \"{name}\"\nprefix = \"/a\"\nupstream = \"u\"\n{rest}\n");
    let policy = "[[policies]]\nname = \"p\"\nexact = [\"/\"]\n\
        fail = { missing = \"open\", trap = \"open\", timeout = \"open\", overload = \"open\", bad_verdict = \"open\", budgets = \"open\" }\n";
    let upstream = "[upstreams.u]\npeers = [{ addr = \"a:1\" }]\n";
    let fine = [upstream, &route("a", "methods = [\"GET\"]"), &route("b", "methods = [\"PUT\"]"), &route("c", "host = \"h\"")].concat();
    assert_eq!(parse(&fine, &[]).unwrap().routes.len(), 3);
    let found = problems(&[upstream, &route("a", ""), &route("a", "host = \"h\""), &route("c", ""), policy, policy].concat()).join("\n");
    assert!(found.contains("routes[1].name: \"a\" is taken by another route"), "{found}");
    assert!(found.contains("routes[2].name: claims the same host, path and method as \"a\""), "{found}");
    assert!(found.contains("policies[1].name: \"p\" is taken by another policy"), "{found}");
    assert_eq!(found.lines().count(), 3, "{found}");
}

#[test]
fn refuses_one_address_for_two_listeners() {
    let found = problems("edge.listen = \"127.0.0.1:9090\"\nedge.echo = \"127.0.0.1:9090\"").join("\n");
    assert!(found.contains("`admin.listen` is 127.0.0.1:9090, and so is `edge.listen`"), "{found}");
    assert!(found.contains("`edge.echo` is 127.0.0.1:9090, and so is another listener"), "{found}");
    assert!(parse("edge.listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nedge.echo = \"127.0.0.1:0\"", &[]).is_ok());
}

#[test]
fn the_environment_overrides_the_file() {
    let environment = pairs([
        ("HOME", "/root"),
        ("SLUICE_PLUGINS_DIR", "elsewhere"),
        ("SLUICE__NODE__NAME", "7"),
        ("SLUICE__NODE__DRAIN_MS", "1_500"),
        ("SLUICE__EDGE__DEMO", "true"),
        ("SLUICE__EDGE__LISTEN", "127.0.0.1:1"),
        ("SLUICE__EDGE__LISTEN", "127.0.0.1:2"),
        ("SLUICE__EDGE__TLS__KEY", "/k.pem"),
        ("SLUICE__EDGE__TLS", "{ cert = '/c.pem', key = '/old.pem' }"),
        ("SLUICE__CHAT__ORIGINS", "['https://a.example', 'http://b.example:81']"),
        ("SLUICE__UPSTREAMS__SHOP__PEERS", "[{ addr = 'a:1' }]"),
        ("SLUICE__LISTS__BLOCKED", "['x']"),
    ]);
    let config = parse("node.drain_ms = 5\nnode.threads = 2", &environment).unwrap();
    assert_eq!((config.node.name.as_str(), config.node.drain, config.node.threads), ("7", Duration::from_millis(1_500), 2));
    assert_eq!(config.edge.listen.port(), 2, "the later of two holds");
    assert!(config.edge.demo);
    let tls = config.edge.tls.unwrap();
    assert_eq!((tls.cert.to_str(), tls.key.to_str()), (Some("/c.pem"), Some("/k.pem")), "a key inside a table comes after the table");
    assert_eq!(config.chat.origins.len(), 2);
    assert_eq!(config.upstreams[0].peers[0].addr, "a:1");
    assert_eq!(config.lists["blocked"], ["x"]);
}

#[test]
fn names_the_variable_that_is_wrong() {
    let environment = pairs([
        ("SLUICE__", "x"),
        ("SLUICE__EDGE__LISTN", "127.0.0.1:1"),
        ("SLUICE__EDGE____X", "x"),
        ("SLUICE__EDGE__HEADERS_MAX", "many"),
        ("SLUICE__EDGE__TRUSTED_PROXIES", "10.0.0.0/8"),
        ("SLUICE__NODE__NAME__FIRST", "x"),
        ("SLUICE__POLICIES__0__MODE", "fresh"),
        ("SLUICE__TOKENS__SECRET", "short"),
        ("SLUICE__COLOUR__SKY", "blue"),
    ]);
    let found = parse("node.name = \"n\"\npolicies = []", &environment).unwrap_err();
    let has = |start: &str| assert!(found.iter().any(|line| line.starts_with(start)), "{start}\nnot in\n{}", found.join("\n"));
    has("SLUICE__: the variable names no key");
    has("SLUICE__EDGE__LISTN: edge.listn: unknown key; did you mean `listen`?");
    has("SLUICE__EDGE____X: edge..x: the variable names no key");
    has("SLUICE__EDGE__HEADERS_MAX: edge.headers_max: is not a TOML value (");
    has("SLUICE__EDGE__TRUSTED_PROXIES: edge.trusted_proxies: ");
    has("SLUICE__NODE__NAME__FIRST: node.name.first: `name` is a string, which has no keys");
    has("SLUICE__POLICIES__0__MODE: policies.0.mode: `policies` is a list, which has no keys");
    has("SLUICE__TOKENS__SECRET: tokens.secret: has only 5 bytes");
    has("SLUICE__COLOUR__SKY: colour: unknown key");
    assert_eq!(found.len(), 9, "{}", found.join("\n"));
}

#[test]
fn reports_broken_toml_and_goes_on() {
    let found = problems("node.drain_ms = \nnode.threads = -1\nnode.threads = 2\nlog.level = \"loud\"");
    let has = |start: &str| assert!(found.iter().any(|line| line.starts_with(start)), "{start}\nnot in\n{}", found.join("\n"));
    has("f.toml:5: ");
    has("f.toml:7: duplicate key; correct the TOML on this line");
    has("f.toml:6: node.threads: -1 is out of range");
    has("f.toml:8: log.level: \"loud\" does not fit");
    assert_eq!(found.len(), 4, "{}", found.join("\n"));
}
