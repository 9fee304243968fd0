//! What one policy call costs, warm and fresh: `cargo run --release -p gateway-policy --example calls`, after
//! `cargo xtask plugins`. Prints medians; a number here is a measurement, never a test.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::policy::{Call, Facts};
use gateway_core::ports::Policies;
use gateway_core::request::RequestHead;
use gateway_core::time::UnixMillis;
use gateway_policy::{Host, Keys, Lists, Mode, PolicySettings, Settings, Verifier, VerifierSettings};

/// Calls per batch: one batch is one sample, so that reading the clock does not count.
const BATCH: u32 = 200;
const SAMPLES: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins");
    let budgets = r#"{"budgets": [{"name": "per-user", "key": "user", "fallback": "ip", "limit": 50, "window_ms": 1000}]}"#;
    let mut policies = Vec::new();
    for (plugin, config) in [("conformance", "{}"), ("jwt-auth", "{}"), ("rate-limit", budgets)] {
        for mode in [Mode::Warm, Mode::Fresh] {
            let timeout = Duration::from_secs(1);
            policies.push(PolicySettings { mode, timeout, ..PolicySettings::new(&format!("{plugin} {mode:?}"), plugin, config) });
        }
    }
    let secret = b"a secret of more than 32 bytes, for measuring".to_vec();
    let leeway = Duration::from_secs(5);
    let settings = VerifierSettings { issuer: "i".into(), audience: "a".into(), leeway, keys: Keys::Secret(secret.clone()) };
    let claims = serde_json::json!({"sub": "u1", "role": "user", "iss": "i", "aud": "a", "exp": 2_000});
    let key = jsonwebtoken::EncodingKey::from_secret(&secret)?;
    let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key)?;
    let host = Host::start(
        Settings { dir, policies, instances_max: 64 },
        Arc::new(Verifier::new(settings)?),
        Arc::new(Lists::default()),
        Arc::new(|_, _, _| ()),
    )?;

    let mut headers: Vec<_> = (0..11).map(|number| (format!("x-field-{number}"), "a value of ordinary length".to_owned())).collect();
    headers.push(("authorization".to_owned(), format!("Bearer {token}")));
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
    let facts = Facts { now: UnixMillis(1_000_000), principal: None, device: Some("d1".to_owned()), tags: Vec::new() };
    let set = host.current();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    for status in host.status() {
        let mut samples = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            let started = Instant::now();
            for _ in 0..BATCH {
                runtime.block_on(set.call(&status.name, Call::Request(&head, &facts))).outcome.map_err(|fault| fault.as_str())?;
            }
            samples.push(started.elapsed() / BATCH);
        }
        samples.sort();
        println!("{:<18} median {:>9.2?}  lowest {:>9.2?}", status.name, samples[SAMPLES / 2], samples[0]);
    }
    Ok(())
}
