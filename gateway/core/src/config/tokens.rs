//! `[tokens]`: which bearer tokens of clients are believed.

use std::path::PathBuf;
use std::time::Duration;

use super::secret::Secret;
use super::section::Section;
use super::syntax;

/// HMAC-SHA-256 gains nothing from a longer key and loses strength with a shorter one (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// How client tokens are verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The `iss` every token must have.
    pub issuer: String,
    /// The `aud` every token must name.
    pub audience: String,
    /// How far clocks may disagree about `exp` and `nbf`.
    pub leeway: Duration,
    /// What signatures are checked with.
    pub key: TokenKey,
    /// The list of what is revoked: a token's `jti`, or a `sub` with all of its tokens.
    pub revoked_list: String,
}

/// Where the verification key comes from; it alone decides the algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenKey {
    /// A shared secret of at least 32 bytes, for HS256.
    Secret(Secret),
    /// A PEM file with one public key.
    PublicKeyFile(PathBuf),
    /// A file with a JSON Web Key Set.
    JwksFile(PathBuf),
    /// A JSON Web Key Set behind a URL.
    JwksUrl(JwksUrl),
}

/// A key set that is fetched, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwksUrl {
    /// `https://`, or `http://` to loopback for tests and sidecars.
    pub url: String,
    /// How often it is fetched.
    pub refresh: Duration,
    /// Shortest time between two fetches that unknown keys bring about.
    pub cooldown: Duration,
    /// How long a key set is believed when it cannot be fetched again.
    pub stale: Duration,
}

impl Tokens {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            issuer: section.text("issuer", "sluice"),
            audience: section.text("audience", "sluice"),
            leeway: section.millis("leeway_ms", 5_000, 0..=300_000),
            key: TokenKey::read(&mut section),
            revoked_list: section.text("revoked_list", "revoked"),
        }
    }
}

impl TokenKey {
    fn read(section: &mut Section<'_>) -> Self {
        const KEYS: [&str; 4] = ["secret", "public_key_file", "jwks_file", "jwks_url"];
        let given: Vec<&str> = KEYS.into_iter().filter(|key| section.has(key)).collect();
        let refresh = section.millis("jwks_refresh_ms", 300_000, 1_000..=86_400_000);
        let cooldown = section.millis("jwks_cooldown_ms", 10_000, 100..=3_600_000);
        let stale = section.millis("jwks_stale_ms", 86_400_000, 1_000..=604_800_000);
        let keys = [
            section.optional_secret("secret", SECRET_BYTES_MIN).map(Self::Secret),
            section.optional_text("public_key_file").map(|file| Self::PublicKeyFile(file.into())),
            section.optional_text("jwks_file").map(|file| Self::JwksFile(file.into())),
            // A key set decides who everybody is.
            section
                .given("jwks_url", syntax::GUARDED_URL, syntax::guarded_url)
                .map(|url| Self::JwksUrl(JwksUrl { url, refresh, cooldown, stale })),
        ];
        match given.as_slice() {
            [] => section.blame(
                "secret",
                "is missing, and so are `public_key_file`, `jwks_file` and `jwks_url`",
                "set exactly one of the four",
            ),
            [_] => {}
            [_, second, ..] => {
                let second = KEYS.into_iter().find(|key| key == second).unwrap_or("secret");
                section.blame(second, format!("is set together with `{}`", given[0]), "set exactly one of the four");
            }
        }
        keys.into_iter().flatten().next().unwrap_or_else(|| Self::Secret(Secret::default()))
    }
}
