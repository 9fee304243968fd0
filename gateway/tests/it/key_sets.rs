//! Keys behind a URL: rotated, asked for by strangers, away, and served by somebody who means no good.

use serde_json::json;

use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::issuer::{Issuer, Key, Publishes, set};
use crate::settings::CLOSED;
use crate::tokens::claims;
use crate::upstream::{Conduct, Upstream};
use crate::wait::{RECOVERED, until};

/// A path that passes with a good token, and nothing else.
fn guarded(upstream: &Upstream) -> String {
    format!(
        "[upstreams.all]\npeers = [{{ addr = \"{}\" }}]\n[[routes]]\nname = \"shop\"\nprefix = \"/api/shop\"\nupstream = \"all\"\n\
         [[policies]]\nname = \"jwt-auth\"\ntimeout_ms = 2000\nprefixes = [\"/api/\"]\nfail = {CLOSED}\n",
        upstream.address
    )
}

/// The status of a request with `token`.
async fn status(edge: &Edge, dev: &Dev, token: &str) -> u16 {
    Answer::of(edge.http.get(format!("http://{}/api/shop", dev.edge)).bearer_auth(token)).await.unwrap().status
}

/// A line of `/metrics`, or nothing.
async fn metric(edge: &Edge, dev: &Dev, name: &str) -> Option<f64> {
    let text = edge.http.get(dev.admin.url("/metrics")).send().await.unwrap().text().await.unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn token(key: &Key, id: &str) -> String {
    key.sign(&claims(id, "user", 3_600))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_is_fetched_once_it_is_needed_and_the_old_one_is_not_believed() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let issuer = Issuer::start(Publishes::Text(set(&[&old]))).await.unwrap();
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let dev = Dev::start_with(&(issuer.settings("tokens.jwks_cooldown_ms = 60000") + &guarded(&upstream)), &[]).await.unwrap();
    let edge = Edge::new().unwrap();
    assert_eq!(status(&edge, &dev, &token(&old, "u1")).await, 200, "the first token waits for the first fetch");
    assert_eq!(status(&edge, &dev, &token(&new, "u1")).await, 401, "nobody has published it");

    let dev = Dev::start_with(&(issuer.settings("tokens.jwks_cooldown_ms = 60000") + &guarded(&upstream)), &[]).await.unwrap();
    assert_eq!(status(&edge, &dev, &token(&old, "u1")).await, 200);
    issuer.publish(Publishes::Text(set(&[&new])));
    let asked = issuer.asked();
    assert_eq!(status(&edge, &dev, &token(&new, "u1")).await, 200, "the key is fetched before the policy is asked");
    assert_eq!(issuer.asked(), asked + 1);
    assert_eq!(status(&edge, &dev, &token(&old, "u1")).await, 401, "a token that was believed before goes with its key");
    assert_eq!(issuer.asked(), asked + 1, "the cool-down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_unknown_keys_bring_about_one_fetch() {
    let known = Key::new("known");
    let issuer = Issuer::start(Publishes::Text(set(&[&known]))).await.unwrap();
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let dev = Dev::start_with(&(issuer.settings("tokens.jwks_cooldown_ms = 600000") + &guarded(&upstream)), &[]).await.unwrap();
    let edge = Edge::new().unwrap();
    assert_eq!(status(&edge, &dev, &token(&known, "u1")).await, 200);
    let asked = issuer.asked();
    let mut strangers = tokio::task::JoinSet::new();
    for client in 0..20 {
        let (edge, address) = (edge.clone(), dev.edge);
        strangers.spawn(async move {
            for number in 0..50 {
                // The header alone decides which key is looked for.
                let header = jsonwebtoken::Header { kid: Some(format!("k{client}-{number}")), ..Default::default() };
                let forged = crate::tokens::sign_as(&header, "whatever", &claims("u1", "admin", 3_600));
                let answer = Answer::of(edge.http.get(format!("http://{address}/api/shop")).bearer_auth(forged)).await.unwrap();
                assert_eq!(answer.status, 401);
            }
        });
    }
    while let Some(client) = strangers.join_next().await {
        client.unwrap();
    }
    assert_eq!(issuer.asked(), asked + 1);
    assert_eq!(status(&edge, &dev, &token(&known, "u1")).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_outlive_their_server_for_a_time_and_then_are_forgotten() {
    let key = Key::new("k");
    let issuer = Issuer::start(Publishes::Text(set(&[&key]))).await.unwrap();
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let times = "tokens.jwks_refresh_ms = 1000\ntokens.jwks_cooldown_ms = 100\ntokens.jwks_stale_ms = 6000";
    let dev = Dev::start_with(&(issuer.settings(times) + &guarded(&upstream)), &[]).await.unwrap();
    let edge = Edge::new().unwrap();
    let token = token(&key, "u1");
    assert_eq!(status(&edge, &dev, &token).await, 200);
    until("it is ready", RECOVERED, async || Ok((dev.admin.readyz().await?.0 == 200).then_some(()))).await.unwrap();

    issuer.publish(Publishes::Status(500));
    let failed = "sluice_jwks_fetch_total{outcome=\"status\"}";
    until("a fetch fails", RECOVERED, async || Ok(metric(&edge, &dev, failed).await.filter(|count| *count >= 1.0))).await.unwrap();
    assert_eq!(status(&edge, &dev, &token).await, 200, "the last keys are believed while the server is away");

    until("the keys are forgotten", RECOVERED, async || Ok((status(&edge, &dev, &token).await == 401).then_some(()))).await.unwrap();
    let report = until("it says so", RECOVERED, async || {
        let (status, report) = dev.admin.readyz().await?;
        Ok((status == 503).then_some(report))
    });
    let report = report.await.unwrap();
    let error = report["dependencies"]["jwks"]["error"].as_str().unwrap_or_default();
    assert!(error.contains("fetch the token keys") && error.contains("500"), "{report}");
    assert_eq!(metric(&edge, &dev, "sluice_jwks_age_seconds").await, Some(-1.0));
    assert!(dev.process.log().contains("too old to be believed"));

    issuer.publish(Publishes::Text(set(&[&key])));
    until("the keys are there again", RECOVERED, async || Ok((status(&edge, &dev, &token).await == 200).then_some(()))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_starts_without_keys_believes_nobody_and_says_so() {
    let key = Key::new("k");
    let issuer = Issuer::start(Publishes::Status(503)).await.unwrap();
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let dev = Dev::start_with(&(issuer.settings("tokens.jwks_cooldown_ms = 100") + &guarded(&upstream)), &[]).await.unwrap();
    let edge = Edge::new().unwrap();
    assert_eq!(status(&edge, &dev, &token(&key, "u1")).await, 401);
    let (status_code, report) = dev.admin.readyz().await.unwrap();
    assert_eq!((status_code, &report["dependencies"]["jwks"]["ok"]), (503, &json!(false)), "{report}");
    issuer.publish(Publishes::Text(set(&[&key])));
    until("it serves", RECOVERED, async || Ok((status(&edge, &dev, &token(&key, "u1")).await == 200).then_some(()))).await.unwrap();
    until("it says so", RECOVERED, async || Ok((dev.admin.readyz().await?.0 == 200).then_some(()))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_means_no_good_gets_nobody_in_and_nowhere() {
    let key = Key::new("k");
    let elsewhere = Issuer::start(Publishes::Text(set(&[&key]))).await.unwrap();
    let issuer = Issuer::start(Publishes::Redirect(format!("http://{}/jwks", elsewhere.address))).await.unwrap();
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let dev = Dev::start_with(&(issuer.settings("tokens.jwks_cooldown_ms = 100") + &guarded(&upstream)), &[]).await.unwrap();
    let edge = Edge::new().unwrap();
    let many = (0..65).map(|number| {
        let mut jwk = key.jwk();
        jwk["kid"] = json!(format!("k{number}"));
        jwk
    });
    let mut shared = key.jwk();
    shared = json!({ "kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": shared["kid"] });
    for (what, publishes, outcome) in [
        ("another server", None, "unreachable"),
        ("too much", Some(" ".repeat(300_000) + &set(&[&key])), "too-large"),
        ("too many", Some(json!({ "keys": many.collect::<Vec<_>>() }).to_string()), "unusable"),
        ("a shared secret", Some(json!({ "keys": [shared] }).to_string()), "unusable"),
        ("nothing", Some(json!({ "keys": [] }).to_string()), "unusable"),
        ("no JSON", Some("<html>".into()), "unusable"),
    ] {
        if let Some(text) = publishes {
            issuer.publish(Publishes::Text(text));
        }
        let name = format!("sluice_jwks_fetch_total{{outcome=\"{outcome}\"}}");
        let before = metric(&edge, &dev, &name).await.unwrap_or_default();
        until(what, RECOVERED, async || {
            assert_eq!(status(&edge, &dev, &token(&key, "u1")).await, 401, "{what}");
            Ok(metric(&edge, &dev, &name).await.filter(|count| *count > before || outcome == "unreachable" && *count > 0.0))
        })
        .await
        .unwrap();
    }
    assert_eq!(elsewhere.asked(), 0, "a redirect to another server is not followed");
    issuer.publish(Publishes::Text(set(&[&key])));
    until("good keys are taken", RECOVERED, async || Ok((status(&edge, &dev, &token(&key, "u1")).await == 200).then_some(())))
        .await
        .unwrap();
}
