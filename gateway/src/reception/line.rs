//! The waiting line: sessions begin there, and leave it by an agent who can take them, those that wait longest first.

use gateway_core::chat::event::Event;
use gateway_core::chat::sla::Clock;
use gateway_core::chat::{Party, Reason, SessionRecord, Side};
use gateway_core::id::{PrincipalId, SessionId, ShopId};
use gateway_core::ports::PortResult;
use gateway_core::time::UnixMillis;

use super::Reception;
use super::handing::Placed;

/// Pages of the waiting line served in one go; the worker's next round goes on.
const PAGES_MAX: usize = 10;

impl Reception {
    /// Opens a session; see [`super::open`]. Never fails because of who is or is not there.
    pub(super) async fn open(&self, user: &PrincipalId, shop: ShopId, subject: &str, now: UnixMillis) -> PortResult<SessionRecord> {
        let session = self.chats.open_session(shop, user, subject, now).await?;
        if session.agent.is_some() {
            return Ok(session);
        }
        let placed = async {
            let mut staff = self.staff(shop, now).await?;
            let placed = self.place(&session, None, &mut staff, now).await?;
            if let Placed::Waits = placed {
                self.tell_waiting_to(&staff, shop).await?;
            }
            PortResult::Ok(placed)
        };
        match placed.await {
            Ok(Placed::Given(served)) => Ok(*served),
            Ok(Placed::Waits | Placed::Changed) => Ok(session),
            Err(error) => {
                self.note("cannot give a session to an agent now", PortResult::<()>::Err(error));
                Ok(session)
            }
        }
    }

    /// Closes a session; see [`super::close`].
    pub(super) async fn close(&self, party: &Party, session: SessionId, now: UnixMillis) -> PortResult<Option<(SessionRecord, bool)>> {
        let closed = self.chats.close_session(party, session, now).await?;
        if let Some((record, true)) = &closed {
            let parties: Vec<Party> = [Side::User, Side::Agent].into_iter().filter_map(|side| record.party(side)).collect();
            self.tell(&parties, &Event::Closed { session, by: party.side, closer: party.id.clone() }).await;
            let open_for = now.since(record.clocks.opened_at).as_secs_f64();
            self.metrics.chat_response_seconds.with_label_values(&[Clock::Resolution.as_str()]).observe(open_for);
            if record.agent.is_some() {
                self.note("cannot serve the waiting line now", self.serve_line(record.shop, now).await);
            } else {
                self.note("cannot tell now how many wait", self.tell_waiting(record.shop, now).await);
            }
        }
        Ok(closed)
    }

    /// Gives waiting sessions of a shop to agents who are there, the longest waiting first, until nobody has room.
    pub(crate) async fn serve_line(&self, shop: ShopId, now: UnixMillis) -> PortResult<()> {
        if self.chats.waiting_count(shop).await? == 0 {
            return Ok(());
        }
        let mut staff = self.staff(shop, now).await?;
        let mut served = 0_usize;
        'line: for _ in 0..PAGES_MAX {
            let before = served;
            for session in self.chats.waiting(shop).await? {
                if staff.choose(self.open_max).is_none() {
                    break 'line;
                }
                // One that waits although somebody has room was given back by that one; those behind it do not wait for it.
                served += usize::from(matches!(self.place(&session, None, &mut staff, now).await?, Placed::Given(_)));
            }
            if served == before {
                break;
            }
        }
        if served > 0 {
            self.tell_waiting_to(&staff, shop).await?;
        }
        Ok(())
    }

    /// Who gave a waiting session back to the line: it wants somebody else for it, and may still take it by hand.
    pub(super) async fn given_back_by(&self, session: SessionId) -> PortResult<Option<PrincipalId>> {
        let last = self.chats.handovers(session).await?.pop();
        Ok(last.filter(|last| last.to.is_none() && last.reason == Reason::Transferred).and_then(|last| last.from))
    }
}
