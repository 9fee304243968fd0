//! Cursors: forward only, per side and device; unread messages counted exactly.

use gateway_core::chat::DeviceCursor;

use super::*;

/// Every check of this room.
pub async fn all(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    a_read_cursor_moves_forward_only(&**store, fresh).await;
    marks_in_any_order_leave_the_highest(store, fresh).await;
    what_was_read_has_arrived(&**store, fresh).await;
    only_those_who_take_part_move_a_cursor(&**store, fresh).await;
    each_device_has_cursors_of_its_own(&**store, fresh).await;
    a_session_remembers_a_hundred_devices(&**store, fresh).await;
    unread_is_an_exact_count(&**store, fresh).await;
    unread_stays_exact_under_racing_marks(store, fresh).await;
}

/// An older mark changes nothing, one beyond the top is refused, and the sides are apart.
pub async fn a_read_cursor_moves_forward_only(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    assert_eq!(room.mark(store, Side::User, 0).await, MarkOutcome::At { seq: 0, unread: 0 }, "an empty session");
    assert_eq!(room.mark(store, Side::User, 1).await, MarkOutcome::OutOfRange);
    room.fill(store, fresh, &[Side::Agent; 5]).await;
    assert_eq!(room.mark(store, Side::User, 4).await, MarkOutcome::At { seq: 4, unread: 1 });
    assert_eq!(room.mark(store, Side::User, 2).await, MarkOutcome::At { seq: 4, unread: 1 }, "an older mark");
    assert_eq!(room.mark(store, Side::User, 4).await, MarkOutcome::At { seq: 4, unread: 1 }, "the same mark");
    for beyond in [6, 1 << 53, u64::MAX] {
        assert_eq!(room.mark(store, Side::User, beyond).await, MarkOutcome::OutOfRange, "{beyond}");
    }
    assert_eq!(room.mark(store, Side::User, 5).await, MarkOutcome::At { seq: 5, unread: 0 });
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
            let want = MarkOutcome::At { seq: seq as u64, unread: recount(side, seq) };
            assert_eq!(room.mark(store, side, seq as u64).await, want, "{side:?} at {seq}");
        }
        let record = room.record(store).await;
        assert_eq!((record.user_unread, record.agent_unread), (recount(Side::User, seq), recount(Side::Agent, seq)));
    }
    room.fill(store, fresh, &[Side::User]).await;
    let record = room.record(store).await;
    assert_eq!((record.user_unread, record.agent_unread), (0, 1), "a new message is unread to the other side");
}

/// 42 and then 40, and 45 at the same time as 42.
pub async fn marks_in_any_order_leave_the_highest(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let room = Arc::new(Room::new(&**store, fresh).await);
    room.fill(&**store, fresh, &[Side::Agent; 50]).await;
    assert_eq!(room.mark(&**store, Side::User, 42).await, MarkOutcome::At { seq: 42, unread: 8 });
    assert_eq!(room.mark(&**store, Side::User, 40).await, MarkOutcome::At { seq: 42, unread: 8 });
    let mut racers = Vec::new();
    for seq in [42, 45, 43, 44, 41, 45, 42, 44] {
        let (store, room) = (Arc::clone(store), Arc::clone(&room));
        racers.push(tokio::spawn(async move { (seq, room.mark(&*store, Side::User, seq).await) }));
    }
    for racer in racers {
        let (asked, outcome) = racer.await.expect("racer");
        let MarkOutcome::At { seq, unread } = outcome else { panic!("{outcome:?}") };
        assert!(seq >= asked.max(42) && unread == 50 - seq, "asked for {asked}, stands at {seq} with {unread} unread");
    }
    let record = room.record(&**store).await;
    assert_eq!((record.user_seq, record.user_received, record.user_unread), (45, 45, 5));
}

/// And what has arrived is not read for that.
pub async fn what_was_read_has_arrived(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::Agent; 6]).await;
    let cursors = async || {
        let record = room.record(store).await;
        (record.user_seq, record.user_received, record.user_unread)
    };
    let mark = async |cursor, seq| room.mark_on(store, Side::User, None, cursor, seq).await;
    assert_eq!(mark(Cursor::Received, 4).await, MarkOutcome::At { seq: 4, unread: 6 });
    assert_eq!(cursors().await, (0, 4, 6));
    assert_eq!(mark(Cursor::Received, 3).await, MarkOutcome::At { seq: 4, unread: 6 });
    assert_eq!(mark(Cursor::Received, 7).await, MarkOutcome::OutOfRange);
    assert_eq!(mark(Cursor::Read, 2).await, MarkOutcome::At { seq: 2, unread: 4 });
    assert_eq!(cursors().await, (2, 4, 4));
    assert_eq!(mark(Cursor::Read, 5).await, MarkOutcome::At { seq: 5, unread: 1 });
    assert_eq!(cursors().await, (5, 5, 1));
    let record = room.record(store).await;
    assert_eq!((record.agent_seq, record.agent_received), (0, 0), "the other side's stand");
}

/// Not a stranger, not a colleague, not the agent who served it before; the side's cursors stay when it changes hands.
pub async fn only_those_who_take_part_move_a_cursor(store: &dyn ChatLedger, fresh: &Fresh) {
    let (room, colleague) = (Room::new(store, fresh).await, hired(store, fresh, fresh.shop()).await);
    let colleague = Party { shop: Some(room.shop), ..colleague };
    store.upsert_agent(room.shop, &colleague.id, now()).await.expect("upsert agent");
    room.fill(store, fresh, &[Side::User; 4]).await;
    assert_eq!(room.mark(store, Side::Agent, 1).await, MarkOutcome::At { seq: 1, unread: 3 });
    let mark = async |reader: &Party, seq| {
        let mark = Mark { session: room.session, reader: reader.clone(), device: None, cursor: Cursor::Read, seq };
        store.mark(&mark, now()).await.expect("mark")
    };
    let namesake = Party { shop: Some(fresh.shop()), ..room.agent.clone() };
    for stranger in [&colleague, &namesake, &Party::user(fresh.principal()), &Party::user(room.agent.id.clone())] {
        for seq in [2, 99] {
            assert_eq!(mark(stranger, seq).await, MarkOutcome::NotFound, "{stranger:?}");
        }
    }
    hand_over(store, &handover(room.session, Some(&room.agent.id), Some(&colleague.id))).await;
    assert_eq!(mark(&room.agent, 4).await, MarkOutcome::NotFound, "it handed the session over");
    assert_eq!(mark(&colleague, 0).await, MarkOutcome::At { seq: 1, unread: 3 }, "the shop's cursor stays where it was");
    assert_eq!(mark(&colleague, 3).await, MarkOutcome::At { seq: 3, unread: 1 });
}

/// A phone that lags behind is not moved by the desk, and pulls nobody back.
pub async fn each_device_has_cursors_of_its_own(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    let device = |name: &str| DeviceId::parse(name).expect("well-formed");
    let (desk, phone) = (device("Desk"), device("phone"));
    room.fill(store, fresh, &[Side::Agent, Side::Agent, Side::User, Side::Agent]).await;
    assert_eq!(store.devices(room.session).await.expect("devices"), []);
    room.mark_on(store, Side::User, Some(&desk), Cursor::Read, 4).await;
    let outcome = room.mark_on(store, Side::User, Some(&phone), Cursor::Received, 2).await;
    assert_eq!(outcome, MarkOutcome::At { seq: 4, unread: 0 }, "where the side stands");
    room.mark_on(store, Side::User, Some(&phone), Cursor::Read, 1).await;
    room.mark_on(store, Side::User, Some(&desk), Cursor::Received, 3).await;
    room.mark_on(store, Side::Agent, Some(&desk), Cursor::Received, 3).await;
    let refused = room.mark_on(store, Side::Agent, Some(&phone), Cursor::Received, 9).await;
    assert_eq!(refused, MarkOutcome::OutOfRange, "and no device is noted");
    let at = |side, device: &DeviceId, received, read| {
        let party = room.party(side).id.clone();
        DeviceCursor { side, party, device: device.clone(), received, read }
    };
    let want = [at(Side::User, &desk, 4, 4), at(Side::User, &phone, 2, 1), at(Side::Agent, &desk, 3, 0)];
    assert_eq!(store.devices(room.session).await.expect("devices"), want);

    let heir = hired(store, fresh, room.shop).await;
    hand_over(store, &handover(room.session, Some(&room.agent.id), Some(&heir.id))).await;
    assert_eq!(store.devices(room.session).await.expect("devices"), want[..2], "devices of those who take part now");
}

/// Then the one that was quiet longest is forgotten: a client that names a new device each time fills nothing.
pub async fn a_session_remembers_a_hundred_devices(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::Agent]).await;
    let start = now();
    for n in 0..103 {
        let device = Some(DeviceId::parse(&format!("d{n:03}")).expect("well-formed"));
        let mark = Mark { session: room.session, reader: room.user.clone(), device, cursor: Cursor::Received, seq: 1 };
        store.mark(&mark, shift(start, n)).await.expect("mark");
    }
    let devices = store.devices(room.session).await.expect("devices");
    assert_eq!((devices.len(), devices[0].device.as_str(), devices[99].device.as_str()), (100, "d003", "d102"));
}

/// Sends, marks and recalls of both sides, interleaved by sixteen tasks; looked at in between as well.
pub async fn unread_stays_exact_under_racing_marks(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let room = Arc::new(Room::new(&**store, fresh).await);
    let mut racers = Vec::new();
    for n in 0..16_u64 {
        let (store, room) = (Arc::clone(store), Arc::clone(&room));
        let side = if n % 2 == 0 { Side::User } else { Side::Agent };
        let steps: Vec<_> = (0..3)
            .map(|step| {
                // A recall names a number that may be anybody's: then it is refused.
                let sends = vec![room.user_says(fresh), room.agent_says(fresh), room.recall(fresh, side, (n * 7 + step * 11) % 100 + 1)];
                (sends, (n + step * 30) % 110)
            })
            .collect();
        racers.push(tokio::spawn(async move {
            for (sends, mark) in steps {
                let lease = (n % 4 == 0).then_some(&room.lease);
                let outcomes = store.commit(lease, &sends, &[], now()).await.expect("commit");
                // The task's own newest message is taken back sometimes before, sometimes after somebody read it.
                let own = outcomes[usize::from(side == Side::Agent)].clone();
                if n % 3 == 0 {
                    let back = text(room.session, room.party(side), &format!("back-{n}-{mark}"), &stored(own).0.seq.to_string());
                    let back = ChatSend { kind: RECALLED.to_owned(), ..back };
                    stored(store.commit(None, &[back], &[], now()).await.expect("commit").remove(0));
                }
                let cursor = if n % 5 == 0 { Cursor::Received } else { Cursor::Read };
                let outcome = room.mark_on(&*store, side, None, cursor, mark).await;
                let record = room.record(&*store).await;
                assert!(matches!(outcome, MarkOutcome::At { .. } | MarkOutcome::OutOfRange), "{outcome:?}");
                assert!(record.user_unread <= 48 && record.agent_unread <= 48, "nothing below zero: {record:?}");
            }
        }));
    }
    for racer in racers {
        racer.await.expect("racer");
    }
    room.assert_unread_is_exact(&**store).await;
    let top = room.record(&**store).await.top.seq;
    for seq in (0..=top).step_by(9) {
        for side in [Side::User, Side::Agent] {
            room.mark(&**store, side, seq).await;
        }
        room.assert_unread_is_exact(&**store).await;
    }
    for side in [Side::User, Side::Agent] {
        assert_eq!(room.mark(&**store, side, top).await, MarkOutcome::At { seq: top, unread: 0 });
    }
}
