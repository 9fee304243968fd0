//! What every [`ChatLedger`] promises.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::chat::{
    AgentLoad, Committed, Lease, MessageRecord, Page, Party, Position, ReadMark, Send as ChatSend, SessionRecord, Side,
};
use gateway_core::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use gateway_core::ports::{ChatLedger, PortErrorKind};

use super::{Fresh, eventually, now, shift};

/// A lease that outlives its check.
const LONG: Duration = Duration::from_secs(60);

/// Every check.
pub async fn all(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    opening_again_finds_the_open_session(&**store, fresh).await;
    racing_openings_find_one_session(store, fresh).await;
    sequence_numbers_have_no_gap(&**store, fresh).await;
    a_batch_keeps_its_order(&**store, fresh).await;
    the_same_message_is_stored_once(&**store, fresh).await;
    the_same_id_with_other_content_conflicts(&**store, fresh).await;
    strangers_find_nothing(&**store, fresh).await;
    the_shops_bot_may_speak(&**store, fresh).await;
    content_comes_back_byte_for_byte(&**store, fresh).await;
    racing_commits_leave_no_gap(store, fresh).await;
    a_lease_has_one_holder(&**store, fresh).await;
    a_former_holder_is_fenced(&**store, fresh).await;
    a_page_is_a_window_in_ascending_order(&**store, fresh).await;
    a_read_cursor_moves_forward_only(&**store, fresh).await;
    unread_is_an_exact_count(&**store, fresh).await;
    unread_stays_exact_under_racing_marks(store, fresh).await;
    an_agent_is_assigned_once_and_within_its_shop(&**store, fresh).await;
    racing_assignments_have_one_winner(store, fresh).await;
    agents_are_listed_with_their_load(&**store, fresh).await;
    sessions_are_listed_by_latest_activity(&**store, fresh).await;
    tops_name_sessions_that_exist(&**store, fresh).await;
}

/// A shop with a user, an agent, a session between them, and a lease to write under.
struct Room {
    shop: ShopId,
    user: Party,
    agent: Party,
    session: SessionId,
    lease: Lease,
}

impl Room {
    async fn new(store: &dyn ChatLedger, fresh: &Fresh) -> Self {
        let shop = fresh.shop();
        let (user, agent) = (user(fresh), agent(fresh, shop));
        let session = open(store, shop, &user.id, "order 1").await.id;
        store.upsert_agent(shop, &agent.id).await.expect("upsert agent");
        assert!(store.assign(session, &agent.id).await.expect("assign"), "nobody serves a new session");
        Self { shop, user, agent, session, lease: lease(store, fresh).await }
    }

    fn send(&self, fresh: &Fresh, sender: &Party) -> ChatSend {
        let id = fresh.word("m");
        ChatSend {
            session: self.session,
            sender: sender.clone(),
            client_msg_id: message_id(&id),
            kind: "text".to_owned(),
            content: format!("content of {id}"),
            origin: "conn-1".to_owned(),
            bot: false,
        }
    }

    fn user_says(&self, fresh: &Fresh) -> ChatSend {
        self.send(fresh, &self.user)
    }

    fn agent_says(&self, fresh: &Fresh) -> ChatSend {
        self.send(fresh, &self.agent)
    }

    async fn commit(&self, store: &dyn ChatLedger, sends: &[ChatSend]) -> Vec<Committed> {
        store.commit(&self.lease, sends, now()).await.expect("commit")
    }

    /// Stores one message from each sender in turn.
    async fn fill(&self, store: &dyn ChatLedger, fresh: &Fresh, senders: &[Side]) {
        let send = |side: &Side| match side {
            Side::User => self.user_says(fresh),
            Side::Agent => self.agent_says(fresh),
        };
        let sends: Vec<_> = senders.iter().map(send).collect();
        for committed in self.commit(store, &sends).await {
            stored(committed);
        }
    }

    async fn record(&self, store: &dyn ChatLedger) -> SessionRecord {
        store.session(&self.user, self.session).await.expect("session").expect("the user's own session")
    }

    async fn all(&self, store: &dyn ChatLedger) -> Vec<MessageRecord> {
        store.messages(self.session, Page::After { seq: 0, limit: 200 }).await.expect("messages")
    }

    async fn mark(&self, store: &dyn ChatLedger, side: Side, seq: u64) -> ReadMark {
        store.mark_read(self.session, side, seq).await.expect("mark read")
    }
}

fn user(fresh: &Fresh) -> Party {
    Party { side: Side::User, id: fresh.principal(), shop: None }
}

fn agent(fresh: &Fresh, shop: ShopId) -> Party {
    Party { side: Side::Agent, id: fresh.principal(), shop: Some(shop) }
}

fn message_id(text: &str) -> ClientMsgId {
    ClientMsgId::parse(text).expect("well-formed")
}

async fn open(store: &dyn ChatLedger, shop: ShopId, user: &PrincipalId, subject: &str) -> SessionRecord {
    store.open_session(shop, user, subject, now()).await.expect("open session")
}

async fn lease(store: &dyn ChatLedger, fresh: &Fresh) -> Lease {
    let (partition, owner) = (fresh.partition(), fresh.word("owner"));
    eventually("a lease that an earlier run left behind expires", || async { store.lease(partition, &owner, LONG).await.expect("lease") })
        .await
}

/// The stored message and whether it is a repetition.
fn stored(committed: Committed) -> (MessageRecord, bool) {
    match committed {
        Committed::Stored { message, dup, .. } => (message, dup),
        Committed::Conflict | Committed::NotFound | Committed::Closed => panic!("must be stored, got {committed:?}"),
    }
}

fn seqs(messages: &[MessageRecord]) -> Vec<u64> {
    messages.iter().map(|message| message.seq).collect()
}

/// Per shop, user and subject; each with a number of its own.
pub async fn opening_again_finds_the_open_session(store: &dyn ChatLedger, fresh: &Fresh) {
    let (shop, user) = (fresh.shop(), fresh.principal());
    let first = open(store, shop, &user, "订单 order").await;
    assert_eq!(
        (first.shop, &first.user, &first.agent, first.subject.as_str(), first.open, first.top.seq),
        (shop, &user, &None, "订单 order", true, 0)
    );
    assert_eq!((first.user_seq, first.agent_seq, first.user_unread, first.agent_unread), (0, 0, 0, 0));
    let digits = first.no.strip_prefix("CS").unwrap_or_default();
    assert!(digits.len() >= 11 && digits.bytes().all(|b| b.is_ascii_digit()), "CS, a date and a running number, got {}", first.no);
    assert_eq!(open(store, shop, &user, "订单 order").await, first);

    let shouting = PrincipalId::parse(&user.as_str().to_uppercase()).expect("valid");
    let others = [
        open(store, shop, &user, "订单 ORDER").await,
        open(store, shop, &user, "").await,
        open(store, fresh.shop(), &user, "订单 order").await,
        open(store, shop, &shouting, "订单 order").await,
    ];
    let mut ids: Vec<_> = others.iter().chain([&first]).map(|session| session.id).collect();
    let mut numbers: Vec<_> = others.iter().chain([&first]).map(|session| &session.no).collect();
    ids.sort_unstable();
    ids.dedup();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((ids.len(), numbers.len()), (5, 5), "subject, shop and user all count, by case: {others:?}");
}

/// Sixteen devices of one user.
pub async fn racing_openings_find_one_session(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let (shop, user) = (fresh.shop(), fresh.principal());
    let race = |_| {
        let (store, user) = (Arc::clone(store), user.clone());
        tokio::spawn(async move { open(&*store, shop, &user, "s").await.id })
    };
    let racers: Vec<_> = (0..16).map(race).collect();
    let first = open(&**store, shop, &user, "s").await.id;
    for racer in racers {
        assert_eq!(racer.await.expect("racer"), first);
    }
}

/// 1, 2, 3 … over several commits, and every field as sent.
pub async fn sequence_numbers_have_no_gap(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let epoch = room.record(store).await.top.epoch;
    let at = now();
    let mut want = Vec::new();
    for n in 0..5 {
        let send = ChatSend { kind: "order_card".to_owned(), ..if n % 2 == 0 { room.user_says(fresh) } else { room.agent_says(fresh) } };
        let committed = store.commit(&room.lease, std::slice::from_ref(&send), at).await.expect("commit");
        let message = MessageRecord {
            session: room.session,
            epoch,
            seq: n + 1,
            side: send.sender.side,
            sender: send.sender.id,
            client_msg_id: send.client_msg_id,
            kind: send.kind,
            content: send.content,
            bot: false,
            at,
        };
        let outcome =
            Committed::Stored { message: message.clone(), dup: false, user: room.user.id.clone(), agent: Some(room.agent.id.clone()) };
        assert_eq!(committed, [outcome]);
        want.push(message);
    }
    assert_eq!(room.all(store).await, want);
    assert_eq!(room.record(store).await.top, Position { epoch, seq: 5 });
    assert_eq!(room.commit(store, &[]).await, []);
}

/// Two sessions interleaved in one call of the largest size.
pub async fn a_batch_keeps_its_order(store: &dyn ChatLedger, fresh: &Fresh) {
    let (one, two) = (Room::new(store, fresh).await, Room::new(store, fresh).await);
    let sends: Vec<_> = (0..256).map(|n| if n % 3 == 0 { two.agent_says(fresh) } else { one.user_says(fresh) }).collect();
    let outcomes = one.commit(store, &sends).await;
    assert_eq!(outcomes.len(), 256);
    for (send, outcome) in sends.iter().zip(outcomes) {
        let (message, dup) = stored(outcome);
        assert!(!dup && message.client_msg_id == send.client_msg_id, "one outcome per message, in order");
    }
    for room in [&one, &two] {
        let want: Vec<_> = sends.iter().filter(|send| send.session == room.session).map(|send| send.content.clone()).collect();
        let all = room.all(store).await;
        assert_eq!(seqs(&all), (1..=want.len() as u64).collect::<Vec<_>>());
        assert_eq!(all.into_iter().map(|message| message.content).collect::<Vec<_>>(), want);
    }
}

/// Whenever it comes again, it answers with the row of the first time and takes no number.
pub async fn the_same_message_is_stored_once(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let (one, two, three) = (room.user_says(fresh), room.user_says(fresh), room.user_says(fresh));
    let first_time = shift(now(), -60);
    let first = store.commit(&room.lease, &[one.clone(), one.clone(), two.clone()], first_time).await.expect("commit");
    let first: Vec<_> = first.into_iter().map(stored).collect();
    assert_eq!(first.iter().map(|(message, dup)| (message.seq, *dup)).collect::<Vec<_>>(), [(1, false), (1, true), (2, false)]);

    let elsewhere = ChatSend { origin: "conn-2".to_owned(), ..one };
    let again: Vec<_> = room.commit(store, &[three, elsewhere, two]).await.into_iter().map(stored).collect();
    assert_eq!((again[0].0.seq, again[0].1), (3, false), "repetitions take no number");
    assert_eq!(again[1], (first[0].0.clone(), true), "the row as stored the first time");
    assert_eq!(again[2], (first[2].0.clone(), true));

    let sender_two = ChatSend { client_msg_id: first[0].0.client_msg_id.clone(), ..room.agent_says(fresh) };
    let (message, dup) = stored(room.commit(store, &[sender_two]).await.remove(0));
    assert!(!dup && message.seq == 4, "the id is the sender's own");
    let shouting = message_id(&message.client_msg_id.as_str().to_uppercase());
    let (message, dup) = stored(room.commit(store, &[ChatSend { client_msg_id: shouting, ..room.agent_says(fresh) }]).await.remove(0));
    assert!(!dup && message.seq == 5, "ids differ by case");
}

/// Nothing is stored, and the others of the batch are.
pub async fn the_same_id_with_other_content_conflicts(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let first = room.user_says(fresh);
    stored(room.commit(store, std::slice::from_ref(&first)).await.remove(0));
    let changed = ChatSend { content: format!("{} ", first.content), ..first.clone() };
    let outcomes = room.commit(store, &[changed.clone(), room.user_says(fresh), changed]).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Committed::Conflict, &Committed::Conflict));
    assert_eq!(stored(outcomes[1].clone()).0.seq, 2, "a conflict takes no number");
    assert_eq!(room.all(store).await[0].content, first.content);

    let fresh_id = room.user_says(fresh);
    let twisted = ChatSend { content: "other".to_owned(), ..fresh_id.clone() };
    let outcomes = room.commit(store, &[fresh_id, twisted]).await;
    assert_eq!(outcomes[1], Committed::Conflict, "within one call as well");
}

/// Another user, another shop's agent, a session that does not exist: one answer for all, and no trace.
pub async fn strangers_find_nothing(store: &dyn ChatLedger, fresh: &Fresh) {
    let (room, next_door) = (Room::new(store, fresh).await, Room::new(store, fresh).await);
    let unknown = SessionId(u64::MAX >> 2);
    let user_as_agent = Party { side: Side::Agent, id: room.user.id.clone(), shop: None };
    let agent_as_user = Party { side: Side::User, id: room.agent.id.clone(), shop: None };
    let namesake = Party { id: room.agent.id.clone(), ..next_door.agent.clone() };
    for stranger in [&next_door.user, &next_door.agent, &user(fresh), &user_as_agent, &agent_as_user, &namesake] {
        assert_eq!(store.session(stranger, room.session).await.expect("session"), None, "{stranger:?}");
        let listed = store.sessions(stranger, 100).await.expect("sessions");
        assert!(listed.iter().all(|session| session.id != room.session), "{stranger:?}");
        let outcomes = room.commit(store, &[room.send(fresh, stranger), room.user_says(fresh)]).await;
        assert_eq!(outcomes[0], Committed::NotFound, "{stranger:?}");
        stored(outcomes[1].clone());
    }
    assert_eq!(seqs(&room.all(store).await), [1, 2, 3, 4, 5, 6], "a refusal takes no number");
    for member in [&room.user, &room.agent] {
        assert!(store.session(member, room.session).await.expect("session").is_some(), "{member:?}");
        assert_eq!(store.session(member, unknown).await.expect("session"), None);
    }
    let nowhere = ChatSend { session: unknown, ..room.user_says(fresh) };
    assert_eq!(room.commit(store, &[nowhere]).await, [Committed::NotFound]);
    assert_eq!(store.messages(unknown, Page::After { seq: 0, limit: 10 }).await.expect("messages"), []);
    assert_eq!(store.mark_read(unknown, Side::User, 0).await.expect("mark read"), ReadMark::NotFound);
}

/// On the shop's behalf, also before anybody serves the session; it counts as the shop's message.
pub async fn the_shops_bot_may_speak(store: &dyn ChatLedger, fresh: &Fresh) {
    let (shop, user, lease) = (fresh.shop(), user(fresh), lease(store, fresh).await);
    let session = open(store, shop, &user.id, "s").await.id;
    let send = ChatSend {
        session,
        sender: Party { side: Side::Agent, id: PrincipalId::parse("bot").expect("valid"), shop: Some(shop) },
        client_msg_id: message_id(&fresh.word("m")),
        kind: "text".to_owned(),
        content: "hello".to_owned(),
        origin: String::new(),
        bot: true,
    };
    let outcomes = store.commit(&lease, std::slice::from_ref(&send), now()).await.expect("commit");
    let (message, dup) = stored(outcomes[0].clone());
    assert!(message.bot && !dup && message.seq == 1 && message.side == Side::Agent);
    let record = store.session(&user, session).await.expect("session").expect("the user's own session");
    assert_eq!((record.user_unread, record.agent_unread, record.agent), (1, 0, None));
}

/// Characters outside the basic plane, joined ones, quotes, zero-width ones, trailing space, and long text.
pub async fn content_comes_back_byte_for_byte(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let long = "长".repeat(20_000);
    let contents = ["😂", "𝐏", "👨‍👩‍👧‍👦", "🇨🇳", "' \" \\ ; -- % _ \u{0}\n\r\t", "a\u{200b}b\u{feff}", " x ", &long];
    let sends: Vec<_> = contents.iter().map(|content| ChatSend { content: (*content).to_owned(), ..room.user_says(fresh) }).collect();
    room.commit(store, &sends).await;
    let seen: Vec<_> = room.all(store).await.into_iter().map(|message| message.content).collect();
    assert_eq!(seen, contents);
    let again: Vec<_> = room.commit(store, &sends).await.into_iter().map(stored).collect();
    assert!(again.iter().all(|(_, dup)| *dup), "the same content is no conflict");
}

/// Eight writers under one lease: every number once, each writer's order kept.
pub async fn racing_commits_leave_no_gap(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let room = Arc::new(Room::new(&**store, fresh).await);
    let mut racers = Vec::new();
    for writer in 0..8 {
        let (store, room) = (Arc::clone(store), Arc::clone(&room));
        let sends: Vec<_> = (0..12).map(|n| ChatSend { content: format!("{writer:02} {n:02}"), ..room.user_says(fresh) }).collect();
        racers.push(tokio::spawn(async move {
            for pair in sends.chunks(2) {
                for outcome in room.commit(&*store, pair).await {
                    stored(outcome);
                }
            }
        }));
    }
    for racer in racers {
        racer.await.expect("racer");
    }
    let all = room.all(&**store).await;
    assert_eq!(seqs(&all), (1..=96).collect::<Vec<_>>());
    let mut contents: Vec<_> = all.into_iter().map(|message| message.content).collect();
    // A stable sort by writer leaves each writer's messages in stored order.
    contents.sort_by_key(|content| content[..2].to_owned());
    assert!(contents.is_sorted(), "a writer's own order is kept: {contents:?}");
}

/// It is prolonged under the same token, and passes on under a higher one when it has expired.
pub async fn a_lease_has_one_holder(store: &dyn ChatLedger, fresh: &Fresh) {
    let partition = fresh.partition();
    let (one, two) = (fresh.word("owner"), fresh.word("owner"));
    let take = async |owner: &str, ttl| store.lease(partition, owner, ttl).await.expect("lease");
    let first = eventually("a lease that an earlier run left behind expires", || take(&one, LONG)).await;
    assert_eq!((first.partition, &first.owner), (partition, &one));
    assert_eq!(take(&two, LONG).await, None, "somebody else holds it");
    assert_eq!(take(&one, LONG).await, Some(first.clone()), "prolonged");
    assert_eq!(take(&one, Duration::from_millis(50)).await, Some(first.clone()));
    let second = eventually("an expired lease passes on", || take(&two, LONG)).await;
    assert!(second.token > first.token && second.owner == two, "{second:?} after {first:?}");
    assert_eq!(take(&one, LONG).await, None);
}

/// It is told so, and nothing it brought is stored.
pub async fn a_former_holder_is_fenced(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User]).await;
    let Lease { partition, owner, token } = room.lease.clone();
    store.lease(partition, &owner, Duration::from_millis(50)).await.expect("lease").expect("the holder's own");
    let heir = fresh.word("owner");
    let second = eventually("an expired lease passes on", || async { store.lease(partition, &heir, LONG).await.expect("lease") }).await;

    let late = room.user_says(fresh);
    let impostors = [
        (room.lease.clone(), "the former holder"),
        (Lease { token, ..second.clone() }, "the former token"),
        (Lease { token: second.token + 1, ..second.clone() }, "a token nobody was given"),
        (Lease { partition: fresh.partition(), ..second.clone() }, "another partition"),
    ];
    for (lease, who) in impostors {
        let error = store.commit(&lease, std::slice::from_ref(&late), now()).await.expect_err(who);
        assert_eq!(error.kind, PortErrorKind::Fenced, "{who}");
    }
    assert_eq!(seqs(&room.all(store).await), [1], "nothing of theirs is stored");
    let outcomes = store.commit(&second, &[late], now()).await.expect("commit");
    let (message, dup) = stored(outcomes[0].clone());
    assert!(!dup && message.seq == 2, "no number was lost");
}

/// After: the oldest above; before: the latest below; never more than asked for, nor than 200.
pub async fn a_page_is_a_window_in_ascending_order(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User; 205]).await;
    let page = async |page| seqs(&store.messages(room.session, page).await.expect("messages"));
    for (seq, limit, want) in [(0, 3, 1..=3), (200, 3, 201..=203), (203, 3, 204..=205), (0, 200, 1..=200), (0, 1_000, 1..=200)] {
        assert_eq!(page(Page::After { seq, limit }).await, want.collect::<Vec<_>>(), "{limit} after {seq}");
    }
    for (seq, limit, want) in [(4, 2, 2..=3), (3, 9, 1..=2), (206, 3, 203..=205), (1 << 50, 3, 203..=205), (206, 1_000, 6..=205)] {
        assert_eq!(page(Page::Before { seq, limit }).await, want.collect::<Vec<_>>(), "{limit} before {seq}");
    }
    for empty in [
        Page::After { seq: 205, limit: 9 },
        Page::After { seq: 1 << 50, limit: 9 },
        Page::After { seq: 0, limit: 0 },
        Page::Before { seq: 1, limit: 9 },
        Page::Before { seq: 0, limit: 9 },
        Page::Before { seq: 9, limit: 0 },
    ] {
        assert_eq!(page(empty).await, [] as [u64; 0], "{empty:?}");
    }
}

/// An older mark changes nothing, one beyond the top is refused, and the sides are apart.
pub async fn a_read_cursor_moves_forward_only(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    assert_eq!(room.mark(store, Side::User, 0).await, ReadMark::At { seq: 0, unread: 0 }, "an empty session");
    assert_eq!(room.mark(store, Side::User, 1).await, ReadMark::OutOfRange);
    room.fill(store, fresh, &[Side::Agent; 5]).await;
    assert_eq!(room.mark(store, Side::User, 4).await, ReadMark::At { seq: 4, unread: 1 });
    assert_eq!(room.mark(store, Side::User, 2).await, ReadMark::At { seq: 4, unread: 1 }, "an older mark");
    assert_eq!(room.mark(store, Side::User, 4).await, ReadMark::At { seq: 4, unread: 1 }, "the same mark");
    for beyond in [6, 1 << 53, u64::MAX] {
        assert_eq!(room.mark(store, Side::User, beyond).await, ReadMark::OutOfRange, "{beyond}");
    }
    assert_eq!(room.mark(store, Side::User, 5).await, ReadMark::At { seq: 5, unread: 0 });
    let record = room.record(store).await;
    assert_eq!((record.user_seq, record.agent_seq, record.user_unread), (5, 0, 0), "the agent's cursor stands");
}

/// Own messages never count, wherever the cursors stand.
pub async fn unread_is_an_exact_count(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let senders = [Side::User, Side::Agent, Side::Agent, Side::User, Side::Agent, Side::User, Side::User];
    room.fill(store, fresh, &senders).await;
    let recount = |reader: Side, seq: usize| senders[seq..].iter().filter(|sender| **sender != reader).count() as u64;
    let record = room.record(store).await;
    assert_eq!((record.user_unread, record.agent_unread), (3, 4), "nothing was read");
    for seq in 0..=senders.len() {
        for side in [Side::User, Side::Agent] {
            let want = ReadMark::At { seq: seq as u64, unread: recount(side, seq) };
            assert_eq!(room.mark(store, side, seq as u64).await, want, "{side:?} at {seq}");
        }
        let record = room.record(store).await;
        assert_eq!((record.user_unread, record.agent_unread), (recount(Side::User, seq), recount(Side::Agent, seq)));
    }
    room.fill(store, fresh, &[Side::User]).await;
    let record = room.record(store).await;
    assert_eq!((record.user_unread, record.agent_unread), (0, 1), "a new message is unread to the other side");
}

/// Commits and marks interleaved by many tasks.
pub async fn unread_stays_exact_under_racing_marks(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let room = Arc::new(Room::new(&**store, fresh).await);
    let mut racers = Vec::new();
    for n in 0..16_u64 {
        let (store, room) = (Arc::clone(store), Arc::clone(&room));
        let sends = [room.user_says(fresh), room.agent_says(fresh), room.user_says(fresh)];
        racers.push(tokio::spawn(async move {
            for send in sends {
                stored(room.commit(&*store, &[send]).await.remove(0));
                let side = if n % 2 == 0 { Side::User } else { Side::Agent };
                let mark = room.mark(&*store, side, n).await;
                assert!(matches!(mark, ReadMark::At { .. } | ReadMark::OutOfRange), "{mark:?}");
            }
        }));
    }
    for racer in racers {
        racer.await.expect("racer");
    }
    let (record, all) = (room.record(&**store).await, room.all(&**store).await);
    let recount = |reader: Side, cursor: u64| all.iter().filter(|message| message.seq > cursor && message.side != reader).count() as u64;
    let want = (recount(Side::User, record.user_seq), recount(Side::Agent, record.agent_seq));
    assert_eq!((record.top.seq, record.user_unread, record.agent_unread), (48, want.0, want.1));
}

/// Not over another agent, not to a stranger, and then it no longer waits.
pub async fn an_agent_is_assigned_once_and_within_its_shop(store: &dyn ChatLedger, fresh: &Fresh) {
    let shop = fresh.shop();
    let [one, two] = [agent(fresh, shop), agent(fresh, shop)];
    let (stranger, unregistered) = (agent(fresh, fresh.shop()), agent(fresh, shop));
    store.upsert_agent(stranger.shop.expect("an agent's"), &stranger.id).await.expect("upsert agent");
    for agent in [&one, &two] {
        store.upsert_agent(shop, &agent.id).await.expect("upsert agent");
    }
    let mut sessions = Vec::new();
    for subject in ["first", "second", "third"] {
        sessions.push(open(store, shop, &fresh.principal(), subject).await.id);
    }
    let waiting =
        async || -> Vec<SessionId> { store.waiting(shop).await.expect("waiting").into_iter().map(|session| session.id).collect() };
    let assign = async |session, agent: &Party| store.assign(session, &agent.id).await.expect("assign");
    assert_eq!(waiting().await, sessions, "oldest first");
    assert!(!assign(sessions[1], &stranger).await, "an agent of another shop");
    assert!(!assign(sessions[1], &unregistered).await, "an agent nobody registered");
    assert!(!assign(SessionId(u64::MAX >> 2), &one).await, "no such session");
    assert_eq!(waiting().await, sessions);
    assert!(assign(sessions[1], &one).await);
    assert!(!assign(sessions[1], &two).await, "somebody serves it");
    assert!(!assign(sessions[1], &one).await, "also when it is the same agent");
    assert_eq!(waiting().await, [sessions[0], sessions[2]]);
    let record = store.session(&one, sessions[1]).await.expect("session").expect("the agent's own");
    assert_eq!(record.agent, Some(one.id));
}

/// Eight agents after one session.
pub async fn racing_assignments_have_one_winner(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let shop = fresh.shop();
    let session = open(&**store, shop, &fresh.principal(), "s").await.id;
    let mut racers = Vec::new();
    for _ in 0..8 {
        let (store, agent) = (Arc::clone(store), fresh.principal());
        store.upsert_agent(shop, &agent).await.expect("upsert agent");
        racers.push(tokio::spawn(async move { store.assign(session, &agent).await.expect("assign") }));
    }
    let mut won = 0;
    for racer in racers {
        won += u32::from(racer.await.expect("racer"));
    }
    assert_eq!(won, 1);
}

/// Registered ones of the shop, idle ones too; registering again changes nothing.
pub async fn agents_are_listed_with_their_load(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User, Side::User, Side::Agent, Side::User]).await;
    room.mark(store, Side::Agent, 1).await;
    let second = open(store, room.shop, &room.user.id, "another matter").await.id;
    assert!(store.assign(second, &room.agent.id).await.expect("assign"));
    let idle = fresh.principal();
    for agent in [&idle, &room.agent.id, &idle] {
        store.upsert_agent(room.shop, agent).await.expect("upsert agent");
    }
    let mut loads = store.agents(room.shop).await.expect("agents");
    loads.sort_by_key(|load| load.open_sessions);
    let want =
        [AgentLoad { agent: idle, unread: 0, open_sessions: 0 }, AgentLoad { agent: room.agent.id.clone(), unread: 2, open_sessions: 2 }];
    assert_eq!(loads, want);
    assert_eq!(store.agents(fresh.shop()).await.expect("agents"), []);
}

/// A new message brings a session to the front, for the user and for the agent who serves it.
pub async fn sessions_are_listed_by_latest_activity(store: &dyn ChatLedger, fresh: &Fresh) {
    let (room, start) = (Room::new(store, fresh).await, now());
    let mut sessions = vec![room.session];
    for n in 1..4 {
        let session = store.open_session(room.shop, &room.user.id, &fresh.word("s"), shift(start, n)).await.expect("open session");
        assert!(store.assign(session.id, &room.agent.id).await.expect("assign"));
        sessions.push(session.id);
    }
    let listed = async |party: &Party, limit| -> Vec<SessionId> {
        store.sessions(party, limit).await.expect("sessions").into_iter().map(|session| session.id).collect()
    };
    let [a, b, c, d] = sessions[..] else { unreachable!("four sessions") };
    for party in [&room.user, &room.agent] {
        assert_eq!(listed(party, 10).await, [d, c, b, a], "{:?}: opened last comes first", party.side);
    }
    for (n, session) in [(10, b), (20, a)] {
        let send = ChatSend { session, ..room.user_says(fresh) };
        let outcomes = store.commit(&room.lease, &[send], shift(start, n)).await.expect("commit");
        stored(outcomes[0].clone());
    }
    for party in [&room.user, &room.agent] {
        assert_eq!(listed(party, 10).await, [a, b, d, c], "{:?}", party.side);
        assert_eq!(listed(party, 2).await, [a, b], "{:?}: at most two", party.side);
    }
}

/// Unknown ones are left out.
pub async fn tops_name_sessions_that_exist(store: &dyn ChatLedger, fresh: &Fresh) {
    let (one, two) = (Room::new(store, fresh).await, Room::new(store, fresh).await);
    one.fill(store, fresh, &[Side::User; 3]).await;
    let mut tops = store.tops(&[two.session, SessionId(u64::MAX >> 2), one.session]).await.expect("tops");
    tops.sort_by_key(|(session, _)| *session);
    let want = [(one.session, one.record(store).await.top), (two.session, two.record(store).await.top)];
    assert_eq!(tops, want);
    assert_eq!((want[0].1.seq, want[1].1.seq), (3, 0));
    assert_eq!(store.tops(&[]).await.expect("tops"), []);
}
