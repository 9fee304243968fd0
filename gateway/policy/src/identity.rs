//! Judging bearer tokens: signature, issuer, audience, times, claims.
//!
//! What never happens here: reading a clock (`now` is an argument), fetching keys, opening a file that a token names.
//! Guests reach it through `identity.verify`; the gateway calls it natively where a socket renews its token.

mod cache;
mod claims;
mod keys;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway_core::principal::Principal;
use gateway_core::time::UnixMillis;
use jsonwebtoken::Validation;

use cache::{Cache, Verified};
use claims::Claims;
use keys::KeyRing;

pub use keys::{Keys, KeysError};

/// Longest token that is looked at. Ours are under 1 KB; header limits of proxies are 8 KB.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Verified tokens kept, so that a signature is checked once per token and not once per request.
const CACHE_TOKENS_MAX: usize = 10_000;

/// What makes a token acceptable.
#[derive(Debug, Clone)]
pub struct VerifierSettings {
    /// The `iss` every token must have.
    pub issuer: String,
    /// The `aud` every token must name.
    pub audience: String,
    /// How far clocks may disagree about `exp` and `nbf`; 5 s is plenty for machines that keep time.
    pub leeway: Duration,
    /// What signatures are checked with.
    pub keys: Keys,
}

/// Why a token is refused. The word is for logs and metrics; a client is only told that it is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}", self.as_str())]
pub enum VerifyError {
    /// Longer than 8 KiB, not a JWT, or an algorithm nobody knows.
    Malformed,
    /// It names a key that is not on the ring, or none where there are several.
    UnknownKey,
    /// Its algorithm is not its key's.
    WrongAlgorithm,
    /// The signature does not fit.
    BadSignature,
    /// A claim is missing or of the wrong shape.
    BadClaims,
    /// `iss` is another's.
    WrongIssuer,
    /// `aud` does not name us.
    WrongAudience,
    /// `exp` has passed.
    Expired,
    /// `nbf` has not come.
    NotYetValid,
}

impl VerifyError {
    /// One word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownKey => "unknown-key",
            Self::WrongAlgorithm => "wrong-algorithm",
            Self::BadSignature => "bad-signature",
            Self::BadClaims => "bad-claims",
            Self::WrongIssuer => "wrong-issuer",
            Self::WrongAudience => "wrong-audience",
            Self::Expired => "expired",
            Self::NotYetValid => "not-yet-valid",
        }
    }
}

/// Judges tokens against keys that may be replaced.
pub struct Verifier {
    issuer: String,
    audience: String,
    leeway: Duration,
    trust: ArcSwap<Trust>,
}

/// Keys, and the tokens that they signed: both are replaced together, so that no token outlives the key that vouched for it.
struct Trust {
    ring: KeyRing,
    cache: Cache,
}

impl Trust {
    fn new(ring: KeyRing) -> Arc<Self> {
        Arc::new(Self { ring, cache: Cache::new(CACHE_TOKENS_MAX) })
    }
}

impl Verifier {
    /// Reads the keys.
    ///
    /// # Errors
    /// When a key cannot be read, is too weak, or no key is left.
    pub fn new(settings: VerifierSettings) -> Result<Self, KeysError> {
        let ring = KeyRing::read(&settings.keys)?;
        let VerifierSettings { issuer, audience, leeway, keys: _ } = settings;
        Ok(Self { issuer, audience, leeway, trust: ArcSwap::new(Trust::new(ring)) })
    }

    /// Believes `keys` from now on, and nobody else.
    ///
    /// # Errors
    /// Like [`Verifier::new`]; then nothing changes.
    pub fn replace(&self, keys: &Keys) -> Result<(), KeysError> {
        self.trust.store(Trust::new(KeyRing::read(keys)?));
        Ok(())
    }

    /// Believes nobody until keys are there again: every token has an unknown key.
    pub fn forget_keys(&self) {
        self.trust.store(Trust::new(KeyRing::empty()));
    }

    /// Whether there is a key that `token` may have been signed with. What is no token at all needs none, so it counts as
    /// known: no other key would help it.
    #[must_use]
    pub fn key_is_known(&self, token: &str) -> bool {
        let trust = self.trust.load();
        if token.len() > TOKEN_BYTES_MAX || trust.cache.get(&Cache::digest(token)).is_some() {
            return true;
        }
        jsonwebtoken::decode_header(token).map_or(true, |header| trust.ring.find(header.kid.as_deref()).is_some())
    }

    /// Who is behind `token` at `now`.
    ///
    /// # Errors
    /// Why nobody is.
    pub fn verify(&self, token: &str, now: UnixMillis) -> Result<Principal, VerifyError> {
        let digest = Cache::digest(token);
        let trust = self.trust.load();
        if let Some(verified) = trust.cache.get(&digest) {
            return self.in_time(&verified, now).map(|()| verified.principal.clone());
        }
        let verified = self.check(token, &trust.ring)?;
        // A token that is not valid yet is not kept: it would push out one that is.
        self.in_time(&verified, now)?;
        let principal = verified.principal.clone();
        trust.cache.put(digest, verified);
        Ok(principal)
    }

    /// Everything about a token that does not change with time.
    fn check(&self, token: &str, ring: &KeyRing) -> Result<Verified, VerifyError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(VerifyError::Malformed);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| VerifyError::Malformed)?;
        let key = ring.find(header.kid.as_deref()).ok_or(VerifyError::UnknownKey)?;
        if header.alg != key.algorithm {
            return Err(VerifyError::WrongAlgorithm);
        }

        // The library checks the signature alone: its clock is the system's, and it lets a token without `iss` or `aud` pass.
        let mut validation = Validation::new(key.algorithm);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        let claims: Claims = jsonwebtoken::decode(token, &key.decoding, &validation).map_err(|error| refused(&error))?.claims;

        if claims.iss != self.issuer {
            return Err(VerifyError::WrongIssuer);
        }
        if !claims.aud.names(&self.audience) {
            return Err(VerifyError::WrongAudience);
        }
        let not_before = claims.nbf.map_or(UnixMillis(0), claims::NumericDate::millis);
        Ok(Verified { principal: claims.principal().ok_or(VerifyError::BadClaims)?, not_before })
    }

    fn in_time(&self, verified: &Verified, now: UnixMillis) -> Result<(), VerifyError> {
        if now >= verified.principal.expires_at.plus(self.leeway) {
            return Err(VerifyError::Expired);
        }
        if now.plus(self.leeway) < verified.not_before {
            return Err(VerifyError::NotYetValid);
        }
        Ok(())
    }
}

/// The library's reason in our words.
fn refused(error: &jsonwebtoken::errors::Error) -> VerifyError {
    use jsonwebtoken::errors::ErrorKind;
    #[expect(clippy::wildcard_enum_match_arm, reason = "the library's list of reasons is long and open")]
    match error.kind() {
        ErrorKind::InvalidSignature => VerifyError::BadSignature,
        ErrorKind::InvalidAlgorithm => VerifyError::WrongAlgorithm,
        // The signature fits by now: what is wrong is what was signed.
        ErrorKind::Json(_) | ErrorKind::Utf8(_) => VerifyError::BadClaims,
        _ => VerifyError::Malformed,
    }
}
