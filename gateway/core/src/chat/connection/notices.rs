//! The party's notices: what it is told outside of any conversation, replayed to a client that was away.
//!
//! A client sees them in order: what arrives while they are read waits behind them. What never happens here: keeping
//! notices beyond that, or asking for more than one replay at a time.

use bytes::Bytes;

use super::{Answer, Connection, Output};
use crate::chat::code::ErrorCode;
use crate::chat::event::Event;
use crate::chat::frame::{ReqId, ServerFrame};
use crate::ports::NOTICES_MAX;
use crate::time::UnixMillis;

/// A replay under way.
#[derive(Debug, Default)]
pub(super) struct Notices {
    asked: Option<Asked>,
    /// Numbered notices that arrived since; at most [`NOTICES_MAX`].
    waiting: Vec<Event>,
}

#[derive(Debug)]
struct Asked {
    after: u64,
    req_id: Option<ReqId>,
}

impl Notices {
    pub(super) fn check_invariants(&self) {
        debug_assert!(self.waiting.len() <= NOTICES_MAX);
        debug_assert!(self.asked.is_some() || self.waiting.is_empty(), "notices that nobody lets go");
    }
}

impl Connection {
    /// A notice was heard on the bus.
    pub(super) fn on_notice(&mut self, notice: &Event, now: UnixMillis) {
        let numbered = matches!(notice, Event::SaleResult { nseq: Some(_), .. });
        if numbered && self.notices.asked.is_some() && self.notices.waiting.len() < NOTICES_MAX {
            self.notices.waiting.push(notice.clone());
        } else {
            self.write_notice(notice, None, now);
        }
    }

    /// The client has the notices up to `after`.
    pub(super) fn resume_notices(&mut self, after: u64, req_id: Option<ReqId>, now: UnixMillis) {
        if self.notices.asked.is_some() || self.is_full() {
            self.error(req_id, None, ErrorCode::BusyReplay, now);
        } else {
            self.notices.asked = Some(Asked { after, req_id });
            self.outbox.ask(Output::ReadNotices);
        }
    }

    /// The answer to [`Output::ReadNotices`]: all that is kept, in order.
    pub fn handle_notices(&mut self, answer: Answer<Vec<(u64, Bytes)>>, now: UnixMillis) {
        let asked = self.notices.asked.take();
        debug_assert!(asked.is_some() || self.is_closing(), "an answer to a question that was not asked");
        let mut written = 0;
        match (asked, answer) {
            (Some(Asked { after, req_id }), Ok(kept)) => written = self.replay_notices(after, req_id.as_ref(), &kept, now),
            (Some(Asked { req_id, .. }), Err(_)) => self.error(req_id, None, ErrorCode::Internal, now),
            (None, _) => {}
        }
        for notice in std::mem::take(&mut self.notices.waiting) {
            if !matches!(notice, Event::SaleResult { nseq: Some(number), .. } if number <= written) {
                self.write_notice(&notice, None, now);
            }
        }
        self.after_input();
    }

    /// Writes what the client lacks and says how far it is then.
    fn replay_notices(&mut self, after: u64, req_id: Option<&ReqId>, kept: &[(u64, Bytes)], now: UnixMillis) -> u64 {
        let last = kept.last().map_or(0, |(number, _)| *number);
        let mut seen = after;
        if after > last {
            // The store lost the party, or forgot it after its time, and counts anew.
            seen = 0;
            self.write(ServerFrame::NoticesResync { req_id, max_seq: seen, reason: "ahead" }.encode(), now);
        }
        if let Some((first, _)) = kept.first().filter(|(first, _)| *first > seen + 1) {
            seen = first - 1;
            self.write(ServerFrame::NoticesResync { req_id, max_seq: seen, reason: "gap" }.encode(), now);
        }
        for (number, notice) in kept.iter().filter(|(number, _)| *number > seen) {
            // What this version cannot read is for others; the count goes on.
            if let Ok(notice) = Event::decode(notice) {
                self.write_notice(&notice, Some(*number), now);
            }
        }
        let last_seq = seen.max(last);
        self.write(ServerFrame::NoticesEnd { req_id, last_seq }.encode(), now);
        last_seq
    }

    /// `number` is the one it is kept under; a live notice carries its own.
    fn write_notice(&mut self, notice: &Event, number: Option<u64>, now: UnixMillis) {
        if let Event::SaleResult { order_no, success, message, nseq } = notice {
            let frame = ServerFrame::SeckillResult { order_no, success: *success, message, nseq: number.or(*nseq) };
            self.write(frame.encode(), now);
        }
    }
}
