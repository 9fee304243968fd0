//! One partition's shifts on in-memory ports.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use gateway_core::chat::code::ErrorCode;
use gateway_core::chat::event::{Event, QueuedSend};
use gateway_core::chat::{Fingerprint, Lease, MessageRecord, Page, Party, Position, Send, letter};
use gateway_core::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use gateway_core::ports::{Bus as _, ChatLedger as _, PortError, PortErrorKind, PortResult, Roaming, SaleLedger as _, Store, Subscription};
use gateway_core::sale::LetterKind;
use gateway_core::time::UnixMillis;
use gateway_embedded::{EmbeddedBus, EmbeddedChatLedger, EmbeddedRoaming, EmbeddedSaleLedger};
use tokio::time::timeout;

use super::Shift;
use super::herald::Herald;
use super::picky::{Meets, Picky};
use super::scribe::Scribe;
use super::witness::Witness;
use crate::telemetry::Metrics;

const PARTITION: u16 = 3;
const SHOP: ShopId = ShopId(7);
const ATTEMPTS_MAX: u32 = 3;
const TTL: Duration = Duration::from_secs(10);
const NO_WAIT: Duration = Duration::ZERO;

struct Rig {
    now: Arc<AtomicU64>,
    ledger: Arc<Picky>,
    letters: Arc<EmbeddedSaleLedger>,
    bus: Arc<EmbeddedBus>,
    roaming: Arc<dyn Roaming>,
    metrics: Arc<Metrics>,
    session: SessionId,
    user: Party,
    hears: Box<dyn Subscription>,
    sent: u64,
}

impl Rig {
    async fn new() -> Self {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let hand = now.clone();
        let clock: gateway_embedded::Clock = Arc::new(move || UnixMillis(hand.load(Ordering::SeqCst)));
        let ledger = Arc::new(Picky::new(Arc::new(EmbeddedChatLedger::new(clock.clone()))));
        let bus = Arc::new(EmbeddedBus::new());
        let user = Party::user(PrincipalId::parse("ann").unwrap());
        let session = ledger.open_session(SHOP, &user.id, "", UnixMillis(1)).await.unwrap().id;
        let hears = bus.subscribe(&user.subject()).await.unwrap();
        let letters = Arc::new(EmbeddedSaleLedger::new(clock.clone()));
        let roaming = Arc::new(EmbeddedRoaming::new(clock));
        Self { now, ledger, letters, bus, roaming, metrics: Arc::new(Metrics::new().unwrap()), session, user, hears, sent: 0 }
    }

    fn send(&mut self, content: &str) -> Send {
        self.sent += 1;
        Send {
            session: self.session,
            sender: self.user.clone(),
            client_msg_id: ClientMsgId::parse(&format!("m{}", self.sent)).unwrap(),
            kind: "text".into(),
            content: content.into(),
            fingerprint: Fingerprint::of("text", content),
            origin: "c".into(),
            bot: false,
        }
    }

    async fn queue(&mut self, contents: &[&str]) {
        for content in contents {
            let queued = QueuedSend { send: self.send(content), queued_at: UnixMillis(1) };
            self.bus.enqueue(PARTITION, SHOP, queued.encode()).await.unwrap();
        }
    }

    async fn lease(&self, owner: &str) -> Lease {
        self.ledger.lease(PARTITION, owner, TTL).await.unwrap().expect("free")
    }

    async fn shift(&self, lease: &Lease) -> Shift {
        let witness = Witness::new(self.roaming.clone(), self.metrics.clone());
        let inbox = self.bus.open_inbox(PARTITION, lease.token).await.unwrap();
        let scribe = Scribe::new(self.ledger.clone(), self.letters.clone(), witness.clone(), self.metrics.clone(), ATTEMPTS_MAX);
        Shift::new(inbox, scribe, Herald::new(self.bus.clone(), witness, self.metrics.clone()))
    }

    /// Turns until everything is settled and told; says how often the ledger refused.
    async fn settle(&self, shift: &mut Shift, lease: &Lease) -> usize {
        let mut refused = 0;
        while self.bus.queued(SHOP).await.unwrap() > 0 {
            refused += usize::from(shift.turn(lease, NO_WAIT).await.unwrap().is_some());
        }
        refused
    }

    async fn rows(&self) -> Vec<(u64, String)> {
        let rows = self.ledger.messages(self.session, Page::After { seq: 0, limit: 200 }).await.unwrap();
        rows.into_iter().map(|row| (row.seq, row.content)).collect()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "anything else fails the test")]
    async fn heard(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        while let Ok(Some(payload)) = timeout(Duration::from_millis(10), self.hears.next()).await {
            heard.push(match Event::decode(&payload).unwrap() {
                Event::Stored { message, dup, .. } => Heard::Stored(message.epoch, message.seq, dup),
                Event::Refused { client_msg_id, code, .. } => Heard::Refused(client_msg_id.as_str().to_owned(), code),
                other => panic!("{other:?}"),
            });
        }
        heard
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    /// Epoch, number, and whether it had been stored before.
    Stored(u32, u64, bool),
    Refused(String, ErrorCode),
}

fn numbered(contents: &[&str]) -> Vec<(u64, String)> {
    (1..).zip(contents.iter().map(ToString::to_string)).collect()
}

#[tokio::test]
async fn what_is_queued_is_stored_told_and_acknowledged_in_order() {
    let mut rig = Rig::new().await;
    rig.queue(&["a", "b", "c"]).await;
    let lease = rig.lease("w").await;
    let mut shift = rig.shift(&lease).await;
    shift.turn(&lease, NO_WAIT).await.unwrap();
    assert_eq!(rig.heard().await, [], "what is committed is told in the next turn");
    rig.queue(&["d"]).await;
    shift.turn(&lease, NO_WAIT).await.unwrap();
    assert_eq!(rig.heard().await, [1, 2, 3].map(|seq| Heard::Stored(1, seq, false)), "while the next message is committed");
    shift.tell().await.unwrap();
    assert_eq!(rig.heard().await, [Heard::Stored(1, 4, false)]);
    assert_eq!(rig.bus.queued(SHOP).await.unwrap(), 0);
    assert_eq!(rig.rows().await, numbered(&["a", "b", "c", "d"]));
    assert_eq!(rig.metrics.chat_accepted.get(), 4);
    let roamed = rig.roaming.after(rig.session, 0, 1, 10).await.unwrap().expect("known");
    assert_eq!(roamed.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_batch_that_fails_is_written_before_the_next_one() {
    let mut rig = Rig::new().await;
    rig.queue(&["n1", "n2"]).await;
    let lease = rig.lease("w").await;
    let mut shift = rig.shift(&lease).await;
    // The whole batch, then its first message alone, twice.
    rig.ledger.next.lock().unwrap().extend([Meets::Broken; 3]);
    let refusal = shift.turn(&lease, NO_WAIT).await.unwrap().expect("refused");
    assert_eq!(refusal.kind, PortErrorKind::Broken);
    rig.queue(&["n+1"]).await;
    rig.settle(&mut shift, &lease).await;
    assert_eq!(rig.rows().await, numbered(&["n1", "n2", "n+1"]));
    assert_eq!(rig.letters.letters_open().await.unwrap(), 0);
}

#[tokio::test]
async fn a_ledger_that_is_away_costs_no_attempt_and_keeps_the_order() {
    let mut rig = Rig::new().await;
    rig.queue(&["a", "b"]).await;
    for _ in 0..3 * ATTEMPTS_MAX {
        let lease = rig.lease("w").await;
        let mut shift = rig.shift(&lease).await;
        rig.ledger.next.lock().unwrap().push_back(Meets::Away);
        let error = shift.turn(&lease, NO_WAIT).await.unwrap_err();
        assert_eq!(error.kind, PortErrorKind::Unavailable);
    }
    rig.queue(&["c"]).await;
    let lease = rig.lease("w").await;
    rig.settle(&mut rig.shift(&lease).await, &lease).await;
    assert_eq!(rig.rows().await, numbered(&["a", "b", "c"]));
    assert_eq!(rig.letters.letters_open().await.unwrap(), 0);
}

#[tokio::test]
async fn one_message_among_many_that_cannot_be_written_is_set_aside_alone() {
    let mut rig = Rig::new().await;
    let names: Vec<String> = (0..256).map(|n| if n == 77 { "poison".to_owned() } else { n.to_string() }).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    rig.queue(&names).await;
    rig.ledger.refuses.lock().unwrap().push("poison");
    let lease = rig.lease("w").await;
    let mut shift = rig.shift(&lease).await;
    let refused = rig.settle(&mut shift, &lease).await;
    assert_eq!(refused, ATTEMPTS_MAX as usize - 1, "the last attempt sets it aside");
    let committed: Vec<String> = rig.ledger.committed.lock().unwrap().concat();
    let others: Vec<String> = names.iter().filter(|name| **name != "poison").map(ToString::to_string).collect();
    assert_eq!(committed, others, "each once, in order");
    assert!(*rig.ledger.calls.lock().unwrap() <= 20, "it was searched for by halves");
    let letters = rig.letters.letters(true, 0, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].what.kind, letters[0].what.attempts), (LetterKind::ChatMessage, ATTEMPTS_MAX as u16));
    assert_eq!(letter::send_of(&letters[0]).unwrap().send.content, "poison");
    let heard = rig.heard().await;
    let refusals: Vec<_> = heard.iter().filter(|heard| matches!(heard, Heard::Refused(..))).collect();
    assert_eq!(refusals, [&Heard::Refused("m78".into(), ErrorCode::SetAside)]);
    assert_eq!((heard.len(), rig.metrics.chat_set_aside.get(), rig.metrics.chat_accepted.get()), (256, 1, 255));
}

#[tokio::test]
async fn several_that_cannot_be_written_are_each_set_aside() {
    let mut rig = Rig::new().await;
    rig.queue(&["x", "a", "y", "b", "z"]).await;
    rig.ledger.refuses.lock().unwrap().extend(["x", "y", "z"]);
    let lease = rig.lease("w").await;
    rig.settle(&mut rig.shift(&lease).await, &lease).await;
    assert_eq!(rig.rows().await, numbered(&["a", "b"]));
    assert_eq!(rig.letters.letters_open().await.unwrap(), 3);
}

#[tokio::test]
async fn an_entry_that_is_no_message_is_set_aside_and_nobody_waits_for_it() {
    let mut rig = Rig::new().await;
    rig.queue(&["a"]).await;
    rig.bus.enqueue(PARTITION, SHOP, Bytes::from_static(b"{}")).await.unwrap();
    rig.queue(&["b"]).await;
    let lease = rig.lease("w").await;
    rig.settle(&mut rig.shift(&lease).await, &lease).await;
    assert_eq!(rig.rows().await, numbered(&["a", "b"]));
    let letters = rig.letters.letters(true, 0, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letter::send_of(&letters[0]), None);
}

#[tokio::test]
async fn what_was_committed_before_its_worker_died_is_told_with_the_numbers_it_has() {
    let mut rig = Rig::new().await;
    rig.queue(&["a"]).await;
    let lease = rig.lease("w").await;
    rig.settle(&mut rig.shift(&lease).await, &lease).await;
    rig.heard().await;
    rig.queue(&["b", "c"]).await;
    // Committed, and dead before anybody heard of it.
    rig.ledger.next.lock().unwrap().push_back(Meets::LostAnswer);
    let mut shift = rig.shift(&lease).await;
    assert!(shift.turn(&lease, NO_WAIT).await.is_err());
    drop(shift);
    rig.queue(&["d"]).await;
    rig.settle(&mut rig.shift(&lease).await, &lease).await;
    assert_eq!(rig.heard().await, [Heard::Stored(1, 2, true), Heard::Stored(1, 3, true), Heard::Stored(1, 4, false)]);
    assert_eq!(rig.rows().await, numbered(&["a", "b", "c", "d"]));
    let roamed = rig.roaming.after(rig.session, 0, 1, 10).await.unwrap().expect("the list has no hole");
    assert_eq!(roamed.len(), 4);
    assert_eq!(rig.metrics.chat_accepted.get(), 2, "counted where the commit was heard of");
}

#[tokio::test]
async fn a_worker_that_wakes_late_stores_nothing() {
    let mut rig = Rig::new().await;
    let old = rig.lease("sleeper").await;
    let mut sleeper = rig.shift(&old).await;
    rig.queue(&["a", "b"]).await;
    let fetched = sleeper.inbox.fetch(10, NO_WAIT).await.unwrap();
    sleeper.scribe.take(fetched);
    rig.now.fetch_add(2 * TTL.as_millis() as u64, Ordering::SeqCst);
    let lease = rig.lease("heir").await;
    assert!(lease.token > old.token);
    let mut heir = rig.shift(&lease).await;
    let woken = sleeper.turn(&old, NO_WAIT).await.unwrap_err();
    assert_eq!(woken.kind, PortErrorKind::Fenced);
    assert_eq!(rig.rows().await, []);
    assert_eq!(rig.heard().await, []);
    rig.settle(&mut heir, &lease).await;
    assert_eq!(rig.rows().await, numbered(&["a", "b"]));
    assert_eq!(rig.heard().await, [1, 2].map(|seq| Heard::Stored(1, seq, false)));
}

#[tokio::test]
async fn a_ledger_that_lost_messages_goes_on_above_what_was_announced() {
    let mut rig = Rig::new().await;
    let seen = MessageRecord {
        session: rig.session,
        epoch: 1,
        seq: 30,
        side: rig.user.side,
        sender: rig.user.id.clone(),
        client_msg_id: ClientMsgId::parse("lost").unwrap(),
        kind: "text".into(),
        content: "lost".into(),
        recalled: false,
        bot: false,
        at: UnixMillis(1),
    };
    rig.roaming.append(&[seen]).await.unwrap();
    rig.queue(&["a", "b"]).await;
    let lease = rig.lease("w").await;
    rig.settle(&mut rig.shift(&lease).await, &lease).await;
    assert_eq!(rig.heard().await, [31, 32].map(|seq| Heard::Stored(2, seq, false)));
    assert_eq!(rig.roaming.tops(&[rig.session]).await.unwrap(), [Some(Position { epoch: 2, seq: 32 })]);
}

/// Roaming lists that are away.
struct Away;

#[async_trait]
impl Roaming for Away {
    async fn tops(&self, _sessions: &[SessionId]) -> PortResult<Vec<Option<Position>>> {
        std::future::pending().await
    }

    async fn append(&self, _messages: &[MessageRecord]) -> PortResult<()> {
        Err(PortError { kind: PortErrorKind::Unavailable, store: Store::Redis, doing: "append", source: None })
    }

    async fn after(&self, _session: SessionId, _seq: u64, _epoch: u32, _limit: u32) -> PortResult<Option<Vec<MessageRecord>>> {
        Ok(None)
    }
}

#[tokio::test]
async fn messages_are_stored_and_told_without_the_roaming_lists() {
    let mut rig = Rig::new().await;
    rig.roaming = Arc::new(Away);
    rig.queue(&["a", "b"]).await;
    let lease = rig.lease("w").await;
    rig.settle(&mut rig.shift(&lease).await, &lease).await;
    assert_eq!(rig.rows().await, numbered(&["a", "b"]));
    assert_eq!(rig.heard().await, [1, 2].map(|seq| Heard::Stored(1, seq, false)));
}

#[tokio::test]
async fn a_letter_that_cannot_be_written_now_lets_nothing_pass() {
    // The letter is written where the sale's books are, so whoever holds up one holds up the other: a refused message stays first.
    let mut rig = Rig::new().await;
    rig.queue(&["poison", "b"]).await;
    rig.ledger.refuses.lock().unwrap().push("poison");
    let lease = rig.lease("w").await;
    let mut shift = rig.shift(&lease).await;
    let mut stored = BTreeSet::new();
    while rig.letters.letters_open().await.unwrap() == 0 {
        stored.extend(rig.rows().await);
        shift.turn(&lease, NO_WAIT).await.unwrap();
    }
    assert!(stored.is_empty(), "nothing passed it before it was set aside");
    rig.settle(&mut shift, &lease).await;
    assert_eq!(rig.rows().await, numbered(&["b"]));
}
