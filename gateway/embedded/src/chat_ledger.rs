//! [`ChatLedger`] in memory: sessions, messages, agents and leases under one lock, so that each call is one transaction.
//!
//! Bounds: at most [`SESSIONS_MAX`] sessions, [`MESSAGES_MAX`] messages and [`AGENTS_MAX`] agents; leases are at most one
//! per partition number. Called through the port only.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::chat::{
    AgentLoad, Committed, Lease, MessageRecord, Page, Party, Position, ReadMark, Send as ChatSend, SessionRecord, Side,
};
use gateway_core::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use gateway_core::ports::{ChatLedger, PortError, PortErrorKind, PortResult, Store};
use gateway_core::time::UnixMillis;

use crate::{Clock, full, lock, too_many};

/// Sessions kept at most.
pub const SESSIONS_MAX: usize = 100_000;

/// Messages kept at most, over all sessions; each is at most 64 KiB and usually a thousandth of that.
pub const MESSAGES_MAX: usize = 1_000_000;

/// Agents kept at most, over all shops.
pub const AGENTS_MAX: usize = 100_000;

/// The port's bounds.
const SENDS_MAX: usize = 256;
const AGENTS_LISTED_MAX: usize = 1_000;
const WAITING_LISTED_MAX: usize = 100;
const PAGE_MAX: u32 = 200;

/// The epoch of every session: this store never comes back with fewer messages, it comes back empty.
const EPOCH: u32 = 1;

/// Chat sessions and messages in memory.
pub struct EmbeddedChatLedger {
    clock: Clock,
    books: Mutex<Books>,
}

impl EmbeddedChatLedger {
    /// Empty books; leases run by `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, books: Mutex::default() }
    }
}

#[async_trait]
impl ChatLedger for EmbeddedChatLedger {
    async fn open_session(&self, shop: ShopId, user: &PrincipalId, subject: &str, now: UnixMillis) -> PortResult<SessionRecord> {
        let mut books = lock(&self.books);
        let opened = (shop, user.clone(), subject.to_owned());
        let known = books.opened.get(&opened).and_then(|id| books.sessions.get(id));
        if let Some(session) = known.filter(|session| session.open) {
            return Ok(session.record());
        }
        if books.sessions.len() >= SESSIONS_MAX {
            return Err(full(Store::Mysql, "open a session"));
        }
        let id = SessionId(books.sessions.len() as u64 + 1);
        let session = Session {
            id,
            no: books.next_session_no(now),
            shop,
            user: user.clone(),
            agent: None,
            subject: subject.to_owned(),
            open: true,
            read: PerSide::default(),
            messages: Vec::new(),
            known: HashMap::new(),
            active: (now, id.0),
        };
        let record = session.record();
        books.sessions.insert(id, session);
        books.opened.insert(opened, id);
        Ok(record)
    }

    async fn upsert_agent(&self, shop: ShopId, agent: &PrincipalId) -> PortResult<()> {
        let mut books = lock(&self.books);
        if books.agents.len() >= AGENTS_MAX {
            return Err(full(Store::Mysql, "register an agent"));
        }
        books.agents.insert((shop, agent.clone()));
        Ok(())
    }

    async fn agents(&self, shop: ShopId) -> PortResult<Vec<AgentLoad>> {
        let books = lock(&self.books);
        let mut loads: BTreeMap<&PrincipalId, AgentLoad> = books
            .agents
            .iter()
            .filter(|(of, _)| *of == shop)
            .take(AGENTS_LISTED_MAX)
            .map(|(_, agent)| (agent, AgentLoad { agent: agent.clone(), unread: 0, open_sessions: 0 }))
            .collect();
        for session in books.sessions.values().filter(|session| session.shop == shop && session.open) {
            if let Some(load) = session.agent.as_ref().and_then(|agent| loads.get_mut(agent)) {
                load.open_sessions += 1;
                load.unread += session.unread(Side::Agent);
            }
        }
        Ok(loads.into_values().collect())
    }

    async fn waiting(&self, shop: ShopId) -> PortResult<Vec<SessionRecord>> {
        let books = lock(&self.books);
        let waiting = books.sessions.values().filter(|session| session.shop == shop && session.open && session.agent.is_none());
        Ok(waiting.take(WAITING_LISTED_MAX).map(Session::record).collect())
    }

    async fn assign(&self, session: SessionId, agent: &PrincipalId) -> PortResult<bool> {
        let Books { sessions, agents, .. } = &mut *lock(&self.books);
        let session = sessions.get_mut(&session);
        let Some(session) = session.filter(|session| session.open && session.agent.is_none()) else { return Ok(false) };
        if !agents.contains(&(session.shop, agent.clone())) {
            return Ok(false);
        }
        session.agent = Some(agent.clone());
        Ok(true)
    }

    async fn session(&self, party: &Party, session: SessionId) -> PortResult<Option<SessionRecord>> {
        let books = lock(&self.books);
        Ok(books.sessions.get(&session).filter(|session| session.admits(party)).map(Session::record))
    }

    async fn sessions(&self, party: &Party, limit: u32) -> PortResult<Vec<SessionRecord>> {
        let books = lock(&self.books);
        let mut own: Vec<&Session> = books.sessions.values().filter(|session| session.open && session.belongs_to(party)).collect();
        own.sort_by_key(|session| Reverse(session.active));
        Ok(own.into_iter().take(limit as usize).map(Session::record).collect())
    }

    async fn lease(&self, partition: u16, owner: &str, ttl: Duration) -> PortResult<Option<Lease>> {
        let now = (self.clock)();
        let mut books = lock(&self.books);
        let held = books.leases.entry(partition).or_default();
        if held.owner != owner {
            if held.until > now {
                return Ok(None);
            }
            *held = Held { owner: owner.to_owned(), token: held.token + 1, until: now };
        }
        held.until = now.plus(ttl);
        Ok(Some(Lease { partition, owner: owner.to_owned(), token: held.token }))
    }

    async fn commit(&self, lease: &Lease, sends: &[ChatSend], now: UnixMillis) -> PortResult<Vec<Committed>> {
        if sends.len() > SENDS_MAX {
            return Err(too_many(Store::Mysql, "commit messages"));
        }
        let mut books = lock(&self.books);
        // The token alone fences: an expired lease that nobody took over still excludes everybody else.
        let held = books.leases.get(&lease.partition);
        if held.is_none_or(|held| held.owner != lease.owner || held.token != lease.token) {
            return Err(PortError { kind: PortErrorKind::Fenced, store: Store::Mysql, doing: "commit messages", source: None });
        }
        if books.messages + sends.len() > MESSAGES_MAX {
            return Err(full(Store::Mysql, "commit messages"));
        }
        Ok(sends.iter().map(|send| books.commit(send, now)).collect())
    }

    async fn messages(&self, session: SessionId, page: Page) -> PortResult<Vec<MessageRecord>> {
        let books = lock(&self.books);
        Ok(books.sessions.get(&session).map(|session| session.page(page)).unwrap_or_default())
    }

    async fn mark_read(&self, session: SessionId, side: Side, seq: u64) -> PortResult<ReadMark> {
        let mut books = lock(&self.books);
        let Some(session) = books.sessions.get_mut(&session) else { return Ok(ReadMark::NotFound) };
        if seq > session.top().seq {
            return Ok(ReadMark::OutOfRange);
        }
        let cursor = session.read.of_mut(side);
        *cursor = seq.max(*cursor);
        let seq = *cursor;
        Ok(ReadMark::At { seq, unread: session.unread(side) })
    }

    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<(SessionId, Position)>> {
        let books = lock(&self.books);
        Ok(sessions.iter().filter_map(|id| Some((*id, books.sessions.get(id)?.top()))).collect())
    }
}

#[derive(Default)]
struct Books {
    /// By id, so also by age.
    sessions: BTreeMap<SessionId, Session>,
    /// The latest session of each user, shop and subject.
    opened: HashMap<(ShopId, PrincipalId, String), SessionId>,
    agents: BTreeSet<(ShopId, PrincipalId)>,
    leases: HashMap<u16, Held>,
    /// Messages over all sessions.
    messages: usize,
    /// Stamps activity, so that two sessions used in one millisecond still have an order.
    activity: u64,
    /// The day of the last session number, and how many that day had.
    numbered: (String, u64),
}

#[derive(Default)]
struct Held {
    owner: String,
    token: u64,
    until: UnixMillis,
}

impl Books {
    /// `CS`, the date in UTC, and the running number of that day.
    fn next_session_no(&mut self, now: UnixMillis) -> String {
        let at =
            i64::try_from(now.0).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok()).unwrap_or(jiff::Timestamp::MAX);
        let day = at.strftime("%Y%m%d").to_string();
        if self.numbered.0 != day {
            self.numbered = (day, 0);
        }
        self.numbered.1 += 1;
        format!("CS{}{:03}", self.numbered.0, self.numbered.1)
    }

    fn commit(&mut self, send: &ChatSend, now: UnixMillis) -> Committed {
        let session = self.sessions.get_mut(&send.session);
        let Some(session) = session.filter(|session| session.admits(&send.sender)) else { return Committed::NotFound };
        let idempotence = (send.sender.side, send.sender.id.clone(), send.client_msg_id.clone());
        if let Some(stored) = session.known.get(&idempotence).and_then(|seq| session.at(*seq)) {
            if stored.kind != send.kind || stored.content != send.content {
                return Committed::Conflict;
            }
            return session.stored(stored.clone(), true);
        }
        if !session.open {
            return Committed::Closed;
        }
        let message = session.append(send, now);
        session.known.insert(idempotence, message.seq);
        self.messages += 1;
        self.activity += 1;
        session.active = (now, self.activity);
        session.stored(message, false)
    }
}

/// One number for each side.
#[derive(Clone, Copy, Default)]
struct PerSide {
    user: u64,
    agent: u64,
}

impl PerSide {
    fn of(self, side: Side) -> u64 {
        match side {
            Side::User => self.user,
            Side::Agent => self.agent,
        }
    }

    fn of_mut(&mut self, side: Side) -> &mut u64 {
        match side {
            Side::User => &mut self.user,
            Side::Agent => &mut self.agent,
        }
    }
}

struct Session {
    id: SessionId,
    no: String,
    shop: ShopId,
    user: PrincipalId,
    agent: Option<PrincipalId>,
    subject: String,
    open: bool,
    /// How far each side has read.
    read: PerSide,
    /// The message with seq n stands at n - 1, with the messages each side had sent up to and including it.
    messages: Vec<(MessageRecord, PerSide)>,
    known: HashMap<(Side, PrincipalId, ClientMsgId), u64>,
    /// Orders sessions by their last activity.
    active: (UnixMillis, u64),
}

impl Session {
    /// Whether `party` may see the session and speak in it: its user, and whoever speaks for its shop.
    fn admits(&self, party: &Party) -> bool {
        match party.side {
            Side::User => self.user == party.id,
            Side::Agent => party.shop == Some(self.shop),
        }
    }

    /// Whether it is one of the party's own: its user, or the agent who serves it.
    fn belongs_to(&self, party: &Party) -> bool {
        self.admits(party) && (party.side == Side::User || self.agent.as_ref() == Some(&party.id))
    }

    fn top(&self) -> Position {
        Position { epoch: EPOCH, seq: self.messages.len() as u64 }
    }

    fn index(seq: u64) -> Option<usize> {
        usize::try_from(seq.checked_sub(1)?).ok()
    }

    fn at(&self, seq: u64) -> Option<&MessageRecord> {
        self.messages.get(Self::index(seq)?).map(|(message, _)| message)
    }

    /// Messages each side had sent up to and including `seq`.
    fn sent_up_to(&self, seq: u64) -> PerSide {
        Self::index(seq).and_then(|index| self.messages.get(index)).map(|(_, sent)| *sent).unwrap_or_default()
    }

    /// What the other side sent and `side` has not read: a difference of two sums, so it cannot drift.
    fn unread(&self, side: Side) -> u64 {
        let other = match side {
            Side::User => Side::Agent,
            Side::Agent => Side::User,
        };
        self.sent_up_to(self.top().seq).of(other) - self.sent_up_to(self.read.of(side)).of(other)
    }

    fn append(&mut self, send: &ChatSend, now: UnixMillis) -> MessageRecord {
        let mut sent = self.sent_up_to(self.top().seq);
        *sent.of_mut(send.sender.side) += 1;
        let message = MessageRecord {
            session: self.id,
            epoch: EPOCH,
            seq: self.top().seq + 1,
            side: send.sender.side,
            sender: send.sender.id.clone(),
            client_msg_id: send.client_msg_id.clone(),
            kind: send.kind.clone(),
            content: send.content.clone(),
            bot: send.bot,
            at: now,
        };
        self.messages.push((message.clone(), sent));
        message
    }

    fn stored(&self, message: MessageRecord, dup: bool) -> Committed {
        Committed::Stored { message, dup, user: self.user.clone(), agent: self.agent.clone() }
    }

    fn page(&self, page: Page) -> Vec<MessageRecord> {
        let place = |seq: u64| usize::try_from(seq).unwrap_or(usize::MAX).min(self.messages.len());
        let size = |limit: u32| limit.min(PAGE_MAX) as usize;
        let range = match page {
            Page::After { seq, limit } => place(seq)..place(seq).saturating_add(size(limit)).min(self.messages.len()),
            Page::Before { seq, limit } => place(seq.saturating_sub(1)).saturating_sub(size(limit))..place(seq.saturating_sub(1)),
        };
        self.messages[range].iter().map(|(message, _)| message.clone()).collect()
    }

    fn record(&self) -> SessionRecord {
        SessionRecord {
            id: self.id,
            no: self.no.clone(),
            shop: self.shop,
            user: self.user.clone(),
            agent: self.agent.clone(),
            subject: self.subject.clone(),
            open: self.open,
            top: self.top(),
            user_seq: self.read.user,
            agent_seq: self.read.agent,
            user_unread: self.unread(Side::User),
            agent_unread: self.unread(Side::Agent),
        }
    }
}
