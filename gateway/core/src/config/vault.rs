//! `[vault]`: the keys for what only the parties of a session may read.

use std::path::PathBuf;
use std::time::Duration;

use super::secret::Secret;
use super::section::Section;
use super::syntax;

/// Where keys come from, and what they seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vault {
    /// The keys; `None`: nothing is sealed.
    pub keys: Option<VaultKeys>,
    /// Members of cards whose values are sealed, at any depth.
    pub fields: Vec<String>,
    /// How often keys are looked for.
    pub refresh: Duration,
}

/// Where keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VaultKeys {
    /// A file, read again when it changes.
    File(PathBuf),
    /// A URL that answers with the same text.
    Url {
        /// `https://`, or `http://` to loopback for tests and sidecars.
        url: String,
        /// Sent as bearer token; `None`: nothing is sent.
        token: Option<Secret>,
    },
}

impl Vault {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let file = section.optional_text("key_file").map(|file| VaultKeys::File(file.into()));
        let token = section.optional_secret("kms_token", 1);
        let url = section.given("kms_url", syntax::GUARDED_URL, syntax::guarded_url).map(|url| VaultKeys::Url { url, token });
        if file.is_some() && url.is_some() {
            section.blame("kms_url", "is set, and so is `key_file`", "keep one of the two");
        }
        let mut fields =
            section.list("fields", "the name of a member, e.g. \"phone\"", |name| (1..=64).contains(&name.len()).then(|| name.to_owned()));
        if !section.has("fields") {
            fields = ["phone", "mobile", "tel", "address", "receiver"].map(str::to_owned).into();
        }
        Self { keys: file.or(url), fields, refresh: section.millis("refresh_ms", 60_000, 100..=86_400_000) }
    }
}
