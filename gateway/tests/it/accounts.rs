//! Accounts that policies charge: whose they are, and what happens where they cannot be reached.

use crate::cluster::{Cluster, Part};
use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::settings::{CLOSED, OPEN};
use crate::upstream::{Conduct, Upstream};
use crate::wait::{RECOVERED, until};

fn route(name: &str, upstream: &Upstream) -> String {
    format!(
        "[upstreams.{name}]\npeers = [{{ addr = \"{}\" }}]\n[[routes]]\nname = \"{name}\"\nprefix = \"/{name}\"\nupstream = \"{name}\"\n",
        upstream.address
    )
}

/// A limit for each network under `/{name}`.
fn limit(name: &str, limit: u32, more: &str) -> String {
    format!(
        "[[policies]]\nname = \"{name}\"\nplugin = \"rate-limit\"\ntimeout_ms = 2000\nprefixes = [\"/{name}\"]\n{more}\n\
         [[policies.config.budgets]]\nname = \"network\"\nkey = \"ip\"\nlimit = {limit}\nwindow_ms = 3600000\nscope = \"cluster\"\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_is_one_account_however_many_addresses_it_has() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let config = "edge.trusted_proxies = [\"127.0.0.0/8\"]\n".to_owned()
        + &route("shop", &upstream)
        + &limit("shop", 3, &format!("fail = {CLOSED}"));
    let dev = Dev::start(&config).await.unwrap();
    let edge = Edge::new().unwrap();
    let ask = async |client: String| {
        let request = edge.http.get(format!("http://{}/shop", dev.edge)).header("x-forwarded-for", client);
        Answer::of(request).await.unwrap()
    };
    let mut passed = 0;
    for number in 0..1_000 {
        let answer = ask(format!("2001:db8:1:2::{number:x}")).await;
        match answer.status {
            200 => passed += 1,
            _ => answer.assert_refusal(429, "RATE_LIMITED"),
        }
    }
    assert_eq!(passed, 3, "one /64");
    assert_eq!(ask("2001:db8:1:3::1".into()).await.status, 200, "the network beside it");

    for same in ["192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201"] {
        assert_eq!(ask(same.into()).await.status, 200, "{same}");
    }
    for same in ["192.0.2.1", "::ffff:192.0.2.1"] {
        ask(same.into()).await.assert_refusal(429, "RATE_LIMITED");
    }
    assert_eq!(ask("192.0.2.2".into()).await.status, 200, "another host");
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_that_cannot_be_reached_are_what_the_policy_says() {
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let config = ["open", "closed", "dry"].map(|name| route(name, &upstream)).concat()
        + &limit("open", 1_000, &format!("fail = {OPEN}"))
        + &limit("closed", 1_000, &format!("fail = {CLOSED}"))
        + &limit("dry", 1_000, &format!("enforce = false\nfail = {CLOSED}"));
    let cluster = Cluster::start(1, 0, &config).await.unwrap();
    let edge = Edge::new().unwrap();
    let ask = async |name: &str| Answer::of(edge.http.get(format!("http://{}/{name}", cluster.edge(0)))).await;
    for name in ["open", "closed", "dry"] {
        assert_eq!(ask(name).await.unwrap().status, 200, "{name}");
    }
    cluster.kill(Part::Redis);
    for (name, status) in [("open", 200), ("dry", 200), ("closed", 503)] {
        let answer = ask(name).await.unwrap();
        assert_eq!(answer.status, status, "{name}: {}", answer.body);
    }
    ask("closed").await.unwrap().assert_refusal(503, "UNAVAILABLE");
    let url = cluster.admin(0).url("/metrics");
    let metrics = edge.http.get(url).send().await.unwrap().text().await.unwrap();
    for (outcome, count) in [("open", 1), ("dry", 1), ("closed", 2)] {
        let line = format!("sluice_policy_budgets_unreachable_total{{outcome=\"{outcome}\"}} {count}");
        assert!(metrics.contains(&line), "{line}");
    }
    cluster.restart(Part::Redis).await.unwrap();
    until("accounts are charged again", RECOVERED, async || Ok((ask("closed").await?.status == 200).then_some(()))).await.unwrap();
}
