//! The configuration document, and what is wrong with it.

use serde::Deserialize;
use sluice_sdk::text::{Separators, folded};

/// Lists; a message that meets all of them has a tag for each, and the host takes 16.
const LISTS_MAX: usize = 16;

/// Words in the configuration itself; more belong on a list.
const WORDS_MAX: usize = 1_000;

/// Longest word of the configuration, in bytes.
const WORD_BYTES_MAX: usize = 192;

/// The configuration document; schema.json says the same for machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub(crate) lists: Vec<List>,
    /// Kinds of messages that are read.
    pub(crate) kinds: Vec<String>,
    /// Whether blanks, punctuation and symbols inside a word make a difference.
    pub(crate) separators: SeparatorsConfig,
    /// Whether a word that begins or ends with a Latin letter or digit must not be part of a longer one.
    pub(crate) whole_words: bool,
    /// How the sender of a refused message is answered, with status 400.
    pub(crate) refusal: RefusalConfig,
}

/// Words, and what is done about them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// Names the counter `hits_<name>` and the tag `words:<name>`.
    pub(crate) name: String,
    pub(crate) action: Action,
    /// The operator's list that holds the words.
    pub(crate) list: Option<String>,
    /// Words beside those of the list.
    #[serde(default)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    /// Each character of the word becomes `*`.
    Mask,
    /// The message is not delivered.
    Refuse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SeparatorsConfig {
    Ignore,
    Keep,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RefusalConfig {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Default for RefusalConfig {
    fn default() -> Self {
        Self { code: "CONTENT_REFUSED".into(), message: "消息包含不允许的内容".into() }
    }
}

impl Default for Config {
    fn default() -> Self {
        let list = List { name: "sensitive-words".into(), action: Action::Mask, list: Some("sensitive-words".into()), words: Vec::new() };
        Self {
            lists: vec![list],
            kinds: vec!["text".into()],
            separators: SeparatorsConfig::Ignore,
            whole_words: true,
            refusal: RefusalConfig::default(),
        }
    }
}

impl From<SeparatorsConfig> for Separators {
    fn from(config: SeparatorsConfig) -> Self {
        match config {
            SeparatorsConfig::Ignore => Self::Drop,
            SeparatorsConfig::Keep => Self::Keep,
        }
    }
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.lists.is_empty() || self.lists.len() > LISTS_MAX {
            return Err(format!("lists: there are {}; 1 to {LISTS_MAX} are needed", self.lists.len()));
        }
        for (index, list) in self.lists.iter().enumerate() {
            list.check(self.separators.into()).map_err(|problem| format!("lists[{index}]: {problem}"))?;
            if self.lists[..index].iter().any(|other| other.name == list.name) {
                return Err(format!("lists[{index}]: the name {:?} is taken", list.name));
            }
        }
        let RefusalConfig { code, message } = &self.refusal;
        if !(1..=40).contains(&code.len()) || !code.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_') {
            return Err(format!("refusal.code: {code:?} is not [A-Z0-9_]{{1,40}}"));
        }
        if message.len() > 200 || message.chars().any(char::is_control) {
            return Err("refusal.message: not one line of at most 200 bytes".into());
        }
        Ok(())
    }
}

impl List {
    fn check(&self, separators: Separators) -> Result<(), String> {
        let named = self.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !named || !(1..=32).contains(&self.name.len()) {
            return Err(format!("the name {:?} is not [a-z0-9-]{{1,32}}", self.name));
        }
        if self.list.is_none() && self.words.is_empty() {
            return Err("it has neither `list` nor `words`".into());
        }
        if self.words.len() > WORDS_MAX {
            return Err(format!("{} words are more than {WORDS_MAX}; put them on a list", self.words.len()));
        }
        match self.words.iter().find(|word| word.len() > WORD_BYTES_MAX || folded(word, separators).is_empty()) {
            Some(word) => Err(format!("{word:?} is longer than {WORD_BYTES_MAX} bytes or nothing but separators")),
            None => Ok(()),
        }
    }

    /// The counter of its hits.
    pub(crate) fn metric(&self) -> String {
        format!("hits_{}", self.name.replace('-', "_"))
    }
}
