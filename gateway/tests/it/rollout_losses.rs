//! What a node serves, and what it says about it, while the registry is away, and how it catches up.

use serde_json::Value;

use crate::cluster::{Cluster, Part};
use crate::edge::Edge;
use crate::rollout_rig::{Operator, Rule, ask, demo, key, trust, upstream};
use crate::wait::{RECOVERED, SOON, until};

/// What `/readyz` says about the registry, once it says so.
async fn registry_says(cluster: &Cluster, node: usize, ok: bool) -> anyhow::Result<Value> {
    let admin = cluster.admin(node);
    until(format!("node {node} says how the registry is: {ok}"), RECOVERED, async || {
        let (_, report) = admin.readyz().await?;
        Ok((report["registry"]["ok"] == ok).then(|| report["registry"].clone()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_without_the_registry_serves_the_last_good_set_and_says_so() {
    let upstream = upstream().await.unwrap();
    let cluster = Cluster::start(1, 0, &demo(&upstream)).await.unwrap();
    trust(&cluster.keys(), &key()).unwrap();
    let (http, operator) = (Edge::new().unwrap(), Operator { admin: cluster.admin(0) });
    let rule = Rule::obedient("good").unwrap();
    operator.make_live(&rule).await.unwrap();
    let words = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(words.path(), "mallory\n").unwrap();
    operator.sluice(&["list", "push", "block-users", &words.path().display().to_string()]).await.unwrap();

    for restarted in [false, true] {
        cluster.kill(Part::Nats);
        if restarted {
            cluster.kill(Part::Node(0));
            cluster.restart(Part::Node(0)).await.unwrap();
        }
        let said = registry_says(&cluster, 0, false).await.unwrap();
        let error = said["error"].as_str().unwrap();
        assert!(error.starts_with("serving the last good set; the registry cannot be reached since 20"), "{error}");
        let operator = Operator { admin: cluster.admin(0) };
        let nodes = operator.admin.get("/admin/nodes").await.unwrap();
        assert_eq!(nodes["registry"], said, "{nodes}");
        assert_eq!(nodes["nodes"][0]["plugins"]["demo"]["live"], rule.digest.short(), "restarted: {restarted}: {nodes}");
        assert!(!nodes["nodes"][0]["lists"]["block-users"]["digest"].is_null(), "restarted: {restarted}: {nodes}");
        let answer = ask(&http, cluster.edge(0), "user-1", "refuse").await.unwrap();
        answer.assert_refusal(429, "NO");
        assert!(operator.push(&Rule::obedient("later").unwrap()).await.is_err(), "nothing can be stored");
        cluster.restart(Part::Nats).await.unwrap();
        registry_says(&cluster, 0, true).await.unwrap();
        cluster.ready(0).await.unwrap();
    }

    // What comes next is followed as if nothing had happened.
    let operator = Operator { admin: cluster.admin(0) };
    operator.make_live(&Rule::lenient("next").unwrap()).await.unwrap();
    assert_eq!(ask(&http, cluster.edge(0), "user-1", "refuse").await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_late_or_back_catches_up() {
    let upstream = upstream().await.unwrap();
    let cluster = Cluster::prepare(2, 0, &demo(&upstream)).unwrap();
    cluster.migrate().await.unwrap();
    trust(&cluster.keys(), &key()).unwrap();
    cluster.start_node(0).await.unwrap();
    cluster.ready(0).await.unwrap();
    let (http, operator) = (Edge::new().unwrap(), Operator { admin: cluster.admin(0) });
    operator.make_live(&Rule::lenient("one").unwrap()).await.unwrap();
    operator.make_live(&Rule::obedient("two").unwrap()).await.unwrap();

    // From the first request on: the listener opens when the node is as it should be.
    cluster.start_node(1).await.unwrap();
    ask(&http, cluster.edge(1), "user-1", "refuse").await.unwrap().assert_refusal(429, "NO");

    cluster.kill(Part::Node(1));
    operator.sluice(&["plugin", "rollback", "demo", "--wait", "0"]).await.unwrap();
    cluster.restart(Part::Node(1)).await.unwrap();
    assert_eq!(ask(&http, cluster.edge(1), "user-1", "refuse").await.unwrap().status, 200, "not what it had kept, but what is so");
    let nodes = operator.admin.get("/admin/nodes").await.unwrap();
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(2), "{nodes}");

    // One that stops as it should takes itself off the list.
    cluster.stop(Part::Node(1)).await.unwrap();
    until("the node is gone", SOON, async || {
        let nodes = operator.admin.get("/admin/nodes").await?;
        Ok((nodes["nodes"].as_array().map(Vec::len) == Some(1)).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_trust_the_key_keeps_what_it_has_and_is_named() {
    let upstream = upstream().await.unwrap();
    let cluster = Cluster::start(2, 0, &demo(&upstream)).await.unwrap();
    trust(&cluster.keys(), &key()).unwrap();
    let (http, operator) = (Edge::new().unwrap(), Operator { admin: cluster.admin(0) });
    let old = Rule::lenient("old").unwrap();
    operator.make_live(&old).await.unwrap();

    // Both nodes of the tests read one folder, so the key goes after the first node has taken the bundle in.
    let new = Rule::obedient("new").unwrap();
    operator.push(&new).await.unwrap();
    std::fs::remove_dir_all(cluster.keys()).unwrap();
    let said = operator.sluice(&["plugin", "rollout", "demo", "--mode", "shadow"]).await.unwrap_err().to_string();
    assert!(said.contains("serve-0: ") && said.contains("serve-1: ") && said.contains("no trusted key"), "{said}");
    for node in 0..2 {
        assert_eq!(ask(&http, cluster.edge(node), "user-1", "refuse").await.unwrap().status, 200);
        let (status, report) = cluster.admin(node).readyz().await.unwrap();
        let demo = &report["policies"]["demo"];
        assert_eq!((status, &demo["version"]), (200, &old.digest.short().into()), "{report}");
        assert!(demo["error"].as_str().is_some_and(|error| error.contains("no trusted key")), "{report}");
    }
    trust(&cluster.keys(), &key()).unwrap();
    until("it is tried again", RECOVERED, async || {
        let (_, report) = cluster.admin(1).readyz().await?;
        Ok(report["policies"]["demo"]["ok"].as_bool().filter(|ok| *ok))
    })
    .await
    .unwrap();
}
