//! Sealed values: no store holds them in the clear, both parties read them on any node, and keys change underneath.

use std::sync::Arc;

use data_encoding::BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chat_socket::ChatSocket;
use crate::cluster::Cluster;
use crate::process::run;
use crate::tokens;
use crate::wait::{SOON, until};

const PHONE: &str = "13800138000";
const STREET: &str = "长安街";

struct KeyFile(TempDir);

impl KeyFile {
    fn new() -> Self {
        let keys = Self(tempfile::tempdir().unwrap());
        keys.write(&[("first", "2020-01-01", 1)]);
        keys
    }

    fn path(&self) -> String {
        self.0.path().join("vault.keys").display().to_string()
    }

    fn write(&self, keys: &[(&str, &str, u8)]) {
        let lines: String = keys.iter().map(|(id, day, byte)| format!("{id} {day} {}\n", BASE64.encode(&[*byte; 32]))).collect();
        std::fs::write(self.path(), lines).unwrap();
    }
}

fn card(client_msg_id: &str, session: &str) -> Value {
    let content = json!({"orderNo": "SK1", "phone": PHONE, "to": {"address": STREET}}).to_string();
    json!({"type": "order_card", "sessionId": session, "clientMsgId": client_msg_id, "content": content})
}

async fn stored(cluster: &Cluster, session: &str) -> Vec<String> {
    cluster.ledger().await.unwrap().messages(session).await.unwrap().into_iter().map(|message| message.content).collect()
}

async fn check(cluster: &Cluster) -> String {
    let output = run(&["check", "--config", &cluster.config()]).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_is_sealed_in_every_store_and_read_by_both_sides_under_any_key_that_is_listed() {
    let keys = KeyFile::new();
    let extra = format!("vault.key_file = \"{}\"\nvault.refresh_ms = 100\n", keys.path());
    let cluster = Arc::new(Cluster::start(2, 1, &extra).await.unwrap());
    assert!(check(&cluster).await.contains("vault: key first seals, 1 keys open"));
    let mut agent = ChatSocket::connect(cluster.edge(1), &tokens::agent("sealed.agent", 1), "").await.unwrap();
    agent.expect("hello").await.unwrap();
    let mut user = ChatSocket::connect(cluster.edge(0), &tokens::user("sealed.user"), "").await.unwrap();
    user.expect("hello").await.unwrap();
    let opened = user.ask(json!({"type": "open", "subject": "cards"})).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();

    user.send(card("c1", &session)).await.unwrap();
    user.expect("accepted").await.unwrap();
    let pushed = agent.expect("order_card").await.unwrap();
    assert_eq!(pushed["content"], card("c1", &session)["content"], "the agent reads what was written, on another node");
    let rows = stored(&cluster, &session).await;
    assert!(rows[0].contains("sealed:first:") && !rows[0].contains(PHONE) && !rows[0].contains(STREET), "{rows:?}");
    let roaming = cluster.services.redis.command(&["LRANGE", &format!("chat:roam:{session}"), "0", "-1"]).unwrap();
    assert!(roaming.contains("sealed:first:") && !roaming.contains(PHONE), "{roaming}");

    keys.write(&[("first", "2020-01-01", 1), ("second", "2021-01-01", 2)]);
    assert!(check(&cluster).await.contains("vault: key second seals, 2 keys open"));
    // Sent again while another key seals: the same message.
    until("the nodes seal with the new key", SOON, async || {
        let id = format!("k{}", stored(&cluster, &session).await.len());
        user.send(card(&id, &session)).await?;
        user.expect("accepted").await?;
        Ok(stored(&cluster, &session).await.last().filter(|row| row.contains("sealed:second:")).map(drop))
    })
    .await
    .unwrap();
    user.send(card("c1", &session)).await.unwrap();
    let again = user.expect("accepted").await.unwrap();
    assert_eq!((&again["dup"], &again["seq"]), (&json!(true), &json!(1)));

    let history = agent.ask(json!({"type": "history", "sessionId": session})).await.unwrap();
    let messages = history["messages"].as_array().unwrap();
    assert!(messages.len() >= 2 && messages.iter().all(|message| message["content"] == card("c1", &session)["content"]), "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_file_without_a_key_for_today_is_told_by_check() {
    let keys = KeyFile::new();
    let cluster = Cluster::prepare(0, 0, &format!("vault.key_file = \"{}\"\n", keys.path())).unwrap();
    keys.write(&[("later", "2999-01-01", 1)]);
    let output = run(&["check", "--config", &cluster.config()]).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("none of them is valid today"), "{said}");
}
