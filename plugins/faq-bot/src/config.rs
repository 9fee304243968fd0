//! The configuration document, and what is wrong with it.

use serde::Deserialize;
use sluice_sdk::text::{Separators, folded};

use crate::{Answer, FaqBot};

/// Together with the longest question these bound the work of a call.
const ANSWERS_MAX: usize = 200;
const KEYWORDS_MAX: usize = 20;
const KEYWORD_BYTES_MAX: usize = 192;

/// Longest text the host takes as a reply.
const REPLY_BYTES_MAX: usize = 16_384;

/// The configuration document; schema.json says the same for machines.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The first that fits a question is given.
    answers: Vec<AnswerConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerConfig {
    name: String,
    #[serde(default)]
    any: Vec<String>,
    #[serde(default)]
    all: Vec<String>,
    #[serde(default)]
    none: Vec<String>,
    #[serde(default)]
    shops: Vec<String>,
    reply: String,
}

impl Config {
    /// The policy this document describes.
    pub(crate) fn build(self) -> Result<FaqBot, String> {
        if self.answers.len() > ANSWERS_MAX {
            return Err(format!("answers: {} are more than {ANSWERS_MAX}", self.answers.len()));
        }
        let build = |(index, answer): (usize, AnswerConfig)| answer.build().map_err(|problem| format!("answers[{index}]: {problem}"));
        Ok(FaqBot { answers: self.answers.into_iter().enumerate().map(build).collect::<Result<_, _>>()? })
    }
}

impl AnswerConfig {
    fn build(self) -> Result<Answer, String> {
        let Self { name, any, all, none, shops, reply } = self;
        if !(1..=32).contains(&name.len()) || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
            return Err(format!("the name {name:?} is not [a-z0-9-]{{1,32}}"));
        }
        if any.is_empty() && all.is_empty() {
            return Err("it has neither `any` nor `all` keywords, and would answer everything".into());
        }
        if !(1..=REPLY_BYTES_MAX).contains(&reply.len()) || reply.contains('\0') || reply.trim().is_empty() {
            return Err(format!("its reply is not a text of 1 to {REPLY_BYTES_MAX} bytes"));
        }
        let shops = shops.iter().map(|shop| shop.parse().map_err(|_| format!("{shop:?} is no id of a shop")));
        Ok(Answer {
            name,
            any: keywords(&any)?,
            all: keywords(&all)?,
            none: keywords(&none)?,
            shops: shops.collect::<Result<_, _>>()?,
            reply,
        })
    }
}

fn keywords(words: &[String]) -> Result<Vec<String>, String> {
    if words.len() > KEYWORDS_MAX {
        return Err(format!("{} keywords of one kind are more than {KEYWORDS_MAX}", words.len()));
    }
    let fold = |word: &String| match folded(word, Separators::Drop) {
        keyword if (1..=KEYWORD_BYTES_MAX).contains(&keyword.len()) => Ok(keyword),
        _ => Err(format!("the keyword {word:?} is empty or longer than {KEYWORD_BYTES_MAX} bytes")),
    };
    words.iter().map(fold).collect()
}
