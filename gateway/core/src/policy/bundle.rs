//! A bundle: one component, what it says of itself, and a signature over both.
//!
//! ```text
//! "SLUICE-BUNDLE-1\n" · length of the label (u32, little endian) · label (JSON) · signature (64 bytes) · component
//! ```
//!
//! The label names the component by its SHA-256, and the signature (Ed25519, RFC 8032) is over the magic line and the label;
//! so it covers every byte but itself. Nothing is parsed before its length is known to be within bounds, and nothing of the
//! label is believed before the signature fits.
//! What never happens here: reading a file, drawing a key.

use data_encoding::{BASE64, HEXLOWER};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::policy::Digest;

/// The first bytes of a bundle.
const MAGIC: &[u8] = b"SLUICE-BUNDLE-1\n";

/// Largest label.
const LABEL_BYTES_MAX: usize = 64 << 10;

/// Largest component that is accepted; the built ones are about 100 KB, and one that carries a JavaScript engine 12 MB.
pub const COMPONENT_BYTES_MAX: usize = 32 << 20;

/// Largest bundle.
pub const BUNDLE_BYTES_MAX: usize = MAGIC.len() + 4 + LABEL_BYTES_MAX + 64 + COMPONENT_BYTES_MAX;

/// What a component says of itself, so that a listing needs no compiler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Label {
    /// The plugin: `[a-z0-9-]{1,40}`.
    pub plugin: String,
    /// The author's version, for people.
    pub version: String,
    /// The component.
    pub component: Digest,
    /// `request`, `attempt`, `message`, `response`.
    pub phases: Vec<String>,
    /// The header fields it wants to see.
    pub headers: Vec<String>,
    /// The imports it uses: what it could do.
    pub capabilities: Vec<String>,
}

/// A bundle whose signature fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle<'a> {
    /// What it says.
    pub label: Label,
    /// Whose signature it is: the key's id.
    pub signer: String,
    /// The component.
    pub component: &'a [u8],
}

/// Why bytes are not a bundle that can be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// Too long.
    #[error("the bundle has more than {BUNDLE_BYTES_MAX} bytes")]
    TooLarge,
    /// Not a bundle, or cut off.
    #[error("this is not a whole bundle; `sluice plugin sign` makes one")]
    NotABundle,
    /// No trusted key made the signature.
    #[error("no trusted key signed this bundle, or it was changed afterwards")]
    UnknownSigner,
    /// The label is not what labels are.
    #[error("the bundle's label is broken: {0}")]
    Label(String),
    /// The component is not the signed one.
    #[error("the component is not the one that was signed")]
    OtherComponent,
}

/// Public keys whose signatures are believed.
#[derive(Debug, Clone, Default)]
pub struct TrustedKeys(Vec<(String, VerifyingKey)>);

impl TrustedKeys {
    /// Adds the key in `text`: 32 bytes in base64, as [`public_key`] writes it. Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// When there is anything else in it.
    pub fn add(&mut self, text: &str) -> Result<(), InvalidKey> {
        let key = BASE64.decode(one_line(text)?.as_bytes()).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()).ok_or(InvalidKey)?;
        let key = VerifyingKey::from_bytes(&key).map_err(|_| InvalidKey)?;
        // A key of small order would verify signatures that nobody made.
        if key.is_weak() {
            return Err(InvalidKey);
        }
        self.0.push((key_id(&key), key));
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a key: expected one line of base64 for 32 bytes")]
pub struct InvalidKey;

/// A key that signs.
pub struct SigningSeed(SigningKey);

impl SigningSeed {
    /// The key of a secret seed. Whoever calls this drew it from a good source.
    #[must_use]
    pub fn new(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Reads what [`SigningSeed::to_text`] wrote.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let seed = BASE64.decode(one_line(text)?.as_bytes()).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        seed.map(|seed| Self::new(&seed)).ok_or(InvalidKey)
    }

    /// The secret as one line of base64.
    #[must_use]
    pub fn to_text(&self) -> String {
        BASE64.encode(self.0.as_bytes())
    }

    /// The public key as one line of base64: what nodes trust.
    #[must_use]
    pub fn public_key(&self) -> String {
        BASE64.encode(self.0.verifying_key().as_bytes())
    }

    /// The key's id: 16 hex digits.
    #[must_use]
    pub fn id(&self) -> String {
        key_id(&self.0.verifying_key())
    }
}

fn one_line(text: &str) -> Result<&str, InvalidKey> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    match (lines.next(), lines.next()) {
        (Some(line), None) => Ok(line),
        (None | Some(_), _) => Err(InvalidKey),
    }
}

fn key_id(key: &VerifyingKey) -> String {
    let mut digits = HEXLOWER.encode(&Sha256::digest(key.as_bytes()));
    digits.truncate(16);
    digits
}

/// Makes a bundle of `component`, whose digest the label must name.
///
/// # Errors
/// [`BundleError::OtherComponent`] when it does not; [`BundleError::TooLarge`].
pub fn seal(label: &Label, component: &[u8], key: &SigningSeed) -> Result<Vec<u8>, BundleError> {
    if label.component != Digest::of(component) {
        return Err(BundleError::OtherComponent);
    }
    let text = serde_json::to_vec(label).map_err(|error| BundleError::Label(error.to_string()))?;
    if text.len() > LABEL_BYTES_MAX || component.len() > COMPONENT_BYTES_MAX {
        return Err(BundleError::TooLarge);
    }
    let length = u32::try_from(text.len()).map_err(|_| BundleError::TooLarge)?;
    let mut bundle = [MAGIC, &length.to_le_bytes(), &text].concat();
    let signature = key.0.sign(&signed(&text));
    bundle.extend_from_slice(&signature.to_bytes());
    bundle.extend_from_slice(component);
    Ok(bundle)
}

/// What the signature is over.
fn signed(label: &[u8]) -> Vec<u8> {
    [MAGIC, label].concat()
}

/// Reads a bundle and proves it against `trusted`.
///
/// # Errors
/// Why it cannot be believed.
pub fn open<'a>(bytes: &'a [u8], trusted: &TrustedKeys) -> Result<Bundle<'a>, BundleError> {
    if bytes.len() > BUNDLE_BYTES_MAX {
        return Err(BundleError::TooLarge);
    }
    let rest = bytes.strip_prefix(MAGIC).ok_or(BundleError::NotABundle)?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or(BundleError::NotABundle)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > LABEL_BYTES_MAX {
        return Err(BundleError::NotABundle);
    }
    let (text, rest) = rest.split_at_checked(length).ok_or(BundleError::NotABundle)?;
    let (signature, component) = rest.split_first_chunk::<64>().ok_or(BundleError::NotABundle)?;
    let (message, signature) = (signed(text), Signature::from_bytes(signature));
    // Strict: of the encodings of one signature only one is accepted, so a bundle cannot be changed and stay valid.
    let signer = trusted.0.iter().find(|(_, key)| key.verify_strict(&message, &signature).is_ok());
    let (signer, _) = signer.ok_or(BundleError::UnknownSigner)?;
    let label: Label = serde_json::from_slice(text).map_err(|error| BundleError::Label(error.to_string()))?;
    if label.component != Digest::of(component) {
        return Err(BundleError::OtherComponent);
    }
    Ok(Bundle { label, signer: signer.clone(), component })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPONENT: &[u8] = b"\0asm and so on";

    fn key(seed: u8) -> SigningSeed {
        SigningSeed::new(&[seed; 32])
    }

    fn trusting(seed: u8) -> TrustedKeys {
        let mut trusted = TrustedKeys::default();
        trusted.add(&format!("# the security team\n{}\n", key(seed).public_key())).unwrap();
        trusted
    }

    fn label() -> Label {
        Label {
            plugin: "demo".into(),
            version: "1.0.0".into(),
            component: Digest::of(COMPONENT),
            phases: vec!["request".into()],
            headers: Vec::new(),
            capabilities: vec!["lists".into()],
        }
    }

    #[test]
    fn a_bundle_of_a_trusted_key_opens() {
        let bytes = seal(&label(), COMPONENT, &key(1)).unwrap();
        let bundle = open(&bytes, &trusting(1)).unwrap();
        assert_eq!((bundle.label, bundle.component, bundle.signer), (label(), COMPONENT, key(1).id()));
    }

    #[test]
    fn a_bundle_of_another_key_does_not() {
        let bytes = seal(&label(), COMPONENT, &key(1)).unwrap();
        assert_eq!(open(&bytes, &trusting(2)), Err(BundleError::UnknownSigner));
        assert_eq!(open(&bytes, &TrustedKeys::default()), Err(BundleError::UnknownSigner));
    }

    #[test]
    fn no_bit_can_be_flipped() {
        let (bytes, trusted) = (seal(&label(), COMPONENT, &key(1)).unwrap(), trusting(1));
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[place] ^= 1 << bit;
                assert!(open(&changed, &trusted).is_err(), "byte {place} bit {bit}");
            }
        }
    }

    #[test]
    fn no_byte_can_be_cut_off_or_added() {
        let (bytes, trusted) = (seal(&label(), COMPONENT, &key(1)).unwrap(), trusting(1));
        for length in 0..bytes.len() {
            assert!(open(&bytes[..length], &trusted).is_err(), "{length}");
        }
        assert_eq!(open(&[&bytes[..], b"!"].concat(), &trusted), Err(BundleError::OtherComponent));
    }

    #[test]
    fn sizes_are_bounded() {
        let huge = vec![0; BUNDLE_BYTES_MAX + 1];
        assert_eq!(open(&huge, &trusting(1)), Err(BundleError::TooLarge));
        let claims = [MAGIC, &u32::MAX.to_le_bytes(), b"{}"].concat();
        assert_eq!(open(&claims, &trusting(1)), Err(BundleError::NotABundle));
        let component = vec![0; COMPONENT_BYTES_MAX + 1];
        let label = Label { component: Digest::of(&component), ..label() };
        assert_eq!(seal(&label, &component, &key(1)), Err(BundleError::TooLarge));
    }

    #[test]
    fn keys_are_read_strictly() {
        let mut trusted = TrustedKeys::default();
        let (good, small_order) = (key(1).public_key(), BASE64.encode(&[0; 32]));
        for text in ["", "# only a comment", "AAAA", "not base64!", small_order.as_str(), &format!("{good}\n{good}")] {
            assert_eq!(trusted.add(text), Err(InvalidKey), "{text}");
        }
        assert!(trusted.is_empty());
        let seed = SigningSeed::parse(&key(1).to_text()).unwrap();
        assert_eq!(seed.public_key(), key(1).public_key());
        assert!(SigningSeed::parse("AAAA").is_err());
    }
}
