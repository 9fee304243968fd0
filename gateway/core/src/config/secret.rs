//! Values that must not be seen in logs, errors or dumps.

use std::fmt;

/// A secret text; its `Debug` form is a mask, and it has no `Display`. Comparing a client's guess with one is the
/// caller's business and needs constant time, which `==` is not.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself; the name makes each use easy to find.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}
