//! What a client of the event stream has: the positions in an event's id, and how frames move them.
//!
//! `9001.1.42,@me.7`: session, epoch, highest seq; of the party's notices the highest number. What never happens here:
//! deciding what to replay; that is the connection's, which gets them as the `resume` frame every client may send.

use std::collections::BTreeMap;

use gateway_core::chat::frame::NOTICES;
use gateway_core::id::SessionId;
use serde::Deserialize;
use serde_json::{Value, json};

/// Sessions in an id: what one `resume` frame may name. A party with more resumes the ones it heard of last.
const SESSIONS_MAX: usize = 99;

/// Where a client stands.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Positions {
    /// Epoch and seq; and when it was last moved.
    sessions: BTreeMap<SessionId, (u32, u64, u64)>,
    notices: Option<u64>,
    moves: u64,
}

/// The members of frames that move a position.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Moving {
    #[serde(rename = "type")]
    kind: String,
    session_id: Option<String>,
    epoch: Option<String>,
    seq: Option<u64>,
    last_seq: Option<u64>,
    max_seq: Option<u64>,
    nseq: Option<u64>,
    #[serde(default)]
    sessions: Vec<Standing>,
    session: Option<Standing>,
}

/// A session as `hello`, `assigned` and `transferred` show it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Standing {
    session_id: String,
    epoch: String,
    max_seq: u64,
}

impl Positions {
    /// Reads an id. `None` when it is none of ours.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut positions = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let mut words = part.split('.');
            let name = words.next()?;
            if name == NOTICES || name == "%40me" {
                positions.notices = Some(words.next()?.parse().ok()?);
            } else {
                let session = SessionId::parse(name).ok()?;
                positions.set(session, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            }
            if words.next().is_some() {
                return None;
            }
        }
        Some(positions)
    }

    /// The id; empty when nothing is known.
    pub(super) fn encode(&self) -> String {
        let sessions = self.sessions.iter().map(|(session, (epoch, seq, _))| format!("{session}.{epoch}.{seq}"));
        sessions.chain(self.notices.map(|nseq| format!("{NOTICES}.{nseq}"))).collect::<Vec<_>>().join(",")
    }

    /// The frame that replays what came after; `None` when there is nothing to ask for.
    pub(super) fn resume(&self) -> Option<Value> {
        let sessions = self
            .sessions
            .iter()
            .map(|(session, (epoch, seq, _))| json!({ "sessionId": session.to_string(), "epoch": epoch.to_string(), "lastSeq": seq }));
        let notices = self.notices.map(|nseq| json!({ "sessionId": NOTICES, "lastSeq": nseq }));
        let positions: Vec<Value> = sessions.chain(notices).collect();
        (!positions.is_empty()).then(|| json!({ "type": "resume", "positions": positions }))
    }

    /// A frame is about to be written: moves what it moves, and says whether it moved anything.
    ///
    /// `hello` speaks of where the server is, not of what the client has: it sets only what the client did not claim.
    pub(super) fn follow(&mut self, frame: &str) -> bool {
        let Ok(frame) = serde_json::from_str::<Moving>(frame) else { return false };
        let before = self.moves;
        for entry in frame.sessions.iter().chain(&frame.session) {
            if let Ok(session) = SessionId::parse(&entry.session_id)
                && let Ok(epoch) = entry.epoch.parse()
                && !self.sessions.contains_key(&session)
            {
                self.set(session, epoch, entry.max_seq);
            }
        }
        let named = frame.session_id.as_deref();
        if named == Some(NOTICES) {
            self.notices = frame.last_seq.or(frame.max_seq).or(self.notices);
            self.moves += 1;
        } else if let Some(nseq) = frame.nseq {
            self.notices = self.notices.max(Some(nseq));
            self.moves += 1;
        } else if let Some(session) = named.and_then(|id| SessionId::parse(id).ok()) {
            let epoch = frame.epoch.as_deref().and_then(|epoch| epoch.parse().ok());
            match (frame.kind.as_str(), epoch) {
                ("resync" | "opened", Some(epoch)) => self.set(session, epoch, frame.max_seq.unwrap_or_default()),
                (_, Some(epoch)) if frame.seq.is_some() => self.set(session, epoch, frame.seq.unwrap_or_default()),
                _ => {}
            }
        }
        self.moves != before
    }

    fn set(&mut self, session: SessionId, epoch: u32, seq: u64) {
        self.moves += 1;
        if !self.sessions.contains_key(&session) && self.sessions.len() >= SESSIONS_MAX {
            let oldest = self.sessions.iter().min_by_key(|(_, (.., moved))| *moved).map(|(session, _)| *session);
            if let Some(oldest) = oldest {
                self.sessions.remove(&oldest);
            }
        }
        self.sessions.insert(session, (epoch, seq, self.moves));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        for id in ["", "9001.1.42", "9001.1.42,9002.3.7", "9001.1.42,@me.12", "@me.0"] {
            assert_eq!(Positions::parse(id).map(|positions| positions.encode()).as_deref(), Some(id));
        }
        assert_eq!(Positions::parse("%40me.3").unwrap().encode(), "@me.3");
        for bad in ["x", "9001", "9001.1", "9001.a.1", "9001.1.-1", "9001.1.1.1", "@me", "@me.x", "9001.1.42;9002.1.1"] {
            assert_eq!(Positions::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn it_follows_what_the_client_is_given() {
        let mut positions = Positions::parse("9001.1.42").unwrap();
        let hello =
            r#"{"type":"hello","sessions":[{"sessionId":"9001","epoch":"1","maxSeq":50},{"sessionId":"9002","epoch":"1","maxSeq":7}]}"#;
        assert!(positions.follow(hello), "what it did not claim begins where the server is");
        assert_eq!(positions.encode(), "9001.1.42,9002.1.7");
        assert!(positions.follow(r#"{"type":"text","sessionId":"9001","epoch":"1","seq":43,"content":"x"}"#));
        assert!(positions.follow(r#"{"type":"resync","sessionId":"9002","epoch":"2","maxSeq":3,"reason":"epoch"}"#));
        assert!(positions.follow(r#"{"type":"seckill_result","orderNo":"SK1","status":"success","nseq":4}"#));
        assert!(!positions.follow(r#"{"type":"typing","sessionId":"9001","by":"agent:7"}"#));
        assert!(!positions.follow(r#"{"type":"read","sessionId":"9001","by":"agent:7","lastSeq":99,"unread":0}"#), "others read");
        assert_eq!(positions.encode(), "9001.1.43,9002.2.3,@me.4");
    }

    #[test]
    fn it_stays_within_what_one_resume_may_name() {
        let mut positions = Positions::default();
        for session in 1..=200_u64 {
            positions.follow(&format!(r#"{{"type":"text","sessionId":"{session}","epoch":"1","seq":1}}"#));
        }
        assert_eq!(positions.sessions.len(), SESSIONS_MAX);
        assert!(positions.sessions.contains_key(&SessionId(200)), "the ones heard of last");
        assert_eq!(positions.resume().unwrap()["positions"].as_array().map(Vec::len), Some(SESSIONS_MAX));
        assert_eq!(Positions::default().resume(), None);
    }
}
