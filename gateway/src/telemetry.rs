//! Logs and metrics: their formats and names, in one place.
//!
//! No label ever carries a value that a client chose. Called by every shell.

use std::io::IsTerminal;

use anyhow::Context;
use gateway_core::config::{Log, LogFormat};
use gateway_core::policy::chain::Decision;
use gateway_core::ports::PolicyStatus;
use prometheus::core::Collector;
use prometheus::{
    CounterVec, Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use tracing_subscriber::EnvFilter;

/// Buckets from 0.1 ms to 10 s: an answer of our own is at the lower end, a slow upstream at the upper.
const SECONDS: [f64; 16] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Buckets from 1 µs to 1 s: a warm call of a policy takes one or two, one that is stopped takes what its policy allows.
const CALL_SECONDS: [f64; 16] = [1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 1e-1, 1.0];
/// Buckets from a second to a day: people answer people.
const HUMAN_SECONDS: [f64; 12] = [1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0];
/// Batches hold 1 to 64 attempts.
const BATCH: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Starts logging to standard error. `RUST_LOG` overrides `log.level`.
pub(crate) fn start_logging(settings: Log) -> anyhow::Result<()> {
    // Pingora and the connection managers log each closed keep-alive connection; that is traffic, not news.
    let level = settings.level.as_str();
    let quiet = format!("{level},pingora_core=error,pingora_proxy=error,sqlx=warn,async_nats=error,cranelift=warn");
    let filter = match std::env::var("RUST_LOG") {
        Ok(wanted) => EnvFilter::try_new(&wanted).with_context(|| format!("RUST_LOG={wanted} is not a log filter"))?,
        Err(_) => EnvFilter::try_new(&quiet).with_context(|| format!("log.level = {level} is not a log filter"))?,
    };
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    match settings.format {
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
        LogFormat::Text => logs.compact().init(),
    }
    Ok(())
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $field:ident: $type:ident = $make:expr;)*) => {
        /// Every metric of the process; names start with `sluice_`.
        pub(crate) struct Metrics {
            registry: Registry,
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Metrics {
            /// Registers every metric.
            pub(crate) fn new() -> Result<Self, prometheus::Error> {
                let registry = Registry::new_custom(Some("sluice".into()), None)?;
                $(let $field = $make?; registry.register(Box::new($field.clone()))?;)*
                Ok(Self { registry, $($field,)* })
            }

            /// The full name of every metric.
            #[cfg(test)]
            fn names(&self) -> std::collections::BTreeSet<String> {
                [$(self.$field.desc(),)*].concat().iter().map(|desc| format!("sluice_{}", desc.fq_name)).collect()
            }
        }
    };
}

fn seconds(name: &str, help: &str, labels: &[&str]) -> Result<HistogramVec, prometheus::Error> {
    HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), labels)
}

fn counters(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    IntGaugeVec::new(Opts::new(name, help), labels)
}

metrics! {
    /// Answered requests.
    http_requests: IntCounterVec = counters("http_requests_total", "Answered requests.", &["route", "status"]);
    /// From the request's head to the end of the answer.
    http_request_seconds: HistogramVec = seconds("http_request_seconds", "From the request's head to the end of the answer.", &["route"]);
    /// From choosing a peer to the upstream's response head.
    upstream_seconds: HistogramVec = seconds("upstream_seconds", "From choosing a peer to its response head.", &["group"]);
    /// Open connections: `http`, or `chat`.
    connections: IntGaugeVec = gauges("connections", "Open connections.", &["kind"]);
    /// Policy calls by outcome.
    policy_calls: IntCounterVec = counters("policy_calls_total", "Policy calls.", &["policy", "version", "outcome"]);
    /// Time of policy calls.
    policy_seconds: HistogramVec = HistogramVec::new(
        HistogramOpts::new("policy_seconds", "Time of policy calls.").buckets(CALL_SECONDS.to_vec()), &["policy"]);
    /// Charges that could not be made because the accounts were away: `open`, the request went on; `closed`, it was refused;
    /// `dry`, the policy does not enforce.
    policy_budgets_unreachable: IntCounterVec =
        counters("policy_budgets_unreachable_total", "Charges whose accounts could not be reached.", &["outcome"]);
    /// Fetches of the token key set, by outcome.
    jwks_fetch: IntCounterVec = counters("jwks_fetch_total", "Fetches of the token key set.", &["outcome"]);
    /// Age of the token key set in use, in seconds; −1 while there is none.
    jwks_age_seconds: IntGauge = IntGauge::new("jwks_age_seconds", "Age of the token key set in use; -1 while there is none.");
    /// Lines of the recording: `kept`, or `dropped` because the disk was slower than the requests.
    recorded: IntCounterVec = counters("recorded_total", "Lines of the recording.", &["outcome"]);
    /// Generations alive over all policies.
    policy_generations_live: IntGauge = IntGauge::new("policy_generations_live", "Policy generations held by somebody.");
    /// Comparisons of a shadow with the live version, by difference; `none` is the word for equal.
    policy_shadow: IntCounterVec = counters("policy_shadow_total", "Verdicts of a shadow compared.", &["policy", "difference"]);
    /// Trials this node has ended.
    policy_rollbacks: IntCounterVec = counters("policy_rollbacks_total", "Trials ended by this node.", &["policy", "reason"]);
    /// What guests count; the host bounds how many counters a policy may name.
    policy_counter: CounterVec = CounterVec::new(Opts::new("policy_counter_total", "Counters of the guests."), &["policy", "counter"]);
    /// Purchase attempts by outcome.
    admit: IntCounterVec = counters("admit_total", "Purchase attempts judged.", &["outcome"]);
    /// Attempts per admission call.
    admit_batch_size: HistogramVec =
        HistogramVec::new(HistogramOpts::new("admit_batch_size", "Attempts per admission call.").buckets(BATCH.to_vec()), &[]);
    /// Admission batches answered before as many replicas of Redis as `redis.wait_replicas` says are known to have them.
    admit_unreplicated: IntCounter =
        IntCounter::new("admit_unreplicated_total", "Admission batches answered before enough replicas had them.");
    /// Orders written. An event that comes again at the same worker is not counted again.
    orders_persisted: IntCounter = IntCounter::new("orders_persisted_total", "Orders written to the ledger.");
    /// Admitted units for which the ledger had none left. The guard refused them; anything above zero is a fault to look into.
    orders_oversold: IntCounter = IntCounter::new("orders_oversold_total", "Admissions that the ledger's guard refused.");
    /// Orders closed, by reason: `expired` or `cancelled`.
    orders_closed: IntCounterVec = counters("orders_closed_total", "Orders closed unpaid.", &["reason"]);
    /// Order events waiting in the lots of this worker.
    order_lag_events: IntGauge = IntGauge::new("order_lag_events", "Order events not yet in the ledger.");
    /// Lots of this worker of which an invariant does not hold, by the invariant's name; 0 is well.
    invariant_broken: IntGaugeVec = gauges("invariant_broken", "Lots of which an invariant does not hold.", &["name"]);
    /// Entries of the compensation list that wait for an operator.
    compensations_open: IntGauge = IntGauge::new("compensations_open", "Compensations that wait for an operator.");
    /// Attempts at refunds: `sent`, `failed` (tried again later), `given_up` (on the compensation list).
    refunds: IntCounterVec = counters("refunds_total", "Attempts at refunds.", &["outcome"]);
    /// Chat messages committed.
    chat_accepted: IntCounter = IntCounter::new("chat_accepted_total", "Chat messages committed.");
    /// From reading a message off the socket to its commit being announced to the sender.
    chat_accept_seconds: HistogramVec = seconds("chat_accept_seconds", "From socket to announced commit.", &[]);
    /// From commit to the write on a receiver's socket.
    chat_deliver_seconds: HistogramVec = seconds("chat_deliver_seconds", "From commit to a receiver's socket.", &[]);
    /// Messages that the ledger cannot take, on the compensation list.
    chat_set_aside: IntCounter = IntCounter::new("chat_set_aside_total", "Chat messages that became compensations.");
    /// Messages read again from storage for a socket that was behind.
    chat_replayed: IntCounter = IntCounter::new("chat_replayed_total", "Messages replayed from storage.");
    /// Chat messages that went to the ledger without the queue.
    chat_direct: IntCounter = IntCounter::new("chat_direct_total", "Chat messages committed while the queue was away.");
    /// Chat sockets that ended, by the close code they were told; `none`, the client ended it.
    chat_closed: IntCounterVec = counters("chat_closed_total", "Chat sockets that ended.", &["code"]);
    /// Times a socket was told to compare its positions because events had been lost on the way to it.
    chat_lost: IntCounter = IntCounter::new("chat_lost_total", "Times that events for a socket were lost inside.");
    /// Answers of bots left out because the queue of their shop was long, or away.
    chat_bot_dropped: IntCounter = IntCounter::new("chat_bot_dropped_total", "Answers of bots that were left out.");
    /// Queued messages of the shops whose bots speak: those above `chat.backlog_max` are `long`, the others `short`.
    chat_queue_depth: IntGaugeVec = gauges("chat_queue_depth", "Queued chat messages of shops with bots.", &["shop_class"]);
    /// How long users waited for a person's first answer and for each later one, and how long sessions were open, by clock.
    chat_response_seconds: HistogramVec = HistogramVec::new(
        HistogramOpts::new("chat_response_seconds", "What the clocks of service levels showed when they stopped.").buckets(HUMAN_SECONDS.to_vec()),
        &["clock"]);
    /// Clocks that ran longer than their targets, each told once.
    chat_overdue: IntCounterVec = counters("chat_overdue_total", "Clocks of service levels that ran too long.", &["clock"]);
    /// Sessions that changed hands, by reason.
    chat_handovers: IntCounterVec = counters("chat_handovers_total", "Sessions that changed hands.", &["reason"]);
    /// Sessions of all shops that nobody serves, as the worker that looks after them counted last.
    chat_waiting: IntGauge = IntGauge::new("chat_waiting", "Sessions that nobody serves.");
    /// Failed calls to a store.
    store_errors: IntCounterVec = counters("store_errors_total", "Failed calls to a store.", &["store"]);
}

/// Every word of `outcome` in `policy_calls_total`.
const OUTCOMES: [&str; 8] = ["proceed", "refuse", "would-refuse", "missing", "trap", "timeout", "overload", "bad-verdict"];

impl Metrics {
    /// Counts what a chain was answered.
    pub(crate) fn count(&self, decisions: &[Decision]) {
        for decision in decisions {
            self.policy_calls.with_label_values(&[&*decision.policy, &*decision.version, decision.outcome.as_str()]).inc();
            self.policy_seconds.with_label_values(&[&*decision.policy]).observe(f64::from(decision.micros) / 1e6);
        }
    }

    /// Forgets the series of versions that are no longer loaded, of which a node sees any number over its life. Called after
    /// a scrape, so that the last values of a version are still read once.
    pub(crate) fn forget_versions(&self, policies: &[PolicyStatus]) {
        let families = self.policy_calls.collect();
        for series in families.iter().flat_map(|family| family.get_metric()) {
            let label = |wanted: &str| series.get_label().iter().find(|label| label.name() == wanted).map_or("", |label| label.value());
            let (policy, version) = (label("policy"), label("version"));
            // A policy that is not loaded has no version, and stays.
            if version.is_empty() || policies.iter().any(|status| status.name == policy && is_loaded(status, version)) {
                continue;
            }
            for outcome in OUTCOMES {
                let _ = self.policy_calls.remove_label_values(&[policy, version, outcome]);
            }
        }
    }

    /// The text that Prometheus scrapes.
    pub(crate) fn render(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

fn is_loaded(status: &PolicyStatus, version: &str) -> bool {
    let candidate = status.candidate.as_ref().map(|candidate| candidate.version.as_str());
    [status.version.as_deref(), candidate, status.standby.as_deref()].contains(&Some(version))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gateway_core::policy::Phase;
    use gateway_core::policy::chain::DecisionOutcome;
    use gateway_core::policy::regression::Counts;

    use super::*;

    /// Every name with our prefix that stands in `text`.
    fn named(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("sluice_")).map(str::to_owned).collect()
    }

    #[test]
    fn a_dashboard_shows_what_there_is() {
        let dashboard: serde_json::Value = serde_json::from_str(include_str!("../../config/grafana/policies.json")).unwrap();
        let known = Metrics::new().unwrap().names();
        let panels = dashboard["panels"].as_array().unwrap();
        for panel in panels {
            let targets = panel["targets"].as_array().unwrap();
            let names: BTreeSet<_> = targets.iter().flat_map(|target| named(target["expr"].as_str().unwrap())).collect();
            assert!(!names.is_empty(), "{panel}");
            for name in names {
                // A histogram is read by its buckets.
                let metric = name.strip_suffix("_bucket").unwrap_or(&name);
                assert!(known.contains(metric), "{} shows {name}, which is no metric", panel["title"]);
            }
        }
        let shown = named(&dashboard.to_string());
        for name in [
            "sluice_policy_calls_total",
            "sluice_policy_seconds_bucket",
            "sluice_policy_shadow_total",
            "sluice_policy_rollbacks_total",
            "sluice_policy_generations_live",
            "sluice_policy_budgets_unreachable_total",
            "sluice_jwks_age_seconds",
        ] {
            assert!(shown.contains(name), "{name} is shown nowhere");
        }
    }

    #[test]
    fn series_of_versions_that_are_gone_are_forgotten() {
        let metrics = Metrics::new().unwrap();
        let decision = |version: &str| Decision {
            policy: "p".into(),
            version: version.into(),
            phase: Phase::Request,
            micros: 1,
            outcome: DecisionOutcome::Refuse("NO".into()),
        };
        metrics.count(&["old", "live", "kept", ""].map(decision));
        let status = PolicyStatus {
            name: "p".into(),
            plugin: "p".into(),
            version: Some("live".into()),
            error: None,
            generations_live: 1,
            counts: Counts::default(),
            candidate: None,
            standby: Some("kept".into()),
        };
        metrics.forget_versions(&[status]);
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        let left: Vec<_> = text.lines().filter(|line| line.starts_with("sluice_policy_calls_total")).collect();
        assert_eq!(left.len(), 3, "{left:#?}");
        assert!(!text.contains("\"old\""), "{text}");
    }
}
