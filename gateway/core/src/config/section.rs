//! Reading one table, key by key. A section hands out typed values, reports what does not fit and goes on with the
//! default; when it is dropped it reports every key nobody asked for. The rooms beside this file are its callers.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::problem::{Place, Report};
use super::secret::Secret;
use super::tree::{Entries, Node};

/// A table while it is being read.
pub(super) struct Section<'r> {
    report: &'r Report,
    path: String,
    place: Place,
    entries: Entries,
    /// Keys asked for so far, and where they were written if they were.
    known: BTreeMap<&'static str, Option<Place>>,
}

impl<'r> Section<'r> {
    /// The whole document; `place` is blamed for keys that are missing.
    pub(super) fn root(report: &'r Report, place: Place, entries: Entries) -> Self {
        Self::new(report, String::new(), place, entries)
    }

    fn new(report: &'r Report, path: String, place: Place, entries: Entries) -> Self {
        Self { report, path, place, entries, known: BTreeMap::new() }
    }

    /// Reports something about `key` (which was read before), at the place where it stands.
    pub(super) fn blame(&self, key: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        let place = self.known.get(key).and_then(Clone::clone).unwrap_or_else(|| self.place.clone());
        self.report.add(place, self.path_of(key), what, remedy);
    }

    /// An inner table; an absent one reads as empty.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'r> {
        let path = self.path_of(key);
        self.optional_section(key).unwrap_or_else(|| Section::new(self.report, path, self.place.clone(), Entries::new()))
    }

    /// An inner table, if it is there.
    pub(super) fn optional_section(&mut self, key: &'static str) -> Option<Section<'r>> {
        let node = self.take(key)?;
        self.open(self.path_of(key), node)
    }

    /// A list of tables; absent reads as empty.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Section<'r>> {
        let path = self.path_of(key);
        let nodes = self.read(key, "a list of tables", Node::into_list).unwrap_or_default();
        nodes.into_iter().enumerate().filter_map(|(at, node)| self.open(format!("{path}[{at}]"), node)).collect()
    }

    /// A table of tables whose keys are names the operator chose; absent reads as empty.
    pub(super) fn named_sections(&mut self, key: &'static str) -> Vec<(String, Section<'r>)> {
        let path = self.path_of(key);
        let entries = self.read(key, "a table of tables", Node::into_table).unwrap_or_default();
        entries.into_iter().filter_map(|(name, node)| Some((name.clone(), self.open(format!("{path}.{name}"), node)?))).collect()
    }

    fn open(&self, path: String, node: Node) -> Option<Section<'r>> {
        let place = node.place.clone();
        match node.into_table() {
            Ok(entries) => Some(Section::new(self.report, path, place, entries)),
            Err(what) => {
                self.report.add(place, path, what, "write a table");
                None
            }
        }
    }

    /// A table from chosen names to lists of strings; absent reads as empty.
    pub(super) fn named_lists(&mut self, key: &'static str) -> BTreeMap<String, Vec<String>> {
        let path = self.path_of(key);
        let entries = self.read(key, "a table of lists", Node::into_table).unwrap_or_default();
        entries.into_iter().map(|(name, node)| (name.clone(), self.items(&format!("{path}.{name}"), node, "a string", Ok))).collect()
    }

    /// A string.
    pub(super) fn text(&mut self, key: &'static str, default: &str) -> String {
        self.read(key, "a string", Node::into_text).unwrap_or_else(|| default.to_owned())
    }

    /// A string that may be left out; the empty one counts as left out.
    pub(super) fn optional_text(&mut self, key: &'static str) -> Option<String> {
        self.read(key, "a string", Node::into_text).filter(|text| !text.is_empty())
    }

    /// A string with a form of its own, if it is there; `form` names it with an example.
    pub(super) fn given<T>(&mut self, key: &'static str, form: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.read(key, form, |node| {
            let text = node.into_text()?;
            parse(&text).ok_or_else(|| format!("\"{text}\" does not fit"))
        })
    }

    /// A string with a form of its own that may be left out; the empty one counts as left out.
    pub(super) fn optional<T>(&mut self, key: &'static str, form: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.given(key, form, |text| if text.is_empty() { Some(None) } else { parse(text).map(Some) }).flatten()
    }

    /// A string with a form of its own and a default.
    pub(super) fn parsed<T>(&mut self, key: &'static str, default: T, form: &str, parse: impl FnOnce(&str) -> Option<T>) -> T {
        self.given(key, form, parse).unwrap_or(default)
    }

    /// A string with a form of its own that has to be there.
    pub(super) fn required<T>(&mut self, key: &'static str, form: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.require(key, form);
        self.given(key, form, parse)
    }

    fn require(&mut self, key: &'static str, form: &str) {
        if !self.entries.contains_key(key) {
            self.blame(key, "is missing and has no default", format!("write {form}"));
        }
    }

    /// A list of strings, each with the form `form`; absent reads as empty.
    pub(super) fn list<T>(&mut self, key: &'static str, form: &str, parse: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let Some(node) = self.take(key) else { return Vec::new() };
        let path = self.path_of(key);
        self.items(&path, node, form, |text| parse(&text).ok_or_else(|| format!("\"{text}\" does not fit")))
    }

    fn items<T>(&self, path: &str, node: Node, form: &str, convert: impl Fn(String) -> Result<T, String>) -> Vec<T> {
        let place = node.place.clone();
        let nodes = node.into_list().unwrap_or_else(|what| {
            self.report.add(place, path, what, format!("write a list of {form}"));
            Vec::new()
        });
        nodes
            .into_iter()
            .enumerate()
            .filter_map(|(at, node)| {
                let place = node.place.clone();
                let add = |what| self.report.add(place, format!("{path}[{at}]"), what, format!("write {form}"));
                node.into_text().and_then(&convert).map_err(add).ok()
            })
            .collect()
    }

    /// One word out of a few.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, default: T, words: &[(&str, T)]) -> T {
        self.optional_choice(key, words).unwrap_or(default)
    }

    /// One word out of a few, which has to be there: it is a decision nobody else may take.
    pub(super) fn required_choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        self.require(key, &one_of(words));
        self.optional_choice(key, words)
    }

    fn optional_choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        self.read(key, &one_of(words), |node| {
            let text = node.into_text()?;
            words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| format!("\"{text}\" does not fit"))
        })
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        self.read(key, "true or false", Node::into_flag).unwrap_or(default)
    }

    /// A whole number in `range`.
    pub(super) fn number<T>(&mut self, key: &'static str, default: T, range: RangeInclusive<T>) -> T
    where
        T: Copy + PartialOrd + Display + TryFrom<i128>,
    {
        self.optional_number(key, range).unwrap_or(default)
    }

    /// A whole number in `range` that may be left out.
    pub(super) fn optional_number<T>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Option<T>
    where
        T: Copy + PartialOrd + Display + TryFrom<i128>,
    {
        let form = format!("a whole number from {} to {}", range.start(), range.end());
        self.read(key, &form, |node| {
            let number = node.into_integer()?;
            T::try_from(number).ok().filter(|number| range.contains(number)).ok_or_else(|| format!("{number} is out of range"))
        })
    }

    /// A whole number of milliseconds in `range`.
    pub(super) fn millis(&mut self, key: &'static str, default: u64, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.number(key, default, range))
    }

    /// A secret that has to be there, of at least `bytes_min` bytes.
    pub(super) fn required_secret(&mut self, key: &'static str, bytes_min: usize) -> Secret {
        let variable = format!("SLUICE__{}", self.path_of(key).replace('.', "__").to_ascii_uppercase());
        let remedy = format!("set it here or by {variable}, for example to the output of `openssl rand -hex 32`");
        match self.optional_secret(key, bytes_min) {
            Some(secret) => secret,
            None => {
                if self.known.get(key).is_none_or(Option::is_none) {
                    self.blame(key, "is missing and has no default", remedy);
                }
                Secret::default()
            }
        }
    }

    /// A secret of at least `bytes_min` bytes, if it is there. An empty one is too short, not absent.
    pub(super) fn optional_secret(&mut self, key: &'static str, bytes_min: usize) -> Option<Secret> {
        self.read(key, &format!("a string of at least {bytes_min} bytes"), |node| {
            let text = node.into_text()?;
            if text.len() < bytes_min { Err(format!("has only {} bytes", text.len())) } else { Ok(Secret::new(text)) }
        })
    }

    /// A secret with a form of its own and a default; a value that does not fit is not repeated.
    pub(super) fn secret(&mut self, key: &'static str, default: &str, form: &str, fits: impl FnOnce(&str) -> bool) -> Secret {
        self.read(key, form, |node| {
            let text = node.into_text()?;
            if fits(&text) { Ok(Secret::new(text)) } else { Err("does not fit (value not shown)".to_owned()) }
        })
        .unwrap_or_else(|| Secret::new(default))
    }

    /// Any table, as JSON text; absent reads as `{}`.
    pub(super) fn json(&mut self, key: &'static str) -> String {
        let table = self.read(key, "a table that JSON can express", |node| {
            let json = node.into_json()?;
            if json.is_object() { Ok(json.to_string()) } else { Err("found no table".to_owned()) }
        });
        table.unwrap_or_else(|| "{}".to_owned())
    }

    /// Whether `key` stands in the file or the environment.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.entries.contains_key(key) || self.known.get(key).is_some_and(Option::is_some)
    }

    fn read<T>(&mut self, key: &'static str, form: &str, convert: impl FnOnce(Node) -> Result<T, String>) -> Option<T> {
        match convert(self.take(key)?) {
            Ok(value) => Some(value),
            Err(what) => {
                self.blame(key, what, format!("write {form}"));
                None
            }
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Node> {
        let node = self.entries.remove(key);
        #[cfg(test)]
        {
            let mut asked = self.report.asked.borrow_mut();
            *asked.entry(without_positions(&self.path_of(key))).or_default() |= node.is_some();
        }
        self.known.insert(key, node.as_ref().map(|node| node.place.clone()));
        node
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        for (key, node) in std::mem::take(&mut self.entries) {
            let remedy = match nearest(&key, self.known.keys().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("known here: {}", self.known.keys().copied().collect::<Vec<_>>().join(", ")),
            };
            self.report.add(node.place, self.path_of(&key), "unknown key", remedy);
        }
    }
}

fn one_of<T>(words: &[(&str, T)]) -> String {
    words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ")
}

/// The known word that a typist most likely meant: at most every third letter is wrong.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known.map(|known| (distance(word, known), known)).min().filter(|(wrong, _)| *wrong <= word.len().div_ceil(3)).map(|(_, known)| known)
}

/// Levenshtein distance in bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.bytes().enumerate() {
            let change = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
fn without_positions(path: &str) -> String {
    path.chars().filter(|c| !matches!(c, '[' | ']' | '0'..='9')).collect()
}
