//! A bot answers in a chat: once, after the question, and under its own name.

use serde_json::json;

use crate::chat_socket::ChatSocket;
use crate::cluster::Cluster;
use crate::settings::CLOSED;
use crate::tokens;

const QUESTION: &str = "你们几点开门?";
const ANSWER: &str = "每天 9:00-21:00。";

fn bot() -> String {
    format!(
        "[[policies]]\nname = \"faq-bot\"\ntimeout_ms = 2000\nexact = [\"/ws/chat\"]\nfail = {CLOSED}\n\
         [[policies.config.answers]]\nname = \"hours\"\nany = [\"几点开门\"]\nreply = \"{ANSWER}\"\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_answered_once_after_the_question_however_often_it_is_sent() {
    let cluster = Cluster::start(1, 1, &bot()).await.unwrap();
    let mut agent = ChatSocket::connect(cluster.edge(0), &tokens::agent("desk", 1), "").await.unwrap();
    agent.expect("hello").await.unwrap();
    let mut user = ChatSocket::connect(cluster.edge(0), &tokens::user("asker"), "").await.unwrap();
    user.expect("hello").await.unwrap();
    let opened = user.ask(json!({ "type": "open", "subject": "x", "shopId": "1" })).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    agent.expect("assigned").await.unwrap();

    let question = json!({ "type": "text", "sessionId": session, "content": QUESTION, "clientMsgId": "q1" });
    user.send(question.clone()).await.unwrap();
    let accepted = user.expect("accepted").await.unwrap();
    assert_eq!(accepted["seq"], 1, "{accepted}");
    let answer = user.expect("text").await.unwrap();
    assert_eq!((&answer["seq"], &answer["content"]), (&json!(2), &json!(ANSWER)), "{answer}");
    assert_eq!(answer["sender"], json!({ "kind": "agent", "id": "bot", "bot": true }), "{answer}");
    for content in [QUESTION, ANSWER] {
        let seen = agent.expect("text").await.unwrap();
        assert_eq!(seen["content"], content, "the agent sees both: {seen}");
    }

    user.send(question.clone()).await.unwrap();
    let again = user.expect("accepted").await.unwrap();
    assert_eq!((&again["seq"], &again["dup"]), (&json!(1), &json!(true)), "{again}");
    let mut phone = ChatSocket::connect(cluster.edge(0), &tokens::user("asker"), "").await.unwrap();
    phone.expect("hello").await.unwrap();
    phone.send(question).await.unwrap();
    phone.expect("accepted").await.unwrap();
    // Nobody answers an agent in a user's name, and a message behind the repeated ones shows that they brought nothing.
    agent.send(json!({ "type": "text", "sessionId": session, "content": QUESTION, "clientMsgId": "a1" })).await.unwrap();
    let seen = agent.expect("accepted").await.unwrap();
    assert_eq!(seen["seq"], 3, "{seen}");
    let heard = user.expect("text").await.unwrap();
    assert_eq!((&heard["seq"], &heard["content"]), (&json!(3), &json!(QUESTION)), "{heard}");
    user.assert_quiet().await.unwrap();

    let stored = cluster.ledger().await.unwrap().messages(&session).await.unwrap();
    let stored: Vec<_> = stored.iter().map(|message| (message.seq, message.sender.as_str(), message.content.as_str())).collect();
    assert_eq!(stored, [(1, "asker", QUESTION), (2, "bot", ANSWER), (3, "desk", QUESTION)]);
}
