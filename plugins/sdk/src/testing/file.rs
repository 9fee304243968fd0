//! The file of test vectors: what each case asks, what it expects, and how an answer is written.
//!
//! What never happens here: asking a policy. The native run beside this file does it, and `sluice plugin test` does it with
//! the compiled component; both read this one text, so that the two cannot come to mean different things.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The clock of a file that names none: early 2027, in Unix milliseconds.
const NOW_MS: u64 = 1_800_000_000_000;

/// How long an identity lasts that does not say: an hour.
const LASTS_MS: u64 = 3_600_000;

/// A whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vectors {
    /// The clock of every case, in Unix milliseconds.
    #[serde(default = "now")]
    pub now: u64,
    /// The configuration of cases that have none of their own; [`Vectors::read`] fills it in from `config.json`.
    pub config: Option<Value>,
    /// What `identity.verify` knows; every other token is an `unknown-token`.
    #[serde(default)]
    pub tokens: BTreeMap<String, Identity>,
    /// What `lists.contains` knows.
    #[serde(default)]
    pub lists: BTreeMap<String, Vec<String>>,
    /// In the order of the file.
    pub cases: Vec<Case>,
}

fn now() -> u64 {
    NOW_MS
}

/// Somebody who can be proved.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Identity {
    /// 1 to 64 bytes of `[A-Za-z0-9_.:-]`.
    pub id: String,
    /// What they may be.
    pub role: Role,
    /// Their shop.
    #[serde(default, deserialize_with = "optional_number")]
    pub shop: Option<u64>,
    /// What they may do.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Until when, in Unix milliseconds.
    pub expires_ms: Option<u64>,
}

impl Identity {
    /// Until when, where the clock stands at `now`.
    #[must_use]
    pub fn expires(&self, now: u64) -> u64 {
        self.expires_ms.unwrap_or(now.saturating_add(LASTS_MS))
    }
}

/// The roles of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A shopper.
    User,
    /// A customer-service agent.
    Agent,
    /// An operator.
    Admin,
}

/// One question and what its answer has to be.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Unique in its file.
    pub name: String,
    /// Instead of the file's.
    pub config: Option<Value>,
    /// The head every phase but `message` sees.
    #[serde(default)]
    pub request: Request,
    /// Who has been proved so far.
    pub principal: Option<Identity>,
    /// The device.
    pub device: Option<String>,
    /// Tags of earlier policies.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Makes it a question of phase `attempt`.
    pub attempt: Option<Attempt>,
    /// Makes it a question of phase `message`.
    pub message: Option<Message>,
    /// Makes it a question of phase `response`.
    pub response: Option<Response>,
    /// What the answer has to be; see [`Case::problem`].
    pub expect: Value,
}

/// A request's head; every member has a default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// `GET`.
    pub method: String,
    /// `/`.
    pub path: String,
    /// None.
    pub query: Option<String>,
    /// `shop.example`.
    pub host: String,
    /// `192.0.2.1`.
    pub client: String,
    /// `api`.
    pub route: String,
    /// None.
    pub headers: Fields,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            path: "/".into(),
            query: None,
            host: "shop.example".into(),
            client: "192.0.2.1".into(),
            route: "api".into(),
            headers: Fields::default(),
        }
    }
}

impl Request {
    /// The client's address; [`Vectors::parse`] has refused anything else.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.client.parse().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }
}

/// A parsed purchase attempt.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Attempt {
    /// A number, or its digits as text.
    #[serde(deserialize_with = "number")]
    pub activity: u64,
    /// A number, or its digits as text.
    #[serde(deserialize_with = "number")]
    pub sku: u64,
    /// 1 to 9,999.
    pub qty: u32,
    /// The `Idempotency-Key` header.
    pub idempotency_key: Option<String>,
}

/// A parsed chat message.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// A number, or its digits as text.
    #[serde(deserialize_with = "number")]
    pub session: u64,
    /// A number, or its digits as text.
    #[serde(deserialize_with = "number")]
    pub shop: u64,
    /// `text`, unless it says otherwise.
    #[serde(default = "text")]
    pub kind: String,
    /// The content as sent.
    pub content: String,
}

fn text() -> String {
    "text".into()
}

/// The head of a response.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    /// 100 to 599.
    pub status: u16,
    /// Its fields.
    #[serde(default)]
    pub headers: Fields,
}

/// When a policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A request's head.
    Request,
    /// A purchase attempt.
    Attempt,
    /// A chat message.
    Message,
    /// A response's head.
    Response,
}

/// Header fields in the order of the file, names in lower case. A field that comes several times has a list of values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(String, String)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("header fields by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, values)) = map.next_entry::<String, Values>()? {
                    let name = name.to_ascii_lowercase();
                    let values = match values {
                        Values::One(value) => vec![value],
                        Values::Several(values) => values,
                    };
                    fields.extend(values.into_iter().map(|value| (name.clone(), value)));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Several(Vec<String>),
}

/// An id is written as a number or, as clients do, as its digits.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(u64),
    Digits(String),
}

impl Number {
    fn value<E: de::Error>(self) -> Result<u64, E> {
        match self {
            Self::Plain(number) => Ok(number),
            Self::Digits(digits) => digits.parse().map_err(|_| E::custom(format!("{digits:?} is not a number"))),
        }
    }
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Number::deserialize(deserializer)?.value()
}

fn optional_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::<Number>::deserialize(deserializer)?.map(Number::value).transpose()
}

impl Vectors {
    /// Reads the vectors of the plugin in `folder`: `vectors.yaml`, else `vectors.json`, with the configuration in
    /// `config.json` where the file has none.
    ///
    /// # Errors
    /// What is missing or wrong, and in which file.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let file = Self::file(folder)?;
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut vectors = Self::parse(&text).map_err(|problem| format!("{}: {problem}", file.display()))?;
        if vectors.config.is_none() {
            vectors.config = Some(configuration(folder)?);
        }
        Ok(vectors)
    }

    fn file(folder: &Path) -> Result<PathBuf, String> {
        let names = ["vectors.yaml", "vectors.yml", "vectors.json"];
        let found = names.iter().map(|name| folder.join(name)).find(|file| file.is_file());
        found.ok_or_else(|| format!("{} has neither vectors.yaml nor vectors.json", folder.display()))
    }

    /// Reads a file's text, YAML or JSON, which YAML contains.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let vectors: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if vectors.cases.is_empty() {
            return Err("there is no case in it".into());
        }
        let mut names = BTreeSet::new();
        for case in &vectors.cases {
            if !names.insert(case.name.as_str()) {
                return Err(format!("two cases are called {:?}", case.name));
            }
            case.check().map_err(|problem| format!("case {:?}: {problem}", case.name))?;
        }
        Ok(vectors)
    }

    /// The configuration `case` is asked with, as `configure` gets it.
    #[must_use]
    pub fn config_of(&self, case: &Case) -> String {
        case.config.as_ref().or(self.config.as_ref()).map_or_else(|| "{}".into(), Value::to_string)
    }
}

/// The document in `folder/config.json`; `{}` where there is no such file.
///
/// # Errors
/// When it cannot be read, or is no JSON.
pub fn configuration(folder: &Path) -> Result<Value, String> {
    let file = folder.join("config.json");
    if !file.exists() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}

impl Case {
    /// When it asks.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match (&self.attempt, &self.message, &self.response) {
            (Some(_), _, _) => Phase::Attempt,
            (None, Some(_), _) => Phase::Message,
            (None, None, Some(_)) => Phase::Response,
            (None, None, None) => Phase::Request,
        }
    }

    fn check(&self) -> Result<(), String> {
        let subjects = [self.attempt.is_some(), self.message.is_some(), self.response.is_some()];
        if subjects.iter().filter(|there| **there).count() > 1 {
            return Err("`attempt`, `message` and `response` exclude each other".into());
        }
        if self.request.client.parse::<IpAddr>().is_err() {
            return Err(format!("client: {:?} is not an address", self.request.client));
        }
        Expectation::of(&self.expect).map(drop)
    }

    /// Why `answer` is not what the case expects; `None` when it is. An expectation is matched in part: every member it
    /// names has to be equal, objects by their members, lists and single values exactly.
    #[must_use]
    pub fn problem(&self, answer: &Value) -> Option<String> {
        let fits = match Expectation::of(&self.expect) {
            Err(problem) => return Some(problem),
            Ok(Expectation::Configure(part)) => answer["configure"].as_str().is_some_and(|error| error.contains(part)),
            Ok(Expectation::Verdict(wanted)) => contains(answer, &wanted),
        };
        (!fits).then(|| format!("expected {}, got {answer}", self.expect))
    }
}

enum Expectation<'a> {
    /// `configure` refuses with a text that contains this.
    Configure(&'a str),
    /// The verdict contains this.
    Verdict(Value),
}

impl<'a> Expectation<'a> {
    fn of(expect: &'a Value) -> Result<Self, String> {
        const SHAPE: &str = "expect: `proceed`, `refuse`, or an object with one of proceed, refuse, fault and configure";
        match expect {
            Value::String(word) if word == "proceed" || word == "refuse" => Ok(Self::Verdict(serde_json::json!({ word.as_str(): {} }))),
            Value::Object(members) if members.len() == 1 => match members.iter().next() {
                Some((word, Value::String(part))) if word == "configure" => Ok(Self::Configure(part)),
                Some((word, Value::Object(_))) if word == "proceed" || word == "refuse" => Ok(Self::Verdict(expect.clone())),
                Some((word, Value::String(_))) if word == "fault" => Ok(Self::Verdict(expect.clone())),
                _ => Err(SHAPE.into()),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => Err(SHAPE.into()),
        }
    }
}

fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| contains(whole, part)))
        }
        (whole, part) => whole == part,
    }
}

/// What came of a case. Its JSON is the one spelling of a verdict: what is empty, absent or zero is left out, so the native
/// and the compiled policy agree when their texts do.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The chain goes on.
    Proceed(Effects),
    /// The chain ends.
    Refuse(Refusal),
    /// There is no verdict: the host's word for why, or `no-phase` when the manifest does not name the case's phase.
    Fault(String),
    /// `configure` refused with this text.
    Configure(String),
}

impl Answer {
    /// The answer as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings and numbers cannot fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What a proceeding policy asks for.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the members are those of `effects` in wit/policy.wit")]
pub struct Effects {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_headers: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_headers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<Charge>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub score: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(score: &u8) -> bool {
    *score == 0
}

/// `principal` of wit/policy.wit; a shop is text, as everywhere in JSON.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the members are those of `principal` in wit/policy.wit")]
pub struct Principal {
    pub id: String,
    pub role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shop: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    pub expires_ms: u64,
}

/// `charge` of wit/policy.wit.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the members are those of `charge` in wit/policy.wit")]
pub struct Charge {
    pub budget: String,
    pub key: String,
    pub limit: u32,
    pub window_ms: u32,
    pub cost: u32,
    /// `node` or `cluster`.
    pub scope: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_token: Option<String>,
    pub refusal: Refusal,
}

/// `refusal` of wit/policy.wit.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the members are those of `refusal` in wit/policy.wit")]
pub struct Refusal {
    pub status: u16,
    pub code: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(expect: &str) -> Result<Case, String> {
        Vectors::parse(&format!("cases:\n  - name: one\n    expect: {expect}\n")).map(|mut vectors| vectors.cases.remove(0))
    }

    #[test]
    fn an_expectation_is_matched_in_part() {
        let answer = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let blocked = r#"{"refuse":{"status":403,"code":"BLOCKED","message":"no"}}"#;
        for (expect, text, fits) in [
            ("refuse", blocked, true),
            ("proceed", blocked, false),
            ("{ refuse: { status: 403, code: BLOCKED } }", blocked, true),
            ("{ refuse: { status: 429 } }", blocked, false),
            ("{ refuse: { retryAfterMs: 1 } }", blocked, false),
            ("proceed", r#"{"proceed":{}}"#, true),
            ("{ proceed: { tags: [x] } }", r#"{"proceed":{"tags":["x"],"score":1}}"#, true),
            ("{ proceed: { tags: [x] } }", r#"{"proceed":{"tags":["x","y"]}}"#, false),
            ("{ configure: limit }", r#"{"configure":"limit is 1 to 5"}"#, true),
            ("{ configure: limit }", r#"{"proceed":{}}"#, false),
            ("{ fault: trap }", r#"{"fault":"trap"}"#, true),
        ] {
            assert_eq!(case(expect).expect("valid").problem(&answer(text)).is_none(), fits, "{expect} {text}");
        }
    }

    #[test]
    fn refuses_a_file_that_would_test_something_else() {
        for bad in [
            "cases: []",
            "cases:\n  - { name: a, expect: proceed }\n  - { name: a, expect: proceed }",
            "cases:\n  - { name: a, expect: perhaps }",
            "cases:\n  - { name: a, expect: { refuse: {}, proceed: {} } }",
            "cases:\n  - { name: a, expect: proceed, reqest: {} }",
            "cases:\n  - { name: a, expect: proceed, request: { client: nowhere } }",
            "cases:\n  - { name: a, expect: proceed, response: { status: 200 }, message: { session: 1, shop: 1, content: x } }",
        ] {
            assert!(Vectors::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn json_is_read_too_and_ids_may_be_text() {
        let text = r#"{"now": 5, "tokens": {"t": {"id": "u", "role": "agent", "shop": "7"}}, "cases": [{"name": "a", "expect": "proceed",
            "attempt": {"activity": "1", "sku": 2, "qty": 1}, "request": {"headers": {"X-B": ["1", "2"], "X-A": "3"}}}]}"#;
        let vectors = Vectors::parse(text).expect("valid");
        assert_eq!((vectors.tokens["t"].shop, vectors.tokens["t"].expires(vectors.now)), (Some(7), 3_600_005));
        let case = &vectors.cases[0];
        assert_eq!(case.attempt.as_ref().map(|attempt| (attempt.activity, attempt.sku)), Some((1, 2)));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(case.request.headers.0, [pair("x-b", "1"), pair("x-b", "2"), pair("x-a", "3")]);
        assert_eq!(vectors.config_of(case), "{}");
    }

    #[test]
    fn what_is_empty_is_not_written() {
        assert_eq!(Answer::Proceed(Effects::default()).to_json(), r#"{"proceed":{}}"#);
        let refusal = Refusal { status: 403, code: "NO".into(), message: "no".into(), retry_after_ms: None };
        assert_eq!(Answer::Refuse(refusal).to_json(), r#"{"refuse":{"status":403,"code":"NO","message":"no"}}"#);
    }
}
