//! Finding words in folded text, all of them in one pass.

use std::ops::Range;

use aho_corasick::automaton::Automaton;
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Input, MatchKind, PatternID};
use sluice_sdk::text::{Folded, Separators, folded, is_invisible};

/// Most words looked for, and most bytes of them: an automaton of this size takes about 10 MiB while it is made.
const WORDS_MAX: usize = 20_000;
const WORDS_BYTES_MAX: usize = 256 * 1024;

/// Longest word, in bytes of its folded form. It bounds how many words can end at one place of a text.
const WORD_BYTES_MAX: usize = 192;

/// Words on their way into a [`Finder`].
#[derive(Debug)]
pub(crate) struct Words {
    separators: Separators,
    folded: Vec<String>,
    lists: Vec<u16>,
    bytes: usize,
    /// Words that will not be looked for.
    pub(crate) left_out: u32,
}

/// Looks for every word at once.
#[derive(Debug)]
pub(crate) struct Finder {
    automaton: NFA,
    /// By pattern: the list it is on.
    lists: Vec<u16>,
    separators: Separators,
    whole_words: bool,
}

/// A word that was found.
pub(crate) struct Hit<'a> {
    /// Its list, by position in the configuration.
    pub(crate) list: usize,
    /// The text it was found in.
    pub(crate) folded: &'a Folded,
    /// Where in the folded text.
    pub(crate) range: Range<usize>,
}

impl Words {
    pub(crate) fn new(separators: Separators) -> Self {
        Self { separators, folded: Vec::new(), lists: Vec::new(), bytes: 0, left_out: 0 }
    }

    /// Adds `word` of the list at position `list`.
    pub(crate) fn add(&mut self, list: usize, word: &str) {
        let word = folded(word.trim(), self.separators);
        let fits = (1..=WORD_BYTES_MAX).contains(&word.len())
            && self.folded.len() < WORDS_MAX
            && self.bytes + word.len() <= WORDS_BYTES_MAX
            && u16::try_from(list).is_ok();
        if !fits {
            self.left_out += 1;
            return;
        }
        self.bytes += word.len();
        self.folded.push(word);
        self.lists.push(list as u16);
    }

    /// The finder of all words added.
    ///
    /// # Panics
    /// Never within the bounds of [`Words::add`], far below those of the automaton.
    pub(crate) fn finder(self, whole_words: bool) -> Finder {
        // Overlapping words are all found: a word to mask must not hide one to refuse. No prefilter: it would double the
        // component for texts of a few dozen bytes.
        let automaton = NFA::builder().match_kind(MatchKind::Standard).prefilter(false).build(&self.folded).expect("the words are bounded");
        Finder { automaton, lists: self.lists, separators: self.separators, whole_words }
    }
}

impl Finder {
    /// Calls `found` for each word in `text`, in order of their ends, until it says that this was enough.
    pub(crate) fn find(&self, text: &str, mut found: impl FnMut(Hit<'_>) -> bool) {
        let folded = Folded::of(text, self.separators);
        let Ok(matches) = self.automaton.try_find_overlapping_iter(Input::new(folded.as_str())) else { return };
        for one in matches {
            let range = one.range();
            if self.whole_words && !is_whole(text, &folded, &range) {
                continue;
            }
            if !found(Hit { list: self.list(one.pattern()), folded: &folded, range }) {
                return;
            }
        }
    }

    fn list(&self, pattern: PatternID) -> usize {
        usize::from(self.lists[pattern.as_usize()])
    }
}

/// Whether no Latin letter or digit joins on: `ass` is not in `class`. Scripts without blanks have no such edges.
fn is_whole(text: &str, folded: &Folded, range: &Range<usize>) -> bool {
    let (Some(first), Some(last)) = (folded.origin(range.start), folded.origin(range.end - 1)) else { return true };
    let word = folded.as_str()[range.clone()].as_bytes();
    let before = text[..first].chars().rev().find(|character| !is_invisible(*character));
    let after = text[last..].chars().skip(1).find(|character| !is_invisible(*character));
    let joins = |edge: u8, neighbour: Option<char>| edge.is_ascii_alphanumeric() && neighbour.is_some_and(is_latin);
    !joins(word[0], before) && !joins(word[word.len() - 1], after)
}

fn is_latin(character: char) -> bool {
    folded(character.encode_utf8(&mut [0; 4]), Separators::Drop).bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}
