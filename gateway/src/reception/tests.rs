//! Reception on in-memory ports and a clock that is turned by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::chat::connection::Transferred;
use gateway_core::chat::event::Event;
use gateway_core::chat::reception::Patience;
use gateway_core::chat::sla::Targets;
use gateway_core::chat::{AgentState, Fingerprint, Party, Reason, Send, SessionRecord, Side};
use gateway_core::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use gateway_core::ports::{Bus as _, ChatLedger as _, PortError, PortErrorKind, PortResult, Presence, Store, Subscription};
use gateway_core::time::UnixMillis;
use gateway_embedded::{EmbeddedBus, EmbeddedChatLedger, EmbeddedPresence};

use super::{Reception, Rounds};
use crate::telemetry::Metrics;

const SHOP: ShopId = ShopId(1);
const BEAT: Duration = Duration::from_secs(10);
const GONE_AFTER: Duration = Duration::from_secs(30);

/// Presence that can be away.
struct Moody {
    inner: EmbeddedPresence,
    away: AtomicBool,
}

impl Moody {
    fn there(&self) -> PortResult<()> {
        if self.away.load(Ordering::Relaxed) {
            return Err(PortError { kind: PortErrorKind::Unavailable, store: Store::Redis, doing: "ask", source: None });
        }
        Ok(())
    }
}

#[async_trait]
impl Presence for Moody {
    async fn beat(&self, who: &Party, connection: &str, until: UnixMillis) -> PortResult<()> {
        self.there()?;
        self.inner.beat(who, connection, until).await
    }

    async fn leave(&self, who: &Party, connection: &str) -> PortResult<()> {
        self.there()?;
        self.inner.leave(who, connection).await
    }

    async fn online(&self, who: &[Party], now: UnixMillis) -> PortResult<Vec<bool>> {
        self.there()?;
        self.inner.online(who, now).await
    }
}

struct Rig {
    now: Arc<AtomicU64>,
    ledger: Arc<EmbeddedChatLedger>,
    presence: Arc<Moody>,
    bus: Arc<EmbeddedBus>,
    reception: Reception,
}

fn id(text: &str) -> PrincipalId {
    PrincipalId::parse(text).unwrap()
}

fn agent(name: &str) -> Party {
    Party::agent(SHOP, id(name))
}

impl Rig {
    fn new(open_max: u32) -> Self {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let hand = now.clone();
        let clock: gateway_embedded::Clock = Arc::new(move || UnixMillis(hand.load(Ordering::Relaxed)));
        let ledger = Arc::new(EmbeddedChatLedger::new(clock.clone()));
        let presence = Arc::new(Moody { inner: EmbeddedPresence::new(clock), away: AtomicBool::new(false) });
        let bus = Arc::new(EmbeddedBus::new());
        let reception = Reception {
            chats: ledger.clone(),
            presence: presence.clone(),
            bus: bus.clone(),
            metrics: Arc::new(Metrics::new().unwrap()),
            open_max,
            patience: Patience { heartbeat: BEAT, presence_ttl: 3 * BEAT, gone_after: GONE_AFTER },
        };
        Self { now, ledger, presence, bus, reception }
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(self.now.load(Ordering::Relaxed))
    }

    fn pass(&self, time: Duration) {
        self.now.store(self.now().plus(time).0, Ordering::Relaxed);
    }

    fn rounds(&self) -> Rounds {
        Rounds::new(self.reception.clone(), Targets::default())
    }

    /// Lets `time` pass in steps of a second, each with a round; `beating` are the connections that are alive meanwhile.
    async fn live(&self, rounds: &mut Rounds, time: Duration, beating: &[&str]) {
        for _ in 0..time.as_secs() {
            self.pass(Duration::from_secs(1));
            for name in beating {
                self.presence.inner.beat(&agent(name), "c", self.now().plus(3 * BEAT)).await.unwrap();
            }
            let _ = rounds.turn(self.now()).await;
        }
    }

    async fn come(&self, name: &str) {
        self.reception.arrive(&agent(name), "c", self.now()).await.unwrap();
    }

    async fn open(&self, user: &str) -> SessionRecord {
        self.reception.open(&id(user), SHOP, "help", self.now()).await.unwrap()
    }

    async fn serving(&self, session: SessionId) -> Option<String> {
        for load in self.ledger.agents(SHOP).await.unwrap() {
            let sessions = self.ledger.sessions(&agent(load.agent.as_str()), 100).await.unwrap();
            if sessions.iter().any(|record| record.id == session) {
                return Some(load.agent.to_string());
            }
        }
        None
    }

    async fn ask(&self, session: &SessionRecord, times: usize) {
        for number in 0..times {
            let send = Send {
                session: session.id,
                sender: Party::user(session.user.clone()),
                client_msg_id: ClientMsgId::parse(&format!("{}-{number}", session.user)).unwrap(),
                kind: "text".into(),
                content: "?".into(),
                fingerprint: Fingerprint::of("text", "?"),
                origin: "c".into(),
                bot: false,
            };
            self.ledger.commit(None, &[send], &[], self.now()).await.unwrap();
        }
    }

    async fn listen(&self, party: &Party) -> Ears {
        Ears(self.bus.subscribe(&party.subject()).await.unwrap())
    }

    async fn why(&self, session: SessionId) -> Vec<(Reason, String)> {
        let handovers = gateway_core::ports::ChatLedger::handovers(&*self.ledger, session).await.unwrap();
        handovers.into_iter().map(|handover| (handover.reason, handover.detail)).collect()
    }
}

/// What a party hears.
struct Ears(Box<dyn Subscription>);

impl Ears {
    /// Everything heard so far; publishing in memory is done when it returns.
    async fn heard(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Ok(Some(payload)) = tokio::time::timeout(Duration::from_millis(20), self.0.next()).await {
            events.push(Event::decode(&payload).unwrap());
        }
        events
    }
}

fn count(events: &[Event], fits: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| fits(event)).count()
}

#[tokio::test]
async fn a_session_goes_to_whoever_has_the_fewest_unread_and_the_reason_is_kept() {
    let rig = Rig::new(10);
    rig.come("a").await;
    rig.come("b").await;
    let first = rig.open("u1").await;
    assert_eq!(first.agent, Some(id("a")), "among equals the smallest id");
    rig.ask(&first, 3).await;
    assert_eq!(rig.open("u2").await.agent, Some(id("b")));
    let third = rig.open("u3").await;
    assert_eq!(third.agent, Some(id("b")), "one session more, but nothing to read");
    assert_eq!(rig.why(third.id).await, [(Reason::LeastUnread, "b unread 0 open 1/10, a unread 3 open 1/10; not there 0".into())]);
}

#[tokio::test]
async fn a_full_a_busy_and_an_absent_agent_are_passed_over() {
    let rig = Rig::new(1);
    for name in ["a", "b", "c", "d"] {
        rig.come(name).await;
    }
    rig.reception.set_state(&agent("b"), AgentState::Busy, None, rig.now()).await.unwrap();
    rig.reception.leave(&agent("c"), "c", rig.now()).await;
    let served: Vec<_> = [rig.open("u1").await, rig.open("u2").await, rig.open("u3").await].map(|session| session.agent).into();
    assert_eq!(served, [Some(id("a")), Some(id("d")), None]);
    assert_eq!(rig.open("u1").await.agent, Some(id("a")), "the open one is found again");
}

#[tokio::test]
async fn who_waits_longest_is_served_first_by_whoever_comes_or_gets_room() {
    let rig = Rig::new(2);
    let mut waiting = Vec::new();
    for user in ["u1", "u2", "u3", "u4"] {
        waiting.push(rig.open(user).await.id);
        rig.pass(Duration::from_secs(1));
    }
    rig.come("a").await;
    let served = async || {
        let mut served = Vec::new();
        for session in &waiting {
            served.push(rig.serving(*session).await.is_some());
        }
        served
    };
    assert_eq!(served().await, [true, true, false, false]);
    let mut ears = rig.listen(&agent("a")).await;
    let closed = rig.reception.close(&Party::user(id("u1")), waiting[0], rig.now()).await.unwrap().unwrap();
    assert!(closed.1 && !closed.0.open);
    assert_eq!(served().await, [false, true, true, false], "its place was taken");
    let heard = ears.heard().await;
    assert_eq!(count(&heard, |event| matches!(event, Event::Closed { by: Side::User, .. })), 1, "{heard:?}");
    assert_eq!(count(&heard, |event| *event == Event::Waiting { count: 1 }), 1, "{heard:?}");
    assert!(!rig.reception.close(&Party::user(id("u1")), waiting[0], rig.now()).await.unwrap().unwrap().1, "once");
    rig.reception.transfer(&agent("a"), waiting[1], None, rig.now()).await.unwrap();
    assert_eq!(served().await, [false, false, true, true], "what was given back waits although its agent has room");
}

#[tokio::test]
async fn lines_and_transfers_stay_within_their_shop() {
    let rig = Rig::new(10);
    let other = Party::agent(ShopId(2), id("a"));
    rig.reception.arrive(&other, "c", rig.now()).await.unwrap();
    let mut ears = rig.listen(&other).await;
    let session = rig.open("u1").await;
    assert_eq!(session.agent, None, "an agent of another shop does not serve it");
    let outcome = rig.reception.transfer(&other, session.id, Some(&id("a")), rig.now()).await.unwrap();
    assert_eq!(outcome, Transferred::NotFound, "nor takes it");
    rig.come("b").await;
    assert_eq!(rig.serving(session.id).await, Some("b".into()));
    let outcome = rig.reception.transfer(&other, session.id, Some(&id("a")), rig.now()).await.unwrap();
    assert_eq!(outcome, Transferred::NotFound);
    let outcome = rig.reception.transfer(&agent("b"), session.id, Some(&id("a")), rig.now()).await.unwrap();
    assert_eq!(outcome, Transferred::NoSuchAgent, "nor is given it");
    assert_eq!(ears.heard().await, [], "nor hears of it");
}

#[tokio::test]
async fn whoever_serves_a_session_hands_it_over_and_everybody_concerned_hears_it() {
    let rig = Rig::new(1);
    rig.come("a").await;
    let session = rig.open("u1").await.id;
    rig.come("b").await;
    rig.come("away").await;
    rig.reception.set_state(&agent("away"), AgentState::Away, None, rig.now()).await.unwrap();
    rig.reception.chats.upsert_agent(SHOP, &id("never-there"), rig.now()).await.unwrap();
    let give = async |from: &str, to: Option<&str>| {
        let to = to.map(id);
        rig.reception.transfer(&agent(from), session, to.as_ref(), rig.now()).await.unwrap()
    };
    for nobody in ["away", "never-there", "nobody"] {
        assert_eq!(give("a", Some(nobody)).await, Transferred::NoSuchAgent, "{nobody}");
    }
    assert_eq!(give("b", Some("b")).await, Transferred::NotFound, "it is not b's to take");
    let mut ears = [rig.listen(&agent("a")).await, rig.listen(&agent("b")).await, rig.listen(&Party::user(id("u1"))).await];
    let Transferred::Done(after) = give("a", Some("b")).await else { panic!("b is there") };
    assert_eq!(after.agent, Some(id("b")));
    for ears in &mut ears {
        let heard = ears.heard().await;
        assert!(matches!(&heard[..], [Event::Assigned { reason, .. }] if reason == "transferred"), "{heard:?}");
    }
    assert_eq!(give("a", Some("a")).await, Transferred::NotFound, "it is not a's any more");
    assert!(matches!(give("b", None).await, Transferred::Done(_)));
    assert_eq!(rig.serving(session).await, Some("a".into()), "somebody else of the shop had room");
    assert!(matches!(give("a", None).await, Transferred::Done(_)));
    assert_eq!(rig.serving(session).await, Some("b".into()), "the last who gave it back does not get it again");
    rig.reception.leave(&agent("a"), "c", rig.now()).await;
    assert!(matches!(give("b", None).await, Transferred::Done(_)));
    let mut rounds = rig.rounds();
    rounds.turn(rig.now()).await.unwrap();
    assert_eq!(rig.serving(session).await, None, "nobody else is there");
    assert!(matches!(give("b", Some("b")).await, Transferred::Done(_)), "unless it is taken by hand");
    assert_eq!(rig.why(session).await.last().unwrap().0, Reason::Taken);
}

#[tokio::test]
async fn an_agent_who_leaves_its_desk_serves_nobody_at_once_and_a_busy_one_keeps_what_it_has() {
    let rig = Rig::new(10);
    rig.come("a").await;
    let (first, second) = (rig.open("u1").await.id, rig.open("u2").await.id);
    let mut user = rig.listen(&Party::user(id("u1"))).await;
    rig.reception.set_state(&agent("a"), AgentState::Busy, None, rig.now()).await.unwrap();
    assert_eq!(rig.serving(first).await, Some("a".into()));
    assert_eq!(rig.open("u3").await.agent, None);
    rig.reception.set_state(&agent("a"), AgentState::Away, None, rig.now()).await.unwrap();
    assert_eq!((rig.serving(first).await, rig.serving(second).await), (None, None), "they wait");
    let heard = user.heard().await;
    let state = |wanted| move |event: &Event| matches!(event, Event::Presence { state, .. } if *state == wanted);
    assert_eq!((count(&heard, state(AgentState::Busy)), count(&heard, state(AgentState::Away))), (1, 1), "{heard:?}");
    assert_eq!(count(&heard, |event| matches!(event, Event::Assigned { reason, .. } if reason == "agent_away")), 1, "{heard:?}");
    rig.come("b").await;
    assert_eq!(rig.serving(first).await, Some("b".into()));
    rig.reception.set_state(&agent("a"), AgentState::Online, None, rig.now()).await.unwrap();
    rig.reception.set_state(&agent("b"), AgentState::Offline, None, rig.now()).await.unwrap();
    assert_eq!(rig.serving(first).await, Some("a".into()));
}

#[tokio::test]
async fn a_lower_wish_than_the_deployments_is_kept() {
    let rig = Rig::new(10);
    rig.come("a").await;
    rig.reception.set_state(&agent("a"), AgentState::Online, Some(1), rig.now()).await.unwrap();
    let (first, second) = (rig.open("u1").await, rig.open("u2").await);
    assert_eq!((first.agent, second.agent), (Some(id("a")), None));
    rig.reception.set_state(&agent("a"), AgentState::Online, Some(2), rig.now()).await.unwrap();
    assert_eq!(rig.serving(second.id).await, Some("a".into()), "more room serves the line");
}

#[tokio::test]
async fn whoever_is_gone_without_a_word_is_replaced_after_the_time_and_not_before() {
    let rig = Rig::new(10);
    rig.come("a").await;
    let session = rig.open("u1").await.id;
    rig.come("b").await;
    let mut rounds = rig.rounds();
    rig.live(&mut rounds, Duration::from_secs(60), &["a", "b"]).await;
    assert_eq!(rig.serving(session).await, Some("a".into()));
    rig.live(&mut rounds, GONE_AFTER - Duration::from_secs(2), &["b"]).await;
    assert_eq!(rig.serving(session).await, Some("a".into()), "not yet");
    rig.live(&mut rounds, Duration::from_secs(4), &["b"]).await;
    assert_eq!(rig.serving(session).await, Some("b".into()));
    assert_eq!(rig.why(session).await.last().unwrap().0, Reason::AgentGone);
    rig.come("a").await;
    rig.live(&mut rounds, Duration::from_secs(10), &["a", "b"]).await;
    assert_eq!(rig.serving(session).await, Some("b".into()), "coming back takes nothing back");
}

#[tokio::test]
async fn a_page_that_is_loaded_again_moves_nothing() {
    let rig = Rig::new(10);
    rig.come("a").await;
    let session = rig.open("u1").await.id;
    rig.come("b").await;
    let mut rounds = rig.rounds();
    for _ in 0..10 {
        rig.reception.leave(&agent("a"), "c", rig.now()).await;
        rig.live(&mut rounds, Duration::from_secs(25), &["b"]).await;
        rig.come("a").await;
    }
    assert_eq!(rig.serving(session).await, Some("a".into()));
}

#[tokio::test]
async fn nobody_counts_as_gone_while_presence_is_away() {
    let rig = Rig::new(10);
    rig.come("a").await;
    let session = rig.open("u1").await.id;
    let mut rounds = rig.rounds();
    rig.live(&mut rounds, Duration::from_secs(5), &["a"]).await;
    rig.presence.away.store(true, Ordering::Relaxed);
    let opened = rig.open("u2").await;
    assert_eq!(opened.agent, None, "a session is opened all the same");
    rig.live(&mut rounds, 3 * GONE_AFTER, &[]).await;
    assert_eq!(rig.serving(session).await, Some("a".into()));
    rig.presence.away.store(false, Ordering::Relaxed);
    rig.live(&mut rounds, GONE_AFTER - Duration::from_secs(1), &[]).await;
    assert_eq!(rig.serving(session).await, Some("a".into()), "its heartbeats may be about to come");
    rig.live(&mut rounds, Duration::from_secs(10), &["a"]).await;
    assert_eq!(rig.serving(session).await, Some("a".into()));
    assert_eq!(rig.serving(opened.id).await, Some("a".into()), "and the line is served");
}

#[tokio::test]
async fn users_hear_of_their_agent_once_each_and_of_nobody_else() {
    let rig = Rig::new(10);
    rig.come("a").await;
    rig.open("u1").await;
    rig.reception.open(&id("u1"), SHOP, "another matter", rig.now()).await.unwrap();
    let (mut user, mut stranger) = (rig.listen(&Party::user(id("u1"))).await, rig.listen(&Party::user(id("u2"))).await);
    // A tab opens while another is there, and the other is closed.
    rig.reception.arrive(&agent("a"), "tab", rig.now()).await.unwrap();
    rig.reception.leave(&agent("a"), "c", rig.now()).await;
    assert_eq!(user.heard().await, [], "the agent has been there all the time");
    rig.reception.leave(&agent("a"), "tab", rig.now()).await;
    let gone = Event::Presence { side: Side::Agent, id: id("a"), state: AgentState::Offline };
    assert_eq!(user.heard().await, [gone]);
    rig.come("a").await;
    let back = Event::Presence { side: Side::Agent, id: id("a"), state: AgentState::Online };
    assert_eq!(user.heard().await, [back]);
    assert_eq!(stranger.heard().await, []);
}

#[tokio::test]
async fn an_overdue_clock_is_told_once_to_whoever_can_act() {
    let rig = Rig::new(10);
    let targets = Targets { first_response: Some(Duration::from_secs(60)), ..Targets::default() };
    let mut rounds = Rounds::new(rig.reception.clone(), targets);
    rig.come("a").await;
    rig.come("b").await;
    rig.reception.set_state(&agent("b"), AgentState::Busy, None, rig.now()).await.unwrap();
    let served = rig.open("u1").await;
    rig.reception.set_state(&agent("a"), AgentState::Busy, None, rig.now()).await.unwrap();
    let waits = rig.open("u2").await;
    let (mut a, mut b) = (rig.listen(&agent("a")).await, rig.listen(&agent("b")).await);
    rig.ask(&served, 1).await;
    rig.ask(&waits, 1).await;
    rig.live(&mut rounds, Duration::from_secs(120), &["a", "b"]).await;
    let overdue = |session: SessionId| move |event: &Event| matches!(event, Event::Overdue { session: of, .. } if *of == session);
    let (a, b) = (a.heard().await, b.heard().await);
    assert_eq!((count(&a, overdue(served.id)), count(&a, overdue(waits.id))), (1, 1), "{a:?}");
    assert_eq!((count(&b, overdue(served.id)), count(&b, overdue(waits.id))), (0, 1), "{b:?}");
    assert_eq!(rig.reception.metrics.chat_overdue.with_label_values(&["first_response"]).get(), 2);
}

#[tokio::test]
async fn two_who_make_rounds_at_once_do_no_harm() {
    let rig = Rig::new(3);
    for number in 0..12 {
        rig.open(&format!("u{number}")).await;
    }
    for name in ["a", "b", "c"] {
        rig.ledger.upsert_agent(SHOP, &id(name), rig.now()).await.unwrap();
        rig.presence.beat(&agent(name), "c", rig.now().plus(3 * BEAT)).await.unwrap();
    }
    let (mut one, mut other) = (rig.rounds(), rig.rounds());
    let (first, second) = tokio::join!(one.turn(rig.now()), other.turn(rig.now()));
    first.unwrap();
    second.unwrap();
    let loads = rig.ledger.agents(SHOP).await.unwrap();
    assert_eq!(loads.iter().map(|load| load.open_sessions).collect::<Vec<_>>(), [3, 3, 3], "nobody has more than may be");
    assert_eq!(rig.ledger.waiting_count(SHOP).await.unwrap(), 3);
}
