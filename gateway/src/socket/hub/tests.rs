use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use gateway_core::chat::Side;
use gateway_core::chat::code::ErrorCode;
use gateway_core::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use gateway_core::ports::{Inbox, PortError, PortErrorKind, PortResult, Requests, Store, Subscription};
use gateway_embedded::EmbeddedBus;

use super::*;
use crate::vault::Absent;

/// A bus that counts its subscriptions, and refuses the first ones.
struct Counted {
    bus: EmbeddedBus,
    refuses: AtomicUsize,
    opened: AtomicUsize,
}

fn away() -> PortError {
    PortError { kind: PortErrorKind::Unavailable, store: Store::Nats, doing: "subscribe", source: None }
}

#[async_trait]
impl Bus for Counted {
    async fn publish(&self, subject: &str, payload: Bytes) -> PortResult<()> {
        self.bus.publish(subject, payload).await
    }

    async fn subscribe(&self, subject: &str) -> PortResult<Box<dyn Subscription>> {
        if self.refuses.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(away());
        }
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.bus.subscribe(subject).await
    }

    async fn serve(&self, _: &str, _: &str) -> PortResult<Box<dyn Requests>> {
        Err(away())
    }

    async fn enqueue(&self, _: u16, _: ShopId, _: Bytes) -> PortResult<()> {
        Err(away())
    }

    async fn queued(&self, _: ShopId) -> PortResult<u64> {
        Err(away())
    }

    async fn open_inbox(&self, _: u16, _: u64) -> PortResult<Box<dyn Inbox>> {
        Err(away())
    }
}

fn rig(refuses: usize) -> (Arc<Counted>, Arc<Hub>, Party) {
    let bus = Arc::new(Counted { bus: EmbeddedBus::new(), refuses: refuses.into(), opened: 0.into() });
    let hub = Hub::new(bus.clone(), Arc::new(Absent));
    (bus, hub, Party::user(PrincipalId::parse("u1").unwrap()))
}

fn typing(session: u64) -> Event {
    Event::Typing { session: SessionId(session), by: Side::Agent, writer: PrincipalId::parse("a1").unwrap() }
}

async fn post(seat: &Seat) -> Post {
    std::future::poll_fn(|cx| seat.poll_post(cx)).await
}

async fn heard(seat: &Seat) -> Arc<Heard> {
    match post(seat).await {
        Post::Heard(heard) => heard,
        other @ (Post::Lost | Post::Revoked | Post::Drain) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sockets_of_a_party_share_one_subscription_and_one_decoded_event() {
    let (bus, hub, party) = rig(0);
    let (first, second) = tokio::join!(hub.join(&party, None), hub.join(&party, None));
    bus.publish(&party.subject(), typing(1).encode()).await.unwrap();
    let (one, other) = (heard(&first).await, heard(&second).await);
    assert!(Arc::ptr_eq(&one, &other) && one.event == typing(1));
    assert_eq!(bus.opened.load(Ordering::Relaxed), 1);

    drop(first);
    bus.publish(&party.subject(), typing(2).encode()).await.unwrap();
    assert_eq!(heard(&second).await.event, typing(2), "the last one is still heard");
    drop(second);
    assert!(hub.lines().by_subject.is_empty(), "the subscription ends with the last socket");

    let third = hub.join(&party, None).await;
    bus.publish(&party.subject(), typing(3).encode()).await.unwrap();
    assert_eq!(heard(&third).await.event, typing(3));
    assert_eq!(bus.opened.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn whoever_gives_up_while_it_sits_down_leaves_nothing_behind() {
    let (_, hub, party) = rig(0);
    {
        let mut join = std::pin::pin!(hub.join(&party, None));
        assert!(futures::poll!(&mut join).is_pending());
        assert_eq!(hub.lines().by_subject.len(), 1);
    }
    assert!(hub.lines().by_subject.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_is_away_keeps_nobody_out_and_what_was_missed_is_told() {
    let (bus, hub, party) = rig(3);
    let seat = hub.join(&party, None).await;
    hub.tell(&party.subject(), &Arc::new(Heard::new(typing(1))));
    assert_eq!(heard(&seat).await.event, typing(1), "what this node knows itself is heard");
    assert!(matches!(post(&seat).await, Post::Lost), "once the bus is there again");
    bus.publish(&party.subject(), typing(2).encode()).await.unwrap();
    assert_eq!(heard(&seat).await.event, typing(2));
}

#[tokio::test]
async fn a_socket_that_is_behind_is_told_so_and_costs_the_others_nothing() {
    let (_, hub, party) = rig(0);
    let (slow, quick) = (hub.join(&party, None).await, hub.join(&party, None).await);
    for session in 0..2 * BEHIND_MAX as u64 {
        hub.tell(&party.subject(), &Arc::new(Heard::new(typing(session))));
        assert_eq!(heard(&quick).await.event, typing(session));
    }
    for session in 0..BEHIND_MAX as u64 {
        assert_eq!(heard(&slow).await.event, typing(session));
    }
    assert!(matches!(post(&slow).await, Post::Lost));
    hub.tell(&party.subject(), &Arc::new(Heard::new(typing(7))));
    assert_eq!(heard(&slow).await.event, typing(7));
}

#[tokio::test]
async fn a_revoked_token_or_party_ends_its_sockets_alone() {
    let (_, hub, party) = rig(0);
    let other = Party::user(PrincipalId::parse("u2").unwrap());
    let old = hub.join(&party, Some("t1".into())).await;
    let renewed = hub.join(&party, Some("t1".into())).await;
    renewed.renew(Some("t2".into()));
    let stranger = hub.join(&other, Some("t3".into())).await;
    hub.revoke(|name| name == "t1");
    assert!(matches!(post(&old).await, Post::Revoked));
    hub.revoke(|name| name == "u2");
    assert!(matches!(post(&stranger).await, Post::Revoked));
    hub.tell(&party.subject(), &Arc::new(Heard::new(typing(1))));
    assert_eq!(heard(&renewed).await.event, typing(1));
}

#[tokio::test]
async fn whoever_comes_while_the_node_drains_is_told_too() {
    let (_, hub, party) = rig(0);
    let before = hub.join(&party, None).await;
    hub.drain();
    let after = hub.join(&party, None).await;
    assert!(matches!((post(&before).await, post(&after).await), (Post::Drain, Post::Drain)));
}

#[tokio::test]
async fn whoever_caused_an_event_on_this_node_is_told_by_its_cause_alone() {
    let (_, hub, party) = rig(0);
    let (own, other) = (hub.join(&party, None).await, hub.join(&party, None).await);
    own.speak_for("c1");
    let refused = |origin: &str| {
        let client_msg_id = ClientMsgId::parse("m").unwrap();
        Event::Refused { client_msg_id, session: SessionId(1), origin: origin.into(), code: ErrorCode::NotFound }
    };
    for origin in ["c1", "c2"] {
        hub.tell(&party.subject(), &Arc::new(Heard::new(refused(origin))));
        assert_eq!(heard(&other).await.event, refused(origin));
    }
    assert_eq!(heard(&own).await.event, refused("c2"));
}
