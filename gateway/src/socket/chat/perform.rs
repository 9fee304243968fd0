//! Does what a connection asks for, each request a future of its own with the stores' deadlines.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use gateway_core::chat::connection::{Answer, ConnId, Connection, Output, SendOutcome, Start, TokenCheck, Transferred, Unavailable};
use gateway_core::chat::event::QueuedSend;
use gateway_core::chat::{Mark, MarkOutcome, MessageRecord, Page, Party, Position, Send as ChatSend, SessionRecord};
use gateway_core::id::{ClientMsgId, SessionId, ShopId};
use gateway_core::ports::PortError;
use gateway_core::time::UnixMillis;

use crate::clock;
use crate::node::Node;
use crate::reception;
use crate::socket::message;
use crate::socket::message::{Judge, Passed};
use crate::socket::reads::{self, Positions};
use crate::socket::{direct, nonces, seals};

/// A request under way.
pub(crate) type Ask = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What came of it.
pub(crate) enum Done {
    Nothing,
    Sent(ClientMsgId, SendOutcome),
    Page(SessionId, Page, Answer<Vec<MessageRecord>>),
    Tops(Answer<Vec<(SessionId, Position)>>),
    Session(SessionId, Answer<Option<SessionRecord>>),
    Marked(Mark, Answer<MarkOutcome>),
    Opened(Answer<SessionRecord>),
    Closed(SessionId, Answer<Option<(SessionRecord, bool)>>),
    Transferred(SessionId, Answer<Transferred>),
    StateSet(Answer<()>),
    Nonce(bool),
    Notices(Answer<Vec<(u64, Bytes)>>),
    Token(TokenCheck),
}

impl Done {
    /// Tells the connection that asked.
    pub(crate) fn tell(self, connection: &mut Connection, now: UnixMillis) {
        match self {
            Self::Nothing => {}
            Self::Sent(id, outcome) => connection.handle_send_outcome(&id, outcome, now),
            Self::Page(session, page, answer) => connection.handle_page(session, page, answer, now),
            Self::Tops(answer) => connection.handle_tops(answer, now),
            Self::Session(session, answer) => connection.handle_session(session, answer, now),
            Self::Marked(mark, answer) => connection.handle_mark(&mark, answer, now),
            Self::Opened(answer) => connection.handle_opened(answer, now),
            Self::Closed(session, answer) => connection.handle_session_closed(session, answer, now),
            Self::Transferred(session, answer) => connection.handle_transferred(session, answer, now),
            Self::StateSet(answer) => connection.handle_state_set(answer, now),
            Self::Nonce(first) => connection.handle_nonce(first, now),
            Self::Notices(answer) => connection.handle_notices(answer, now),
            Self::Token(check) => connection.handle_token(check, now),
        }
    }
}

/// Performs for one connection. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Performer(Arc<Parts>);

struct Parts {
    node: Arc<Node>,
    judge: Judge,
    party: Party,
    conn_id: ConnId,
}

impl Performer {
    pub(crate) fn new(node: Arc<Node>, start: &Start, judge: Judge) -> Self {
        Self(Arc::new(Parts { node, judge, party: start.party.clone(), conn_id: start.conn_id.clone() }))
    }

    /// The connection is alive; who is online is a hint, so a failure is only counted.
    pub(super) fn beat(&self) -> Ask {
        let this = self.0.clone();
        Box::pin(async move {
            let until = clock::now().plus(this.node.config.chat.presence_ttl);
            let _ = this.answer(this.node.ports.presence.beat(&this.party, this.conn_id.as_str(), until).await);
            Done::Nothing
        })
    }

    /// The connection has ended.
    pub(super) async fn leave(&self) {
        let this = &self.0;
        reception::leave(&this.node, &this.party, this.conn_id.as_str()).await;
    }

    /// Performs a request. `known` is where the session of a page is known to be. Frames and closing are the wire's.
    pub(crate) fn ask(&self, output: Output, known: Option<Position>) -> Ask {
        let this = self.0.clone();
        Box::pin(async move { this.perform(output, known).await })
    }
}

impl Parts {
    async fn perform(&self, output: Output, known: Option<Position>) -> Done {
        let (node, party) = (&self.node, &self.party);
        let chats = &node.ports.chats;
        match output {
            Output::Enqueue { partition, shop, send, alone } => self.send(partition, shop, send, alone).await,
            Output::ReadPage { session, page } => {
                let rows = self.answer(reads::page(node, session, page, known).await);
                if let (Page::After { .. }, Ok(rows)) = (page, &rows) {
                    node.metrics.chat_replayed.inc_by(rows.len() as u64);
                }
                Done::Page(session, page, rows)
            }
            Output::ReadTops(sessions) => Done::Tops(Positions::ask(node, sessions).await),
            Output::ReadSession(session) => Done::Session(session, self.answer(chats.session(party, session).await)),
            Output::Mark(mark) => {
                let outcome = self.answer(chats.mark(&mark, clock::now()).await);
                Done::Marked(mark, outcome)
            }
            Output::CloseSession(session) => Done::Closed(session, self.answer(reception::close(node, party, session).await)),
            Output::Transfer { session, to } => {
                Done::Transferred(session, self.answer(reception::transfer(node, party, session, to).await))
            }
            Output::SetState { state, open_max } => Done::StateSet(self.answer(reception::set_state(node, party, state, open_max).await)),
            Output::UseNonce { nonce, timestamp } => Done::Nonce(nonces::first_use(node, party, &nonce, timestamp, clock::now()).await),
            Output::OpenSession { shop, subject } => self.open_session(shop, &subject).await,
            Output::VerifyToken(token) => {
                if let Some(jwks) = &node.jwks {
                    jwks.look_for_keys(&[&token]).await;
                }
                Done::Token(match node.verifier.verify(&token, clock::now()) {
                    Ok(principal) => TokenCheck::Valid(principal),
                    Err(_) => TokenCheck::Invalid,
                })
            }
            // All of them, a hundred at most: only so can be told whether the store has lost the party's count.
            Output::ReadNotices => Done::Notices(self.answer(node.ports.notices.since(party, 0).await)),
            Output::Publish { to, event } => {
                let _ = self.answer(node.ports.bus.publish(&to.subject(), event.encode()).await);
                Done::Nothing
            }
            Output::Write(_) | Output::Ping | Output::Close(_) => Done::Nothing,
        }
    }

    async fn open_session(&self, shop: Option<ShopId>, subject: &str) -> Done {
        let node = &self.node;
        let shop = shop.unwrap_or(node.config.chat.default_shop);
        Done::Opened(self.answer(reception::open(node, &self.party.id, shop, subject).await))
    }

    /// Message policies, then the queue; behind the message a bot's answer to it.
    async fn send(&self, partition: u16, shop: ShopId, mut send: ChatSend, alone: bool) -> Done {
        let id = send.client_msg_id.clone();
        let Passed { replace, reply } = match self.judge.judge(&self.node, shop, &send).await {
            Ok(passed) => passed,
            Err(refused) => return Done::Sent(id, SendOutcome::Refused(refused)),
        };
        let answer = reply.and_then(|text| message::answer(&send, shop, text));
        if let Some(text) = &replace {
            send.content.clone_from(text);
        }
        if seals::close(&self.node, &mut send).is_err() {
            return Done::Sent(id, SendOutcome::Failed);
        }
        if self.enqueue(partition, shop, send.clone()).await.is_ok() {
            if let Some(answer) = answer
                && self.node.switchboard.backlog.takes(&self.node, shop, answer.session).await
            {
                // An answer that is lost is no reason to have the message sent again.
                let _ = self.enqueue(partition, shop, answer).await;
            }
            return Done::Sent(id, replace.map_or(SendOutcome::Queued, SendOutcome::QueuedAs));
        }
        if !alone {
            return Done::Sent(id, SendOutcome::Failed);
        }
        let outcome = match self.answer(direct::commit(&self.node, &send).await) {
            Ok(Some(event)) => SendOutcome::Settled(Box::new(event)),
            Ok(None) | Err(Unavailable) => SendOutcome::Failed,
        };
        if answer.is_some() {
            // Without the queue the ledger's time is for people.
            self.node.switchboard.backlog.drop_answer(&self.node, shop, send.session);
        }
        Done::Sent(id, outcome)
    }

    async fn enqueue(&self, partition: u16, shop: ShopId, send: ChatSend) -> Answer<()> {
        let breaker = &self.node.switchboard.queue;
        if !breaker.lets_try(clock::now()) {
            return Err(Unavailable);
        }
        let queued = QueuedSend { send, queued_at: clock::now() };
        let outcome = self.answer(self.node.ports.bus.enqueue(partition, shop, queued.encode()).await);
        match outcome {
            Ok(()) => breaker.worked(),
            Err(Unavailable) => breaker.failed(clock::now()),
        }
        outcome
    }

    fn answer<T>(&self, outcome: Result<T, PortError>) -> Answer<T> {
        outcome.map_err(|error| {
            reads::note(&self.node, &error);
            Unavailable
        })
    }
}
