//! Vault: keys for what nobody but the two parties of a session may read.

/// A key's name: 1 to 32 of `[A-Za-z0-9_-]`; it stands in front of what the key has sealed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(String);

impl KeyId {
    /// Checks alphabet and length.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        fits.then(|| Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What was sealed cannot be opened: the key is not there any more, or it was changed, or moved to another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sealed value cannot be opened")]
pub struct Unsealable;

/// Whether values can be sealed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Live {
    /// The deployment has no vault: nothing is sealed.
    Off,
    /// This key seals.
    Key(KeyId),
    /// There is a vault, and no key of it is known yet or valid today.
    Missing,
}

/// AES-256-GCM under keys that change daily.
///
/// Promise: what one node sealed every node opens for as long as its key is listed. The keys are in memory, so sealing and
/// opening do not wait.
pub trait Vault: Send + Sync {
    /// What seals now.
    fn live(&self) -> Live;

    /// Encrypts `plain` under the live key, bound to `context`; base64 of nonce, text and tag. `None` without a live key.
    fn seal(&self, plain: &[u8], context: &[u8]) -> Option<(KeyId, String)>;

    /// Decrypts what [`Vault::seal`] made under `key` for the same `context`.
    fn open(&self, key: &KeyId, sealed: &str, context: &[u8]) -> Result<Vec<u8>, Unsealable>;
}
