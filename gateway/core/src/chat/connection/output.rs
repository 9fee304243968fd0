//! What a connection wants done, and the two queues it waits in: requests to the world, and frames for the socket.
//!
//! What never happens here: doing it. The socket shell polls and performs.

use std::collections::VecDeque;
use std::time::Duration;

use crate::chat::code::CloseCode;
use crate::chat::event::Event;
use crate::chat::{Page, Party, Send, Side};
use crate::id::{SessionId, ShopId};
use crate::time::UnixMillis;

/// One thing to do. Those that name an answer must get exactly one, also when the store failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Write a text frame.
    Write(String),
    /// Send a WebSocket ping; report the pong with [`super::Connection::handle_pong`].
    Ping,
    /// Run the message policies, then queue the message. Answer: `handle_send_outcome`.
    Enqueue {
        /// Where to.
        partition: u16,
        /// The session's shop.
        shop: ShopId,
        /// The message.
        send: Send,
    },
    /// Read messages. Answer: `handle_page` with the same session and page.
    ReadPage {
        /// The session; the party's own.
        session: SessionId,
        /// Which.
        page: Page,
    },
    /// Read positions. Answer: `handle_tops`.
    ReadTops(Vec<SessionId>),
    /// Find a session if the party belongs to it. Answer: `handle_session`.
    ReadSession(SessionId),
    /// Move a read cursor. Answer: `handle_read_mark` with the same session and seq.
    MarkRead {
        /// The session; the party's own.
        session: SessionId,
        /// The party's side.
        side: Side,
        /// Up to here.
        seq: u64,
    },
    /// Open a session for the user. Answers, in the order of the requests: `handle_opened`.
    OpenSession {
        /// Which shop; the node's default when absent.
        shop: Option<ShopId>,
        /// What it is about.
        subject: String,
    },
    /// Verify a token. Answer: `handle_token`.
    VerifyToken(String),
    /// Read what is kept of the party's notices. Answer: `handle_notices`.
    ReadNotices,
    /// Publish on the party's subject. No answer; a loss repairs itself.
    Publish {
        /// Whose devices hear it.
        to: Party,
        /// What.
        event: Event,
    },
    /// Close the socket with this code. The last output.
    Close(CloseCode),
}

/// Outputs that wait.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    asks: VecDeque<Output>,
    writes: VecDeque<(String, UnixMillis)>,
    bytes: usize,
    close: Option<CloseCode>,
    closing: bool,
}

impl Outbox {
    pub(super) fn ask(&mut self, output: Output) {
        if !self.closing {
            self.asks.push_back(output);
        }
    }

    pub(super) fn write(&mut self, frame: String, now: UnixMillis) {
        if !self.closing {
            self.bytes += frame.len();
            self.writes.push_back((frame, now));
        }
    }

    /// After what waits already, close. Nothing can be added any more.
    pub(super) fn close(&mut self, code: CloseCode) {
        if !self.closing {
            self.closing = true;
            self.close = Some(code);
        }
    }

    /// Close without waiting for a client that does not read.
    pub(super) fn close_at_once(&mut self, code: CloseCode) {
        self.asks.clear();
        self.writes.clear();
        self.bytes = 0;
        self.close(code);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn asks(&self) -> usize {
        self.asks.len()
    }

    /// When the oldest waiting frame is older than `stall`.
    pub(super) fn stalled_at(&self, stall: Duration) -> Option<UnixMillis> {
        self.writes.front().map(|(_, since)| since.plus(stall))
    }

    pub(super) fn pop_ask(&mut self) -> Option<Output> {
        self.asks.pop_front()
    }

    pub(super) fn pop(&mut self) -> Option<Output> {
        if let Some(ask) = self.pop_ask() {
            return Some(ask);
        }
        if let Some((frame, _)) = self.writes.pop_front() {
            self.bytes -= frame.len();
            return Some(Output::Write(frame));
        }
        self.close.take().map(Output::Close)
    }

    pub(super) fn check_invariants(&self) {
        debug_assert_eq!(self.bytes, self.writes.iter().map(|(frame, _)| frame.len()).sum::<usize>());
        debug_assert!(self.closing || self.close.is_none());
    }
}
