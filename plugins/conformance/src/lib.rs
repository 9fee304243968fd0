//! A guest that misbehaves on demand, for the host's tests and for nothing else.
//!
//! The field `x-conformance` of a request (or the content of a message) names the behaviour; the configuration can make
//! `configure` itself fail.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_sdk::bindings::sluice::policy::telemetry::Level;
use sluice_sdk::types::{
    Attempt, Charge, Effects, Facts, Manifest, Message, Phases, Principal, Refusal, Request, Response, Role, Scope, Verdict,
};
use sluice_sdk::{HeaderBlock, Host, Policy};

/// Longer than any text a host should take.
const HUGE: usize = 8 << 20;

/// Questions this instance has answered: what an honest policy never keeps.
static QUESTIONS: AtomicU32 = AtomicU32::new(0);

/// The configured guest. The configuration is one JSON string, a word.
#[derive(Debug)]
pub struct Conformance {
    name: &'static str,
}

impl Policy for Conformance {
    fn configure(config: &str) -> Result<Self, String> {
        match config.trim().trim_matches('"') {
            "refuse" => Err("told to refuse its configuration".into()),
            "trap" => panic!("told to trap while configuring"),
            "spin" => spin(),
            "bad-name" => Ok(Self { name: "Not A Name" }),
            _ => Ok(Self { name: "conformance" }),
        }
    }

    fn manifest(&self) -> Manifest {
        Manifest {
            name: self.name.into(),
            version: "1".into(),
            phases: Phases::all(),
            headers: vec!["x-conformance".into(), "x-seen".into()],
        }
    }

    fn on_request(&self, host: &dyn Host, request: &Request, facts: &Facts) -> Verdict {
        match request.header("x-conformance").unwrap_or("allow") {
            "headers" => tags(request.headers.lines().map(|line| line.replace(": ", ":"))),
            "facts" => tags([
                format!("now:{}", facts.now_ms),
                format!("who:{}", facts.principal.as_ref().map_or("none", |p| &p.id)),
                format!("tags:{}", facts.tags.len()),
            ]),
            "verify" => match host.verify(request.header("x-seen").unwrap_or_default()) {
                Ok(principal) => Verdict::Proceed(Effects { principal: Some(principal), ..Effects::default() }),
                Err(word) => tags([word]),
            },
            "list" => tags([format!("listed:{}", host.contains("block-users", request.header("x-seen").unwrap_or_default()))]),
            "metric" => {
                (0..100).for_each(|_| host.metric("conformance_total", 1.0));
                Verdict::proceed()
            }
            "ask-for-ever" => loop {
                std::hint::black_box(host.contains("block-users", "nobody"));
            },
            "talk-for-ever" => loop {
                host.log(Level::Info, "again");
                host.metric("conformance_total", 1.0);
            },
            "verify-for-ever" => loop {
                let _ = std::hint::black_box(host.verify("x.y.z"));
            },
            "verify-huge" => tags([host.verify(&"x".repeat(HUGE)).err().unwrap_or_default()]),
            word => behave(word),
        }
    }

    fn on_attempt(&self, _host: &dyn Host, _request: &Request, _facts: &Facts, attempt: &Attempt) -> Verdict {
        tags([format!("attempt:{}:{}:{}", attempt.activity, attempt.sku, attempt.qty)])
    }

    fn on_message(&self, _host: &dyn Host, _facts: &Facts, message: &Message) -> Verdict {
        match message.content.as_str() {
            "replace" => Verdict::Proceed(Effects { replace: Some("***".into()), ..Effects::default() }),
            "reply" => Verdict::Proceed(Effects { reply: Some("hello".into()), ..Effects::default() }),
            word => behave(word),
        }
    }

    fn on_response(&self, _host: &dyn Host, request: &Request, _facts: &Facts, response: &Response) -> Verdict {
        match request.header("x-conformance") {
            Some("framing") => header("content-length", "0"),
            _ => header("x-status", &response.status.to_string()),
        }
    }
}

/// The behaviours that need nothing of the request.
fn behave(word: &str) -> Verdict {
    match word {
        "refuse" => Verdict::Refuse(Refusal::new(429, "NO", "no").retry_after_ms(1_500)),
        "spin" => spin(),
        "copy" => copy_for_ever(),
        "trap" => panic!("told to trap"),
        "recurse" => tags([format!("depth:{}", recurse(1))]),
        "allocate" => allocate_for_ever(),
        "count" => tags([format!("question:{}", QUESTIONS.fetch_add(1, Ordering::Relaxed))]),
        "header" => header("x-policy", "1"),
        "charge" => charge("k", 10, 1),
        "forge" => Verdict::Proceed(Effects {
            principal: Some(Principal { id: "root".into(), role: Role::Admin, shop: None, scopes: Vec::new(), expires_ms: u64::MAX }),
            ..Effects::default()
        }),
        "status" => Verdict::Refuse(Refusal::new(200, "OK", "not a refusal")),
        "code" => Verdict::Refuse(Refusal::new(400, "not a code", "x")),
        "message" => Verdict::Refuse(Refusal::new(400, "LONG", &"x".repeat(201))),
        "retry" => Verdict::Refuse(Refusal::new(400, "LATE", "x").retry_after_ms(86_400_001)),
        "hop-by-hop" => header("connection", "close"),
        "framing" => header("transfer-encoding", "chunked"),
        "header-name" => header("X Bad", "1"),
        "header-value" => header("x-split", "a\r\nx-smuggled: b"),
        "host" => header("host", "elsewhere"),
        "charge-zero" => charge("k", 0, 1),
        "charge-cost" => charge("k", 1, 2),
        "charge-key" => charge("", 1, 1),
        "charges" => Verdict::charge(vec![one_charge("k", 1, 1); 17]),
        "million-charges" => Verdict::charge(vec![one_charge("k", 1, 1); 1_000_000]),
        "million-tags" => tags((0..1_000_000).map(|_| String::new())),
        "huge-text" => header("x-long", &"x".repeat(HUGE)),
        "grow" => grow(),
        "tags" => tags((0..17).map(|number| number.to_string())),
        "tag" => tags(["has space".into()]),
        "score" => Verdict::Proceed(Effects { score: 101, ..Effects::default() }),
        "replace-request" => Verdict::Proceed(Effects { replace: Some("x".into()), ..Effects::default() }),
        _ => Verdict::proceed(),
    }
}

fn tags(tags: impl IntoIterator<Item = String>) -> Verdict {
    Verdict::Proceed(Effects { tags: tags.into_iter().collect(), ..Effects::default() })
}

fn header(name: &str, value: &str) -> Verdict {
    Verdict::Proceed(Effects { set_headers: vec![(name.into(), value.into())], ..Effects::default() })
}

fn charge(key: &str, limit: u32, cost: u32) -> Verdict {
    Verdict::charge(vec![one_charge(key, limit, cost)])
}

fn one_charge(key: &str, limit: u32, cost: u32) -> Charge {
    Charge {
        budget: "conformance".into(),
        key: key.into(),
        limit,
        window_ms: 1_000,
        cost,
        scope: Scope::Node,
        replay_token: None,
        refusal: Refusal::new(429, "RATE_LIMITED", "x"),
    }
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}

/// Each turn is one big `memory.copy`, inside which no epoch is checked.
fn copy_for_ever() -> ! {
    let mut block = vec![1_u8; 1 << 20];
    loop {
        block.copy_within(..1 << 19, 1 << 19);
        std::hint::black_box(&mut block);
    }
}

#[expect(unconditional_recursion, reason = "it ends where the stack does")]
fn recurse(depth: u64) -> u64 {
    let frame = [depth; 64];
    std::hint::black_box(recurse(frame[(depth % 64) as usize] + 1)) + 1
}

/// Keeps another MiB and answers how many MiB that makes.
fn grow() -> Verdict {
    static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().expect("nobody panics while holding it");
    kept.push(vec![1; 1 << 20]);
    tags([format!("kept:{}", kept.len())])
}

fn allocate_for_ever() -> ! {
    let mut blocks = Vec::new();
    loop {
        blocks.push(std::hint::black_box(vec![1_u8; 1 << 16]));
    }
}

#[cfg(target_family = "wasm")]
sluice_sdk::export!(Conformance);
