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

use crate::lists::Lists;

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
    /// Its `jti` or its `sub` is on the list of what is revoked.
    Revoked,
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
            Self::Revoked => "revoked",
        }
    }
}

/// Judges tokens against keys that may be replaced while it does.
pub struct Verifier {
    issuer: String,
    audience: String,
    leeway: Duration,
    ring: ArcSwap<KeyRing>,
    cache: Cache,
    revoked: Option<Revoked>,
}

/// What is revoked: the list of this name.
struct Revoked {
    lists: Arc<Lists>,
    name: String,
}

impl Verifier {
    /// Reads the keys.
    ///
    /// # Errors
    /// When a key cannot be read, is too weak, or no key is left.
    pub fn new(settings: VerifierSettings) -> Result<Self, KeysError> {
        let ring = ArcSwap::from_pointee(KeyRing::read(&settings.keys)?);
        let VerifierSettings { issuer, audience, leeway, keys: _ } = settings;
        Ok(Self { issuer, audience, leeway, ring, cache: Cache::new(CACHE_TOKENS_MAX), revoked: None })
    }

    /// Refuses from now on what is on the list `name` of `lists`: a token by its `jti`, or every token of a `sub`.
    #[must_use]
    pub fn refusing(self, lists: Arc<Lists>, name: &str) -> Self {
        Self { revoked: Some(Revoked { lists, name: name.to_owned() }), ..self }
    }

    /// Whether the token that proved `principal` is revoked by now.
    #[must_use]
    pub fn revokes(&self, principal: &Principal) -> bool {
        self.revoked.as_ref().is_some_and(|Revoked { lists, name }| {
            lists.contains(name, principal.id.as_str()) || principal.token_id.as_deref().is_some_and(|id| lists.contains(name, id))
        })
    }

    /// Puts `keys` in place of all there were. A token that was signed by a key that is gone is refused from now on, though it
    /// was verified before.
    ///
    /// # Errors
    /// When a key cannot be read or none is left; the old keys stay.
    pub fn replace(&self, keys: Keys) -> Result<(), KeysError> {
        self.ring.store(Arc::new(KeyRing::read(&keys)?));
        Ok(())
    }

    /// Believes no key any more: every token is refused until there are new ones.
    pub fn forget_keys(&self) {
        self.ring.store(Arc::new(KeyRing::empty()));
    }

    /// Whether other keys could not make a difference to `token`: its key is on the ring, or it is not one that a key is ever
    /// looked for. No signature is checked.
    #[must_use]
    pub fn key_is_known(&self, token: &str) -> bool {
        if token.len() > TOKEN_BYTES_MAX {
            return true;
        }
        let ring = self.ring.load();
        if self.cache.get(&Cache::digest(token)).is_some_and(|verified| ring.has(&verified.key)) {
            return true;
        }
        match jsonwebtoken::decode_header(token) {
            Err(_) => true,
            Ok(header) if header.kid.is_none() && !ring.is_empty() => true,
            Ok(header) => ring.find(header.kid.as_deref()).is_some(),
        }
    }

    /// Who is behind `token` at `now`.
    ///
    /// # Errors
    /// Why nobody is.
    pub fn verify(&self, token: &str, now: UnixMillis) -> Result<Principal, VerifyError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(VerifyError::Malformed);
        }
        let ring = self.ring.load();
        let digest = Cache::digest(token);
        if let Some(verified) = self.cache.get(&digest).filter(|verified| ring.has(&verified.key)) {
            return self.holds(&verified, now).map(|()| verified.principal.clone());
        }
        let verified = self.check(token, &ring)?;
        // A token that is not valid yet is not kept: it would push out one that is.
        self.holds(&verified, now)?;
        let principal = verified.principal.clone();
        self.cache.put(digest, verified);
        Ok(principal)
    }

    /// Everything about a token that does not change with time.
    fn check(&self, token: &str, ring: &KeyRing) -> Result<Verified, VerifyError> {
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
        Ok(Verified { principal: claims.principal().ok_or(VerifyError::BadClaims)?, not_before, key: key.print })
    }

    /// Everything that changes with time.
    fn holds(&self, verified: &Verified, now: UnixMillis) -> Result<(), VerifyError> {
        self.in_time(verified, now)?;
        if self.revokes(&verified.principal) { Err(VerifyError::Revoked) } else { Ok(()) }
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
