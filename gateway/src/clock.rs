//! The wall clock. Shells read it here and pass it to the core, which has none.

use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::time::UnixMillis;

/// Now. A machine set before 1970 reads 1970.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
