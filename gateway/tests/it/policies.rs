//! Policies that misbehave hurt nobody but their own request, and a policy is exchanged while requests run without one of them
//! noticing.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::settings::{self, CLOSED, OPEN};
use crate::tokens;
use crate::upstream::{Conduct, Upstream};
use crate::wait::{RECOVERED, SOON, soon, until};

/// Requests that run while a policy is exchanged, at least.
const UNDER_LOAD: usize = 2_000;
/// Clients that ask all the time.
const CLIENTS: usize = 16;

fn upstream_at(upstream: &Upstream, prefixes: &[&str]) -> String {
    let routes: String =
        prefixes.iter().map(|name| format!("[[routes]]\nname = \"{name}\"\nprefix = \"/{name}\"\nupstream = \"all\"\n")).collect();
    format!("[upstreams.all]\npeers = [{{ addr = \"{}\" }}]\n{routes}", upstream.address)
}

/// The guest that does what the field `x-conformance` says, bound twice.
fn conformance(mode: &str) -> String {
    let bound = |name: &str, fail: &str| {
        format!(
            "[[policies]]\nname = \"{name}\"\nplugin = \"conformance\"\nprefixes = [\"/{name}/\"]\nmode = \"{mode}\"\n\
             timeout_ms = 200\nmemory_mb = 4\nfail = {fail}\n"
        )
    };
    bound("strict", CLOSED) + &bound("lenient", OPEN)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_misbehaves_costs_its_own_request_alone() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    for mode in ["warm", "fresh"] {
        let dev = Dev::start(&(upstream_at(&upstream, &["strict", "lenient", "other"]) + &conformance(mode))).await.unwrap();
        let edge = Edge::new().unwrap();
        let ask = async |path: &str, behaviour: &str| {
            let request = edge.http.get(format!("http://{}/{path}/x", dev.edge)).header("x-conformance", behaviour);
            Answer::of(request).await.unwrap()
        };
        for behaviour in
            ["trap", "spin", "copy", "recurse", "allocate", "forge", "hop-by-hop", "framing", "header-value", "charges", "status"]
        {
            let bad = ask("strict", behaviour).await;
            assert_eq!(bad.verdict(), (503, "POLICY_UNAVAILABLE"), "{mode} {behaviour}: {}", bad.body);
            bad.assert_refusal(503, "POLICY_UNAVAILABLE");
            assert_eq!(ask("strict", "allow").await.status, 200, "the next request after {behaviour}, {mode}");
            assert_eq!(ask("lenient", behaviour).await.status, 200, "{mode} {behaviour}, where a failure lets pass");
            let trace = bad.body["traceId"].as_str().unwrap();
            let record = dev.admin.get(&format!("/admin/decisions/{trace}")).await.unwrap();
            let outcome = record["policies"][0]["outcome"].as_str().unwrap_or_default();
            assert!(["trap", "timeout", "bad-verdict"].contains(&outcome), "{behaviour}: {record}");
        }
        let refused = ask("strict", "refuse").await;
        refused.assert_refusal(429, "NO");
        assert_eq!(ask("lenient", "refuse").await.status, 429, "a verdict is no failure");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_guest_counts_is_a_metric_and_no_more_of_it_than_a_call_may_leave() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let dev = Dev::start(&(upstream_at(&upstream, &["strict", "lenient"]) + &conformance("warm"))).await.unwrap();
    let edge = Edge::new().unwrap();
    let request = edge.http.get(format!("http://{}/strict/x", dev.edge)).header("x-conformance", "metric");
    assert_eq!(Answer::of(request).await.unwrap().status, 200);
    let metrics = edge.http.get(dev.admin.url("/metrics")).send().await.unwrap().text().await.unwrap();
    let line = metrics.lines().find(|line| line.starts_with("sluice_policy_counter_total")).unwrap();
    // The guest counts a hundred times; sixteen are taken.
    assert_eq!(line, r#"sluice_policy_counter_total{counter="conformance_total",policy="strict"} 16"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_that_spin_do_not_stop_the_others() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let dev = Dev::start(&(upstream_at(&upstream, &["strict", "lenient", "other"]) + &conformance("warm"))).await.unwrap();
    let edge = Edge::new().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut spinning = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (edge, stop, address) = (edge.clone(), stop.clone(), dev.edge);
        spinning.spawn(async move {
            let mut asked = 0;
            while !stop.load(Ordering::Relaxed) {
                let request = edge.http.get(format!("http://{address}/strict/x")).header("x-conformance", "spin");
                assert_eq!(Answer::of(request).await.unwrap().status, 503);
                asked += 1;
            }
            asked
        });
    }
    let others = async {
        for number in 0..100 {
            let path = if number % 2 == 0 { "other" } else { "strict" };
            let answer = Answer::of(edge.http.get(format!("http://{}/{path}/x", dev.edge))).await.unwrap();
            assert_eq!(answer.status, 200, "{path} {number}");
        }
    };
    soon("a hundred requests beside four that spin", others).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    while let Some(asked) = soon("the spinning ends", spinning.join_next()).await.unwrap() {
        assert!(asked.unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_exchanged_under_load_without_a_failed_request() {
    let folder = copied_plugins();
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let base = settings::base().unwrap();
    let plugins = settings::plugins().unwrap();
    let config = base.replace(&plugins.display().to_string(), &folder.path().display().to_string());
    let config = config + &upstream_at(&upstream, &["api/fine"]).replace("\"api/fine\"", "\"api-fine\"") + &settings::chain();
    let dev = Dev::start_with(&config, &[]).await.unwrap();
    let load = Load::start(&dev);

    let file = folder.path().join("rate-limit.wasm");
    let original = fs::read(&file).unwrap();
    let mut version = dev.admin.policy_version("rate-limit").await.unwrap();
    for round in 0..3_u8 {
        load.more(UNDER_LOAD / 8).await;
        // As a build does: written beside it, then moved over it.
        replace(&file, &rebuilt(&original, &[round]));
        version = changed(&dev, &version).await;
    }
    // Written in place and in two parts, as a copy does.
    let next = rebuilt(&original, b"in place");
    fs::write(&file, &next[..next.len() / 2]).unwrap();
    load.more(UNDER_LOAD / 8).await;
    fs::write(&file, &next).unwrap();
    version = changed(&dev, &version).await;

    for (what, garbage) in
        [("no wasm", b"garbage".to_vec()), ("half a component", original[..original.len() / 2].to_vec()), ("nothing", Vec::new())]
    {
        replace(&file, &garbage);
        let error = until("the failed load is told", RECOVERED, async || {
            let policies = dev.admin.get("/admin/plugins").await?;
            let policy = policies["policies"].as_array().and_then(|all| all.iter().find(|policy| policy["name"] == "rate-limit")).cloned();
            Ok(policy.filter(|policy| !policy["error"].is_null()))
        });
        let policy = error.await.unwrap();
        assert_eq!(policy["version"], version, "{what}: the last good one stays");
    }
    replace(&file, &rebuilt(&original, b"good again"));
    changed(&dev, &version).await;

    load.more(UNDER_LOAD / 8).await;
    let answered = load.finish(UNDER_LOAD).await;
    eprintln!("{answered} requests during the exchanges");
    let live = until("old generations are gone", SOON, async || {
        let policies = dev.admin.get("/admin/plugins").await?;
        let all = policies["policies"].as_array().cloned().unwrap_or_default();
        Ok(all.iter().all(|policy| policy["generationsLive"] == 1).then_some(()))
    });
    live.await.unwrap();
}

/// Clients that ask all the time, each answer of which must be 200.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: tokio::task::JoinSet<()>,
}

impl Load {
    fn start(dev: &Dev) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..CLIENTS {
            let (stop, answered, address) = (stop.clone(), answered.clone(), dev.edge);
            let (edge, token) = (Edge::new().unwrap(), tokens::user(&format!("loader-{number}")));
            clients.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = Answer::of(edge.http.get(format!("http://{address}/api/fine")).bearer_auth(&token)).await.unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.body);
                    answered.fetch_add(1, Ordering::Relaxed);
                    // Not as fast as possible: the budgets allow a thousand a second for each user.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
        Self { stop, answered, clients }
    }

    /// Waits until this many more are answered.
    async fn more(&self, count: usize) {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        until("requests are answered", RECOVERED, async || Ok((self.answered.load(Ordering::Relaxed) >= wanted).then_some(())))
            .await
            .unwrap();
    }

    /// Waits until `total` were answered, stops, and says how many there were.
    async fn finish(mut self, total: usize) -> usize {
        until("requests are answered", RECOVERED, async || Ok((self.answered.load(Ordering::Relaxed) >= total).then_some(())))
            .await
            .unwrap();
        self.stop.store(true, Ordering::Relaxed);
        while let Some(client) = soon("the clients stop", self.clients.join_next()).await.unwrap() {
            client.unwrap();
        }
        self.answered.load(Ordering::Relaxed)
    }
}

/// Waits until another version than `version` of rate-limit answers.
async fn changed(dev: &Dev, version: &str) -> String {
    until("another version of rate-limit answers", RECOVERED, async || {
        let now = dev.admin.policy_version("rate-limit").await?;
        Ok((now != version).then_some(now))
    })
    .await
    .unwrap()
}

/// The built policies in a folder of the test's own.
pub(crate) fn copied_plugins() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let plugins = settings::plugins().unwrap();
    for entry in fs::read_dir(&plugins).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "wasm") {
            fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
        }
    }
    folder
}

pub(crate) fn replace(file: &Path, component: &[u8]) {
    let beside = file.with_extension("new");
    fs::write(&beside, component).unwrap();
    fs::rename(&beside, file).unwrap();
}

/// The same component with another digest: a custom section, which changes nothing, at its end.
pub(crate) fn rebuilt(component: &[u8], mark: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"build";
    let size = u8::try_from(1 + NAME.len() + mark.len()).expect("one byte of LEB128 is enough");
    assert!(size < 0x80);
    [component, &[0, size, 5], NAME, mark].concat()
}
