//! Starting: with a configuration that is wrong, without the services, and with the wrong words.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use crate::cluster::{Cluster, Part};
use crate::edge::{Answer, Edge};
use crate::process::run;
use crate::sale::{self, Lot, Terms};
use crate::wait::{RECOVERED, SOON, until};
use crate::{settings, tokens};

/// What a command that ended has said: exit code, standard output, standard error.
async fn say(arguments: &[&str]) -> (i32, String, String) {
    let output = run(arguments).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn file_with(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sluice.toml");
    fs::write(&file, text).unwrap();
    (folder, file.display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_configuration_is_told_whole_and_starts_nothing() {
    let wrong = "edge.listn = \"127.0.0.1:0\"\nedge.headers_max = 0\nredis.url = \"http://localhost\"\ntokens.secret = \"short\"\n\
        [[policies]]\nname = \"jwt-auth\"\nprefixes = [\"/api/\"]\n";
    let (_folder, file) = file_with(wrong);
    for command in ["serve", "worker", "migrate", "check", "dev"] {
        let (code, _, said) = say(&[command, "--config", &file]).await;
        assert_eq!(code, 1, "{command}: {said}");
        for (place, told) in [
            (":1:", "edge.listn"),
            (":2:", "edge.headers_max"),
            (":3:", "redis.url"),
            (":4:", "tokens.secret"),
            (":5:", "policies[0].fail"),
            ("", "admin.token"),
            ("", "sale.order_key"),
        ] {
            let line = said.lines().find(|line| line.contains(told)).unwrap_or_else(|| panic!("{command}: {told} is not told in\n{said}"));
            assert!(line.contains("sluice.toml") && line.contains(place), "{command}: {line}");
        }
        assert!(said.contains("did you mean `listen`?"), "{said}");
        assert!(said.contains("SLUICE__ADMIN__TOKEN"), "a remedy: {said}");
        assert!(!said.contains("short\""), "secrets are not repeated: {said}");
        assert!(!said.contains("\"listening\""), "{command} started something: {said}");
    }
    let (code, _, said) = say(&["serve", "--config", "/nowhere/sluice.toml"]).await;
    assert_eq!(code, 1);
    assert!(said.contains("/nowhere/sluice.toml"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_what_a_start_would() {
    let (_folder, file) = file_with(&(settings::base().unwrap() + &settings::chain()));
    let (code, said, complaint) = say(&["check", "--config", &file]).await;
    assert_eq!(code, 0, "{said}{complaint}");
    assert!(said.contains("jwt-auth") && said.contains("no problem found"), "{said}");

    let missing = settings::chain().replace("name = \"jwt-auth\"", "name = \"jwt-auth\"\nplugin = \"nobody\"");
    let (_folder, file) = file_with(&(settings::base().unwrap() + &missing));
    let (code, said, complaint) = say(&["check", "--config", &file]).await;
    assert_eq!(code, 1, "{said}{complaint}");
    assert!((said + &complaint).contains("nobody.wasm"), "the missing file is named");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_explains_itself() {
    let (code, said, _) = say(&["--help"]).await;
    assert_eq!(code, 0);
    for command in ["dev", "serve", "worker", "migrate", "check", "token", "activity", "compensation"] {
        assert!(said.contains(command), "{command} is not in\n{said}");
        let (code, help, _) = say(&[command, "--help"]).await;
        assert_eq!(code, 0);
        assert!(help.contains("Example") && help.contains(&format!("sluice {command}")), "no example in\n{help}");
    }
    for wrong in [
        &["frobnicate"][..],
        &[],
        &["serve", "--nonsense"],
        &["token", "--sub", "a b", "--role", "user"],
        &["token", "--sub", "a", "--role", "agent"],
    ] {
        let (code, _, said) = say(wrong).await;
        assert_eq!(code, 2, "{wrong:?}: {said}");
        assert!(!said.is_empty());
    }
    assert_eq!(say(&["--version"]).await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_named_and_nothing_runs() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (_folder, file) = file_with(&settings::base().unwrap());
    for option in ["--listen", "--admin"] {
        let (code, _, said) = say(&["dev", "--config", &file, option, &address]).await;
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(&address), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_services_waits_for_them_and_says_so() {
    let cluster = Cluster::prepare(1, 0, "").unwrap();
    cluster.migrate().await.unwrap();
    for part in [Part::Redis, Part::Nats, Part::MariaDb] {
        cluster.kill(part);
    }
    cluster.start_node(0).await.unwrap();
    let admin = cluster.admin(0);
    until("every missing service is named", SOON, async || {
        let (status, report) = admin.readyz().await?;
        let away = |name: &str| report["dependencies"][name]["ok"] == json!(false);
        Ok((status == 503 && ["redis", "nats", "mysql"].into_iter().all(away)).then_some(()))
    })
    .await
    .unwrap();
    assert!(admin.is_alive().await.unwrap(), "it is alive and not ready");

    let edge = Edge::new().unwrap();
    // Made by the command line, as an operator would.
    let config = cluster.config();
    let (code, token, said) = say(&["token", "--config", &config, "--sub", "early", "--role", "user", "--ttl", "5m"]).await;
    assert_eq!(code, 0, "{said}");
    let token = token.trim();
    let lot = Lot { activity: 1, sku: 1 };
    edge.buy(cluster.edge(0), token, lot, "k").await.unwrap().assert_refusal(503, "UNAVAILABLE");
    let handshake = edge
        .http
        .get(format!("http://{}/ws/chat", cluster.edge(0)))
        .bearer_auth(token)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    Answer::of(handshake).await.unwrap().assert_refusal(503, "UNAVAILABLE");

    for part in [Part::MariaDb, Part::Nats, Part::Redis] {
        let (status, report) = admin.readyz().await.unwrap();
        assert_eq!(status, 503, "{part:?} is still away: {report}");
        cluster.restart(part).await.unwrap();
    }
    cluster.ready(0).await.unwrap();
    let lot = sale::open(&admin, 4001, Terms::open(1)).await.unwrap();
    let bought = until("it sells", RECOVERED, async || {
        let answer = edge.buy(cluster.edge(0), &tokens::user("late"), lot, "k").await?;
        Ok((answer.status == 202).then_some(answer))
    });
    assert_eq!(bought.await.unwrap().code(), "QUEUED");
    let mut socket = crate::chat_socket::ChatSocket::connect(cluster.edge(0), token, "").await.unwrap();
    socket.expect("hello").await.unwrap();
}
