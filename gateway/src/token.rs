//! Minting tokens for development and operators, with the configured HS256 secret. Real tokens come from the shop's own
//! identity provider; this process only ever verifies those.

use std::time::Duration;

use gateway_core::config::{TokenKey, Tokens};
use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::principal::Role;
use gateway_core::time::UnixMillis;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;

/// Whom a token speaks for.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    /// The `sub` claim.
    pub id: PrincipalId,
    /// The `role` claim.
    pub role: Role,
    /// The `shop_id` claim.
    pub shop: Option<ShopId>,
    /// The `scope` claim; empty leaves it out.
    pub scope: String,
    /// How long it lasts.
    pub ttl: Duration,
}

/// Why no token was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MintError {
    /// Only a shared secret can sign here.
    #[error("tokens.secret is not set: this deployment verifies tokens of another issuer and cannot make any")]
    NoSecret,
    /// The library refused.
    #[error("cannot sign the token")]
    Sign(#[source] jsonwebtoken::errors::Error),
}

/// A signed token for `grant`, issued at `now`.
pub(crate) fn mint(tokens: &Tokens, grant: &Grant, now: UnixMillis) -> Result<String, MintError> {
    let TokenKey::Secret(secret) = &tokens.key else {
        return Err(MintError::NoSecret);
    };
    let seconds = now.0 / 1_000;
    let mut claims = json!({
        "sub": grant.id.as_str(), "role": grant.role.as_str(), "iss": tokens.issuer, "aud": tokens.audience,
        "iat": seconds, "exp": seconds + grant.ttl.as_secs(),
    });
    if let Some(shop) = grant.shop {
        claims["shop_id"] = json!(shop.to_string());
    }
    if !grant.scope.is_empty() {
        claims["scope"] = json!(grant.scope);
    }
    let key = EncodingKey::from_secret(secret.expose().as_bytes()).map_err(MintError::Sign)?;
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).map_err(MintError::Sign)
}
