//! Instants between milliseconds and `datetime(3)`. Not by `from_unixtime`: on some supported servers it ends in 2038.

use gateway_core::time::UnixMillis;
use jiff::Timestamp;

/// The SQL that reads a `datetime(3)` column as milliseconds since the Unix epoch.
macro_rules! millis {
    ($column:literal) => {
        concat!("cast(timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', ", $column, ") div 1000 as unsigned)")
    };
}
pub(super) use millis;

/// What to bind to a `datetime(3)` column. Instants after the year 9999 are written as its end.
pub(super) fn datetime(at: UnixMillis) -> String {
    utc(at).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

/// The UTC day of an instant, as `20260601`.
pub(super) fn day(at: UnixMillis) -> String {
    utc(at).strftime("%Y%m%d").to_string()
}

fn utc(at: UnixMillis) -> Timestamp {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_utc_with_three_decimals() {
        assert_eq!(datetime(UnixMillis(0)), "1970-01-01 00:00:00.000");
        assert_eq!(datetime(UnixMillis(1_780_300_000_007)), "2026-06-01 07:46:40.007");
        assert_eq!(datetime(UnixMillis(u64::MAX)), "9999-12-30 22:00:00.999");
        assert_eq!(day(UnixMillis(1_780_300_000_007)), "20260601");
    }
}
