//! The conversation while one part after another is killed without warning and comes back.

use std::sync::Arc;

use crate::cluster::{Cluster, Part};
use crate::conversation::{Conversation, seed};
use crate::wait::RECOVERED;

const FAULTS: [Part; 5] = [Part::Worker(0), Part::Node(0), Part::Redis, Part::Nats, Part::MariaDb];
/// Messages of each side before, during and after a fault: 300 in all.
const THIRD: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_while_every_part_is_killed_in_turn() {
    let cluster = Arc::new(Cluster::start(2, 2, "").await.unwrap());
    let mut talk = Conversation::start(cluster.near(0), cluster.near(1), None, seed()).await.unwrap();
    for part in FAULTS {
        eprintln!("killing {part:?} after {} messages", talk.user.shown().len());
        talk.write(THIRD);
        talk.user.shows(talk.user.shown().len() + 1, RECOVERED).await.unwrap();
        cluster.kill(part);
        talk.write(THIRD);
        cluster.restart(part).await.unwrap();
        talk.write(THIRD);
        talk.caught_up(RECOVERED).await.unwrap();
    }
    talk.assert_alike(&cluster.ledger().await.unwrap()).await.unwrap();
}
