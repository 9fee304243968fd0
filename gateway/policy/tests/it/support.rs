//! A host in a temporary folder, questions to ask it, and waiting for a level instead of for a while.

use std::fs;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::policy::{Call, Digest, Effects, Facts, Fault, Verdict};
use gateway_core::ports::{Answer, Artefact, Policies, PolicySet, PolicyStatus, Side, Versions};
use gateway_core::request::RequestHead;
use gateway_core::time::UnixMillis;
use gateway_policy::{Host, HostError, Keys, Lists, Mode, PolicySettings, Settings, Verifier, VerifierSettings};
use tempfile::TempDir;

pub(crate) const ISSUER: &str = "sluice";
pub(crate) const AUDIENCE: &str = "shop";
pub(crate) const SECRET: &[u8] = b"a secret of more than 32 bytes, for tests";

/// The tests' clock.
pub(crate) const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

/// Longer than any honest call takes on a busy machine.
pub(crate) const AMPLE: Duration = Duration::from_secs(10);

/// A built component.
pub(crate) fn component(plugin: &str) -> Vec<u8> {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins");
    let dir = std::env::var_os("SLUICE_PLUGINS_DIR").map_or(built, PathBuf::from);
    let path = dir.join(plugin).with_extension("wasm");
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; build it with `cargo xtask plugins`", path.display()))
}

/// The same component under another digest: a custom section changes nothing but the bytes.
pub(crate) fn variant(component: &[u8], number: u8) -> Vec<u8> {
    let mut bytes = component.to_vec();
    bytes.extend([0, 3, 1, b'v', number]);
    bytes
}

/// A policy that gets ample time, so that only what a test is about can fail.
pub(crate) fn policy(name: &str, plugin: &str, config: &str) -> PolicySettings {
    PolicySettings { timeout: AMPLE, ..PolicySettings::new(name, plugin, config) }
}

pub(crate) fn conformance(name: &str) -> PolicySettings {
    policy(name, "conformance", "{}")
}

/// A running host and the folder it watches.
pub(crate) struct Rig {
    pub(crate) host: Arc<Host>,
    pub(crate) dir: TempDir,
    pub(crate) lists: Arc<Lists>,
    /// What guests counted.
    pub(crate) counted: Arc<Mutex<Vec<(String, String, f64)>>>,
}

impl Rig {
    /// A host on the plugins that its policies name.
    pub(crate) fn new(policies: Vec<PolicySettings>) -> Self {
        let dir = TempDir::new().unwrap();
        for policy in &policies {
            place(dir.path(), &policy.plugin, &component(&policy.plugin));
        }
        Self::in_folder(dir, policies, 32)
    }

    pub(crate) fn in_folder(dir: TempDir, policies: Vec<PolicySettings>, instances_max: u32) -> Self {
        let settings = Settings { dir: dir.path().to_owned(), policies, instances_max, cache_dir: Some(code_cache()) };
        Self::start(dir, settings)
    }

    pub(crate) fn start(dir: TempDir, settings: Settings) -> Self {
        let lists = Arc::new(Lists::default());
        let counted = Arc::new(Mutex::new(Vec::new()));
        let sink = {
            let counted = Arc::clone(&counted);
            Arc::new(move |policy: &str, name: &str, value: f64| counted.lock().unwrap().push((policy.to_owned(), name.to_owned(), value)))
        };
        let host = Host::start(settings, verifier(), Arc::clone(&lists), sink).unwrap();
        Self { host, dir, lists, counted }
    }

    /// For settings that a host may refuse.
    pub(crate) fn try_start(settings: Settings) -> Result<Arc<Host>, HostError> {
        Host::start(settings, verifier(), Arc::default(), Arc::new(|_: &str, _: &str, _: f64| ()))
    }

    pub(crate) fn set(&self) -> Arc<dyn PolicySet> {
        self.host.current()
    }

    pub(crate) fn status(&self, policy: &str) -> PolicyStatus {
        self.host.status().into_iter().find(|status| status.name == policy).unwrap()
    }

    /// Makes `live` the live version of `plugin`, without a trial.
    pub(crate) async fn install(&self, plugin: &str, live: &[u8]) -> Result<(), String> {
        self.host.apply(plugin, Versions { live: Some(artefact(live)), ..Versions::default() }).await
    }

    /// Asks the conformance guest behind `policy` to behave as `word`.
    pub(crate) async fn behave(&self, policy: &str, word: &str) -> Answer {
        behave(&*self.set(), policy, word).await
    }
}

pub(crate) async fn behave(set: &dyn PolicySet, policy: &str, word: &str) -> Answer {
    set.call(policy, Side::Live, Call::Request(&head("/", &[("x-conformance", word)]), &facts())).await
}

fn verifier() -> Arc<Verifier> {
    let keys = Keys::Secret(SECRET.to_vec());
    let settings = VerifierSettings { issuer: ISSUER.into(), audience: AUDIENCE.into(), leeway: Duration::from_secs(5), keys };
    Arc::new(Verifier::new(settings).unwrap())
}

/// A component as a node fetches it.
pub(crate) fn artefact(component: &[u8]) -> Artefact {
    Artefact { digest: Digest::of(component), component: Bytes::copy_from_slice(component) }
}

/// Where all tests keep compiled code, so that each component is compiled once.
pub(crate) fn code_cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("policy-code")
}

/// Puts a whole file into a watched folder, the way a careful operator does.
pub(crate) fn place(dir: &Path, plugin: &str, component: &[u8]) {
    let partial = dir.join(plugin).with_extension("partial");
    fs::write(&partial, component).unwrap();
    fs::rename(&partial, dir.join(plugin).with_extension("wasm")).unwrap();
}

pub(crate) fn head(path: &str, headers: &[(&str, &str)]) -> RequestHead {
    RequestHead {
        method: "GET".to_owned(),
        path: path.to_owned(),
        query: None,
        host: "shop.example".to_owned(),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        trace_id: "0".repeat(32),
        route: "api".into(),
    }
}

pub(crate) fn facts() -> Facts {
    Facts { now: NOW, principal: None, device: None, tags: Vec::new() }
}

pub(crate) fn effects(answer: Answer) -> Effects {
    match answer.outcome {
        Ok(Verdict::Proceed(effects)) => effects,
        other => panic!("{other:?}"),
    }
}

/// `proceed`, the refusal's code, or the fault's word.
pub(crate) fn word(outcome: &Result<Verdict, Fault>) -> String {
    match outcome {
        Ok(Verdict::Proceed(_)) => "proceed".to_owned(),
        Ok(Verdict::Refuse(refusal)) => refusal.code.clone(),
        Err(fault) => fault.as_str().to_owned(),
    }
}

/// Waits until `level` holds; fails the test when it never does.
pub(crate) async fn eventually(what: &str, mut level: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !level() {
        assert!(Instant::now() < patience, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Both modes, for tests that must hold in each.
pub(crate) const MODES: [Mode; 2] = [Mode::Warm, Mode::Fresh];

/// Runs `future` to its end on one thread: if a guest could block a thread, nothing else in the test would move.
pub(crate) fn on_one_thread<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}
