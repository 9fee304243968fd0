//! What frames must prove: signatures, timestamps, nonces; and several frames in one text.

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};

use super::*;
use crate::config::{FrameGuard, Signature};

const KEY: [u8; 32] = [7; 32];

fn guarded(required: bool, signature: Signature) -> Rig {
    let guard = FrameGuard { required, skew: Duration::from_secs(300), signature };
    let frame_key = (signature != Signature::Off).then_some(KEY);
    Rig::of(Start { frame_key, ..start(vec![record(S, 50)]) }, ConnectionLimits { guard, ..ConnectionLimits::default() })
}

fn signed(key: &[u8; 32], body: &Value) -> Value {
    let body = body.to_string();
    let mac = Hmac::<sha2::Sha256>::new_from_slice(key).unwrap().chain_update(&body).finalize().into_bytes();
    json!({"type": "signed", "mac": BASE64URL_NOPAD.encode(&mac), "body": body})
}

fn ping(timestamp: u64, nonce: &str) -> Value {
    json!({"type": "ping", "reqId": nonce, "timestamp": timestamp, "nonce": nonce})
}

#[test]
fn a_timestamp_far_from_our_clock_is_stale() {
    let mut rig = guarded(false, Signature::Off);
    let now = START.0;
    for (timestamp, answer) in [
        (now - 300_000, "pong"),
        (now + 300_000, "pong"),
        (now - 300_001, "error STALE_TIMESTAMP"),
        (now + 300_001, "error STALE_TIMESTAMP"),
        (u64::MAX, "error STALE_TIMESTAMP"),
        (0, "error STALE_TIMESTAMP"),
    ] {
        rig.text(&json!({"type": "ping", "timestamp": timestamp}));
        assert_eq!(rig.short(), [answer], "{timestamp}");
    }
}

#[test]
fn a_frame_that_comes_twice_is_served_once() {
    let mut rig = guarded(false, Signature::Off);
    let send =
        json!({"type": "text", "sessionId": "9001", "content": "x", "clientMsgId": "m1", "timestamp": START.0, "nonce": "n", "reqId": 1});
    rig.text(&send);
    assert_eq!(rig.drain(), [Output::UseNonce { nonce: "n".into(), timestamp: START }]);
    rig.connection.handle_nonce(true, rig.now);
    assert_eq!(rig.short(), ["enqueue 9001 m1"]);
    rig.text(&send);
    rig.drain();
    rig.connection.handle_nonce(false, rig.now);
    let frames = rig.frames();
    assert_eq!((&frames[0]["code"], &frames[0]["clientMsgId"], &frames[0]["reqId"]), (&json!("REPLAYED_NONCE"), &json!("m1"), &json!(1)));
}

#[test]
fn later_frames_wait_behind_a_nonce_in_their_order() {
    let mut rig = guarded(false, Signature::Off);
    rig.text(&ping(START.0, "a"));
    rig.text(&json!({"type": "ping", "reqId": "b"}));
    rig.text(&ping(START.0, "c"));
    rig.text(&json!({"type": "ping", "reqId": "d"}));
    assert_eq!(rig.short(), ["nonce a", "nonce c"]);
    rig.connection.handle_nonce(true, rig.now);
    let pongs = |rig: &mut Rig| rig.frames().iter().map(|pong| pong["reqId"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(pongs(&mut rig), ["a", "b"]);
    rig.connection.handle_nonce(false, rig.now);
    assert_eq!(pongs(&mut rig), ["c", "d"]);
}

#[test]
fn a_store_of_nonces_that_does_not_answer_stops_the_reading_of_frames() {
    let mut rig = guarded(false, Signature::Off);
    for n in 0..256 {
        assert!(!rig.connection.is_congested(), "{n}");
        rig.text(&ping(START.0, &format!("n{n}")));
    }
    assert!(rig.connection.is_congested());
    rig.event(live(51));
    assert!(rig.short().ends_with(&["text a51 1 51".to_owned()]), "messages still reach the client");
    rig.connection.handle_nonce(true, rig.now);
    assert!(!rig.connection.is_congested());
    for n in 256..6_000 {
        rig.text(&ping(START.0, &format!("n{n}")));
    }
    assert_eq!(rig.short(), ["close 4029"], "a shell that reads on all the same");
}

#[test]
fn a_deployment_may_demand_both() {
    let mut rig = guarded(true, Signature::Off);
    for (frame, message) in [
        (json!({"type": "typing", "sessionId": "9001"}), "timestamp and nonce are required"),
        (json!({"type": "typing", "sessionId": "9001", "timestamp": START.0}), "timestamp and nonce are required"),
        (json!({"type": "typing", "sessionId": "9001", "nonce": "n"}), "nonce needs a timestamp"),
    ] {
        rig.text(&frame);
        let frames = rig.frames();
        assert_eq!((&frames[0]["code"], &frames[0]["message"]), (&json!("BAD_REQUEST"), &json!(message)));
    }
    let mut rig = guarded(false, Signature::Off);
    rig.text(&json!({"type": "ping", "nonce": "n"}));
    assert_eq!(rig.short(), ["error BAD_REQUEST"], "a nonce alone cannot be remembered for ever");
}

#[test]
fn a_signed_frame_is_served_and_its_guard_is_inside() {
    for signature in [Signature::Offered, Signature::Required] {
        let mut rig = guarded(false, signature);
        rig.text(&signed(&KEY, &json!({"type": "ack", "sessionId": "9001", "lastSeq": 42})));
        assert_eq!(rig.short(), ["mark 42"]);
        rig.text(&signed(&KEY, &ping(START.0, "n")));
        assert_eq!(rig.short(), ["nonce n"]);
        rig.connection.handle_nonce(true, rig.now);
        assert_eq!(rig.frames(), [json!({"type": "pong", "reqId": "n"})]);
        rig.text(&signed(&KEY, &json!({"type": "ping", "timestamp": 1})));
        assert_eq!(rig.short(), ["error STALE_TIMESTAMP"]);
        rig.text(&signed(&KEY, &json!({"type": "nonsense"})));
        assert_eq!(rig.short(), ["error UNKNOWN_TYPE"]);
    }
}

#[test]
fn a_signature_that_does_not_fit_is_refused() {
    let mut rig = guarded(false, Signature::Offered);
    let body = json!({"type": "ack", "sessionId": "9001", "lastSeq": 42});
    let good = signed(&KEY, &body);
    let with = |name: &str, value: Value| {
        let mut frame = good.clone();
        frame[name] = value;
        frame
    };
    let mac = good["mac"].as_str().unwrap();
    for (frame, code) in [
        (signed(&[8; 32], &body), "FORBIDDEN"),
        (with("body", json!(body.to_string() + " ")), "FORBIDDEN"),
        (with("mac", json!("")), "FORBIDDEN"),
        (with("mac", json!(&mac[..42])), "BAD_REQUEST"),
        (with("mac", json!(format!("{mac}AAAA"))), "FORBIDDEN"),
        (with("mac", json!("*")), "BAD_REQUEST"),
        (with("mac", json!(7)), "BAD_REQUEST"),
        (with("body", json!(7)), "BAD_REQUEST"),
        (signed(&KEY, &good), "BAD_REQUEST"),
    ] {
        rig.text(&frame);
        assert_eq!(rig.short(), [format!("error {code}")], "{frame}");
    }
    rig.text(&body);
    assert_eq!(rig.short(), ["mark 42"], "signing is offered, not demanded");
}

#[test]
fn where_signatures_are_demanded_only_a_ping_goes_without() {
    let mut rig = guarded(false, Signature::Required);
    rig.text(&json!({"type": "ping"}));
    rig.text(&json!({"type": "text", "sessionId": "9001", "content": "x", "clientMsgId": "m1"}));
    assert_eq!(rig.short(), ["pong", "error FORBIDDEN m1"]);

    let mut rig = guarded(false, Signature::Off);
    rig.text(&signed(&KEY, &json!({"type": "ping"})));
    assert_eq!(rig.short(), ["error UNKNOWN_TYPE"]);
}

#[test]
fn frames_come_and_go_together_where_a_client_asks_for_it() {
    let limits = ConnectionLimits::default();
    let mut rig = Rig::of(Start { batch: true, ..start(vec![record(S, 50)]) }, limits);
    rig.connection.handle_text("{\"type\":\"ping\",\"reqId\":1}\n{\"type\":\"ping\",\"reqId\":2}\n", rig.now);
    let outputs = rig.drain();
    assert_eq!(outputs, [Output::Write(String::from("{\"type\":\"pong\",\"reqId\":1}\n{\"type\":\"pong\",\"reqId\":2}").into())]);
    rig.connection.handle_text("{\"type\":\"ping\"}", rig.now);
    assert_eq!(rig.short(), ["pong"]);
    rig.connection.handle_text("\n\n", rig.now);
    assert_eq!(rig.drain().len(), 1, "two faults in one text");

    for seq in 51..=55 {
        rig.event(stored(MessageRecord { content: "x".repeat(30_000), ..row(S, seq, "a1", &format!("a{seq}")) }, false, "other"));
    }
    let texts = rig.drain();
    assert_eq!(texts.len(), 3, "two fit into a text");
    for text in &texts {
        assert!(matches!(text, Output::Write(text) if text.len() <= limits.frame.bytes_max));
    }
    assert_eq!(rig.connection.outbox.bytes(), 0);

    let mut rig = Rig::at(50);
    rig.connection.handle_text("{\"type\":\"ping\"}\n{\"type\":\"ping\"}", rig.now);
    assert_eq!(rig.short(), ["error BAD_JSON"], "nobody asked for it");
}
