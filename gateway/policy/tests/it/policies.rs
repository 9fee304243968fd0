//! The three policies of the house, as components in the host, with a real verifier behind them.

use gateway_core::id::{ActivityId, SkuId};
use gateway_core::policy::{Attempt, Call, Facts, Verdict};
use gateway_core::ports::Side;
use gateway_core::request::RequestHead;

use crate::support::{NOW, Rig, effects, facts, head, on_one_thread, policy, word};
use crate::tokens::{Claims, hs256};

#[test]
fn jwt_auth_lets_in_who_has_a_good_token_and_says_who_it_is() {
    let rig = Rig::new(vec![policy("jwt-auth", "jwt-auth", r#"{"rules": [{"path": "/api/desk/", "roles": ["agent"]}]}"#)]);
    let token = hs256(&Claims { sub: "u1".into(), scope: Some("buy chat".into()), ..Claims::good() });
    on_one_thread(async {
        let set = rig.set();
        let facts = facts();
        let bearer = format!("Bearer {token}");
        let with_header = head("/api/x", &[("authorization", &bearer)]);
        let proved = effects(set.call("jwt-auth", Side::Live, Call::Request(&with_header, &facts)).await).principal.unwrap();
        assert_eq!((proved.id.as_str(), proved.scopes.as_slice()), ("u1", &["buy".to_owned(), "chat".to_owned()][..]));

        let in_query = RequestHead { query: Some(format!("token={token}")), ..head("/ws/chat", &[]) };
        assert!(effects(set.call("jwt-auth", Side::Live, Call::Request(&in_query, &facts)).await).principal.is_some());
        let in_path = head(&format!("/im/{token}"), &[]);
        assert!(effects(set.call("jwt-auth", Side::Live, Call::Request(&in_path, &facts)).await).principal.is_some());

        for (head, answer) in [
            (head("/api/x", &[]), "UNAUTHENTICATED"),
            (head("/api/x", &[("authorization", "Bearer x.y.z")]), "UNAUTHENTICATED"),
            (head("/api/desk/x", &[("authorization", &bearer)]), "FORBIDDEN"),
        ] {
            assert_eq!(word(&set.call("jwt-auth", Side::Live, Call::Request(&head, &facts)).await.outcome), answer, "{}", head.path);
        }

        let later = Facts { now: NOW.plus(std::time::Duration::from_secs(3_600)), ..facts };
        assert_eq!(
            word(&set.call("jwt-auth", Side::Live, Call::Request(&with_header, &later)).await.outcome),
            "UNAUTHENTICATED",
            "expired"
        );
    });
}

#[test]
fn rate_limit_charges_the_user_that_was_proved() {
    let config = r#"{"budgets": [{"name": "per-user", "key": "user", "fallback": "ip", "limit": 5, "window_ms": 1000}]}"#;
    let rig = Rig::new(vec![policy("rate-limit", "rate-limit", config)]);
    on_one_thread(async {
        let set = rig.set();
        let known = Facts { principal: Some(crate::tokens::principal("u1")), ..facts() };
        for (facts, key) in [(known, "user:u1"), (facts(), "ip:192.0.2.7/32")] {
            let charges = effects(set.call("rate-limit", Side::Live, Call::Request(&head("/api/x", &[]), &facts)).await).charges;
            assert_eq!(charges.iter().map(|charge| charge.key.as_str()).collect::<Vec<_>>(), [key]);
        }
    });
}

#[test]
fn anti_fraud_charges_an_attempt_and_refuses_the_blocked() {
    let rig = Rig::new(vec![policy("anti-fraud", "anti-fraud", "{}")]);
    let known = Facts { principal: Some(crate::tokens::principal("u1")), device: Some("d1".into()), ..facts() };
    let attempt = Attempt { activity: ActivityId(1), sku: SkuId(2), qty: 1, idempotency_key: Some("k1".into()) };
    on_one_thread(async {
        let head = head("/api/seckill/buy", &[]);
        let charges = effects(rig.set().call("anti-fraud", Side::Live, Call::Attempt(&head, &known, &attempt)).await).charges;
        let budgets: Vec<_> = charges.iter().map(|charge| charge.budget.as_str()).collect();
        assert_eq!(budgets, ["attempt-user", "attempt-network", "attempt-device"]);
        assert_eq!(charges[0].replay_token.as_deref(), Some("u1/1/2/1/k1"));

        rig.lists.replace("block-devices", ["d1".to_owned()]).unwrap();
        match rig.set().call("anti-fraud", Side::Live, Call::Attempt(&head, &known, &attempt)).await.outcome {
            Ok(Verdict::Refuse(refusal)) => assert_eq!((refusal.status, refusal.code.as_str()), (429, "RISK_REFUSED")),
            other => panic!("{other:?}"),
        }
    });
}
