//! Does what a connection asks for, each request a future of its own with the stores' deadlines.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use gateway_core::chat::connection::{Answer, ConnId, Output, SendOutcome, Start, TokenCheck, Unavailable};
use gateway_core::chat::event::QueuedSend;
use gateway_core::chat::{MessageRecord, Page, Party, Position, ReadMark, Send as ChatSend, SessionRecord};
use gateway_core::id::{ClientMsgId, SessionId, ShopId};
use gateway_core::ports::PortError;

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::socket::chat::opening::SESSIONS_MAX;
use crate::socket::message::{Judge, Passed};
use crate::socket::{assignment, message, presence};

/// A request under way.
pub(super) type Ask = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What came of it.
pub(super) enum Done {
    Nothing,
    Sent(ClientMsgId, SendOutcome),
    Page(SessionId, Page, Answer<Vec<MessageRecord>>),
    Tops(Answer<Vec<(SessionId, Position)>>),
    Session(SessionId, Answer<Option<SessionRecord>>),
    Read(SessionId, u64, Answer<ReadMark>),
    Opened(Answer<SessionRecord>),
    Notices(Answer<Vec<(u64, Bytes)>>),
    Token(TokenCheck),
}

/// Performs for one connection.
#[derive(Clone)]
pub(super) struct Performer {
    node: Arc<Node>,
    judge: Arc<Judge>,
    party: Party,
    conn_id: ConnId,
}

impl Performer {
    pub(super) fn new(node: Arc<Node>, start: &Start, judge: Judge) -> Self {
        Self { node, judge: Arc::new(judge), party: start.party.clone(), conn_id: start.conn_id.clone() }
    }

    /// The connection is alive; who is online is a hint, so a failure is only counted.
    pub(super) fn beat(&self) -> Ask {
        let this = self.clone();
        Box::pin(async move {
            let until = clock::now().plus(this.node.config.chat.presence_ttl);
            let _ = this.answer(this.node.ports.presence.beat(&this.party, this.conn_id.as_str(), until).await);
            Done::Nothing
        })
    }

    /// The connection has ended.
    pub(super) async fn leave(&self) {
        let _ = self.answer(presence::leave(&self.node, &self.party, self.conn_id.as_str(), SESSIONS_MAX).await);
    }

    pub(super) fn open_session(&self, shop: Option<ShopId>, subject: String) -> Ask {
        let this = self.clone();
        Box::pin(async move {
            let shop = shop.unwrap_or(this.node.config.chat.default_shop);
            let opened = async {
                let session = this.node.ports.chats.open_session(shop, &this.party.id, &subject, clock::now()).await?;
                // A session that cannot be assigned now waits; the next agent who comes takes it.
                Ok(match assignment::serve(&this.node, session.clone()).await {
                    Ok(served) => served,
                    Err(_) => session,
                })
            };
            Done::Opened(this.answer(opened.await))
        })
    }

    /// Performs every other request. Frames and closing are the socket's.
    pub(super) fn ask(&self, output: Output) -> Ask {
        let this = self.clone();
        Box::pin(async move {
            let chats = &this.node.ports.chats;
            match output {
                Output::Enqueue { partition, shop, send } => this.send(partition, shop, send).await,
                Output::ReadPage { session, page } => {
                    let rows = this.answer(chats.messages(session, page).await);
                    if let (Page::After { .. }, Ok(rows)) = (page, &rows) {
                        this.node.metrics.chat_replayed.inc_by(rows.len() as u64);
                    }
                    Done::Page(session, page, rows)
                }
                Output::ReadTops(sessions) => Done::Tops(this.answer(chats.tops(&sessions).await)),
                Output::ReadSession(session) => Done::Session(session, this.answer(chats.session(&this.party, session).await)),
                Output::MarkRead { session, side, seq } => Done::Read(session, seq, this.answer(chats.mark_read(session, side, seq).await)),
                Output::VerifyToken(token) => {
                    if let Some(jwks) = &this.node.jwks {
                        jwks.look_for_keys(&[&token]).await;
                    }
                    Done::Token(match this.node.verifier.verify(&token, clock::now()) {
                        Ok(principal) => TokenCheck::Valid(principal),
                        Err(_) => TokenCheck::Invalid,
                    })
                }
                // All of them, a hundred at most: only so can be told whether the store has lost the party's count.
                Output::ReadNotices => Done::Notices(this.answer(this.node.ports.notices.since(&this.party, 0).await)),
                Output::Publish { to, event } => {
                    let _ = this.answer(this.node.ports.bus.publish(&to.subject(), event.encode()).await);
                    Done::Nothing
                }
                Output::OpenSession { shop, subject } => this.open_session(shop, subject).await,
                Output::Write(_) | Output::Ping | Output::Close(_) => Done::Nothing,
            }
        })
    }

    /// Message policies, then the queue; behind the message a bot's answer to it.
    async fn send(&self, partition: u16, shop: ShopId, mut send: ChatSend) -> Done {
        let id = send.client_msg_id.clone();
        let Passed { replace, reply } = match self.judge.judge(&self.node, shop, &send).await {
            Ok(passed) => passed,
            Err(refused) => return Done::Sent(id, SendOutcome::Refused(refused)),
        };
        let answer = reply.and_then(|text| message::answer(&send, shop, text));
        if let Some(text) = &replace {
            send.content.clone_from(text);
        }
        if self.enqueue(partition, shop, send).await.is_err() {
            return Done::Sent(id, SendOutcome::Failed);
        }
        if let Some(answer) = answer {
            // An answer that is lost is no reason to have the message sent again.
            let _ = self.enqueue(partition, shop, answer).await;
        }
        Done::Sent(id, replace.map_or(SendOutcome::Queued, SendOutcome::QueuedAs))
    }

    async fn enqueue(&self, partition: u16, shop: ShopId, send: ChatSend) -> Answer<()> {
        let queued = QueuedSend { send, queued_at: clock::now() };
        self.answer(self.node.ports.bus.enqueue(partition, shop, queued.encode()).await)
    }

    fn answer<T>(&self, outcome: Result<T, PortError>) -> Answer<T> {
        outcome.map_err(|error| {
            self.node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
            tracing::debug!(error = health::chain(&error), "a chat request failed");
            Unavailable
        })
    }
}
