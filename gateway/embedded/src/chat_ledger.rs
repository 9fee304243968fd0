//! Chat sessions in memory: one lock, so every call is one step.
//!
//! `session` holds what happens inside one session. Bounded by [`SESSIONS_MAX`] sessions, [`MESSAGES_MAX`] messages,
//! [`AGENTS_MAX`] agents and [`HANDOVERS_MAX`] handovers; leases are at most one per partition number. Called through the port
//! only.

mod session;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::chat::sla::{self, Targets};
use gateway_core::chat::{
    AgentLoad, AgentState, Committed, DeviceCursor, Handover, HandoverOutcome, HandoverRecord, Lease, Mark, MarkOutcome, MessageRecord,
    Page, Party, Position, Send as ChatSend, Serving, SessionRecord, Side,
};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use gateway_core::ports::{ChatLedger, PortError, PortErrorKind, PortResult, Store};
use gateway_core::time::UnixMillis;
use session::Session;

use crate::{Clock, full, lock, too_many};

/// Sessions kept at most.
pub const SESSIONS_MAX: usize = 100_000;

/// Messages kept at most, over all sessions; each is at most 64 KiB and usually a thousandth of that.
pub const MESSAGES_MAX: usize = 1_000_000;

/// Agents kept at most, over all shops.
pub const AGENTS_MAX: usize = 100_000;

/// Handovers kept at most, over all sessions; then the oldest are forgotten.
pub const HANDOVERS_MAX: usize = 10_000;

/// The port's bounds.
const SENDS_MAX: usize = 256;
const AGENTS_LISTED_MAX: usize = 1_000;
const SHOPS_LISTED_MAX: usize = 1_000;
const WAITING_LISTED_MAX: usize = 100;
const OVERDUE_LISTED_MAX: u32 = 100;
const HANDOVERS_LISTED_MAX: usize = 100;

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
        if let Some(session) = known.filter(|session| session.is_open()) {
            return Ok(session.record());
        }
        if books.sessions.len() >= SESSIONS_MAX {
            return Err(full(Store::Mysql, "open a session"));
        }
        let id = SessionId(books.sessions.len() as u64 + 1);
        let session = Session::open(id, books.next_session_no(now), opened.clone(), now);
        let record = session.record();
        books.sessions.insert(id, session);
        books.opened.insert(opened, id);
        Ok(record)
    }

    async fn close_session(&self, party: &Party, session: SessionId, now: UnixMillis) -> PortResult<Option<(SessionRecord, bool)>> {
        let mut books = lock(&self.books);
        let session = books.sessions.get_mut(&session).filter(|session| session.belongs_to(party));
        Ok(session.map(|session| {
            let closed = session.close(now);
            (session.record(), closed)
        }))
    }

    async fn upsert_agent(&self, shop: ShopId, agent: &PrincipalId, now: UnixMillis) -> PortResult<()> {
        let Books { agents, .. } = &mut *lock(&self.books);
        let key = (shop, agent.clone());
        if agents.len() >= AGENTS_MAX && !agents.contains_key(&key) {
            return Err(full(Store::Mysql, "register an agent"));
        }
        agents.entry(key).or_default().see(now);
        Ok(())
    }

    async fn set_agent(&self, shop: ShopId, agent: &PrincipalId, state: AgentState, open_max: Option<u32>) -> PortResult<()> {
        if let Some(agent) = lock(&self.books).agents.get_mut(&(shop, agent.clone())) {
            agent.state = state;
            agent.open_max = open_max.or(agent.open_max);
        }
        Ok(())
    }

    async fn see_agents(&self, agents: &[(ShopId, PrincipalId)], now: UnixMillis) -> PortResult<()> {
        let mut books = lock(&self.books);
        for key in agents {
            if let Some(agent) = books.agents.get_mut(key) {
                agent.see(now);
            }
        }
        Ok(())
    }

    async fn agents(&self, shop: ShopId) -> PortResult<Vec<AgentLoad>> {
        let books = lock(&self.books);
        let load = |(id, agent): (&PrincipalId, &Agent)| {
            let Agent { state, open_max, .. } = *agent;
            AgentLoad { agent: id.clone(), state, open_max, unread: 0, open_sessions: 0 }
        };
        let of_shop = books.agents.iter().filter(|((of, _), _)| *of == shop).take(AGENTS_LISTED_MAX);
        let mut loads: BTreeMap<&PrincipalId, AgentLoad> = of_shop.map(|((_, id), agent)| (id, load((id, agent)))).collect();
        for session in books.open_sessions().filter(|session| session.shop() == shop) {
            if let Some(load) = session.agent().and_then(|agent| loads.get_mut(agent)) {
                load.open_sessions += 1;
                load.unread += session.unread(Side::Agent);
            }
        }
        Ok(loads.into_values().collect())
    }

    async fn serving(&self, after: Option<(ShopId, &PrincipalId)>, max: u32) -> PortResult<Vec<Serving>> {
        let books = lock(&self.books);
        let mut serving: BTreeMap<(ShopId, &PrincipalId), u64> = BTreeMap::new();
        for session in books.open_sessions() {
            if let Some(agent) = session.agent() {
                *serving.entry((session.shop(), agent)).or_default() += 1;
            }
        }
        let next = serving.into_iter().filter(|(key, _)| after.is_none_or(|after| *key > after));
        let known = next.filter_map(|((shop, agent), open_sessions)| {
            let Agent { state, seen_at, .. } = *books.agents.get(&(shop, agent.clone()))?;
            Some(Serving { shop, agent: agent.clone(), state, seen_at, open_sessions })
        });
        Ok(known.take(AGENTS_LISTED_MAX.min(max as usize)).collect())
    }

    async fn shops_waiting(&self) -> PortResult<Vec<ShopId>> {
        let books = lock(&self.books);
        let shops: BTreeSet<ShopId> = books.waiting().map(|(_, session)| session.shop()).collect();
        Ok(shops.into_iter().take(SHOPS_LISTED_MAX).collect())
    }

    async fn waiting(&self, shop: ShopId) -> PortResult<Vec<SessionRecord>> {
        let books = lock(&self.books);
        let mut waiting: Vec<_> = books.waiting().filter(|(_, session)| session.shop() == shop).collect();
        // Stable: sessions that wait as long stay in the order of their ids.
        waiting.sort_by_key(|(since, _)| *since);
        Ok(waiting.into_iter().take(WAITING_LISTED_MAX).map(|(_, session)| session.record()).collect())
    }

    async fn waiting_count(&self, shop: ShopId) -> PortResult<u64> {
        Ok(lock(&self.books).waiting().filter(|(_, session)| session.shop() == shop).count() as u64)
    }

    async fn hand_over(&self, handover: &Handover, now: UnixMillis) -> PortResult<HandoverOutcome> {
        let mut books = lock(&self.books);
        let session = books.sessions.get(&handover.session);
        let Some(session) = session.filter(|session| session.is_open() && session.agent() == handover.from.as_ref()) else {
            return Ok(HandoverOutcome::Changed);
        };
        if let Some(to) = &handover.to {
            let Some(agent) = books.agents.get(&(session.shop(), to.clone())) else { return Ok(HandoverOutcome::NoSuchAgent) };
            if let Some(limit) = handover.open_max {
                let room = agent.open_max.unwrap_or(limit).min(limit);
                let others = books.open_sessions().filter(|other| other.shop() == session.shop() && other.agent() == Some(to));
                if others.filter(|other| other.id() != session.id()).count() >= room as usize {
                    return Ok(HandoverOutcome::Full);
                }
            }
        }
        let Books { sessions, handovers, .. } = &mut *books;
        let Some(session) = sessions.get_mut(&handover.session) else { return Ok(HandoverOutcome::Changed) };
        session.give_to(handover.to.clone(), now);
        if handovers.len() >= HANDOVERS_MAX {
            handovers.pop_front();
        }
        handovers.push_back((now, handover.clone()));
        Ok(HandoverOutcome::Done(Box::new(session.record())))
    }

    async fn handovers(&self, session: SessionId) -> PortResult<Vec<HandoverRecord>> {
        let books = lock(&self.books);
        let of_session = books.handovers.iter().filter(|(_, handover)| handover.session == session);
        let mut latest: Vec<_> = of_session.rev().take(HANDOVERS_LISTED_MAX).map(|(at, handover)| handover.record(*at)).collect();
        latest.reverse();
        Ok(latest)
    }

    async fn session(&self, party: &Party, session: SessionId) -> PortResult<Option<SessionRecord>> {
        let books = lock(&self.books);
        Ok(books.sessions.get(&session).filter(|session| session.shows_to(party)).map(Session::record))
    }

    async fn sessions(&self, party: &Party, limit: u32) -> PortResult<Vec<SessionRecord>> {
        let books = lock(&self.books);
        let mut own: Vec<&Session> = books.open_sessions().filter(|session| session.belongs_to(party)).collect();
        own.sort_by_key(|session| Reverse(session.active()));
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

    async fn commit(
        &self,
        lease: Option<&Lease>,
        sends: &[ChatSend],
        announced: &[(SessionId, Position)],
        now: UnixMillis,
    ) -> PortResult<Vec<Committed>> {
        if sends.len() > SENDS_MAX {
            return Err(too_many(Store::Mysql, "commit messages"));
        }
        let mut books = lock(&self.books);
        if let Some(lease) = lease {
            // The token alone fences: an expired lease that nobody took over still excludes everybody else.
            let held = books.leases.get(&lease.partition);
            if held.is_none_or(|held| held.owner != lease.owner || held.token != lease.token) {
                return Err(PortError { kind: PortErrorKind::Fenced, store: Store::Mysql, doing: "commit messages", source: None });
            }
        }
        if books.messages + sends.len() > MESSAGES_MAX {
            return Err(full(Store::Mysql, "commit messages"));
        }
        Ok(sends.iter().map(|send| books.commit(send, announced, now)).collect())
    }

    async fn messages(&self, session: SessionId, page: Page) -> PortResult<Vec<MessageRecord>> {
        let books = lock(&self.books);
        Ok(books.sessions.get(&session).map(|session| session.page(page)).unwrap_or_default())
    }

    async fn mark(&self, mark: &Mark, now: UnixMillis) -> PortResult<MarkOutcome> {
        let mut books = lock(&self.books);
        let session = books.sessions.get_mut(&mark.session).filter(|session| session.belongs_to(&mark.reader));
        Ok(session.map_or(MarkOutcome::NotFound, |session| session.mark(mark, now)))
    }

    async fn devices(&self, session: SessionId) -> PortResult<Vec<DeviceCursor>> {
        let books = lock(&self.books);
        Ok(books.sessions.get(&session).map(Session::devices).unwrap_or_default())
    }

    async fn tops(&self, sessions: &[SessionId]) -> PortResult<Vec<(SessionId, Position)>> {
        let books = lock(&self.books);
        Ok(sessions.iter().filter_map(|id| Some((*id, books.sessions.get(id)?.top()))).collect())
    }

    async fn take_overdue(&self, targets: &Targets, now: UnixMillis, max: u32) -> PortResult<Vec<(SessionRecord, sla::Clock)>> {
        let mut books = lock(&self.books);
        let open = books.sessions.values_mut().filter(|session| session.is_open());
        let untold =
            open.flat_map(|session| session.overdue(targets, now).into_iter().map(|clock| (session.id(), clock)).collect::<Vec<_>>());
        let taken: Vec<_> = untold.take(max.min(OVERDUE_LISTED_MAX) as usize).collect();
        let tell = |(id, clock): (SessionId, sla::Clock)| {
            let session = books.sessions.get_mut(&id)?;
            session.tell(clock);
            Some((session.record(), clock))
        };
        Ok(taken.into_iter().filter_map(tell).collect())
    }
}

#[derive(Default)]
struct Books {
    /// By id, so also by age.
    sessions: BTreeMap<SessionId, Session>,
    /// The latest session of each user, shop and subject.
    opened: HashMap<(ShopId, PrincipalId, String), SessionId>,
    agents: BTreeMap<(ShopId, PrincipalId), Agent>,
    leases: HashMap<u16, Held>,
    /// Messages over all sessions.
    messages: usize,
    /// Stamps activity, so that two sessions used in one millisecond still have an order.
    activity: u64,
    /// The day of the last session number, and how many that day had.
    numbered: (String, u64),
    handovers: VecDeque<(UnixMillis, Handover)>,
}

/// A registered agent.
#[derive(Default)]
struct Agent {
    state: AgentState,
    open_max: Option<u32>,
    seen_at: UnixMillis,
}

impl Agent {
    fn see(&mut self, now: UnixMillis) {
        self.seen_at = self.seen_at.max(now);
    }
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

    fn open_sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values().filter(|session| session.is_open())
    }

    /// Sessions that nobody serves, and since when.
    fn waiting(&self) -> impl Iterator<Item = (UnixMillis, &Session)> {
        self.sessions.values().filter_map(|session| Some((session.waiting_since()?, session)))
    }

    fn commit(&mut self, send: &ChatSend, announced: &[(SessionId, Position)], now: UnixMillis) -> Committed {
        let Some(session) = self.sessions.get_mut(&send.session) else { return Committed::NotFound };
        let outcome = session.commit(send, announced, now);
        if matches!(outcome, Committed::Stored { dup: false, .. }) {
            self.messages += 1;
            self.activity += 1;
            session.touch(now, self.activity);
        }
        outcome
    }
}
