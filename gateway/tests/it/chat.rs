//! A thousand messages between a user on one node and an agent on another, over connections that break all the time.

use rand::random;

use crate::chat_client::{ChatClient, Profile};
use crate::cluster::Cluster;
use crate::ledger::StoredMessage;
use crate::tokens;
use crate::wait::RECOVERED;

/// Messages of each side.
const EACH: usize = 500;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_messages_arrive_in_order_over_connections_that_break() {
    let cluster = Cluster::start(2, 2, "").await.unwrap();
    let seed = seed();
    let (first, second) = (cluster.edge(0), cluster.edge(1));
    let cuts = Some(20..120);
    let agent = ChatClient::start(Profile {
        id: "desk".into(),
        token: tokens::agent("desk", 1),
        address: Box::new(move |_| second),
        opens: None,
        cuts: cuts.clone(),
        seed,
    });
    agent.greeted().await.unwrap();
    let user = ChatClient::start(Profile {
        id: "user".into(),
        token: tokens::user("user"),
        address: Box::new(move |_| first),
        opens: Some("where is my order".into()),
        cuts,
        seed: seed ^ 1,
    });
    let session = user.session().await.unwrap();
    assert_eq!(agent.session().await.unwrap(), session, "the agent got the session");

    user.write(0, EACH);
    agent.write(0, EACH);
    for client in [&user, &agent] {
        client.shows(2 * EACH, 2 * RECOVERED).await.unwrap();
        client.sent_all(RECOVERED).await.unwrap();
    }
    assert!(user.connections() > 1 && agent.connections() > 1, "both were cut");
    assert_alike(&cluster, &session, &user, &agent, EACH).await;
}

/// Checks that both sides show what the ledger holds: every message of both, numbered without a gap, each side's in the order
/// in which it was written.
pub(crate) async fn assert_alike(cluster: &Cluster, session: &str, user: &ChatClient, agent: &ChatClient, each: usize) {
    let stored = cluster.ledger().await.unwrap().messages(session).await.unwrap();
    let numbers: Vec<u64> = stored.iter().map(|message| message.seq).collect();
    assert_eq!(numbers, (1..=2 * each as u64).collect::<Vec<_>>(), "the ledger numbers every message once");
    for client in [user, agent] {
        assert_eq!(client.shown(), stored, "{} shows what is stored", client.id());
        let own: Vec<String> = stored.iter().filter(|message| message.sender == client.id()).map(content).collect();
        let written: Vec<String> = (0..each).map(|number| client.content(number)).collect();
        assert_eq!(own, written, "the messages of {} are stored in the order in which they were written", client.id());
    }
}

fn content(message: &StoredMessage) -> String {
    message.content.clone()
}

/// Where the random numbers of a run start: `SLUICE_TEST_SEED` repeats one.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("SLUICE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(random);
    eprintln!("SLUICE_TEST_SEED={seed}");
    seed
}
