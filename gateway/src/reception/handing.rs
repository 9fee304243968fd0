//! Sessions changing hands: to the best who is there, by hand, or because their agent is not there any more.

use gateway_core::chat::connection::Transferred;
use gateway_core::chat::{AgentState, Handover, HandoverOutcome, Party, Reason, SessionRecord, Side};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use gateway_core::ports::PortResult;
use gateway_core::time::UnixMillis;

use super::Reception;
use super::staff::Staff;

/// How often one session is tried to be placed: each failure means that somebody else was faster, and that the next choice is
/// made from a newer view.
const TRIES_MAX: usize = 5;

/// Sessions of an agent read at once.
const PAGE: u32 = 100;

/// Rounds of [`PAGE`] sessions that one call hands over; an agent has a thousand at most, unless more were given by hand.
const PAGES_MAX: usize = 12;

/// Sessions whose users hear of an agent's new state.
const USERS_MAX: u32 = 1_000;

/// What became of a session that should get an agent.
#[derive(Debug)]
pub(super) enum Placed {
    /// It has one; the session afterwards.
    Given(Box<SessionRecord>),
    /// Nobody can take it, so it waits.
    Waits,
    /// Somebody else was faster: it is closed, or has another agent.
    Changed,
}

impl Reception {
    /// Gives a session to the best of `staff`, by the reason that its present agent leaves it, or, if it waits, because
    /// somebody can take it. `staff` is read anew when it turns out to be old. Nobody gets back what it has just given away.
    pub(super) async fn place(
        &self,
        session: &SessionRecord,
        reason: Option<Reason>,
        staff: &mut Staff,
        now: UnixMillis,
    ) -> PortResult<Placed> {
        let refused_by = match &session.agent {
            Some(agent) => Some(agent.clone()),
            None => self.given_back_by(session.id).await?,
        };
        for _ in 0..TRIES_MAX {
            let others = refused_by.as_ref().map(|agent| staff.without(agent));
            let candidates = others.as_ref().unwrap_or(staff);
            let chosen = candidates.choose(self.open_max).map(|load| load.agent.clone());
            if chosen.is_none() && session.agent.is_none() {
                return Ok(Placed::Waits);
            }
            let handover = Handover {
                session: session.id,
                from: session.agent.clone(),
                to: chosen.clone(),
                reason: reason.unwrap_or(Reason::LeastUnread),
                detail: candidates.explain(self.open_max),
                open_max: chosen.is_some().then_some(self.open_max),
            };
            match self.hand_over(&handover, now).await? {
                HandoverOutcome::Done(after) => {
                    return Ok(match chosen {
                        Some(agent) => {
                            staff.took(&agent, after.agent_unread);
                            Placed::Given(after)
                        }
                        None => Placed::Waits,
                    });
                }
                HandoverOutcome::Changed => return Ok(Placed::Changed),
                HandoverOutcome::Full | HandoverOutcome::NoSuchAgent => *staff = self.staff(session.shop, now).await?,
            }
        }
        // A shop this busy is looked at again in a moment. Until then the session stays where it is.
        Ok(Placed::Changed)
    }

    /// Hands a session over, and tells and logs it when that is done.
    pub(super) async fn hand_over(&self, handover: &Handover, now: UnixMillis) -> PortResult<HandoverOutcome> {
        let outcome = self.chats.hand_over(handover, now).await?;
        if let HandoverOutcome::Done(session) = &outcome {
            let Handover { from, to, reason, detail, .. } = handover;
            let (from, to) = (from.as_ref().map(PrincipalId::as_str), to.as_ref().map(PrincipalId::as_str));
            tracing::info!(session = %session.id, shop = %session.shop, from, to, reason = reason.as_str(), detail, "session handed over");
            self.metrics.chat_handovers.with_label_values(&[reason.as_str()]).inc();
            self.tell_assigned(session, handover.from.as_ref(), *reason).await;
        }
        Ok(outcome)
    }

    /// By hand; see [`super::transfer`].
    pub(super) async fn transfer(
        &self,
        party: &Party,
        session: SessionId,
        to: Option<&PrincipalId>,
        now: UnixMillis,
    ) -> PortResult<Transferred> {
        let (Side::Agent, Some(shop)) = (party.side, party.shop) else { return Ok(Transferred::NotFound) };
        let Some(record) = self.chats.session(party, session).await?.filter(|record| record.open) else {
            return Ok(Transferred::NotFound);
        };
        let reason = match &record.agent {
            Some(serving) if *serving == party.id && to == Some(serving) => return Ok(Transferred::Done(Box::new(record))),
            Some(serving) if *serving == party.id => Reason::Transferred,
            None if to == Some(&party.id) => Reason::Taken,
            // Somebody else serves it, or it waits and is not theirs to give.
            Some(_) | None => return Ok(Transferred::NotFound),
        };
        let staff = self.staff(shop, now).await?;
        // Whoever asks is there, whatever presence knows of it so far.
        let is_there = |agent: &PrincipalId| *agent == party.id || staff.there().any(|load| load.agent == *agent);
        if let Some(to) = to
            && !staff.find(to).is_some_and(|load| load.state.keeps() && is_there(to))
        {
            return Ok(Transferred::NoSuchAgent);
        }
        let detail = format!("by agent {}", party.id);
        let handover = Handover { session, from: record.agent.clone(), to: to.cloned(), reason, detail, open_max: None };
        let after = match self.hand_over(&handover, now).await? {
            HandoverOutcome::Done(after) => after,
            HandoverOutcome::Changed | HandoverOutcome::Full => return Ok(Transferred::NotFound),
            HandoverOutcome::NoSuchAgent => return Ok(Transferred::NoSuchAgent),
        };
        // What follows is no part of the answer.
        if record.agent.is_none() || to.is_none() {
            self.note("cannot tell now how many wait", self.tell_waiting_to(&staff, shop).await);
        }
        if record.agent.is_some() {
            self.note("cannot serve the waiting line now", self.serve_line(shop, now).await);
        }
        Ok(Transferred::Done(after))
    }

    /// An agent's word on itself; see [`super::set_state`].
    pub(super) async fn set_state(&self, party: &Party, state: AgentState, open_max: Option<u32>, now: UnixMillis) -> PortResult<()> {
        // Users have no state. The connection refuses such frames before they get here.
        let (Side::Agent, Some(shop)) = (party.side, party.shop) else { return Ok(()) };
        self.chats.set_agent(shop, &party.id, state, open_max).await?;
        self.tell_itself(party, state).await;
        let followed = async {
            let sessions = self.chats.sessions(party, USERS_MAX).await?;
            self.tell_users(party, &sessions, state).await;
            if state.takes_new() {
                self.serve_line(shop, now).await?;
            } else if !state.keeps() {
                self.release(shop, &party.id, Reason::AgentAway, now).await?;
            }
            PortResult::Ok(())
        };
        self.note("cannot act on an agent's new state now", followed.await);
        Ok(())
    }

    /// Gives the sessions of an agent who is not there any more to others; those that nobody can take wait.
    pub(crate) async fn release(&self, shop: ShopId, agent: &PrincipalId, reason: Reason, now: UnixMillis) -> PortResult<()> {
        let party = Party::agent(shop, agent.clone());
        let mut staff = self.staff(shop, now).await?;
        let mut waiting = false;
        for _ in 0..PAGES_MAX {
            let sessions = self.chats.sessions(&party, PAGE).await?;
            for session in &sessions {
                waiting |= matches!(self.place(session, Some(reason), &mut staff, now).await?, Placed::Waits);
            }
            if sessions.len() < PAGE as usize {
                break;
            }
        }
        if waiting {
            self.tell_waiting_to(&staff, shop).await?;
        }
        Ok(())
    }
}
