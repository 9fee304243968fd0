//! What the vectors do not show: combinations by table.

use sluice_sdk::testing::{FakeHost, facts, message, principal};

use super::*;

const CONFIG: &str = r#"{"answers": [
    {"name": "no-refund", "all": ["退", "款"], "shops": ["8"], "reply": "本店不退款"},
    {"name": "refund", "all": ["退", "款"], "none": ["没收到"], "reply": "七天无理由退款"},
    {"name": "hours", "any": ["营业时间", "几点 开门", "Opening Hours"], "reply": "9:00-21:00"},
    {"name": "greeting", "any": ["你好"], "all": ["请问"], "reply": "在的"}
]}"#;

fn reply_to(role: Role, message: &Message) -> Option<String> {
    let facts = Facts { principal: Some(principal("p1", role)), ..facts() };
    match FaqBot::configure(CONFIG).expect("valid").on_message(&FakeHost::default(), &facts, message) {
        Verdict::Proceed(effects) => effects.reply,
        Verdict::Refuse(refusal) => panic!("{refusal:?}"),
    }
}

#[test]
fn the_first_answer_that_fits_is_given() {
    for (shop, question, reply) in [
        (7, "我想退掉,什么时候有款", Some("七天无理由退款")),
        (8, "退款", Some("本店不退款")),
        (7, "退款没收到", None),
        (7, "退货", None),
        (7, "请问营业时间?", Some("9:00-21:00")),
        (7, "几 点\u{200b}开门", Some("9:00-21:00")),
        (7, "ｏｐｅｎｉｎｇ ＨＯＵＲＳ please", Some("9:00-21:00")),
        (7, "你好", None),
        (7, "你好,请问有人吗", Some("在的")),
        (7, "", None),
    ] {
        let message = Message { shop, ..message(question) };
        assert_eq!(reply_to(Role::User, &message).as_deref(), reply, "{shop} {question}");
    }
}

#[test]
fn only_a_users_short_text_is_answered() {
    let question = message("营业时间");
    assert!(reply_to(Role::User, &question).is_some());
    assert_eq!(reply_to(Role::Agent, &question), None);
    assert_eq!(reply_to(Role::Admin, &question), None);
    assert_eq!(reply_to(Role::User, &Message { kind: "product_card".into(), ..message("营业时间") }), None);
    assert_eq!(reply_to(Role::User, &message(&("营业时间".to_owned() + &"很".repeat(400)))), None);
    let nobody = FaqBot::configure(CONFIG).expect("valid").on_message(&FakeHost::default(), &facts(), &question);
    assert!(matches!(nobody, Verdict::Proceed(effects) if effects.reply.is_none()));
}

#[test]
fn an_answer_is_counted_and_tagged() {
    let host = FakeHost::default();
    let facts = Facts { principal: Some(principal("u1", Role::User)), ..facts() };
    match FaqBot::configure(CONFIG).expect("valid").on_message(&host, &facts, &message("营业时间")) {
        Verdict::Proceed(effects) => assert_eq!((effects.tags, effects.replace), (vec!["faq:hours".to_owned()], None)),
        Verdict::Refuse(refusal) => panic!("{refusal:?}"),
    }
    assert_eq!(host.values.borrow().as_slice(), [("answered".to_owned(), 1.0)]);
}

#[test]
fn says_what_is_wrong_with_its_configuration() {
    let long = format!(r#"{{"answers": [{{"name": "a", "any": ["b"], "reply": "{}"}}]}}"#, "x".repeat(16_385));
    for (bad, sentence) in [
        (r#"{"answers": [{"name": "A", "any": ["b"], "reply": "c"}]}"#, "name"),
        (r#"{"answers": [{"name": "a", "reply": "c"}]}"#, "answer everything"),
        (r#"{"answers": [{"name": "a", "any": ["b"], "reply": " "}]}"#, "reply"),
        (r#"{"answers": [{"name": "a", "any": ["?!"], "reply": "c"}]}"#, "keyword"),
        (r#"{"answers": [{"name": "a", "any": ["b"], "shops": ["x"], "reply": "c"}]}"#, "shop"),
        (r#"{"answers": [{"name": "a", "any": ["b"]}]}"#, "reply"),
        (r#"{"answer": []}"#, "answer"),
        (long.as_str(), "16384"),
    ] {
        let problem = FaqBot::configure(bad).expect_err(bad);
        assert!(problem.contains(sentence), "{bad}: {problem}");
    }
    assert!(FaqBot::configure("").is_ok());
}
