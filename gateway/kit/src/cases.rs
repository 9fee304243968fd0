//! Cases of a vectors file as questions of the host, and verdicts as the file spells them.

use anyhow::{Context, Result};
use gateway_core::id::{ActivityId, PrincipalId, SessionId, ShopId, SkuId};
use gateway_core::policy::{self, Attempt, Call, Facts, Fault, Message, Phase, ResponseHead, Scope, Verdict};
use gateway_core::principal::{self, Principal};
use gateway_core::request::RequestHead;
use gateway_core::time::UnixMillis;
use gateway_policy::trial::Lending;

use crate::vectors::{self, Answer, Case, Identity, Vectors};

/// A case, ready to be asked.
pub(crate) struct Question {
    head: RequestHead,
    facts: Facts,
    subject: Subject,
}

enum Subject {
    Request,
    Attempt(Attempt),
    Message(Message),
    Response(ResponseHead),
}

impl Question {
    /// # Errors
    /// When a principal in it cannot be one.
    pub(crate) fn new(vectors: &Vectors, case: &Case) -> Result<Self> {
        let request = &case.request;
        let head = RequestHead {
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            host: request.host.clone(),
            headers: request.headers.0.clone(),
            client: request.address(),
            trace_id: "0".repeat(32),
            route: request.route.as_str().into(),
        };
        let principal = case.principal.as_ref().map(|identity| principal(identity, vectors.now)).transpose();
        let principal = principal.with_context(|| format!("case {:?}", case.name))?;
        let facts = Facts { now: UnixMillis(vectors.now), principal, device: case.device.clone(), tags: case.tags.clone() };
        let subject = match (&case.attempt, &case.message, &case.response) {
            (Some(attempt), _, _) => Subject::Attempt(Attempt {
                activity: ActivityId(attempt.activity),
                sku: SkuId(attempt.sku),
                qty: attempt.qty,
                idempotency_key: attempt.idempotency_key.clone(),
            }),
            (None, Some(message), _) => Subject::Message(Message {
                session: SessionId(message.session),
                shop: ShopId(message.shop),
                kind: message.kind.clone(),
                content: message.content.clone(),
            }),
            (None, None, Some(response)) => {
                Subject::Response(ResponseHead { status: response.status, headers: response.headers.0.clone() })
            }
            (None, None, None) => Subject::Request,
        };
        Ok(Self { head, facts, subject })
    }

    pub(crate) fn call(&self) -> Call<'_> {
        match &self.subject {
            Subject::Request => Call::Request(&self.head, &self.facts),
            Subject::Attempt(attempt) => Call::Attempt(&self.head, &self.facts, attempt),
            Subject::Message(message) => Call::Message(&self.facts, message),
            Subject::Response(response) => Call::Response(&self.head, &self.facts, response),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.call().phase()
    }
}

/// What the file lends the policy.
///
/// # Errors
/// When an identity cannot be one.
pub(crate) fn lending(vectors: &Vectors) -> Result<Lending> {
    let mut tokens = std::collections::BTreeMap::new();
    for (token, identity) in &vectors.tokens {
        tokens.insert(token.clone(), principal(identity, vectors.now).with_context(|| format!("token {token:?}"))?);
    }
    Ok(Lending { tokens, lists: vectors.lists.clone() })
}

fn principal(identity: &Identity, now: u64) -> Result<Principal> {
    Ok(Principal {
        id: PrincipalId::parse(&identity.id).with_context(|| format!("{:?}", identity.id))?,
        role: match identity.role {
            vectors::Role::User => principal::Role::User,
            vectors::Role::Agent => principal::Role::Agent,
            vectors::Role::Admin => principal::Role::Admin,
        },
        shop: identity.shop.map(ShopId),
        scopes: identity.scopes.clone(),
        expires_at: UnixMillis(identity.expires(now)),
        token_id: None,
    })
}

/// What the host got, as vectors spell it.
#[must_use]
pub fn answer(outcome: Result<Verdict, Fault>) -> Answer {
    match outcome {
        Err(fault) => Answer::Fault(fault.as_str().into()),
        Ok(Verdict::Refuse(refused)) => Answer::Refuse(refusal(refused)),
        Ok(Verdict::Proceed(effects)) => Answer::Proceed(vectors::Effects {
            principal: effects.principal.map(|principal| vectors::Principal {
                id: principal.id.as_str().to_owned(),
                role: match principal.role {
                    principal::Role::User => vectors::Role::User,
                    principal::Role::Agent => vectors::Role::Agent,
                    principal::Role::Admin => vectors::Role::Admin,
                },
                shop: principal.shop.map(|shop| shop.to_string()),
                scopes: principal.scopes,
                expires_ms: principal.expires_at.0,
            }),
            set_headers: effects.set_headers,
            remove_headers: effects.remove_headers,
            charges: effects.charges.into_iter().map(charge).collect(),
            tags: effects.tags,
            score: effects.score,
            replace: effects.replace,
            reply: effects.reply,
        }),
    }
}

fn charge(charge: policy::Charge) -> vectors::Charge {
    vectors::Charge {
        budget: charge.budget,
        key: charge.key,
        limit: charge.limit,
        window_ms: charge.window_ms,
        cost: charge.cost,
        scope: match charge.scope {
            Scope::Node => "node",
            Scope::Cluster => "cluster",
        },
        replay_token: charge.replay_token,
        refusal: refusal(charge.refusal),
    }
}

fn refusal(refusal: policy::Refusal) -> vectors::Refusal {
    vectors::Refusal { status: refusal.status, code: refusal.code, message: refusal.message, retry_after_ms: refusal.retry_after_ms }
}
