//! Sessions changing hands, agents and their load, the waiting line.

use gateway_core::chat::{AgentLoad, AgentState, Serving};

use super::*;

/// Every check of this room.
pub async fn all(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    a_session_changes_hands_within_its_shop(&**store, fresh).await;
    those_that_wait_longest_come_first(&**store, fresh).await;
    racing_assignments_have_one_winner(store, fresh).await;
    an_agents_limit_is_never_exceeded(store, fresh).await;
    the_lower_limit_counts_and_a_handover_by_hand_has_none(&**store, fresh).await;
    racing_transfers_end_with_one_agent(store, fresh).await;
    agents_are_listed_with_their_load(&**store, fresh).await;
    what_an_agent_says_of_itself_is_kept(&**store, fresh).await;
    those_who_serve_are_listed_over_all_shops(&**store, fresh).await;
}

/// From exactly who serves it, to an agent of its shop, or back into the line.
pub async fn a_session_changes_hands_within_its_shop(store: &dyn ChatLedger, fresh: &Fresh) {
    let shop = fresh.shop();
    let (one, two) = (hired(store, fresh, shop).await, hired(store, fresh, shop).await);
    let (stranger, unregistered) = (hired(store, fresh, fresh.shop()).await, Party::agent(shop, fresh.principal()));
    let (user, opened) = (Party::user(fresh.principal()), shift(now(), -60));
    let session = store.open_session(shop, &user.id, "s", opened).await.expect("open session").id;
    let record = async || store.session(&user, session).await.expect("session").expect("the user's own");
    let waits = record().await;
    for (from, to, want) in [
        (None, Some(&stranger.id), HandoverOutcome::NoSuchAgent),
        (None, Some(&unregistered.id), HandoverOutcome::NoSuchAgent),
        (Some(&one.id), Some(&two.id), HandoverOutcome::Changed),
        (Some(&one.id), None, HandoverOutcome::Changed),
    ] {
        assert_eq!(hand_over(store, &handover(session, from, to)).await, want, "{from:?} to {to:?}");
        assert_eq!(record().await, waits, "nothing changed");
    }
    assert_eq!(hand_over(store, &handover(UNKNOWN, None, Some(&one.id))).await, HandoverOutcome::Changed);

    let done = async |from: Option<&Party>, to: Option<&Party>, at| {
        let handover = handover(session, from.map(|party| &party.id), to.map(|party| &party.id));
        match store.hand_over(&handover, at).await.expect("hand over") {
            HandoverOutcome::Done(session) => *session,
            other @ (HandoverOutcome::Changed | HandoverOutcome::NoSuchAgent | HandoverOutcome::Full) => {
                panic!("{from:?} to {to:?}: {other:?}")
            }
        }
    };
    let served = done(None, Some(&one), shift(opened, 10)).await;
    assert_eq!((&served.agent, served.clocks.waiting_since), (&Some(one.id.clone()), None));
    assert_eq!(record().await, served);
    assert_eq!(hand_over(store, &handover(session, None, Some(&two.id))).await, HandoverOutcome::Changed, "somebody serves it");
    let moved = done(Some(&one), Some(&two), shift(opened, 20)).await;
    assert_eq!((&moved.agent, moved.clocks.waiting_since), (&Some(two.id.clone()), None));
    let back = done(Some(&two), None, shift(opened, 30)).await;
    assert_eq!((&back.agent, back.clocks.waiting_since), (&None, Some(shift(opened, 30))), "it waits from now on");
    assert_eq!(record().await, back);
    let told: Vec<_> = store.handovers(session).await.expect("handovers");
    let record =
        |from: Option<&Party>, to: Option<&Party>, at| handover(session, from.map(|one| &one.id), to.map(|one| &one.id)).record(at);
    let want = [
        record(None, Some(&one), shift(opened, 10)),
        record(Some(&one), Some(&two), shift(opened, 20)),
        record(Some(&two), None, shift(opened, 30)),
    ];
    assert_eq!(told, want, "what was done is written down, what was refused is not");
    assert_eq!(store.handovers(UNKNOWN).await.expect("handovers"), []);
    let long = Handover { detail: "长".repeat(3_000), ..handover(session, None, Some(&one.id)) };
    assert!(matches!(hand_over(store, &long).await, HandoverOutcome::Done(_)), "a long reason is no reason to fail");
}

/// Of this shop alone; who is served, or closed, does not wait.
pub async fn those_that_wait_longest_come_first(store: &dyn ChatLedger, fresh: &Fresh) {
    let (shop, start) = (fresh.shop(), shift(now(), -600));
    let agent = hired(store, fresh, shop).await;
    let user = Party::user(fresh.principal());
    assert_eq!((store.waiting(shop).await.expect("waiting"), store.waiting_count(shop).await.expect("count")), (vec![], 0));
    let mut sessions = Vec::new();
    for (subject, at) in [("a", 30), ("b", 10), ("c", 20), ("d", 20)] {
        sessions.push(store.open_session(shop, &user.id, subject, shift(start, at)).await.expect("open session").id);
    }
    open(store, fresh.shop(), &user.id, "next door").await;
    let [a, b, c, d] = sessions[..] else { unreachable!("four sessions") };
    let line = async || -> Vec<SessionId> {
        let line: Vec<_> = store.waiting(shop).await.expect("waiting").into_iter().map(|session| session.id).collect();
        assert_eq!(store.waiting_count(shop).await.expect("count"), line.len() as u64);
        line
    };
    let has_line = async || store.shops_waiting().await.expect("shops waiting").contains(&shop);
    assert_eq!(line().await, [b, c, d, a]);
    assert!(has_line().await);
    assert!(assign(store, c, &agent.id).await);
    store.close_session(&user, d, now()).await.expect("close session").expect("its own");
    assert_eq!(line().await, [b, a]);
    let again = handover(c, Some(&agent.id), None);
    store.hand_over(&again, shift(start, 25)).await.expect("hand over");
    assert_eq!(line().await, [b, c, a], "from when it came back");
    for session in [a, b, c] {
        assert!(assign(store, session, &agent.id).await);
    }
    assert_eq!(line().await, []);
    assert!(!has_line().await);
}

/// Eight nodes, each with an agent of its own, and room for one more.
pub async fn racing_assignments_have_one_winner(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let shop = fresh.shop();
    let user = Party::user(fresh.principal());
    let session = open(&**store, shop, &user.id, "s").await.id;
    let mut racers = Vec::new();
    for n in 0..8 {
        let (store, agent) = (Arc::clone(store), hired(&**store, fresh, shop).await);
        let handover = Handover { open_max: (n % 2 == 0).then_some(3), ..handover(session, None, Some(&agent.id)) };
        racers.push(tokio::spawn(async move { (agent.id, hand_over(&*store, &handover).await) }));
    }
    let mut winners = Vec::new();
    for racer in racers {
        match racer.await.expect("racer") {
            (agent, HandoverOutcome::Done(_)) => winners.push(agent),
            (_, outcome) => assert_eq!(outcome, HandoverOutcome::Changed),
        }
    }
    let record = store.session(&user, session).await.expect("session").expect("the user's own");
    assert_eq!(winners.len(), 1);
    assert_eq!(record.agent, winners.pop());
}

/// Twelve sessions at once for two agents who take four each: eight are served, four wait.
pub async fn an_agents_limit_is_never_exceeded(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let shop = fresh.shop();
    let agents = [hired(&**store, fresh, shop).await, hired(&**store, fresh, shop).await];
    let mut racers = Vec::new();
    for n in 0..12 {
        let session = open(&**store, shop, &fresh.principal(), "s").await.id;
        let offers: Vec<_> =
            (0..2).map(|turn| Handover { open_max: Some(4), ..handover(session, None, Some(&agents[(n + turn) % 2].id)) }).collect();
        let store = Arc::clone(store);
        racers.push(tokio::spawn(async move {
            for offer in offers {
                let outcome = hand_over(&*store, &offer).await;
                if matches!(outcome, HandoverOutcome::Done(_)) {
                    return true;
                }
                assert_eq!(outcome, HandoverOutcome::Full);
            }
            false
        }));
    }
    let mut served = 0;
    for racer in racers {
        served += u64::from(racer.await.expect("racer"));
    }
    let loads = store.agents(shop).await.expect("agents");
    assert_eq!(loads.iter().map(|load| load.open_sessions).collect::<Vec<_>>(), [4, 4]);
    assert_eq!((served, store.waiting_count(shop).await.expect("count")), (8, 4));
}

/// Closing makes room again.
pub async fn the_lower_limit_counts_and_a_handover_by_hand_has_none(store: &dyn ChatLedger, fresh: &Fresh) {
    let shop = fresh.shop();
    let (one, two) = (hired(store, fresh, shop).await, hired(store, fresh, shop).await);
    store.set_agent(shop, &one.id, AgentState::Online, Some(1)).await.expect("set agent");
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(open(store, shop, &fresh.principal(), "s").await);
    }
    let offer = async |n: usize, to: &Party, open_max| {
        let handover = Handover { open_max, ..handover(sessions[n].id, None, Some(&to.id)) };
        matches!(hand_over(store, &handover).await, HandoverOutcome::Done(_))
    };
    assert!(offer(0, &one, Some(3)).await);
    assert!(!offer(1, &one, Some(3)).await, "it wants one");
    assert!(!offer(1, &two, Some(0)).await, "the deployment allows none");
    assert!(offer(1, &one, None).await, "by hand");
    assert!(!offer(2, &one, Some(9)).await);
    for session in &sessions[..2] {
        store.close_session(&Party::user(session.user.clone()), session.id, now()).await.expect("close session").expect("its own");
    }
    assert!(offer(2, &one, Some(9)).await, "there is room again");
    assert!(!offer(3, &one, Some(9)).await);
}

/// Agents hand their sessions to each other, all at once: nobody waits for good, and every session has one agent.
pub async fn racing_transfers_end_with_one_agent(store: &Arc<dyn ChatLedger>, fresh: &Fresh) {
    let shop = fresh.shop();
    let (one, two) = (hired(&**store, fresh, shop).await, hired(&**store, fresh, shop).await);
    let mut sessions = Vec::new();
    for n in 0..8 {
        let session = open(&**store, shop, &fresh.principal(), "s").await;
        assert!(assign(&**store, session.id, if n % 2 == 0 { &one.id } else { &two.id }).await);
        sessions.push(session.id);
    }
    let mut racers = Vec::new();
    for turn in 0..3 {
        for (n, session) in sessions.iter().copied().enumerate() {
            let (from, to) = if n % 2 == 0 { (one.id.clone(), two.id.clone()) } else { (two.id.clone(), one.id.clone()) };
            let handover = Handover { open_max: (turn == 0).then_some(100), ..handover(session, Some(&from), Some(&to)) };
            let store = Arc::clone(store);
            racers.push(tokio::spawn(async move { matches!(hand_over(&*store, &handover).await, HandoverOutcome::Done(_)) }));
        }
    }
    let mut done = 0;
    for racer in racers {
        done += u32::from(racer.await.expect("racer"));
    }
    assert_eq!(done, 8, "each session changed hands once");
    let loads = store.agents(shop).await.expect("agents");
    assert_eq!(loads.iter().map(|load| load.open_sessions).collect::<Vec<_>>(), [4, 4]);
}

/// Registered ones of the shop, idle ones too.
pub async fn agents_are_listed_with_their_load(store: &dyn ChatLedger, fresh: &Fresh) {
    let room = Room::new(store, fresh).await;
    room.fill(store, fresh, &[Side::User, Side::User, Side::Agent, Side::User]).await;
    room.mark(store, Side::Agent, 1).await;
    let second = open(store, room.shop, &room.user.id, "another matter").await.id;
    assert!(assign(store, second, &room.agent.id).await);
    let closed = open(store, room.shop, &room.user.id, "a third").await.id;
    assert!(assign(store, closed, &room.agent.id).await);
    store.close_session(&room.user, closed, now()).await.expect("close session").expect("its own");
    let idle = hired(store, fresh, room.shop).await.id;
    let mut loads = store.agents(room.shop).await.expect("agents");
    loads.sort_by_key(|load| load.open_sessions);
    let load = |agent: &PrincipalId, unread, open_sessions| AgentLoad {
        agent: agent.clone(),
        state: AgentState::Online,
        unread,
        open_sessions,
        open_max: None,
    };
    assert_eq!(loads, [load(&idle, 0, 0), load(&room.agent.id, 2, 2)]);
    for one in loads {
        assert_eq!(store.agent(room.shop, &one.agent).await.expect("agent"), Some(one), "by itself");
    }
    assert_eq!(store.agent(fresh.shop(), &idle).await.expect("agent"), None, "not of this shop");
    room.commit(store, &[room.recall(fresh, Side::User, 2)]).await;
    let loads = store.agents(room.shop).await.expect("agents");
    assert!(loads.contains(&load(&room.agent.id, 1, 2)), "what was taken back is no work: {loads:?}");
    assert_eq!(store.agents(fresh.shop()).await.expect("agents"), []);
}

/// Registering again does not change it; nobody's word makes an agent of somebody else's shop.
pub async fn what_an_agent_says_of_itself_is_kept(store: &dyn ChatLedger, fresh: &Fresh) {
    let shop = fresh.shop();
    let agent = hired(store, fresh, shop).await;
    let says = async |state, open_max| {
        store.set_agent(shop, &agent.id, state, open_max).await.expect("set agent");
        let load = store.agents(shop).await.expect("agents").remove(0);
        (load.state, load.open_max)
    };
    for state in AgentState::ALL {
        assert_eq!(says(state, None).await, (state, None));
    }
    assert_eq!(says(AgentState::Busy, Some(5)).await, (AgentState::Busy, Some(5)));
    assert_eq!(says(AgentState::Away, None).await, (AgentState::Away, Some(5)), "the limit stays as it was");
    assert_eq!(says(AgentState::Away, Some(0)).await, (AgentState::Away, Some(0)));
    store.upsert_agent(shop, &agent.id, now()).await.expect("upsert agent");
    let load = store.agents(shop).await.expect("agents").remove(0);
    assert_eq!((load.state, load.open_max), (AgentState::Away, Some(0)), "registered again");
    let elsewhere = fresh.shop();
    store.set_agent(elsewhere, &agent.id, AgentState::Online, None).await.expect("set agent");
    assert_eq!(store.agents(elsewhere).await.expect("agents"), []);
}

/// With when each was last seen, which only rises; page by page.
pub async fn those_who_serve_are_listed_over_all_shops(store: &dyn ChatLedger, fresh: &Fresh) {
    let start = shift(now(), -600);
    let shops = [fresh.shop(), fresh.shop()];
    let mut agents = Vec::new();
    for shop in shops {
        for sessions in [1, 2, 0] {
            let agent = fresh.principal();
            store.upsert_agent(shop, &agent, start).await.expect("upsert agent");
            for n in 0..sessions {
                let session = open(store, shop, &fresh.principal(), &n.to_string()).await.id;
                assert!(assign(store, session, &agent).await);
            }
            agents.push((shop, agent, sessions));
        }
    }
    let seen: Vec<_> = [&agents[0], &agents[4]].into_iter().map(|(shop, agent, _)| (*shop, agent.clone())).collect();
    store.see_agents(&seen, shift(start, 60)).await.expect("see agents");
    store.see_agents(&seen, shift(start, 30)).await.expect("see agents");
    store.see_agents(&[(fresh.shop(), fresh.principal())], now()).await.expect("nobody of ours");
    store.see_agents(&[], now()).await.expect("nobody");
    store.set_agent(agents[1].0, &agents[1].1, AgentState::Away, None).await.expect("set agent");

    let mut want: Vec<_> = agents
        .iter()
        .filter(|(_, _, sessions)| *sessions > 0)
        .map(|(shop, agent, open_sessions)| Serving {
            shop: *shop,
            agent: agent.clone(),
            state: if *agent == agents[1].1 { AgentState::Away } else { AgentState::Online },
            seen_at: if seen.contains(&(*shop, agent.clone())) { shift(start, 60) } else { start },
            open_sessions: *open_sessions,
        })
        .collect();
    want.sort_by(|a, b| (a.shop, &a.agent).cmp(&(b.shop, &b.agent)));
    // Other checks' agents are listed as well, so the walk begins just before these.
    let before = (ShopId(shops[0].0 - 1), PrincipalId::parse("z").expect("well-formed"));
    let mut listed = Vec::new();
    let mut after = Some(before);
    while let Some((shop, agent)) = after.take() {
        let page = store.serving(Some((shop, &agent)), 3).await.expect("serving");
        assert!(page.len() <= 3);
        after = page.last().map(|last| (last.shop, last.agent.clone()));
        listed.extend(page);
    }
    listed.retain(|serving| shops.contains(&serving.shop));
    assert_eq!(listed, want);
    let first = store.serving(None, 1_000).await.expect("serving");
    assert!(!first.is_empty() && first.is_sorted_by(|a, b| (a.shop, &a.agent) < (b.shop, &b.agent)));
    assert_eq!(store.serving(None, 0).await.expect("serving"), []);
}
