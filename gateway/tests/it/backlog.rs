//! More messages in a shop's queue than its bots may add to: they fall silent, people do not, and afterwards each session hears
//! once what it did not get.

use serde_json::json;

use crate::chat_socket::ChatSocket;
use crate::cluster::{Cluster, Part};
use crate::settings::CLOSED;
use crate::tokens;
use crate::wait::{RECOVERED, SOON, until};

const QUESTION: &str = "几点开门";
const ANSWER: &str = "每天 9:00-21:00。";
const QUEUED_MAX: usize = 5;

fn config() -> String {
    format!(
        "chat.backlog_max = {QUEUED_MAX}\n[[policies]]\nname = \"faq-bot\"\ntimeout_ms = 2000\nexact = [\"/ws/chat\"]\nfail = {CLOSED}\n\
         [[policies.config.answers]]\nname = \"hours\"\nany = [\"{QUESTION}\"]\nreply = \"{ANSWER}\"\n"
    )
}

async fn open(cluster: &Cluster, id: &str, shop: &str) -> (ChatSocket, String) {
    let mut user = ChatSocket::connect(cluster.edge(0), &tokens::user(id), "").await.unwrap();
    user.expect("hello").await.unwrap();
    let opened = user.ask(json!({ "type": "open", "subject": "x", "shopId": shop })).await.unwrap();
    (user, opened["sessionId"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn bots_of_a_shop_with_a_long_queue_are_silent_and_say_so_once_afterwards() {
    let cluster = Cluster::start(1, 1, &config()).await.unwrap();
    let (mut crowd, crowded) = open(&cluster, "crowd", "1").await;
    let (mut quiet, calm) = open(&cluster, "quiet", "2").await;
    let dropped = async || anyhow::Ok(cluster.admin(0).metric("sluice_chat_bot_dropped_total").await?.unwrap_or_default());

    cluster.kill(Part::Worker(0));
    let mut asked = 0;
    until("answers are left out", SOON, async || {
        crowd.send(json!({ "type": "text", "sessionId": crowded, "content": QUESTION, "clientMsgId": format!("q{asked}") })).await?;
        asked += 1;
        Ok((dropped().await? >= 2.0).then_some(()))
    })
    .await
    .unwrap();
    assert!(asked > QUEUED_MAX, "{asked}");
    let long = cluster.admin(0).metric("sluice_chat_queue_depth{shop_class=\"long\"}").await.unwrap();
    assert!(long.is_some(), "the queue is shown");
    quiet.send(json!({ "type": "text", "sessionId": calm, "content": QUESTION, "clientMsgId": "q" })).await.unwrap();

    cluster.restart(Part::Worker(0)).await.unwrap();
    let ledger = cluster.ledger().await.unwrap();
    let stored = until("the summary is stored", RECOVERED, async || {
        let stored = ledger.messages(&crowded).await?;
        Ok(stored.last().is_some_and(|last| last.sender == "bot" && last.content.contains("没有发出")).then_some(stored))
    })
    .await
    .unwrap();
    let left_out = dropped().await.unwrap();
    let of = |sender: &str| stored.iter().filter(|message| message.sender == sender).count();
    assert_eq!(of("crowd"), asked, "no message of a person is dropped");
    assert_eq!(of("bot") as f64, asked as f64 - left_out + 1.0, "each answer is given or counted, and there is one summary");
    assert!(stored.last().unwrap().content.contains(&format!(" {left_out} ")), "{stored:#?}");
    until("the other shop's bot answers", RECOVERED, async || {
        let stored = ledger.messages(&calm).await?;
        Ok((stored.len() == 2).then(|| assert_eq!(stored[1].content, ANSWER)))
    })
    .await
    .unwrap();
}
