//! Answers common questions of users by keyword, so that people are left for the others.
//!
//! Only a user's own text is answered, never an agent's. The host delivers the answer after the message and marks it as the
//! bot's. Configured as [`config::Config`]; README.md says why it is the way it is.

mod config;

use sluice_sdk::text::{Separators, folded};
use sluice_sdk::types::{Effects, Facts, Manifest, Message, Phases, Role, Verdict};
use sluice_sdk::{Host, Policy, configuration};

use crate::config::Config;

/// Longest text that is taken for a common question, in bytes. It bounds the work of a call; who writes more wants a person.
const QUESTION_BYTES_MAX: usize = 1_024;

/// The configured policy.
#[derive(Debug)]
pub struct FaqBot {
    answers: Vec<Answer>,
}

/// One answer; its keywords are folded.
#[derive(Debug)]
struct Answer {
    name: String,
    any: Vec<String>,
    all: Vec<String>,
    none: Vec<String>,
    /// Empty: every shop.
    shops: Vec<u64>,
    reply: String,
}

impl Policy for FaqBot {
    fn configure(config: &str) -> Result<Self, String> {
        configuration::<Config>(config)?.build()
    }

    fn manifest(&self) -> Manifest {
        Manifest { name: "faq-bot".into(), version: env!("CARGO_PKG_VERSION").into(), phases: Phases::MESSAGE, headers: Vec::new() }
    }

    fn on_message(&self, host: &dyn Host, facts: &Facts, message: &Message) -> Verdict {
        let is_user = facts.principal.as_ref().is_some_and(|principal| principal.role == Role::User);
        if !is_user || message.kind != "text" || message.content.len() > QUESTION_BYTES_MAX {
            return Verdict::proceed();
        }
        let question = folded(&message.content, Separators::Drop);
        let Some(answer) = self.answers.iter().find(|answer| answer.fits(message.shop, &question)) else { return Verdict::proceed() };
        host.metric("answered", 1.0);
        let tags = vec![format!("faq:{}", answer.name)];
        Verdict::Proceed(Effects { tags, reply: Some(answer.reply.clone()), ..Effects::default() })
    }
}

impl Answer {
    fn fits(&self, shop: u64, question: &str) -> bool {
        let has = |keyword: &String| question.contains(keyword.as_str());
        (self.shops.is_empty() || self.shops.contains(&shop))
            && (self.any.is_empty() || self.any.iter().any(has))
            && self.all.iter().all(has)
            && !self.none.iter().any(has)
    }
}

#[cfg(target_family = "wasm")]
sluice_sdk::export!(FaqBot);

#[cfg(test)]
mod tests;
