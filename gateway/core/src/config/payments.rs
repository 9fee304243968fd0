//! `[payments]`: where money that came too late is sent back.

use std::time::Duration;

use super::secret::Secret;
use super::section::Section;
use super::syntax;

/// The shop's payment service, as far as the flash sale needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payments {
    /// Takes `POST {orderNo, payNo, amountCents}` with an `Idempotency-Key`; 2xx means that the refund is under way. `None`: each
    /// refund goes to the compensation list, for an operator.
    pub refund_url: Option<String>,
    /// Sent as a bearer token; empty sends none.
    pub token: Secret,
    /// How long one call may take.
    pub timeout: Duration,
}

impl Payments {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            refund_url: section
                .optional(
                    "refund_url",
                    syntax::GUARDED_URL,
                    |text| {
                        if text.is_empty() { Some(None) } else { syntax::guarded_url(text).map(Some) }
                    },
                )
                .flatten(),
            token: section.secret("token", "", "any text", |_| true),
            timeout: section.millis("timeout_ms", 5_000, 100..=20_000),
        }
    }
}
