//! What every [`Bus`] promises.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::ports::{Bus, Delivery, Inbox, PortErrorKind, Requests, Subscription};
use tokio::time::timeout;

use super::{Fresh, PATIENCE, QUIET};

/// Every check.
pub async fn all(bus: &Arc<dyn Bus>, fresh: &Fresh) {
    a_subscriber_hears_a_publisher_in_order(&**bus, fresh).await;
    every_subscriber_hears_its_subject_only(&**bus, fresh).await;
    publishing_needs_no_listener(&**bus, fresh).await;
    a_cancelled_wait_loses_nothing(&**bus, fresh).await;
    each_request_goes_to_one_of_a_group(&**bus, fresh).await;
    groups_and_listeners_hear_a_subject_apart(&**bus, fresh).await;
    a_group_serves_on_when_a_member_leaves(&**bus, fresh).await;
    a_cancelled_wait_loses_no_request(&**bus, fresh).await;
    a_partition_is_first_in_first_out(&**bus, fresh).await;
    partitions_know_nothing_of_each_other(&**bus, fresh).await;
    a_fetch_waits_for_the_first_message_only(bus, fresh).await;
    an_empty_fetch_ends_in_time(&**bus, fresh).await;
    unacknowledged_messages_come_again_to_a_later_inbox_only(&**bus, fresh).await;
    a_takeover_silences_the_former_inbox(&**bus, fresh).await;
    what_a_shop_has_queued_is_counted_until_it_is_acknowledged(&**bus, fresh).await;
}

fn text(number: usize) -> Bytes {
    Bytes::from(format!("message {number}"))
}

async fn publish(bus: &dyn Bus, subject: &str, payload: Bytes) {
    bus.publish(subject, payload).await.expect("publish");
}

async fn subscribe(bus: &dyn Bus, subject: &str) -> Box<dyn Subscription> {
    bus.subscribe(subject).await.expect("subscribe")
}

async fn next(subscription: &mut Box<dyn Subscription>) -> Bytes {
    timeout(PATIENCE, subscription.next()).await.expect("a message in time").expect("the bus is there")
}

async fn enqueue(bus: &dyn Bus, fresh: &Fresh, partition: u16, payload: Bytes) {
    bus.enqueue(partition, fresh.shop(), payload).await.expect("enqueue");
}

async fn open(bus: &dyn Bus, fresh: &Fresh, partition: u16) -> Box<dyn Inbox> {
    bus.open_inbox(partition, fresh.number()).await.expect("open inbox")
}

/// Exactly `count` messages, however many fetches that takes.
async fn fetch(inbox: &mut Box<dyn Inbox>, count: usize) -> Vec<Delivery> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(left > Duration::ZERO, "{} of {count} messages within {PATIENCE:?}", all.len());
        all.extend(inbox.fetch(count - all.len(), left).await.expect("fetch"));
    }
    assert_eq!(all.len(), count, "a fetch must not exceed its maximum");
    all
}

async fn acknowledge(inbox: &mut Box<dyn Inbox>, deliveries: &[Delivery]) {
    inbox.acknowledge(deliveries).await.expect("acknowledge");
}

async fn assert_quiet(inbox: &mut Box<dyn Inbox>, why: &str) {
    let fetched = inbox.fetch(10, QUIET).await.expect("fetch");
    assert!(fetched.is_empty(), "{why}, got {:?}", payloads(&fetched));
}

fn payloads(deliveries: &[Delivery]) -> Vec<Bytes> {
    deliveries.iter().map(|delivery| delivery.payload.clone()).collect()
}

/// From the moment `subscribe` returns, in the order of sending.
pub async fn a_subscriber_hears_a_publisher_in_order(bus: &dyn Bus, fresh: &Fresh) {
    let subject = format!("evt.user.{}", fresh.number());
    publish(bus, &subject, text(999)).await;
    let mut listener = subscribe(bus, &subject).await;
    for n in 0..100 {
        publish(bus, &subject, text(n)).await;
    }
    for n in 0..100 {
        assert_eq!(next(&mut listener).await, text(n));
    }
}

/// Each listener of a subject gets each message; other subjects stay apart, also those that begin alike.
pub async fn every_subscriber_hears_its_subject_only(bus: &dyn Bus, fresh: &Fresh) {
    let subject = format!("evt.user.{}", fresh.number());
    let (mut one, mut two) = (subscribe(bus, &subject).await, subscribe(bus, &subject).await);
    let mut other = subscribe(bus, &format!("evt.agent.{}", fresh.number())).await;
    let mut longer = subscribe(bus, &format!("{subject}.x")).await;
    let odd = Bytes::from_static(b"\x00\xff\r\n\xf0\x9f\x98\x82");
    publish(bus, &subject, odd.clone()).await;
    publish(bus, &subject, Bytes::new()).await;
    for listener in [&mut one, &mut two] {
        assert_eq!(next(listener).await, odd, "byte for byte");
        assert_eq!(next(listener).await, Bytes::new());
    }
    for listener in [&mut other, &mut longer] {
        assert!(timeout(QUIET, listener.next()).await.is_err(), "a message of another subject");
    }
    drop(two);
    publish(bus, &subject, text(1)).await;
    assert_eq!(next(&mut one).await, text(1), "another listener's end changes nothing");
}

/// At most once: nobody listening is no failure.
pub async fn publishing_needs_no_listener(bus: &dyn Bus, fresh: &Fresh) {
    publish(bus, &format!("evt.user.{}", fresh.number()), text(0)).await;
}

/// Giving up on `next` and asking again skips no message.
pub async fn a_cancelled_wait_loses_nothing(bus: &dyn Bus, fresh: &Fresh) {
    let subject = format!("evt.user.{}", fresh.number());
    let mut listener = subscribe(bus, &subject).await;
    for n in 0..20 {
        assert!(timeout(Duration::ZERO, listener.next()).await.is_err(), "nothing was sent yet");
        publish(bus, &subject, text(n)).await;
        assert_eq!(next(&mut listener).await, text(n));
    }
}

async fn serve(bus: &dyn Bus, subject: &str, group: &str) -> Box<dyn Requests> {
    bus.serve(subject, group).await.expect("serve")
}

async fn next_request(requests: &mut Box<dyn Requests>) -> Bytes {
    let request = timeout(PATIENCE, requests.next()).await.expect("a request in time").expect("the bus is there");
    assert_eq!(request.reply, None, "nobody waits for an answer to what was published");
    request.payload
}

/// Every request, no request twice.
pub async fn each_request_goes_to_one_of_a_group(bus: &dyn Bus, fresh: &Fresh) {
    let subject = format!("order.paid.{}", fresh.number());
    let mut members = [serve(bus, &subject, "workers").await, serve(bus, &subject, "workers").await, serve(bus, &subject, "workers").await];
    for n in 0..60 {
        publish(bus, &subject, text(n)).await;
    }
    let mut heard = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while heard.len() < 60 {
        assert!(Instant::now() < deadline, "{} of 60 requests within {PATIENCE:?}", heard.len());
        for member in &mut members {
            while let Ok(Some(request)) = timeout(Duration::from_millis(10), member.next()).await {
                heard.push(request.payload);
            }
        }
    }
    heard.sort_unstable();
    let mut want: Vec<_> = (0..60).map(text).collect();
    want.sort_unstable();
    assert_eq!(heard, want);
    for member in &mut members {
        assert!(timeout(QUIET, member.next()).await.is_err(), "a request twice");
    }
}

/// Two groups hear everything each, and so does a plain listener.
pub async fn groups_and_listeners_hear_a_subject_apart(bus: &dyn Bus, fresh: &Fresh) {
    let subject = format!("order.paid.{}", fresh.number());
    let (mut one, mut two) = (serve(bus, &subject, "one").await, serve(bus, &subject, "two").await);
    let mut listener = subscribe(bus, &subject).await;
    let mut elsewhere = serve(bus, &format!("order.paid.{}", fresh.number()), "one").await;
    for n in 0..10 {
        publish(bus, &subject, text(n)).await;
    }
    for n in 0..10 {
        assert_eq!([next_request(&mut one).await, next_request(&mut two).await], [text(n), text(n)]);
        assert_eq!(next(&mut listener).await, text(n));
    }
    assert!(timeout(QUIET, elsewhere.next()).await.is_err(), "a request of another subject");
}

/// What is published after it left goes to the others.
pub async fn a_group_serves_on_when_a_member_leaves(bus: &dyn Bus, fresh: &Fresh) {
    let subject = format!("order.paid.{}", fresh.number());
    let (leaving, mut staying) = (serve(bus, &subject, "workers").await, serve(bus, &subject, "workers").await);
    drop(leaving);
    // A service may hear a moment later that it left, and a request in between is lost, as the port says.
    let mut sent = 0;
    let deadline = Instant::now() + PATIENCE;
    let first = loop {
        assert!(Instant::now() < deadline, "no request within {PATIENCE:?}");
        publish(bus, &subject, text(sent)).await;
        sent += 1;
        if let Ok(request) = timeout(QUIET, staying.next()).await {
            break request.expect("the bus is there").payload;
        }
    };
    assert_eq!(first, text(sent - 1));
    for n in sent..sent + 20 {
        publish(bus, &subject, text(n)).await;
        assert_eq!(next_request(&mut staying).await, text(n));
    }
}

/// Giving up on `next` and asking again skips no request.
pub async fn a_cancelled_wait_loses_no_request(bus: &dyn Bus, fresh: &Fresh) {
    let subject = format!("order.paid.{}", fresh.number());
    let mut requests = serve(bus, &subject, "workers").await;
    for n in 0..20 {
        assert!(timeout(Duration::ZERO, requests.next()).await.is_err(), "nothing was sent yet");
        publish(bus, &subject, text(n)).await;
        assert_eq!(next_request(&mut requests).await, text(n));
    }
}

/// Whatever the shop, and also what was queued before anybody came.
pub async fn a_partition_is_first_in_first_out(bus: &dyn Bus, fresh: &Fresh) {
    let partition = fresh.partition();
    for n in 0..5 {
        enqueue(bus, fresh, partition, text(n)).await;
    }
    let mut inbox = open(bus, fresh, partition).await;
    for n in 5..50 {
        enqueue(bus, fresh, partition, text(n)).await;
    }
    let all = fetch(&mut inbox, 50).await;
    assert_eq!(payloads(&all), (0..50).map(text).collect::<Vec<_>>());
    acknowledge(&mut inbox, &all).await;
    assert_quiet(&mut inbox, "everything was fetched").await;
}

/// One partition's messages never appear in another.
pub async fn partitions_know_nothing_of_each_other(bus: &dyn Bus, fresh: &Fresh) {
    let (here, there) = (fresh.partition(), fresh.partition());
    let (mut here_inbox, mut there_inbox) = (open(bus, fresh, here).await, open(bus, fresh, there).await);
    enqueue(bus, fresh, here, text(1)).await;
    enqueue(bus, fresh, there, text(2)).await;
    for (inbox, want) in [(&mut here_inbox, text(1)), (&mut there_inbox, text(2))] {
        let all = fetch(inbox, 1).await;
        assert_eq!(payloads(&all), [want]);
        acknowledge(inbox, &all).await;
    }
    assert_quiet(&mut here_inbox, "the other partition's message").await;
}

/// A waiting fetch ends with the first message instead of waiting for `max`.
pub async fn a_fetch_waits_for_the_first_message_only(bus: &Arc<dyn Bus>, fresh: &Fresh) {
    let partition = fresh.partition();
    let mut inbox = open(&**bus, fresh, partition).await;
    let waiter = tokio::spawn(async move {
        let fetched = inbox.fetch(100, PATIENCE).await.expect("fetch");
        (inbox, fetched)
    });
    let before = Instant::now();
    enqueue(&**bus, fresh, partition, text(1)).await;
    let (mut inbox, fetched) = waiter.await.expect("waiter");
    assert_eq!(payloads(&fetched), [text(1)]);
    assert!(before.elapsed() < PATIENCE / 2, "waited for more than the first message");
    acknowledge(&mut inbox, &fetched).await;
}

/// Nothing there is no failure, and not the end.
pub async fn an_empty_fetch_ends_in_time(bus: &dyn Bus, fresh: &Fresh) {
    let partition = fresh.partition();
    let mut inbox = open(bus, fresh, partition).await;
    for wait in [Duration::from_millis(1), QUIET] {
        let fetched = timeout(PATIENCE, inbox.fetch(10, wait)).await.expect("a fetch ends").expect("fetch");
        assert!(fetched.is_empty());
    }
    enqueue(bus, fresh, partition, text(1)).await;
    let fetched = fetch(&mut inbox, 1).await;
    acknowledge(&mut inbox, &fetched).await;
}

/// Not to the inbox that has them already; oldest first and before anything newer to the next.
pub async fn unacknowledged_messages_come_again_to_a_later_inbox_only(bus: &dyn Bus, fresh: &Fresh) {
    let partition = fresh.partition();
    let mut first = open(bus, fresh, partition).await;
    for n in 0..6 {
        enqueue(bus, fresh, partition, text(n)).await;
    }
    let held = fetch(&mut first, 4).await;
    acknowledge(&mut first, &held[1..2]).await;
    let more = fetch(&mut first, 2).await;
    assert_eq!(payloads(&more), [text(4), text(5)], "fetched ones stay with the inbox");
    assert_quiet(&mut first, "fetched and not acknowledged").await;
    acknowledge(&mut first, &more[..1]).await;
    enqueue(bus, fresh, partition, text(6)).await;

    let mut second = open(bus, fresh, partition).await;
    let again = fetch(&mut second, 5).await;
    assert_eq!(payloads(&again), [0, 2, 3, 5, 6].map(text), "what is unacknowledged, oldest first, then the new one");
    acknowledge(&mut second, &again).await;

    let mut third = open(bus, fresh, partition).await;
    assert_quiet(&mut third, "acknowledged messages do not come again").await;
}

/// Under a higher token the older inbox yields nothing more, whatever arrives.
pub async fn a_takeover_silences_the_former_inbox(bus: &dyn Bus, fresh: &Fresh) {
    let partition = fresh.partition();
    let mut former = open(bus, fresh, partition).await;
    enqueue(bus, fresh, partition, text(1)).await;
    assert_eq!(payloads(&fetch(&mut former, 1).await), [text(1)]);
    let mut heir = open(bus, fresh, partition).await;
    enqueue(bus, fresh, partition, text(2)).await;
    match former.fetch(10, QUIET).await {
        Ok(fetched) => assert!(fetched.is_empty(), "a superseded inbox got {:?}", payloads(&fetched)),
        Err(error) => assert_eq!(error.kind, PortErrorKind::Fenced, "a superseded inbox may only say that it is fenced"),
    }
    let all = fetch(&mut heir, 2).await;
    assert_eq!(payloads(&all), [text(1), text(2)]);
    acknowledge(&mut heir, &all).await;
}

/// Over all partitions, and what is under way with it.
pub async fn what_a_shop_has_queued_is_counted_until_it_is_acknowledged(bus: &dyn Bus, fresh: &Fresh) {
    let (shop, other, partitions) = (fresh.shop(), fresh.shop(), [fresh.partition(), fresh.partition()]);
    let queued = async |shop| bus.queued(shop).await.expect("queued");
    assert_eq!(queued(shop).await, 0);
    for n in 0..6 {
        bus.enqueue(partitions[n % 2], shop, text(n)).await.expect("enqueue");
    }
    bus.enqueue(partitions[0], other, text(9)).await.expect("enqueue");
    assert_eq!((queued(shop).await, queued(other).await), (6, 1));
    let mut inbox = open(bus, fresh, partitions[1]).await;
    let taken = fetch(&mut inbox, 3).await;
    assert_eq!(queued(shop).await, 6, "they are under way");
    acknowledge(&mut inbox, &taken).await;
    assert_eq!((queued(shop).await, queued(other).await), (3, 1));
    let mut inbox = open(bus, fresh, partitions[0]).await;
    let taken = fetch(&mut inbox, 4).await;
    acknowledge(&mut inbox, &taken).await;
    assert_eq!((queued(shop).await, queued(other).await), (0, 0));
}
