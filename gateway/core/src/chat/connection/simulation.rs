//! A whole chat in one thread: devices that follow the client rules, their connections, a ledger, a queue that is away at
//! times, a store of nonces, and a bus that drops, doubles and reorders. Each seed is one history; whatever happens, every
//! device ends with 1 … N in order, cursors never move back, and what was taken back is gone.

#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect ends it")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::*;
use crate::chat::event::fan_out;
use crate::chat::frame::Text;
use crate::chat::{Clocks, Committed, Cursor, Mark, MarkOutcome, MessageRecord, Page, Position, Send, Side};
use crate::id::PrincipalId;

const S: SessionId = SessionId(1);
const MESSAGES_EACH: usize = 12;
const STEPS: usize = 600;

/// SplitMix64: enough for choosing among faults, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(sides).unwrap()).unwrap()
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }
}

/// A device with what a client of the protocol keeps.
struct Device {
    party: Party,
    name: &'static str,
    connections: u32,
    connection: Connection,
    /// Frames on the wire; lost when the connection ends.
    wire: VecDeque<Text>,
    /// Answers of the stores on their way back.
    answers: Vec<Output>,
    /// Nonces asked about; the answers come in order.
    nonces: VecDeque<String>,
    /// Events on the bus for this device.
    events: Vec<Event>,
    last: u64,
    shown: Vec<String>,
    /// Its messages in order. One named `x~7` takes message 7 back.
    wrote: Vec<String>,
    /// Numbers of its messages that it knows of and may take back.
    own: Vec<u64>,
    frames: u64,
    /// The latest frame with a nonce, and that: an attacker has recorded it.
    recorded: Option<(String, String)>,
    outbox: VecDeque<String>,
    must_resend: bool,
}

struct World {
    dice: Dice,
    now: UnixMillis,
    rows: Vec<MessageRecord>,
    queue: VecDeque<Send>,
    /// Whether the queue is away: it takes nothing and gives nothing.
    queue_away: bool,
    /// Cursors: of each side and of each device, read and received.
    cursors: BTreeMap<String, [u64; 2]>,
    nonces: BTreeSet<String>,
    direct: usize,
    replayed: usize,
    devices: Vec<Device>,
    faults: bool,
}

fn id(text: &str) -> PrincipalId {
    PrincipalId::parse(text).unwrap()
}

fn record(rows: &[MessageRecord]) -> SessionRecord {
    SessionRecord {
        id: S,
        no: "CS1".into(),
        shop: ShopId(1),
        user: id("alice"),
        agent: Some(id("a1")),
        subject: String::new(),
        open: true,
        top: Position { epoch: 1, seq: u64::try_from(rows.len()).unwrap() },
        user_seq: 0,
        agent_seq: 0,
        user_received: 0,
        agent_received: 0,
        user_unread: 0,
        agent_unread: 0,
        clocks: Clocks::default(),
    }
}

fn connect(party: &Party, name: &str, conn_id: &str, rows: &[MessageRecord], now: UnixMillis) -> Connection {
    let role = if party.side == Side::User { Role::User } else { Role::Agent };
    let start = Start {
        party: party.clone(),
        principal: Principal {
            id: party.id.clone(),
            role,
            shop: party.shop,
            scopes: Vec::new(),
            expires_at: UnixMillis(u64::MAX),
            token_id: None,
        },
        conn_id: ConnId::parse(conn_id).unwrap(),
        sessions: vec![record(rows)],
        resume: None,
        notices: None,
        device: DeviceId::parse(name).ok(),
        frame_key: None,
        state: None,
        batch: false,
    };
    let limits = ConnectionLimits { queue_bytes_max: 2_000, ..ConnectionLimits::default() };
    let limits = ConnectionLimits { frame: crate::chat::frame::FrameLimits { page_max: 5, ..limits.frame }, sends_max: 8, ..limits };
    Connection::new(start, limits, now)
}

impl Device {
    /// What a client does with a frame.
    fn receive(&mut self, text: &str, now: UnixMillis) {
        let frame: Value = serde_json::from_str(text).unwrap();
        let seq = frame["seq"].as_u64().unwrap_or_default();
        let client_msg_id = frame["clientMsgId"].as_str().unwrap_or_default().to_owned();
        match frame["type"].as_str().unwrap() {
            "hello" => self.resume(now),
            "text" | "recalled" | "accepted" => {
                self.outbox.retain(|waiting| *waiting != client_msg_id);
                if client_msg_id.starts_with(self.name) && !client_msg_id.contains('~') && !self.own.contains(&seq) {
                    self.own.push(seq);
                }
                if seq == self.last + 1 {
                    self.last = seq;
                    self.shown.push(client_msg_id);
                } else if seq > self.last {
                    self.resume(now);
                }
            }
            "read" => assert!(frame["lastSeq"].as_u64().is_some()),
            "delivered" => assert!(!frame["by"].as_str().unwrap().starts_with(self.party.side.as_str()), "{text}"),
            "error" if frame["code"] == "REPLAYED_NONCE" => {}
            "error" => {
                assert_eq!(frame["temporary"], true, "{text}");
                self.must_resend |= !client_msg_id.is_empty();
            }
            "replay_end" => assert!(self.last <= frame["lastSeq"].as_u64().unwrap()),
            other => panic!("{other}: {text}"),
        }
    }

    fn resume(&mut self, now: UnixMillis) {
        let frame = json!({"type": "resume", "positions": [{"sessionId": "1", "epoch": "1", "lastSeq": self.last}]});
        self.connection.handle_text(&frame.to_string(), now);
    }

    /// Writes the next message; `takes_back` chooses one of its own to take back instead.
    fn say(&mut self, takes_back: Option<usize>, now: UnixMillis) {
        if self.wrote.len() < MESSAGES_EACH {
            let number = self.wrote.len() + 1;
            let gone = takes_back.filter(|_| !self.own.is_empty()).map(|which| self.own.swap_remove(which % self.own.len()));
            let client_msg_id = gone.map_or_else(|| format!("{}.{number}", self.name), |seq| format!("{}.{number}~{seq}", self.name));
            self.wrote.push(client_msg_id.clone());
            self.outbox.push_back(client_msg_id.clone());
            if self.must_resend {
                self.resend(now);
            } else {
                self.submit(&client_msg_id, now);
            }
        }
    }

    fn resend(&mut self, now: UnixMillis) {
        self.must_resend = false;
        for client_msg_id in self.outbox.clone() {
            self.submit(&client_msg_id, now);
        }
    }

    fn submit(&mut self, client_msg_id: &str, now: UnixMillis) {
        self.frames += 1;
        let nonce = format!("{}#{}", self.name, self.frames);
        let mut frame = json!({"sessionId": "1", "clientMsgId": client_msg_id, "timestamp": now.0, "nonce": nonce});
        match client_msg_id.split_once('~') {
            Some((_, seq)) => {
                frame["type"] = json!("recall");
                frame["seq"] = json!(seq.parse::<u64>().unwrap());
            }
            None => {
                frame["type"] = json!("text");
                frame["content"] = json!(client_msg_id);
            }
        }
        let text = frame.to_string();
        self.connection.handle_text(&text, now);
        self.recorded = Some((nonce, text));
    }

    /// Marks how far it is, now and then less than that.
    fn mark(&mut self, kind: &str, back: u64, now: UnixMillis) {
        let seq = self.last.saturating_sub(back);
        self.connection.handle_text(&json!({"type": kind, "sessionId": "1", "lastSeq": seq}).to_string(), now);
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let now = UnixMillis(1_000);
        let device = |side, who: &str, name: &'static str| {
            let party = Party { side, id: id(who), shop: (side == Side::Agent).then_some(ShopId(1)) };
            Device {
                connection: connect(&party, name, &format!("{name}-0"), &[], now),
                party,
                name,
                connections: 0,
                wire: VecDeque::new(),
                answers: Vec::new(),
                nonces: VecDeque::new(),
                events: Vec::new(),
                last: 0,
                shown: Vec::new(),
                wrote: Vec::new(),
                own: Vec::new(),
                frames: 0,
                recorded: None,
                outbox: VecDeque::new(),
                must_resend: false,
            }
        };
        let devices = vec![device(Side::User, "alice", "phone"), device(Side::User, "alice", "laptop"), device(Side::Agent, "a1", "desk")];
        Self {
            dice: Dice(seed),
            now,
            rows: Vec::new(),
            queue: VecDeque::new(),
            queue_away: false,
            cursors: BTreeMap::new(),
            nonces: BTreeSet::new(),
            direct: 0,
            replayed: 0,
            devices,
            faults: true,
        }
    }

    fn fault(&mut self, sides: usize) -> bool {
        self.faults && self.dice.one_in(sides)
    }

    fn step(&mut self) {
        let at = self.dice.roll(self.devices.len());
        match self.dice.roll(12) {
            0 => self.say(at),
            1 | 2 => self.work(),
            3 | 4 => self.hear(at),
            5 | 6 => self.perform(at),
            7 => self.answer(at),
            8 => self.read_wire(at),
            9 => self.devices[at].mark(["ack", "recv"][self.dice.roll(2)], u64::try_from(self.dice.roll(3)).unwrap(), self.now),
            10 => self.disturb(at),
            _ if self.fault(8) => self.reconnect(at),
            _ => self.pass_time(),
        }
    }

    fn say(&mut self, at: usize) {
        let takes_back = self.dice.one_in(5).then(|| self.dice.roll(1_000));
        self.devices[at].say(takes_back, self.now);
    }

    /// The queue goes or comes; or an attacker sends a recorded frame again.
    fn disturb(&mut self, at: usize) {
        if self.fault(3) {
            self.queue_away = !self.queue_away;
        } else if self.faults
            && let Some((nonce, recorded)) = self.devices[at].recorded.clone()
            && (self.nonces.contains(&nonce) || self.devices[at].nonces.contains(&nonce))
        {
            self.devices[at].connection.handle_text(&recorded, self.now);
        }
    }

    /// The worker commits the head of the queue and publishes.
    fn work(&mut self) {
        if self.queue_away {
            return;
        }
        if let Some(send) = self.queue.pop_front() {
            self.commit(&send);
        }
    }

    /// The ledger's commit, told to every device; also to its sender by the caller, where it waits for the outcome.
    fn commit(&mut self, send: &Send) -> Event {
        let known = self.rows.iter().find(|row| row.client_msg_id == send.client_msg_id && row.sender == send.sender.id).cloned();
        let dup = known.is_some();
        let message = known.unwrap_or_else(|| MessageRecord {
            session: S,
            epoch: 1,
            seq: u64::try_from(self.rows.len()).unwrap() + 1,
            side: send.sender.side,
            sender: send.sender.id.clone(),
            client_msg_id: send.client_msg_id.clone(),
            kind: send.kind.clone(),
            content: send.content.clone(),
            recalled: false,
            bot: false,
            at: self.now,
        });
        if !dup {
            if let Some(gone) = message.takes_back() {
                let row = &mut self.rows[usize::try_from(gone - 1).unwrap()];
                assert_eq!((row.sender.as_str(), row.kind.as_str()), (send.sender.id.as_str(), "text"));
                row.recalled = true;
                row.content.clear();
            }
            self.rows.push(message.clone());
        }
        let outcome = Committed::Stored { message, dup, shop: ShopId(1), user: id("alice"), agent: Some(id("a1")), stopped: None };
        let events = fan_out(send, &outcome);
        for (subject, event) in &events {
            self.publish(subject, event);
        }
        events[0].1.clone()
    }

    fn publish(&mut self, subject: &str, event: &Event) {
        let event = Event::decode(&event.encode()).unwrap();
        {
            for device in &mut self.devices {
                let copies = match (self.faults, self.dice.roll(10)) {
                    (true, 0 | 1) => 0,
                    (true, 2) => 2,
                    (true | false, _) => 1,
                };
                if device.party.subject() == subject {
                    device.events.extend(std::iter::repeat_n(event.clone(), copies));
                }
            }
        }
    }

    /// One event arrives, not always the oldest.
    fn hear(&mut self, at: usize) {
        let waiting = self.devices[at].events.len();
        if waiting > 0 {
            let which = if self.faults { self.dice.roll(waiting) } else { 0 };
            let device = &mut self.devices[at];
            let event = device.events.remove(which);
            device.connection.handle_event(&Heard::new(event), self.now);
        }
    }

    /// The shell performs one output.
    fn perform(&mut self, at: usize) {
        let Some(output) = self.devices[at].connection.poll_output() else { return };
        match output {
            Output::Write(text) => self.devices[at].wire.push_back(text),
            Output::Enqueue { send, alone, .. } => {
                let client_msg_id = send.client_msg_id.clone();
                let outcome = self.enqueue(send, alone);
                self.devices[at].connection.handle_send_outcome(&client_msg_id, outcome, self.now);
            }
            Output::UseNonce { nonce, .. } => self.devices[at].nonces.push_back(nonce),
            Output::Publish { to, event } => self.publish(&to.subject(), &event),
            Output::Mark(_) => self.devices[at].answers.push(output),
            Output::ReadPage { .. } | Output::ReadTops(_) | Output::ReadSession(_) => self.devices[at].answers.push(output),
            Output::Close(_) => self.reconnect(at),
            Output::Ping => self.devices[at].connection.handle_pong(self.now),
            other => panic!("{other:?}"),
        }
    }

    /// The shell queues a message, or commits it directly where the queue is away and nothing of its sender may lie in it.
    fn enqueue(&mut self, send: Send, alone: bool) -> SendOutcome {
        let fate = if self.faults { self.dice.roll(10) } else { 9 };
        match (fate, self.queue_away, alone) {
            (0, _, _) | (_, true, false) => SendOutcome::Failed,
            (1, true, true) => {
                self.commit(&send);
                SendOutcome::Failed
            }
            (_, true, true) => {
                self.direct += 1;
                SendOutcome::Settled(Box::new(self.commit(&send)))
            }
            (1, false, _) => {
                self.queue.push_back(send);
                SendOutcome::Failed
            }
            (_, false, _) => {
                self.queue.push_back(send);
                SendOutcome::Queued
            }
        }
    }

    /// The store of nonces answers its oldest question.
    fn answer_nonce(&mut self, at: usize) {
        if let Some(nonce) = self.devices[at].nonces.pop_front() {
            let first = self.nonces.insert(nonce);
            self.replayed += usize::from(!first);
            self.devices[at].connection.handle_nonce(first, self.now);
        }
    }

    /// The ledger moves a cursor, never back and never beyond the end.
    fn mark(&mut self, mark: &Mark) -> MarkOutcome {
        if mark.seq > u64::try_from(self.rows.len()).unwrap() {
            return MarkOutcome::OutOfRange;
        }
        let side = mark.reader.side.as_str().to_owned();
        for whose in [mark.device.as_ref().unwrap().as_str().to_owned(), side.clone()] {
            let [read, received] = self.cursors.entry(whose).or_default();
            *received = mark.seq.max(*received);
            if mark.cursor == Cursor::Read {
                *read = mark.seq.max(*read);
            }
        }
        let [read, received] = self.cursors[&side];
        let seq = if mark.cursor == Cursor::Read { read } else { received };
        MarkOutcome::At { seq, unread: u64::try_from(self.rows.len()).unwrap() - read }
    }

    /// A store answers one question, from what it has now.
    fn answer(&mut self, at: usize) {
        self.answer_nonce(at);
        let waiting = self.devices[at].answers.len();
        if waiting == 0 {
            return;
        }
        let question = self.devices[at].answers.swap_remove(self.dice.roll(waiting));
        let fails = self.fault(5);
        let moved = if let Output::Mark(mark) = &question { Some(self.mark(mark)) } else { None };
        let (connection, now) = (&mut self.devices[at].connection, self.now);
        match question {
            Output::ReadPage { session, page: page @ Page::After { seq, limit } } => {
                let from = usize::try_from(seq).unwrap();
                let rows = self.rows.iter().skip(from).take(usize::try_from(limit).unwrap()).cloned().collect();
                connection.handle_page(session, page, if fails { Err(Unavailable) } else { Ok(rows) }, now);
            }
            Output::Mark(mark) => {
                let outcome = moved.ok_or(Unavailable);
                connection.handle_mark(&mark, if fails { Err(Unavailable) } else { outcome }, now);
            }
            Output::ReadTops(_) => {
                let top = record(&self.rows).top;
                connection.handle_tops(if fails { Err(Unavailable) } else { Ok(vec![(S, top)]) }, now);
            }
            Output::ReadSession(session) => {
                connection.handle_session(session, if fails { Err(Unavailable) } else { Ok(Some(record(&self.rows))) }, now);
            }
            other => panic!("{other:?}"),
        }
    }

    fn read_wire(&mut self, at: usize) {
        let device = &mut self.devices[at];
        while let Some(text) = device.wire.pop_front() {
            device.receive(text.as_str(), self.now);
        }
        if device.must_resend {
            device.resend(self.now);
        }
    }

    /// The connection dies with all that was on its way; another node takes the device.
    fn reconnect(&mut self, at: usize) {
        let device = &mut self.devices[at];
        device.connections += 1;
        device.connection = connect(&device.party, device.name, &format!("{}-{}", device.name, device.connections), &self.rows, self.now);
        device.wire.clear();
        device.answers.clear();
        device.nonces.clear();
        device.events.clear();
        device.must_resend = true;
    }

    /// Time passes; clients have reacted to what reached them before.
    fn pass_time(&mut self) {
        for at in 0..self.devices.len() {
            self.read_wire(at);
        }
        self.now = UnixMillis(self.now.0 + 1_000);
        for device in &mut self.devices {
            device.connection.handle_pong(self.now);
            device.connection.handle_timeout(self.now);
        }
        for at in 0..self.devices.len() {
            if self.devices[at].connection.is_closing() {
                self.reconnect(at);
            }
        }
    }

    fn is_settled(&self) -> bool {
        self.devices.iter().all(|device| {
            device.wrote.len() == MESSAGES_EACH && device.outbox.is_empty() && device.shown.len() == MESSAGES_EACH * self.devices.len()
        })
    }

    /// No more faults: everything must come to its end, within a bound.
    fn settle(&mut self) {
        self.faults = false;
        self.queue_away = false;
        for _ in 0..2_000 {
            if self.is_settled() {
                return;
            }
            for at in 0..self.devices.len() {
                self.say(at);
                for _ in 0..20 {
                    self.perform(at);
                    self.answer(at);
                    self.hear(at);
                    self.work();
                }
                self.read_wire(at);
            }
            self.pass_time();
        }
    }
}

#[test]
fn every_device_ends_with_every_message_once_and_in_order() {
    let (mut reconnects, mut direct, mut replayed, mut gone) = (0, 0, 0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
        let stored: Vec<_> = world.rows.iter().map(|row| row.client_msg_id.as_str().to_owned()).collect();
        assert_eq!(stored.len(), MESSAGES_EACH * world.devices.len(), "seed {seed}: each message is stored once");
        for device in &world.devices {
            let name = device.name;
            assert!(device.outbox.is_empty(), "seed {seed}: {name} waits for {:?}", device.outbox);
            assert_eq!(device.shown, stored, "seed {seed}: {name} shows the session");
            let own: Vec<_> = stored.iter().filter(|id| id.starts_with(&format!("{name}."))).cloned().collect();
            assert_eq!(own, device.wrote, "seed {seed}: {name} keeps its order");
            reconnects += device.connections;
        }
        let recalls = world.rows.iter().filter_map(MessageRecord::takes_back).collect::<BTreeSet<_>>().len();
        let emptied = world.rows.iter().filter(|row| row.recalled && row.content.is_empty()).count();
        assert_eq!(recalls, emptied, "seed {seed}: what was taken back is gone");
        assert_eq!(world.queue.len(), 0, "seed {seed}");
        direct += world.direct;
        replayed += world.replayed;
        gone += emptied;
    }
    let faults = [usize::try_from(reconnects).unwrap(), direct, replayed, gone];
    assert!(faults.iter().all(|count| *count > 100), "the histories must contain all of it: {faults:?}");
}
