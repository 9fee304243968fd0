//! What fuzzing holds to be true, one function a kind of input: it returns, or it panics and has found something.
//!
//! What never happens here: making inputs up. Called by libFuzzer through `fuzz_targets`, and on stable toolchains by
//! `gateway/testkit/tests/fuzz.rs`, which includes this file.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use gateway_core::chat::Party;
use gateway_core::chat::connection::{ConnId, Connection, ConnectionLimits, Output, Start};
use gateway_core::chat::frame::{ClientFrame, FrameLimits};
use gateway_core::chat::handshake::{self, CHAT_JSON, Speaks};
use gateway_core::chat::stomp::{Command, Decoder, Frame, FrameFault, Stomp, StompLimits, Version};
use gateway_core::id::PrincipalId;
use gateway_core::origin::Origin;
use gateway_core::principal::{Principal, Role};
use gateway_core::request::RequestHead;
use gateway_core::time::UnixMillis;

/// Any bytes as a text frame: they are a frame, or an error frame that encodes, the same one every time; and a connection that
/// gets them answers with nothing but frames.
pub fn frame(input: &[u8]) {
    // The WebSocket layer hands nothing on that is not UTF-8.
    let Ok(text) = std::str::from_utf8(input) else { return };
    let parsed = ClientFrame::parse(text, &FrameLimits::default());
    assert_eq!(parsed, ClientFrame::parse(text, &FrameLimits::default()));
    if let Err(fault) = &parsed {
        object(&fault.0.encode());
    }
    for batch in [false, true] {
        converse(text, batch);
    }
}

/// Says `text` to a new connection, twice, for what it says the first time changes what the second meets.
fn converse(text: &str, batch: bool) {
    let now = UnixMillis(1_780_300_000_000);
    let mut connection = Connection::new(start(batch), ConnectionLimits::default(), now);
    for _ in 0..2 {
        connection.handle_text(text, now);
        while let Some(output) = connection.poll_output() {
            if let Output::Write(text) = output {
                text.as_str().split('\n').for_each(object);
            }
        }
    }
}

fn start(batch: bool) -> Start {
    let id = PrincipalId::parse("88").expect("an id");
    Start {
        party: Party::user(id.clone()),
        principal: Principal { id, role: Role::User, shop: None, scopes: Vec::new(), expires_at: UnixMillis(u64::MAX), token_id: None },
        conn_id: ConnId::parse("c1").expect("a name"),
        sessions: Vec::new(),
        resume: None,
        notices: None,
        device: None,
        frame_key: None,
        state: None,
        batch,
    }
}

/// One JSON object with a type, and nothing else.
fn object(text: &str) {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    assert!(value["type"].is_string(), "{text}");
}

/// Any bytes as STOMP: in one piece and in single characters they are the same frames, which are read again as they are written;
/// and a conversation in which they are said answers with frames that servers send, and with nothing once it has ended.
pub fn stomp(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    for version in Version::ALL {
        let whole = decode(std::iter::once(text), version);
        let mut buffer = [0; 4];
        assert_eq!(decode_characters(text, version, &mut buffer), whole);
        for frame in whole.0 {
            let again = decode(std::iter::once(frame.encode(version).as_str()), version);
            if version == Version::V12 {
                assert_eq!(again, (vec![frame], None));
            }
        }
    }
    for greeting in ["", "CONNECT\naccept-version:1.2\nheart-beat:1,1\n\n\0", "CONNECT\naccept-version:1.0\n\n\0"] {
        talk(greeting, text);
    }
}

fn decode_characters(text: &str, version: Version, buffer: &mut [u8; 4]) -> (Vec<Frame>, Option<FrameFault>) {
    let mut decoder = Decoder::new(StompLimits::default());
    let mut frames = Vec::new();
    for character in text.chars() {
        decoder.feed(character.encode_utf8(buffer));
        if let Some(fault) = drain(&mut decoder, version, &mut frames) {
            return (frames, Some(fault));
        }
    }
    (frames, None)
}

fn decode<'a>(parts: impl Iterator<Item = &'a str>, version: Version) -> (Vec<Frame>, Option<FrameFault>) {
    let mut decoder = Decoder::new(StompLimits::default());
    let mut frames = Vec::new();
    for part in parts {
        decoder.feed(part);
        if let Some(fault) = drain(&mut decoder, version, &mut frames) {
            return (frames, Some(fault));
        }
    }
    (frames, None)
}

fn drain(decoder: &mut Decoder, version: Version, frames: &mut Vec<Frame>) -> Option<FrameFault> {
    loop {
        match decoder.next_frame(Some(version)) {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return None,
            Err(fault) => return Some(fault),
        }
    }
}

/// A client that says `greeting` and `text`, and a connection whose stores never answer.
fn talk(greeting: &str, text: &str) {
    let mut now = UnixMillis(1_780_300_000_000);
    let start = start(false);
    let mut stomp = Stomp::new(start.party.clone(), start.conn_id.clone(), StompLimits::default(), now);
    let mut connection = Connection::new(start, ConnectionLimits::default(), now);
    for said in [greeting, text, "\n", text] {
        stomp.handle_text(said, now);
        for _ in 0..4 {
            while let Some(request) = stomp.poll_request() {
                object(&request);
                connection.handle_text(&request, now);
            }
            while let Some(output) = connection.poll_output() {
                if let Output::Write(frame) = output {
                    stomp.handle_frame(frame.as_str(), now);
                }
            }
            now = stomp.poll_timeout().map_or(now, |due| due.max(now));
            stomp.handle_timeout(now);
        }
        let mut ended = false;
        while let Some(write) = stomp.poll_write() {
            assert!(!ended, "something is said after ERROR");
            // A heart-beat, or a frame; which version reads it does not matter here.
            let (frames, _) = decode(std::iter::once(write.as_str()), Version::V10);
            assert!(frames.len() == 1 || write.as_str() == "\n", "{write:?}");
            for frame in frames {
                let servers = [Command::Connected, Command::Message, Command::Receipt, Command::Error];
                assert!(servers.contains(&frame.command), "{frame:?}");
                ended |= frame.command == Command::Error;
            }
        }
        assert!(!ended || stomp.closes_with().is_some());
    }
}

/// Any bytes as the fields of a handshake, a line each behind a line with the query: it is refused, or it has a key of sixteen
/// bytes, and what is spoken is what was offered.
pub fn handshake(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut lines = text.lines();
    let query = lines.next().filter(|query| !query.is_empty()).map(str::to_owned);
    let fields = lines.filter_map(|line| line.split_once(':'));
    let headers: Vec<_> = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let head = RequestHead {
        method: "GET".into(),
        path: "/ws/chat".into(),
        query,
        host: "shop.test".into(),
        headers,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        trace_id: String::new(),
        route: Arc::from("chat.socket"),
    };
    let allowed = [Origin::parse("https://shop.example").expect("an origin")];
    for origins in [&[][..], &allowed] {
        let Ok(agreed) = handshake::check(&head, Some("shop.test"), origins) else { continue };
        assert_eq!(agreed.key.len(), 24);
        let origin = head.header("origin").map(str::to_ascii_lowercase);
        assert!(origin.is_none_or(|origin| origin.contains("shop.")), "another page");
        let offers = head.headers.iter().filter(|(name, _)| name == "sec-websocket-protocol");
        let mut offers = offers.flat_map(|(_, list)| list.split(',')).map(str::trim);
        assert!(agreed.protocol.is_none_or(|chosen| offers.any(|offer| offer == chosen)), "nobody offered it");
        match agreed.speaks {
            Speaks::Json => assert!(matches!(agreed.protocol, None | Some(CHAT_JSON))),
            Speaks::Stomp => assert_ne!(agreed.protocol, Some(CHAT_JSON)),
        }
    }
}
