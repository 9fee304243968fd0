//! The connection of a client without a WebSocket: its frames leave as server-sent events, and it hears nothing but requests.
//!
//! The same loop and the same state machine drive it as a socket, over another wire. The id of an event says what the client has
//! once it has that event; with the id of the last one a stream goes on where another ended, as `resume` does on a socket. What
//! never happens here: a rule of the chat, or knowing pingora (`edge::streaming` writes what is made here).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use gateway_core::chat::code::CloseCode;
use gateway_core::chat::frame::Text;
use gateway_core::request::RequestHead;
use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::fallback::positions::Positions;
use crate::fallback::{Caller, field, party};
use crate::routes::outcome::Failure;
use crate::socket::chat::{self, Opening};
use crate::socket::dialect::Dialect;
use crate::socket::wire::{Turn, Wire};

/// Bytes made and not handed on, from which on no more frames are taken; what waits longer waits in the connection.
const WAITING_MAX: usize = 32 * 1024;

/// How long a stream may take to say why it ends.
const GOODBYE: Duration = Duration::from_secs(1);

/// Opens a stream: the parts of its body, which ends when the connection does.
pub(crate) async fn open(caller: Caller<'_>) -> Result<Receiver<Bytes>, Failure> {
    let Caller { node, head, principal, policies } = caller;
    party(&principal)?;
    if node.drain.started() {
        return Err(Failure::Draining);
    }
    let positions = claimed(head)?;
    let opening = Opening::prepare(node, head, principal, policies).await?;
    // One part waits, one is being written.
    let (sender, parts) = mpsc::channel(1);
    let retry = node.switchboard.gate.come_back(node.sockets.open()).0;
    let node = node.clone();
    tokio::spawn(async move {
        chat::run(node, opening, EventStream::new(sender, positions, retry), Dialect::Json).await;
    });
    Ok(parts)
}

/// What the client says it has: by the field that browsers send when they come back, or by the query.
fn claimed(head: &RequestHead) -> Result<Positions, Failure> {
    let in_query = || field(head.query.as_deref().unwrap_or_default(), "lastEventId").map(|id| id.replace("%2C", ",").replace("%40", "@"));
    let id = head.header("last-event-id").map(str::to_owned).or_else(in_query).unwrap_or_default();
    Positions::parse(&id).ok_or_else(|| Failure::BadRequest("the last event's id is none of this service, as 9001.1.42,@me.7 is".into()))
}

/// Waits for a place in the response.
type Reserving = Pin<Box<dyn Future<Output = Option<OwnedPermit<Bytes>>> + Send>>;

/// A stream of events as a wire.
struct EventStream {
    /// What the client wants replayed, until the connection has heard of it.
    resume: Option<String>,
    positions: Positions,
    waiting: BytesMut,
    /// Since when something waits.
    since: Option<Instant>,
    sender: Sender<Bytes>,
    /// A place for the next part, while one is waited for.
    place: Option<Reserving>,
    /// Ends when nobody reads the parts any more.
    deserted: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// A beat waits to be handed on; one was, and with it everything before it.
    beat: bool,
    alive: bool,
}

impl EventStream {
    fn new(sender: Sender<Bytes>, positions: Positions, retry: Duration) -> Self {
        let mut waiting = BytesMut::new();
        waiting.put_slice(format!("retry: {}\n\n", retry.as_millis()).as_bytes());
        let reader = sender.clone();
        Self {
            resume: positions.resume().map(|frame| frame.to_string()),
            positions,
            waiting,
            since: Some(Instant::now()),
            sender,
            place: None,
            deserted: Box::pin(async move { reader.closed().await }),
            beat: false,
            alive: false,
        }
    }

    fn add(&mut self, text: &str) {
        self.waiting.put_slice(text.as_bytes());
        self.since.get_or_insert_with(Instant::now);
    }

    /// Hands on what waits. Ready once it is.
    fn poll_hand_on(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        let Self { sender, place, .. } = self;
        let place = place.get_or_insert_with(|| {
            let sender = sender.clone();
            Box::pin(async move { sender.reserve_owned().await.ok() })
        });
        let Poll::Ready(permit) = place.as_mut().poll(cx) else { return Poll::Pending };
        self.place = None;
        self.since = None;
        Poll::Ready(match permit {
            Some(permit) => {
                permit.send(self.waiting.split().freeze());
                self.alive = std::mem::take(&mut self.beat);
                Turn::Written
            }
            None => Turn::Over,
        })
    }
}

impl Wire for EventStream {
    fn poll_turn(&mut self, listen: bool, cx: &mut Context<'_>) -> Poll<Turn> {
        if self.deserted.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Turn::Over);
        }
        // Its place was free, so the part before it was written: all that a client shows who only reads.
        if std::mem::take(&mut self.alive) {
            return Poll::Ready(Turn::Alive);
        }
        if listen && let Some(resume) = self.resume.take() {
            return Poll::Ready(Turn::Text(Utf8Bytes::from(resume)));
        }
        if self.waiting.is_empty() { Poll::Pending } else { self.poll_hand_on(cx) }
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    fn write(&mut self, frame: Text) {
        let mut moved = false;
        for line in frame.as_str().lines() {
            moved |= self.positions.follow(line);
            self.add(&format!("data: {line}\n"));
        }
        if moved {
            let id = self.positions.encode();
            self.add(&format!("id: {id}\n"));
        }
        self.add("\n");
    }

    fn ping(&mut self) {
        self.beat = true;
        self.add(": beat\n\n");
    }

    fn stuck_since(&self) -> Option<Instant> {
        self.since
    }

    async fn close(mut self, code: Option<CloseCode>) {
        if let Some(code) = code {
            self.add(&format!("event: close\ndata: {{\"code\":{},\"reason\":\"{}\"}}\n\n", code.number(), code.reason()));
            let part = self.waiting.split().freeze();
            let _ = timeout(GOODBYE, self.sender.send(part)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const HELLO: &str = r#"{"type":"hello","sessions":[{"sessionId":"9001","epoch":"1","maxSeq":7}]}"#;

    fn stream(id: &str) -> (EventStream, Receiver<Bytes>) {
        let (sender, parts) = mpsc::channel(1);
        (EventStream::new(sender, Positions::parse(id).unwrap(), Duration::from_secs(2)), parts)
    }

    async fn turn(stream: &mut EventStream) -> Turn {
        poll_fn(|cx| stream.poll_turn(true, cx)).await
    }

    fn text(part: Option<Bytes>) -> String {
        String::from_utf8(part.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn frames_become_events_whose_id_is_what_the_client_has() {
        let (mut stream, mut parts) = stream("");
        stream.write(HELLO.to_owned().into());
        stream.write(r#"{"type":"typing","sessionId":"9001","by":"agent:7"}"#.to_owned().into());
        assert!(matches!(turn(&mut stream).await, Turn::Written));
        let typing = r#"data: {"type":"typing","sessionId":"9001","by":"agent:7"}"#;
        assert_eq!(text(parts.recv().await), format!("retry: 2000\n\ndata: {HELLO}\nid: 9001.1.7\n\n{typing}\n\n"));
    }

    #[tokio::test]
    async fn a_stream_that_goes_on_asks_for_what_it_missed_first() {
        let (mut stream, _parts) = stream("9001.1.5,@me.3");
        let Turn::Text(text) = turn(&mut stream).await else { panic!("nothing is asked for") };
        let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(frame["type"], "resume");
        assert_eq!(frame["positions"][0], serde_json::json!({ "sessionId": "9001", "epoch": "1", "lastSeq": 5 }));
        assert_eq!(frame["positions"][1], serde_json::json!({ "sessionId": "@me", "lastSeq": 3 }));
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_holds_a_bounded_number_of_bytes() {
        let (mut stream, mut parts) = stream("");
        assert!(matches!(turn(&mut stream).await, Turn::Written));
        let frame: Text = format!(r#"{{"type":"text","content":"{}"}}"#, "x".repeat(4_096)).into();
        while stream.has_room() {
            stream.write(frame.clone());
        }
        assert!(stream.waiting.len() < WAITING_MAX + 2 * 4_096, "{}", stream.waiting.len());
        let pending = poll_fn(|cx| Poll::Ready(stream.poll_turn(true, cx).is_pending())).await;
        assert!(pending && stream.stuck_since().is_some(), "its age is counted");
        parts.recv().await.unwrap();
        assert!(matches!(turn(&mut stream).await, Turn::Written));
        assert!(stream.has_room() && stream.stuck_since().is_none());
    }

    #[tokio::test]
    async fn a_beat_that_left_is_a_sign_of_life_and_a_reader_that_left_is_the_end() {
        let (mut stream, mut parts) = stream("");
        stream.ping();
        assert!(matches!(turn(&mut stream).await, Turn::Written));
        assert!(matches!(turn(&mut stream).await, Turn::Alive));
        assert!(text(parts.recv().await).ends_with(": beat\n\n"));
        drop(parts);
        assert!(matches!(turn(&mut stream).await, Turn::Over));
    }

    #[tokio::test]
    async fn it_says_why_it_ends() {
        let (mut stream, mut parts) = stream("");
        assert!(matches!(turn(&mut stream).await, Turn::Written));
        parts.recv().await.unwrap();
        stream.close(Some(CloseCode::Migrate)).await;
        let said = text(parts.recv().await);
        assert!(said.starts_with("event: close\ndata: {\"code\":4001,"), "{said}");
        assert_eq!(parts.recv().await, None);
    }
}
