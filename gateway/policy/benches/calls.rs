//! What one policy call costs: `cargo bench -p gateway-policy`, after `cargo xtask plugins`.
//!
//! Each built policy, warm and fresh, on requests with 3 and with 12 fields that the guest asks for. Criterion writes its
//! report to `target/criterion`; the medians are printed at the end as well. A number here is a measurement, never a test.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use gateway_core::id::{ActivityId, SessionId, ShopId, SkuId};
use gateway_core::policy::{Attempt, Call, Facts, Message, Phase};
use gateway_core::ports::{Policies, PolicySet, Side};
use gateway_core::request::RequestHead;
use gateway_core::time::UnixMillis;
use gateway_policy::{Host, Keys, Lists, Mode, PolicySettings, Settings, Verifier, VerifierSettings};
use tokio::runtime::Runtime;

/// The policies of the house and a configuration each of them accepts. One whose component is not built is left out.
const POLICIES: [(&str, &str); 6] = [
    ("conformance", "{}"),
    ("jwt-auth", "{}"),
    ("rate-limit", r#"{"budgets": [{"name": "per-ip", "key": "ip", "limit": 50, "window_ms": 1000}]}"#),
    ("anti-fraud", "{}"),
    ("sensitive-words", "{}"),
    ("faq-bot", "{}"),
];

/// A field that the conformance guest asks for; each of its values is lowered. The other guests ask for fewer fields.
const WANTED: &str = "x-seen";

const SECRET: &[u8] = b"a secret of more than 32 bytes, for measuring";
const NOW: UnixMillis = UnixMillis(1_000_000);

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::var_os("SLUICE_PLUGINS_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins"), PathBuf::from);
    let mut policies = Vec::new();
    for (plugin, config) in POLICIES {
        for (mode, word) in [(Mode::Warm, "warm"), (Mode::Fresh, "fresh")] {
            let settings = PolicySettings::new(&format!("{plugin} {word}"), plugin, config);
            policies.push(PolicySettings { mode, timeout: Duration::from_secs(1), ..settings });
        }
    }
    let settings = Settings { dir, policies, instances_max: 64, cache_dir: None };
    let host = Host::start(settings, Arc::new(verifier()?), Arc::new(Lists::default()), Arc::new(|_, _, _| ()))?;
    let set = host.current();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut criterion = Criterion::default().configure_from_args();

    let questions = [3, 12].map(Question::new).into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut medians = Vec::new();
    for status in host.status() {
        if let Some(problem) = status.error {
            println!("{}: left out: {problem}", status.name);
            continue;
        }
        for question in &questions {
            let call = question.call(&*set, &status.name);
            let name = format!("{}, {} fields", status.name, question.fields);
            ask(&runtime, &*set, &status.name, call)?;
            criterion.bench_function(&name, |bencher| bencher.iter(|| ask(&runtime, &*set, &status.name, call)));
            medians.push((name, median(|| ask(&runtime, &*set, &status.name, call))));
        }
    }
    criterion.final_summary();
    println!("\nmedians of one call:");
    for (name, median) in medians {
        println!("{name:<44} {median:>10.2?}");
    }
    Ok(())
}

fn ask(runtime: &Runtime, set: &dyn PolicySet, policy: &str, call: Call<'_>) -> Result<(), String> {
    let outcome = runtime.block_on(set.call(policy, Side::Live, call)).outcome;
    outcome.map(drop).map_err(|fault| format!("{policy}: {}", fault.as_str()))
}

/// The median of batches, each long enough that reading the clock does not count.
fn median<T>(mut call: impl FnMut() -> T) -> Duration {
    const BATCH: u32 = 200;
    let mut samples: Vec<Duration> = (0..101)
        .map(|_| {
            let started = Instant::now();
            (0..BATCH).for_each(|_| drop(call()));
            started.elapsed() / BATCH
        })
        .collect();
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// One question in each phase, with so many fields that the guest asks for.
struct Question {
    fields: usize,
    head: RequestHead,
    facts: Facts,
    attempt: Attempt,
    message: Message,
}

impl Question {
    fn new(fields: usize) -> Result<Self, Box<dyn Error>> {
        let mut headers = vec![("authorization".to_owned(), format!("Bearer {}", token()?))];
        headers.extend((1..fields).map(|_| (WANTED.to_owned(), "a value of ordinary length".to_owned())));
        let head = RequestHead {
            method: "POST".to_owned(),
            path: "/api/seckill/buy".to_owned(),
            query: None,
            host: "shop.example".to_owned(),
            headers,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            trace_id: "0".repeat(32),
            route: "seckill".into(),
        };
        Ok(Self {
            fields,
            head,
            facts: Facts { now: NOW, principal: None, device: Some("d1".to_owned()), tags: Vec::new() },
            attempt: Attempt { activity: ActivityId(1), sku: SkuId(1), qty: 1, idempotency_key: None },
            message: Message {
                session: SessionId(1), shop: ShopId(1), kind: "text".to_owned(), content: "在吗?什么时候发货".to_owned()
            },
        })
    }

    /// The first phase the policy takes part in.
    fn call(&self, set: &dyn PolicySet, policy: &str) -> Call<'_> {
        if set.takes_part(policy, Side::Live, Phase::Request) {
            Call::Request(&self.head, &self.facts)
        } else if set.takes_part(policy, Side::Live, Phase::Attempt) {
            Call::Attempt(&self.head, &self.facts, &self.attempt)
        } else {
            Call::Message(&self.facts, &self.message)
        }
    }
}

fn verifier() -> Result<Verifier, Box<dyn Error>> {
    let leeway = Duration::from_secs(5);
    Ok(Verifier::new(VerifierSettings { issuer: "i".into(), audience: "a".into(), leeway, keys: Keys::Secret(SECRET.to_vec()) })?)
}

fn token() -> Result<String, Box<dyn Error>> {
    let claims = serde_json::json!({"sub": "u1", "role": "user", "iss": "i", "aud": "a", "exp": 2_000});
    let key = jsonwebtoken::EncodingKey::from_secret(SECRET)?;
    Ok(jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key)?)
}
