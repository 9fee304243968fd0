//! The roaming lists as the worker uses them: for as long as they answer, and no longer.
//!
//! What never happens here: a failure that holds up a message. Without the lists numbering rests on the ledger alone, and readers
//! find in the ledger what the lists lack.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gateway_core::chat::{MessageRecord, Position, Send};
use gateway_core::id::SessionId;
use gateway_core::ports::{PortResult, Roaming};
use tokio::time::timeout;

use crate::breaker::Breaker;
use crate::clock;
use crate::health;
use crate::node::Node;
use crate::telemetry::Metrics;

/// How long a batch waits for the lists. A store that is well answers in a hundredth of it.
const PATIENCE: Duration = Duration::from_millis(250);

/// The second witness of one partition.
pub(super) struct Witness {
    roaming: Arc<dyn Roaming>,
    breaker: Breaker,
    metrics: Arc<Metrics>,
}

impl Witness {
    /// Over the ports of a process.
    pub(super) fn of(node: &Node) -> Arc<Self> {
        Self::new(node.ports.roaming.clone(), node.metrics.clone())
    }

    pub(super) fn new(roaming: Arc<dyn Roaming>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { roaming, breaker: Breaker::default(), metrics })
    }

    /// How far the sessions of `sends` are known to be announced.
    pub(super) async fn tops(&self, sends: &[Send]) -> BTreeMap<SessionId, Position> {
        let sessions: BTreeSet<SessionId> = sends.iter().map(|send| send.session).collect();
        let sessions: Vec<SessionId> = sessions.into_iter().collect();
        let tops = self.ask(self.roaming.tops(&sessions)).await.unwrap_or_default();
        sessions.into_iter().zip(tops).filter_map(|(session, top)| Some((session, top?))).collect()
    }

    /// Takes committed messages in.
    pub(super) async fn append(&self, messages: &[MessageRecord]) {
        if !messages.is_empty() {
            self.ask(self.roaming.append(messages)).await;
        }
    }

    async fn ask<T>(&self, question: impl Future<Output = PortResult<T>>) -> Option<T> {
        if !self.breaker.lets_try(clock::now()) {
            return None;
        }
        let why = match timeout(PATIENCE, question).await {
            Ok(Ok(answer)) => {
                self.breaker.worked();
                return Some(answer);
            }
            Ok(Err(error)) => {
                self.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
                health::chain(&error)
            }
            Err(_) => "no answer in time".to_owned(),
        };
        self.breaker.failed(clock::now());
        tracing::debug!(error = why, "the roaming lists are away");
        None
    }
}
