//! What the vectors do not show: tables of disguises, lists that change, sizes.

use sluice_sdk::testing::{FakeHost, facts, message};

use super::*;

const CONFIG: &str = r#"{"lists": [
    {"name": "rude", "action": "mask", "words": ["敏感", "spam", "VX", "赌博", "赌博网站"]},
    {"name": "banned", "action": "refuse", "words": ["违禁品"]},
    {"name": "sensitive-words", "action": "mask", "list": "sensitive-words"}
]}"#;

fn policy(config: &str) -> SensitiveWords {
    SensitiveWords::configure(config).expect("valid")
}

/// What is delivered, or the refusal's code.
fn delivered(policy: &SensitiveWords, host: &FakeHost, content: &str) -> String {
    match policy.on_message(host, &facts(), &message(content)) {
        Verdict::Proceed(effects) => effects.replace.unwrap_or_else(|| content.to_owned()),
        Verdict::Refuse(refusal) => refusal.code,
    }
}

#[test]
fn masks_a_word_however_it_is_written() {
    let (policy, host) = (policy(CONFIG), FakeHost::default());
    for (content, expected) in [
        ("你好", "你好"),
        ("这很敏感吗", "这很**吗"),
        ("敏 感", "* *"),
        ("敏*感!", "***!"),
        ("敏\u{200b}感", "*\u{200b}*"),
        ("敏、\n感", "*、\n*"),
        ("敏😀感", "*😀*"),
        ("ＳＰＡＭ", "****"),
        ("S.p.A.m", "*.*.*.*"),
        ("𝓼𝓹𝓪𝓶", "****"),
        ("ⓢpam", "****"),
        ("s\u{0336}p\u{0336}am", "*\u{0336}*\u{0336}**"),
        ("加vx吗", "加**吗"),
        ("加 V X 吗", "加 * * 吗"),
        ("赌博网站", "****"),
        ("赌博网", "**网"),
        ("敏感敏感", "****"),
    ] {
        assert_eq!(delivered(&policy, &host, content), expected, "{content}");
    }
}

#[test]
fn a_latin_word_inside_a_longer_one_is_another_word() {
    let host = FakeHost::default();
    for (content, whole, part) in [
        ("spammer", "spammer", "****mer"),
        ("antispam", "antispam", "anti****"),
        ("anti\u{200b}spam", "anti\u{200b}spam", "anti\u{200b}****"),
        ("ａspam", "ａspam", "ａ****"),
        ("class pam", "class pam", "clas* ***"),
        ("anti-spam", "anti-****", "anti-****"),
        ("spam1", "spam1", "****1"),
        ("垃圾spam邮件", "垃圾****邮件", "垃圾****邮件"),
    ] {
        assert_eq!(delivered(&policy(CONFIG), &host, content), whole, "{content}");
        let config = CONFIG.replacen('{', r#"{"whole_words": false, "#, 1);
        assert_eq!(delivered(&policy(&config), &host, content), part, "{content}");
    }
}

#[test]
fn separators_count_when_told_to() {
    let policy = policy(r#"{"separators": "keep", "lists": [{"name": "a", "action": "mask", "words": ["敏感", "v-x", "★"]}]}"#);
    for (content, expected) in [("敏 感", "敏 感"), ("敏\u{200b}感", "*\u{200b}*"), ("V－X", "***"), ("vx", "vx"), ("★★", "**")]
    {
        assert_eq!(delivered(&policy, &FakeHost::default(), content), expected, "{content}");
    }
}

#[test]
fn a_word_to_refuse_is_found_inside_a_word_to_mask() {
    let config = r#"{"lists": [
        {"name": "m", "action": "mask", "words": ["买违禁品", "品"]},
        {"name": "r", "action": "refuse", "words": ["禁品"]}
    ], "refusal": {"code": "NO_WAY", "message": "不行"}}"#;
    let host = FakeHost::default();
    assert_eq!(delivered(&policy(config), &host, "去买违禁品吧"), "NO_WAY");
    assert!(host.values.borrow().iter().any(|(name, _)| name == "hits_r"));
}

#[test]
fn hits_are_counted_and_tagged_by_list() {
    let (policy, host) = (policy(CONFIG), FakeHost::default().with_entry("sensitive-words", "笨蛋"));
    match policy.on_message(&host, &facts(), &message("笨蛋 敏感 spam")) {
        Verdict::Proceed(effects) => assert_eq!(effects.tags, ["words:rude", "words:sensitive-words"]),
        Verdict::Refuse(refusal) => panic!("{refusal:?}"),
    }
    assert_eq!(host.values.borrow().as_slice(), [("hits_rude".to_owned(), 2.0), ("hits_sensitive_words".to_owned(), 1.0)]);
}

#[test]
fn a_changed_list_is_followed_and_warm_answers_like_fresh() {
    let warm = policy(CONFIG);
    let mut host = FakeHost::default();
    let texts = ["笨蛋", "傻瓜", "笨 蛋和傻瓜", "敏感"];
    for word in ["笨蛋", "傻瓜", "和"] {
        for text in texts {
            assert_eq!(delivered(&warm, &host, text), delivered(&policy(CONFIG), &host, text), "{text} before {word}");
        }
        host = host.with_entry("sensitive-words", word);
    }
    assert_eq!(delivered(&warm, &host, "笨 蛋和傻瓜"), "* ****");
}

#[test]
fn only_text_can_be_masked() {
    let config = CONFIG.replacen('{', r#"{"kinds": ["text", "order_card"], "#, 1);
    let ask = |kind: &str, content: &str| {
        let message = Message { kind: kind.into(), ..message(content) };
        matches!(policy(&config).on_message(&FakeHost::default(), &facts(), &message), Verdict::Refuse(_))
    };
    assert!(ask("order_card", r#"{"note":"敏感"}"#));
    assert!(!ask("order_card", r#"{"note":"你好"}"#) && !ask("image", "敏感") && !ask("text", "敏感"));
}

#[test]
fn what_would_be_too_long_to_deliver_is_refused() {
    let (policy, host) = (policy(CONFIG), FakeHost::default());
    assert_eq!(delivered(&policy, &host, &("x".repeat(16_390) + " 敏感")), "CONTENT_REFUSED");
    let long = "x".repeat(60_000);
    assert_eq!(delivered(&policy, &host, &long), long, "nothing was found in it");
    assert_eq!(delivered(&policy, &host, &"敏感".repeat(8_000)), "*".repeat(16_000));
}

#[test]
fn words_beyond_the_bounds_are_left_out_and_told() {
    let mut host = FakeHost::default();
    for index in 0..20_100 {
        host = host.with_entry("sensitive-words", &format!("词{index:05}"));
    }
    let host = host.with_entry("sensitive-words", "。。").with_entry("sensitive-words", &"长".repeat(65));
    let policy = policy("");
    assert_eq!(delivered(&policy, &host, "词00000"), "******");
    assert_eq!(delivered(&policy, &host, "词20099"), "词20099");
    assert_eq!(host.lines.borrow().len(), 1, "told once, not for each message");
    assert_eq!(host.values.borrow()[0], ("words_left_out".to_owned(), 102.0));
}

#[test]
fn says_what_is_wrong_with_its_configuration() {
    for (bad, sentence) in [
        (r#"{"lists": []}"#, "1 to 16"),
        (r#"{"lists": [{"name": "A", "action": "mask", "list": "l"}]}"#, "name"),
        (r#"{"lists": [{"name": "a", "action": "mask"}]}"#, "neither"),
        (r#"{"lists": [{"name": "a", "action": "drop", "list": "l"}]}"#, "drop"),
        (r#"{"lists": [{"name": "a", "action": "mask", "words": ["--"]}]}"#, "nothing but separators"),
        (r#"{"lists": [{"name": "a", "action": "mask", "list": "l"}, {"name": "a", "action": "mask", "list": "l"}]}"#, "taken"),
        (r#"{"refusal": {"code": "no"}}"#, "refusal.code"),
        (r#"{"words": []}"#, "words"),
    ] {
        let problem = SensitiveWords::configure(bad).expect_err(bad);
        assert!(problem.contains(sentence), "{bad}: {problem}");
    }
    assert!(SensitiveWords::configure("").is_ok());
}
