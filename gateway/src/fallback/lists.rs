//! Reading: a party's sessions, the messages of one, and what an agent sees of its shop.
//!
//! What never happens here: changing anything. Somebody else's session and one that does not exist are the same answer on the
//! same road: the ledger's look-up with the party in it.

use std::ops::RangeInclusive;

use gateway_core::chat::frame::{SEQ_END, SessionEntry, message_frame};
use gateway_core::chat::{MessageRecord, Page, Party, SessionRecord, Side};
use gateway_core::id::{SessionId, ShopId};
use serde_json::{Value, json};

use crate::clock;
use crate::fallback::field;
use crate::node::Node;
use crate::routes::outcome::{Failure, Outcome};
use crate::socket::reads;

/// Sessions in one answer; a user has a handful, a busy agent some hundreds.
const SESSIONS_MAX: u32 = 1_000;

/// Messages of a page when the client names no limit.
const LIMIT_DEFAULT: u32 = 50;

/// Bytes of a message besides its content, at most: names, two ids of 64 bytes and numbers.
const ROW_BYTES: usize = 400;

/// `GET /api/chat/sessions`.
pub(crate) async fn sessions(node: &Node, party: &Party) -> Result<Outcome, Failure> {
    let sessions = node.ports.chats.sessions(party, SESSIONS_MAX).await?;
    Ok(Outcome::Data(json!({ "sessions": entries(&sessions, party.side) })))
}

/// `GET /api/chat/waiting`: who waits longest comes first.
pub(crate) async fn waiting(node: &Node, party: &Party) -> Result<Outcome, Failure> {
    let shop = shop(party)?;
    let sessions = node.ports.chats.waiting(shop).await?;
    let count = node.ports.chats.waiting_count(shop).await?;
    let waiting: Vec<Value> = sessions
        .iter()
        .map(|session| {
            let mut entry = json!(SessionEntry::of(session, party.side));
            entry["waitingSince"] = json!(session.clocks.waiting_since.map(|since| since.0));
            entry
        })
        .collect();
    Ok(Outcome::Data(json!({ "count": count, "sessions": waiting })))
}

/// `GET /api/chat/agents`: whom a session can be handed to.
pub(crate) async fn agents(node: &Node, party: &Party) -> Result<Outcome, Failure> {
    let shop = shop(party)?;
    let loads = node.ports.chats.agents(shop).await?;
    let parties: Vec<Party> = loads.iter().map(|load| Party::agent(shop, load.agent.clone())).collect();
    let online = node.ports.presence.online(&parties, clock::now()).await?;
    let agents: Vec<Value> = loads
        .iter()
        .zip(online)
        .map(|(load, online)| {
            let state = if online { load.state.as_str() } else { "offline" };
            json!({ "agentId": load.agent.as_str(), "state": state, "openSessions": load.open_sessions, "unread": load.unread })
        })
        .collect();
    Ok(Outcome::Data(json!({ "agents": agents })))
}

/// `GET /api/chat/messages`.
pub(crate) async fn messages(node: &Node, party: &Party, query: &str) -> Result<Outcome, Failure> {
    let Wanted { session: id, page } = Wanted::parse(query, node.config.chat.page_max)?;
    let session = node.ports.chats.session(party, id).await?.ok_or(Failure::NotFound)?;
    let messages = reads::page(node, id, page, Some(session.top)).await?;
    let shown = fitting(&messages, page, node.config.chat.queue_bytes_max);
    // Rows may have come since the session was read.
    let max_seq = shown.last().map_or(session.top.seq, |last| last.seq.max(session.top.seq));
    let has_more = match page {
        Page::After { .. } => shown.last().is_some_and(|last| last.seq < max_seq),
        Page::Before { .. } => shown.first().is_some_and(|first| first.seq > 1),
    };
    Ok(Outcome::Data(json!({
        "sessionId": id.to_string(), "epoch": session.top.epoch.to_string(), "maxSeq": max_seq, "hasMore": has_more,
        "messages": shown.iter().map(push).collect::<Vec<_>>(),
    })))
}

/// Which messages a query asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    session: SessionId,
    page: Page,
}

impl Wanted {
    fn parse(query: &str, page_max: u32) -> Result<Self, Failure> {
        let session = field(query, "sessionId").ok_or_else(|| Failure::BadRequest("sessionId is missing".into()))?;
        let session = SessionId::parse(session).map_err(|error| Failure::BadRequest(error.to_string()))?;
        let limit = match number(query, "limit", 1..=u64::from(page_max))? {
            None => LIMIT_DEFAULT.min(page_max),
            Some(limit) => u32::try_from(limit).unwrap_or(page_max),
        };
        let page = match (number(query, "afterSeq", 0..=SEQ_END - 1)?, number(query, "beforeSeq", 1..=SEQ_END - 1)?) {
            (Some(_), Some(_)) => return Err(Failure::BadRequest("give afterSeq or beforeSeq, not both".into())),
            (Some(seq), None) => Page::After { seq, limit },
            (None, before) => Page::Before { seq: before.unwrap_or(SEQ_END), limit },
        };
        Ok(Self { session, page })
    }
}

fn number(query: &str, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Failure> {
    let Some(text) = field(query, name) else { return Ok(None) };
    // `parse` alone takes a sign.
    let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match number.filter(|number| range.contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(Failure::BadRequest(format!("{name} must be an integer from {} to {}", range.start(), range.end()))),
    }
}

/// The messages next to the place the client has, as many as go into `room` bytes, and at least one.
fn fitting(messages: &[MessageRecord], page: Page, mut room: usize) -> &[MessageRecord] {
    let mut fits = |message: &&MessageRecord| {
        let bytes = message.content.len() + ROW_BYTES;
        let fits = room >= bytes;
        room = room.saturating_sub(bytes);
        fits
    };
    let at_least = messages.len().min(1);
    match page {
        Page::After { .. } => &messages[..messages.iter().take_while(&mut fits).count().max(at_least)],
        Page::Before { .. } => &messages[messages.len() - messages.iter().rev().take_while(&mut fits).count().max(at_least)..],
    }
}

fn entries(sessions: &[SessionRecord], side: Side) -> Vec<SessionEntry<'_>> {
    sessions.iter().map(|session| SessionEntry::of(session, side)).collect()
}

fn push(message: &MessageRecord) -> Value {
    // Made by the line before, so it parses.
    serde_json::from_str(&message_frame(message)).unwrap_or(Value::Null)
}

fn shop(party: &Party) -> Result<ShopId, Failure> {
    party.shop.ok_or(Failure::Forbidden("only agents see their shop"))
}

#[cfg(test)]
mod tests {
    use gateway_core::id::{ClientMsgId, PrincipalId};
    use gateway_core::time::UnixMillis;

    use super::*;

    fn page(query: &str) -> Option<Page> {
        Wanted::parse(query, 200).ok().map(|wanted| wanted.page)
    }

    #[test]
    fn a_query_names_a_session_and_one_direction() {
        assert_eq!(page("sessionId=9001&afterSeq=0&limit=200"), Some(Page::After { seq: 0, limit: 200 }));
        assert_eq!(page("sessionId=9001&beforeSeq=42"), Some(Page::Before { seq: 42, limit: 50 }));
        assert_eq!(page("sessionId=9001"), Some(Page::Before { seq: SEQ_END, limit: 50 }));
        for bad in [
            "",
            "sessionId=x",
            "sessionId=1&afterSeq=-1",
            "sessionId=1&afterSeq=+1",
            "sessionId=1&afterSeq=1.5",
            "sessionId=1&afterSeq=",
            "sessionId=1&afterSeq=9007199254740992",
            "sessionId=1&beforeSeq=0",
            "sessionId=1&limit=0",
            "sessionId=1&limit=201",
            "sessionId=1&afterSeq=1&beforeSeq=2",
        ] {
            assert_eq!(page(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_page_of_large_messages_is_cut_at_the_far_end() {
        let message = |seq: u64| MessageRecord {
            session: SessionId(1),
            epoch: 1,
            seq,
            side: Side::User,
            sender: PrincipalId::parse("u").unwrap(),
            client_msg_id: ClientMsgId::parse("m").unwrap(),
            kind: "text".into(),
            content: "x".repeat(600),
            recalled: false,
            bot: false,
            at: UnixMillis(0),
        };
        let all: Vec<_> = (1..=5).map(message).collect();
        let seqs = |page, room| fitting(&all, page, room).iter().map(|message| message.seq).collect::<Vec<_>>();
        assert_eq!(seqs(Page::After { seq: 0, limit: 5 }, 2_500), [1, 2]);
        assert_eq!(seqs(Page::Before { seq: 6, limit: 5 }, 2_500), [4, 5]);
        assert_eq!(seqs(Page::After { seq: 0, limit: 5 }, 1), [1], "never none: the client would ask for ever");
        assert_eq!(fitting(&[], Page::After { seq: 0, limit: 5 }, 1).len(), 0);
    }
}
