//! Runs a plugin's test vectors natively: `sluice_sdk::vectors!(demo::Rule);` in `tests/vectors.rs`, then `cargo test`.
//!
//! Where the variable `SLUICE_VERDICTS` names a file, every answer is written there as well, one JSON object a line, so that
//! `sluice plugin test` can hold the compiled component's answers against them.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::{Value, json};

use super::FakeHost;
use super::file::{self, Answer, Case, Identity, Phase, Vectors};
use crate::Policy;
use crate::types;

/// Runs every case of the plugin in `folder` and panics with what went wrong, case by case.
///
/// # Panics
/// When the vectors cannot be read, or a case is not answered as it expects.
pub fn run<P: Policy>(folder: &str) {
    let vectors = Vectors::read(Path::new(folder)).unwrap_or_else(|problem| panic!("{problem}"));
    let host = host(&vectors);
    let (mut lines, mut problems) = (String::new(), String::new());
    for case in &vectors.cases {
        // A panic is a trap once it is compiled.
        let asked = catch_unwind(AssertUnwindSafe(|| ask::<P>(&vectors, case, &host)));
        let answer = asked.unwrap_or_else(|_| Answer::Fault("trap".into())).to_json();
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{}", json!({ "case": case.name, "verdict": answer }));
        if let Some(problem) = case.problem(&answer) {
            let _ = writeln!(problems, "{}: {problem}", case.name);
        }
    }
    if let Some(file) = std::env::var_os("SLUICE_VERDICTS") {
        std::fs::write(&file, lines).unwrap_or_else(|error| panic!("SLUICE_VERDICTS: {error}"));
    }
    assert!(problems.is_empty(), "\n{problems}");
}

fn host(vectors: &Vectors) -> FakeHost {
    let tokens = vectors.tokens.iter().map(|(token, identity)| (token.clone(), principal(identity, vectors.now))).collect();
    let entries = |(list, keys): (&String, &Vec<String>)| keys.iter().map(|key| (list.clone(), key.clone())).collect::<Vec<_>>();
    FakeHost { tokens, lists: vectors.lists.iter().flat_map(entries).collect(), ..FakeHost::default() }
}

fn ask<P: Policy>(vectors: &Vectors, case: &Case, host: &FakeHost) -> Answer {
    let policy = match P::configure(&vectors.config_of(case)) {
        Ok(policy) => policy,
        Err(problem) => return Answer::Configure(problem),
    };
    let manifest = policy.manifest();
    let request = request(&case.request, &manifest.headers);
    let facts = types::Facts {
        now_ms: vectors.now,
        principal: case.principal.as_ref().map(|identity| principal(identity, vectors.now)),
        device: case.device.clone(),
        tags: case.tags.clone(),
    };
    let flag = match case.phase() {
        Phase::Request => types::Phases::REQUEST,
        Phase::Attempt => types::Phases::ATTEMPT,
        Phase::Message => types::Phases::MESSAGE,
        Phase::Response => types::Phases::RESPONSE,
    };
    if !manifest.phases.contains(flag) {
        return Answer::Fault("no-phase".into());
    }
    answer(match (&case.attempt, &case.message, &case.response) {
        (Some(attempt), _, _) => {
            let (file::Attempt { activity, sku, qty, .. }, idempotency_key) = (attempt, attempt.idempotency_key.clone());
            let attempt = types::Attempt { activity: *activity, sku: *sku, qty: *qty, idempotency_key };
            policy.on_attempt(host, &request, &facts, &attempt)
        }
        (None, Some(message), _) => {
            let (kind, content) = (message.kind.clone(), message.content.clone());
            policy.on_message(host, &facts, &types::Message { session: message.session, shop: message.shop, kind, content })
        }
        (None, None, Some(response)) => {
            let headers = block(&response.headers, &manifest.headers);
            policy.on_response(host, &request, &facts, &types::Response { status: response.status, headers })
        }
        (None, None, None) => policy.on_request(host, &request, &facts),
    })
}

fn request(request: &file::Request, wanted: &[String]) -> types::Request {
    types::Request {
        method: request.method.clone(),
        path: request.path.clone(),
        query: request.query.clone(),
        host: request.host.clone(),
        client: match request.address().to_canonical() {
            IpAddr::V4(v4) => types::Address::V4(v4.to_bits()),
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, g, h] = v6.segments().map(u64::from);
                types::Address::V6((a << 48 | b << 32 | c << 16 | d, e << 48 | f << 32 | g << 16 | h))
            }
        },
        route: request.route.clone(),
        headers: block(&request.headers, wanted),
    }
}

/// The fields a manifest asked for, as the host lays them out.
fn block(fields: &file::Fields, wanted: &[String]) -> String {
    let seen = fields.0.iter().filter(|(name, value)| wanted.contains(name) && !value.contains(['\r', '\n']));
    seen.map(|(name, value)| format!("{name}: {value}\n")).collect()
}

fn principal(identity: &Identity, now: u64) -> types::Principal {
    types::Principal {
        id: identity.id.clone(),
        role: match identity.role {
            file::Role::User => types::Role::User,
            file::Role::Agent => types::Role::Agent,
            file::Role::Admin => types::Role::Admin,
        },
        shop: identity.shop,
        scopes: identity.scopes.clone(),
        expires_ms: identity.expires(now),
    }
}

fn answer(verdict: types::Verdict) -> Answer {
    match verdict {
        types::Verdict::Refuse(refused) => Answer::Refuse(refusal(refused)),
        types::Verdict::Proceed(effects) => Answer::Proceed(file::Effects {
            principal: effects.principal.map(|principal| file::Principal {
                id: principal.id,
                role: match principal.role {
                    types::Role::User => file::Role::User,
                    types::Role::Agent => file::Role::Agent,
                    types::Role::Admin => file::Role::Admin,
                },
                shop: principal.shop.map(|shop| shop.to_string()),
                scopes: principal.scopes,
                expires_ms: principal.expires_ms,
            }),
            set_headers: effects.set_headers,
            remove_headers: effects.remove_headers,
            charges: effects.charges.into_iter().map(charge).collect(),
            tags: effects.tags,
            score: effects.score,
            replace: effects.replace,
            reply: effects.reply,
        }),
    }
}

fn charge(charge: types::Charge) -> file::Charge {
    file::Charge {
        budget: charge.budget,
        key: charge.key,
        limit: charge.limit,
        window_ms: charge.window_ms,
        cost: charge.cost,
        scope: match charge.scope {
            types::Scope::Node => "node",
            types::Scope::Cluster => "cluster",
        },
        replay_token: charge.replay_token,
        refusal: refusal(charge.refusal),
    }
}

fn refusal(refusal: types::Refusal) -> file::Refusal {
    file::Refusal { status: refusal.status, code: refusal.code, message: refusal.message, retry_after_ms: refusal.retry_after_ms }
}

/// Makes the test that runs the vectors beside this crate's manifest: `sluice_sdk::vectors!(demo::Rule);`.
#[macro_export]
macro_rules! vectors {
    ($policy:ty) => {
        #[test]
        fn answers_every_vector_as_expected() {
            $crate::testing::vectors::run::<$policy>(env!("CARGO_MANIFEST_DIR"));
        }
    };
}
