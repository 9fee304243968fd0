//! What happens to people by the mere passing of time: agents who fell silent, users who wait, clocks that run too long.
//!
//! One step, called by the worker's loop. Everything it does is settled by the ledger, so two workers that take themselves for
//! the only one do no harm.

use std::collections::{BTreeMap, BTreeSet};

use gateway_core::chat::event::Event;
use gateway_core::chat::reception::Verdict;
use gateway_core::chat::sla::Targets;
use gateway_core::chat::{Party, SessionRecord, Side};
use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::ports::PortResult;
use gateway_core::time::UnixMillis;

use super::Reception;

/// Agents asked after at once.
const AGENTS_PAGE: u32 = 1_000;

/// Overdue clocks taken at once, and how often in one round.
const OVERDUE_PAGE: u32 = 100;
const OVERDUE_PAGES_MAX: usize = 10;

/// The rounds of one worker.
pub(crate) struct Rounds {
    reception: Reception,
    targets: Targets,
    /// Since when every round has seen who is there; `None` after one that could not.
    watched_since: Option<UnixMillis>,
    /// The lines that are not empty, as they were told last; at most as many as the ledger names.
    told: BTreeMap<ShopId, u64>,
}

impl Rounds {
    /// Rounds that begin to watch.
    pub(crate) fn new(reception: Reception, targets: Targets) -> Self {
        Self { reception, targets, watched_since: None, told: BTreeMap::new() }
    }

    /// Somebody else watches, or did.
    pub(crate) fn look_away(&mut self) {
        self.watched_since = None;
        self.told.clear();
    }

    /// One round. Clocks run on when nobody knows who is there.
    pub(crate) async fn turn(&mut self, now: UnixMillis) -> PortResult<()> {
        let watched = self.watch(now).await;
        if watched.is_err() {
            self.watched_since = None;
        }
        self.remind(now).await?;
        watched?;
        self.serve(now).await
    }

    /// Looks after everybody who serves: who is there stays, the sessions of others go to somebody else.
    async fn watch(&mut self, now: UnixMillis) -> PortResult<()> {
        let reception = &self.reception;
        let mut after: Option<(ShopId, PrincipalId)> = None;
        loop {
            let serving = reception.chats.serving(after.as_ref().map(|(shop, agent)| (*shop, agent)), AGENTS_PAGE).await?;
            let parties: Vec<Party> = serving.iter().map(|agent| Party::agent(agent.shop, agent.agent.clone())).collect();
            // Without presence this fails, and nobody counts as gone.
            let alive = reception.presence.online(&parties, reception.patience.asked_at(now)).await?;
            let watched_since = *self.watched_since.get_or_insert(now);
            let seen: Vec<_> = serving.iter().zip(&alive).filter(|(_, alive)| **alive).map(|(a, _)| (a.shop, a.agent.clone())).collect();
            if !seen.is_empty() {
                reception.chats.see_agents(&seen, reception.patience.seen_at(now)).await?;
            }
            for (agent, alive) in serving.iter().zip(&alive) {
                match reception.patience.judge(agent, *alive, watched_since, now) {
                    Verdict::Keep => {}
                    Verdict::Leave(reason) => reception.release(agent.shop, &agent.agent, reason, now).await?,
                }
            }
            match serving.into_iter().last().filter(|_| parties.len() == AGENTS_PAGE as usize) {
                Some(last) => after = Some((last.shop, last.agent)),
                None => return Ok(()),
            }
        }
    }

    /// Serves the waiting line of every shop, and tells its length where it is another than was told.
    async fn serve(&mut self, now: UnixMillis) -> PortResult<()> {
        let mut shops: BTreeSet<ShopId> = self.reception.chats.shops_waiting().await?.into_iter().collect();
        shops.extend(self.told.keys());
        for shop in shops {
            self.reception.serve_line(shop, now).await?;
            let count = self.reception.chats.waiting_count(shop).await?;
            if self.told.get(&shop).copied().unwrap_or(0) != count {
                self.reception.tell_waiting(shop, now).await?;
            }
            if count == 0 {
                self.told.remove(&shop);
            } else {
                self.told.insert(shop, count);
            }
        }
        let waiting = self.told.values().sum::<u64>();
        self.reception.metrics.chat_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        Ok(())
    }

    /// Tells of clocks that run too long: whoever serves the session, or everybody who is there to take it.
    async fn remind(&self, now: UnixMillis) -> PortResult<()> {
        if self.targets == Targets::default() {
            return Ok(());
        }
        let reception = &self.reception;
        for _ in 0..OVERDUE_PAGES_MAX {
            let overdue = reception.chats.take_overdue(&self.targets, now, OVERDUE_PAGE).await?;
            for (session, clock) in &overdue {
                let shows =
                    session.clocks.running(now).into_iter().find(|(runs, _)| runs == clock).map(|(_, shows)| shows).unwrap_or_default();
                tracing::info!(session = %session.id, shop = %session.shop, clock = clock.as_str(), ?shows, "a user waits too long");
                reception.metrics.chat_overdue.with_label_values(&[clock.as_str()]).inc();
                self.remind_of(session, Event::Overdue { session: session.id, clock: *clock, shows }, now).await;
            }
            if overdue.len() < OVERDUE_PAGE as usize {
                break;
            }
        }
        Ok(())
    }

    async fn remind_of(&self, session: &SessionRecord, event: Event, now: UnixMillis) {
        match session.party(Side::Agent) {
            Some(agent) => self.reception.tell(&[agent], &event).await,
            None => match self.reception.staff(session.shop, now).await {
                Ok(staff) => self.reception.tell(&staff.parties(), &event).await,
                Err(error) => self.reception.note("cannot tell now that a session is overdue", PortResult::<()>::Err(error)),
            },
        }
    }
}
