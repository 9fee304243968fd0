//! Logs and metrics: their formats and names, in one place.
//!
//! No label ever carries a value that a client chose. Called by every shell.

use std::io::IsTerminal;

use anyhow::Context;
use gateway_core::config::{Log, LogFormat};
use prometheus::{Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};
use tracing_subscriber::EnvFilter;

/// Buckets from 0.1 ms to 10 s: a policy call is at the lower end, a slow upstream at the upper.
const SECONDS: [f64; 16] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
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
    policy_seconds: HistogramVec = seconds("policy_seconds", "Time of policy calls.", &["policy"]);
    /// Generations alive over all policies.
    policy_generations_live: IntGauge = IntGauge::new("policy_generations_live", "Policy generations held by somebody.");
    /// Comparisons of a shadow with the live version, by difference; `none` is the word for equal.
    policy_shadow: IntCounterVec = counters("policy_shadow_total", "Verdicts of a shadow compared.", &["policy", "difference"]);
    /// Trials this node has ended.
    policy_rollbacks: IntCounterVec = counters("policy_rollbacks_total", "Trials ended by this node.", &["policy", "reason"]);
    /// Purchase attempts by outcome.
    admit: IntCounterVec = counters("admit_total", "Purchase attempts judged.", &["outcome"]);
    /// Attempts per admission call.
    admit_batch_size: HistogramVec =
        HistogramVec::new(HistogramOpts::new("admit_batch_size", "Attempts per admission call.").buckets(BATCH.to_vec()), &[]);
    /// Orders written.
    orders_persisted: IntCounter = IntCounter::new("orders_persisted_total", "Orders written to the ledger.");
    /// Admitted units for which the ledger had none left. The guard refused them; anything above zero is a fault to look into.
    orders_oversold: IntCounter = IntCounter::new("orders_oversold_total", "Admissions that the ledger's guard refused.");
    /// Order events waiting.
    order_lag_events: IntGauge = IntGauge::new("order_lag_events", "Order events not yet in the ledger.");
    /// Broken invariants of the sales, by name; 0 is well.
    invariant_broken: IntGaugeVec = gauges("invariant_broken", "1 while an invariant does not hold.", &["name"]);
    /// Chat messages committed.
    chat_accepted: IntCounter = IntCounter::new("chat_accepted_total", "Chat messages committed.");
    /// From reading a message off the socket to its commit being announced to the sender.
    chat_accept_seconds: HistogramVec = seconds("chat_accept_seconds", "From socket to announced commit.", &[]);
    /// From commit to the write on a receiver's socket.
    chat_deliver_seconds: HistogramVec = seconds("chat_deliver_seconds", "From commit to a receiver's socket.", &[]);
    /// Messages read again from storage for a socket that was behind.
    chat_replayed: IntCounter = IntCounter::new("chat_replayed_total", "Messages replayed from storage.");
    /// Failed calls to a store.
    store_errors: IntCounterVec = counters("store_errors_total", "Failed calls to a store.", &["store"]);
}

impl Metrics {
    /// The text that Prometheus scrapes.
    pub(crate) fn render(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}
