//! What carries a connection's frames to its client and back: a WebSocket here, anything that can do the same elsewhere.
//!
//! What never happens here: reading a frame's meaning (`dialect`, core), or waiting for a client that does not read.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{Sink, Stream};
use gateway_core::chat::code::CloseCode;
use gateway_core::chat::frame::Text;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::socket::{Socket, close_for, finish};

/// Bytes handed over and not gone, from which on no more frames are taken: what waits longer waits in the connection, where its
/// age counts and newer states replace it. Four segments of a jumbo frame network, so that a replay leaves in few writes.
const HANDED_OVER_MAX: usize = 32 * 1024;

/// What happens on a wire.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The client said this.
    Text(Utf8Bytes),
    /// The client showed that it is there.
    Alive,
    /// The client sent a binary message.
    Binary,
    /// Everything that was written has left.
    Written,
    /// The client has gone, said goodbye or broke the framing.
    Over,
}

/// One client's wire.
pub(crate) trait Wire: Send {
    /// What happens next. What was written goes on leaving meanwhile; frames of the client are taken when `listen` says so.
    /// Nothing is lost when it is not polled to the end.
    fn poll_turn(&mut self, listen: bool, cx: &mut Context<'_>) -> Poll<Turn>;

    /// Whether it takes another frame now. When it did not, [`Turn::Written`] comes once it does.
    fn has_room(&self) -> bool;

    /// Takes a frame. What fails here shows in the next turn.
    fn write(&mut self, frame: Text);

    /// Asks the client for a sign of life.
    fn ping(&mut self);

    /// Since when something that was written has not left.
    fn stuck_since(&self) -> Option<Instant>;

    /// Says goodbye with `code`, or with what the client's own end deserves, and is bounded in time.
    fn close(self, code: Option<CloseCode>) -> impl Future<Output = ()> + Send;
}

/// A WebSocket as a wire.
pub(crate) struct WebSocket {
    socket: Socket,
    /// Bytes handed over since everything had left.
    handed_over: usize,
    stuck_since: Option<Instant>,
    /// What a client that broke the framing is told; `None` for one that has gone.
    farewell: Option<CloseFrame>,
    gone: bool,
}

impl WebSocket {
    /// On `socket`, whose handshake is done.
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, handed_over: 0, stuck_since: None, farewell: None, gone: false }
    }

    fn hand_over(&mut self, message: Message) {
        self.handed_over += message.len();
        self.stuck_since.get_or_insert_with(Instant::now);
        // A frame that was not taken is a gap: the next turn ends the socket.
        self.gone |= Pin::new(&mut self.socket).start_send(message).is_err();
    }
}

impl Wire for WebSocket {
    fn poll_turn(&mut self, listen: bool, cx: &mut Context<'_>) -> Poll<Turn> {
        if self.gone {
            return Poll::Ready(Turn::Over);
        }
        if self.stuck_since.is_some() {
            match Pin::new(&mut self.socket).poll_flush(cx) {
                Poll::Ready(Ok(())) => {
                    (self.handed_over, self.stuck_since) = (0, None);
                    return Poll::Ready(Turn::Written);
                }
                Poll::Ready(Err(_)) => {
                    self.gone = true;
                    return Poll::Ready(Turn::Over);
                }
                Poll::Pending => {}
            }
        }
        if !listen {
            return Poll::Pending;
        }
        loop {
            let Poll::Ready(next) = Pin::new(&mut self.socket).poll_next(cx) else { return Poll::Pending };
            return Poll::Ready(match next {
                Some(Ok(Message::Text(text))) => Turn::Text(text),
                Some(Ok(Message::Binary(_))) => Turn::Binary,
                Some(Ok(Message::Pong(_))) => Turn::Alive,
                Some(Ok(Message::Ping(_))) => {
                    // The protocol layer has queued the pong; it leaves with the next flush.
                    self.stuck_since.get_or_insert_with(Instant::now);
                    Turn::Alive
                }
                Some(Ok(Message::Frame(_))) => continue,
                Some(Ok(Message::Close(_))) => Turn::Over,
                Some(Err(error)) => {
                    self.farewell = close_for(&error);
                    self.gone = self.farewell.is_none();
                    Turn::Over
                }
                None => {
                    self.gone = true;
                    Turn::Over
                }
            });
        }
    }

    fn has_room(&self) -> bool {
        self.handed_over < HANDED_OVER_MAX
    }

    fn write(&mut self, frame: Text) {
        // A frame was made of a string, so its bytes are text, and they are shared, not copied.
        let text = Utf8Bytes::try_from(frame.into_bytes()).unwrap_or_default();
        self.hand_over(Message::Text(text));
    }

    fn ping(&mut self) {
        self.hand_over(Message::Ping(bytes::Bytes::new()));
    }

    fn stuck_since(&self) -> Option<Instant> {
        self.stuck_since
    }

    async fn close(self, code: Option<CloseCode>) {
        let Self { socket, farewell, gone, .. } = self;
        if !gone {
            let ours = code.map(|code| CloseFrame { code: code.number().into(), reason: code.reason().into() });
            finish(socket, ours.or(farewell)).await;
        }
    }
}
