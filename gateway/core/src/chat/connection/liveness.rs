//! What the clock ends or starts: heartbeat, token, slowness, position checks.
//!
//! What never happens here: measuring time. `now` comes with every input, and the shell sleeps until `poll_timeout`.

use std::time::Duration;

use super::{Connection, ConnectionLimits, Output};
use crate::chat::code::{CloseCode, ErrorCode};
use crate::chat::frame::{ReqId, ServerFrame};
use crate::principal::Principal;
use crate::time::UnixMillis;

/// Heartbeats in silence after which a client counts as gone.
const HEARTBEATS_MISSED_MAX: u32 = 3;

/// The answer to [`Output::VerifyToken`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenCheck {
    /// Valid; this is whose it is.
    Valid(Principal),
    /// Not valid.
    Invalid,
    /// Could not be verified now.
    Unavailable,
}

/// Instants a connection watches.
#[derive(Debug)]
pub(super) struct Liveness {
    heard_at: UnixMillis,
    ping_at: UnixMillis,
    check_at: UnixMillis,
    token_ends_at: UnixMillis,
    notified: bool,
    refreshing: Option<Option<ReqId>>,
    nonsense: u32,
}

impl Liveness {
    pub(super) fn new(token_ends_at: UnixMillis, limits: &ConnectionLimits, now: UnixMillis) -> Self {
        Self {
            heard_at: now,
            ping_at: now.plus(limits.heartbeat),
            check_at: now.plus(limits.position_check),
            token_ends_at,
            notified: false,
            refreshing: None,
            nonsense: 0,
        }
    }

    pub(super) fn heard(&mut self, now: UnixMillis) {
        self.heard_at = self.heard_at.max(now);
    }

    pub(super) fn made_sense(&mut self) {
        self.nonsense = 0;
    }

    /// Frames without sense in a row, with this one.
    pub(super) fn made_no_sense(&mut self) -> u32 {
        self.nonsense = self.nonsense.saturating_add(1);
        self.nonsense
    }

    /// False while another refresh is under way.
    pub(super) fn start_refresh(&mut self, req_id: Option<ReqId>) -> bool {
        let free = self.refreshing.is_none();
        if free {
            self.refreshing = Some(req_id);
        }
        free
    }

    fn gone_at(&self, limits: &ConnectionLimits) -> UnixMillis {
        self.heard_at.plus(limits.heartbeat.saturating_mul(HEARTBEATS_MISSED_MAX))
    }

    fn notice_at(&self, limits: &ConnectionLimits) -> Option<UnixMillis> {
        let notice = u64::try_from(limits.expiry_notice.as_millis()).unwrap_or(u64::MAX);
        (!self.notified).then(|| UnixMillis(self.token_ends_at.0.saturating_sub(notice)))
    }
}

impl Connection {
    /// When [`Connection::handle_timeout`] is due next; `None` once the connection is closing.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<UnixMillis> {
        if self.is_closing() {
            return None;
        }
        let watch = &self.liveness;
        [
            Some(watch.gone_at(&self.limits)),
            Some(watch.ping_at),
            Some(watch.check_at),
            Some(watch.token_ends_at),
            watch.notice_at(&self.limits),
            self.next_fill(),
            self.outbox.stalled_at(self.limits.write_stall),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due at `now`. Calling it early or often does no harm.
    pub fn handle_timeout(&mut self, now: UnixMillis) {
        if self.is_closing() {
            return;
        }
        if now >= self.liveness.token_ends_at {
            self.close(CloseCode::TokenExpired);
        } else if self.outbox.stalled_at(self.limits.write_stall).is_some_and(|at| now >= at) {
            self.outbox.close_at_once(CloseCode::Slow);
        } else if now >= self.liveness.gone_at(&self.limits) {
            self.outbox.close_at_once(CloseCode::NoHeartbeat);
        } else {
            self.do_what_is_due(now);
        }
        self.after_input();
    }

    fn do_what_is_due(&mut self, now: UnixMillis) {
        if self.liveness.notice_at(&self.limits).is_some_and(|at| now >= at) {
            self.liveness.notified = true;
            let left: Duration = self.liveness.token_ends_at.since(now);
            self.write(ServerFrame::TokenExpiring { left }.encode(), now);
        }
        if now >= self.liveness.ping_at {
            self.liveness.ping_at = now.plus(self.limits.heartbeat);
            self.outbox.ask(Output::Ping);
        }
        if now >= self.liveness.check_at {
            self.liveness.check_at = now.plus(self.limits.position_check);
            self.check_positions();
        }
        self.wake_fills(now);
    }

    /// The answer to [`Output::VerifyToken`]. A valid token of the same principal extends the connection, it never shortens
    /// it; one of anybody else ends it.
    pub fn handle_token(&mut self, check: TokenCheck, now: UnixMillis) {
        let asked = self.liveness.refreshing.take();
        debug_assert!(asked.is_some() || self.is_closing(), "an answer to a question that was not asked");
        let req_id = asked.flatten();
        match check {
            TokenCheck::Valid(principal) => {
                let same = principal.id == self.party.id && principal.role == self.role && principal.shop == self.token_shop;
                if !same {
                    self.close(CloseCode::Forbidden);
                } else if principal.expires_at <= now {
                    self.error(req_id, None, ErrorCode::TokenExpired, now);
                } else {
                    self.liveness.token_ends_at = self.liveness.token_ends_at.max(principal.expires_at);
                    self.liveness.notified = false;
                    let expires_at = self.liveness.token_ends_at;
                    self.write(ServerFrame::Refreshed { req_id: req_id.as_ref(), expires_at }.encode(), now);
                }
            }
            TokenCheck::Invalid => self.error(req_id, None, ErrorCode::TokenExpired, now),
            TokenCheck::Unavailable => self.error(req_id, None, ErrorCode::Internal, now),
        }
        self.after_input();
    }
}
