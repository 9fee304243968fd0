//! Reading verification keys. A key brings its algorithm with it: what a token says about itself only has to agree.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use sha2::{Digest as _, Sha256};

/// HMAC-SHA-256 loses strength with a shorter key (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// Most keys of a set. Issuers publish two or three while they rotate.
const KEYS_MAX: usize = 64;

/// Where keys come from.
#[derive(Clone)]
pub enum Keys {
    /// A shared secret of at least 32 bytes, for HS256.
    Secret(Vec<u8>),
    /// One public key as PEM: RSA means RS256, P-256 means ES256, Ed25519 means EdDSA.
    PublicKeyPem(String),
    /// A JSON Web Key Set (RFC 7517) as text.
    Jwks(String),
    /// None yet, or none any more: no token is believed.
    None,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret(…)",
            Self::PublicKeyPem(_) => "PublicKeyPem(…)",
            Self::Jwks(_) => "Jwks(…)",
            Self::None => "None",
        })
    }
}

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The shared secret is too short for HS256.
    #[error("token keys: the secret is shorter than {SECRET_BYTES_MIN} bytes")]
    ShortSecret,
    /// The text is no PEM of a public key we can use.
    #[error("token keys: no RSA, P-256 or Ed25519 public key in the PEM")]
    Pem,
    /// The text is no key set.
    #[error("token keys: not a JSON Web Key Set")]
    Jwks(#[source] serde_json::Error),
    /// A key of the set cannot be used.
    #[error("token keys: key {index} of the set {problem}")]
    Jwk {
        /// Its place in `keys`, from 0.
        index: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Nothing is left to verify with.
    #[error("token keys: the set has no signing key that can be used")]
    Empty,
}

/// Tells one key from another: a SHA-256 over what it is made of, its name and its algorithm.
pub(super) type Print = [u8; 32];

/// One key and what it is for.
pub(super) struct Key {
    id: Option<String>,
    pub(super) print: Print,
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

/// The keys of a verifier; empty only when nobody has given any.
pub(super) struct KeyRing(Vec<Key>);

impl KeyRing {
    pub(super) fn read(keys: &Keys) -> Result<Self, KeysError> {
        let ring = match keys {
            Keys::Secret(secret) => vec![hs256(None, secret).ok_or(KeysError::ShortSecret)?],
            // A private key would be read as well, and then verify nothing; and it has no business here.
            Keys::PublicKeyPem(pem) if pem.contains("PRIVATE KEY") => return Err(KeysError::Pem),
            Keys::PublicKeyPem(pem) => vec![pem_key(pem.as_bytes()).ok_or(KeysError::Pem)?],
            Keys::Jwks(text) => set_keys(text)?,
            Keys::None => return Ok(Self::empty()),
        };
        if ring.is_empty() { Err(KeysError::Empty) } else { Ok(Self(ring)) }
    }

    pub(super) fn empty() -> Self {
        Self(Vec::new())
    }

    /// The key a token means: the one with exactly its `kid`, or the only one when either has no name.
    pub(super) fn find(&self, kid: Option<&str>) -> Option<&Key> {
        match (kid, self.0.as_slice()) {
            (None, [only]) => Some(only),
            (Some(_), [only]) if only.id.is_none() => Some(only),
            (Some(kid), keys) => keys.iter().find(|key| key.id.as_deref() == Some(kid)),
            (None, _) => None,
        }
    }

    /// Whether the key of that print is still on the ring.
    pub(super) fn has(&self, print: &Print) -> bool {
        self.0.iter().any(|key| key.print == *print)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Key {
    fn new(id: Option<String>, algorithm: Algorithm, decoding: DecodingKey, material: &[u8]) -> Self {
        let name = format!("{algorithm:?} {id:?} ");
        let print = Sha256::new().chain_update(name).chain_update(material).finalize().into();
        Self { id, print, algorithm, decoding }
    }
}

fn hs256(id: Option<String>, secret: &[u8]) -> Option<Key> {
    let decoding = DecodingKey::from_secret(secret).ok().filter(|_| secret.len() >= SECRET_BYTES_MIN)?;
    Some(Key::new(id, Algorithm::HS256, decoding, secret))
}

fn pem_key(pem: &[u8]) -> Option<Key> {
    let rsa = DecodingKey::from_rsa_pem(pem).map(|key| (Algorithm::RS256, key));
    let (algorithm, decoding) = rsa
        .or_else(|_| DecodingKey::from_ec_pem(pem).map(|key| (Algorithm::ES256, key)))
        .or_else(|_| DecodingKey::from_ed_pem(pem).map(|key| (Algorithm::EdDSA, key)))
        .ok()?;
    Some(Key::new(None, algorithm, decoding, pem))
}

fn set_keys(text: &str) -> Result<Vec<Key>, KeysError> {
    let set: JwkSet = serde_json::from_str(text).map_err(KeysError::Jwks)?;
    if set.keys.len() > KEYS_MAX {
        return Err(KeysError::Jwk { index: KEYS_MAX, problem: "is one too many" });
    }
    let mut keys: Vec<Key> = Vec::new();
    for (index, jwk) in set.keys.iter().enumerate() {
        // Issuers publish encryption keys in the same set.
        if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
            continue;
        }
        let problem = |problem| KeysError::Jwk { index, problem };
        let id = jwk.common.key_id.clone();
        if keys.iter().any(|key| key.id == id) {
            return Err(problem("has no `kid` of its own"));
        }
        keys.extend(set_key(jwk, id).map_err(problem)?);
    }
    if keys.len() > 1 && keys.iter().any(|key| key.id.is_none()) {
        return Err(KeysError::Jwk { index: 0, problem: "has no `kid`, like another one; a token could mean either" });
    }
    Ok(keys)
}

/// `None` is a key of a kind or curve we cannot use; such keys are passed over (RFC 7517, 5).
fn set_key(jwk: &Jwk, id: Option<String>) -> Result<Option<Key>, &'static str> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the library's list of key kinds is open")]
    let (usual, possible): (Algorithm, &[Algorithm]) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (
            Algorithm::RS256,
            &[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512],
        ),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => (Algorithm::ES256, &[Algorithm::ES256]),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => (Algorithm::ES384, &[Algorithm::ES384]),
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => (Algorithm::EdDSA, &[Algorithm::EdDSA]),
        // A set is something one publishes.
        AlgorithmParameters::OctetKey(_) => return Err("is a shared secret, which does not belong in a set"),
        _ => return Ok(None),
    };
    let algorithm = match jwk.common.key_algorithm {
        Some(declared) => Algorithm::try_from(declared).ok().filter(|algorithm| possible.contains(algorithm)),
        None => Some(usual),
    };
    let algorithm = algorithm.ok_or("has an `alg` that its `kty` cannot do")?;
    let decoding = DecodingKey::from_jwk(jwk).map_err(|_| "cannot be decoded")?;
    let material = serde_json::to_vec(&jwk.algorithm).map_err(|_| "cannot be written")?;
    Ok(Some(Key::new(id, algorithm, decoding, &material)))
}
