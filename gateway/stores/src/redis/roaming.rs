//! Roaming lists in Redis: per session a list of its latest messages, and how far it has come. The scripts are
//! `lua/chat/append.lua`, `after.lua` and `raise.lua`.
//!
//! A list and a top are two keys of two names, which a Cluster may keep on two servers, so no script touches both. Each says
//! something true by itself: a list has no gap, a top never goes back; where the two disagree the list is not complete.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, future};
use gateway_core::chat::{MessageRecord, Position};
use gateway_core::id::SessionId;
use gateway_core::ports::{PortResult, ROAMING_MAX, Roaming};
use redis::Pipeline;

use super::script::{Call, Script};
use super::{KEYS_AT_ONCE, RedisStore, nonsense};
use crate::error::failed;

static APPEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/chat/append.lua")));
static AFTER: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/chat/after.lua")));
static RAISE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/chat/raise.lua")));

/// A session is forgotten this long after its latest message.
const FORGOTTEN_AFTER_S: u32 = 7 * 24 * 3_600;

#[async_trait]
impl Roaming for RedisStore {
    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<Option<Position>>> {
        const DOING: &str = "ask how far sessions have come";
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let get = |commands: &mut Pipeline, session: &SessionId| {
            commands.cmd("GET").arg(top(*session));
        };
        let tops: Vec<Option<String>> = self.each(DOING, sessions, get).await?;
        tops.into_iter().map(|top| top.map(|top| position(DOING, &top)).transpose()).collect()
    }

    async fn append(&self, messages: &[MessageRecord]) -> PortResult<()> {
        let mut sessions: BTreeMap<SessionId, Vec<&MessageRecord>> = BTreeMap::new();
        for message in messages {
            sessions.entry(message.session).or_default().push(message);
        }
        let sessions: Vec<_> = sessions.into_iter().collect();
        // In a Cluster a script keeps to one slot, so each session gets calls of its own.
        let at_once = if self.link.is_cluster() { 1 } else { sessions.len().max(1) };
        let (raised, appended) = future::join(
            self.run_all("remember how far sessions have come", sessions.chunks(at_once).map(raise).collect()),
            self.run_all("append to roaming lists", sessions.chunks(at_once).map(append).collect()),
        )
        .await;
        raised.and(appended)
    }

    async fn after(&self, session: SessionId, seq: u64, epoch: u32, limit: u32) -> PortResult<Option<Vec<MessageRecord>>> {
        const DOING: &str = "read a roaming list";
        let mut call = AFTER.call();
        call.key(list(session)).arg(epoch).arg(seq).arg(limit);
        let sessions = [session];
        // Both at once: one round trip.
        let (tops, entries) = future::try_join(self.tops(&sessions), self.script::<Vec<redis::Value>>(DOING, &call)).await?;
        let mut entries = entries.into_iter();
        let (Some(&Some(top)), Some(last)) = (tops.first(), entries.next()) else { return Ok(None) };
        let last: u64 = redis::from_redis_value(last).map_err(|error| failed(DOING, nonsense(&error.to_string())))?;
        if (Position { epoch, seq: last }) != top {
            return Ok(None);
        }
        let read = |entry| {
            let entry: Vec<u8> = redis::from_redis_value(entry).map_err(|error| nonsense(&error.to_string()))?;
            MessageRecord::decode(&entry).map_err(|error| nonsense(&error.to_string()))
        };
        entries.map(read).collect::<Result<_, _>>().map(Some).map_err(|error| failed(DOING, error))
    }
}

impl RedisStore {
    async fn run_all(&self, doing: &'static str, calls: Vec<Call>) -> PortResult<()> {
        let runs = calls.into_iter().map(|call| self.run(doing, call));
        futures::stream::iter(runs).buffer_unordered(KEYS_AT_ONCE).try_collect().await
    }

    async fn run(&self, doing: &'static str, call: Call) -> PortResult<()> {
        self.script(doing, &call).await
    }
}

/// A session and what was committed in it.
type Committed<'a> = (SessionId, Vec<&'a MessageRecord>);

fn append(sessions: &[Committed<'_>]) -> Call {
    let mut call = APPEND.call();
    call.arg(ROAMING_MAX).arg(FORGOTTEN_AFTER_S);
    for (session, messages) in sessions {
        call.key(list(*session)).arg(messages.len());
        for message in messages {
            let taken_back = message.takes_back().map(|seq| seq.to_string()).unwrap_or_default();
            call.arg(message.epoch).arg(message.seq).arg(taken_back).arg(message.encode().as_ref());
        }
    }
    call
}

fn raise(sessions: &[Committed<'_>]) -> Call {
    let mut call = RAISE.call();
    call.arg(FORGOTTEN_AFTER_S);
    for (session, messages) in sessions {
        let Some((epoch, seq)) = messages.iter().map(|message| (message.epoch, message.seq)).max() else { continue };
        call.key(top(*session)).arg(epoch).arg(seq);
    }
    call
}

fn position(doing: &'static str, text: &str) -> PortResult<Position> {
    let parts = text.split_once(':').and_then(|(epoch, seq)| Some(Position { epoch: epoch.parse().ok()?, seq: seq.parse().ok()? }));
    parts.ok_or_else(|| failed(doing, nonsense(&format!("position {text}"))))
}

fn list(session: SessionId) -> String {
    format!("chat:roam:{session}")
}

fn top(session: SessionId) -> String {
    format!("chat:top:{session}")
}
