//! Tokens as the shop's identity provider would make them.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

/// Signs every token of the tests, and stands in every configuration.
pub(crate) const SECRET: &str = "a-secret-of-the-tests-that-signs-tokens";

/// An hour is longer than any test.
const LIFE_S: i64 = 3_600;

/// A user's token.
pub(crate) fn user(id: &str) -> String {
    sign(&claims(id, "user", LIFE_S))
}

/// An agent's token.
pub(crate) fn agent(id: &str, shop: u64) -> String {
    let mut claims = claims(id, "agent", LIFE_S);
    claims["shop_id"] = json!(shop.to_string());
    sign(&claims)
}

/// A complete set of claims that ends `ends_in_s` from now; negative for one that has ended.
pub(crate) fn claims(id: &str, role: &str, ends_in_s: i64) -> Value {
    json!({ "sub": id, "role": role, "iss": "sluice", "aud": "sluice", "exp": now_s() + ends_in_s })
}

/// A token of these claims.
pub(crate) fn sign(claims: &Value) -> String {
    sign_as(&Header::new(Algorithm::HS256), SECRET, claims)
}

/// A token of these claims, signed in another way.
pub(crate) fn sign_as(header: &Header, secret: &str, claims: &Value) -> String {
    let key = EncodingKey::from_secret(secret.as_bytes()).expect("the algorithms of the tests take any secret");
    jsonwebtoken::encode(header, claims, &key).expect("claims are JSON")
}

/// Seconds since 1970.
pub(crate) fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
