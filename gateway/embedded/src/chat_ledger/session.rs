//! One session: its messages in order, how far everybody has come, its clocks.
//!
//! What never happens here: a look at another session. Called by `chat_ledger` with the books locked.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gateway_core::chat::recall::{self, Verdict};
use gateway_core::chat::sla::{Clock, Targets};
use gateway_core::chat::{
    Clocks, Committed, Cursor, DeviceCursor, Fingerprint, Mark, MarkOutcome, MessageRecord, Page, Party, Position, RECALLED,
    Send as ChatSend, SessionRecord, Side, witness,
};
use gateway_core::id::{ClientMsgId, DeviceId, PrincipalId, SessionId, ShopId};
use gateway_core::time::UnixMillis;

/// The port's bounds.
const PAGE_MAX: u32 = 200;
const DEVICES_MAX: usize = 100;

/// One number for each side.
#[derive(Clone, Copy, Default)]
struct PerSide {
    user: u64,
    agent: u64,
}

impl PerSide {
    fn of(self, side: Side) -> u64 {
        match side {
            Side::User => self.user,
            Side::Agent => self.agent,
        }
    }

    fn of_mut(&mut self, side: Side) -> &mut u64 {
        match side {
            Side::User => &mut self.user,
            Side::Agent => &mut self.agent,
        }
    }
}

/// A stored message.
struct Row {
    message: MessageRecord,
    fingerprint: Fingerprint,
    /// Messages each side had sent up to and including this one; a recall is none.
    sent: PerSide,
    /// The recall that took it back.
    recalled_by: Option<u64>,
}

/// How far one device has come.
struct Device {
    received: u64,
    read: u64,
    changed_at: UnixMillis,
}

pub(super) struct Session {
    id: SessionId,
    no: String,
    shop: ShopId,
    user: PrincipalId,
    agent: Option<PrincipalId>,
    subject: String,
    top: Position,
    read: PerSide,
    received: PerSide,
    /// By seq, which has a gap where numbers were lost.
    rows: Vec<Row>,
    known: HashMap<(Side, PrincipalId, ClientMsgId), u64>,
    /// Messages that were taken back, by who wrote them.
    recalled: BTreeSet<(Side, u64)>,
    devices: BTreeMap<(Side, PrincipalId, DeviceId), Device>,
    clocks: Clocks,
    /// Clocks whose overrun was told.
    told: BTreeSet<Clock>,
    /// Orders sessions by their last activity.
    active: (UnixMillis, u64),
}

impl Session {
    pub(super) fn open(id: SessionId, no: String, (shop, user, subject): (ShopId, PrincipalId, String), now: UnixMillis) -> Self {
        Self {
            id,
            no,
            shop,
            user,
            agent: None,
            subject,
            top: Position { epoch: 1, seq: 0 },
            read: PerSide::default(),
            received: PerSide::default(),
            rows: Vec::new(),
            known: HashMap::new(),
            recalled: BTreeSet::new(),
            devices: BTreeMap::new(),
            clocks: Clocks { opened_at: now, waiting_since: Some(now), ..Clocks::default() },
            told: BTreeSet::new(),
            active: (now, id.0),
        }
    }

    pub(super) fn id(&self) -> SessionId {
        self.id
    }

    pub(super) fn shop(&self) -> ShopId {
        self.shop
    }

    pub(super) fn agent(&self) -> Option<&PrincipalId> {
        self.agent.as_ref()
    }

    pub(super) fn is_open(&self) -> bool {
        self.clocks.closed_at.is_none()
    }

    pub(super) fn waiting_since(&self) -> Option<UnixMillis> {
        self.clocks.waiting_since
    }

    pub(super) fn active(&self) -> (UnixMillis, u64) {
        self.active
    }

    pub(super) fn top(&self) -> Position {
        self.top
    }

    /// Whether it is one of the party's own: its user, or the agent who serves it.
    pub(super) fn belongs_to(&self, party: &Party) -> bool {
        match party.side {
            Side::User => self.user == party.id,
            Side::Agent => party.shop == Some(self.shop) && self.agent.as_ref() == Some(&party.id),
        }
    }

    /// Whether the party may see it: one of its own, or one that waits in its shop.
    pub(super) fn shows_to(&self, party: &Party) -> bool {
        let waits = self.waiting_since().is_some() && party.side == Side::Agent && party.shop == Some(self.shop);
        waits || self.belongs_to(party)
    }

    /// Says whether it was open.
    pub(super) fn close(&mut self, now: UnixMillis) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.clocks.closed_at = Some(now);
            self.clocks.waiting_since = None;
        }
        was_open
    }

    pub(super) fn give_to(&mut self, agent: Option<PrincipalId>, now: UnixMillis) {
        self.clocks.waiting_since = if agent.is_some() { None } else { self.clocks.waiting_since.or(Some(now)) };
        self.agent = agent;
    }

    pub(super) fn touch(&mut self, now: UnixMillis, stamp: u64) {
        self.active = (now, stamp);
    }

    pub(super) fn commit(&mut self, send: &ChatSend, announced: &[(SessionId, Position)], now: UnixMillis) -> Committed {
        let own = match send.sender.side {
            Side::User => self.user == send.sender.id,
            Side::Agent => send.sender.shop == Some(self.shop),
        };
        let key = (send.sender.side, send.sender.id.clone(), send.client_msg_id.clone());
        // Also to an agent who has handed the session over since: what it sent is stored, and it may ask.
        if let Some(row) = self.known.get(&key).and_then(|seq| self.at(*seq)).filter(|_| own) {
            return if row.fingerprint == send.fingerprint { self.stored(row, true) } else { Committed::Conflict };
        }
        // A bot speaks for the shop, whoever serves the session.
        let bot_of_shop = send.bot && own && send.sender.side == Side::Agent;
        if !bot_of_shop && !self.belongs_to(&send.sender) {
            return Committed::NotFound;
        }
        if !self.is_open() {
            return Committed::Closed;
        }
        let target = if send.kind == RECALLED { Some(send.content.parse().ok()) } else { None };
        if let Some(target) = target {
            let row = target.and_then(|seq| self.at(seq));
            let verdict = recall::judge(row.map(|row| &row.message), &send.sender, now);
            let first = row.and_then(|row| row.recalled_by).and_then(|seq| self.at(seq));
            match (verdict, first) {
                (Verdict::NotFound, _) => return Committed::NotFound,
                (Verdict::TooLate | Verdict::Granted, Some(first)) => return self.stored(first, true),
                (Verdict::TooLate, None) => return Committed::TooLate,
                (Verdict::Granted, None) => {}
            }
        }
        for (_, position) in announced.iter().filter(|(session, _)| *session == self.id) {
            self.top = witness::continue_from(self.top, Some(*position));
        }
        self.append(send, key, target.flatten(), now)
    }

    /// Gives a message that is new its number.
    fn append(&mut self, send: &ChatSend, key: (Side, PrincipalId, ClientMsgId), target: Option<u64>, now: UnixMillis) -> Committed {
        let mut sent = self.sent_up_to(self.top.seq);
        self.top.seq += 1;
        let (side, seq) = (send.sender.side, self.top.seq);
        let mut stopped = None;
        match target.and_then(|seq| self.index(seq)) {
            Some(index) => {
                let row = &mut self.rows[index];
                row.recalled_by = Some(seq);
                self.recalled.insert((row.message.side, row.message.seq));
            }
            None => {
                *sent.of_mut(side) += 1;
                let ran = self.clocks.asked_at.is_some();
                stopped = self.clocks.on_message(side, send.bot, now);
                if !ran && self.clocks.asked_at.is_some() {
                    self.told.retain(|clock| *clock == Clock::Resolution);
                }
            }
        }
        let message = MessageRecord {
            session: self.id,
            epoch: self.top.epoch,
            seq,
            side,
            sender: send.sender.id.clone(),
            client_msg_id: send.client_msg_id.clone(),
            kind: send.kind.clone(),
            content: send.content.clone(),
            recalled: false,
            bot: send.bot,
            at: now,
        };
        self.known.insert(key, seq);
        self.rows.push(Row { message: message.clone(), fingerprint: send.fingerprint, sent, recalled_by: None });
        let (user, agent) = (self.user.clone(), self.agent.clone());
        Committed::Stored { message, dup: false, shop: self.shop, user, agent, stopped }
    }

    fn stored(&self, row: &Row, dup: bool) -> Committed {
        let (user, agent) = (self.user.clone(), self.agent.clone());
        Committed::Stored { message: row.shown(), dup, shop: self.shop, user, agent, stopped: None }
    }

    fn index(&self, seq: u64) -> Option<usize> {
        self.rows.binary_search_by_key(&seq, |row| row.message.seq).ok()
    }

    fn at(&self, seq: u64) -> Option<&Row> {
        self.index(seq).map(|index| &self.rows[index])
    }

    /// How many rows have a number up to `seq`.
    fn up_to(&self, seq: u64) -> usize {
        self.rows.partition_point(|row| row.message.seq <= seq)
    }

    /// Messages each side had sent up to and including `seq`.
    fn sent_up_to(&self, seq: u64) -> PerSide {
        self.up_to(seq).checked_sub(1).map(|last| self.rows[last].sent).unwrap_or_default()
    }

    /// What the other side sent, did not take back, and `side` has not read: sums and a set, so it cannot drift.
    pub(super) fn unread(&self, side: Side) -> u64 {
        let (other, cursor) = (side.other(), self.read.of(side));
        let sent = self.sent_up_to(self.top.seq).of(other) - self.sent_up_to(cursor).of(other);
        sent - self.recalled.range((other, cursor + 1)..=(other, u64::MAX)).count() as u64
    }

    pub(super) fn mark(&mut self, mark: &Mark, now: UnixMillis) -> MarkOutcome {
        if mark.seq > self.top.seq {
            return MarkOutcome::OutOfRange;
        }
        let side = mark.reader.side;
        let forward = |cursor: &mut u64| *cursor = mark.seq.max(*cursor);
        forward(self.received.of_mut(side));
        if mark.cursor == Cursor::Read {
            forward(self.read.of_mut(side));
        }
        if let Some(name) = &mark.device {
            let key = (side, mark.reader.id.clone(), name.clone());
            if !self.devices.contains_key(&key) && self.devices.len() >= DEVICES_MAX {
                let quietest = self.devices.iter().min_by_key(|(_, device)| device.changed_at).map(|(key, _)| key.clone());
                quietest.and_then(|key| self.devices.remove(&key));
            }
            let device = self.devices.entry(key).or_insert(Device { received: 0, read: 0, changed_at: now });
            let before = (device.received, device.read);
            forward(&mut device.received);
            if mark.cursor == Cursor::Read {
                forward(&mut device.read);
            }
            if (device.received, device.read) != before {
                device.changed_at = now;
            }
        }
        let cursor = match mark.cursor {
            Cursor::Read => self.read,
            Cursor::Received => self.received,
        };
        MarkOutcome::At { seq: cursor.of(side), unread: self.unread(side) }
    }

    /// Devices of the user and of the agent who serves it.
    pub(super) fn devices(&self) -> Vec<DeviceCursor> {
        let parties = self.devices.iter().filter(|((side, party, _), _)| match side {
            Side::User => *party == self.user,
            Side::Agent => self.agent.as_ref() == Some(party),
        });
        let cursor = |((side, party, device), at): (&(Side, PrincipalId, DeviceId), &Device)| {
            let (party, device) = (party.clone(), device.clone());
            DeviceCursor { side: *side, party, device, received: at.received, read: at.read }
        };
        parties.map(cursor).collect()
    }

    pub(super) fn page(&self, page: Page) -> Vec<MessageRecord> {
        let size = |limit: u32| limit.min(PAGE_MAX) as usize;
        let range = match page {
            Page::After { seq, limit } => self.up_to(seq)..self.up_to(seq).saturating_add(size(limit)).min(self.rows.len()),
            Page::Before { seq, limit } => {
                let end = self.up_to(seq.saturating_sub(1));
                end.saturating_sub(size(limit))..end
            }
        };
        self.rows[range].iter().map(Row::shown).collect()
    }

    /// Clocks that run longer than their targets and were not told.
    pub(super) fn overdue(&self, targets: &Targets, now: UnixMillis) -> Vec<Clock> {
        let overdue = self.clocks.overdue(targets, now).into_iter().map(|(clock, _)| clock);
        overdue.filter(|clock| !self.told.contains(clock)).collect()
    }

    pub(super) fn tell(&mut self, clock: Clock) {
        self.told.insert(clock);
    }

    pub(super) fn record(&self) -> SessionRecord {
        SessionRecord {
            id: self.id,
            no: self.no.clone(),
            shop: self.shop,
            user: self.user.clone(),
            agent: self.agent.clone(),
            subject: self.subject.clone(),
            open: self.is_open(),
            top: self.top,
            user_seq: self.read.user,
            agent_seq: self.read.agent,
            user_received: self.received.user,
            agent_received: self.received.agent,
            user_unread: self.unread(Side::User),
            agent_unread: self.unread(Side::Agent),
            clocks: self.clocks,
        }
    }
}

impl Row {
    /// The message as it is shown: without its content once it was taken back.
    fn shown(&self) -> MessageRecord {
        let content = if self.recalled_by.is_some() { String::new() } else { self.message.content.clone() };
        MessageRecord { content, recalled: self.recalled_by.is_some(), ..self.message.clone() }
    }
}
