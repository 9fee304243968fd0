//! One chat socket: frames and events into the connection's state machine, its outputs out into the world.
//!
//! The loop never waits for the client: while a write is under way only requests to the stores are taken from the state
//! machine, whose queue of frames is bounded. What it may do and when is decided in `core::chat::connection`.

mod opening;
mod perform;

use std::num::NonZeroU16;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesOrdered, FuturesUnordered, SplitSink, SplitStream};
use futures::{Sink, SinkExt, StreamExt};
use gateway_core::chat::code::CloseCode;
use gateway_core::chat::connection::{Connection, ConnectionLimits, Output};
use gateway_core::chat::event::Event;
use gateway_core::chat::frame::FrameLimits;
use gateway_core::ports::Subscription;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

pub(crate) use self::opening::Opening;
use self::perform::{Ask, Done, Performer};
use crate::clock;
use crate::node::Node;
use crate::socket::{Socket, close_for, finish};

/// How long a flush may take before the client counts as gone.
const FLUSH_MAX: Duration = Duration::from_secs(10);

/// Runs a socket to its end.
pub(crate) async fn run(node: Arc<Node>, opening: Opening, socket: Socket) {
    let gauge = node.metrics.connections.with_label_values(&["chat"]);
    gauge.inc();
    let Opening { start, subscription, permit, judge } = opening;
    let performer = Performer::new(node.clone(), &start, judge);
    let connection = Connection::new(start, limits(&node), clock::now());
    let (sink, stream) = socket.split();
    let chat = Chat {
        connection,
        performer: performer.clone(),
        asks: FuturesUnordered::new(),
        openings: FuturesOrdered::new(),
        writer: Writer { sink, flush_by: None },
    };
    let frame = chat.run(&node, stream, subscription).await;
    performer.leave().await;
    if let Some((sink, stream, frame)) = frame
        && let Ok(socket) = sink.reunite(stream)
    {
        finish(socket, frame).await;
    }
    drop(permit);
    gauge.dec();
}

fn limits(node: &Node) -> ConnectionLimits {
    let chat = &node.config.chat;
    ConnectionLimits {
        frame: FrameLimits { bytes_max: chat.frame_bytes_max, page_max: chat.page_max, ..FrameLimits::default() },
        partitions: NonZeroU16::new(chat.partitions).unwrap_or(NonZeroU16::MIN),
        heartbeat: chat.heartbeat,
        position_check: chat.position_check,
        queue_bytes_max: chat.queue_bytes_max,
        ..ConnectionLimits::default()
    }
}

struct Chat {
    connection: Connection,
    performer: Performer,
    /// Requests to the stores under way; the state machine bounds each kind.
    asks: FuturesUnordered<Ask>,
    /// Session openings, whose answers must keep the order of the requests.
    openings: FuturesOrdered<Ask>,
    writer: Writer,
}

/// What is left when a socket ends: both halves, and the close frame to say goodbye with.
type Ended = Option<(SplitSink<Socket, Message>, SplitStream<Socket>, Option<CloseFrame>)>;

impl Chat {
    async fn run(mut self, node: &Node, mut stream: SplitStream<Socket>, mut subscription: Box<dyn Subscription>) -> Ended {
        let mut drain = node.drain.watch();
        let mut handed_over = None;
        let mut next_beat = Instant::now();
        loop {
            if let Some(code) = self.pump() {
                let frame = CloseFrame { code: code.number().into(), reason: code.reason().into() };
                return Some((self.writer.sink, stream, Some(frame)));
            }
            let due = self.connection.poll_timeout().map_or(next_beat, |at| next_beat.min(instant(at)));
            let due = handed_over.map_or(due, |at| due.min(at));
            let due = self.writer.flush_by.map_or(due, |at| due.min(at));
            // Every branch is cancel safe: streams and subscriptions keep what was not returned, a flush goes on where it
            // was, and asks stay in their sets.
            tokio::select! {
                frame = stream.next(), if !self.connection.is_congested() => {
                    match frame {
                        Some(Ok(message)) => if !self.heard(message) {
                            return Some((self.writer.sink, stream, None));
                        },
                        Some(Err(error)) => return Some((self.writer.sink, stream, close_for(&error))),
                        None => return None,
                    }
                }
                payload = subscription.next() => match payload {
                    Some(payload) => self.event(node, &payload),
                    // The bus is gone for good; position checks go on finding messages, on another node better.
                    None => self.connection.close(CloseCode::Restart),
                },
                Some(done) = self.asks.next() => self.done(done),
                Some(done) = self.openings.next() => self.done(done),
                flushed = self.writer.flush(), if self.writer.flush_by.is_some() => if flushed.is_err() {
                    return None;
                },
                _ = drain.wait_for(|draining| *draining), if handed_over.is_none() => {
                    // Spread over a third of the time, so that the other nodes are not stormed at once.
                    let patience = node.config.node.drain / 2;
                    let after = patience.mul_f64(rand::random::<f64>() * 0.6);
                    self.connection.handle_drain(after, clock::now());
                    handed_over = Some(Instant::now() + patience);
                }
                () = sleep_until(due) => {
                    let now = Instant::now();
                    if self.writer.flush_by.is_some_and(|at| at <= now) {
                        return None;
                    }
                    if next_beat <= now {
                        self.asks.push(self.performer.beat());
                        next_beat = now + node.config.chat.heartbeat;
                    }
                    if handed_over.is_some_and(|at| at <= now) {
                        self.connection.close(CloseCode::Migrate);
                        handed_over = Some(now + node.config.node.drain);
                    }
                    self.connection.handle_timeout(clock::now());
                }
            }
        }
    }

    /// Performs what the state machine wants now; a close code ends the socket.
    fn pump(&mut self) -> Option<CloseCode> {
        loop {
            let output = if self.writer.flush_by.is_some() { self.connection.poll_ask() } else { self.connection.poll_output() };
            let message = match output? {
                Output::Close(code) => return Some(code),
                Output::Write(text) => Message::text(text),
                Output::Ping => Message::Ping(bytes::Bytes::new()),
                Output::OpenSession { shop, subject } => {
                    self.openings.push_back(self.performer.open_session(shop, subject));
                    continue;
                }
                ask @ (Output::Enqueue { .. }
                | Output::ReadPage { .. }
                | Output::ReadTops(_)
                | Output::ReadSession(_)
                | Output::MarkRead { .. }
                | Output::VerifyToken(_)
                | Output::ReadNotices
                | Output::Publish { .. }) => {
                    self.asks.push(self.performer.ask(ask));
                    continue;
                }
            };
            if self.writer.start(message).is_err() {
                // The next read or flush finds out why and ends the socket.
                self.writer.flush_by = Some(Instant::now());
            }
        }
    }

    /// A frame arrived; false when the client said goodbye.
    fn heard(&mut self, message: Message) -> bool {
        match message {
            Message::Text(text) => self.connection.handle_text(&text, clock::now()),
            Message::Binary(_) => self.connection.close(CloseCode::Unsupported),
            Message::Pong(_) => self.connection.handle_pong(clock::now()),
            // The protocol layer has queued the pong; it leaves with the next flush.
            Message::Ping(_) => {
                self.connection.handle_pong(clock::now());
                self.writer.flush_soon();
            }
            Message::Close(_) => return false,
            Message::Frame(_) => {}
        }
        true
    }

    fn event(&mut self, node: &Node, payload: &[u8]) {
        match Event::decode(payload) {
            Ok(event) => {
                let now = clock::now();
                if let Event::Stored { message, dup: false, origin, .. } = &event
                    && origin != self.connection.conn_id().as_str()
                {
                    node.metrics.chat_deliver_seconds.with_label_values::<&str>(&[]).observe(now.since(message.at).as_secs_f64());
                }
                self.connection.handle_event(event, now);
            }
            Err(error) => tracing::warn!(%error, "a message on the bus is no event"),
        }
    }

    fn done(&mut self, done: Done) {
        let now = clock::now();
        match done {
            Done::Nothing => {}
            Done::Sent(id, outcome) => self.connection.handle_send_outcome(&id, outcome, now),
            Done::Page(session, page, answer) => self.connection.handle_page(session, page, answer, now),
            Done::Tops(answer) => self.connection.handle_tops(answer, now),
            Done::Session(session, answer) => self.connection.handle_session(session, answer, now),
            Done::Read(session, seq, answer) => self.connection.handle_read_mark(session, seq, answer, now),
            Done::Opened(answer) => self.connection.handle_opened(answer, now),
            Done::Notices(answer) => self.connection.handle_notices(answer, now),
            Done::Token(check) => self.connection.handle_token(check, now),
        }
    }
}

/// The writing half: frames are handed over until a flush is due, then one flush runs until it is done.
struct Writer {
    sink: SplitSink<Socket, Message>,
    /// While a flush is under way: when it must be done.
    flush_by: Option<Instant>,
}

impl Writer {
    fn start(&mut self, message: Message) -> Result<(), WsError> {
        Pin::new(&mut self.sink).start_send(message)?;
        self.flush_soon();
        Ok(())
    }

    fn flush_soon(&mut self) {
        self.flush_by.get_or_insert_with(|| Instant::now() + FLUSH_MAX);
    }

    async fn flush(&mut self) -> Result<(), WsError> {
        self.sink.flush().await?;
        self.flush_by = None;
        Ok(())
    }
}

/// The runtime's instant for a time of day.
fn instant(at: gateway_core::time::UnixMillis) -> Instant {
    Instant::now() + at.since(clock::now())
}
