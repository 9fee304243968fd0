//! Who hears of what: nobody but those whom it concerns, each once. A word that is lost is no loss: `hello` and the ledger say
//! the same.

use std::collections::BTreeSet;

use gateway_core::chat::event::Event;
use gateway_core::chat::{AgentState, Party, Reason, SessionRecord, Side};
use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::ports::PortResult;
use gateway_core::time::UnixMillis;

use super::Reception;
use super::staff::Staff;

impl Reception {
    /// Publishes an event to every device of each of `parties`.
    pub(super) async fn tell(&self, parties: &[Party], event: &Event) {
        let payload = event.encode();
        for party in parties {
            self.note("cannot tell now what became of a session", self.bus.publish(&party.subject(), payload.clone()).await);
        }
    }

    /// `session` has changed hands: tells its user, whoever serves it now and whoever did before.
    pub(super) async fn tell_assigned(&self, session: &SessionRecord, from: Option<&PrincipalId>, reason: Reason) {
        let former = from.cloned().map(|agent| Party::agent(session.shop, agent));
        let parties: BTreeSet<Party> = [session.party(Side::User), session.party(Side::Agent), former].into_iter().flatten().collect();
        let event = Event::Assigned { session: session.clone(), reason: reason.as_str().to_owned() };
        self.tell(&parties.into_iter().collect::<Vec<_>>(), &event).await;
    }

    /// The waiting line of a shop may have another length: tells every agent who is there.
    pub(super) async fn tell_waiting(&self, shop: ShopId, now: UnixMillis) -> PortResult<u64> {
        let count = self.chats.waiting_count(shop).await?;
        self.tell(&self.staff(shop, now).await?.parties(), &Event::Waiting { count }).await;
        Ok(count)
    }

    /// The same for somebody who has just looked at the staff.
    pub(super) async fn tell_waiting_to(&self, staff: &Staff, shop: ShopId) -> PortResult<u64> {
        let count = self.chats.waiting_count(shop).await?;
        self.tell(&staff.parties(), &Event::Waiting { count }).await;
        Ok(count)
    }

    /// Tells the users of `sessions`, each once, how their agent is.
    pub(super) async fn tell_users(&self, agent: &Party, sessions: &[SessionRecord], state: AgentState) {
        let users: BTreeSet<Party> = sessions.iter().map(|session| Party::user(session.user.clone())).collect();
        self.tell(&users.into_iter().collect::<Vec<_>>(), &presence_of(agent, state)).await;
    }

    /// Tells an agent's own devices how it is.
    pub(super) async fn tell_itself(&self, agent: &Party, state: AgentState) {
        self.tell(std::slice::from_ref(agent), &presence_of(agent, state)).await;
    }
}

fn presence_of(agent: &Party, state: AgentState) -> Event {
    Event::Presence { side: agent.side, id: agent.id.clone(), state }
}
