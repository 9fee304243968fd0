//! The claims we read, and the identity they make. Unknown claims are ignored, a claim given twice is an error.

use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::principal::{Principal, Role};
use gateway_core::time::UnixMillis;
use serde::Deserialize;

/// Most scopes of one token, and the longest.
const SCOPES_MAX: usize = 32;
const SCOPE_BYTES_MAX: usize = 64;

/// The longest `jti`: room for a few UUIDs. It is a key of the list of revoked tokens.
const TOKEN_ID_BYTES_MAX: usize = 128;

#[derive(Deserialize)]
pub(super) struct Claims {
    pub(super) iss: String,
    pub(super) aud: Audience,
    pub(super) nbf: Option<NumericDate>,
    exp: NumericDate,
    sub: String,
    role: String,
    shop_id: Option<Number>,
    scope: Option<String>,
    jti: Option<String>,
}

impl Claims {
    /// The identity, when every part of it is well formed and an agent has a shop.
    pub(super) fn principal(&self) -> Option<Principal> {
        let id = PrincipalId::parse(&self.sub).ok()?;
        let role = Role::parse(&self.role)?;
        let shop = match &self.shop_id {
            None => None,
            Some(Number::Integer(number)) => Some(ShopId(*number)),
            Some(Number::Decimal(text)) => Some(ShopId::parse(text).ok()?),
        };
        if role == Role::Agent && shop.is_none() {
            return None;
        }
        let scopes: Vec<String> = self.scope.as_deref().unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect();
        if scopes.len() > SCOPES_MAX || scopes.iter().any(|scope| scope.len() > SCOPE_BYTES_MAX) {
            return None;
        }
        // One that nobody could name when it is to be revoked is no id.
        if self.jti.as_ref().is_some_and(|id| !(1..=TOKEN_ID_BYTES_MAX).contains(&id.len())) {
            return None;
        }
        Some(Principal { id, role, shop, scopes, expires_at: self.exp.millis(), token_id: self.jti.clone() })
    }
}

/// An id as a JSON integer or a decimal string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Integer(u64),
    Decimal(String),
}

/// One name or several (RFC 7519, 4.1.3).
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    pub(super) fn names(&self, audience: &str) -> bool {
        match self {
            Self::One(name) => name == audience,
            Self::Several(names) => names.iter().any(|name| name == audience),
        }
    }
}

/// Seconds since the epoch, possibly with a fraction (RFC 7519, 2).
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct NumericDate(f64);

impl TryFrom<f64> for NumericDate {
    type Error = &'static str;

    fn try_from(seconds: f64) -> Result<Self, Self::Error> {
        if seconds.is_finite() && seconds >= 0.0 { Ok(Self(seconds)) } else { Err("not a time after 1970") }
    }
}

impl NumericDate {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and `as` saturates at the end of time")]
    pub(super) fn millis(self) -> UnixMillis {
        UnixMillis((self.0 * 1_000.0) as u64)
    }
}
