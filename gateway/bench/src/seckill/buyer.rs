//! Buyers who do what a good client does: ask again, with the same key, until there is an answer that is one, and then ask for
//! the result until it is final. Who is told "fail" tries again; only "sold out" and an order send a buyer home.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::sale::Sale;
use crate::load::{Answer, Client, Request};
use crate::report::{Fate, Visit};
use crate::rig::Rig;

/// Between two attempts, where the answer does not say.
const AGAIN_AFTER: Duration = Duration::from_millis(150);
/// Longest wait that is believed.
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// Between two questions for a result: the first, and the longest.
const RESULT_AFTER: Duration = Duration::from_millis(50);
const RESULT_AFTER_MAX: Duration = Duration::from_millis(500);

/// One who wants a unit.
#[derive(Debug)]
pub(super) struct Buyer {
    number: usize,
    user: String,
    bearer: String,
    due: Duration,
    attempt: Request,
}

impl Buyer {
    /// Who comes `due` after the start. Each has a device of its own.
    pub(super) fn new(sale: &Sale, number: usize, user: String, token: &str, due: Duration) -> Self {
        let (bearer, key, device) = (format!("Bearer {token}"), format!("key-{user}"), format!("device-{user}"));
        let fields = [("authorization", bearer.as_str()), ("idempotency-key", &key), ("x-device-id", &device)];
        let attempt = Request::new("POST", "/api/seckill/buy", &fields, &sale.order(1));
        Self { number, user, bearer, due, attempt }
    }
}

/// What buyers of one sale share.
#[derive(Debug)]
pub(super) struct Shop {
    rig: Arc<Rig>,
    client: Client,
    started: Instant,
    deadline: Instant,
    buyers: usize,
    answered: AtomicUsize,
    everybody: Notify,
    progress: ProgressBar,
}

/// What an answer to an attempt means to a good client.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    /// Admitted, now or before.
    Queued(String),
    SoldOut,
    /// Ask again, after this time.
    Again(Duration),
    /// Nothing that a buyer with a token gets in an open sale.
    Refused(String),
}

impl Reply {
    fn of(answer: &Answer) -> Self {
        match (answer.status, answer.code()) {
            (202, _) if answer.body["orderNo"].is_string() => Self::Queued(answer.body["orderNo"].as_str().unwrap_or_default().to_owned()),
            (409, "SOLD_OUT") => Self::SoldOut,
            (429 | 503, _) => Self::Again(retry_after(&answer.body)),
            (status, code) => Self::Refused(format!("{status} {code}")),
        }
    }
}

fn retry_after(body: &Value) -> Duration {
    body["retryAfterMs"].as_u64().map_or(AGAIN_AFTER, Duration::from_millis).min(AGAIN_MAX)
}

impl Shop {
    /// Opens at `started`; at `deadline` everybody is sent home.
    pub(super) fn new(rig: Arc<Rig>, client: Client, started: Instant, deadline: Instant, buyers: usize, progress: ProgressBar) -> Self {
        Self { rig, client, started, deadline, buyers, answered: AtomicUsize::new(0), everybody: Notify::new(), progress }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Completes when everybody had a first answer, or the deadline came.
    pub(super) async fn everybody_answered(&self) {
        if self.answered.load(Ordering::Acquire) < self.buyers {
            // One permit is kept for a waiter that comes late.
            self.everybody.notified().await;
        }
    }

    /// One buyer's whole visit.
    pub(super) async fn serve(&self, buyer: Buyer) -> Visit {
        let due = self.started + buyer.due;
        sleep_until(due).await;
        let mut visit = Visit { user: buyer.user.clone(), latency: None, attempts: 0, order_no: None, fate: Fate::Unanswered };
        loop {
            match self.attempt(&buyer, &mut visit).await {
                Some(Reply::Queued(order_no)) => {
                    self.first_answer(&mut visit, due);
                    let result = self.result(&buyer, &order_no).await;
                    visit.order_no = Some(order_no);
                    match result {
                        Some(true) => visit.fate = Fate::Won,
                        Some(false) => continue,
                        None => visit.fate = Fate::Pending,
                    }
                }
                Some(Reply::SoldOut) => {
                    self.first_answer(&mut visit, due);
                    visit.fate = Fate::SoldOut;
                }
                Some(Reply::Refused(reason)) => {
                    self.first_answer(&mut visit, due);
                    visit.fate = Fate::Refused(reason);
                }
                Some(Reply::Again(_)) | None if visit.latency.is_none() => self.count(),
                Some(Reply::Again(_)) | None => {}
            }
            return visit;
        }
    }

    /// Attempts until there is an answer. `None`: there was none before the deadline.
    async fn attempt(&self, buyer: &Buyer, visit: &mut Visit) -> Option<Reply> {
        let mut node = buyer.number % self.rig.nodes();
        while Instant::now() < self.deadline {
            visit.attempts += 1;
            let after = match self.client.ask(self.rig.edge(node), &buyer.attempt).await {
                Ok(answer) => match Reply::of(&answer) {
                    Reply::Again(after) => after,
                    reply @ (Reply::Queued(_) | Reply::SoldOut | Reply::Refused(_)) => return Some(reply),
                },
                // The node is away, or went away with the request: another one knows as much.
                Err(_) => AGAIN_AFTER,
            };
            node = (node + 1) % self.rig.nodes();
            sleep(after).await;
        }
        None
    }

    /// Whether the order was a success. `None`: it was pending until the deadline.
    async fn result(&self, buyer: &Buyer, order_no: &str) -> Option<bool> {
        let request = Request::new("GET", &format!("/api/seckill/result/{order_no}"), &[("authorization", &buyer.bearer)], "");
        let (mut node, mut after) = (buyer.number % self.rig.nodes(), RESULT_AFTER);
        while Instant::now() < self.deadline {
            sleep(after).await;
            after = after.mul_f64(1.5).min(RESULT_AFTER_MAX);
            match self.client.ask(self.rig.edge(node), &request).await {
                Ok(answer) if answer.status == 200 => match answer.body["status"].as_str() {
                    Some("success") => return Some(true),
                    Some("fail") => return Some(false),
                    // Pending, or nonsense that stays and is found at the deadline.
                    _ => {}
                },
                Ok(_) | Err(_) => node = (node + 1) % self.rig.nodes(),
            }
        }
        None
    }

    fn first_answer(&self, visit: &mut Visit, due: Instant) {
        if visit.latency.is_none() {
            visit.latency = Some(due.elapsed());
            self.count();
        }
    }

    /// Counts somebody as answered, or sent home without an answer.
    fn count(&self) {
        self.progress.inc(1);
        if self.answered.fetch_add(1, Ordering::AcqRel) + 1 == self.buyers {
            self.everybody.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(status: u16, body: Value) -> Reply {
        Reply::of(&Answer { status, body })
    }

    #[test]
    fn an_order_number_is_what_makes_an_attempt_admitted() {
        assert_eq!(reply(202, json!({ "code": "QUEUED", "orderNo": "SK1" })), Reply::Queued("SK1".into()));
        assert_eq!(reply(202, json!({ "code": "QUEUED" })), Reply::Refused("202 QUEUED".into()));
    }

    #[test]
    fn a_good_client_asks_again_when_it_is_told_to_and_not_longer_than_a_second_later() {
        assert_eq!(reply(503, json!({ "code": "NOT_READY", "retryAfterMs": 300 })), Reply::Again(Duration::from_millis(300)));
        assert_eq!(reply(429, json!({ "code": "RISK_REFUSED", "retryAfterMs": 5_000 })), Reply::Again(AGAIN_MAX));
        assert_eq!(reply(503, Value::Null), Reply::Again(AGAIN_AFTER));
    }

    #[test]
    fn sold_out_sends_home_and_everything_else_is_a_fault() {
        assert_eq!(reply(409, json!({ "code": "SOLD_OUT", "left": 0 })), Reply::SoldOut);
        assert_eq!(reply(409, json!({ "code": "ENDED" })), Reply::Refused("409 ENDED".into()));
        assert_eq!(reply(401, json!({ "code": "UNAUTHENTICATED" })), Reply::Refused("401 UNAUTHENTICATED".into()));
        assert_eq!(reply(500, Value::Null), Reply::Refused("500 ".into()));
    }
}
