//! What a connection wants done, and the two queues it waits in: requests to the world, and frames for the socket.
//!
//! What never happens here: doing it. The socket shell polls and performs.

use std::collections::VecDeque;
use std::time::Duration;

use crate::chat::code::CloseCode;
use crate::chat::event::Event;
use crate::chat::frame::Text;
use crate::chat::{AgentState, Mark, Page, Party, Send};
use crate::id::{PrincipalId, SessionId, ShopId};
use crate::time::UnixMillis;

/// One thing to do. Those that name an answer must get exactly one, also when the store failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Write a text frame.
    Write(Text),
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
        /// Whether no earlier message of this session waits for its acceptance: only then may it pass the queue by when the
        /// queue is away.
        alone: bool,
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
    /// Move a cursor of the party. Answer: `handle_mark` with the same mark.
    Mark(Mark),
    /// Close a session of the party. Answer: `handle_session_closed` with the same session.
    CloseSession(SessionId),
    /// Hand a session over: to an agent of the shop, or back to the waiting line. One that waits may be taken by its agent.
    /// Answer: `handle_transferred` with the same session.
    Transfer {
        /// The session.
        session: SessionId,
        /// Whom to; `None`: the waiting line.
        to: Option<PrincipalId>,
    },
    /// The agent's word on itself. Answer: `handle_state_set`.
    SetState {
        /// How it is.
        state: AgentState,
        /// Open sessions it wants at most; `None`: as before.
        open_max: Option<u32>,
    },
    /// Use a nonce up. Answers, in the order of the requests: `handle_nonce`.
    UseNonce {
        /// The value.
        nonce: String,
        /// When the client says it sent the frame; the nonce must be remembered for as long as such a frame is taken.
        timestamp: UnixMillis,
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
    writes: VecDeque<(Text, UnixMillis)>,
    bytes: usize,
    /// Bytes of a text in which frames that wait together leave, one a line; `None`: one frame a text.
    batch_bytes_max: Option<usize>,
    close: Option<CloseCode>,
    closing: bool,
}

impl Outbox {
    pub(super) fn new(batch_bytes_max: Option<usize>) -> Self {
        Self { batch_bytes_max, ..Self::default() }
    }

    pub(super) fn ask(&mut self, output: Output) {
        if !self.closing {
            self.asks.push_back(output);
        }
    }

    pub(super) fn write(&mut self, frame: Text, now: UnixMillis) {
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
        let ask = self.asks.pop_front();
        // An idle connection keeps no room for what it asked in busier times.
        if self.asks.is_empty() {
            self.asks = VecDeque::new();
        }
        ask
    }

    pub(super) fn pop(&mut self) -> Option<Output> {
        self.pop_ask().or_else(|| self.pop_text().map(Output::Write)).or_else(|| self.close.take().map(Output::Close))
    }

    /// The next text for the socket: a frame, or in batch mode as many of those that wait as fit, one a line.
    fn pop_text(&mut self) -> Option<Text> {
        let first = self.pop_frame(usize::MAX)?;
        let Some(mut room) = self.batch_bytes_max.map(|max| max.saturating_sub(first.len())) else { return Some(first) };
        let mut joined = String::new();
        while let Some(next) = self.pop_frame(room.saturating_sub(1)) {
            room -= 1 + next.len();
            if joined.is_empty() {
                joined.push_str(first.as_str());
            }
            joined.push('\n');
            joined.push_str(next.as_str());
        }
        Some(if joined.is_empty() { first } else { joined.into() })
    }

    fn pop_frame(&mut self, bytes_max: usize) -> Option<Text> {
        let (frame, _) = self.writes.pop_front_if(|(frame, _)| frame.len() <= bytes_max)?;
        self.bytes -= frame.len();
        if self.writes.is_empty() {
            self.writes = VecDeque::new();
        }
        Some(frame)
    }

    /// Entries there is room for without asking for memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.asks.capacity() + self.writes.capacity()
    }

    pub(super) fn check_invariants(&self) {
        debug_assert_eq!(self.bytes, self.writes.iter().map(|(frame, _)| frame.len()).sum::<usize>());
        debug_assert!(self.closing || self.close.is_none());
    }
}
