//! Cursors: what is read, what has arrived, on which device.

use super::*;

#[test]
fn acks_never_move_back_and_are_no_error() {
    let mut rig = Rig::at(50);
    let ack = |seq: u64| json!({"type": "ack", "sessionId": "9001", "lastSeq": seq});
    rig.text(&ack(42));
    rig.text(&ack(40));
    rig.text(&ack(45));
    assert_eq!(rig.short(), ["mark 42"], "one mark at a time");
    rig.marked(42, MarkOutcome::At { seq: 42, unread: 8 });
    assert_eq!(rig.short(), ["publish evt.user.alice read 42", "publish evt.agent.1.a1 read 42", "mark 45"]);
    rig.marked(45, MarkOutcome::At { seq: 45, unread: 5 });
    rig.drain();
    rig.text(&ack(40));
    rig.text(&ack(45));
    assert!(rig.short().is_empty());
    rig.event(Event::Read { session: S, by: Side::User, reader: id("alice"), seq: 48, unread: 2 });
    assert_eq!(rig.short(), ["read 48"]);
    rig.text(&ack(47));
    assert!(rig.short().is_empty(), "another device has read further");
}

#[test]
fn an_ack_beyond_the_end_is_the_ledgers_to_judge() {
    let mut rig = Rig::at(50);
    rig.text(&json!({"type": "ack", "reqId": 9, "sessionId": "9001", "lastSeq": 51}));
    assert_eq!(rig.short(), ["mark 51"]);
    rig.marked(51, MarkOutcome::OutOfRange);
    let frames = rig.frames();
    assert_eq!((&frames[0]["code"], &frames[0]["reqId"]), (&json!("ACK_OUT_OF_RANGE"), &json!(9)));
    rig.text(&json!({"type": "ack", "sessionId": "9001", "lastSeq": 50}));
    assert_eq!(rig.short(), ["mark 50"], "the cursor is unchanged");
    for bad in [json!(-1), json!(1.5), json!("42"), json!(null), json!(9_007_199_254_740_992_u64)] {
        rig.text(&json!({"type": "ack", "sessionId": "9001", "lastSeq": bad}));
        assert_eq!(rig.short(), ["error BAD_REQUEST"]);
    }
}

#[test]
fn arrivals_are_marked_like_reading_and_told_to_the_other_side() {
    let mut rig = Rig::at(50);
    for seq in [41, 42, 45, 43] {
        rig.text(&json!({"type": "recv", "sessionId": "9001", "lastSeq": seq}));
    }
    assert_eq!(rig.short(), ["arrived 41"], "one mark at a time");
    rig.marked_on(None, Cursor::Received, 41, MarkOutcome::At { seq: 41, unread: 9 });
    assert_eq!(rig.short(), ["publish evt.agent.1.a1 received 41", "arrived 45"], "the highest wanted follows");
    rig.marked_on(None, Cursor::Received, 45, MarkOutcome::At { seq: 47, unread: 9 });
    assert_eq!(rig.short(), ["publish evt.agent.1.a1 received 47"], "another device has more");
    rig.text(&json!({"type": "recv", "sessionId": "9001", "lastSeq": 47}));
    assert!(rig.short().is_empty());
    rig.text(&json!({"type": "recv", "sessionId": "9001", "lastSeq": 51, "reqId": 4}));
    assert_eq!(rig.short(), ["arrived 51"]);
    rig.marked_on(None, Cursor::Received, 51, MarkOutcome::OutOfRange);
    assert_eq!(rig.short(), ["error ACK_OUT_OF_RANGE"]);
}

#[test]
fn what_is_read_has_arrived() {
    let mut rig = Rig::at(50);
    rig.text(&json!({"type": "ack", "sessionId": "9001", "lastSeq": 42}));
    rig.drain();
    rig.marked(42, MarkOutcome::At { seq: 42, unread: 8 });
    rig.drain();
    rig.text(&json!({"type": "recv", "sessionId": "9001", "lastSeq": 42}));
    assert!(rig.short().is_empty());
    rig.text(&json!({"type": "recv", "sessionId": "9001", "lastSeq": 44}));
    rig.text(&json!({"type": "ack", "sessionId": "9001", "lastSeq": 43}));
    rig.text(&json!({"type": "recv", "sessionId": "9001", "lastSeq": 45}));
    assert_eq!(rig.short(), ["arrived 44"]);
    rig.marked_on(None, Cursor::Received, 44, MarkOutcome::At { seq: 44, unread: 8 });
    assert_eq!(rig.short(), ["publish evt.agent.1.a1 received 44", "mark 43"], "reading goes first");
    rig.marked(43, MarkOutcome::At { seq: 43, unread: 7 });
    assert_eq!(rig.short(), ["publish evt.user.alice read 43", "publish evt.agent.1.a1 read 43", "arrived 45"]);
}

#[test]
fn two_devices_that_acknowledge_42_and_45_end_at_45_in_either_order() {
    for (first, second, told) in [(42, 45, &[42, 45][..]), (45, 42, &[45])] {
        let mut devices = ["web", "phone"].map(|name| {
            let device = DeviceId::parse(name).ok();
            Rig::of(Start { device, ..start(vec![record(S, 50)]) }, ConnectionLimits::default())
        });
        let mut side = 0;
        let mut heard = Vec::new();
        for (at, (name, seq)) in [("web", first), ("phone", second)].into_iter().enumerate() {
            devices[at].text(&json!({"type": "ack", "sessionId": "9001", "lastSeq": seq}));
            let asked: Vec<_> = devices[at].drain().into_iter().filter(|output| !matches!(output, Output::Write(_))).collect();
            assert!(
                matches!(&asked[..], [Output::Mark(mark)] if mark.device == DeviceId::parse(name).ok() && mark.seq == seq),
                "{asked:?}"
            );
            side = side.max(seq);
            devices[at].marked_on(Some(name), Cursor::Read, seq, MarkOutcome::At { seq: side, unread: 50 - side });
            for output in devices[at].drain() {
                if let Output::Publish { to, event } = output
                    && to.side == Side::User
                {
                    assert!(matches!(event, Event::Read { unread, .. } if unread == 50 - side), "no unread jumps");
                    heard.push(side);
                    devices.iter_mut().for_each(|device| device.event(event.clone()));
                }
            }
        }
        assert_eq!((side, &heard[..]), (45, told), "and nobody hears of an error or of a step back");
    }
}

#[test]
fn a_device_has_cursors_of_its_own() {
    let device = DeviceId::parse("web-1").ok();
    let mut rig = Rig::of(Start { device, ..start(vec![SessionRecord { user_seq: 48, ..record(S, 50) }]) }, ConnectionLimits::default());
    rig.text(&json!({"type": "ack", "sessionId": "9001", "lastSeq": 40}));
    assert_eq!(rig.short(), ["mark 40"], "its side is further, it is not");
    rig.marked_on(Some("web-1"), Cursor::Read, 40, MarkOutcome::At { seq: 48, unread: 2 });
    assert!(rig.short().is_empty(), "which is no news to others");
    rig.text(&json!({"type": "ack", "sessionId": "9001", "lastSeq": 40}));
    rig.text(&json!({"type": "ack", "sessionId": "9001", "lastSeq": 39}));
    assert!(rig.short().is_empty());
}

#[test]
fn a_resume_names_the_device() {
    let mut rig = Rig::at(50);
    let resume = |device: &str| json!({"type": "resume", "deviceId": device, "positions": [{"sessionId": "9001", "lastSeq": 50}]});
    rig.text(&resume("web-1"));
    rig.drain();
    rig.text(&json!({"type": "recv", "sessionId": "9001", "lastSeq": 50}));
    let asked = rig.drain();
    assert!(matches!(&asked[..], [Output::Mark(mark)] if mark.device == DeviceId::parse("web-1").ok()), "{asked:?}");
    rig.text(&resume("web-2"));
    rig.marked_on(Some("web-1"), Cursor::Received, 50, MarkOutcome::At { seq: 50, unread: 0 });
    rig.drain();
    rig.text(&json!({"type": "recv", "sessionId": "9001", "lastSeq": 50}));
    assert_eq!(rig.short(), ["arrived 50"], "what arrived on one device has not arrived on the other");
    rig.text(&resume("web 1"));
    assert_eq!(rig.short(), ["error BAD_REQUEST"]);
}

#[test]
fn the_other_side_hears_what_arrived_and_ones_own_devices_do_not() {
    let mut rig = Rig::at(50);
    rig.event(Event::Received { session: S, by: Side::Agent, reader: id("a1"), seq: 47 });
    rig.event(Event::Received { session: S, by: Side::User, reader: id("alice"), seq: 50 });
    assert_eq!(rig.frames(), [json!({"type": "delivered", "sessionId": "9001", "by": "agent:a1", "lastSeq": 47})]);
    rig.text(&json!({"type": "recv", "sessionId": "9001", "lastSeq": 50}));
    assert!(rig.short().is_empty(), "another device of ours has it all");
}
