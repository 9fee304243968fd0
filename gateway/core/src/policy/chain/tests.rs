//! A chain of scripted policies: who is asked, what is kept, what the client gets.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;

use super::*;
use crate::id::{PrincipalId, SessionId, ShopId};
use crate::policy::Scope;
use crate::policy::rollout::Cohort;
use crate::ports::Canary;
use crate::principal::{Principal, Role};
use crate::time::UnixMillis;

const FAULTS: [Fault; 5] = [Fault::Missing, Fault::Trap, Fault::Timeout, Fault::Overload, Fault::BadVerdict];

fn all(on_fault: OnFault) -> FailPolicy {
    FailPolicy { missing: on_fault, trap: on_fault, timeout: on_fault, overload: on_fault, bad_verdict: on_fault, budgets: on_fault }
}

fn binding(policy: &str, fail: FailPolicy) -> Binding {
    Binding {
        policy: policy.into(),
        prefixes: vec!["/".to_owned()],
        exact: Vec::new(),
        condition: Condition::default(),
        enforce: true,
        sockets: SocketRule::NextMessage,
        fail,
    }
}

fn facts() -> Facts {
    Facts { now: UnixMillis(0), principal: None, device: None, tags: Vec::new() }
}

fn principal(id: &str) -> Principal {
    Principal {
        id: PrincipalId::parse(id).unwrap(),
        role: Role::User,
        shop: None,
        scopes: Vec::new(),
        expires_at: UnixMillis(1),
        token_id: None,
    }
}

fn refusal(code: &str) -> Refusal {
    Refusal { status: 403, code: code.to_owned(), message: String::new(), retry_after_ms: None }
}

fn charge(key: &str) -> Charge {
    Charge {
        budget: "b".to_owned(),
        key: key.to_owned(),
        limit: 1,
        window_ms: 1,
        cost: 1,
        scope: Scope::Node,
        replay_token: None,
        refusal: refusal("RATE_LIMITED"),
    }
}

fn proceed(change: impl FnOnce(&mut Effects)) -> Result<Verdict, Fault> {
    let mut effects = Effects::default();
    change(&mut effects);
    Ok(Verdict::Proceed(effects))
}

fn answer(outcome: Result<Verdict, Fault>) -> Answer {
    Answer { version: "abc".into(), micros: 7, outcome }
}

fn head(path: &str) -> RequestHead {
    RequestHead {
        method: "GET".to_owned(),
        path: path.to_owned(),
        query: None,
        host: String::new(),
        headers: Vec::new(),
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        trace_id: String::new(),
        route: "r".into(),
    }
}

/// What one policy was asked, and told.
struct Asked {
    policy: String,
    side: Side,
    who: Option<String>,
    tags: Vec<String>,
    text: String,
}

/// Answers from a script and remembers what each policy was told.
#[derive(Default)]
struct Script {
    answers: BTreeMap<&'static str, Result<Verdict, Fault>>,
    asked: Mutex<Vec<Asked>>,
    absent: Vec<&'static str>,
    canary: Option<(&'static str, Cohort)>,
}

impl Script {
    fn with(mut self, policy: &'static str, outcome: Result<Verdict, Fault>) -> Self {
        self.answers.insert(policy, outcome);
        self
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.policy.clone()).collect()
    }
}

#[async_trait]
impl PolicySet for Script {
    fn takes_part(&self, policy: &str, _side: Side, _phase: Phase) -> bool {
        !self.absent.contains(&policy)
    }

    fn canary(&self, policy: &str) -> Option<Canary<'_>> {
        self.canary.filter(|(name, _)| *name == policy).map(|(plugin, cohort)| Canary { plugin, cohort })
    }

    async fn call(&self, policy: &str, side: Side, call: Call<'_>) -> Answer {
        let (facts, text) = match call {
            Call::Request(_, facts) | Call::Attempt(_, facts, _) | Call::Response(_, facts, _) => (facts, String::new()),
            Call::Message(facts, message) => (facts, message.content.clone()),
        };
        let who = facts.principal.as_ref().map(|principal| principal.id.to_string());
        self.asked.lock().unwrap().push(Asked { policy: policy.to_owned(), side, who, tags: facts.tags.clone(), text });
        answer(self.answers.get(policy).cloned().unwrap_or(Err(Fault::Missing)))
    }
}

/// Scripted policies answer at once, so one poll is enough.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

#[test]
fn a_binding_covers_what_it_names() {
    let binding = Binding { prefixes: vec!["/api/".to_owned()], exact: vec!["/ws/chat".to_owned()], ..binding("p", all(OnFault::Closed)) };
    for (path, covered) in
        [("/api/x", true), ("/api/", true), ("/api", false), ("/apix", false), ("/ws/chat", true), ("/ws/chat/x", false), ("/", false)]
    {
        assert_eq!(binding.covers(path), covered, "{path}");
    }
}

#[test]
fn effects_of_a_chain_add_up() {
    let mut state = ChainState::new(facts());
    let steps = [
        proceed(|e| {
            e.principal = Some(principal("u1"));
            e.set_headers = vec![("x-a".to_owned(), "1".to_owned()), ("x-b".to_owned(), "1".to_owned())];
            e.charges = vec![charge("one")];
            e.tags = vec!["first".to_owned()];
            e.score = 60;
            e.reply = Some("first".to_owned());
        }),
        proceed(|e| {
            e.set_headers = vec![("x-a".to_owned(), "2".to_owned())];
            e.remove_headers = vec!["x-b".to_owned()];
            e.charges = vec![charge("two")];
            e.tags = vec!["second".to_owned()];
            e.score = 60;
            e.replace = Some("masked".to_owned());
            e.reply = Some("second".to_owned());
        }),
    ];
    for step in steps {
        assert!(fold(&mut state, &binding("p", all(OnFault::Closed)), Phase::Message, answer(step)).is_continue());
    }
    assert_eq!(state.facts.principal, Some(principal("u1")), "a policy that proves nobody leaves the identity alone");
    assert_eq!(state.headers, BTreeMap::from([("x-a".to_owned(), Some("2".to_owned())), ("x-b".to_owned(), None)]));
    assert_eq!(state.charges.iter().map(|c| c.key.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(state.facts.tags, ["first", "second"]);
    assert_eq!(state.score, 100);
    assert_eq!((state.replace.as_deref(), state.reply.as_deref()), (Some("masked"), Some("first")));
}

#[test]
fn one_policy_may_replace_a_field_it_also_removes() {
    let mut state = ChainState::new(facts());
    let step = proceed(|e| {
        e.remove_headers = vec!["x-a".to_owned()];
        e.set_headers = vec![("x-a".to_owned(), "1".to_owned())];
    });
    assert!(fold(&mut state, &binding("p", all(OnFault::Closed)), Phase::Request, answer(step)).is_continue());
    assert_eq!(state.headers["x-a"].as_deref(), Some("1"));
}

#[test]
fn each_fault_follows_its_own_switch() {
    for fault in FAULTS {
        for open in FAULTS {
            let mut fail = all(OnFault::Closed);
            *match open {
                Fault::Missing => &mut fail.missing,
                Fault::Trap => &mut fail.trap,
                Fault::Timeout => &mut fail.timeout,
                Fault::Overload => &mut fail.overload,
                Fault::BadVerdict => &mut fail.bad_verdict,
            } = OnFault::Open;
            let mut state = ChainState::new(facts());
            let flow = fold(&mut state, &binding("p", fail), Phase::Request, answer(Err(fault)));
            let outcome = if fault == open { DecisionOutcome::FailedOpen(fault) } else { DecisionOutcome::FailedClosed(fault) };
            assert_eq!(flow.is_continue(), fault == open, "{fault:?} {open:?}");
            assert_eq!(state.decisions[0].outcome, outcome);
            assert_eq!(state.decisions[0].outcome.as_str(), fault.as_str());
        }
    }
}

#[test]
fn a_closed_fault_tells_the_client_nothing_about_itself() {
    let mut answers: Vec<Refusal> = FAULTS
        .into_iter()
        .map(|fault| match fold(&mut ChainState::new(facts()), &binding("p", all(OnFault::Closed)), Phase::Request, answer(Err(fault))) {
            ControlFlow::Break(refusal) => refusal,
            ControlFlow::Continue(()) => panic!("{fault:?} passed"),
        })
        .collect();
    answers.dedup();
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].status, answers[0].code.as_str(), answers[0].retry_after_ms), (503, "POLICY_UNAVAILABLE", Some(1_000)));
}

#[test]
fn a_chain_cannot_ask_for_more_charges_than_one_call_takes() {
    let mut state = ChainState::new(facts());
    for _ in 0..4 {
        let step = proceed(|e| e.charges = vec![charge("k"); 16]);
        assert!(fold(&mut state, &binding("p", all(OnFault::Closed)), Phase::Request, answer(step)).is_continue());
    }
    let one_more = proceed(|e| e.charges = vec![charge("k")]);
    assert!(fold(&mut state, &binding("p", all(OnFault::Closed)), Phase::Request, answer(one_more)).is_break());
    assert_eq!(state.charges.len(), CHARGES_MAX);
    assert_eq!(state.decisions.last().unwrap().outcome, DecisionOutcome::FailedClosed(Fault::BadVerdict));
}

#[test]
fn tags_are_bounded() {
    let mut state = ChainState::new(facts());
    for _ in 0..10 {
        let step = proceed(|e| e.tags = vec!["t".to_owned(); 16]);
        assert!(fold(&mut state, &binding("p", all(OnFault::Closed)), Phase::Request, answer(step)).is_continue());
    }
    assert_eq!(state.facts.tags.len(), TAGS_MAX);
}

#[test]
fn a_chain_asks_in_order_and_stops_at_the_first_refusal() {
    let script = Script::default()
        .with("who", proceed(|e| (e.principal, e.tags) = (Some(principal("u1")), vec!["seen".to_owned()])))
        .with("stop", Ok(Verdict::Refuse(refusal("NO"))))
        .with("late", proceed(|_| ()));
    let bindings = ["who", "stop", "late"].map(|policy| binding(policy, all(OnFault::Closed)));
    let mut state = ChainState::new(facts());
    let answer = at_once(run(&script, &bindings, Subject::Request(&head("/x")), &mut state));
    assert_eq!(answer.map(|refusal| refusal.code).as_deref(), Some("NO"));
    assert_eq!(script.asked(), ["who", "stop"]);
    let asked = script.asked.lock().unwrap();
    assert_eq!((asked[1].who.as_deref(), asked[1].tags.as_slice()), (Some("u1"), &["seen".to_owned()][..]));
    let words: Vec<_> = state.decisions.iter().map(|d| (&*d.policy, d.outcome.as_str(), &*d.version, d.micros)).collect();
    assert_eq!(words, [("who", "proceed", "abc", 7), ("stop", "refuse", "abc", 7)]);
}

#[test]
fn a_chain_skips_who_is_not_bound_or_takes_no_part() {
    let mut script = Script::default().with("here", proceed(|_| ()));
    script.absent = vec!["absent"];
    let elsewhere = Binding { prefixes: vec!["/api/".to_owned()], ..binding("elsewhere", all(OnFault::Closed)) };
    let bindings = [elsewhere, binding("absent", all(OnFault::Closed)), binding("here", all(OnFault::Closed))];
    let mut state = ChainState::new(facts());
    assert_eq!(at_once(run(&script, &bindings, Subject::Request(&head("/x")), &mut state)), None);
    assert_eq!(script.asked(), ["here"]);
}

#[test]
fn a_missing_policy_is_not_a_missing_rule() {
    let script = Script::default();
    let mut state = ChainState::new(facts());
    let closed = at_once(run(&script, &[binding("gone", all(OnFault::Closed))], Subject::Request(&head("/x")), &mut state));
    assert_eq!(closed.map(|refusal| refusal.status), Some(503));
}

#[test]
fn later_policies_see_a_message_as_it_will_be_delivered() {
    let script = Script::default().with("mask", proceed(|e| e.replace = Some("***".to_owned()))).with("bot", proceed(|_| ()));
    let message = Message { session: SessionId(1), shop: ShopId(1), kind: "text".to_owned(), content: "bad word".to_owned() };
    let bindings = ["mask", "bot"].map(|policy| binding(policy, all(OnFault::Closed)));
    let mut state = ChainState::new(facts());
    let subject = Subject::Message { path: "/ws/chat", message: &message };
    assert_eq!(at_once(run(&script, &bindings, subject, &mut state)), None);
    let texts: Vec<_> = script.asked.lock().unwrap().iter().map(|asked| asked.text.clone()).collect();
    assert_eq!(texts, ["bad word", "***"]);
}

#[test]
fn a_policy_that_does_not_enforce_changes_nothing_and_is_counted() {
    for outcome in [
        Ok(Verdict::Refuse(refusal("NO"))),
        Err(Fault::Trap),
        proceed(|e| {
            e.tags.push("t".into());
            e.set_headers.push(("a".into(), "b".into()));
            e.charges.push(charge("k"));
        }),
    ] {
        let script = Script::default().with("dry", outcome.clone());
        let bindings = [Binding { enforce: false, ..binding("dry", all(OnFault::Closed)) }];
        let mut state = ChainState::new(facts());
        assert_eq!(at_once(run(&script, &bindings, Subject::Request(&head("/")), &mut state)), None);
        assert!(state.facts.tags.is_empty() && state.headers.is_empty() && state.charges.is_empty());
        assert_eq!(state.dry_charges.len(), usize::from(matches!(outcome, Ok(Verdict::Proceed(_)))));
        let wanted = match outcome {
            Ok(Verdict::Refuse(refusal)) => DecisionOutcome::WouldRefuse(refusal.code),
            Err(fault) => DecisionOutcome::FailedOpen(fault),
            Ok(Verdict::Proceed(_)) => DecisionOutcome::Proceed,
        };
        assert_eq!(state.decisions[0].outcome, wanted);
    }
}

#[test]
fn an_exhausted_dry_budget_is_recorded_at_its_policy() {
    let script = Script::default().with("dry", proceed(|e| e.charges.push(charge("k")))).with("other", proceed(|_| ()));
    let bindings = [Binding { enforce: false, ..binding("dry", all(OnFault::Open)) }, binding("other", all(OnFault::Open))];
    let mut state = ChainState::new(facts());
    at_once(run(&script, &bindings, Subject::Request(&head("/")), &mut state));
    state.would_refuse("dry", "RATE_LIMITED");
    let outcomes: Vec<_> = state.decisions.iter().map(|decision| decision.outcome.as_str()).collect();
    assert_eq!(outcomes, ["would-refuse", "proceed"]);
}

#[test]
fn budgets_that_cannot_be_reached_close_what_one_binding_closes() {
    for (first, second, unreachable) in [
        (OnFault::Open, OnFault::Open, OnFault::Open),
        (OnFault::Closed, OnFault::Open, OnFault::Closed),
        (OnFault::Open, OnFault::Closed, OnFault::Closed),
    ] {
        let charging = || proceed(|e| e.charges.push(charge("k")));
        let script = Script::default().with("a", charging()).with("b", charging()).with("c", proceed(|_| ()));
        let bindings = [("a", first), ("b", second), ("c", OnFault::Closed)]
            .map(|(name, budgets)| binding(name, FailPolicy { budgets, ..all(OnFault::Closed) }));
        let mut state = ChainState::new(facts());
        at_once(run(&script, &bindings, Subject::Request(&head("/")), &mut state));
        assert_eq!(state.unreachable, unreachable, "a policy that charges nothing has no say");
    }
}

#[test]
fn a_condition_that_does_not_hold_leaves_a_policy_out() {
    let script =
        Script::default().with("auth", proceed(|e| e.principal = Some(principal("u1")))).with("users", Ok(Verdict::Refuse(refusal("NO"))));
    let users = Condition { roles: vec![Role::User], ..Condition::default() };
    let agents = Condition { roles: vec![Role::Agent], ..Condition::default() };
    for (condition, asked) in [(users, vec!["auth", "users"]), (agents, vec!["auth"])] {
        let bindings = [binding("auth", all(OnFault::Open)), Binding { condition, ..binding("users", all(OnFault::Open)) }];
        script.asked.lock().unwrap().clear();
        at_once(run(&script, &bindings, Subject::Request(&head("/")), &mut ChainState::new(facts())));
        assert_eq!(script.asked(), asked, "a condition sees what earlier policies proved");
    }
}

#[test]
fn a_canary_is_asked_for_its_cohort_and_one_side_serves_the_whole_request() {
    for (id, side) in [("u1", Side::Candidate), ("u9", Side::Live)] {
        let canary = Some(("p", "tail 0-4".parse().unwrap()));
        let script =
            Script { canary, ..Script::default().with("auth", proceed(|e| e.principal = Some(principal(id)))).with("p", proceed(|_| ())) };
        let bindings = [binding("auth", all(OnFault::Open)), binding("p", all(OnFault::Open))];
        let mut state = ChainState::new(facts());
        let head = head("/");
        at_once(run(&script, &bindings, Subject::Request(&head), &mut state));
        // Whoever the asker turns out to be later, the version stays.
        state.facts.principal = None;
        let response = ResponseHead { status: 200, headers: Vec::new() };
        at_once(run(&script, &bindings[1..], Subject::Response(&head, &response), &mut state));
        let sides: Vec<_> = script.asked.lock().unwrap().iter().map(|asked| (asked.policy.clone(), asked.side)).collect();
        assert_eq!(sides, [("auth".to_owned(), Side::Live), ("p".to_owned(), side), ("p".to_owned(), side)]);
        assert_eq!((state.side_of("auth"), state.side_of("p")), (Side::Live, side));
    }
}
