//! One chat socket: frames and events into the connection's state machine, its outputs out into the world.
//!
//! The loop never waits for the client: while the wire takes no frame only requests to the stores are taken from the state
//! machine, whose queue of frames is bounded. What it may do and when is decided in `core::chat::connection`.

mod opening;
mod perform;

use std::future::poll_fn;
use std::num::NonZeroU16;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{FuturesOrdered, FuturesUnordered};
use gateway_core::chat::code::CloseCode;
use gateway_core::chat::connection::{Connection, ConnectionLimits, Output, TokenCheck};
use gateway_core::chat::event::{Event, Heard};
use gateway_core::chat::frame::FrameLimits;
use gateway_core::time::UnixMillis;
use prometheus::IntGauge;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::opening::Opening;
pub(crate) use self::perform::{Ask, Done, Performer};
use crate::clock;
use crate::node::Node;
use crate::socket::dialect::Dialect;
use crate::socket::hub::{Post, Seat};
use crate::socket::wire::{Turn, Wire};

/// How long what was handed to the wire may take to leave before its client counts as slow.
const STUCK_MAX: Duration = Duration::from_secs(10);
/// How long what a client asked for before it left may take.
const WIND_UP_MAX: Duration = Duration::from_secs(2);

/// How exactly the times of the state machine translate into the runtime's.
const CLOCK_GRAIN: Duration = Duration::from_millis(2);

/// Runs a connection over `wire` to its end.
///
/// What a socket keeps is one allocation, and the future around it holds no more than what it waits for: thousands of both lie
/// idle on a node.
pub(crate) fn run<W: Wire + 'static>(node: Arc<Node>, opening: Opening, wire: W, dialect: Dialect) -> impl Future<Output = ()> + Send {
    let Opening { start, seat, permit, judge } = opening;
    let gauge = node.metrics.connections.with_label_values(&["chat"]);
    gauge.inc();
    seat.speak_for(start.conn_id.as_str());
    Box::new(Chat {
        performer: Performer::new(node.clone(), &start, judge),
        connection: Connection::new(start, limits(&node), clock::now()),
        node,
        wire,
        dialect,
        asks: Asks::default(),
        seat,
        handed_over: None,
        permit,
        gauge,
    })
    .live()
}

/// What one connection of `node` may use.
pub(crate) fn limits(node: &Node) -> ConnectionLimits {
    let chat = &node.config.chat;
    ConnectionLimits {
        frame: FrameLimits { bytes_max: chat.frame_bytes_max, page_max: chat.page_max, ..FrameLimits::default() },
        partitions: NonZeroU16::new(chat.partitions).unwrap_or(NonZeroU16::MIN),
        heartbeat: chat.heartbeat,
        position_check: chat.position_check,
        queue_bytes_max: chat.queue_bytes_max,
        guard: chat.guard,
        reconnect_within: node.switchboard.gate.spread(node.sockets.open()),
        ..ConnectionLimits::default()
    }
}

struct Chat<W> {
    node: Arc<Node>,
    connection: Connection,
    performer: Performer,
    wire: W,
    dialect: Dialect,
    asks: Asks,
    seat: Seat,
    /// When the socket closes because the node hands its connections over.
    handed_over: Option<Instant>,
    permit: OwnedSemaphorePermit,
    gauge: IntGauge,
}

/// Requests to the stores under way; the state machine bounds each kind.
#[derive(Default)]
struct Asks {
    any: FuturesUnordered<Ask>,
    /// Those whose answers must keep the order of the requests, made when one is needed.
    openings: Option<Box<FuturesOrdered<Ask>>>,
    nonces: Option<Box<FuturesOrdered<Ask>>>,
}

/// What a loop wakes up for.
#[allow(clippy::large_enum_variant, reason = "one at a time, on its way from one line to the next")]
enum Input {
    Turn(Turn),
    Post(Post),
    Done(Done),
    Alarm,
}

impl<W: Wire> Chat<W> {
    async fn live(mut self: Box<Self>) {
        let code = self.talk().await;
        let label = code.map_or_else(|| "none".to_owned(), |code| code.number().to_string());
        self.node.metrics.chat_closed.with_label_values(&[&*label]).inc();
        if code.is_none() {
            let _ = timeout(WIND_UP_MAX, Box::pin(self.wind_up())).await;
        }
        // What was asked and has not been answered is given up, and nothing is heard any more.
        let Self { performer, wire, permit, gauge, asks, seat, .. } = *self;
        drop((asks, seat));
        // A goodbye must not wait for a store that is away, and presence not for a client that does not answer.
        Box::pin(async move { tokio::join!(performer.leave(), wire.close(code)) }).await;
        drop(permit);
        gauge.dec();
    }

    /// The code it ended with; `None` when the client ended it.
    async fn talk(&mut self) -> Option<CloseCode> {
        let mut next_beat = Instant::now();
        let mut alarm = pin!(sleep_until(next_beat));
        loop {
            if let Some(code) = self.pump() {
                return Some(code);
            }
            let stuck_at = self.wire.stuck_since().map(|since| since + STUCK_MAX);
            let due = [self.connection.poll_timeout(), self.dialect.poll_timeout()].into_iter().flatten().min().map(instant);
            let due = [due, stuck_at, self.handed_over].into_iter().flatten().fold(next_beat, Instant::min);
            // A timer is cheap to leave and dear to move: the clock's grain is not worth it.
            if alarm.is_elapsed() || due + CLOCK_GRAIN < alarm.deadline() || due > alarm.deadline() + CLOCK_GRAIN {
                alarm.as_mut().reset(due);
            }
            let input = {
                // Cancel safe: streams, wires and seats keep what they did not return, and asks stay in their sets.
                let Self { connection, asks, seat, wire, dialect, .. } = &mut *self;
                let listen = !connection.is_congested() && dialect.listens();
                tokio::select! {
                    turn = poll_fn(|cx| wire.poll_turn(listen, cx)) => Input::Turn(turn),
                    post = poll_fn(|cx| seat.poll_post(cx)) => Input::Post(post),
                    Some(done) = asks.any.next() => Input::Done(done),
                    Some(done) = next(&mut asks.openings) => Input::Done(done),
                    Some(done) = next(&mut asks.nonces) => Input::Done(done),
                    () = alarm.as_mut() => Input::Alarm,
                }
            };
            let now = clock::now();
            match input {
                Input::Turn(Turn::Text(text)) => {
                    let Self { dialect, connection, .. } = &mut *self;
                    dialect.hear(&text, connection, now);
                }
                Input::Turn(Turn::Alive) => self.connection.handle_pong(now),
                Input::Turn(Turn::Binary) => self.connection.close(CloseCode::Unsupported),
                Input::Turn(Turn::Written) => {}
                Input::Turn(Turn::Over) => return None,
                Input::Post(post) => self.post(post),
                Input::Done(done) => self.done(done),
                Input::Alarm => {
                    let at = Instant::now();
                    if self.wire.stuck_since().is_some_and(|since| since + STUCK_MAX <= at) {
                        return Some(CloseCode::Slow);
                    }
                    if next_beat <= at {
                        self.asks.any.push(self.performer.beat());
                        next_beat = at + self.node.config.chat.heartbeat;
                    }
                    if self.handed_over.is_some_and(|due| due <= at) {
                        self.connection.close(CloseCode::Migrate);
                        self.handed_over = Some(at + self.node.config.node.drain);
                    }
                    let Self { dialect, connection, .. } = &mut *self;
                    connection.handle_timeout(now);
                    dialect.wake(connection, now);
                }
            }
        }
    }

    /// Carries out what the client asked for before it left: it may not come back to ask again.
    async fn wind_up(&mut self) {
        loop {
            while let Some(ask) = self.connection.poll_ask() {
                self.ask(ask);
            }
            let Asks { any, openings, nonces } = &mut self.asks;
            let done = tokio::select! {
                Some(done) = any.next() => done,
                Some(done) = next(openings) => done,
                Some(done) = next(nonces) => done,
                else => return,
            };
            self.done(done);
        }
    }

    /// Performs what the state machine wants now; a close code ends the socket.
    fn pump(&mut self) -> Option<CloseCode> {
        loop {
            let Self { connection, asks, wire, dialect, .. } = &mut *self;
            let output = if wire.has_room() {
                if let Some(frame) = dialect.poll_frame() {
                    wire.write(frame);
                    continue;
                }
                // Whoever takes its leave may have asked for something just before.
                if let Some(code) = dialect.closes_with().filter(|code| *code != CloseCode::Normal || asks.any.is_empty()) {
                    connection.close(code);
                }
                connection.poll_output()
            } else {
                connection.poll_ask()
            };
            match output? {
                Output::Close(code) => return Some(code),
                Output::Write(frame) => {
                    if let Some(frame) = dialect.tell(frame, connection, clock::now()) {
                        wire.write(frame);
                    }
                }
                Output::Ping => wire.ping(),
                ask @ (Output::OpenSession { .. }
                | Output::UseNonce { .. }
                | Output::ReadPage { .. }
                | Output::Enqueue { .. }
                | Output::ReadTops(_)
                | Output::ReadSession(_)
                | Output::Mark(_)
                | Output::CloseSession(_)
                | Output::Transfer { .. }
                | Output::SetState { .. }
                | Output::VerifyToken(_)
                | Output::ReadNotices
                | Output::Publish { .. }) => self.ask(ask),
            }
        }
    }

    /// Performs a request to the world.
    fn ask(&mut self, output: Output) {
        let Self { connection, performer, asks, .. } = self;
        match output {
            // The wire's, which the pump serves.
            Output::Write(_) | Output::Ping | Output::Close(_) => {}
            opening @ Output::OpenSession { .. } => asks.openings.get_or_insert_default().push_back(performer.ask(opening, None)),
            nonce @ Output::UseNonce { .. } => asks.nonces.get_or_insert_default().push_back(performer.ask(nonce, None)),
            read @ Output::ReadPage { session, .. } => {
                let known = connection.known_top(session);
                asks.any.push(performer.ask(read, known));
            }
            ask @ (Output::Enqueue { .. }
            | Output::ReadTops(_)
            | Output::ReadSession(_)
            | Output::Mark(_)
            | Output::CloseSession(_)
            | Output::Transfer { .. }
            | Output::SetState { .. }
            | Output::VerifyToken(_)
            | Output::ReadNotices
            | Output::Publish { .. }) => asks.any.push(performer.ask(ask, None)),
        }
    }

    fn post(&mut self, post: Post) {
        let (node, now) = (&self.node, clock::now());
        match post {
            Post::Heard(heard) => {
                self.observe(&heard);
                self.connection.handle_event(&heard, now);
            }
            Post::Lost => {
                node.metrics.chat_lost.inc();
                self.connection.handle_loss();
            }
            Post::Revoked => self.connection.revoke(),
            Post::Drain => {
                // Spread over a part of the time, so that the other nodes are not stormed at once.
                let patience = node.config.node.drain / 2;
                let spread = node.switchboard.gate.spread(node.sockets.open()).min(patience.mul_f64(0.6));
                self.connection.handle_drain(spread.mul_f64(0.5 + 0.5 * rand::random::<f64>()), now);
                self.handed_over = Some(Instant::now() + patience);
            }
        }
    }

    fn observe(&self, heard: &Heard) {
        if let Event::Stored { message, dup: false, origin, .. } = &heard.event
            && origin != self.connection.conn_id().as_str()
        {
            self.node.metrics.chat_deliver_seconds.with_label_values::<&str>(&[]).observe(clock::now().since(message.at).as_secs_f64());
        }
    }

    fn done(&mut self, done: Done) {
        let now = clock::now();
        let Done::Token(check) = done else {
            return done.tell(&mut self.connection, now);
        };
        if let TokenCheck::Valid(principal) = &check {
            self.seat.renew(principal.token_id.clone());
            // Revoked while it was verified: the word of it was for the former token.
            if self.node.verifier.revokes(principal) {
                self.connection.revoke();
            }
        }
        self.connection.handle_token(check, now);
    }
}

/// The next answer of requests whose order counts. Cancel safe: what is not returned stays.
async fn next(asks: &mut Option<Box<FuturesOrdered<Ask>>>) -> Option<Done> {
    asks.as_mut()?.next().await
}

/// The runtime's instant for a time of day.
fn instant(at: UnixMillis) -> Instant {
    Instant::now() + at.since(clock::now())
}
