//! Telling what was committed: the roaming lists, every device of both sides, the metrics.
//!
//! What never happens here: a failure. What is lost on the way is found again by position checks and by the sender's resend, and a
//! message that comes again is told again, because its first announcement may be what was lost.

use std::sync::Arc;

use gateway_core::chat::code::ErrorCode;
use gateway_core::chat::event::{Announcement, announcement, refusal};
use gateway_core::chat::{Committed, MessageRecord};
use gateway_core::ports::Bus;

use super::scribe::{Entry, Fate, Part};
use super::witness::Witness;
use crate::clock;
use crate::health;
use crate::node::Node;
use crate::telemetry::Metrics;

/// Tells.
pub(super) struct Herald {
    bus: Arc<dyn Bus>,
    witness: Arc<Witness>,
    metrics: Arc<Metrics>,
}

impl Herald {
    /// Over the ports of a process.
    pub(super) fn of(node: &Node, witness: Arc<Witness>) -> Self {
        Self::new(node.ports.bus.clone(), witness, node.metrics.clone())
    }

    pub(super) fn new(bus: Arc<dyn Bus>, witness: Arc<Witness>, metrics: Arc<Metrics>) -> Self {
        Self { bus, witness, metrics }
    }

    /// First the lists, so that nobody hears of a position that no second witness has seen, and whoever hears of a message and
    /// lacks the one before finds both.
    pub(super) async fn announce(&self, part: &Part) {
        let news: Vec<MessageRecord> = part.entries.iter().filter_map(|entry| part.news(entry)).cloned().collect();
        self.witness.append(&news).await;
        for entry in &part.entries {
            let Announcement { event, subjects } = match &entry.fate {
                Fate::Committed(outcome) => announcement(&entry.send, outcome),
                Fate::SetAside => refusal(&entry.send, ErrorCode::SetAside),
            };
            let payload = event.encode();
            for subject in subjects {
                // It waits for nothing but room in the client's own queue.
                if let Err(error) = self.bus.publish(&subject, payload.clone()).await {
                    tracing::debug!(error = health::chain(&error), "cannot announce a message now");
                }
            }
        }
        self.count(part);
    }

    fn count(&self, part: &Part) {
        let (now, accept_seconds) = (clock::now(), self.metrics.chat_accept_seconds.with_label_values::<&str>(&[]));
        for Entry { queued_at, fate, .. } in &part.entries {
            accept_seconds.observe(now.since(*queued_at).as_secs_f64());
            let Fate::Committed(Committed::Stored { dup, stopped, .. }) = fate else { continue };
            self.metrics.chat_accepted.inc_by(u64::from(!dup));
            if let Some((clock, shows)) = stopped {
                self.metrics.chat_response_seconds.with_label_values(&[clock.as_str()]).observe(shows.as_secs_f64());
            }
        }
    }
}
