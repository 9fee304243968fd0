//! Agents who come and go. Presence is kept per connection and dies with its heartbeats, so a goodbye is a courtesy: what is
//! done here makes things known at once that would show by themselves.

use gateway_core::chat::event::Event;
use gateway_core::chat::{AgentState, Party, Side};
use gateway_core::ports::PortResult;
use gateway_core::time::UnixMillis;

use super::Reception;

/// Sessions whose users hear of an agent's coming and going; an agent has some hundreds at most.
const SESSIONS_MAX: u32 = 1_000;

impl Reception {
    /// A connection is there; see [`super::arrive`].
    pub(super) async fn arrive(&self, party: &Party, connection: &str, now: UnixMillis) -> PortResult<Option<AgentState>> {
        let until = now.plus(self.patience.presence_ttl);
        let (Side::Agent, Some(shop)) = (party.side, party.shop) else {
            self.note("cannot tell that a user is there", self.presence.beat(party, connection, until).await);
            return Ok(None);
        };
        self.chats.upsert_agent(shop, &party.id, now).await?;
        let state = self.chats.agent(shop, &party.id).await?.map(|load| load.state).unwrap_or_default();
        let came = async {
            let known = self.is_alive(party, now).await?;
            self.presence.beat(party, connection, until).await?;
            if !known {
                self.tell_users(party, &self.chats.sessions(party, SESSIONS_MAX).await?, state).await;
            }
            self.serve_line(shop, now).await?;
            let count = self.chats.waiting_count(shop).await?;
            if count > 0 {
                self.tell(std::slice::from_ref(party), &Event::Waiting { count }).await;
            }
            PortResult::Ok(())
        };
        self.note("cannot tell that an agent is there", came.await);
        Ok(Some(state))
    }

    /// A connection has ended; see [`super::leave`].
    pub(super) async fn leave(&self, party: &Party, connection: &str, now: UnixMillis) {
        let left = async {
            self.presence.leave(party, connection).await?;
            if let (Side::Agent, Some(shop)) = (party.side, party.shop)
                && !self.is_alive(party, now).await?
            {
                self.chats.see_agents(&[(shop, party.id.clone())], now).await?;
                let sessions = self.chats.sessions(party, SESSIONS_MAX).await?;
                self.tell_users(party, &sessions, AgentState::Offline).await;
            }
            PortResult::Ok(())
        };
        self.note("cannot tell that a connection has ended", left.await);
    }

    async fn is_alive(&self, party: &Party, now: UnixMillis) -> PortResult<bool> {
        let alive = self.presence.online(std::slice::from_ref(party), self.patience.asked_at(now)).await?;
        Ok(alive.first() == Some(&true))
    }
}
