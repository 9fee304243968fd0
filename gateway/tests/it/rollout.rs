//! From a signed bundle to a rule that is live on every node, and back: who is judged by what, on which node, and for how long.

use std::collections::BTreeMap;

use reqwest::Method;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::http;
use crate::rollout_rig::{Operator, Rule, ask, demo, key, trust, upstream};
use crate::settings::{self, ADMIN_TOKEN};
use crate::upstream::Upstream;
use crate::wait::{RECOVERED, SOON, until};

/// Largest bundle, and more than anybody should be able to make a node hold.
const HUGE: usize = 200 << 20;

/// Two nodes, and whoever operates them.
pub(crate) struct Pair {
    pub(crate) cluster: Cluster,
    pub(crate) operator: Operator,
    pub(crate) http: Edge,
    _upstream: Upstream,
}

impl Pair {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let upstream = upstream().await?;
        let cluster = Cluster::start(2, 0, &demo(&upstream)).await?;
        trust(&cluster.keys(), &key())?;
        let operator = Operator { admin: cluster.admin(0) };
        Ok(Self { cluster, operator, http: Edge::new()?, _upstream: upstream })
    }

    /// Statuses by user and node for users whose ids end in each digit, when the guest is told to refuse.
    async fn refusals(&self) -> anyhow::Result<BTreeMap<(u32, usize), u16>> {
        let mut statuses = BTreeMap::new();
        for digit in 0..10 {
            for node in 0..2 {
                let answer = ask(&self.http, self.cluster.edge(node), &format!("user-{digit}"), "refuse").await?;
                statuses.insert((digit, node), answer.status);
            }
        }
        Ok(statuses)
    }
}

fn statuses(of: impl Fn(u32) -> u16) -> BTreeMap<(u32, usize), u16> {
    (0..10).flat_map(|digit| [((digit, 0), of(digit)), ((digit, 1), of(digit))]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_judges_the_same_users_on_both_nodes_until_it_is_rolled_back() {
    let pair = Pair::start().await.unwrap();
    let operator = &pair.operator;
    let (old, new) = (Rule::lenient("old").unwrap(), Rule::obedient("new").unwrap());
    operator.make_live(&old).await.unwrap();
    assert_eq!(pair.refusals().await.unwrap(), statuses(|_| 200));

    let said = operator.push(&new).await.unwrap();
    assert!(said.contains(new.digest.short()) && said.contains("pushed"), "{said}");
    assert_eq!(pair.refusals().await.unwrap(), statuses(|_| 200), "pushing changes nothing");
    // Half of the users are refused far more often than before: that is what this rule is for.
    let limits = ["--refusal-shift", "1", "--p99-factor", "1000"];
    operator.sluice(&[&["plugin", "rollout", "demo", "--mode", "canary", "--tail", "0-4"][..], &limits].concat()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(pair.refusals().await.unwrap(), statuses(|digit| if digit <= 4 { 429 } else { 200 }));
    }
    let nodes = operator.admin.get("/admin/nodes").await.unwrap();
    let (live, trial) = (old.digest.short(), new.digest.short());
    assert_eq!(
        nodes["summary"],
        serde_json::json!([
            format!("anti-fraud: 2 of 2 nodes on {}", version("anti-fraud", &nodes)),
            format!("demo: 2 of 2 nodes on {live}, {trial} on trial on 2 of 2"),
            format!("jwt-auth: 2 of 2 nodes on {}", version("jwt-auth", &nodes)),
            format!("rate-limit: 2 of 2 nodes on {}", version("rate-limit", &nodes)),
        ])
    );

    let asked = Instant::now();
    operator.sluice(&["plugin", "rollback", "demo", "--why", "a test", "--by", "eve"]).await.unwrap();
    eprintln!("rolled back on both nodes after {:?}, the command included", asked.elapsed());
    assert_eq!(pair.refusals().await.unwrap(), statuses(|_| 200));
    let record = operator.record().await.unwrap();
    let last = record["history"].as_array().unwrap().last().unwrap();
    assert_eq!((last["by"].as_str(), last["what"].as_str()), (Some("eve"), Some(format!("trial of {trial} ended: a test").as_str())));

    // All the way, and back from there.
    operator.make_live(&new).await.unwrap();
    assert_eq!(pair.refusals().await.unwrap(), statuses(|_| 429));
    operator.sluice(&["plugin", "rollback", "demo"]).await.unwrap();
    assert_eq!(pair.refusals().await.unwrap(), statuses(|_| 200));
}

fn version(plugin: &str, nodes: &serde_json::Value) -> String {
    nodes["nodes"][0]["plugins"][plugin]["live"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_growing_percentage_keeps_whom_it_had() {
    let pair = Pair::start().await.unwrap();
    pair.operator.make_live(&Rule::lenient("old").unwrap()).await.unwrap();
    pair.operator.push(&Rule::obedient("new").unwrap()).await.unwrap();
    let mut refused_before: Vec<usize> = Vec::new();
    for percent in ["20", "60", "100"] {
        let limits = ["--refusal-shift", "1", "--p99-factor", "1000"];
        pair.operator
            .sluice(&[&["plugin", "rollout", "demo", "--mode", "canary", "--percent", percent][..], &limits].concat())
            .await
            .unwrap();
        let mut refused = Vec::new();
        for user in 0..40 {
            let name = format!("shopper-{user}");
            let here = ask(&pair.http, pair.cluster.edge(0), &name, "refuse").await.unwrap().status;
            let there = ask(&pair.http, pair.cluster.edge(1), &name, "refuse").await.unwrap().status;
            assert_eq!(here, there, "{name} at {percent}");
            if here == 429 {
                refused.push(user);
            }
        }
        assert!(refused_before.iter().all(|user| refused.contains(user)), "{percent}: {refused_before:?} {refused:?}");
        refused_before = refused;
    }
    assert_eq!(refused_before.len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_traps_is_rolled_back_by_the_nodes() {
    let pair = Pair::start().await.unwrap();
    let operator = &pair.operator;
    operator.make_live(&Rule::lenient("old").unwrap()).await.unwrap();
    let bad = Rule::obedient("bad").unwrap();
    operator.push(&bad).await.unwrap();
    operator.sluice(&["plugin", "rollout", "demo", "--mode", "canary", "--tail", "0-9", "--min-calls", "10"]).await.unwrap();
    let record = until("the trial is ended", RECOVERED, async || {
        let answer = ask(&pair.http, pair.cluster.edge(1), "user-1", "trap").await?;
        assert_eq!(answer.status, 200, "its failure lets pass: {}", answer.body);
        let record = operator.record().await?;
        Ok(record["candidate"].is_null().then_some(record))
    })
    .await
    .unwrap();
    let last = record["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["by"], "node serve-1", "{last}");
    let what = last["what"].as_str().unwrap();
    assert!(what.starts_with(&format!("trial of {} ended: ", bad.digest.short())) && what.contains("trapped"), "{what}");
    for node in 0..2 {
        let here = Operator { admin: pair.cluster.admin(node) };
        until("nobody is judged by it any more", SOON, async || Ok(here.policy().await?["candidate"].is_null().then_some(())))
            .await
            .unwrap();
    }
    let there = Operator { admin: pair.cluster.admin(1) };
    assert_eq!(there.metric(r#"sluice_policy_rollbacks_total{policy="demo",reason="traps"}"#).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_is_compared_and_changes_nothing() {
    let pair = Pair::start().await.unwrap();
    let operator = &pair.operator;
    operator.make_live(&Rule::lenient("old").unwrap()).await.unwrap();
    operator.push(&Rule::obedient("new").unwrap()).await.unwrap();
    operator.sluice(&["plugin", "rollout", "demo", "--mode", "shadow"]).await.unwrap();
    for number in 0..30 {
        let behaviour = if number % 3 == 0 { "refuse" } else { "allow" };
        let answer = ask(&pair.http, pair.cluster.edge(0), "user-1", behaviour).await.unwrap();
        assert_eq!(answer.status, 200, "a shadow has no effect: {}", answer.body);
    }
    until("the differences are counted", SOON, async || {
        let refuses = operator.metric(r#"sluice_policy_shadow_total{difference="refuses",policy="demo"}"#).await?;
        Ok((refuses == 10).then_some(()))
    })
    .await
    .unwrap();
    // The live rule charges a budget and leaves responses alone; the new one charges none and marks each response.
    let policy = operator.policy().await.unwrap();
    let comparison = &policy["candidate"]["comparison"];
    assert_eq!(comparison["compared"], 60, "{policy}");
    assert_eq!(comparison["differences"], serde_json::json!({ "charges": 20, "headers": 30, "refuses": 10 }), "{policy}");
    let sample = comparison["samples"].as_array().unwrap().iter().find(|sample| sample["reason"] == "refuses").unwrap();
    assert_eq!(sample["phase"], "request", "{sample}");
    let trace = sample["traceId"].as_str().unwrap();
    assert!(operator.admin.get(&format!("/admin/decisions/{trace}")).await.is_ok(), "a sample leads to its request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_reaches_every_node_and_is_asked_at_once() {
    let pair = Pair::start().await.unwrap();
    let lot = pair.cluster.open_sale(7001, crate::sale::Terms::open(10)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blocked.txt");
    std::fs::write(&file, "mallory\n\nmallory\r\ntrudy\n").unwrap();
    let path = file.display().to_string();
    let said = pair.operator.sluice(&["list", "push", "block-users", &path]).await.unwrap();
    assert!(said.contains("2 entries"), "{said}");
    for node in 0..2 {
        for blocked in ["mallory", "trudy"] {
            let answer = pair.http.buy(pair.cluster.edge(node), &crate::tokens::user(blocked), lot, "k").await.unwrap();
            answer.assert_refusal(429, "RISK_REFUSED");
        }
        let answer = pair.http.buy(pair.cluster.edge(node), &crate::tokens::user(&format!("alice-{node}")), lot, "k").await.unwrap();
        assert_eq!(answer.status, 202, "{}", answer.body);
    }
    let there = Operator { admin: pair.cluster.admin(1) };
    assert_eq!(there.sluice(&["list", "show", "block-users"]).await.unwrap(), "mallory\ntrudy\n");
    std::fs::write(&file, "").unwrap();
    pair.operator.sluice(&["list", "push", "block-users", &path]).await.unwrap();
    let answer = pair.http.buy(pair.cluster.edge(1), &crate::tokens::user("mallory"), lot, "k").await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.body);
    let refused = pair.operator.sluice(&["list", "show", "nobody-has-it"]).await.unwrap_err().to_string();
    assert!(refused.contains("NOT_FOUND"), "{refused}");
}

/// One process in memory, whose registry ends with it.
struct Alone {
    dev: Dev,
    operator: Operator,
    http: Edge,
    keys: tempfile::TempDir,
    _upstream: Upstream,
}

impl Alone {
    async fn start() -> anyhow::Result<Self> {
        let (upstream, keys) = (upstream().await?, tempfile::tempdir()?);
        trust(keys.path(), &key())?;
        let keys_dir = format!("plugins.keys_dir = \"{}\"\n", keys.path().display());
        let dev = Dev::start_with(&(settings::base()? + &keys_dir + &settings::chain() + &demo(&upstream)), &[]).await?;
        let operator = Operator { admin: dev.admin.clone() };
        Ok(Self { dev, operator, http: Edge::new()?, keys, _upstream: upstream })
    }

    async fn push(&self, bundle: Vec<u8>) -> anyhow::Result<Answer> {
        self.operator.admin.ask(Method::POST, "/admin/plugins", bundle).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_goes_live_in_one_process_too() {
    let alone = Alone::start().await.unwrap();
    let rule = Rule::obedient("new").unwrap();
    alone.operator.make_live(&rule).await.unwrap();
    let refused = ask(&alone.http, alone.dev.edge, "user-1", "refuse").await.unwrap();
    refused.assert_refusal(429, "NO");
    let component = http::client().unwrap().get(alone.operator.admin.url("/admin/plugins/demo/component")).bearer_auth(ADMIN_TOKEN);
    let component = component.send().await.unwrap().bytes().await.unwrap();
    assert_eq!(gateway_core::policy::Digest::of(&component), rule.digest);
    let listed = alone.operator.sluice(&["plugin", "list"]).await.unwrap();
    assert!(listed.contains(&format!("demo: live {}", rule.digest.short())), "{listed}");
    let again = alone.operator.push(&rule).await.unwrap();
    assert!(again.contains("already there"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_cannot_be_proved_is_refused_and_leaves_nothing() {
    let alone = Alone::start().await.unwrap();
    let rule = Rule::obedient("good").unwrap();
    let whole = rule.bundle.len();
    for place in [0, 16, 20, 60, whole / 2, whole - 1] {
        let mut flipped = rule.bundle.clone();
        flipped[place] ^= 0x10;
        let refused = alone.push(flipped).await.unwrap();
        assert_eq!(refused.verdict(), (400, "BAD_BUNDLE"), "byte {place}: {}", refused.body);
    }
    for (what, bytes) in
        [("nothing", Vec::new()), ("a half", rule.bundle[..whole / 2].to_vec()), ("one byte more", [&rule.bundle[..], b"x"].concat())]
    {
        let refused = alone.push(bytes).await.unwrap();
        assert_eq!(refused.verdict(), (400, "BAD_BUNDLE"), "{what}: {}", refused.body);
    }
    let stranger = Rule::sealed("conformance", "evil", &gateway_core::policy::bundle::SigningSeed::new(&[8; 32])).unwrap();
    let refused = alone.push(stranger.bundle.clone()).await.unwrap();
    assert_eq!(refused.verdict(), (400, "BAD_BUNDLE"), "{}", refused.body);
    assert!(refused.body["message"].as_str().unwrap().contains("no trusted key"), "{}", refused.body);
    let huge = alone.push(vec![0; HUGE]).await.unwrap();
    assert_eq!(huge.verdict(), (413, "TOO_LARGE"), "{}", huge.body);
    let raw = std::fs::read(settings::plugins().unwrap().join("conformance.wasm")).unwrap();
    let unsigned = alone.push(raw).await.unwrap();
    assert_eq!(unsigned.verdict(), (400, "BAD_BUNDLE"), "{}", unsigned.body);
    assert_eq!(alone.operator.record().await.unwrap()["versions"], serde_json::json!([]));

    // A key that is withdrawn is unknown from then on, and one that is added is known.
    trust(alone.keys.path(), &gateway_core::policy::bundle::SigningSeed::new(&[8; 32])).unwrap();
    assert_eq!(alone.push(stranger.bundle).await.unwrap().status, 200);
    std::fs::remove_file(alone.keys.path().join(format!("{}.pub", key().id()))).unwrap();
    assert_eq!(alone.push(rule.bundle).await.unwrap().verdict(), (400, "BAD_BUNDLE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_makes_no_sense_is_refused_with_a_sentence() {
    let alone = Alone::start().await.unwrap();
    let step = async |path: &str, body: &str| {
        let answer = alone.operator.admin.ask(Method::POST, &format!("/admin/plugins/{path}"), body.as_bytes().to_vec()).await.unwrap();
        assert!(answer.body["message"].as_str().is_some_and(|message| message.len() > 10), "{path} {body}: {}", answer.body);
        (answer.status, answer.code().to_owned())
    };
    let shadow = r#"{"mode":"shadow"}"#;
    assert_eq!(step("nobody/rollout", shadow).await, (404, "NOT_FOUND".into()), "no policy uses it");
    assert_eq!(step("demo/rollout", shadow).await, (404, "NOT_FOUND".into()), "nothing was pushed");
    assert_eq!(step("demo/promote", "").await, (409, "CONFLICT".into()), "nothing is on trial");
    assert_eq!(step("demo/rollback", "{}").await, (409, "CONFLICT".into()), "nothing was before");
    let rule = Rule::obedient("new").unwrap();
    alone.operator.push(&rule).await.unwrap();
    for body in [
        "",
        "{",
        "[]",
        r#"{"mode":"full"}"#,
        r#"{"mode":"canary"}"#,
        r#"{"mode":"shadow","tail":"0-4"}"#,
        r#"{"mode":"canary","tail":"4-0"}"#,
        r#"{"mode":"canary","percent":0}"#,
        r#"{"mode":"canary","percent":101}"#,
        r#"{"mode":"canary","percent":10,"tail":"1"}"#,
        r#"{"mode":"shadow","limits":{"trapRate":2}}"#,
        r#"{"mode":"shadow","limits":{"minCalls":0}}"#,
        r#"{"mode":"shadow","more":1}"#,
        r#"{"mode":"shadow","by":"node serve-0"}"#,
    ] {
        assert_eq!(step("demo/rollout", body).await, (400, "BAD_REQUEST".into()), "{body}");
    }
    let wrong = format!(r#"{{"mode":"shadow","version":"{}"}}"#, &rule.digest.as_str()[..7]);
    assert_eq!(step("demo/rollout", &wrong).await, (404, "NOT_FOUND".into()), "seven digits name no version");
    alone.operator.make_live(&rule).await.unwrap();
    assert_eq!(step("demo/rollout", shadow).await, (409, "CONFLICT".into()), "it is live already");
}
