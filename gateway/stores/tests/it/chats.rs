//! What the chat ledger stores: business numbers, bytes, batches larger than a packet.

use std::time::Duration;

use gateway_core::chat::{Committed, Lease, Page, Party, Send as ChatSend, Side};
use gateway_core::id::{ClientMsgId, SessionId};
use gateway_core::ports::ChatLedger;
use gateway_core::principal::Role;
use gateway_core::time::UnixMillis;
use gateway_stores::MysqlStore;

use crate::shared::{FRESH, mysql, now};

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
    let outcomes = ledger.commit(&lease, &sends, now()).await.expect("commits");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Committed::Stored { dup: false, .. })));
    let last = ledger.messages(session, Page::Before { seq: u64::MAX, limit: 1 }).await.expect("reads");
    assert_eq!(last[0].seq, 256);
    assert_eq!(last[0].content, long);
    let again = ledger.commit(&lease, &sends, now()).await.expect("commits");
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
    ledger.commit(&lease, &sends, now()).await.expect("commits");
    let mut tops = ledger.tops(&sessions).await.expect("reads");
    tops.sort_by_key(|(session, _)| *session);
    let seqs: Vec<_> = tops.iter().map(|(_, top)| top.seq).collect();
    assert_eq!(seqs, (1..=20).collect::<Vec<_>>());
}
