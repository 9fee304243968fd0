//! Decision records: for each request, which policies said what, found by trace id.
//!
//! A ring of the latest records; older ones fall out. Written by the edge, read by the admin API.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Records kept; at about 500 bytes each, 5 MB.
const KEPT: usize = 10_000;

/// The latest decision records.
#[derive(Default)]
pub(crate) struct Decisions {
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    order: VecDeque<String>,
    records: BTreeMap<String, Value>,
}

impl Decisions {
    /// Keeps `record` under `trace_id`, replacing an earlier one.
    pub(crate) fn keep(&self, trace_id: &str, record: Value) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.records.insert(trace_id.to_owned(), record).is_none() {
            ring.order.push_back(trace_id.to_owned());
            if ring.order.len() > KEPT
                && let Some(oldest) = ring.order.pop_front()
            {
                ring.records.remove(&oldest);
            }
        }
    }

    /// The record of a request.
    pub(crate) fn find(&self, trace_id: &str) -> Option<Value> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).records.get(trace_id).cloned()
    }
}
