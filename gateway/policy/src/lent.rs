//! What the host lends a guest during a call: judging tokens, lists, log and counters, each within a bound.
//!
//! What never happens here: waiting. Every import is a look into memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use gateway_core::principal::Principal;
use gateway_core::time::UnixMillis;

use crate::bindings::{identity, lists, telemetry, wit};
use crate::convert;
use crate::identity::{Verifier, VerifyError};
use crate::lists::Lists;

/// Tokens one call may have judged. A signature costs up to 100 µs of host time, during which no epoch is checked.
const TOKENS_PER_CALL_MAX: usize = 4;

/// Log lines, and counter values, one call may leave.
const LINES_PER_CALL_MAX: u32 = 16;
const VALUES_PER_CALL_MAX: u32 = 16;

/// Entries of a list that one question hands over, and bytes of all of them: copying more would hold up the thread.
const ENTRIES_LENT_MAX: usize = 65_536;
const ENTRY_BYTES_LENT_MAX: usize = 1 << 20;

/// Longest log line, in bytes.
const LINE_BYTES_MAX: usize = 1_024;

/// Counters one policy may name over its whole life: each becomes a time series.
const COUNTERS_PER_POLICY_MAX: usize = 32;

/// Takes `(policy, counter, value)`. Called on the request's thread, so it must be quick.
pub type MetricSink = Arc<dyn Fn(&str, &str, f64) + Send + Sync>;

/// Whoever says who is behind a token.
pub(crate) trait Judge: Send + Sync {
    /// Who is behind `token` at `now`, or one word for why nobody is.
    fn judge(&self, token: &str, now: UnixMillis) -> Result<Principal, &'static str>;
}

impl Judge for Verifier {
    fn judge(&self, token: &str, now: UnixMillis) -> Result<Principal, &'static str> {
        self.verify(token, now).map_err(VerifyError::as_str)
    }
}

/// The host's side of the imports, one per policy.
pub(crate) struct Lent {
    pub(crate) policy: Arc<str>,
    pub(crate) verifier: Arc<dyn Judge>,
    pub(crate) lists: Arc<Lists>,
    pub(crate) sink: MetricSink,
    /// Counters named so far.
    pub(crate) counters: Mutex<BTreeSet<String>>,
}

impl Lent {
    fn count(&self, name: &str, value: f64) {
        let well_named = (1..=40).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !well_named || !value.is_finite() || value < 0.0 {
            return;
        }
        {
            let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
            if !counters.contains(name) {
                if counters.len() >= COUNTERS_PER_POLICY_MAX {
                    return;
                }
                counters.insert(name.to_owned());
            }
        }
        (self.sink)(&self.policy, name, value);
    }
}

/// What one call has been lent so far.
pub(crate) struct Loan {
    lent: Arc<Lent>,
    /// The version that is named in the log.
    version: Arc<str>,
    now: UnixMillis,
    proved: Vec<Principal>,
    tokens_judged: usize,
    lines: u32,
    values: u32,
}

impl Loan {
    pub(crate) fn new(lent: Arc<Lent>, version: Arc<str>) -> Self {
        Self { lent, version, now: UnixMillis(0), proved: Vec::new(), tokens_judged: 0, lines: 0, values: 0 }
    }

    /// A new call begins at `now`.
    pub(crate) fn renew(&mut self, now: UnixMillis) {
        self.now = now;
        self.proved.clear();
        (self.tokens_judged, self.lines, self.values) = (0, 0, 0);
    }

    /// The identities that were proved during this call: no other may stand in its verdict.
    pub(crate) fn proved(&self) -> &[Principal] {
        &self.proved
    }
}

impl identity::Host for Loan {
    fn verify(&mut self, token: String) -> Result<identity::Principal, String> {
        if self.tokens_judged >= TOKENS_PER_CALL_MAX {
            return Err("too-many-tokens".to_owned());
        }
        self.tokens_judged += 1;
        let principal = self.lent.verifier.judge(&token, self.now)?;
        let lent = convert::owned_principal(&principal);
        self.proved.push(principal);
        Ok(lent)
    }
}

impl lists::Host for Loan {
    fn contains(&mut self, list: String, key: String) -> bool {
        self.lent.lists.contains(&list, &key)
    }

    fn version(&mut self, list: String) -> u64 {
        self.lent.lists.version(&list)
    }

    fn entries(&mut self, list: String) -> Vec<String> {
        let mut bytes = 0;
        let fits = |entry: &&Arc<str>| {
            bytes += entry.len();
            bytes <= ENTRY_BYTES_LENT_MAX
        };
        self.lent.lists.entries(&list).iter().take(ENTRIES_LENT_MAX).take_while(fits).map(|entry| String::from(&**entry)).collect()
    }
}

impl telemetry::Host for Loan {
    fn log(&mut self, level: telemetry::Level, text: String) {
        if self.lines >= LINES_PER_CALL_MAX {
            return;
        }
        self.lines += 1;
        let line = &text[..text.floor_char_boundary(LINE_BYTES_MAX)];
        let (policy, version) = (&*self.lent.policy, &*self.version);
        match level {
            telemetry::Level::Debug => tracing::debug!(target: "sluice::guest", policy, version, line),
            telemetry::Level::Info => tracing::info!(target: "sluice::guest", policy, version, line),
            telemetry::Level::Warn => tracing::warn!(target: "sluice::guest", policy, version, line),
            telemetry::Level::Error => tracing::error!(target: "sluice::guest", policy, version, line),
        }
    }

    fn metric(&mut self, name: String, value: f64) {
        if self.values >= VALUES_PER_CALL_MAX {
            return;
        }
        self.values += 1;
        self.lent.count(&name, value);
    }
}

impl wit::Host for Loan {}
