//! `[sale]`: the flash sale.

use std::time::Duration;

use super::secret::Secret;
use super::section::Section;

/// How attempts are batched and sales are prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sale {
    /// Makes order numbers: the same on every node, and never changed while a sale runs. At least 32 bytes.
    pub order_key: Secret,
    /// Most attempts in one call to the admission store.
    pub batch_max: usize,
    /// How long an attempt waits for company.
    pub batch_wait: Duration,
    /// How often the list of lots is read again.
    pub catalog_refresh: Duration,
    /// How long before its window a published sale is pre-heated.
    pub preheat_before: Duration,
    /// How long an attempt is tried again while the admission store is away, before it is refused.
    pub patience: Duration,
    /// How long an unpaid order is left alone after its time is over: a payment may be on its way.
    pub pay_grace: Duration,
}

impl Sale {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            order_key: section.required_secret("order_key", 32),
            batch_max: section.number("batch_max", 64, 1..=64),
            batch_wait: Duration::from_micros(section.number("batch_wait_us", 500, 0..=1_000)),
            catalog_refresh: section.millis("catalog_refresh_ms", 1_000, 50..=60_000),
            preheat_before: Duration::from_secs(section.number("preheat_before_s", 300, 0..=86_400)),
            patience: section.millis("patience_ms", 2_000, 0..=30_000),
            pay_grace: section.millis("pay_grace_ms", 120_000, 0..=3_600_000),
        }
    }
}
