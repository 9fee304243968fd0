//! What the chat ledger stores: business numbers, bytes, batches larger than a packet, handovers; data from before it was whole.

use std::time::Duration;

use gateway_core::chat::{Clocks, Committed, Fingerprint, Handover, HandoverOutcome, Lease, Page, Party, Reason, Send as ChatSend, Side};
use gateway_core::id::{ClientMsgId, SessionId};
use gateway_core::ports::ChatLedger;
use gateway_core::principal::Role;
use gateway_core::time::UnixMillis;
use gateway_stores::MysqlStore;

use crate::shared::{FRESH, database_url, mysql, mysql_at, now, raw_mysql};

async fn lease(ledger: &MysqlStore) -> Lease {
    ledger.lease(FRESH.partition(), "w", Duration::from_secs(60)).await.expect("answers").expect("free")
}

fn send(session: SessionId, sender: &Party, content: &str) -> ChatSend {
    ChatSend {
        session,
        sender: sender.clone(),
        client_msg_id: ClientMsgId::parse(&FRESH.word("m")).expect("valid"),
        kind: "text".to_owned(),
        content: content.to_owned(),
        fingerprint: Fingerprint::of("text", content),
        origin: "c1".to_owned(),
        bot: false,
    }
}

#[tokio::test]
async fn a_session_is_numbered_by_day() {
    let ledger = mysql().await;
    // A day of its own for this run: the year 2200 and something.
    let day = 84_500 + FRESH.number() % 1_000_000;
    let at = UnixMillis(day * 86_400_000);
    let (shop, user) = (FRESH.shop(), FRESH.principal());
    let first = ledger.open_session(shop, &user, "a", at).await.expect("opens");
    let second = ledger.open_session(shop, &user, "b", at).await.expect("opens");
    assert!(first.no.starts_with("CS") && first.no.ends_with("001") && first.no.len() == 13, "{}", first.no);
    assert_eq!(second.no, format!("{}002", &first.no[..10]));
}

#[tokio::test]
async fn a_batch_larger_than_a_packet_is_stored_whole() {
    let ledger = mysql().await;
    let lease = lease(&ledger).await;
    let (shop, user) = (FRESH.shop(), FRESH.principal());
    let session = ledger.open_session(shop, &user, "", now()).await.expect("opens").id;
    let party = Party { side: Side::of(Role::User).expect("a side"), id: user, shop: None };
    let long = "长".repeat(64 * 1024 / 3);
    let sends: Vec<_> = (0..256).map(|_| send(session, &party, &long)).collect();
    let outcomes = ledger.commit(Some(&lease), &sends, &[], now()).await.expect("commits");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Committed::Stored { dup: false, .. })));
    let last = ledger.messages(session, Page::Before { seq: u64::MAX, limit: 1 }).await.expect("reads");
    assert_eq!(last[0].seq, 256);
    assert_eq!(last[0].content, long);
    let again = ledger.commit(Some(&lease), &sends, &[], now()).await.expect("commits");
    assert!(again.iter().all(|outcome| matches!(outcome, Committed::Stored { dup: true, .. })));
}

#[tokio::test]
async fn one_batch_for_many_sessions_moves_each_top() {
    let ledger = mysql().await;
    let lease = lease(&ledger).await;
    let (shop, user) = (FRESH.shop(), FRESH.principal());
    let party = Party { side: Side::User, id: user.clone(), shop: None };
    let mut sessions = Vec::new();
    for n in 0..20 {
        sessions.push(ledger.open_session(shop, &user, &n.to_string(), now()).await.expect("opens").id);
    }
    // Session n gets n messages, interleaved and from the last to the first.
    let rounds = (0..20).rev().flat_map(|round| (round..20).rev());
    let sends: Vec<_> = rounds.map(|n: usize| send(sessions[n], &party, "hi")).collect();
    ledger.commit(Some(&lease), &sends, &[], now()).await.expect("commits");
    let mut tops = ledger.tops(&sessions).await.expect("reads");
    tops.sort_by_key(|(session, _)| *session);
    let seqs: Vec<_> = tops.iter().map(|(_, top)| top.seq).collect();
    assert_eq!(seqs, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn control_characters_of_a_whole_batch_fit_a_packet() {
    let ledger = mysql().await;
    let lease = lease(&ledger).await;
    let (shop, user) = (FRESH.shop(), FRESH.principal());
    let session = ledger.open_session(shop, &user, "", now()).await.expect("opens").id;
    let party = Party::user(user);
    // Each becomes six bytes on its way to the server.
    let worst = "\u{1}".repeat(60 * 1024);
    let sends: Vec<_> = (0..256).map(|_| send(session, &party, &worst)).collect();
    let outcomes = ledger.commit(Some(&lease), &sends, &[], now()).await.expect("commits");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Committed::Stored { dup: false, .. })));
    let last = ledger.messages(session, Page::Before { seq: u64::MAX, limit: 1 }).await.expect("reads");
    assert_eq!((last[0].seq, &last[0].content), (256, &worst));
}

#[tokio::test]
async fn a_handover_is_written_down_with_its_reason() {
    let ledger = mysql().await;
    let (shop, user, agent) = (FRESH.shop(), FRESH.principal(), FRESH.principal());
    let session = ledger.open_session(shop, &user, "", now()).await.expect("opens").id;
    ledger.upsert_agent(shop, &agent, now()).await.expect("registers");
    let detail = "unread 2, open 1, of 3 within 8".to_owned();
    let assigned =
        Handover { session, from: None, to: Some(agent.clone()), reason: Reason::LeastUnread, detail: detail.clone(), open_max: Some(8) };
    let refused = Handover { from: Some(user), ..assigned.clone() };
    let gone = Handover { from: Some(agent.clone()), to: None, reason: Reason::AgentGone, ..assigned.clone() };
    for (handover, done) in [(assigned, true), (refused, false), (gone, true)] {
        let outcome = ledger.hand_over(&handover, now()).await.expect("answers");
        assert_eq!(matches!(outcome, HandoverOutcome::Done(_)), done, "{outcome:?}");
    }
    type Row = (u64, Option<String>, Option<String>, String, String);
    let rows: Vec<Row> =
        sqlx::query_as("select shop_id, from_admin, to_admin, reason, detail from chat_handover where session_id = ? order by id")
            .bind(session.0)
            .fetch_all(&raw_mysql().await)
            .await
            .expect("reads");
    let agent = Some(agent.as_str().to_owned());
    let want =
        [(shop.0, None, agent.clone(), "least_unread".to_owned(), detail.clone()), (shop.0, agent, None, "agent_gone".to_owned(), detail)];
    assert_eq!(rows, want);
}

/// Sessions as they were before they had clocks and received cursors; the second was answered, the third only by a bot.
const BEFORE: &str = "
    insert into chat_session (id, session_no, shop_id, user_id, admin_id, subject, max_seq, cum_user, cum_admin, user_seq, admin_seq,
        user_seen, admin_seen, last_at, created_at) values
      (1, 'CS1', 1, 'u1', null, '', 2, 2, 0, 0, 0, 0, 0, '1970-01-01 00:00:02', '1970-01-01 00:00:00'),
      (2, 'CS2', 1, 'u2', 'a1', '', 4, 2, 2, 4, 3, 2, 1, '1970-01-01 00:00:04', '1970-01-01 00:00:00'),
      (3, 'CS3', 1, 'u3', 'a1', '', 2, 1, 1, 0, 1, 0, 1, '1970-01-01 00:00:02', '1970-01-01 00:00:00');
    insert into chat_message (session_id, seq, epoch, shop_id, side, sender_id, client_msg_id, kind, content, payload_hash, bot,
        cum_user, cum_admin, created_at) values
      (1, 1, 1, 1, 0, 'u1', 'm1', 'text', 'x', repeat('h', 32), 0, 1, 0, '1970-01-01 00:00:01'),
      (1, 2, 1, 1, 0, 'u1', 'm2', 'text', 'x', repeat('h', 32), 0, 2, 0, '1970-01-01 00:00:02'),
      (2, 1, 1, 1, 1, 'a1', 'm1', 'text', 'x', repeat('h', 32), 0, 0, 1, '1970-01-01 00:00:01'),
      (2, 2, 1, 1, 0, 'u2', 'm2', 'text', 'x', repeat('h', 32), 0, 1, 1, '1970-01-01 00:00:02'),
      (2, 3, 1, 1, 1, 'a1', 'm3', 'text', 'x', repeat('h', 32), 0, 1, 2, '1970-01-01 00:00:03'),
      (2, 4, 1, 1, 0, 'u2', 'm4', 'text', 'x', repeat('h', 32), 0, 2, 2, '1970-01-01 00:00:04'),
      (3, 1, 1, 1, 0, 'u3', 'm1', 'text', 'x', repeat('h', 32), 0, 1, 0, '1970-01-01 00:00:01'),
      (3, 2, 1, 1, 1, 'bot', 'm2', 'text', 'x', repeat('h', 32), 1, 1, 1, '1970-01-01 00:00:02');
    insert into agent (shop_id, admin_id) values (1, 'a1');";

#[tokio::test]
async fn sessions_from_before_get_cursors_and_clocks() {
    let (raw, database) = (raw_mysql().await, format!("before_{}", FRESH.number()));
    let run =
        async |pool: &sqlx::MySqlPool, sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(pool).await.map(drop).expect("runs");
    run(&raw, format!("create database {database}")).await;
    // The migrations up to then, as a node of then ran them.
    let store = mysql_at(database_url(&database)).await;
    let old = sqlx::MySqlPool::connect(&database_url(&database)).await.expect("connects");
    run(&old, "drop table chat_session, chat_message, chat_day, chat_lease, agent, chat_handover, chat_device".to_owned()).await;
    run(&old, include_str!("../../../../migrations/0003_create_chats.sql").to_owned()).await;
    run(&old, BEFORE.to_owned()).await;
    run(&old, include_str!("../../../../migrations/0006_complete_chats.sql").to_owned()).await;

    let found = async |user: &str| {
        let party = Party::user(gateway_core::id::PrincipalId::parse(user).expect("valid"));
        let session = store.sessions(&party, 1).await.expect("reads").remove(0);
        ((session.user_received, session.agent_received, session.user_unread, session.agent_unread), session.clocks)
    };
    let (at, opened_at) = (|seconds: u64| Some(UnixMillis(seconds * 1_000)), UnixMillis(0));
    let waits = Clocks { opened_at, waiting_since: at(0), asked_at: at(1), ..Clocks::default() };
    assert_eq!(found("u1").await, ((0, 0, 0, 2), waits));
    assert_eq!(found("u2").await, ((4, 3, 0, 1), Clocks { opened_at, asked_at: at(4), answered_at: at(3), ..Clocks::default() }));
    assert_eq!(found("u3").await, ((0, 1, 1, 0), Clocks { opened_at, asked_at: at(1), ..Clocks::default() }), "a bot answers nobody");
    let served = store.agents(gateway_core::id::ShopId(1)).await.expect("reads");
    assert_eq!((served[0].open_sessions, served[0].unread, served[0].open_max), (2, 1, None));
}
