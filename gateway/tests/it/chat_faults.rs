//! The conversation while one part after another is killed without warning and comes back.

use std::sync::Arc;

use crate::chat::{assert_alike, seed};
use crate::chat_client::{ChatClient, Profile};
use crate::cluster::{Cluster, Part};
use crate::tokens;
use crate::wait::RECOVERED;

const FAULTS: [Part; 5] = [Part::Worker(0), Part::Node(0), Part::Redis, Part::Nats, Part::MariaDb];
/// Messages of each side while one part is away and comes back: a third before, a third during, a third after.
const PHASE: usize = 30;
const THIRD: usize = PHASE / 3;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_while_every_part_is_killed_in_turn() {
    let cluster = Arc::new(Cluster::start(2, 2, "").await.unwrap());
    let seed = seed();
    // Each has a node it likes; while that one is away the other is as good.
    let near = |cluster: &Arc<Cluster>, node: usize| {
        let cluster = cluster.clone();
        Box::new(move |attempt: usize| cluster.edge((node + attempt) % 2)) as Box<_>
    };
    let agent = ChatClient::start(Profile {
        id: "desk".into(),
        token: tokens::agent("desk", 1),
        address: near(&cluster, 1),
        opens: None,
        cuts: None,
        seed,
    });
    agent.greeted().await.unwrap();
    let user = ChatClient::start(Profile {
        id: "user".into(),
        token: tokens::user("user"),
        address: near(&cluster, 0),
        opens: Some("where is my order".into()),
        cuts: None,
        seed: seed ^ 1,
    });
    let session = user.session().await.unwrap();
    assert_eq!(agent.session().await.unwrap(), session, "the agent got the session");

    for (phase, part) in FAULTS.into_iter().enumerate() {
        let start = phase * PHASE;
        let write = |third: usize| {
            for client in [&user, &agent] {
                client.write(start + third * THIRD, start + (third + 1) * THIRD);
            }
        };
        eprintln!("killing {part:?} after {start} messages of each side");
        write(0);
        user.shows(2 * start + 1, RECOVERED).await.unwrap();
        cluster.kill(part);
        write(1);
        cluster.restart(part).await.unwrap();
        write(2);
        for client in [&user, &agent] {
            client.shows(2 * (start + PHASE), RECOVERED).await.unwrap();
        }
    }
    for client in [&user, &agent] {
        client.sent_all(RECOVERED).await.unwrap();
    }
    assert_alike(&cluster, &session, &user, &agent, FAULTS.len() * PHASE).await;
}
