//! Building answers: the empty ones, and the few combinators that keep rules readable.

use crate::types::{Charge, Effects, Refusal, Verdict};

impl Default for Effects {
    /// Proceed and ask for nothing.
    fn default() -> Self {
        Self {
            principal: None,
            set_headers: Vec::new(),
            remove_headers: Vec::new(),
            charges: Vec::new(),
            tags: Vec::new(),
            score: 0,
            replace: None,
            reply: None,
        }
    }
}

impl Refusal {
    /// A refusal without a retry.
    #[must_use]
    pub fn new(status: u16, code: &str, message: &str) -> Self {
        Self { status, code: code.to_owned(), message: message.to_owned(), retry_after_ms: None }
    }

    /// Says when a retry can help.
    #[must_use]
    pub fn retry_after_ms(mut self, wait_ms: u64) -> Self {
        self.retry_after_ms = Some(wait_ms);
        self
    }
}

impl Verdict {
    /// Proceed and ask for nothing.
    #[must_use]
    pub fn proceed() -> Self {
        Self::Proceed(Effects::default())
    }

    /// Proceed if all of `charges` fit their budgets.
    #[must_use]
    pub fn charge(charges: Vec<Charge>) -> Self {
        Self::Proceed(Effects { charges, ..Effects::default() })
    }
}
