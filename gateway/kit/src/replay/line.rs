//! A line of a recording: one question to one policy, and its answer, as JSON. Written by nodes, read by replay.
//!
//! Verdicts are in the canonical spelling: members that are empty, absent or zero are left out, names are camelCase.

use std::collections::BTreeMap;
use std::net::IpAddr;

use gateway_core::id::{ActivityId, PrincipalId, SessionId, ShopId, SkuId};
use gateway_core::policy::{Attempt, Call, Charge, Effects, Facts, Fault, Message, Refusal, ResponseHead, Scope, Verdict};
use gateway_core::ports::Side;
use gateway_core::principal::{Principal, Role};
use gateway_core::request::RequestHead;
use gateway_core::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Line {
    /// The request's trace id; that of the socket for a chat message.
    pub trace_id: String,
    /// `request`, `attempt`, `message` or `response`.
    pub phase: String,
    /// Who was asked.
    pub policy: String,
    /// The plugin behind the policy.
    pub plugin: String,
    /// First 12 hex digits of the digest of the version that answered; empty when none was loaded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// `live` or `candidate`.
    pub side: String,
    /// The clock the policy saw, in Unix milliseconds.
    pub now: u64,
    /// The head; a chat message has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestText>,
    /// What `identity.verify` says of the tokens in this line, each of which stands for one that is not written down.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, TokenText>,
    /// Facts: the identity proved before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalText>,
    /// Facts: the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Facts: tags left before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Phase attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptText>,
    /// Phase message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageText>,
    /// Phase response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseText>,
    /// What came back.
    pub verdict: VerdictText,
}

/// A request's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestText {
    pub method: String,
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    pub client: IpAddr,
    pub route: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

/// What a token stands for: a principal, or the word why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TokenText {
    Principal(PrincipalText),
    Error(String),
}

/// An identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrincipalText {
    pub id: String,
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shop: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    #[serde(default)]
    pub expires_ms: u64,
}

/// A purchase attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttemptText {
    pub activity: String,
    pub sku: String,
    pub qty: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// A chat message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageText {
    pub session: String,
    pub shop: String,
    pub kind: String,
    pub content: String,
}

/// A response's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResponseText {
    pub status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VerdictText {
    Proceed(EffectsText),
    Refuse(RefusalText),
    Fault(String),
}

/// What a proceeding policy asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EffectsText {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_headers: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_headers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<ChargeText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub score: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}

/// A charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChargeText {
    pub budget: String,
    pub key: String,
    pub limit: u32,
    pub window_ms: u32,
    pub cost: u32,
    pub scope: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_token: Option<String>,
    pub refusal: RefusalText,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefusalText {
    pub status: u16,
    pub code: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(score: &u8) -> bool {
    *score == 0
}

/// The word for a side.
#[must_use]
pub fn side(side: Side) -> &'static str {
    match side {
        Side::Live => "live",
        Side::Candidate => "candidate",
    }
}

/// A question with everything it refers to.
#[derive(Debug, Clone)]
pub struct Question {
    facts: Facts,
    subject: Subject,
}

#[derive(Debug, Clone)]
enum Subject {
    Request(RequestHead),
    Attempt(RequestHead, Attempt),
    Message(Message),
    Response(RequestHead, ResponseHead),
}

impl Question {
    /// The question as a policy is asked it.
    #[must_use]
    pub fn call(&self) -> Call<'_> {
        match &self.subject {
            Subject::Request(head) => Call::Request(head, &self.facts),
            Subject::Attempt(head, attempt) => Call::Attempt(head, &self.facts, attempt),
            Subject::Message(message) => Call::Message(&self.facts, message),
            Subject::Response(head, response) => Call::Response(head, &self.facts, response),
        }
    }
}

impl Line {
    /// The question of this line; the error says which member makes no sense.
    pub fn question(&self) -> Result<Question, String> {
        let head = self.request.as_ref().map(|request| request.head(&self.trace_id));
        let head = || head.clone().ok_or_else(|| format!("phase {} needs `request`", self.phase));
        let missing = || format!("phase {0} needs `{0}`", self.phase);
        let subject = match self.phase.as_str() {
            "request" => Subject::Request(head()?),
            "attempt" => Subject::Attempt(head()?, self.attempt.as_ref().ok_or_else(missing)?.read()?),
            "message" => Subject::Message(self.message.as_ref().ok_or_else(missing)?.read()?),
            "response" => {
                let ResponseText { status, headers } = self.response.clone().ok_or_else(missing)?;
                Subject::Response(head()?, ResponseHead { status, headers })
            }
            other => return Err(format!("there is no phase {other:?}")),
        };
        let principal = self.principal.as_ref().map(PrincipalText::read).transpose()?;
        let facts = Facts { now: UnixMillis(self.now), principal, device: self.device.clone(), tags: self.tags.clone() };
        Ok(Question { facts, subject })
    }
}

impl RequestText {
    fn head(&self, trace_id: &str) -> RequestHead {
        let Self { method, path, query, host, client, route, headers } = self.clone();
        RequestHead { method, path, query, host, client, headers, route: route.into(), trace_id: trace_id.to_owned() }
    }
}

impl From<&Principal> for PrincipalText {
    fn from(principal: &Principal) -> Self {
        let Principal { id, role, shop, scopes, expires_at, token_id: _ } = principal;
        Self {
            id: id.as_str().to_owned(),
            role: role.as_str().to_owned(),
            shop: shop.map(|shop| shop.to_string()),
            scopes: scopes.clone(),
            expires_ms: expires_at.0,
        }
    }
}

impl PrincipalText {
    /// The identity; the error says which member makes no sense.
    pub fn read(&self) -> Result<Principal, String> {
        Ok(Principal {
            id: PrincipalId::parse(&self.id).map_err(|error| error.to_string())?,
            role: Role::parse(&self.role).ok_or_else(|| format!("there is no role {:?}", self.role))?,
            shop: self.shop.as_deref().map(ShopId::parse).transpose().map_err(|error| error.to_string())?,
            scopes: self.scopes.clone(),
            expires_at: UnixMillis(self.expires_ms),
            token_id: None,
        })
    }
}

impl From<&Attempt> for AttemptText {
    fn from(attempt: &Attempt) -> Self {
        let Attempt { activity, sku, qty, idempotency_key } = attempt;
        Self { activity: activity.to_string(), sku: sku.to_string(), qty: *qty, idempotency_key: idempotency_key.clone() }
    }
}

impl AttemptText {
    fn read(&self) -> Result<Attempt, String> {
        Ok(Attempt {
            activity: ActivityId::parse(&self.activity).map_err(|error| error.to_string())?,
            sku: SkuId::parse(&self.sku).map_err(|error| error.to_string())?,
            qty: self.qty,
            idempotency_key: self.idempotency_key.clone(),
        })
    }
}

impl From<&Message> for MessageText {
    fn from(message: &Message) -> Self {
        let Message { session, shop, kind, content } = message;
        Self { session: session.to_string(), shop: shop.to_string(), kind: kind.clone(), content: content.clone() }
    }
}

impl MessageText {
    fn read(&self) -> Result<Message, String> {
        Ok(Message {
            session: SessionId::parse(&self.session).map_err(|error| error.to_string())?,
            shop: ShopId::parse(&self.shop).map_err(|error| error.to_string())?,
            kind: self.kind.clone(),
            content: self.content.clone(),
        })
    }
}

impl From<&Result<Verdict, Fault>> for VerdictText {
    fn from(outcome: &Result<Verdict, Fault>) -> Self {
        match outcome {
            Ok(Verdict::Proceed(effects)) => Self::Proceed(effects.into()),
            Ok(Verdict::Refuse(refusal)) => Self::Refuse(refusal.into()),
            Err(fault) => Self::Fault(fault.as_str().to_owned()),
        }
    }
}

impl VerdictText {
    /// The answer; the error says which member makes no sense.
    pub fn read(&self) -> Result<Result<Verdict, Fault>, String> {
        Ok(match self {
            Self::Proceed(effects) => Ok(Verdict::Proceed(effects.read()?)),
            Self::Refuse(refusal) => Ok(Verdict::Refuse(refusal.read())),
            Self::Fault(word) => Err(fault(word).ok_or_else(|| format!("there is no fault {word:?}"))?),
        })
    }
}

fn fault(word: &str) -> Option<Fault> {
    [Fault::Missing, Fault::Trap, Fault::Timeout, Fault::Overload, Fault::BadVerdict].into_iter().find(|fault| fault.as_str() == word)
}

impl From<&Effects> for EffectsText {
    fn from(effects: &Effects) -> Self {
        let Effects { principal, set_headers, remove_headers, charges, tags, score, replace, reply } = effects;
        Self {
            principal: principal.as_ref().map(PrincipalText::from),
            set_headers: set_headers.clone(),
            remove_headers: remove_headers.clone(),
            charges: charges.iter().map(ChargeText::from).collect(),
            tags: tags.clone(),
            score: *score,
            replace: replace.clone(),
            reply: reply.clone(),
        }
    }
}

impl EffectsText {
    fn read(&self) -> Result<Effects, String> {
        Ok(Effects {
            principal: self.principal.as_ref().map(PrincipalText::read).transpose()?,
            set_headers: self.set_headers.clone(),
            remove_headers: self.remove_headers.clone(),
            charges: self.charges.iter().map(ChargeText::read).collect::<Result<_, _>>()?,
            tags: self.tags.clone(),
            score: self.score,
            replace: self.replace.clone(),
            reply: self.reply.clone(),
        })
    }
}

impl From<&Charge> for ChargeText {
    fn from(charge: &Charge) -> Self {
        let Charge { budget, key, limit, window_ms, cost, scope, replay_token, refusal } = charge;
        let scope = match scope {
            Scope::Node => "node",
            Scope::Cluster => "cluster",
        };
        Self {
            budget: budget.clone(),
            key: key.clone(),
            limit: *limit,
            window_ms: *window_ms,
            cost: *cost,
            scope: scope.to_owned(),
            replay_token: replay_token.clone(),
            refusal: refusal.into(),
        }
    }
}

impl ChargeText {
    fn read(&self) -> Result<Charge, String> {
        Ok(Charge {
            budget: self.budget.clone(),
            key: self.key.clone(),
            limit: self.limit,
            window_ms: self.window_ms,
            cost: self.cost,
            scope: match self.scope.as_str() {
                "node" => Scope::Node,
                "cluster" => Scope::Cluster,
                other => return Err(format!("there is no scope {other:?}")),
            },
            replay_token: self.replay_token.clone(),
            refusal: self.refusal.read(),
        })
    }
}

impl From<&Refusal> for RefusalText {
    fn from(refusal: &Refusal) -> Self {
        let Refusal { status, code, message, retry_after_ms } = refusal;
        Self { status: *status, code: code.clone(), message: message.clone(), retry_after_ms: *retry_after_ms }
    }
}

impl RefusalText {
    fn read(&self) -> Refusal {
        let Self { status, code, message, retry_after_ms } = self.clone();
        Refusal { status, code, message, retry_after_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let verdict: VerdictText = serde_json::from_str(text).unwrap();
        let read = verdict.read().unwrap();
        assert_eq!(serde_json::to_string(&VerdictText::from(&read)).unwrap(), text);
    }

    #[test]
    fn a_verdict_has_one_spelling() {
        check(r#"{"proceed":{}}"#);
        check(r#"{"fault":"bad-verdict"}"#);
        check(r#"{"refuse":{"status":429,"code":"NO","message":"no","retryAfterMs":5}}"#);
        check(
            r#"{"proceed":{"principal":{"id":"u1","role":"agent","shop":"7","scopes":["buy"],"expiresMs":9},"setHeaders":[["a","b"]],"removeHeaders":["c"],"charges":[{"budget":"b","key":"k","limit":1,"windowMs":2,"cost":1,"scope":"cluster","replayToken":"t","refusal":{"status":429,"code":"X"}}],"tags":["t"],"score":3,"replace":"r","reply":"p"}}"#,
        );
    }

    #[test]
    fn nonsense_is_named() {
        for (text, part) in [
            (r#"{"fault":"tired"}"#, "tired"),
            (r#"{"proceed":{"principal":{"id":"","role":"user"}}}"#, "principal id"),
            (r#"{"proceed":{"principal":{"id":"u","role":"root"}}}"#, "root"),
        ] {
            let error = serde_json::from_str::<VerdictText>(text).unwrap().read().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
