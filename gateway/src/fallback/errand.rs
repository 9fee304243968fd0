//! One frame carried out on a connection of its own, which lives until its answer is known.
//!
//! The connection is the same state machine that a socket drives, so everything holds here that holds there: message policies,
//! the order of a sender's messages, the queue and the road past it, ownership, error codes. What never happens here: a rule of
//! the chat. The party's streams on any node hear of what came of it as they hear of another device.

use std::future::poll_fn;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use gateway_core::chat::Party;
use gateway_core::chat::code::ErrorCode;
use gateway_core::chat::connection::{ConnId, Connection, Output, Start};
use gateway_core::chat::frame::{ClientBody, ClientFrame, ErrorFrame, FrameLimits};
use gateway_core::id::{ClientMsgId, DeviceId};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock;
use crate::fallback::{Caller, field};
use crate::routes::chat::Question;
use crate::routes::outcome::{Failure, Outcome, Rejected};
use crate::socket::chat::{Ask, Performer, limits};
use crate::socket::hub::{Post, Seat};
use crate::socket::message::Judge;

/// How long a request waits for its answer. A message that is queued by then may be stored later; sent again with its id, it is
/// stored once.
const WAIT: Duration = Duration::from_secs(5);

/// How often the position of a session is looked up while an acceptance is awaited, should its event have been lost.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// When a client should ask again for what was not answered in time.
const RETRY: Duration = Duration::from_millis(500);

/// The name of the one request of the connection.
const NAME: &str = "http";

/// Reads the body of a request that answers `question` as a frame.
pub(super) fn frame(question: Question, body: &[u8], bytes_max: usize) -> Result<ClientFrame, Failure> {
    let Ok(Value::Object(mut members)) = serde_json::from_slice::<Value>(body) else {
        return Err(Failure::BadRequest("the body is not one JSON object".into()));
    };
    let implied = match question {
        Question::Open => Some("open"),
        Question::Read => Some("ack"),
        Question::Send
        | Question::Frame
        | Question::Sessions
        | Question::Messages
        | Question::Waiting
        | Question::Agents
        | Question::Events => None,
    };
    members.extend(implied.map(|kind| ("type".to_owned(), kind.into())));
    members.insert("reqId".into(), NAME.into());
    let frame_limits = FrameLimits { bytes_max: bytes_max + NAME_BYTES, ..FrameLimits::default() };
    let frame = ClientFrame::parse(&Value::Object(members).to_string(), &frame_limits).map_err(|fault| rejected(&fault.0.encode()))?;
    let bad = |sentence: &str| Failure::BadRequest(sentence.into());
    match (&frame.body, question) {
        (ClientBody::Message { client_msg_id: None, .. } | ClientBody::Recall { client_msg_id: None, .. }, _) => {
            Err(bad("clientMsgId is missing: without it a message that is sent again would be stored twice"))
        }
        (ClientBody::Message { .. }, Question::Send | Question::Frame)
        | (ClientBody::Open { .. }, Question::Open | Question::Frame)
        | (ClientBody::Ack { .. }, Question::Read | Question::Frame)
        | (
            ClientBody::Recv { .. }
            | ClientBody::Typing { .. }
            | ClientBody::Close { .. }
            | ClientBody::Transfer { .. }
            | ClientBody::Status { .. }
            | ClientBody::Recall { .. },
            Question::Frame,
        ) => Ok(frame),
        (_, Question::Send) => Err(bad("type must be one of text, image, order_card, product_card")),
        _ => Err(bad("this type is for sockets: read with GET, and open a new stream with a new token")),
    }
}

/// Bytes that the name of the request and the type add to a body.
const NAME_BYTES: usize = 32;

/// Carries `frame` out for `party` and waits for what comes of it.
pub(super) async fn run(caller: Caller<'_>, party: Party, frame: ClientFrame) -> Result<Outcome, Failure> {
    let Caller { node, head, principal, policies } = caller;
    if node.drain.started() {
        return Err(Failure::Draining);
    }
    // A place among the sockets: errands are bounded with them, and waited for when the node stops.
    let _place = node.sockets.admit().ok_or(Failure::Overloaded)?;
    let awaited = Awaited::of(&frame);
    let seat = match &awaited {
        // While the bus is away a message goes straight to the ledger, and its acceptance is known without an event.
        Awaited::Message(_) => Some(node.switchboard.hub.join(&party, principal.token_id.clone()).await),
        Awaited::Answer => None,
    };
    let conn_id = ConnId::parse(&format!("{:032x}", rand::random::<u128>())).map_err(|_| Failure::Internal)?;
    if let Some(seat) = &seat {
        seat.speak_for(conn_id.as_str());
    }
    let judge = Judge::new(node, head, principal.clone(), policies);
    let device = field(head.query.as_deref().unwrap_or_default(), "device").and_then(|device| DeviceId::parse(device).ok());
    let start = Start {
        party,
        principal,
        conn_id,
        sessions: Vec::new(),
        resume: None,
        notices: None,
        device,
        frame_key: None,
        state: None,
        batch: false,
    };
    let performer = Performer::new(node.clone(), &start, judge);
    let mut limits = limits(node);
    limits.position_check = LOOK_EVERY;
    let mut connection = Connection::new(start, limits, clock::now());
    connection.handle_frame(frame, clock::now());
    Errand { connection, performer, asks: FuturesUnordered::new(), awaited }.run(seat).await
}

/// What ends an errand.
enum Awaited {
    /// Word of this message.
    Message(ClientMsgId),
    /// An answer, or that nothing is left to do.
    Answer,
}

impl Awaited {
    fn of(frame: &ClientFrame) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only messages are awaited by their id")]
        match &frame.body {
            ClientBody::Message { client_msg_id: Some(id), .. } | ClientBody::Recall { client_msg_id: Some(id), .. } => {
                Self::Message(id.clone())
            }
            _ => Self::Answer,
        }
    }

    /// Whether a frame of the connection answers the request.
    fn is(&self, frame: &Value) -> bool {
        let named = frame["reqId"] == NAME;
        match self {
            Self::Answer => named,
            Self::Message(id) => named || frame["clientMsgId"] == id.as_str(),
        }
    }
}

struct Errand {
    connection: Connection,
    performer: Performer,
    asks: FuturesUnordered<Ask>,
    awaited: Awaited,
}

impl Errand {
    async fn run(mut self, seat: Option<Seat>) -> Result<Outcome, Failure> {
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(outcome) = self.pump() {
                self.let_go();
                return outcome;
            }
            let due = self.connection.poll_timeout().map_or(deadline, |at| deadline.min(Instant::now() + at.since(clock::now())));
            // Every branch is cancel safe: a seat keeps what was not returned, asks stay in their set.
            tokio::select! {
                Some(done) = self.asks.next() => done.tell(&mut self.connection, clock::now()),
                post = heard(seat.as_ref()) => match post {
                    Post::Heard(heard) => self.connection.handle_event(&heard, clock::now()),
                    Post::Lost => self.connection.handle_loss(),
                    Post::Revoked => return Err(Failure::Unauthenticated),
                    // The answer comes before the node goes.
                    Post::Drain => {}
                },
                () = sleep_until(due) => {
                    if Instant::now() >= deadline {
                        return Err(self.unanswered());
                    }
                    self.connection.handle_timeout(clock::now());
                }
            }
        }
    }

    /// Performs what the connection wants; what came of the errand, once it is known.
    fn pump(&mut self) -> Option<Result<Outcome, Failure>> {
        while let Some(output) = self.connection.poll_output() {
            match output {
                Output::Write(text) => {
                    let frame: Value = serde_json::from_str(text.as_str()).unwrap_or(Value::Null);
                    if self.awaited.is(&frame) {
                        return Some(answer(frame));
                    }
                }
                Output::Ping => self.connection.handle_pong(clock::now()),
                Output::Close(_) => return Some(Err(self.unanswered())),
                ask @ (Output::Enqueue { .. }
                | Output::ReadPage { .. }
                | Output::ReadTops(_)
                | Output::ReadSession(_)
                | Output::Mark(_)
                | Output::CloseSession(_)
                | Output::Transfer { .. }
                | Output::SetState { .. }
                | Output::UseNonce { .. }
                | Output::OpenSession { .. }
                | Output::VerifyToken(_)
                | Output::ReadNotices
                | Output::Publish { .. }) => self.asks.push(self.performer.ask(ask, None)),
            }
        }
        match &self.awaited {
            Awaited::Answer if self.asks.is_empty() => Some(Ok(Outcome::Data(json!({})))),
            Awaited::Answer | Awaited::Message(_) => None,
        }
    }

    /// What is still under way is carried to its end: behind a message that is accepted already there may be a bot's answer.
    fn let_go(self) {
        if !self.asks.is_empty() {
            tokio::spawn(timeout(WAIT, self.asks.for_each(|_| std::future::ready(()))));
        }
    }

    fn unanswered(&self) -> Failure {
        let code = match self.awaited {
            Awaited::Message(_) => ErrorCode::NotDurable,
            Awaited::Answer => ErrorCode::Internal,
        };
        let frame = ErrorFrame { retry_after: Some(RETRY), ..ErrorFrame::of(code) };
        rejected(&frame.encode())
    }
}

fn answer(mut frame: Value) -> Result<Outcome, Failure> {
    if frame["type"] == "error" {
        return Err(rejected(&frame.to_string()));
    }
    if let Some(members) = frame.as_object_mut() {
        members.remove("reqId");
    }
    Ok(Outcome::Data(frame))
}

/// The failure that an error frame tells.
fn rejected(frame: &str) -> Failure {
    serde_json::from_str::<Rejected>(frame).map_or(Failure::Internal, Failure::Chat)
}

/// What reaches the seat next; nothing without one.
async fn heard(seat: Option<&Seat>) -> Post {
    match seat {
        Some(seat) => poll_fn(|cx| seat.poll_post(cx)).await,
        None => std::future::pending().await,
    }
}
