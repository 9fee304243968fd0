//! What every [`ChatLedger`] promises.
//!
//! Overdue clocks belong to the whole ledger, so the checks of `clocks` are the only ones that take them; sessions of other
//! checks that come up there are passed over.

pub mod clocks;
pub mod handovers;
pub mod marks;
pub mod messages;
pub mod recalls;
pub mod sessions;
pub mod witness;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::chat::{
    Committed, Cursor, Fingerprint, Handover, HandoverOutcome, Lease, Mark, MarkOutcome, MessageRecord, Page, Party, Position, RECALLED,
    Reason, Send as ChatSend, SessionRecord, Side,
};
use gateway_core::id::{ClientMsgId, DeviceId, PrincipalId, SessionId, ShopId};
use gateway_core::ports::ChatLedger;
use gateway_core::time::UnixMillis;

use super::{Fresh, eventually, now, shift};

/// A lease that outlives its check.
const LONG: Duration = Duration::from_secs(60);

/// A session that nobody has.
const UNKNOWN: SessionId = SessionId(u64::MAX >> 2);

/// Every check.
pub async fn all(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    sessions::all(store, fresh).await;
    messages::all(store, fresh).await;
    marks::all(store, fresh).await;
    handovers::all(store, fresh).await;
    clocks::all(&**store, fresh).await;
    recalls::all(store, fresh).await;
    witness::all(&**store, fresh).await;
}

/// A shop with a user, an agent, a session between them, and a lease to write under.
struct Room {
    shop: ShopId,
    user: Party,
    agent: Party,
    session: SessionId,
    lease: Lease,
}

impl Room {
    async fn new(store: &dyn ChatLedger, fresh: &Fresh) -> Self {
        Self::opened(store, fresh, now()).await
    }

    async fn opened(store: &dyn ChatLedger, fresh: &Fresh, at: UnixMillis) -> Self {
        let shop = fresh.shop();
        let (user, agent) = (Party::user(fresh.principal()), Party::agent(shop, fresh.principal()));
        let session = store.open_session(shop, &user.id, "order 1", at).await.expect("open session").id;
        store.upsert_agent(shop, &agent.id, at).await.expect("upsert agent");
        assert!(assign(store, session, &agent.id).await, "nobody serves a new session");
        Self { shop, user, agent, session, lease: lease(store, fresh).await }
    }

    fn party(&self, side: Side) -> &Party {
        match side {
            Side::User => &self.user,
            Side::Agent => &self.agent,
        }
    }

    fn send(&self, fresh: &Fresh, sender: &Party) -> ChatSend {
        let id = fresh.word("m");
        text(self.session, sender, &id, &format!("content of {id}"))
    }

    fn user_says(&self, fresh: &Fresh) -> ChatSend {
        self.send(fresh, &self.user)
    }

    fn agent_says(&self, fresh: &Fresh) -> ChatSend {
        self.send(fresh, &self.agent)
    }

    /// Takes the message with number `seq` back.
    fn recall(&self, fresh: &Fresh, side: Side, seq: u64) -> ChatSend {
        let content = seq.to_string();
        let send = text(self.session, self.party(side), &fresh.word("r"), &content);
        ChatSend { fingerprint: Fingerprint::of(RECALLED, &content), kind: RECALLED.to_owned(), ..send }
    }

    async fn commit(&self, store: &dyn ChatLedger, sends: &[ChatSend]) -> Vec<Committed> {
        self.commit_at(store, sends, now()).await
    }

    async fn commit_at(&self, store: &dyn ChatLedger, sends: &[ChatSend], at: UnixMillis) -> Vec<Committed> {
        store.commit(Some(&self.lease), sends, &[], at).await.expect("commit")
    }

    /// Stores one message from each sender in turn.
    async fn fill(&self, store: &dyn ChatLedger, fresh: &Fresh, senders: &[Side]) {
        let sends: Vec<_> = senders.iter().map(|side| self.send(fresh, self.party(*side))).collect();
        for committed in self.commit(store, &sends).await {
            stored(committed);
        }
    }

    async fn record(&self, store: &dyn ChatLedger) -> SessionRecord {
        store.session(&self.user, self.session).await.expect("session").expect("the user's own session")
    }

    async fn all(&self, store: &dyn ChatLedger) -> Vec<MessageRecord> {
        store.messages(self.session, Page::After { seq: 0, limit: 200 }).await.expect("messages")
    }

    /// Marks as read.
    async fn mark(&self, store: &dyn ChatLedger, side: Side, seq: u64) -> MarkOutcome {
        self.mark_on(store, side, None, Cursor::Read, seq).await
    }

    async fn mark_on(&self, store: &dyn ChatLedger, side: Side, device: Option<&DeviceId>, cursor: Cursor, seq: u64) -> MarkOutcome {
        let mark = Mark { session: self.session, reader: self.party(side).clone(), device: device.cloned(), cursor, seq };
        store.mark(&mark, now()).await.expect("mark")
    }

    /// Asserts that both sides have as many unread messages as a recount finds.
    async fn assert_unread_is_exact(&self, store: &dyn ChatLedger) {
        let (record, all) = (self.record(store).await, self.all(store).await);
        let recount = |reader: Side| {
            let counts = |message: &&MessageRecord| message.side != reader && message.kind != RECALLED && !message.recalled;
            all.iter().filter(|message| message.seq > record.read_by(reader)).filter(counts).count() as u64
        };
        assert!(all.len() < 200, "a recount sees one page");
        assert_eq!((record.user_unread, record.agent_unread), (recount(Side::User), recount(Side::Agent)), "unread of user and shop");
    }
}

fn text(session: SessionId, sender: &Party, id: &str, content: &str) -> ChatSend {
    ChatSend {
        session,
        sender: sender.clone(),
        client_msg_id: message_id(id),
        kind: "text".to_owned(),
        content: content.to_owned(),
        fingerprint: Fingerprint::of("text", content),
        origin: "conn-1".to_owned(),
        bot: false,
    }
}

/// `send` with other content.
fn saying(send: &ChatSend, content: &str) -> ChatSend {
    ChatSend { content: content.to_owned(), fingerprint: Fingerprint::of(&send.kind, content), ..send.clone() }
}

fn message_id(text: &str) -> ClientMsgId {
    ClientMsgId::parse(text).expect("well-formed")
}

async fn open(store: &dyn ChatLedger, shop: ShopId, user: &PrincipalId, subject: &str) -> SessionRecord {
    store.open_session(shop, user, subject, now()).await.expect("open session")
}

/// A registered agent of the shop.
async fn hired(store: &dyn ChatLedger, fresh: &Fresh, shop: ShopId) -> Party {
    let agent = Party::agent(shop, fresh.principal());
    store.upsert_agent(shop, &agent.id, now()).await.expect("upsert agent");
    agent
}

fn handover(session: SessionId, from: Option<&PrincipalId>, to: Option<&PrincipalId>) -> Handover {
    Handover { session, from: from.cloned(), to: to.cloned(), reason: Reason::LeastUnread, detail: "两 of 2".to_owned(), open_max: None }
}

async fn hand_over(store: &dyn ChatLedger, handover: &Handover) -> HandoverOutcome {
    store.hand_over(handover, now()).await.expect("hand over")
}

/// Gives a waiting session to an agent; says whether it did.
async fn assign(store: &dyn ChatLedger, session: SessionId, to: &PrincipalId) -> bool {
    matches!(hand_over(store, &handover(session, None, Some(to))).await, HandoverOutcome::Done(_))
}

async fn lease(store: &dyn ChatLedger, fresh: &Fresh) -> Lease {
    let (partition, owner) = (fresh.partition(), fresh.word("owner"));
    eventually("a lease that an earlier run left behind expires", || async { store.lease(partition, &owner, LONG).await.expect("lease") })
        .await
}

/// The stored message and whether it is a repetition.
fn stored(committed: Committed) -> (MessageRecord, bool) {
    match committed {
        Committed::Stored { message, dup, .. } => (message, dup),
        Committed::Conflict | Committed::NotFound | Committed::Closed | Committed::TooLate => panic!("must be stored, got {committed:?}"),
    }
}

fn seqs(messages: &[MessageRecord]) -> Vec<u64> {
    messages.iter().map(|message| message.seq).collect()
}
