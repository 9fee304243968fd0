//! Finds listed words in chat messages, however they are written, and masks them or refuses the message.
//!
//! Words come from the configuration and from the operator's lists. What is derived from them is kept between calls and made
//! again when a list changes; it changes no answer, only its price. Configured as [`config::Config`]; README.md says why it
//! is the way it is.

mod config;
mod finder;
mod mask;

use std::sync::{Mutex, PoisonError};

use sluice_sdk::types::{Effects, Facts, Manifest, Message, Phases, Refusal, Verdict};
use sluice_sdk::{Host, Level, Policy, configuration};

use crate::config::{Action, Config};
use crate::finder::{Finder, Hit, Words};
use crate::mask::Mask;

/// Longest text the host takes in place of a message.
const REPLACEMENT_BYTES_MAX: usize = 16_384;

/// The configured policy.
#[derive(Debug)]
pub struct SensitiveWords {
    config: Config,
    kept: Mutex<Option<Kept>>,
}

/// The finder, and the versions of the lists it was made from.
#[derive(Debug)]
struct Kept {
    versions: Vec<u64>,
    finder: Finder,
}

impl Policy for SensitiveWords {
    fn configure(config: &str) -> Result<Self, String> {
        let config: Config = configuration(config)?;
        config.check()?;
        Ok(Self { config, kept: Mutex::new(None) })
    }

    fn manifest(&self) -> Manifest {
        Manifest { name: "sensitive-words".into(), version: env!("CARGO_PKG_VERSION").into(), phases: Phases::MESSAGE, headers: Vec::new() }
    }

    fn on_message(&self, host: &dyn Host, _facts: &Facts, message: &Message) -> Verdict {
        if !self.config.kinds.contains(&message.kind) {
            return Verdict::proceed();
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked before the entries: a list that changes in between is read again by the next call.
        let versions: Vec<u64> = self.config.lists.iter().map(|list| list.list.as_ref().map_or(0, |name| host.version(name))).collect();
        let kept = match kept.take() {
            Some(fresh) if fresh.versions == versions => kept.insert(fresh),
            _ => kept.insert(Kept { versions, finder: self.finder(host) }),
        };
        self.judge(host, &kept.finder, message)
    }
}

impl SensitiveWords {
    fn finder(&self, host: &dyn Host) -> Finder {
        let mut words = Words::new(self.config.separators.into());
        for (index, list) in self.config.lists.iter().enumerate() {
            list.words.iter().for_each(|word| words.add(index, word));
            if let Some(name) = &list.list {
                host.entries(name).iter().for_each(|word| words.add(index, word));
            }
        }
        if words.left_out > 0 {
            host.log(
                Level::Error,
                &format!("{} words are too long, too many or nothing but separators, and are not looked for", words.left_out),
            );
            host.metric("words_left_out", f64::from(words.left_out));
        }
        words.finder(self.config.whole_words)
    }

    fn judge(&self, host: &dyn Host, finder: &Finder, message: &Message) -> Verdict {
        let lists = &self.config.lists;
        let mut hits = vec![0_u32; lists.len()];
        let mut mask = Mask::new(&message.content);
        let mut refuses = false;
        finder.find(&message.content, |Hit { list, folded, range }| {
            hits[list] += 1;
            // What is no text cannot be masked and stay what it is.
            refuses = lists[list].action == Action::Refuse || message.kind != "text";
            if !refuses {
                mask.cover(folded, range);
            }
            !refuses
        });

        let mut tags = Vec::new();
        for (list, hits) in lists.iter().zip(&hits).filter(|(_, hits)| **hits > 0) {
            host.metric(&list.metric(), f64::from(*hits));
            tags.push(format!("words:{}", list.name));
        }
        if tags.is_empty() {
            return Verdict::proceed();
        }
        let masked = mask.apply();
        if refuses || masked.len() > REPLACEMENT_BYTES_MAX {
            let config::RefusalConfig { code, message } = &self.config.refusal;
            return Verdict::Refuse(Refusal::new(400, code, message));
        }
        Verdict::Proceed(Effects { tags, replace: Some(masked), ..Effects::default() })
    }
}

#[cfg(target_family = "wasm")]
sluice_sdk::export!(SensitiveWords);

#[cfg(test)]
mod tests;
