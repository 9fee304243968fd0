//! `[tokens]`: which bearer tokens of clients are believed.

use std::path::PathBuf;
use std::time::Duration;

use super::secret::Secret;
use super::section::Section;

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
}

impl Tokens {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            issuer: section.text("issuer", "sluice"),
            audience: section.text("audience", "sluice"),
            leeway: section.millis("leeway_ms", 5_000, 0..=300_000),
            key: TokenKey::read(&mut section),
        }
    }
}

impl TokenKey {
    fn read(section: &mut Section<'_>) -> Self {
        const KEYS: [&str; 3] = ["secret", "public_key_file", "jwks_file"];
        let given: Vec<&str> = KEYS.into_iter().filter(|key| section.has(key)).collect();
        let keys = [
            section.optional_secret("secret", SECRET_BYTES_MIN).map(Self::Secret),
            section.optional_text("public_key_file").map(|file| Self::PublicKeyFile(file.into())),
            section.optional_text("jwks_file").map(|file| Self::JwksFile(file.into())),
        ];
        match given.as_slice() {
            [] => section.blame("secret", "is missing, and so are `public_key_file` and `jwks_file`", "set exactly one of the three"),
            [_] => {}
            [_, second, ..] => {
                let second = if *second == "jwks_file" { "jwks_file" } else { "public_key_file" };
                section.blame(second, format!("is set together with `{}`", given[0]), "set exactly one of the three");
            }
        }
        keys.into_iter().flatten().next().unwrap_or_else(|| Self::Secret(Secret::default()))
    }
}
