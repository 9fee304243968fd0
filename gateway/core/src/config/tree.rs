//! The configuration as written: an owned tree in which every value knows its place. The file makes the tree, then
//! environment variables replace parts of it; what the values mean is nobody's concern here.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Place, Report};

/// Every variable that begins so is an override, and must name a key that exists.
const VARIABLE_PREFIX: &str = "SLUICE__";

pub(super) type Entries = BTreeMap<String, Node>;

/// A value and where it was written.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    value: Value,
}

#[derive(Debug, Clone)]
enum Value {
    /// A variable's text: a string when a string is wanted, TOML otherwise.
    Raw(String),
    Text(String),
    /// TOML's integers have 64 bits; a longer one is kept as the largest `i128` and fails every range.
    Integer(i128),
    Float(f64),
    Flag(bool),
    Date(String),
    List(Vec<Node>),
    Table(Entries),
}

/// Reads `text` as a TOML document; what does not parse is reported, the rest is kept.
pub(super) fn document(file: &Arc<str>, text: &str, report: &Report) -> Entries {
    let lines = Lines::of(file, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let place = error.span().map_or_else(|| Place::File(file.clone()), |span| lines.place(span.start));
        report.add(place, "", error.message().replace('\n', ", "), "correct the TOML on this line");
    }
    entries(table.into_inner(), &|start| lines.place(start))
}

/// Applies the overrides in `environment`; where two name the same key the later one holds. Other variables are
/// somebody else's and are passed over.
pub(super) fn override_with(root: &mut Entries, environment: &[(String, String)], report: &Report) {
    let mut overrides: Vec<(Vec<String>, &str, &str)> = environment
        .iter()
        .filter_map(|(name, text)| {
            let path = name.strip_prefix(VARIABLE_PREFIX)?.split("__").map(str::to_ascii_lowercase).collect();
            Some((path, name.as_str(), text.as_str()))
        })
        .collect();
    // A whole table first, then single keys inside it.
    overrides.sort_by_key(|(path, ..)| path.len());
    for (path, name, text) in overrides {
        let place = Place::Variable(name.into());
        if let Err(what) = insert(root, &path, Node { place: place.clone(), value: Value::Raw(text.to_owned()) }) {
            report.add(place, path.join("."), what, "name a key as SLUICE__SECTION__KEY; a list is replaced as a whole");
        }
    }
}

fn insert(entries: &mut Entries, path: &[String], leaf: Node) -> Result<(), String> {
    let Some((first, rest)) = path.split_first().filter(|(first, _)| !first.is_empty()) else {
        return Err("the variable names no key".to_owned());
    };
    if rest.is_empty() {
        entries.insert(first.clone(), leaf);
        return Ok(());
    }
    let node = entries.entry(first.clone()).or_insert_with(|| Node { place: leaf.place.clone(), value: Value::Table(Entries::new()) });
    node.resolve()?;
    match &mut node.value {
        Value::Table(inner) => insert(inner, rest, leaf),
        Value::Raw(_) | Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Flag(_) | Value::Date(_) | Value::List(_) => {
            Err(format!("`{first}` is {}, which has no keys", node.kind()))
        }
    }
}

/// Conversions; an error says what was found instead, and never quotes it, for it may be a secret.
impl Node {
    pub(super) fn into_text(self) -> Result<String, String> {
        match self.value {
            Value::Raw(text) | Value::Text(text) => Ok(text),
            Value::Integer(_) | Value::Float(_) | Value::Flag(_) | Value::Date(_) | Value::List(_) | Value::Table(_) => Err(self.found()),
        }
    }

    pub(super) fn into_integer(mut self) -> Result<i128, String> {
        self.resolve()?;
        if let Value::Integer(number) = self.value { Ok(number) } else { Err(self.found()) }
    }

    pub(super) fn into_flag(mut self) -> Result<bool, String> {
        self.resolve()?;
        if let Value::Flag(flag) = self.value { Ok(flag) } else { Err(self.found()) }
    }

    pub(super) fn into_list(mut self) -> Result<Vec<Self>, String> {
        self.resolve()?;
        if let Value::List(items) = self.value { Ok(items) } else { Err(self.found()) }
    }

    pub(super) fn into_table(mut self) -> Result<Entries, String> {
        self.resolve()?;
        if let Value::Table(entries) = self.value { Ok(entries) } else { Err(self.found()) }
    }

    /// The value as JSON; dates become strings.
    pub(super) fn into_json(mut self) -> Result<serde_json::Value, String> {
        use serde_json::{Number, Value as Json};
        self.resolve()?;
        match self.value {
            Value::Raw(text) | Value::Text(text) | Value::Date(text) => Ok(Json::String(text)),
            Value::Integer(number) => i64::try_from(number).map(Json::from).map_err(|_| format!("{number} does not fit into 64 bits")),
            Value::Float(number) => Number::from_f64(number).map(Json::Number).ok_or_else(|| format!("{number} does not exist in JSON")),
            Value::Flag(flag) => Ok(Json::Bool(flag)),
            Value::List(items) => items.into_iter().map(Self::into_json).collect::<Result<_, _>>().map(Json::Array),
            Value::Table(entries) => {
                entries.into_iter().map(|(key, node)| Ok((key, node.into_json()?))).collect::<Result<_, _>>().map(Json::Object)
            }
        }
    }

    fn resolve(&mut self) -> Result<(), String> {
        if let Value::Raw(text) = &self.value {
            let parsed = DeValue::parse(text).map_err(|error| format!("is not a TOML value ({})", error.message().replace('\n', ", ")))?;
            self.value = value(parsed.into_inner(), &|_| self.place.clone());
        }
        Ok(())
    }

    fn found(&self) -> String {
        format!("found {}", self.kind())
    }

    fn kind(&self) -> &'static str {
        match self.value {
            Value::Raw(_) | Value::Text(_) => "a string",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a fraction",
            Value::Flag(_) => "true or false",
            Value::Date(_) => "a date",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

fn entries(table: DeTable<'_>, place: &dyn Fn(usize) -> Place) -> Entries {
    table
        .into_iter()
        .map(|(key, item)| {
            let place_of_key = place(key.span().start);
            (key.into_inner().into_owned(), Node { place: place_of_key, value: value(item.into_inner(), place) })
        })
        .collect()
}

fn value(value: DeValue<'_>, place: &dyn Fn(usize) -> Place) -> Value {
    let item = |item: Spanned<DeValue<'_>>| Node { place: place(item.span().start), value: self::value(item.into_inner(), place) };
    match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX)),
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(items) => Value::List(items.into_iter().map(item).collect()),
        DeValue::Table(table) => Value::Table(entries(table, place)),
    }
}

/// Turns byte offsets into line numbers.
struct Lines {
    file: Arc<str>,
    breaks: Vec<usize>,
}

impl Lines {
    fn of(file: &Arc<str>, text: &str) -> Self {
        Self { file: file.clone(), breaks: text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect() }
    }

    fn place(&self, offset: usize) -> Place {
        Place::Line(self.file.clone(), self.breaks.partition_point(|at| *at < offset) + 1)
    }
}
