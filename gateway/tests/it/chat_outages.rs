//! The conversation while the bus or the cache is away for as long as it takes: it goes on, and nobody can tell afterwards.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::{Cluster, Part};
use crate::conversation::{Conversation, seed};
use crate::wait::RECOVERED;

/// Messages of each side before, during and after.
const THIRD: usize = 8;

/// A message that cannot be queued costs at most the queue's deadline once, and then the ledger's own time.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(20);

async fn goes_on_without(part: Part) -> (Arc<Cluster>, Conversation) {
    let cluster = Arc::new(Cluster::start(2, 1, "").await.unwrap());
    let mut talk = Conversation::start(cluster.near(0), cluster.near(1), None, seed()).await.unwrap();
    talk.write(THIRD);
    talk.caught_up(RECOVERED).await.unwrap();
    // Some are on their way when it dies.
    talk.write(THIRD);
    cluster.kill(part);
    talk.write(THIRD);
    let killed = Instant::now();
    talk.caught_up(ACCEPTED_WITHIN).await.unwrap();
    eprintln!("both sides had everything {:?} after {part:?} was killed", killed.elapsed());
    (cluster, talk)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_bus_messages_are_stored_and_reach_both_nodes_and_what_it_held_comes_once() {
    let (cluster, mut talk) = goes_on_without(Part::Nats).await;
    let direct = async |node: usize| cluster.admin(node).metric("sluice_chat_direct_total").await.unwrap().unwrap_or_default();
    assert!(direct(0).await > 0.0 && direct(1).await > 0.0, "both nodes wrote to the ledger themselves");
    cluster.restart(Part::Nats).await.unwrap();
    cluster.ready(0).await.unwrap();
    cluster.ready(1).await.unwrap();
    talk.write(THIRD);
    talk.caught_up(RECOVERED).await.unwrap();
    talk.assert_alike(&cluster.ledger().await.unwrap()).await.unwrap();
    // The queue is used again by itself.
    crate::wait::until("messages take the queue again", RECOVERED, async || {
        let before = direct(0).await + direct(1).await;
        talk.write(1);
        talk.caught_up(RECOVERED).await?;
        Ok((direct(0).await + direct(1).await == before).then_some(()))
    })
    .await
    .unwrap();
    talk.assert_alike(&cluster.ledger().await.unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_messages_are_stored_accepted_and_delivered() {
    let (cluster, mut talk) = goes_on_without(Part::Redis).await;
    cluster.restart(Part::Redis).await.unwrap();
    talk.write(THIRD);
    talk.caught_up(RECOVERED).await.unwrap();
    talk.assert_alike(&cluster.ledger().await.unwrap()).await.unwrap();
}
