//! What frames must prove before they are served: who wrote them (signature), when (timestamp), and that they come once
//! (nonce).
//!
//! A nonce is asked of a store. Until the answer is there its frame waits and every later one behind it, so that the client's
//! order holds. What never happens here: remembering nonces, or reading a clock.

use std::collections::VecDeque;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{Connection, Output};
use crate::chat::code::{CloseCode, ErrorCode};
use crate::chat::frame::{ClientBody, ClientFrame, ErrorFrame, FrameError};
use crate::config::Signature;
use crate::time::UnixMillis;

/// Frames that wait for nonces at which the connection is given up. Above [`super::ConnectionLimits::sends_max`] the shell reads
/// no more, so only the rest of a text that holds many frames comes on top.
const WAITING_MAX: usize = 4_096;

/// The connection's key, and what waits for an answer.
#[derive(Debug)]
pub(super) struct Guard {
    key: Option<[u8; 32]>,
    waiting: VecDeque<Waiting>,
}

/// A frame that waits; the first one always for its own nonce.
#[derive(Debug)]
struct Waiting {
    frame: ClientFrame,
    /// Whether its nonce was asked for. Answers come in the order of the questions.
    asked: bool,
    came: UnixMillis,
}

impl Guard {
    pub(super) fn new(key: Option<[u8; 32]>) -> Self {
        Self { key, waiting: VecDeque::new() }
    }

    /// Frames that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn check_invariants(&self) {
        debug_assert!(self.waiting.front().is_none_or(|first| first.asked), "a frame that waits for nothing");
    }

    /// Whether `mac` is the one of `body` under the connection's key. Takes the same time wherever the two differ.
    fn proves(&self, mac: &[u8], body: &str) -> bool {
        let Some(Ok(key)) = self.key.map(|key| Hmac::<Sha256>::new_from_slice(&key)) else { return false };
        key.chain_update(body).verify_slice(mac).is_ok()
    }
}

impl Connection {
    /// Takes a frame in: refuses it, serves it, or lets it wait for its turn.
    pub(super) fn take_in(&mut self, frame: ClientFrame, now: UnixMillis) {
        match self.open(frame).and_then(|frame| self.check(frame)) {
            Err(fault) => self.reject(&fault, now),
            Ok(frame) => {
                self.liveness.made_sense();
                let skew = u64::try_from(self.limits.guard.skew.as_millis()).unwrap_or(u64::MAX);
                if frame.timestamp.is_some_and(|at| at.0.abs_diff(now.0) > skew) {
                    self.write_error(&about(&frame, ErrorCode::StaleTimestamp), now);
                } else {
                    self.line_up(frame, now);
                }
            }
        }
    }

    /// Takes a signed frame out of its wrapping; one without is served as it is where that is allowed.
    fn open(&self, frame: ClientFrame) -> Result<ClientFrame, FrameError> {
        let signature = self.limits.guard.signature;
        let (mac, body) = match &frame.body {
            ClientBody::Signed { mac, body } => (mac, body),
            ClientBody::Ping => return Ok(frame),
            ClientBody::Message { .. }
            | ClientBody::Ack { .. }
            | ClientBody::Recv { .. }
            | ClientBody::Resume { .. }
            | ClientBody::History { .. }
            | ClientBody::Open { .. }
            | ClientBody::Refresh { .. }
            | ClientBody::Typing { .. }
            | ClientBody::Close { .. }
            | ClientBody::Transfer { .. }
            | ClientBody::Status { .. }
            | ClientBody::Recall { .. } => {
                return if signature == Signature::Required {
                    Err(fault(&frame, ErrorCode::Forbidden, "frames must be signed"))
                } else {
                    Ok(frame)
                };
            }
        };
        if signature == Signature::Off {
            return Err(FrameError(Box::new(about(&frame, ErrorCode::UnknownType))));
        }
        if !self.guard.proves(mac, body) {
            return Err(fault(&frame, ErrorCode::Forbidden, "mac does not fit body"));
        }
        let named = |req_id| if frame.req_id.is_some() { frame.req_id.clone() } else { req_id };
        match ClientFrame::parse(body, &self.limits.frame) {
            Ok(ClientFrame { body: ClientBody::Signed { .. }, .. }) => {
                Err(fault(&frame, ErrorCode::BadRequest, "body must not be a signed frame"))
            }
            Ok(inner) => Ok(ClientFrame { req_id: named(inner.req_id), ..inner }),
            Err(FrameError(inner)) => Err(FrameError(Box::new(ErrorFrame { req_id: named(inner.req_id.clone()), ..*inner }))),
        }
    }

    /// What must be there is there.
    fn check(&self, frame: ClientFrame) -> Result<ClientFrame, FrameError> {
        match (frame.timestamp.is_some(), frame.nonce.is_some()) {
            (false, true) => Err(fault(&frame, ErrorCode::BadRequest, "nonce needs a timestamp")),
            (false, false) | (true, false) if self.limits.guard.required => {
                Err(fault(&frame, ErrorCode::BadRequest, "timestamp and nonce are required"))
            }
            (true | false, _) => Ok(frame),
        }
    }

    /// Serves a frame after those that came before it, once its nonce is known to be new.
    fn line_up(&mut self, mut frame: ClientFrame, now: UnixMillis) {
        if let (Some(timestamp), Some(nonce)) = (frame.timestamp, frame.nonce.take()) {
            self.outbox.ask(Output::UseNonce { nonce, timestamp });
            self.guard.waiting.push_back(Waiting { frame, asked: true, came: now });
        } else if self.guard.waiting.is_empty() {
            self.serve(frame.req_id, frame.body, now, now);
        } else {
            self.guard.waiting.push_back(Waiting { frame, asked: false, came: now });
        }
        if self.guard.waiting.len() > WAITING_MAX {
            self.outbox.close_at_once(CloseCode::TooFast);
        }
    }

    /// The answer to [`Output::UseNonce`]: whether it was used for the first time.
    pub fn handle_nonce(&mut self, first: bool, now: UnixMillis) {
        let asked = self.guard.waiting.pop_front();
        debug_assert!(asked.is_some() || self.is_closing(), "an answer to a question that was not asked");
        match asked {
            Some(Waiting { frame, came, .. }) if first => self.serve(frame.req_id, frame.body, came, now),
            Some(Waiting { frame, .. }) => self.write_error(&about(&frame, ErrorCode::ReplayedNonce), now),
            None => {}
        }
        while let Some(Waiting { frame, came, .. }) = self.guard.waiting.pop_front_if(|next| !next.asked) {
            self.serve(frame.req_id, frame.body, came, now);
        }
        if self.guard.waiting.is_empty() {
            self.guard.waiting = VecDeque::new();
        }
        self.after_input();
    }
}

/// An error frame that names the request, and the message if it is one.
fn about(frame: &ClientFrame, code: ErrorCode) -> ErrorFrame {
    let client_msg_id = match &frame.body {
        ClientBody::Message { client_msg_id, .. } | ClientBody::Recall { client_msg_id, .. } => client_msg_id.clone(),
        ClientBody::Ack { .. }
        | ClientBody::Recv { .. }
        | ClientBody::Resume { .. }
        | ClientBody::History { .. }
        | ClientBody::Open { .. }
        | ClientBody::Refresh { .. }
        | ClientBody::Typing { .. }
        | ClientBody::Ping
        | ClientBody::Close { .. }
        | ClientBody::Transfer { .. }
        | ClientBody::Status { .. }
        | ClientBody::Signed { .. } => None,
    };
    ErrorFrame { req_id: frame.req_id.clone(), client_msg_id, ..ErrorFrame::of(code) }
}

fn fault(frame: &ClientFrame, code: ErrorCode, message: &'static str) -> FrameError {
    FrameError(Box::new(ErrorFrame { message: message.into(), ..about(frame, code) }))
}
