//! How risky an attempt looks: the sum of its signals, and a tag for each.

use sluice_sdk::HeaderBlock;
use sluice_sdk::types::{Facts, Request};

use crate::config::Config;

pub(crate) const USER_AGENT: &str = "user-agent";

/// What the signals add up to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Risk {
    /// 0 to 100.
    pub(crate) score: u8,
    pub(crate) tags: Vec<String>,
}

impl Risk {
    pub(crate) fn of(config: &Config, request: &Request, facts: &Facts, has_device: bool) -> Self {
        let signals = &config.signals;
        let mut risk = Self::default();
        if !has_device {
            risk.add(signals.no_device, Some("no-device"));
        }
        if request.header(USER_AGENT).is_none_or(|agent| agent.trim().is_empty()) {
            risk.add(signals.no_user_agent, Some("no-user-agent"));
        }
        for (tag, score) in &signals.tags {
            if facts.tags.contains(tag) {
                // The policy that left the tag has told everybody already.
                risk.add(*score, None);
            }
        }
        if config.tag_at.is_some_and(|threshold| risk.score >= threshold) {
            risk.tags.push("risky".to_owned());
        }
        risk
    }

    fn add(&mut self, score: u8, tag: Option<&str>) {
        self.score = self.score.saturating_add(score).min(100);
        self.tags.extend(tag.map(str::to_owned));
    }
}
