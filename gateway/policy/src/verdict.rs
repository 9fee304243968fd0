//! The rules an answer must keep before anybody acts on it. A guest that breaks one has given no verdict at all: half of
//! an answer is never applied.

use gateway_core::policy::{Charge, Effects, Phase, Refusal, Verdict};
use gateway_core::principal::Principal;

const HEADER_EDITS_MAX: usize = 32;
const HEADER_NAME_BYTES_MAX: usize = 64;
const HEADER_VALUE_BYTES_MAX: usize = 4_096;
const CHARGES_MAX: usize = 16;
const CHARGE_KEY_BYTES_MAX: usize = 200;
const CHARGE_LIMIT_MAX: u32 = 1_000_000;
/// A day, for windows and for retries.
const DAY_MS: u32 = 86_400_000;
/// Room for a user, a lot and an idempotency key.
const REPLAY_TOKEN_BYTES_MAX: usize = 300;
const TAGS_MAX: usize = 16;
const TAG_BYTES_MAX: usize = 64;
const SCORE_MAX: u8 = 100;
const MESSAGE_BYTES_MAX: usize = 200;
/// A chat frame is at most 64 KiB; this leaves room for its other fields, escaped.
const CHAT_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Fields that frame, route or upgrade a message, or that the edge itself vouches for. A guest that could set one could
/// smuggle a second request past every other policy.
const HOST_HEADERS: [&str; 17] = [
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-trace-id",
];

/// Families of such fields.
const HOST_HEADER_PREFIXES: [&str; 2] = ["sec-websocket-", "x-forwarded-"];

/// `verdict`, given in `phase`, if it may be acted on. `proved` are the identities the host proved during the call; the one
/// that the verdict establishes is the host's own, with what a guest does not see of it. The error names the rule that was
/// broken, for the log.
pub(crate) fn check(mut verdict: Verdict, phase: Phase, proved: &[Principal]) -> Result<Verdict, &'static str> {
    match &mut verdict {
        Verdict::Refuse(refusal) => check_refusal(refusal)?,
        Verdict::Proceed(effects) => {
            check_effects(effects, phase)?;
            if let Some(claimed) = &mut effects.principal {
                let known = proved.iter().find(|proved| is_as_told(claimed, proved));
                *claimed = known.ok_or("an identity is one that the host proved during the call")?.clone();
            }
        }
    }
    Ok(verdict)
}

/// Whether a guest's identity is `proved` as the guest was told of it.
fn is_as_told(claimed: &Principal, proved: &Principal) -> bool {
    let Principal { id, role, shop, scopes, expires_at, token_id: _ } = proved;
    (&claimed.id, &claimed.role, &claimed.shop, &claimed.scopes, &claimed.expires_at) == (id, role, shop, scopes, expires_at)
}

fn check_refusal(refusal: &Refusal) -> Result<(), &'static str> {
    rule((400..=599).contains(&refusal.status), "a refusal's status is 400 to 599")?;
    let code = refusal.code.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    rule(code && (1..=40).contains(&refusal.code.len()), "a refusal's code is [A-Z0-9_]{1,40}")?;
    rule(refusal.message.len() <= MESSAGE_BYTES_MAX && is_one_line(&refusal.message), "a refusal's message is one short line")?;
    rule(refusal.retry_after_ms.is_none_or(|wait| wait <= u64::from(DAY_MS)), "a retry is at most a day away")
}

fn check_effects(effects: &Effects, phase: Phase) -> Result<(), &'static str> {
    rule(effects.principal.is_none() || phase == Phase::Request, "an identity is established in the request phase")?;

    let edits = effects.set_headers.len() + effects.remove_headers.len();
    rule(edits == 0 || matches!(phase, Phase::Request | Phase::Response), "there is no head to edit in this phase")?;
    rule(edits <= HEADER_EDITS_MAX, "there are too many header edits")?;
    for name in effects.set_headers.iter().map(|(name, _)| name).chain(&effects.remove_headers) {
        rule(is_field_name(name), "a header's name is a short lower-case token")?;
        let reserved = HOST_HEADERS.contains(&name.as_str()) || HOST_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        rule(!reserved, "the header belongs to the host")?;
    }
    for (_, value) in &effects.set_headers {
        let visible = value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        rule(visible && value.len() <= HEADER_VALUE_BYTES_MAX, "a header's value is short visible ASCII")?;
    }

    rule(effects.charges.is_empty() || phase != Phase::Response, "a response has nothing left to charge")?;
    rule(effects.charges.len() <= CHARGES_MAX, "there are too many charges")?;
    effects.charges.iter().try_for_each(check_charge)?;

    let tag = |tag: &String| {
        (1..=TAG_BYTES_MAX).contains(&tag.len())
            && tag.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_:.-".contains(&b))
    };
    rule(effects.tags.len() <= TAGS_MAX && effects.tags.iter().all(tag), "tags are at most 16 of [a-z0-9_:.-]{1,64}")?;
    rule(effects.score <= SCORE_MAX, "a score is 0 to 100")?;

    for text in [&effects.replace, &effects.reply].into_iter().flatten() {
        rule(phase == Phase::Message, "there is no text to replace or reply to in this phase")?;
        rule((1..=CHAT_TEXT_BYTES_MAX).contains(&text.len()) && !text.contains('\0'), "a chat text is 1 to 16,384 bytes")?;
    }
    Ok(())
}

fn check_charge(charge: &Charge) -> Result<(), &'static str> {
    let budget = charge.budget.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    rule(budget && (1..=40).contains(&charge.budget.len()), "a budget's name is [a-z0-9-]{1,40}")?;
    let keyed = (1..=CHARGE_KEY_BYTES_MAX).contains(&charge.key.len()) && is_one_line(&charge.key);
    rule(keyed, "a charge's key is 1 to 200 bytes without control characters")?;
    rule((1..=CHARGE_LIMIT_MAX).contains(&charge.limit), "a charge's limit is 1 to 1,000,000")?;
    rule((1..=DAY_MS).contains(&charge.window_ms), "a charge's window is 1 ms to a day")?;
    rule((1..=charge.limit).contains(&charge.cost), "a charge costs 1 to its limit")?;
    let replay = |token: &String| (1..=REPLAY_TOKEN_BYTES_MAX).contains(&token.len()) && is_one_line(token);
    rule(charge.replay_token.as_ref().is_none_or(replay), "a replay token is 1 to 300 bytes without control characters")?;
    check_refusal(&charge.refusal)
}

/// RFC 9110, 5.6.2, in lower case.
fn is_field_name(name: &str) -> bool {
    (1..=HEADER_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn is_one_line(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

fn rule(kept: bool, rule: &'static str) -> Result<(), &'static str> {
    if kept { Ok(()) } else { Err(rule) }
}

#[cfg(test)]
mod tests {
    use gateway_core::id::PrincipalId;
    use gateway_core::policy::Scope;
    use gateway_core::principal::Role;
    use gateway_core::time::UnixMillis;

    use super::*;

    fn principal(id: &str) -> Principal {
        Principal {
            id: PrincipalId::parse(id).unwrap(),
            role: Role::User,
            shop: None,
            scopes: Vec::new(),
            expires_at: UnixMillis(1),
            token_id: None,
        }
    }

    fn refusal() -> Refusal {
        Refusal { status: 429, code: "NO".to_owned(), message: "不行".to_owned(), retry_after_ms: Some(1) }
    }

    fn charge() -> Charge {
        Charge {
            budget: "b".to_owned(),
            key: "k".to_owned(),
            limit: 1,
            window_ms: 1,
            cost: 1,
            scope: Scope::Node,
            replay_token: Some("t".to_owned()),
            refusal: refusal(),
        }
    }

    fn kept(phase: Phase, change: impl FnOnce(&mut Effects)) -> bool {
        let mut effects = Effects::default();
        change(&mut effects);
        check(Verdict::Proceed(effects), phase, &[principal("u1")]).is_ok()
    }

    fn set(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn an_empty_answer_is_fine_in_every_phase() {
        for phase in [Phase::Request, Phase::Attempt, Phase::Message, Phase::Response] {
            assert!(kept(phase, |_| ()));
        }
    }

    #[test]
    fn a_refusal_keeps_to_its_ranges() {
        let kept = |change: fn(&mut Refusal)| {
            let mut refusal = refusal();
            change(&mut refusal);
            check(Verdict::Refuse(refusal), Phase::Request, &[]).is_ok()
        };
        assert!(kept(|_| ()) && kept(|r| r.status = 400) && kept(|r| r.status = 599) && kept(|r| r.retry_after_ms = None));
        let broken: [fn(&mut Refusal); 8] = [
            |r| r.status = 399,
            |r| r.status = 600,
            |r| r.code = String::new(),
            |r| r.code = "lower".to_owned(),
            |r| r.code = "X".repeat(41),
            |r| r.message = "x".repeat(201),
            |r| r.message = "two\nlines".to_owned(),
            |r| r.retry_after_ms = Some(86_400_001),
        ];
        for (index, change) in broken.into_iter().enumerate() {
            assert!(!kept(change), "{index}");
        }
    }

    #[test]
    fn an_identity_is_never_a_guests_invention() {
        assert!(kept(Phase::Request, |e| e.principal = Some(principal("u1"))));
        assert!(!kept(Phase::Request, |e| e.principal = Some(principal("u2"))));
        assert!(!kept(Phase::Request, |e| e.principal = Some(Principal { role: Role::Admin, ..principal("u1") })));
        assert!(!kept(Phase::Message, |e| e.principal = Some(principal("u1"))));
    }

    #[test]
    fn headers_that_frame_or_route_belong_to_the_host() {
        assert!(kept(Phase::Request, |e| e.set_headers = set("x-user", "u 1")));
        assert!(kept(Phase::Response, |e| e.remove_headers = vec!["server".to_owned()]));
        for name in HOST_HEADERS.iter().chain(&["sec-websocket-key", "x-forwarded-for", "", ":status", "X-Upper", "a b", "a:b", "名"]) {
            assert!(!kept(Phase::Request, |e| e.set_headers = set(name, "1")), "set {name}");
            assert!(!kept(Phase::Response, |e| e.remove_headers = vec![(*name).to_owned()]), "remove {name}");
        }
        for value in ["a\r\nb: c", "a\0", "ü", &"x".repeat(4_097)] {
            assert!(!kept(Phase::Request, |e| e.set_headers = set("x-a", value)), "{value:?}");
        }
        assert!(!kept(Phase::Attempt, |e| e.set_headers = set("x-a", "1")));
        assert!(!kept(Phase::Request, |e| e.remove_headers = vec!["x-a".to_owned(); 33]));
    }

    #[test]
    fn a_charge_keeps_to_its_ranges() {
        let kept_charge = |change: fn(&mut Charge)| {
            let mut charge = charge();
            change(&mut charge);
            kept(Phase::Attempt, |e| e.charges = vec![charge])
        };
        assert!(kept_charge(|_| ()) && kept_charge(|c| (c.limit, c.cost, c.window_ms) = (1_000_000, 1_000_000, 86_400_000)));
        let broken: [fn(&mut Charge); 13] = [
            |c| c.budget = String::new(),
            |c| c.budget = "Upper".to_owned(),
            |c| c.key = String::new(),
            |c| c.key = "k".repeat(201),
            |c| c.key = "a\nb".to_owned(),
            |c| c.limit = 0,
            |c| c.limit = 1_000_001,
            |c| c.window_ms = 0,
            |c| c.window_ms = 86_400_001,
            |c| c.cost = 0,
            |c| c.cost = 2,
            |c| c.replay_token = Some(String::new()),
            |c| c.refusal.status = 200,
        ];
        for (index, change) in broken.into_iter().enumerate() {
            assert!(!kept_charge(change), "{index}");
        }
        assert!(kept(Phase::Request, |e| e.charges = vec![charge(); 16]));
        assert!(!kept(Phase::Request, |e| e.charges = vec![charge(); 17]));
        assert!(!kept(Phase::Response, |e| e.charges = vec![charge()]));
    }

    #[test]
    fn texts_tags_and_scores_keep_to_theirs() {
        assert!(kept(Phase::Message, |e| (e.replace, e.reply) = (Some("***".to_owned()), Some("在的".to_owned()))));
        assert!(!kept(Phase::Request, |e| e.reply = Some("x".to_owned())));
        assert!(!kept(Phase::Message, |e| e.replace = Some(String::new())));
        assert!(!kept(Phase::Message, |e| e.reply = Some("x".repeat(16_385))));
        assert!(kept(Phase::Request, |e| (e.tags, e.score) = (vec!["risk:no-device".to_owned(); 16], 100)));
        assert!(!kept(Phase::Request, |e| e.tags = vec!["a".to_owned(); 17]));
        for tag in ["", "Upper", "a b", &"x".repeat(65)] {
            assert!(!kept(Phase::Request, |e| e.tags = vec![tag.to_owned()]), "{tag:?}");
        }
        assert!(!kept(Phase::Request, |e| e.score = 101));
    }
}
