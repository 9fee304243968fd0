//! A whole chat in one thread: devices that follow the client rules, their connections, a ledger, a queue and a bus that
//! drops, doubles and reorders. Each seed is one history; whatever happens, every device ends with 1 … N in order.

#![allow(clippy::wildcard_enum_match_arm, reason = "whatever a test does not expect ends it")]

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::*;
use crate::chat::event::fan_out;
use crate::chat::{Committed, MessageRecord, Page, Position, Send, Side};
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
    wire: VecDeque<String>,
    /// Answers of the stores on their way back.
    answers: Vec<Output>,
    /// Events on the bus for this device.
    events: Vec<Event>,
    last: u64,
    shown: Vec<String>,
    written: usize,
    outbox: VecDeque<String>,
    must_resend: bool,
}

struct World {
    dice: Dice,
    now: UnixMillis,
    rows: Vec<MessageRecord>,
    queue: VecDeque<Send>,
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
        user_unread: 0,
        agent_unread: 0,
    }
}

fn connect(party: &Party, conn_id: &str, rows: &[MessageRecord], now: UnixMillis) -> Connection {
    let role = if party.side == Side::User { Role::User } else { Role::Agent };
    let start = Start {
        party: party.clone(),
        principal: Principal { id: party.id.clone(), role, shop: party.shop, scopes: Vec::new(), expires_at: UnixMillis(u64::MAX) },
        conn_id: ConnId::parse(conn_id).unwrap(),
        sessions: vec![record(rows)],
        resume: None,
        notices: None,
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
            "text" | "accepted" => {
                self.outbox.retain(|waiting| *waiting != client_msg_id);
                if seq == self.last + 1 {
                    self.last = seq;
                    self.shown.push(client_msg_id);
                } else if seq > self.last {
                    self.resume(now);
                }
            }
            "error" => {
                assert_eq!(frame["temporary"], true, "{text}");
                self.must_resend = true;
            }
            "replay_end" => assert!(self.last <= frame["lastSeq"].as_u64().unwrap()),
            other => panic!("{other}: {text}"),
        }
    }

    fn resume(&mut self, now: UnixMillis) {
        let frame = json!({"type": "resume", "positions": [{"sessionId": "1", "epoch": "1", "lastSeq": self.last}]});
        self.connection.handle_text(&frame.to_string(), now);
    }

    fn say(&mut self, now: UnixMillis) {
        if self.written < MESSAGES_EACH {
            self.written += 1;
            let client_msg_id = format!("{}.{}", self.name, self.written);
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
        let frame = json!({"type": "text", "sessionId": "1", "content": client_msg_id, "clientMsgId": client_msg_id});
        self.connection.handle_text(&frame.to_string(), now);
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let now = UnixMillis(1_000);
        let device = |side, who: &str, name: &'static str| {
            let party = Party { side, id: id(who), shop: (side == Side::Agent).then_some(ShopId(1)) };
            Device {
                connection: connect(&party, &format!("{name}-0"), &[], now),
                party,
                name,
                connections: 0,
                wire: VecDeque::new(),
                answers: Vec::new(),
                events: Vec::new(),
                last: 0,
                shown: Vec::new(),
                written: 0,
                outbox: VecDeque::new(),
                must_resend: false,
            }
        };
        let devices = vec![device(Side::User, "alice", "phone"), device(Side::User, "alice", "laptop"), device(Side::Agent, "a1", "desk")];
        Self { dice: Dice(seed), now, rows: Vec::new(), queue: VecDeque::new(), devices, faults: true }
    }

    fn fault(&mut self, sides: usize) -> bool {
        self.faults && self.dice.one_in(sides)
    }

    fn step(&mut self) {
        let at = self.dice.roll(self.devices.len());
        match self.dice.roll(10) {
            0 => self.devices[at].say(self.now),
            1 | 2 => self.work(),
            3 | 4 => self.hear(at),
            5 | 6 => self.perform(at),
            7 => self.answer(at),
            8 => self.read_wire(at),
            _ if self.fault(8) => self.reconnect(at),
            _ => self.pass_time(),
        }
    }

    /// The worker commits the head of the queue and publishes.
    fn work(&mut self) {
        let Some(send) = self.queue.pop_front() else { return };
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
            bot: false,
            at: self.now,
        });
        if !dup {
            self.rows.push(message.clone());
        }
        let outcome = Committed::Stored { message, dup, user: id("alice"), agent: Some(id("a1")) };
        for (subject, event) in fan_out(&send, &outcome) {
            let event = Event::decode(&event.encode()).unwrap();
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
            device.connection.handle_event(event, self.now);
        }
    }

    /// The shell performs one output.
    fn perform(&mut self, at: usize) {
        let Some(output) = self.devices[at].connection.poll_output() else { return };
        match output {
            Output::Write(text) => self.devices[at].wire.push_back(text),
            Output::Enqueue { send, .. } => {
                let client_msg_id = send.client_msg_id.clone();
                let (effect, outcome) = match (self.faults, self.dice.roll(10)) {
                    (true, 0) => (false, SendOutcome::Failed),
                    (true, 1) => (true, SendOutcome::Failed),
                    (true | false, _) => (true, SendOutcome::Queued),
                };
                self.queue.extend(effect.then_some(send));
                self.devices[at].connection.handle_send_outcome(&client_msg_id, outcome, self.now);
            }
            Output::ReadPage { .. } | Output::ReadTops(_) => self.devices[at].answers.push(output),
            Output::Close(_) => self.reconnect(at),
            Output::Ping => self.devices[at].connection.handle_pong(self.now),
            other => panic!("{other:?}"),
        }
    }

    /// A store answers one question, from what it has now.
    fn answer(&mut self, at: usize) {
        let waiting = self.devices[at].answers.len();
        if waiting == 0 {
            return;
        }
        let question = self.devices[at].answers.swap_remove(self.dice.roll(waiting));
        let fails = self.fault(5);
        let (connection, now) = (&mut self.devices[at].connection, self.now);
        match question {
            Output::ReadPage { session, page: page @ Page::After { seq, limit } } => {
                let from = usize::try_from(seq).unwrap();
                let rows = self.rows.iter().skip(from).take(usize::try_from(limit).unwrap()).cloned().collect();
                connection.handle_page(session, page, if fails { Err(Unavailable) } else { Ok(rows) }, now);
            }
            Output::ReadTops(_) => {
                let top = record(&self.rows).top;
                connection.handle_tops(if fails { Err(Unavailable) } else { Ok(vec![(S, top)]) }, now);
            }
            other => panic!("{other:?}"),
        }
    }

    fn read_wire(&mut self, at: usize) {
        let device = &mut self.devices[at];
        while let Some(text) = device.wire.pop_front() {
            device.receive(&text, self.now);
        }
        if device.must_resend {
            device.resend(self.now);
        }
    }

    /// The connection dies with all that was on its way; another node takes the device.
    fn reconnect(&mut self, at: usize) {
        let device = &mut self.devices[at];
        device.connections += 1;
        device.connection = connect(&device.party, &format!("{}-{}", device.name, device.connections), &self.rows, self.now);
        device.wire.clear();
        device.answers.clear();
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
            device.written == MESSAGES_EACH && device.outbox.is_empty() && device.shown.len() == MESSAGES_EACH * self.devices.len()
        })
    }

    /// No more faults: everything must come to its end, within a bound.
    fn settle(&mut self) {
        self.faults = false;
        for _ in 0..2_000 {
            if self.is_settled() {
                return;
            }
            for at in 0..self.devices.len() {
                self.devices[at].say(self.now);
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
    let mut reconnects = 0;
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
            let written: Vec<_> = (1..=MESSAGES_EACH).map(|n| format!("{name}.{n}")).collect();
            assert_eq!(own, written, "seed {seed}: {name} keeps its order");
            reconnects += device.connections;
        }
    }
    assert!(reconnects > 300, "the histories must contain faults: {reconnects}");
}
