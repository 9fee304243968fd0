//! A thousand messages between a user on one node and an agent on another, over connections that break all the time.

use crate::cluster::Cluster;
use crate::conversation::{Conversation, seed};
use crate::wait::RECOVERED;

/// Messages of each side.
const EACH: usize = 500;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_messages_arrive_in_order_over_connections_that_break() {
    let cluster = Cluster::start(2, 2, "").await.unwrap();
    let (first, second) = (cluster.edge(0), cluster.edge(1));
    let mut talk = Conversation::start(Box::new(move |_| first), Box::new(move |_| second), Some(20..120), seed()).await.unwrap();
    talk.write(EACH);
    talk.caught_up(2 * RECOVERED).await.unwrap();
    assert!(talk.user.connections() > 1 && talk.agent.connections() > 1, "both were cut");
    talk.assert_alike(&cluster.ledger().await.unwrap()).await.unwrap();
}
