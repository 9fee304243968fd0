//! The key set behind `tokens.jwks_url`: fetched, refreshed, and fetched once more when somebody comes with a key that nobody
//! here knows.
//!
//! What lives here: when to fetch, what is accepted of an answer, and when keys are too old to be believed ([`Plan`]). What
//! never happens here: judging a token, or taking an address from one. One task fetches; whoever needs a key waits for it,
//! never longer than [`PATIENCE`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use gateway_core::config::JwksUrl;
use gateway_core::ports::{PortError, PortErrorKind, Store};
use gateway_policy::{Keys, KeysError, Verifier};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, StatusCode};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::health::{self, Dependency};
use crate::telemetry::Metrics;

/// How long a request waits for a key that is being fetched.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one fetch may take, and how long its connection may take to be made.
const FETCH_MAX: Duration = Duration::from_secs(5);
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Largest key set. Sixty-four RSA keys with their certificates are below this.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Redirects followed, each to the same scheme, host and port.
const REDIRECTS_MAX: usize = 3;
/// After a failed fetch the next one comes after this long, then after twice as long, and so on up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How often the age is shown.
const TICK: Duration = Duration::from_secs(1);

/// A key set that keeps itself fresh.
pub(crate) struct Jwks {
    url: String,
    client: Client,
    verifier: Arc<Verifier>,
    metrics: Arc<Metrics>,
    plan: Mutex<Plan>,
    asked: Notify,
    /// Counts fetches that ended.
    ended: watch::Sender<u64>,
    /// Why there are no keys, or none of late.
    problem: Mutex<Option<FetchError>>,
}

/// Why a fetch brought no keys.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("it has not been fetched yet")]
    NotYet,
    #[error("it cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("it is larger than {BODY_BYTES_MAX} bytes")]
    TooLarge,
    #[error("it is not text")]
    NotText,
    #[error("it cannot be used")]
    Keys(#[source] KeysError),
}

impl FetchError {
    fn word(&self) -> &'static str {
        match self {
            Self::NotYet => "none",
            Self::Unreachable(_) => "unreachable",
            Self::Status(_) => "status",
            Self::TooLarge => "too-large",
            Self::NotText | Self::Keys(_) => "unusable",
        }
    }
}

impl Jwks {
    /// Starts fetching for `verifier`, which knows no key until the first fetch. Does not wait for it. The task runs as long
    /// as the process.
    pub(crate) fn start(settings: &JwksUrl, verifier: Arc<Verifier>, metrics: Arc<Metrics>) -> anyhow::Result<Arc<Self>> {
        let jwks = Arc::new(Self {
            url: settings.url.clone(),
            client: client().context("tokens.jwks_url: cannot set up TLS")?,
            verifier,
            metrics,
            plan: Mutex::new(Plan::new(settings, Instant::now())),
            asked: Notify::new(),
            ended: watch::channel(0).0,
            problem: Mutex::new(Some(FetchError::NotYet)),
        });
        jwks.metrics.jwks_age_seconds.set(-1);
        tokio::spawn(jwks.clone().run());
        Ok(jwks)
    }

    /// Makes sure that the keys of `tokens` were looked for: if one is unknown, and nobody asked for it a moment ago, waits
    /// for one fetch, which everybody who waits shares.
    pub(crate) async fn look_for_keys(&self, tokens: &[&str]) {
        if tokens.iter().all(|token| self.verifier.key_is_known(token)) {
            return;
        }
        // Subscribed before asking, so that the end of the fetch cannot fall between the two.
        let mut ended = self.ended.subscribe();
        if !self.plan().ask(Instant::now()) {
            return;
        }
        self.asked.notify_one();
        let _ = timeout(PATIENCE, ended.changed()).await;
    }

    async fn run(self: Arc<Self>) {
        loop {
            let due = self.plan().due().min(Instant::now() + TICK);
            // Both branches are cancel safe: a notification that came meanwhile is kept.
            tokio::select! {
                () = self.asked.notified() => {}
                () = sleep_until(due) => {}
            }
            if self.plan().begin(Instant::now()) {
                let outcome = self.fetch().await;
                self.take(outcome);
                self.ended.send_modify(|count| *count += 1);
            }
            let (gone, age) = {
                let (mut plan, now) = (self.plan(), Instant::now());
                (plan.gone_stale(now), plan.age(now))
            };
            if gone {
                self.verifier.forget_keys();
                tracing::error!(
                    url = self.url,
                    "the token keys are too old to be believed: every token is refused until they can be fetched"
                );
            }
            self.metrics.jwks_age_seconds.set(age.map_or(-1, |age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX)));
        }
    }

    /// The answer of the server, taken as keys.
    fn take(&self, outcome: Result<String, FetchError>) {
        let outcome = outcome.and_then(|text| {
            // Replacing keys forgets which tokens were checked already, so keys that stay the same are not replaced.
            if self.plan().is_news(&text) {
                self.verifier.replace(Keys::Jwks(text.clone())).map_err(FetchError::Keys)?;
            }
            Ok(text)
        });
        let word = outcome.as_ref().map_or_else(FetchError::word, |_| "ok");
        self.metrics.jwks_fetch.with_label_values(&[word]).inc();
        let problem = match outcome {
            Ok(text) => {
                self.plan().succeeded(text, Instant::now());
                None
            }
            Err(error) => {
                self.plan().failed(Instant::now());
                tracing::warn!(url = self.url, error = health::chain(&error), "cannot fetch the token keys");
                Some(error)
            }
        };
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    async fn fetch(&self) -> Result<String, FetchError> {
        let mut response = self.client.get(&self.url).send().await.map_err(FetchError::Unreachable)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(FetchError::Unreachable)? {
            if body.len() + part.len() > BODY_BYTES_MAX {
                return Err(FetchError::TooLarge);
            }
            body.extend_from_slice(&part);
        }
        String::from_utf8(body).map_err(|_| FetchError::NotText)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `/readyz` calls a node unready while it would refuse every token. Keys that are old and still believed are no reason.
#[async_trait]
impl Dependency for Jwks {
    fn name(&self) -> &'static str {
        "jwks"
    }

    async fn ping(&self) -> Result<(), PortError> {
        if self.plan().has_keys() {
            return Ok(());
        }
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = problem.as_ref().map_or_else(String::new, |problem| health::chain(problem));
        Err(PortError { kind: PortErrorKind::Unavailable, store: Store::Jwks, doing: "fetch the token keys", source: Some(problem.into()) })
    }
}

fn client() -> anyhow::Result<Client> {
    // Whoever is first chooses the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().connect_timeout(CONNECT_MAX).timeout(FETCH_MAX).redirect(Policy::custom(redirected));
    Ok(client.build()?)
}

/// A redirect may lead to another path and nowhere else: who can make the server say one must not choose the keys, nor make
/// this process ask around in its network.
fn redirected(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let same_origin = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if !same_origin {
        attempt.error("it redirects to another server")
    } else if attempt.previous().len() > REDIRECTS_MAX {
        attempt.error("it redirects too often")
    } else {
        attempt.follow()
    }
}

/// When to fetch, and how long to believe what was fetched. Told the time, and does nothing itself.
#[derive(Debug)]
struct Plan {
    refresh: Duration,
    cooldown: Duration,
    stale: Duration,
    next: Instant,
    failures: u32,
    /// Whether somebody waits for a fetch that has not begun.
    wanted: bool,
    fetching: bool,
    /// When an unknown key last brought a fetch about.
    asked: Option<Instant>,
    /// The set in use, and when it was last seen.
    keys: Option<(String, Instant)>,
    /// Since when it cannot be fetched.
    failing: Option<Instant>,
}

impl Plan {
    fn new(settings: &JwksUrl, now: Instant) -> Self {
        let JwksUrl { refresh, cooldown, stale, .. } = *settings;
        Self { refresh, cooldown, stale, next: now, failures: 0, wanted: false, fetching: true, asked: None, keys: None, failing: None }
    }

    /// Somebody comes with an unknown key. Whether a fetch is worth waiting for.
    fn ask(&mut self, now: Instant) -> bool {
        if self.fetching || self.wanted {
            return true;
        }
        if self.asked.is_some_and(|asked| now < asked + self.cooldown) {
            return false;
        }
        self.asked = Some(now);
        self.wanted = true;
        true
    }

    /// When there is something to do.
    fn due(&self) -> Instant {
        let stale = self.failing.filter(|_| self.keys.is_some()).map(|failing| failing + self.stale);
        stale.map_or(self.next, |stale| stale.min(self.next))
    }

    /// Whether to fetch now.
    fn begin(&mut self, now: Instant) -> bool {
        self.fetching = self.wanted || now >= self.next;
        self.wanted = false;
        self.fetching
    }

    /// Whether `text` is not the set in use.
    fn is_news(&self, text: &str) -> bool {
        self.keys.as_ref().is_none_or(|(known, _)| known != text)
    }

    fn succeeded(&mut self, text: String, now: Instant) {
        self.keys = Some((text, now));
        (self.fetching, self.failures, self.failing) = (false, 0, None);
        self.next = now + self.refresh;
    }

    fn failed(&mut self, now: Instant) {
        let wait = RETRY_MIN.saturating_mul(1 << self.failures.min(8)).min(RETRY_MAX).min(self.refresh);
        self.fetching = false;
        self.failures += 1;
        self.failing.get_or_insert(now);
        self.next = now + wait;
    }

    /// Whether the keys have just become too old; then they are gone.
    fn gone_stale(&mut self, now: Instant) -> bool {
        let stale = self.failing.is_some_and(|failing| now >= failing + self.stale);
        stale && self.keys.take().is_some()
    }

    fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    fn age(&self, now: Instant) -> Option<Duration> {
        self.keys.as_ref().map(|(_, seen)| now.saturating_duration_since(*seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn plan(now: Instant) -> Plan {
        let url = String::new();
        Plan::new(&JwksUrl { url, refresh: SECOND * 300, cooldown: SECOND * 10, stale: SECOND * 60 }, now)
    }

    /// A plan whose first fetch has just succeeded.
    fn fetched(now: Instant) -> Plan {
        let mut plan = plan(now);
        assert!(plan.begin(now));
        plan.succeeded("keys".into(), now);
        plan
    }

    #[test]
    fn the_first_fetch_is_due_at_once_and_who_comes_meanwhile_waits_for_it() {
        let now = Instant::now();
        let mut plan = plan(now);
        assert!(plan.ask(now) && plan.due() <= now);
        assert!(plan.begin(now));
        plan.succeeded("keys".into(), now);
        assert_eq!(plan.due(), now + SECOND * 300);
        assert!(!plan.begin(now + SECOND), "nobody asked");
    }

    #[test]
    fn a_thousand_unknown_keys_are_one_fetch_in_each_cool_down() {
        let start = Instant::now();
        let mut plan = fetched(start);
        let mut fetches = 0;
        for number in 0..1_000 {
            let now = start + SECOND * number / 40;
            plan.ask(now);
            if plan.begin(now) {
                fetches += 1;
                plan.succeeded("keys".into(), now);
            }
        }
        assert_eq!(fetches, 3, "at 0 s, 10 s and 20 s of 25 s");
    }

    #[test]
    fn everybody_waits_for_a_fetch_that_is_wanted_or_under_way() {
        let now = Instant::now();
        let mut plan = fetched(now);
        assert!(plan.ask(now) && plan.ask(now));
        assert!(plan.begin(now));
        assert!(plan.ask(now));
        plan.failed(now);
        assert!(!plan.ask(now));
    }

    #[test]
    fn failures_are_repeated_slower_and_slower_and_a_success_ends_that() {
        let mut now = Instant::now();
        let mut plan = fetched(now);
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            now = plan.next;
            assert!(plan.begin(now));
            plan.failed(now);
            assert_eq!(plan.next, now + SECOND * wait);
        }
        plan.succeeded("keys".into(), now);
        plan.failed(now);
        assert_eq!(plan.next, now + SECOND);
    }

    #[test]
    fn keys_are_believed_for_a_time_after_the_first_failure_and_then_forgotten_once() {
        let start = Instant::now();
        let mut plan = fetched(start);
        let failing = start + SECOND * 300;
        for second in [0, 1, 30, 59] {
            let now = failing + SECOND * second;
            plan.failed(now);
            assert!(!plan.gone_stale(now) && plan.has_keys());
        }
        assert_eq!(plan.due().min(failing + SECOND * 60), plan.due(), "awake when they become too old");
        assert!(plan.gone_stale(failing + SECOND * 60));
        assert!(!plan.has_keys() && !plan.gone_stale(failing + SECOND * 61));
        assert_eq!(plan.age(failing), None);
        assert!(plan.is_news("keys"), "the same keys are believed again");
    }
}
