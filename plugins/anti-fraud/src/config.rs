//! The configuration document, and what is wrong with it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::listed::{Lengths, Lists};

/// A day.
const WINDOW_MS_MAX: u32 = 86_400_000;

/// The configuration document; schema.json says the same for machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// A user, and a device, may try once in this time.
    pub(crate) window_ms: u32,
    /// Attempts one network may make per `network_window_ms`.
    pub(crate) network_limit: u32,
    pub(crate) network_window_ms: u32,
    /// Bits of an IPv4 address that make a network.
    pub(crate) ipv4_prefix: u8,
    /// Bits of an IPv6 address that make a network.
    pub(crate) ipv6_prefix: u8,
    /// Times one user may change devices per `devices_window_ms`; 0 counts no changes.
    pub(crate) devices_limit: u32,
    pub(crate) devices_window_ms: u32,
    /// When a client that is blocked, or too risky, is told to come back.
    pub(crate) blocked_retry_ms: u64,
    /// Lists of those who are refused.
    pub(crate) block: Lists,
    /// Lists of those whose signals and network do not count.
    pub(crate) allow: Lists,
    /// Prefix lengths that entries of the network lists may have.
    pub(crate) lengths: Lengths,
    /// What each signal adds to the score.
    pub(crate) signals: Signals,
    /// Score from which an attempt is tagged `risky`.
    pub(crate) tag_at: Option<u8>,
    /// Score from which an attempt is refused.
    pub(crate) refuse_at: Option<u8>,
}

/// What each signal adds to the score, 0 to 100.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Signals {
    /// The attempt names no device: every app and page of ours does.
    pub(crate) no_device: u8,
    /// The client names no user agent.
    pub(crate) no_user_agent: u8,
    /// An earlier policy left this tag.
    pub(crate) tags: BTreeMap<String, u8>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { no_device: 30, no_user_agent: 20, tags: BTreeMap::new() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window_ms: 5_000,
            network_limit: 200,
            network_window_ms: 1_000,
            ipv4_prefix: 24,
            ipv6_prefix: 48,
            devices_limit: 0,
            devices_window_ms: 3_600_000,
            blocked_retry_ms: 60_000,
            block: Lists::named("block"),
            allow: Lists::named("allow"),
            lengths: Lengths::default(),
            signals: Signals::default(),
            tag_at: Some(50),
            refuse_at: None,
        }
    }
}

impl Config {
    /// The host's rules, told to the operator at load instead of to a client later.
    pub(crate) fn check(&self) -> Result<(), String> {
        let windows =
            [("window_ms", self.window_ms), ("network_window_ms", self.network_window_ms), ("devices_window_ms", self.devices_window_ms)];
        if let Some((member, _)) = windows.iter().find(|(_, window)| !(1..=WINDOW_MS_MAX).contains(window)) {
            return Err(format!("{member} is 1 to 86,400,000"));
        }
        if !(1..=1_000_000).contains(&self.network_limit) || self.devices_limit > 1_000_000 {
            return Err("network_limit is 1 to 1,000,000 and devices_limit 0 to 1,000,000".into());
        }
        if self.ipv4_prefix > 32 || self.ipv6_prefix > 128 {
            return Err("an address has at most 32 (ipv4_prefix) or 128 (ipv6_prefix) bits".into());
        }
        if self.lengths.ipv4.iter().any(|bits| *bits > 32) || self.lengths.ipv6.iter().any(|bits| *bits > 128) {
            return Err("lengths: an address has at most 32 (ipv4) or 128 (ipv6) bits".into());
        }
        // Each is one look-up per attempt.
        if self.lengths.ipv4.len() > 33 || self.lengths.ipv6.len() > 33 {
            return Err("lengths: at most 33 of each kind".into());
        }
        if self.blocked_retry_ms > u64::from(WINDOW_MS_MAX) {
            return Err("blocked_retry_ms is at most 86,400,000".into());
        }
        if self.signals.tags.len() > 64 {
            return Err("signals.tags: at most 64".into());
        }
        let scores = [self.signals.no_device, self.signals.no_user_agent].into_iter().chain(self.signals.tags.values().copied());
        if scores.chain(self.tag_at).chain(self.refuse_at).any(|score| score > 100) {
            return Err("signals, tag_at and refuse_at are 0 to 100".into());
        }
        if self.tag_at == Some(0) || self.refuse_at == Some(0) {
            return Err("tag_at and refuse_at of 0 would meet every attempt".into());
        }
        Ok(())
    }
}
