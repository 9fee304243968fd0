//! Instants as operators write them: RFC 3339 with an offset, or Unix milliseconds.

use gateway_core::time::UnixMillis;
use serde_json::Value;

/// Reads an instant; the error names the field.
pub(crate) fn read(field: &str, value: &Value) -> Result<UnixMillis, String> {
    let wrong = || format!("{field} must be an RFC 3339 time with an offset, such as 2026-06-01T10:00:00+08:00, or Unix milliseconds");
    match value {
        Value::Number(number) => number.as_u64().map(UnixMillis).ok_or_else(wrong),
        Value::String(text) => {
            let at: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
            u64::try_from(at.as_millisecond()).map(UnixMillis).map_err(|_| wrong())
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(wrong()),
    }
}

/// Writes an instant in UTC.
pub(crate) fn write(at: UnixMillis) -> String {
    i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()).map_or_else(String::new, |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_instant_in_every_spelling() {
        let at = UnixMillis(1_780_279_200_000);
        for value in [json!("2026-06-01T10:00:00+08:00"), json!("2026-06-01T02:00:00Z"), json!(1_780_279_200_000_u64)] {
            assert_eq!(read("startAt", &value), Ok(at), "{value}");
        }
        assert_eq!(write(at), "2026-06-01T02:00:00Z");
    }

    #[test]
    fn a_time_without_an_offset_is_refused() {
        for value in [json!("2026-06-01T10:00:00"), json!("2026-06-01"), json!("soon"), json!(-1), json!(1.5), json!(null), json!(true)] {
            assert!(read("startAt", &value).is_err(), "{value}");
        }
    }
}
