//! What the vectors do not show: combinations by table.

use sluice_sdk::testing::{FakeHost, attempt, facts, principal, request};
use sluice_sdk::types::{Address, Role};

use super::*;

fn buyer(device: Option<&str>) -> Facts {
    Facts { principal: Some(principal("u1", Role::User)), device: device.map(Into::into), ..facts() }
}

/// A buyer's app from 192.0.2.1.
fn head() -> Request {
    Request { headers: "user-agent: shop/1\n".into(), ..request("/api/seckill/buy") }
}

fn ask_with(config: &str, host: &FakeHost, request: &Request, facts: &Facts) -> Verdict {
    AntiFraud::configure(config).expect("valid").on_attempt(host, request, facts, &attempt())
}

fn proceeds(verdict: Verdict) -> Effects {
    match verdict {
        Verdict::Proceed(effects) => effects,
        Verdict::Refuse(refusal) => panic!("{refusal:?}"),
    }
}

fn effects(facts: &Facts, attempt: &Attempt) -> Effects {
    proceeds(AntiFraud::configure("{}").expect("valid").on_attempt(&FakeHost::default(), &head(), facts, attempt))
}

fn is_refused(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Refuse(refusal) if (refusal.status, refusal.code.as_str()) == (429, "RISK_REFUSED"))
}

#[test]
fn charges_user_network_and_device() {
    let charges = effects(&buyer(Some("d1")), &attempt()).charges;
    let accounts: Vec<_> = charges.iter().map(|c| (c.budget.as_str(), c.key.as_str(), c.limit, c.window_ms)).collect();
    assert_eq!(
        accounts,
        [("attempt-user", "u1", 1, 5_000), ("attempt-network", "192.0.2.0/24", 200, 1_000), ("attempt-device", "d1", 1, 5_000)]
    );
    assert!(charges.iter().all(|charge| charge.refusal.code == "RISK_REFUSED" && charge.refusal.retry_after_ms.is_some()));
}

#[test]
fn an_attempt_without_a_device_is_riskier() {
    for device in [None, Some(""), Some("has space"), Some("d".repeat(65).as_str())] {
        let effects = effects(&buyer(device), &attempt());
        assert_eq!((effects.charges.len(), effects.score), (2, 30), "{device:?}");
        assert_eq!(effects.tags, ["no-device"]);
    }
}

#[test]
fn signals_add_up_to_a_tag_and_to_a_refusal() {
    let config = r#"{"signals": {"tags": {"proxy": 25, "robot": 90}}, "tag_at": 45, "refuse_at": 80}"#;
    let silent = request("/api/seckill/buy");
    let tagged = |tags: &[&str], device| Facts { tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), ..buyer(device) };
    for (request, facts, score, tags) in [
        (&head(), tagged(&[], Some("d1")), 0, vec![]),
        (&head(), tagged(&["proxy", "other"], Some("d1")), 25, vec![]),
        (&silent, tagged(&["proxy"], Some("d1")), 45, vec!["no-user-agent", "risky"]),
        (&silent, tagged(&["proxy"], None), 75, vec!["no-device", "no-user-agent", "risky"]),
    ] {
        let effects = proceeds(ask_with(config, &FakeHost::default(), request, &facts));
        assert_eq!((effects.score, effects.tags), (score, tags.into_iter().map(str::to_owned).collect::<Vec<_>>()), "{facts:?}");
    }
    let host = FakeHost::default();
    assert!(is_refused(&ask_with(config, &host, &silent, &tagged(&["robot"], None))), "and the sum is never above 100");
    assert_eq!(host.values.borrow().as_slice(), [("refused_by_score".to_owned(), 1.0)]);
    let trusted = FakeHost::default().with_entry("allow-users", "u1");
    let effects = proceeds(ask_with(config, &trusted, &silent, &tagged(&["robot"], None)));
    assert_eq!((effects.score, effects.charges.len()), (0, 1), "the 5 seconds hold for everybody");
}

#[test]
fn a_replay_is_the_same_key_for_the_same_purchase() {
    let with_key = |key: &str, sku| Attempt { idempotency_key: Some(key.into()), sku, ..attempt() };
    let token = |attempt: &Attempt| effects(&buyer(Some("d1")), attempt).charges[0].replay_token.clone();
    assert_eq!(token(&with_key("k", 2)), token(&with_key("k", 2)));
    assert_ne!(token(&with_key("k", 2)), token(&with_key("k", 3)));
    assert_ne!(token(&with_key("k", 2)), token(&with_key("l", 2)));
    assert_eq!(token(&attempt()), None);
    assert_eq!(token(&with_key(&"k".repeat(65), 2)), None);
}

#[test]
fn a_network_is_never_charged_less_for_a_replay() {
    let attempt = Attempt { idempotency_key: Some("k".into()), ..attempt() };
    assert_eq!(effects(&buyer(Some("d1")), &attempt).charges[1].replay_token, None);
}

#[test]
fn a_change_of_devices_is_charged_when_told_to() {
    let config = r#"{"devices_limit": 3, "devices_window_ms": 60000}"#;
    let charges = proceeds(ask_with(config, &FakeHost::default(), &head(), &buyer(Some("d1")))).charges;
    let last = charges.last().expect("charged");
    assert_eq!((last.budget.as_str(), last.key.as_str(), last.limit, last.window_ms), ("attempt-devices", "u1", 3, 60_000));
    assert_eq!(last.replay_token.as_deref(), Some("d1"), "staying on a device is free");
    assert_eq!(proceeds(ask_with(config, &FakeHost::default(), &head(), &buyer(None))).charges.len(), 2);
}

#[test]
fn refuses_whoever_is_listed_whatever_the_length() {
    let v6 = Request { client: Address::V6((0x2001_0db8_0001_0002, 3)), ..head() };
    let translated = Request { client: Address::V6((0x0064_ff9b_0000_0000, 0xc000_0201)), ..head() };
    for (list, key, request) in [
        ("block-users", "u1", &head()),
        ("block-devices", "d1", &head()),
        ("block-networks", "192.0.2.1", &head()),
        ("block-networks", "192.0.2.1/32", &head()),
        ("block-networks", "192.0.2.0/27", &head()),
        ("block-networks", "192.0.0.0/14", &head()),
        ("block-networks", "192.0.2.0/24", &translated),
        ("block-networks", "2001:db8:1:2::3", &v6),
        ("block-networks", "2001:db8:1::/48", &v6),
        ("block-networks", "2001:db8::/32", &v6),
    ] {
        let host = FakeHost::default().with_entry(list, key).with_entry("allow-users", "u1");
        assert!(is_refused(&ask_with("{}", &host, request, &buyer(Some("d1")))), "{list} {key}");
    }
    for key in ["192.0.3.0/24", "192.0.2.2", "192.0.2.1/24"] {
        let host = FakeHost::default().with_entry("block-networks", key);
        assert_eq!(proceeds(ask_with("{}", &host, &head(), &buyer(Some("d1")))).charges.len(), 3, "{key}");
    }
}

#[test]
fn a_listed_network_has_no_ceiling() {
    let host = FakeHost::default().with_entry("allow-networks", "192.0.2.0/28");
    let budgets: Vec<_> = proceeds(ask_with("{}", &host, &head(), &buyer(Some("d1")))).charges.into_iter().map(|c| c.budget).collect();
    assert_eq!(budgets, ["attempt-user", "attempt-device"]);
}

#[test]
fn lists_may_have_other_names() {
    let config = r#"{"block": {"users": "bad-users", "devices": "bad-devices", "networks": "bad-networks"}}"#;
    let ask = |list: &str| ask_with(config, &FakeHost::default().with_entry(list, "u1"), &head(), &buyer(None));
    assert!(is_refused(&ask("bad-users")) && !is_refused(&ask("block-users")));
}

#[test]
fn refuses_an_attempt_of_nobody() {
    let verdict = ask_with("{}", &FakeHost::default(), &head(), &facts());
    assert!(matches!(verdict, Verdict::Refuse(refusal) if refusal.status == 401));
}

#[test]
fn says_what_is_wrong_with_its_configuration() {
    for (bad, sentence) in [
        (r#"{"window_ms": 0}"#, "window_ms"),
        (r#"{"devices_window_ms": 86400001}"#, "devices_window_ms"),
        (r#"{"network_limit": 0}"#, "network_limit"),
        (r#"{"ipv4_prefix": 33}"#, "ipv4_prefix"),
        (r#"{"lengths": {"ipv4": [33]}}"#, "lengths"),
        (r#"{"signals": {"tags": {"a": 101}}}"#, "0 to 100"),
        (r#"{"refuse_at": 0}"#, "every attempt"),
        (r#"{"blocked_retry_ms": 86400001}"#, "blocked_retry_ms"),
        (r#"{"windows_ms": 1}"#, "windows_ms"),
        (r#"{"block": {"users": "u"}}"#, "devices"),
    ] {
        let problem = AntiFraud::configure(bad).expect_err(bad);
        assert!(problem.contains(sentence), "{bad}: {problem}");
    }
}
