//! Tokens of open sockets: how they end, how they are renewed, and how they are taken away.

use std::path::Path;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::chat_socket::ChatSocket;
use crate::dev::Dev;
use crate::settings::{self, ADMIN_TOKEN};
use crate::tokens::{claims, sign};
use crate::wait::{SOON, until};
use crate::{process, tokens};

async fn open(dev: &Dev, token: &str) -> ChatSocket {
    let mut socket = ChatSocket::connect(dev.edge, token, "").await.unwrap();
    socket.expect("hello").await.unwrap();
    socket
}

fn token(id: &str, token_id: &str, ends_in_s: i64) -> String {
    let mut claims = claims(id, "user", ends_in_s);
    claims["jti"] = json!(token_id);
    sign(&claims)
}

async fn refresh(socket: &mut ChatSocket, token: &str) -> Value {
    socket.ask(json!({ "type": "refresh", "token": token })).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_is_announced_and_ends_the_socket_unless_it_is_renewed() {
    let dev = Dev::start(&settings::chain()).await.unwrap();
    let began = Instant::now();
    let [mut ends, mut renewed] = [open(&dev, &token("u", "t1", 4)).await, open(&dev, &token("u", "t2", 4)).await];
    for socket in [&mut ends, &mut renewed] {
        let warned = socket.expect("token_expiring").await.unwrap();
        assert!(warned["inMs"].as_u64().is_some_and(|ms| ms <= 4_000), "{warned}");
    }
    let answer = refresh(&mut renewed, &token("u", "t3", 3_600)).await;
    assert_eq!(answer["type"], "refreshed", "{answer}");
    assert_eq!(ends.closed().await.unwrap(), Some(4401));
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    renewed.assert_quiet().await.unwrap();

    renewed.send(json!({ "type": "refresh", "token": tokens::user("somebody-else") })).await.unwrap();
    assert_eq!(renewed.closed().await.unwrap(), Some(4403));
}

async fn push(dev: &Dev, folder: &Path, entries: &str) {
    let file = folder.join("revoked.txt");
    std::fs::write(&file, entries).unwrap();
    let arguments = ["list", "push", "revoked", &file.display().to_string(), "--admin", &dev.admin.url(""), "--token", ADMIN_TOKEN];
    let output = process::run(&arguments).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_revoked_ends_open_sockets_and_opens_no_new_ones() {
    let dev = Dev::start(&settings::chain()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let stolen = token("u", "stolen", 3_600);
    let [mut thief, mut owner, mut other] =
        [open(&dev, &stolen).await, open(&dev, &token("u", "own", 3_600)).await, open(&dev, &token("v", "v1", 3_600)).await];

    push(&dev, folder.path(), "stolen\n").await;
    assert_eq!(thief.closed().await.unwrap(), Some(4403));
    until("the thief stays out", SOON, async || Ok(ChatSocket::connect(dev.edge, &stolen, "").await.is_err().then_some(()))).await.unwrap();
    let answer = refresh(&mut owner, &stolen).await;
    assert_eq!(answer["code"], "TOKEN_EXPIRED", "{answer}");
    owner.assert_quiet().await.unwrap();

    push(&dev, folder.path(), "stolen\nu\n").await;
    assert_eq!(owner.closed().await.unwrap(), Some(4403), "the whole user");
    other.assert_quiet().await.unwrap();
    open(&dev, &token("v", "v2", 3_600)).await.assert_quiet().await.unwrap();
}
