//! Decision records: for each request, which policies said what, found by trace id.
//!
//! A ring of the latest records; older ones fall out. Kept as they come, and made JSON only for whoever asks. Written by the
//! edge and the sockets, read by the admin API.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use gateway_core::id::{ClientMsgId, PrincipalId, SessionId};
use gateway_core::policy::chain::{ChainState, Decision, DecisionOutcome};
use gateway_kit::replay::line;
use serde_json::{Map, Value, json};

/// Records kept; at about 500 bytes each, 5 MB.
const KEPT: usize = 10_000;
/// Messages kept of one socket: the latest.
const MESSAGES_KEPT: usize = 32;

/// The latest decision records.
#[derive(Default)]
pub(crate) struct Decisions {
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    order: VecDeque<String>,
    records: HashMap<String, Record>,
}

/// What is known under one trace id.
#[derive(Default)]
struct Record {
    request: Option<RequestRecord>,
    /// The messages of the socket that the request opened, oldest first.
    messages: VecDeque<MessageRecord>,
}

/// One request.
pub(crate) struct RequestRecord {
    /// Where it went.
    pub route: Arc<str>,
    /// Its method.
    pub method: String,
    /// Its path, without a token.
    pub path: String,
    /// What it was answered.
    pub status: u16,
    /// What its chain came to.
    pub verdicts: Verdicts,
}

/// One chat message.
pub(crate) struct MessageRecord {
    /// The sender's id for it.
    pub client_msg_id: ClientMsgId,
    /// Its session.
    pub session: SessionId,
    /// The code it was refused with.
    pub refused: Option<String>,
    /// What its chain came to.
    pub verdicts: Verdicts,
}

/// What a chain came to.
pub(crate) struct Verdicts {
    principal: Option<PrincipalId>,
    /// What each policy said, and the word for the version that said it.
    decisions: Vec<(Decision, &'static str)>,
    budgets: Vec<String>,
    tags: Vec<String>,
    score: u8,
}

impl Verdicts {
    /// Takes the decisions out of `state`.
    pub(crate) fn take(state: &mut ChainState, budgets: Vec<String>) -> Self {
        let decisions = std::mem::take(&mut state.decisions);
        let with_side = |decision: Decision| {
            let side = line::side(state.side_of(&decision.policy));
            (decision, side)
        };
        Self {
            principal: state.facts.principal.as_ref().map(|principal| principal.id.clone()),
            decisions: decisions.into_iter().map(with_side).collect(),
            budgets,
            tags: std::mem::take(&mut state.facts.tags),
            score: state.score,
        }
    }

    fn json(&self) -> Map<String, Value> {
        let mut record = Map::new();
        record.insert("principal".into(), json!(self.principal.as_ref().map_or("-", PrincipalId::as_str)));
        record.insert("policies".into(), self.decisions.iter().map(|(decision, side)| verdict(decision, side)).collect());
        record.insert("budgets".into(), json!(self.budgets));
        record.insert("tags".into(), json!(self.tags));
        record.insert("score".into(), json!(self.score));
        record
    }
}

fn verdict(decision: &Decision, side: &str) -> Value {
    let Decision { policy, version, phase, micros, outcome } = decision;
    let mut verdict = json!({ "policy": &**policy, "version": &**version, "side": side, "phase": phase.as_str(), "micros": micros,
        "outcome": outcome.as_str() });
    match outcome {
        DecisionOutcome::Proceed => {}
        DecisionOutcome::Refuse(code) | DecisionOutcome::WouldRefuse(code) => verdict["code"] = json!(code),
        DecisionOutcome::FailedOpen(_) => verdict["fail"] = json!("open"),
        DecisionOutcome::FailedClosed(_) => verdict["fail"] = json!("closed"),
    }
    verdict
}

impl Decisions {
    /// Keeps the record of a request, replacing an earlier one of the same trace id.
    pub(crate) fn keep(&self, trace_id: &str, request: RequestRecord) {
        self.change(trace_id, |record| record.request = Some(request));
    }

    /// Keeps the record of a message under the trace id of its socket.
    pub(crate) fn keep_message(&self, trace_id: &str, message: MessageRecord) {
        self.change(trace_id, |record| {
            if record.messages.len() >= MESSAGES_KEPT {
                record.messages.pop_front();
            }
            record.messages.push_back(message);
        });
    }

    fn change(&self, trace_id: &str, change: impl FnOnce(&mut Record)) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = ring.records.get_mut(trace_id) {
            return change(record);
        }
        let mut record = Record::default();
        change(&mut record);
        ring.records.insert(trace_id.to_owned(), record);
        ring.order.push_back(trace_id.to_owned());
        if ring.order.len() > KEPT
            && let Some(oldest) = ring.order.pop_front()
        {
            ring.records.remove(&oldest);
        }
    }

    /// The record of a request, with the messages of the socket that it opened.
    pub(crate) fn find(&self, trace_id: &str) -> Option<Value> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let Record { request, messages } = ring.records.get(trace_id)?;
        let mut found = request.as_ref().map(RequestRecord::json).unwrap_or_default();
        found.insert("traceId".into(), json!(trace_id));
        if !messages.is_empty() {
            found.insert("messages".into(), messages.iter().map(MessageRecord::json).collect());
        }
        Some(found.into())
    }
}

impl RequestRecord {
    fn json(&self) -> Map<String, Value> {
        let Self { route, method, path, status, verdicts } = self;
        let mut record = verdicts.json();
        record.extend([
            ("route".to_owned(), json!(&**route)),
            ("method".to_owned(), json!(method)),
            ("path".to_owned(), json!(path)),
            ("status".to_owned(), json!(status)),
        ]);
        record
    }
}

impl MessageRecord {
    fn json(&self) -> Value {
        let mut record = self.verdicts.json();
        record.insert("clientMsgId".into(), json!(self.client_msg_id.as_str()));
        record.insert("sessionId".into(), json!(self.session.to_string()));
        if let Some(code) = &self.refused {
            record.insert("refused".into(), json!(code));
        }
        record.into()
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::policy::{Facts, Fault, Phase};
    use gateway_core::time::UnixMillis;

    use super::*;

    fn verdicts(outcomes: Vec<DecisionOutcome>) -> Verdicts {
        let mut state = ChainState::new(Facts { now: UnixMillis(0), principal: None, device: None, tags: vec!["t".into()] });
        let decision = |outcome| Decision { policy: "p".into(), version: "abc".into(), phase: Phase::Request, micros: 7, outcome };
        state.decisions = outcomes.into_iter().map(decision).collect();
        Verdicts::take(&mut state, vec!["b".into()])
    }

    fn request(outcomes: Vec<DecisionOutcome>) -> RequestRecord {
        RequestRecord { route: "r".into(), method: "GET".into(), path: "/".into(), status: 200, verdicts: verdicts(outcomes) }
    }

    fn message(number: usize) -> MessageRecord {
        let client_msg_id = ClientMsgId::parse(&format!("m{number}")).unwrap();
        MessageRecord { client_msg_id, session: SessionId(1), refused: None, verdicts: verdicts(Vec::new()) }
    }

    #[test]
    fn a_record_says_who_said_what_and_what_it_came_to() {
        let decisions = Decisions::default();
        decisions.keep("t1", request(vec![DecisionOutcome::WouldRefuse("NO".into()), DecisionOutcome::FailedOpen(Fault::Trap)]));
        let found = decisions.find("t1").unwrap();
        let verdict =
            |outcome: &str| json!({ "policy": "p", "version": "abc", "side": "live", "phase": "request", "micros": 7, "outcome": outcome });
        let (mut dry, mut failed) = (verdict("would-refuse"), verdict("trap"));
        (dry["code"], failed["fail"]) = (json!("NO"), json!("open"));
        assert_eq!(found["policies"], json!([dry, failed]));
        assert_eq!((&found["budgets"], &found["tags"], &found["traceId"]), (&json!(["b"]), &json!(["t"]), &json!("t1")));
        assert_eq!(decisions.find("t2"), None);
    }

    #[test]
    fn a_socket_keeps_its_latest_messages_whether_its_request_is_told_before_or_after() {
        let decisions = Decisions::default();
        for number in 0..40 {
            decisions.keep_message("t", message(number));
        }
        decisions.keep("t", request(Vec::new()));
        let found = decisions.find("t").unwrap();
        let messages = found["messages"].as_array().unwrap();
        assert_eq!((messages.len(), &messages[0]["clientMsgId"], &found["status"]), (32, &json!("m8"), &json!(200)));
    }

    #[test]
    fn the_oldest_record_makes_room() {
        let decisions = Decisions::default();
        for number in 0..=KEPT {
            decisions.keep(&number.to_string(), request(Vec::new()));
        }
        assert!(decisions.find("0").is_none() && decisions.find("1").is_some());
    }
}
